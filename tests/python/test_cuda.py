"""Plans for a card that is not there, and whole runs on the CUDA device, which is emulated (tests/cuda): autoencoder, cache, operator and errors come out as on the CPU but for
rounding, the same bytes in every order that a card may choose, and resuming is exact."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import UPS, one_sentence, program, run
from tiny_run import CONFIG, metrics, tree

EMULATED = program("ups_emulated")
SHORT = (CONFIG.replace("steps: 60", "steps: 12").replace("validate_every: 30", "validate_every: 6").replace("log_every: 10", "log_every: 1")
         .replace("checkpoint_every: 10", "checkpoint_every: 6"))
GRID = """\
output: {output}
seed: 3
precision: f32
data: {{root: {data}, split: {{train: 0.6, validation: 0.2, test: 0.2}}, decode_threads: 1}}
tasks:
  - {{name: advection, files: [advection.h5], patch: [4]}}
  - {{name: darcy, files: [darcy.h5], patch: [4]}}
model: {{tokens: grid, dim: auto, operator: {{core: spectral, hidden: 16, depth: 2, mlp_ratio: 2, drop_path: 0, modes: [5, 3], convolution: 3}}}}
autoencoder: {{steps: 0, gate: 0, target: 0.01}}
operator:
  steps: 12
  batch_size: 4
  accumulation: 2
  validate_every: 6
  log_every: 1
  checkpoint_every: 6
  rollout_steps: 2
  optimizer: {{kind: muon, learning_rate: 0.001, epsilon: 0.001, warmup_steps: 2, ema_decay: 0.9}} # epsilon: a gradient that is rounding alone moves little
  losses: {{relative: {{weight: 0}}, decoded: {{weight: 1}}, spectral: {{weight: 0.1}}, rollout_decoded: {{weight: 1, from: 6}}}}
"""
RUNS = {"stack": SHORT, "grid": GRID}


def few(text):
    """Of what is about training: the emulated card is longest at caches, which are decoded to tell of their error."""
    return re.sub(r"( +)(files: .*)", r"\1\2\n\1max_samples: 5", text)


FP8 = few(SHORT).replace("precision: f32", "precision: fp8").replace("steps: 12", "steps: 2", 1)  # the autoencoder has no layer of FP8


def start(ups, *arguments, order="forward", **environment):
    card = {"UPS_TEST_DEVICE": "cuda", "SIMT_RACES": "0", "SIMT_ORDER": order, **environment}
    return run(ups, *arguments, env={**os.environ, **card} if ups == EMULATED else None)


def must(*arguments, **settings):
    done = start(*arguments, **settings)
    assert done.returncode == 0, done.stderr
    return done


def trained(runs, ups, text, more=(), **settings):
    """The files of a run and the lines of its metrics; always in the same folder, whose name stands in them."""
    must(ups, "train", runs.config("run", text), *more, **settings)
    files, said = tree(runs.path("run")), metrics(runs.path("run"), clock=False)
    del files["metrics.jsonl"]
    return files, said


def removed(runs, made):
    shutil.rmtree(runs.path("run"))
    return made


def result(runs, ups, text, more=(), **settings):
    """And its errors."""
    made = trained(runs, ups, text, more, **settings)
    errors = json.loads(must(ups, "eval", runs.path("run"), "--json", **settings).stdout)
    return removed(runs, (*made, [[h["model"]["nrmse"] for h in task["horizons"] if h.get("model")] for task in errors["tasks"]]))


@pytest.fixture(scope="module")
def made(runs):
    """The run of a kind by a command, made once."""
    return functools.cache(lambda kind, ups: result(runs, ups, RUNS[kind]))


@pytest.fixture(scope="module", params=RUNS)
def results(made, request):
    """Of a configuration: its text, and what the CPU and the emulated card make of it."""
    return RUNS[request.param], made(request.param, UPS), made(request.param, EMULATED)


def test_losses_and_errors_are_the_cpus_but_for_rounding(results):
    _, (_, expected, errors), (_, found, emulated) = results
    assert [(line["stage"], line["step"]) for line in found] == [(line["stage"], line["step"]) for line in expected]
    losses = [(ours["loss"], theirs["loss"]) for ours, theirs in zip(found, expected) if "loss" in theirs]
    assert len(losses) >= 12
    for ours, theirs in losses:
        assert ours == pytest.approx(theirs, rel=1e-4)
    for ours, theirs in zip(emulated, errors, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)


def test_a_run_has_the_same_bytes_in_any_order_that_a_card_may_choose(runs, results):
    text, _, expected = results
    assert result(runs, EMULATED, text, order="random") == expected


def test_a_run_that_goes_on_has_the_same_bytes(runs, results):
    text, _, (expected, _, _) = results
    held = ("--set", "operator.optimizer.schedule=constant")
    whole, _ = removed(runs, trained(runs, EMULATED, text, held))
    config = runs.config("run", text)
    must(EMULATED, "train", config, *held, "--set", "operator.steps=6")
    must(EMULATED, "train", config, *held, "--extend", order="random")
    parts = tree(runs.path("run"))
    shutil.rmtree(runs.path("run"))
    kept = [name for name in whole if name.endswith(".safetensors") or name.startswith("cache/")]
    assert len(kept) > 3
    assert {name: parts.get(name) for name in kept} == {name: whole[name] for name in kept}


MESH = GRID[:GRID.index("tasks:")] + """\
tasks:
  - {{name: mesh, files: [mesh.h5], patch: [8]}}
model: {{tokens: grid, dim: auto, operator: {{core: unet, depths: [1, 1], hidden: 16, heads: 2, mlp_ratio: 2, drop_path: 0}}}}
autoencoder: {{steps: 0}}
operator:
  steps: 8
  batch_size: 4
  validate_every: 0
  log_every: 1
  optimizer: {{kind: muon, learning_rate: 0.001, epsilon: 0.001, warmup_steps: 2}}
  losses: {{relative: {{weight: 0}}, decoded: {{weight: 1}}}}
"""


def write_points_of_each_sample(path):
    rng = np.random.default_rng(2)
    t, points = np.linspace(0, 0.5, 7), rng.random((10, 90, 2))
    with h5py.File(path, "w") as f:
        f["points"], f["t"] = points, t
        f["u"] = np.cos(6 * (points[:, None] @ [1.0, 0.5] - t[:, None] + rng.random((10, 1, 1)))).astype("f4")


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
def test_fields_on_a_mesh_are_learnt_as_on_the_cpu(runs, own):
    file = os.path.join(runs.data, "mesh.h5")
    if own:
        write_points_of_each_sample(file)
    else:
        assert run(UPS, "datagen", "transport_mesh2d", "-o", file, "-n", "10", "-r", "16", "--steps", "6", "-q").returncode == 0
    (_, said, errors), (files, on_card, errors_of_card) = result(runs, UPS, MESH), result(runs, EMULATED, MESH)
    assert [line["loss"] for line in on_card if "loss" in line] == pytest.approx([line["loss"] for line in said if "loss" in line], rel=1e-4)
    assert sum("loss" in line for line in said) >= 8
    assert errors_of_card[0] == pytest.approx(errors[0], rel=1e-3)
    assert result(runs, EMULATED, MESH, order="random")[0] == files
    os.remove(file)


@pytest.mark.parametrize("kind", RUNS)
def test_a_cache_says_that_a_card_made_it_and_has_the_cpus_latents_but_for_rounding(runs, kind):
    made = {}
    for ups in (UPS, EMULATED):
        config = runs.config("run", RUNS[kind])
        must(UPS, "train", config, "--stage", "autoencoder")
        must(ups, "cache", "build", config)
        document = json.loads(Path(runs.path("run", "cache", "darcy", "train", "zarr.json")).read_text())
        assert document["attributes"]["ups"]["fingerprint"].get("device") == (None if ups == UPS else "cuda")
        must(UPS, "train", config)  # what a card made, the CPU takes
        assert json.loads(Path(runs.path("run", "cache", "darcy", "train", "zarr.json")).read_text()) == document
        made[ups] = runs.path(f"{kind}-{'cpu' if ups == UPS else 'cuda'}")
        shutil.move(runs.path("run", "cache"), made[ups])
        shutil.rmtree(runs.path("run"))
    done = run(UPS, "cache", "diff", made[UPS], made[EMULATED], "--json")
    told = json.loads(done.stdout)
    assert told["groups"], told
    for group in told["groups"]:  # a number that lies near the middle of two of FP16 may be rounded to either
        assert group["max_abs"] <= 2**-8, group
        assert group["rms"] <= 2**-14, group


def test_tf32_is_near_float32_on_a_card_and_is_float32_on_a_processor(runs):
    exact = GRID.replace("steps: 12", "steps: 4")
    text = exact.replace("precision: f32", "precision: tf32")
    models = ("autoencoder.safetensors", "operator.safetensors")
    weights, said = [], None
    for of in (exact, text):
        said = trained(runs, UPS, of)[1]
        weights.append({part: load_file(runs.path("run", part)) for part in models})
        shutil.rmtree(runs.path("run"))
    assert all(weights[0][part][name].tobytes() == weights[1][part][name].tobytes() for part in models for name in weights[0][part])
    (_, plain), (_, told) = (removed(runs, trained(runs, EMULATED, of)) for of in (exact, text))
    expected, close, far = ([line["loss"] for line in lines if "loss" in line] for lines in (said, plain, told))
    assert far == pytest.approx(expected, rel=1e-2)
    assert max(abs(a / b - 1) for a, b in zip(far, expected)) > 10 * max(abs(a / b - 1) for a, b in zip(close, expected))


def test_fp8_is_near_bfloat16_on_a_card_goes_on_exactly_and_is_bfloat16_on_a_processor(runs):
    constant = ("--set", "operator.optimizer.schedule=constant")
    bf16 = FP8.replace("precision: fp8", "precision: bf16")
    losses = {}
    for name, ups, text in (("processor", UPS, bf16), ("same", UPS, FP8), ("card", EMULATED, bf16), ("fp8", EMULATED, FP8), ("none", EMULATED, FP8 + "fp8_layers: [\"nobody.*\"]\n")):
        files, said = removed(runs, trained(runs, ups, text, constant))
        losses[name] = [line["loss"] for line in said if line["stage"] == "operator" and "loss" in line]
        if name == "fp8":
            whole = files
    assert len(losses["fp8"]) == 12 and losses["same"] == losses["processor"] and losses["none"] == losses["card"]
    assert losses["fp8"] == pytest.approx(losses["card"], rel=0.05)
    assert max(abs(a / b - 1) for a, b in zip(losses["fp8"], losses["card"])) > 3 * max(abs(a / b - 1) for a, b in zip(losses["card"], losses["processor"])) > 0
    config = runs.config("run", FP8)
    told = must(EMULATED, "train", config, *constant, "--set", "operator.steps=6").stderr
    assert "operator: 8 layers multiply FP8 where the device does" in told and "stay bf16" not in told
    must(EMULATED, "train", config, *constant, "--extend", order="random")
    parts = tree(runs.path("run"))
    names = [name for name in whole if name.endswith(".safetensors")]
    assert len(names) > 3 and {name: parts.get(name) for name in names} == {name: whole[name] for name in names}
    tensors = load_file(runs.path("run", "checkpoints", "operator", "step-00000012.safetensors"))
    states = [tensor for name, tensor in tensors.items() if name.endswith(".fp8") and not name.startswith(("ema.", "adamw."))]
    assert len(states) == 8 and all((state[:, 2] == 12).all() and (state[:, 3] > 0).all() for state in states)
    shutil.rmtree(runs.path("run"))
    short = ("--set", "autoencoder.steps=1", "--set", "operator.steps=3", "--set", "operator.accumulation=2")
    models = []
    for name, checkpointing in (("kept", "none"), ("again", "block")):
        must(EMULATED, "train", runs.config(name, FP8), *short, "--set", f"operator.activation_checkpointing={checkpointing}")
        models.append(load_file(runs.path(name, "operator.safetensors")))
    assert models[0].keys() == models[1].keys() and all((models[0][name] == models[1][name]).all() for name in models[0])
    forked = must(EMULATED, "train", runs.path("kept"), "--fork", runs.path("forked"), "--set", "precision=bf16", "--set", "operator.steps=1").stderr
    assert "from given weights" in forked and "FP8" not in forked
    must(EMULATED, "train", runs.path("forked"), "--fork", runs.path("back"), "--set", "precision=fp8", "--set", "operator.batch_size=3")
    assert "rows, batch times tokens, are no multiple of 16" in must(EMULATED, "train", runs.config("odd", FP8), "--set", "autoencoder.steps=1", "--set", "operator.batch_size=3", "--set", "operator.steps=1").stderr
    refused = start(EMULATED, "train", runs.config("older", FP8), SIMT_CAPABILITY="8.0")
    assert refused.returncode == 1 and "capability 8.0; FP8 is multiplied from 8.9" in refused.stderr


@pytest.mark.parametrize("precision, peak", [("f32", 66.9e12), ("tf32", 494.7e12), ("bf16", 989.4e12)])
def test_a_card_that_is_known_tells_its_utilisation_and_each_its_memory(runs, precision, peak):
    """Of which a plan says how much it will be; cuBLASLt's own and what losses and samples take come to it."""
    short = ("--set", f"precision={precision}", "--set", "autoencoder.steps=2", "--set", "operator.steps=3")
    config = runs.config("run", few(SHORT))
    plan = json.loads(must(EMULATED, "train", config, *short, "--plan", "--json").stdout)
    for name in ("emulated H200", None)[: 2 if precision == "f32" else 1]:
        done = must(EMULATED, "train", config, *short, **({"SIMT_CARD": name} if name else {}))
        lines = [line for line in metrics(runs.path("run")) if "loss" in line]
        shutil.rmtree(runs.path("run"))
        assert len(lines) == 5
        for line in lines:
            assert ("mfu" in line) == bool(name)
            if name:  # in tf32 attention computes in float32, and what all of it would take there is the most
                most = line["flops_per_s"] / (66.9e12 if precision == "tf32" else peak) * (1 + 1e-6)
                assert line["flops_per_s"] / peak * (1 - 1e-6) <= line["mfu"] <= most
            needed = sum(plan[line["stage"]][part] for part in ("parameters", "optimizer", "activations", "inputs", "workspace"))
            assert needed <= line["memory"]["device"] < 2 * needed + (64 << 20)
        assert len(re.findall(r"ms a step, \S+ GFLOP/s, MFU \S+ %, at most \d+ MB of memory and \d+ MB of the device's" if name else r"ms a step, \S+ GFLOP/s, at most \d+ MB of memory and \d+ MB of the device's", done.stderr)) == 2


# ---- single ops

def test_ops_are_compared_on_the_emulated_card_that_was_asked_for():
    for device in ("cuda", "cpu"):
        done = must(EMULATED, "test-ops", "--device", device, "--ops", "gelu", "--json")
        told = json.loads(done.stdout)
        assert (told["device"], told["failed"], [op["op"] for op in told["ops"]]) == (device, 0, ["gelu"])
        assert 0 < told["ops"][0]["worst"] <= 1
    assert "device cuda\n" in must(EMULATED, "test-ops", "--ops", "gelu").stdout  # auto, where the environment makes it the card
    one_sentence(start(EMULATED, "test-ops", "--device", "cuda", "--ops", "gleu"), "did you mean 'gelu'", code=2)


# ---- plans

PARTS = ("parameters", "optimizer", "activations", "inputs", "workspace", "encoders", "resident_on_device")


PLANNED = {**RUNS, **{kind: SHORT.replace("decode_threads: 1", f"decode_threads: 1\n  residency: {kind}") for kind in ("encode", "device")}}


@pytest.mark.parametrize("kind", PLANNED)
def test_a_plan_for_an_absent_card_is_that_of_one_that_is_there(runs, kind):
    config = runs.config("plan", PLANNED[kind])
    absent = json.loads(must(UPS, "train", config, "--plan", "--device", "cuda", "--memory", "80", "--json").stdout)
    there = json.loads(must(EMULATED, "train", config, "--plan", "--device", "cuda", "--json").stdout)
    processor = json.loads(must(UPS, "train", config, "--plan", "--json").stdout)
    caches = [made.pop("cache", {}).get("latents", 0) for made in (absent, there, processor)]
    assert len(set(caches)) == 1 and (caches[0] == 0) == (kind == "encode")
    assert absent == there
    for stage, plan in absent.items():
        assert plan["on_device"] == sum(plan[part] for part in PARTS) and plan["offloaded"] == 0
        assert plan["total"] == plan["on_device"] + plan["loader"] + plan["validation_loader"] + plan["resident"]
        assert plan["workspace"] >= 32 << 20  # cuBLASLt's
        assert processor[stage]["on_device"] == 0
        assert (plan["encoders"] > 0) == (kind == "encode" and stage == "operator")
        assert plan["resident_on_device"] == (plan["resident"] if kind == "device" else 0)
    assert not os.path.exists(runs.path("plan"))


def test_batch_size_auto_fills_a_card(runs):
    def planned(*more):
        return json.loads(must(UPS, "train", config, "--plan", "--stage", "operator", "--device", "cuda", "--json", *more).stdout)["operator"]

    config, automatic, sizes = runs.config("auto", SHORT), ("--set", "operator.batch_size=auto"), []
    for memory in (1.1, 1.3):  # GiB, of which one is the driver's and the libraries'
        plan = planned("--memory", str(memory), *automatic)
        room = 0.9 * (memory - 1) * 2**30
        assert plan["on_device"] <= room < planned("--memory", "80", "--set", f"operator.batch_size={plan['batch_size'] + 1}")["on_device"]
        sizes.append(plan["batch_size"])
    assert sizes[0] < sizes[1]
    limited = planned("--memory", "80", *automatic, "--set", "operator.memory_limit=0.1")
    assert limited["on_device"] <= 0.1 * 2**30 and limited["batch_size"] > 1
    done = run(UPS, "train", config, "--plan", "--device", "cuda", "--memory", "1.02", *automatic)
    one_sentence(done, "of the card's memory", "device.memory")
    done = run(UPS, "train", config, "--plan", "--device", "cuda", "--memory", "1.02")
    one_sentence(done, "autoencoder: batches of", "of the card's memory")


def test_a_run_keeps_within_what_it_may_use_of_a_card(runs):
    config = runs.config("small", SHORT)
    for more in (), ("--set", "autoencoder.batch_size=auto"):
        done = start(EMULATED, "train", config, "--set", "device.memory=0.01", *more)
        one_sentence(done, "of the card's memory", "device.memory")
        assert not os.path.exists(runs.path("small", "autoencoder.safetensors"))
    must(EMULATED, "train", config, "--stage", "autoencoder", "--set", "autoencoder.batch_size=auto", "--set", "autoencoder.steps=1",
         "--set", "device.memory=0.05")


def test_a_cards_memory_is_for_plans_on_it(runs):
    config = runs.config("plan", SHORT)
    one_sentence(run(UPS, "train", config, "--plan", "--memory", "80"), "--device cuda")
    done = run(UPS, "train", config, "--memory", "80")
    assert done.returncode == 2 and "device.memory" in done.stderr


def test_a_plan_without_a_card_asks_for_its_memory(runs):
    done = run(UPS, "train", runs.config("plan", SHORT), "--plan", "--device", "cuda")
    one_sentence(done, "the device 'cuda' cannot be used", "--memory 80")


several = pytest.mark.skipif(not shutil.which("mpirun") or "libups_mpi" not in os.environ.get("UPS_TEST_PROGRAMS", ""), reason="there is no mpirun, or no libups_mpi.so")


def together(runs, ranks, text, *more, end_at=None, **environment):
    """A run by processes with an emulated card each. `end_at`: one is asked to end once a line of the metrics has that step."""
    card = {"UPS_TEST_DEVICE": "cuda", "SIMT_RACES": "0", "UPS_MPI_MODULE": program("libups_mpi.so"), **environment}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpirun", "-n", ranks, "--oversubscribe", EMULATED, "train", runs.config("run", text), *more]
    if end_at is None:
        return run(*command, env={**os.environ, **root, **card})
    lines, until = Path(runs.path("run"), "metrics.jsonl"), time.monotonic() + 120
    with subprocess.Popen([str(word) for word in command], env={**os.environ, **root, **card}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while time.monotonic() < until and process.poll() is None and not (lines.exists() and re.search(rf'"operator", *"step": *{end_at}\b', lines.read_text())):
            time.sleep(0.02)
        ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(ranks[-1]), signal.SIGTERM)
        said, told = process.communicate(timeout=120)
    return subprocess.CompletedProcess(command, process.returncode, said, told)


def shared_by(ranks):
    text = few(SHORT).replace("steps: 12", "steps: 4").replace("from: 10", "from: 2")
    return text.replace("batch_size: 4\n  validate", f"batch_size: 4\n  accumulation: {ranks}\n  validate").replace("accumulation: 2\n  queries", f"accumulation: {ranks}\n  queries")


def kept(runs):
    files, said = removed(runs, (tree(runs.path("run")), metrics(runs.path("run"), clock=False)))
    del files["metrics.jsonl"]
    return files, [line["loss"] for line in said if "loss" in line]


@several
@pytest.mark.parametrize("shard", ["none", "optimizer"])
def test_two_processes_with_a_card_each_make_the_bytes_of_one(runs, shard):
    """Gradients go through the host's memory there, as shares of weights do; everything else is the processor's way of training together."""
    text = shared_by(2).replace("seed: 3", f"seed: 3\nranks: {{{{reproducible: true, shard: {shard}}}}}")
    expected = removed(runs, trained(runs, EMULATED, text))
    done = together(runs, 2, text)
    assert done.returncode == 0, done.stderr
    assert "2 processes train together" in done.stderr and "NCCL" not in done.stderr
    assert kept(runs) == (expected[0], [line["loss"] for line in expected[1] if "loss" in line])


@pytest.fixture(scope="module")
def by_the_host(runs):
    """Of two processes with a card each."""
    done = together(runs, 2, shared_by(2), "--set", "ranks.gradients=host")
    assert done.returncode == 0 and "NCCL" not in done.stderr, done.stderr
    return kept(runs)


@several
def test_cards_sum_gradients_by_themselves(runs, by_the_host):
    """Of two terms the sum is the same in any order, so that the files of both ways are, but for the configuration."""
    files, losses = by_the_host
    done = together(runs, 2, shared_by(2))
    assert done.returncode == 0 and done.stderr.count("cards sum gradients by NCCL 2.27.7") == 2, done.stderr  # a stage each
    found = kept(runs)
    assert found[1] == losses and {name for name in files if files[name] != found[0][name]} == {"config.yaml"}


@several
@pytest.mark.parametrize("shard", ["none", "optimizer"])
def test_cards_exchange_while_backward_makes_the_rest(runs, shard):
    """In many small sums, each begun when its gradients are complete; without shares, of the tasks alone that a step drew. Shares are updated from sums of their own, and weights
    brought together."""
    text = GRID.replace("mlp_ratio: 2,", "mlp_ratio: 2, task_specific: [mixing, mlp],").replace("steps: 12", "steps: 6").replace("from: 6", "from: 3")
    more = "--set", f"ranks.shard={shard}", "--set", "precision=bf16"
    done = together(runs, 2, text, *more, "--set", "ranks.gradients=host")
    assert done.returncode == 0 and "NCCL" not in done.stderr, done.stderr
    files, losses = kept(runs)
    done = together(runs, 2, text, *more, "--set", "ranks.gradients=nccl", "--set", "ranks.bucket=0.003")
    assert done.returncode == 0 and "cards sum gradients by NCCL" in done.stderr, done.stderr
    found = kept(runs)
    assert found[1] == losses and {name for name in files if files[name] != found[0][name]} == {"config.yaml"}


@several
def test_cards_that_exchange_stop_after_the_same_step_and_go_on_exactly(runs):
    """Their hosts wait for no step, and agree before its sums on who was asked to end."""
    text = GRID.replace("steps: 12", "steps: 20").replace("from: 6", "from: 30")
    more = "--set", "ranks.gradients=nccl", "--set", "ranks.shard=optimizer"
    assert together(runs, 2, text, *more).returncode == 0
    files, losses = kept(runs)
    done = together(runs, 2, text, *more, end_at=3)
    assert done.returncode == 143 and re.search(r"operator: stopped at step \d+ of 20", done.stderr), done.stderr
    assert 3 <= max(line["step"] for line in metrics(runs.path("run"))) < 20
    assert together(runs, 2, text, *more, "--resume").returncode == 0
    assert kept(runs) == (files, losses)


@several
def test_three_cards_come_near_the_hosts_sums(runs):
    done = together(runs, 3, shared_by(3), "--set", "ranks.gradients=host")
    assert done.returncode == 0, done.stderr
    losses = kept(runs)[1]
    done = together(runs, 3, shared_by(3), "--set", "ranks.gradients=nccl", "--set", "ranks.shard=optimizer", "--set", "ranks.bucket=0.01")
    assert done.returncode == 0, done.stderr
    found = kept(runs)[1]
    assert len(found) == len(losses) and found == pytest.approx(losses, rel=1e-4)


@several
def test_nccl_is_told_how_many_of_a_cards_blocks_it_may_take(runs):
    asked = "--set", "ranks.gradients=nccl", "--set", "ranks.blocks=5"
    done = together(runs, 2, shared_by(2), *asked, EMULATED_NCCL="blocks")
    assert done.returncode == 0 and "cards sum gradients by NCCL" in done.stderr, done.stderr
    shutil.rmtree(runs.path("run"))
    done = together(runs, 2, shared_by(2), *asked[:-1], "ranks.blocks=6", EMULATED_NCCL="blocks")
    assert done.returncode != 0 and "Other numbers of blocks than five" in done.stderr, done.stderr
    done = together(runs, 2, shared_by(2), *asked, EMULATED_NCCL="old")
    assert done.returncode != 0 and re.search(r"rank 0 cannot take part: NCCL takes a bound of its blocks \(ranks.blocks\) since 2.17", done.stderr), done.stderr
    shutil.rmtree(runs.path("run"), ignore_errors=True)


@several
@pytest.mark.parametrize("says, words", [("missing", "NCCL cannot be loaded"), ("duplicate", "Duplicate GPU detected")])
def test_where_cards_cannot_the_host_does_or_it_is_said(runs, by_the_host, says, words):
    done = together(runs, 2, shared_by(2), EMULATED_NCCL=says)
    assert done.returncode == 0 and re.search(rf"summed in the host's memory.*rank 0: .*{words}", done.stderr), done.stderr
    assert kept(runs)[1] == by_the_host[1]
    done = together(runs, 2, shared_by(2), "--set", "ranks.gradients=nccl", EMULATED_NCCL=says)
    assert done.returncode != 0 and re.search(rf"ranks.gradients: nccl: rank 0 cannot take part: .*{words}", done.stderr), done.stderr
    shutil.rmtree(runs.path("run"), ignore_errors=True)


def test_nccl_and_a_fixed_order_exclude_each_other(runs):
    text = SHORT.replace("seed: 3", "seed: 3\nranks: {{reproducible: true, gradients: nccl}}")
    one_sentence(run(UPS, "train", runs.config("plan", text), "--plan"), "ranks.gradients", "NCCL sums in an order of its own")


def test_moments_in_the_hosts_memory_leave_the_card_and_change_no_byte(runs, made):
    offloaded, more = ("--set", "operator.optimizer.offload=true"), ("--plan", "--stage", "operator", "--device", "cuda", "--memory", "80", "--json")
    config = runs.config("plan", GRID)
    before, after = (json.loads(must(UPS, "train", config, *more, *options).stdout)["operator"] for options in ((), offloaded))
    assert after["total"] == before["total"] and after["optimizer"] == before["optimizer"]
    assert before["offloaded"] == 0 < after["offloaded"] < after["optimizer"]
    assert after["on_device"] == before["on_device"] - after["offloaded"]
    files, said, errors = made("grid", EMULATED)
    found, told, scores = result(runs, EMULATED, GRID, offloaded)
    assert (told, scores) == (said, errors)
    assert {name: found[name] for name in found if name != "config.yaml"} == {name: files[name] for name in files if name != "config.yaml"}


def test_what_a_card_computes_in_is_bf16_unless_it_is_told(runs):
    text = SHORT.replace("precision: f32\n", "")
    assert text != SHORT
    config = runs.config("precision", text)
    shown = must(UPS, "config", "show", config, "--set", "device.name=cuda").stdout
    assert "precision: auto # here bf16 (a card's tensor cores multiply it)" in shown


# ---- samples that stay on the card

@pytest.mark.parametrize("kind", RUNS)
def test_windows_drawn_on_the_card_are_those_of_the_host(runs, made, kind):
    """All trajectories stay there, or some: then batches with others come from the host. Both take the same steps."""
    files, said, _ = made(kind, EMULATED)
    models = {name: content for name, content in files.items() if name.endswith(".safetensors")}
    for memory, whole in (("0", True), ("0.00001", False)):  # of the host: what it does not keep is not brought to the card
        config = runs.config("run", RUNS[kind])
        shown = must(EMULATED, "train", config, "--set", "data.residency=device", "--set", f"data.residency_memory={memory}", order="random").stderr
        assert shown.count("windows are drawn on the device") == 2
        fed = [tuple(map(int, counts)) for counts in re.findall(r": (\d+) of (\d+) windows were drawn on the device, where (\d+) samples stay", shown)]
        assert len(fed) == 2
        for drawn, windows, samples in fed:
            assert windows >= 48 and (drawn > 0.8 * windows if whole else 0 < drawn < windows) and 0 < samples <= 20
        kept = [int(count) for count in re.findall(r": (\d+) samples stay in memory", shown)]
        assert kept == [20, 20] if whole else 0 < min(kept) and max(kept) < 20
        found, told = tree(runs.path("run")), metrics(runs.path("run"), clock=False)
        shutil.rmtree(runs.path("run"))
        assert {name: found.get(name) for name in models} == models
        assert [line.get("loss") for line in told] == [line.get("loss") for line in said]


# ---- what a profiler sees

def test_a_profiler_sees_ranges_of_steps_ops_and_validations(runs):
    try:
        listener = program("libnvtx_listener.so")
    except FileNotFoundError:
        pytest.skip("the toolkit of this build has no NVTX")
    seen = Path(runs.path("ranges.txt"))
    config = runs.config("run", GRID.replace("steps: 12", "steps: 3"))
    must(EMULATED, "train", config, NVTX_INJECTION64_PATH=listener, UPS_TEST_RANGES=str(seen))
    shutil.rmtree(runs.path("run"))
    lines = seen.read_text().splitlines()
    assert lines.count("optimizer") == 3 and lines.count("validation") >= 1 and lines.count("checkpoint") >= 1
    assert lines.count("batch") == 6 and lines.count("step") == 6
    assert ".evaluation" in lines and ".batch" in lines  # of the validation
    assert ".forward" in lines and ".backward" in lines and any(line.startswith("..operator.blocks.1.") for line in lines)  # while a step is captured
    assert not any(line.startswith("....") for line in lines)  # each has its end
