"""What validations decide: whether an autoencoder is good enough to build on, which weights are the best, when a stage has stopped getting
better; and what is said of it, in the terminal, in the metrics and in an evaluation."""

import datetime
import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file, save_file

from commands import one_sentence
from injection import with_fault
from tiny_run import CONFIG, Sandbox, metrics, tree

OFTEN = CONFIG.replace("validate_every: 30", "validate_every: 5")
# Nothing is better by so much than the first validation.
NO_BETTER = OFTEN.replace("  rollout_steps: 3", "  rollout_steps: 3\n  patience: 2\n  min_delta: 100")


def scores(folder, stage):
    return {line["step"]: line["score"] for line in metrics(folder) if line["stage"] == stage and "score" in line}


def models(folder):
    return {name: of for name, of in tree(folder).items() if name.startswith("checkpoints") or name.endswith(".safetensors")}


# ---- what is validated

def test_losses_that_begin_later_count_from_the_first_validation_on(runs):
    """Else the best weights were chosen without them."""
    found = {}
    for weight in (1, 100):
        text = OFTEN.replace("rollout: {{weight: 1, every: 2, from: 10}}", f"rollout: {{{{weight: {weight}, every: 2, from: 50}}}}")
        assert text != OFTEN
        runs.must("train", runs.config(f"weight{weight}", text), "-q")
        found[weight] = scores(runs.path(f"weight{weight}"), "operator")
    assert all(found[100][step] > 5 * found[1][step] for step in (5, 25, 45)), "until step 50 the weights are the same"


# ---- the gate

def test_an_autoencoder_that_reads_back_badly_stops_the_run_with_what_to_try(runs):
    config, folder = runs.config("gated", CONFIG.replace("gate: 0", "gate: 0.2")), runs.path("gated")
    done = runs.run("train", config)
    one_sentence(done, r"held-out fields of task \w+ are read back with an nRMSE of 0\.\d+, above autoencoder.gate \(0.2\)",
                 "--extend --set autoencoder.steps=120", "patch", "model.tokens")
    assert len(re.findall(r"held-out fields of (advection|darcy) are read back with an nRMSE of", done.stderr)) == 2
    assert not os.path.exists(os.path.join(folder, "cache")) and not os.path.exists(os.path.join(folder, "state.json"))
    one_sentence(runs.run("train", config), "--resume goes on from it")
    assert "autoencoder  has its 60 steps, but has not passed autoencoder.gate; would be measured again" in runs.must("train", folder).stdout
    one_sentence(runs.run("train", folder, "--resume"), "above autoencoder.gate")
    runs.must("train", folder, "--resume", "--set", "autoencoder.gate=0")
    runs.must("train", runs.config("ungated"))
    assert models(folder) == models(runs.path("ungated"))


def test_the_gate_measures_what_evaluation_calls_reconstruction(runs, trained):
    """By other frames of other trajectories: about the same."""
    said = runs.run("train", runs.config("measured", CONFIG.replace("gate: 0", "gate: 100")), "--stage", "autoencoder").stderr
    told = json.loads(runs.must("eval", trained, "--split", "validation", "--json", "-o", runs.path("e.json")).stdout)
    horizon = next(h for task in told["tasks"] if task["task"] == "darcy" for h in task["horizons"] if h["steps"] == 1)
    expected = np.mean([field["reconstruction"]["nrmse"] for field in horizon["fields"].values()])
    found = float(re.search(r"darcy are read back with an nRMSE of (\S+)", said)[1])
    assert 0.8 < found / expected < 1.25


def test_a_gate_that_an_extension_does_not_pass_leaves_the_old_run(runs, trained):
    _, folder = runs.copy("trained")
    before = models(folder)
    done = runs.run("train", folder, "--extend", "--set", "autoencoder.steps=61", "--set", "autoencoder.gate=0.01")
    one_sentence(done, "above autoencoder.gate", rf"\(rm -r (\S+)/next && ups train \1 --extend --set autoencoder.steps=122\)")
    assert {name: of for name, of in models(folder).items() if not name.startswith("next")} == before
    runs.must("eval", folder)
    runs.must("train", folder, "--resume", "--set", "autoencoder.gate=0")
    assert json.loads(Path(folder, "state.json").read_text())["autoencoder"]["steps"] == 61


# ---- the best weights

@pytest.fixture(scope="module")
def often(runs):
    """A run that validates often, at a learning rate at which the score goes up and down, with all checkpoints kept."""
    text = OFTEN.replace("checkpoint_every: 10", "checkpoint_every: 5") + "checkpoint: {{keep: 100}}\n"
    rate = ("--set", "operator.optimizer.learning_rate=0.3", "--set", "operator.optimizer.schedule=constant")
    said = runs.must("train", runs.config("often", text), *rate).stderr
    return runs.path("often"), said


@pytest.mark.parametrize("stage", ["autoencoder", "operator"])
def test_the_best_weights_are_those_of_the_best_validation(often, stage):
    folder, _ = often
    found = scores(folder, stage)
    step = min(found, key=found.get)
    checkpoints = Path(folder, "checkpoints", stage)
    with safetensors.safe_open(checkpoints / "best.safetensors", "numpy") as file:
        told = file.metadata()
        best = {name: file.get_tensor(name) for name in file.keys()}
    assert (told["checkpoint.step"], float(told["checkpoint.score"])) == (str(step), pytest.approx(found[step], rel=1e-7))
    kept = load_file(checkpoints / f"step-{step:08d}.safetensors")
    assert not any(name.startswith("adamw") for name in best)
    assert all((kept[name] == best[name]).all() for name in best)
    assert sum(not name.startswith(("adamw", "ema")) for name in kept) == sum(not name.startswith("ema") for name in best)
    latest = json.loads((checkpoints / "latest.json").read_text())
    assert (latest["best"]["step"], latest["best"]["stale"]) == (step, (60 - step) // 5)
    lines = [line for line in metrics(folder) if line["stage"] == stage and "best" in line]
    assert [line["best"] for line in lines] == list(np.minimum.accumulate([line["score"] for line in lines]))


def test_best_and_latest_are_evaluated_and_rolled_out_by_name(runs, often, scratch):
    folder, _ = often
    found = scores(folder, "operator")
    best = min(found, key=found.get)
    assert best != 60, "the last validation was the best one: this shows nothing"
    for name, file in (("best", "best.safetensors"), ("latest", "step-00000060.safetensors")):
        told = json.loads(runs.must("eval", folder, "--checkpoint", name, "--json", "-o", os.path.join(scratch, name)).stdout)
        assert told["operator"]["file"] == f"{folder}/checkpoints/operator/{file}"
        assert told["autoencoder"]["file"] == f"{folder}/autoencoder.safetensors"
        runs.must("rollout", folder, "-c", name, "-o", os.path.join(scratch, name + ".h5"))
    # A last validation that did not fall due, and was better, makes the latest the best.
    latest = Path(folder, "checkpoints", "operator", "latest.json")
    text = latest.read_text()
    try:
        latest.write_text(json.dumps({**json.loads(text), "score": 0.0}))
        told = json.loads(runs.must("eval", folder, "-c", "best", "--json", "-o", os.path.join(scratch, "e")).stdout)
        assert told["operator"]["file"].endswith("step-00000060.safetensors")
    finally:
        latest.write_text(text)


def test_as_many_checkpoints_are_kept_as_the_configuration_says(runs, often):
    folder, _ = often
    steps = lambda at: sorted(int(name[5:13]) for name in os.listdir(os.path.join(at, "checkpoints", "operator")) if name.startswith("step-"))
    assert steps(folder) == list(range(5, 61, 5))
    runs.must("train", runs.config("three", CONFIG + "checkpoint: {{keep: 3}}\n"))
    assert steps(runs.path("three")) == [40, 50, 60]
    runs.must("train", runs.path("three"), "--extend", "--set", "operator.steps=70", "--set", "checkpoint.keep=2")
    assert steps(runs.path("three")) == [60, 70]


# ---- ending early

def test_a_stage_that_stops_getting_better_ends_and_can_go_on(runs):
    folder = runs.path("early")
    said = runs.must("train", runs.config("early", NO_BETTER)).stderr
    assert re.search(r"operator: ended at step 15 of 60: 2 validations in a row were no better than \S+ at step 5 \(operator.patience\)", said)
    assert json.loads(Path(folder, "state.json").read_text())["operator"]["steps"] == 15
    assert max(line["step"] for line in metrics(folder) if line["stage"] == "operator" and "loss" in line) == 15
    before = tree(folder)
    assert "operator: finished earlier" in runs.must("train", runs.path("early.yaml")).stderr
    assert tree(folder) == before
    runs.must("train", folder, "--extend", "--set", "operator.patience=0")
    runs.must("train", runs.config("patient", NO_BETTER), "--set", "operator.patience=0")
    assert models(folder) == models(runs.path("patient"))
    one_sentence(runs.run("train", folder, "--set", "operator.patience=1"), "another configuration")


def test_a_run_that_is_killed_ends_early_where_it_would_have_ended(runs):
    """Patience, the best score and the best weights are part of what is resumed."""
    text = (OFTEN.replace("validate_every: 5", "validate_every: 7").replace("log_every: 10", "log_every: 4")
            .replace("  rollout_steps: 3", "  rollout_steps: 3\n  patience: 3\n  min_delta: 0.3"))
    sandbox = Sandbox(runs)
    run = sandbox.path("run")
    command = ["train", runs.config("patience", text, output=run), "--resume"]
    done, struck = with_fault(sandbox, command, "write:1+:none")
    assert done.returncode == 0, done.stderr
    expected, lines = models(run), metrics(run, clock=False)
    assert json.loads(Path(run, "state.json").read_text())["operator"]["steps"] < 60, "it did not end early: this shows nothing"
    for share in (0.15, 0.4, 0.6, 0.8, 0.9, 0.96):
        sandbox.begin("empty")
        done, _ = with_fault(sandbox, command, f"write:{int(share * len(struck))}:kill")
        assert done.returncode == -signal.SIGKILL
        runs.must(*command)
        assert models(run) == expected
        assert metrics(run, clock=False) == lines


# ---- what is said

def test_each_validation_is_a_line_in_the_terminal_and_a_table_ends_the_stage(often):
    folder, said = often
    for stage in ("autoencoder", "operator"):
        found = scores(folder, stage)
        for step, score in found.items():
            line = re.search(rf"{stage}, step {step} of 60: validation (\S+) \(advection \S+, darcy \S+\); (.*)", said)
            assert float(line[1]) == pytest.approx(score, rel=1e-3)
            best = min((s for s in found if s <= step), key=found.get)
            assert line[2] == ("the best so far" if best == step else f"best {found[best]:.4g} at step {best}")
    assert len(re.findall(r"\w+: 60 steps in \S+ s, \S+ ms a step, \S+ GFLOP/s, at most \d+ MB of memory\n.*  task +training +validation   best, step \d+\n.*advection.*\n.*darcy", said)) == 2


def test_metrics_tell_the_time_and_the_seconds_of_a_step(often):
    folder, _ = often
    lines = metrics(folder)
    times = [datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00")) for line in lines]
    assert times == sorted(times)
    assert abs((datetime.datetime.now(datetime.timezone.utc) - times[-1]).total_seconds()) < 3600
    assert all(line["step_s"] > 0 for line in lines if "loss" in line)


def test_an_operator_that_is_worse_than_persistence_is_called_so(runs, trained, scratch):
    model, output = os.path.join(scratch, "operator.safetensors"), os.path.join(scratch, "e.json")
    with safetensors.safe_open(runs.path("trained", "operator.safetensors"), "numpy") as file:
        save_file({name: 9 * file.get_tensor(name) for name in file.keys()}, model, file.metadata())
    said = runs.must("eval", trained, "--checkpoint", model, "-o", output).stdout
    told = json.loads(Path(output).read_text())
    worse = {(entry["task"], entry["steps"], entry["whole"]): entry["ratio"] for entry in told["worse_than_persistence"]}
    expected = {(task["task"], h["steps"], h["whole"]): h["model"]["nrmse"] / h["persistence"]["nrmse"] for task in told["tasks"]
                for h in task["horizons"] if h["windows"] and h["model"]["nrmse"] > h["persistence"]["nrmse"]}
    assert worse == {key: pytest.approx(ratio, rel=1e-6) for key, ratio in expected.items()} and worse
    summary = said[said.index("WORSE THAN PERSISTENCE"):]
    for (task, steps, whole), ratio in worse.items():
        where = f"the whole rollout of {steps} step" if whole else f"after {steps} step"
        assert re.search(rf"{task}, {where}s?: {ratio:.3g} x its nRMSE", summary)
    assert "WORSE" not in runs.must("eval", trained, "-o", output).stdout
    assert json.loads(Path(output).read_text())["worse_than_persistence"] == []
