"""`flops_per_s` and `memory` of metrics.jsonl: arithmetic held against the products that PyTorch makes of the same steps, memory against what
/proc says from outside."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from commands import TIMEOUT, TREE, UPS
from reference import torch, value_and_gradients
from test_operator import operator
from tiny_run import CONFIG, metrics

BATCH, TOKENS, DIM = 4, 8, 8
PLAIN = CONFIG.replace("drop_path: 0.1", "drop_path: 0").replace("  steps: 60", "  steps: 8").replace("log_every: 10", "log_every: 1").replace("validate_every: 30", "validate_every: 4")
ONE_STEP = PLAIN.replace("    rollout: {{weight: 1, every: 2, from: 10}}\n", "")
ROLLOUTS = PLAIN.replace("every: 2, from: 10", "every: 2, from: 1")


class Products(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the FLOP of matrix products: a multiplication and an addition for each number that is summed."""

    LEFT = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # which argument it is
    flops = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        result = function(*arguments, **(named or {}))
        if (name := function.overloadpacket.__name__) in self.LEFT:
            self.flops += 2 * result.numel() * arguments[self.LEFT[name]].shape[-1]
        return result


def arithmetic_of_pytorch(folder):
    """FLOP of forward and backward of one application of the operator."""
    weights, ones = load_file(Path(folder, "operator.safetensors")), lambda *shape: torch.ones(shape, dtype=torch.float64)
    inputs = {"dt": ones(BATCH, 1)}
    for name in ("parameters", "task"):
        key = f"operator.condition.{name}.weight"
        if key in weights:
            inputs[name] = ones(BATCH, weights[key].shape[1])
    z = ones(BATCH, TOKENS, DIM)
    with Products() as products:
        value_and_gradients(lambda weights: (((operator(weights, z, inputs, {"depth": 2, "heads": 2}) - z) ** 2).mean(), {}), weights)
    return products.flops


def arithmetic_once(folder):
    """The part of it that a rollout needs once, however long it is: layers of what is the same for all applications, the step's length, parameters and
    task. A product forward, and in backward one for the weight and one for what it maps, unless that is data."""
    weights = load_file(Path(folder, "operator.safetensors"))
    data = ("operator.time.0.weight", "operator.condition.parameters.weight", "operator.condition.task.weight")
    return sum((2 if name in data else 3) * 2 * BATCH * weight.size for name, weight in weights.items()
               if name.startswith(("operator.time.", "operator.condition.")) and name.endswith(".weight"))


def arithmetic_of(folder, rolls):
    """Of a step with a rollout of three states, or without."""
    one = arithmetic_of_pytorch(folder)
    return 3 * one - 2 * arithmetic_once(folder) if rolls else one


def steps_of(runs, name, text, *options):
    """FLOP of each step of the operator, by its number."""
    runs.must("train", runs.config(name, text), *options)
    return {line["step"]: line["flops_per_s"] * line["step_s"] for line in metrics(runs.path(name)) if line["stage"] == "operator" and "flops_per_s" in line}


def rolls(runs, name):
    """Whether a line has a loss of rollouts: here every second step has, where windows are long enough."""
    return ["rollout" in line["losses"] for line in metrics(runs.path(name)) if line["stage"] == "operator" and "losses" in line]


def test_a_step_is_the_products_that_pytorch_makes(runs):
    flops = steps_of(runs, "one", ONE_STEP)
    assert sorted(flops) == list(range(1, 9))
    assert list(flops.values()) == pytest.approx(8 * [arithmetic_of_pytorch(runs.path("one"))], rel=1e-6)


def test_each_step_counts_the_graph_that_it_ran(runs):
    flops = steps_of(runs, "rollouts", ROLLOUTS)
    assert 1 < sum(rolls(runs, "rollouts")) < 7
    assert list(flops.values()) == pytest.approx([arithmetic_of(runs.path("rollouts"), long) for long in rolls(runs, "rollouts")], rel=1e-6)


def test_micro_batches_add_up_and_what_is_computed_again_does_not_count(runs):
    flops = steps_of(runs, "plain", ONE_STEP)
    twice = steps_of(runs, "twice", ONE_STEP, "--set", "operator.accumulation=2")
    again = steps_of(runs, "again", ONE_STEP, "--set", "operator.activation_checkpointing=block")
    assert list(twice.values()) == pytest.approx([2 * value for value in flops.values()], rel=1e-6)
    assert again == pytest.approx(flops, rel=1e-6)


def test_a_line_of_many_steps_has_their_mean_and_the_summary_that_of_all(runs):
    done = runs.must("train", runs.config("mean", ROLLOUTS), "--set", "operator.log_every=3")
    lines = [line for line in metrics(runs.path("mean")) if line["stage"] == "operator" and "flops_per_s" in line]
    assert [line["step"] for line in lines] == [3, 6, 8]
    each = [arithmetic_of(runs.path("mean"), long) for long in rolls(runs, "rollouts")]  # the same steps, one a line
    found = [line["flops_per_s"] * line["step_s"] for line in lines]
    assert found == pytest.approx([sum(of) / len(of) for of in (each[:3], each[3:6], each[6:])], rel=1e-6)
    said = re.search(r"operator: 8 steps in \S+ s, (\S+) ms a step, (\S+) GFLOP/s, at most (\d+) MB of memory", done.stderr)
    assert float(said[2]) * float(said[1]) * 1e6 == pytest.approx(sum(each) / 8, rel=0.01)
    assert int(said[3]) == pytest.approx(lines[-1]["memory"]["resident_peak"] * 1e-6, abs=0.51)


def test_a_profile_is_of_what_a_step_does(runs):
    """Shares are of all of the time; arithmetic by op adds up to that of the steps; the weights are those of a run without."""
    done = runs.must("train", runs.config("profile", ONE_STEP), "--profile")
    text = done.stderr.split("operator: where the time of its 8 batches went")[1]
    rows = re.findall(r"^\[[ .0-9]+\]   ([a-z_]+) +([0-9.]+) +([0-9.]+) +([0-9.]+) % (.{10})", text, re.M)
    rest = re.search(r"  all else +([0-9.]+) +([0-9.]+) %", text)
    names = [row[0] for row in rows]
    assert {"linear", "attention", "layer_norm"} <= set(names)
    assert sum(float(row[3]) for row in rows) + float(rest[2]) == pytest.approx(100, abs=0.1 * len(rows))
    times = [float(row[1]) + float(row[2]) for row in rows]
    assert times[0] > 0 and all(before >= after - 0.0021 for before, after in zip(times, times[1:]))  # as rounded
    worked = sum(float(row[4]) * (float(row[1]) + float(row[2])) for row in rows if row[4].strip()) * 1e6  # GFLOP/s times ms
    assert worked == pytest.approx(arithmetic_of_pytorch(runs.path("profile")), rel=0.25)  # of few digits; attention's scores are made again
    assert Path(runs.path("profile"), "operator.safetensors").read_bytes() == Path(runs.path("one"), "operator.safetensors").read_bytes()


def test_a_profile_is_of_a_training_that_runs(runs):
    assert "--profile is of a training that runs" in runs.run("train", runs.config("profile", ONE_STEP), "--profile", "--plan").stderr


def test_every_key_is_explained(runs):
    """In docs/metrics.md: a name, or of an object each of its names, unless these are tasks or losses."""
    explained = set(re.findall(r"`([a-z_.]+)`", (TREE / "docs/metrics.md").read_text()))
    found = set()
    for line in metrics(runs.path("rollouts")):
        for key, value in line.items():
            found |= {f"{key}.{name}" for name in value} if key in ("memory", "loader") else {key}
    assert len(found) > 20 and found <= explained, found - explained


def test_no_peak_is_invented_for_a_processor(runs):
    assert not any("mfu" in line for name in ("one", "rollouts") for line in metrics(runs.path(name)))


# ---- memory

def outside(process):
    text = Path("/proc", str(process.pid), "status").read_text()
    return [1024 * int(re.search(rf"^{key}:\s+(\d+) kB", text, re.M)[1]) for key in ("VmRSS", "VmHWM")]


def test_memory_is_what_the_kernel_says_of_the_process(runs):
    """Looked at before a line and after it: the peak lies between."""
    config, folder = runs.config("memory", ONE_STEP), runs.path("memory")
    endless = ("operator.steps=1000000", "operator.log_every=200", "operator.validate_every=0", "operator.checkpoint_every=0")
    command = [UPS, "train", config, "-q", *(word for key in endless for word in ("--set", key))]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(3):
                before, count = outside(process), len(memory_told(folder))
                began = time.monotonic()
                while len(memory_told(folder)) == count:
                    assert process.poll() is None and time.monotonic() < began + TIMEOUT
                    time.sleep(0.002)
                after, told = outside(process), memory_told(folder)[count]
                assert before[1] <= told["resident_peak"] <= after[1]
                assert 0.5 * before[0] <= told["resident"] <= told["resident_peak"]
        finally:
            process.terminate()


def memory_told(folder):
    """By the lines that are whole."""
    if not Path(folder, "metrics.jsonl").exists():
        return []
    text = Path(folder, "metrics.jsonl").read_text()
    lines = map(json.loads, text[:text.rfind("\n") + 1].splitlines())
    return [line["memory"] for line in lines if line["stage"] == "operator" and "memory" in line]


def test_a_run_that_goes_on_has_lines_of_the_same_keys(runs):
    config, folder = runs.config("stopped", ONE_STEP), runs.path("stopped")
    steps = ("--set", "operator.steps=600", "--set", "operator.log_every=3")
    runs.train_until("operator, step 20 ", config, *steps)
    assert metrics(folder)[-1]["step"] < 600
    runs.must("train", config, "--resume", *steps)
    lines = [line for line in metrics(folder) if line["stage"] == "operator" and "loss" in line]
    assert [line["step"] for line in lines] == list(range(3, 601, 3))
    assert sum("machine" in line for line in lines) == 2 and "machine" in lines[0]  # the first line of each process says what it ran on
    keys = {frozenset(line) - {"machine"} for line in lines}
    assert len(keys) == 1 and {"flops_per_s", "memory"} < set(*keys)
    one = arithmetic_of_pytorch(folder)
    assert [line["flops_per_s"] * line["step_s"] for line in lines] == pytest.approx(len(lines) * [one], rel=1e-6)
