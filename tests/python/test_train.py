"""`ups train` from data to a finished operator, as a user runs it: stages in order and skipped when finished, losses
that fall, metrics that say so, a plan that comes before."""

import fcntl
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import one_sentence
from test_muon import newton_schulz
from test_token_grid import GRID
from tiny_run import CONFIG, metrics, tree

DARCY = "  - name: darcy\n.*\n.*\n"
LONGER = CONFIG.replace("steps: 60", "steps: 300")


SAMPLES = 24
PRECISIONS = ("f32", "bf16", "fp16")
EACH = pytest.mark.parametrize("precision", PRECISIONS)


@pytest.fixture(scope="module", autouse=True)
def said(runs):
    """What training said in each precision; the runs in f32/, bf16/ and fp16/ are only read."""
    return {precision: runs.must("train", runs.config(precision, LONGER.replace("precision: f32", "precision: " + precision))).stderr
            for precision in PRECISIONS}


def lines(runs, precision, stage, field):
    return [line for line in metrics(runs.path(precision)) if line["stage"] == stage and field in line]


@EACH
def test_all_stages_run_in_order_and_leave_their_models(runs, said, precision):
    said = said[precision]
    assert said.index("autoencoder:") < said.index("cache advection/train")
    assert said.index("cache darcy/test") < said.index("operator:")
    state = json.loads(Path(runs.path(precision, "state.json")).read_text())
    assert {stage: entry["steps"] for stage, entry in state.items()} == {"autoencoder": 300, "cache": 0, "operator": 300}
    names = {stage: set(load_file(runs.path(precision, stage + ".safetensors"))) for stage in ("autoencoder", "operator")}
    assert all(name.startswith(("encoder.", "decoder.")) for name in names["autoencoder"])
    assert all(name.startswith("operator.") for name in names["operator"])
    assert any(name.startswith("encoder.darcy.") for name in names["autoencoder"])


# The operator's first line is of steps before the rollout's loss is added.
@EACH
@pytest.mark.parametrize("stage, first, share", [("autoencoder", slice(0, 1), 0.65), ("operator", slice(1, 4), 0.85)])
@pytest.mark.parametrize("task", ["advection", "darcy"])
def test_losses_fall_for_every_task_in_both_stages_and_all_precisions(runs, precision, stage, first, share, task):
    losses = [line["task_loss"][task] for line in lines(runs, precision, stage, "task_loss") if task in line["task_loss"]]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-5:]) < share * np.mean(losses[first])


def test_muon_lowers_the_losses_goes_on_to_the_same_bytes_and_does_not_depend_on_threads(runs):
    text = CONFIG.replace("kind: adamw, ", "").replace("warmup_steps: 4", "warmup_steps: 4, schedule: constant, kind: muon")
    whole, stopped = runs.config("muon", text), runs.config("muonstopped", text)
    runs.must("train", whole)
    runs.must("train", stopped, "--set", "operator.steps=30", "--set", "device.threads=2")
    runs.must("train", stopped, "--extend", "--set", "device.threads=2")
    for stage in ("autoencoder", "operator"):
        logged = [line for line in metrics(runs.path("muon")) if line["stage"] == stage and "loss" in line]
        assert np.mean([line["loss"] for line in logged[-2:]]) < 0.8 * logged[0 if stage == "autoencoder" else 1]["loss"]
        assert Path(runs.path("muon", stage + ".safetensors")).read_bytes() == Path(runs.path("muonstopped", stage + ".safetensors")).read_bytes()
    kept = set(load_file(runs.path("muon", "checkpoints", "operator", "step-00000060.safetensors")))
    moved = {name[len("muon.momentum."):] for name in kept if name.startswith("muon.momentum.")}
    blocks = {f"operator.blocks.{i}.{matrix}.weight" for i in range(2) for matrix in ("attention.qkv", "attention.output", "mlp.up", "mlp.down")}
    assert moved == blocks
    adamw, muon = (runs.told("train", whole, "--plan", "--set", f"operator.optimizer.kind={kind}", "--set", f"output={runs.path('unbuilt')}")["operator"]
                   for kind in ("adamw", "muon"))
    assert muon["optimizer"] != adamw["optimizer"] and muon["total"] - adamw["total"] == muon["optimizer"] - adamw["optimizer"]


@pytest.mark.parametrize("schedule", ["cosine", "wsd", "plateau"])
def test_muon_goes_on_to_the_same_bytes_under_every_schedule_that_changes_the_rate(runs, schedule):
    text = CONFIG.replace("kind: adamw, ", "").replace("warmup_steps: 4", f"warmup_steps: 4, schedule: {schedule}, plateau_patience: 1, kind: muon")
    whole, stopped = runs.config(schedule, text), runs.config(schedule + "stopped", text)
    often = ("--set", "operator.validate_every=5", "--set", "operator.checkpoint_every=5", "--set", "operator.log_every=1")
    runs.must("train", whole, *often)
    runs.train_until("operator, step 20", stopped, *often)
    runs.must("train", stopped, "--resume", *often, "--set", "device.threads=2")
    assert Path(runs.path(schedule, "operator.safetensors")).read_bytes() == Path(runs.path(schedule + "stopped", "operator.safetensors")).read_bytes()
    rates = [line["learning_rate"] for line in metrics(runs.path(schedule)) if line["stage"] == "operator" and "learning_rate" in line]
    assert rates[-1] < max(rates)


def muon_direction(momentum, gradient, stacked):
    ahead = (0.95 * momentum + 0.05 * gradient).reshape(stacked, -1, momentum.shape[-1])
    return np.concatenate([newton_schulz(m) * 0.2 * max(m.shape)**0.5 for m in ahead])


@pytest.mark.parametrize("schedule, rate", [
    ("cosine", lambda k: 0.01 + 0.99 * (1 + np.cos(np.pi * (k - 4) / 19)) / 2), ("wsd", lambda k: 1 if k < 18 else 0.01 + 0.99 * (1 - (k - 17) / 6))])
def test_steps_of_a_training_are_those_of_float64(runs, schedule, rate):
    """Muon, AdamW, decay, the moving average and the learning rate, from one checkpoint to the next; the gradient is what the first moments tell."""
    text = re.sub(DARCY, "", CONFIG)
    keys = ["steps=24", "checkpoint_every=1", "log_every=1"] + [f"optimizer.{key}" for key in (
        "kind=muon", "learning_rate=0.02", "weight_decay=0.1", "ema_decay=0.9", "clip=0.5", f"schedule={schedule}", "decay_fraction=0.25", "decay_shape=linear")]
    name = "steps-" + schedule
    runs.must("train", runs.config(name, text), "--set", "checkpoint.keep=30", *(f"--set=operator.{key}" for key in keys))
    kept = {k: load_file(runs.path(name, "checkpoints", "operator", f"step-{k:08d}.safetensors")) for k in (3, 4, 12, 13, 20, 21)}
    for k in (3, 12, 20):
        before, after = ({n: v.astype(float) for n, v in kept[step].items()} for step in (k, k + 1))
        size = 0.02 * (rate(k) if k >= 4 else (k + 1) / 4)
        moved = 0
        for weight in (n for n in before if n.startswith("operator.")):
            muon = "muon.momentum." + weight
            first, beta = (muon, 0.95) if muon in before else ("adamw.first_moment." + weight, 0.9)
            gradient = (after[first] - beta * before[first]) / (1 - beta)
            sides = (1,)
            if muon in before:
                stacked = 3 if "qkv" in weight else 1
                direction = muon_direction(after[first], gradient, stacked)
                sides = direction.shape[0] // stacked, direction.shape[-1]
            else:
                second = 0.99 * before["adamw.second_moment." + weight] + 0.01 * gradient**2
                assert np.linalg.norm(after["adamw.second_moment." + weight] - second) <= 1e-5 * np.linalg.norm(second), weight
                direction = after[first] / (1 - 0.9**(k + 1)) / (np.sqrt(second / (1 - 0.99**(k + 1))) + 1e-8)
            decay = 0.1 if before[weight].ndim > 1 and "condition.task" not in weight else 0
            expected = before[weight] - size * (direction + decay * before[weight])
            change = np.linalg.norm(expected - before[weight])
            # Momenta of the first steps are nearly of low rank; of those with one side twice the other Muon multiplies their squares.
            tolerance = 1e-3 if max(sides) >= 2 * min(sides) else 3e-5
            assert np.linalg.norm(after[weight] - expected) <= tolerance * change + 1e-7 * np.linalg.norm(expected), (k, weight)
            follow = min(0.9, (k + 1) / (10 + k))
            average = follow * before["ema." + weight] + (1 - follow) * after[weight]
            assert np.linalg.norm(after["ema." + weight] - average) <= 3e-7 * np.linalg.norm(average), (k, weight)
            moved += change > 0
        assert moved > 10
    rates = [line["learning_rate"] for line in metrics(runs.path(name)) if line["stage"] == "operator" and "learning_rate" in line]
    assert np.allclose(rates, [0.02 * ((k + 1) / 4 if k < 4 else rate(k)) for k in range(24)], rtol=1e-6)


def test_a_falling_rate_and_the_average_of_weights_lower_the_error(runs):
    runs.generate("advection1d", "many.h5", 300, "-r", "32", "--steps", "9")
    line = re.sub(DARCY, "", GRID).replace("advection.h5", "many.h5").replace("validation_batches: 2", "validation_batches: 20")

    def score(**optimizer):
        name = runs.fresh()
        keys = {"steps": 400, "validate_every": 40, "losses.rollout_relative.weight": 0} | {f"optimizer.{key}": value for key, value in ({"ema_decay": 0, "learning_rate": 0.01} | optimizer).items()}
        runs.must("train", runs.config(name, line), *(f"--set=operator.{key}={value}" for key, value in keys.items()))
        return [line["score"] for line in metrics(runs.path(name)) if line["stage"] == "operator" and "score" in line][-1]

    constant = score(schedule="constant")
    others = {"cosine": score(), "wsd": score(schedule="wsd"), "plateau": score(schedule="plateau", plateau_patience=1, plateau_factor=0.3), "average": score(schedule="constant", ema_decay=0.99)}
    assert max(others.values()) < 0.8 * constant, (constant, others)


def test_bf16_and_fp16_train_to_about_the_loss_of_float32(runs):
    for stage in ("autoencoder", "operator"):
        ends = {precision: np.mean([line["loss"] for line in lines(runs, precision, stage, "loss")[-5:]]) for precision in PRECISIONS}
        for precision, within in (("bf16", 0.25), ("fp16", 0.03)):
            assert abs(ends[precision] / ends["f32"] - 1) < within, (stage, ends)


def test_fp16_skips_steps_that_overflow_says_so_and_resumes_exactly(runs):
    """The largest scale there is makes gradients overflow; it is written where a run stops, and taken up from there."""
    config = runs.config("scaled", CONFIG.replace("precision: f32", "precision: fp16"))
    latest = runs.path("scaled", "checkpoints", "autoencoder", "latest.json")
    command = ("train", config, "--stage", "autoencoder", "--set", "autoencoder.optimizer.schedule=constant", "--set")
    assert "precision: fp16 (processors compute it in float32" in runs.must(*command, "autoencoder.steps=10").stderr
    kept = json.loads(Path(latest).read_text())
    assert kept["loss_scale"] == {"scale": 65536.0, "good_steps": 10, "skipped": 0}
    kept["loss_scale"]["scale"] = 2.0**24
    Path(latest).write_text(json.dumps(kept))
    other, halted = runs.copy("scaled")
    Path(other).write_text(Path(config).read_text().replace(runs.path("scaled"), halted))
    runs.must(*command, "autoencoder.steps=40", "--extend")
    for steps in (11, 12, 13, 25, 40):
        runs.must("train", other, *command[2:], f"autoencoder.steps={steps}", "--extend")
    logged = [line for line in metrics(runs.path("scaled"), clock=False) if "loss" in line]
    skipped = logged[1]["skipped"]
    assert skipped > 0
    assert [line["loss_scale"] for line in logged] == [65536] + [2.0 ** (24 - skipped)] * 3
    assert [line["skipped"] for line in logged] == [0] + [skipped] * 3
    resumed = {line["step"]: line for line in metrics(halted, clock=False) if "loss" in line}
    assert [resumed[line["step"]] for line in logged] == logged
    name = "autoencoder.safetensors"
    assert Path(runs.path("scaled", name)).read_bytes() == Path(halted, name).read_bytes()


def test_auto_is_decided_once_said_and_recorded(runs):
    config = runs.config("automatic", CONFIG.replace("precision: f32", "precision: auto"))
    shown = runs.told("config", "show", config)
    here = shown["resolved"]["precision"]
    assert here == runs.told("doctor")["precision"]
    assert f"precision: auto # here {here} (" in runs.must("config", "show", config).stdout
    done = runs.must("train", config, "--set", "autoencoder.steps=20", "--set", "operator.steps=20")
    assert done.stderr.count(f"precision: {here} (") == 1, done.stderr
    assert f"precision: {here}\n" in Path(runs.path("automatic", "config.yaml")).read_text()
    begun = [line for line in metrics(runs.path("automatic")) if "precision" in line]
    assert [(line["stage"], line["step"], line["precision"]) for line in begun] == [("autoencoder", 0, here), ("operator", 0, here)]


def test_a_run_goes_on_in_the_precision_it_began_in_and_another_one_is_refused(runs):
    text = CONFIG.replace("precision: f32", "precision: auto")
    config, folder = runs.config("began", text), runs.path("began")
    command = ("train", config, "--stage", "autoencoder", "--set", "autoencoder.steps=40")
    runs.must(*command[:-1], "autoencoder.steps=20", "--set", "precision=f32")
    record, latest = os.path.join(folder, "config.yaml"), os.path.join(folder, "checkpoints", "autoencoder", "latest.json")
    kept = json.loads(Path(latest).read_text())
    assert kept["precision"] == "f32"

    def refuse(precision, other):
        before = Path(record).read_text()
        done = runs.run(*command[:-1], "autoencoder.steps=50", "--extend", "--set", "precision=" + precision)
        one_sentence(done, "a run of another configuration")
        assert re.search(rf"  precision +{other} +{precision}\n", done.stderr)
        assert Path(record).read_text() == before

    refuse("bf16", "f32")
    done = runs.must(*command, "--extend")  # auto, whatever is faster here
    assert "precision: f32 (" in done.stderr
    # Before checkpoints told it, the run's config.yaml did.
    kept = json.loads(Path(latest).read_text())
    del kept["precision"]
    Path(latest).write_text(json.dumps(kept))
    old = Path(record).read_text().replace("precision: f32", "precision: bf16")
    Path(record).write_text(old)
    refuse("f32", "bf16")
    plan = lambda *options: runs.told("train", config, "--plan", *options)["operator"]["parameters"]
    assert plan() == plan("--set", "precision=bf16")  # of the run
    assert plan() > plan("--set", "precision=f32")
    told = runs.must(*command[:-1], "autoencoder.steps=50", "--extend").stderr  # auto: in bf16, on any processor
    assert "precision: bf16 (" in told
    if runs.told("doctor")["precision"] == "f32":
        assert "f32 would be faster); the run began in it" in told


def test_metrics_have_a_line_at_each_due_step_with_every_field(runs):
    for stage in ("autoencoder", "operator"):
        logged = lines(runs, "f32", stage, "loss")
        assert [line["step"] for line in logged] == list(range(10, 301, 10))
        assert logged[0]["machine"]
        for line in logged:
            assert set(line) - {"machine"} == {"stage", "step", "loss", "task_loss", "losses", "learning_rate", "gradient_norm", "step_s", "samples_per_s", "data_wait_share", "flops_per_s", "memory", "loader", "time"}
            assert all(value > 0 for value in line["losses"].values()) and line["losses"], line
            assert line["loader"].pop("residency") == "ram"
            assert set(line["loader"]) == {"waited_s", "disk_s", "decode_s", "full_s", "read_bytes", "resident_share"}
            assert all(value >= 0 for value in line["loader"].values()), line
            assert line["samples_per_s"] > 0
            assert 0 <= line["data_wait_share"] <= 1.01, line
            assert line["gradient_norm"] > 0
        assert logged[0]["loader"]["read_bytes"] > 0
        assert (logged[-1]["loader"]["read_bytes"], logged[-1]["loader"]["resident_share"]) == (0, 1)  # auto keeps them
        validations = lines(runs, "f32", stage, "validation")
        assert [line["step"] for line in validations] == list(range(30, 301, 30))
        for line in validations:
            assert set(line["validation"]) == {"advection", "darcy"}
            assert line["score"] == pytest.approx(np.mean(list(line["validation"].values())), abs=0.5e-5)


def test_the_learning_rate_warms_up_and_ends_at_its_share_of_the_peak(runs):
    rates = [line["learning_rate"] for line in lines(runs, "f32", "operator", "loss")]
    assert rates[-1] == pytest.approx(0.005 * 0.01, abs=0.5e-9)
    assert rates == sorted(rates, reverse=True)


def test_finished_stages_are_skipped_and_nothing_changes(runs):
    before = tree(runs.path("f32"))
    done = runs.must("train", runs.path("f32.yaml"))
    assert done.stderr.count("skipped") == 2, done.stderr
    assert tree(runs.path("f32")) == before


def test_a_second_training_in_the_same_directory_is_refused(runs):
    config = runs.config("busy")
    os.mkdir(runs.path("busy"))
    with open(runs.path("busy", "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("process 4711 on host elsewhere\n")
        lock.flush()
        one_sentence(runs.run("train", config), "process 4711 on host elsewhere is training there")
        assert os.listdir(runs.path("busy")) == ["lock"]


def test_a_script_is_told_what_is_finished(runs):
    told = runs.told("train", runs.path("f32.yaml"))
    assert told["output"] == runs.path("f32")
    state = json.loads(Path(runs.path("f32", "state.json")).read_text())
    assert set(told["stages"]) == {"autoencoder", "cache", "operator"}
    for stage in ("autoencoder", "operator"):
        assert told["stages"][stage]["weights"] == state[stage]["weights"]
        assert os.path.exists(told["stages"][stage]["model"])


def test_the_same_run_on_more_decode_threads_and_another_io_engine_is_the_same_to_the_bit(runs):
    config = runs.config("again", LONGER)
    runs.must("train", config, "--set", "data.decode_threads=3", "--set", "data.io=threads", "--set", "data.slots=2")
    for stage in ("autoencoder", "operator"):
        name = stage + ".safetensors"
        assert Path(runs.path("f32", name)).read_bytes() == Path(runs.path("again", name)).read_bytes(), stage


def test_weights_do_not_depend_on_the_number_of_threads(runs):
    """Nor do checkpoints and the cache between the stages."""
    left = {}
    for threads in (1, 2, 3):
        config = runs.config("threads")
        runs.must("train", config, "--set", f"device.threads={threads}")
        left[threads] = tree(runs.path("threads"))
        for name in ("config.yaml", "metrics.jsonl"):  # name the threads; hold rates
            del left[threads][name]
        shutil.rmtree(runs.path("threads"))
    assert "checkpoints/operator/step-00000060.safetensors" in left[1]
    for threads in (2, 3):
        assert sorted(left[threads]) == sorted(left[1])
        assert [name for name in left[1] if left[threads][name] != left[1][name]] == [], threads


def test_two_short_steps_are_held_against_a_long_one_where_there_are_two_whatever_task_stands_first(runs):
    """Darcy's has none. A step of one task or the other: where only Darcy's windows were seen, there is no such loss."""
    one_step = CONFIG.replace("    rollout: {{weight: 1, every: 2, from: 10}}\n", "    semigroup: {{weight: 1}}\n")
    begin, middle, end = one_step.index("  - name: advection"), one_step.index("  - name: darcy"), one_step.index("model:")
    swapped = one_step[:begin] + one_step[middle:end] + one_step[begin:middle] + one_step[end:]
    for name, text in (("first", one_step), ("last", swapped)):
        runs.must("train", runs.config(name, text), "--set", "operator.log_every=1", "--set", "operator.steps=30")
        seen = {"advection": 0, "darcy": 0}
        for line in metrics(runs.path(name)):
            if line["stage"] != "operator" or "losses" not in line:
                continue
            (task,) = line["task_loss"]
            seen[task] += 1
            assert ("semigroup" in line["losses"]) == (task == "advection"), line
        assert min(seen.values()) > 5, seen


def test_the_average_of_the_weights_is_what_is_validated(runs):
    """A run that ends with the average of its steps, and one that goes on from that average by a step of nothing: the same scores."""
    averaged = ("--stage", "autoencoder", "--set", "autoencoder.optimizer.ema_decay=0.95", "--set", "autoencoder.validate_every=0")
    config = runs.config("averaged")
    runs.must("train", config, *averaged)
    still = ("--set", "autoencoder.optimizer.ema_decay=0", "--set", "autoencoder.optimizer.learning_rate=0", "--set", "autoencoder.steps=1")
    runs.must("train", config, "--fork", runs.path("still"), *averaged[:2], *averaged[4:], *still)
    scores = [next(line["validation"] for line in reversed(metrics(runs.path(run))) if "validation" in line) for run in ("averaged", "still")]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)
    models = [load_file(runs.path(run, "autoencoder.safetensors")) for run in ("averaged", "still")]
    assert all(np.array_equal(models[0][name], models[1][name]) for name in models[0])


def test_another_seed_is_another_run(runs):
    config = runs.config("reseeded")
    runs.must("train", config, "--stage", "autoencoder", "--set", "seed=4")
    runs.must("train", runs.config("seeded"), "--stage", "autoencoder")
    a, b = (load_file(runs.path(name, "autoencoder.safetensors")) for name in ("seeded", "reseeded"))
    assert all(not np.array_equal(a[name], b[name]) for name in a)


def test_stages_run_singly_make_the_run_that_they_make_together(runs):
    config = runs.config("singly", LONGER)
    for stage in ("autoencoder", "cache", "operator"):
        runs.must("train", config, "--stage", stage)
    found, expected = tree(runs.path("singly")), tree(runs.path("f32"))
    for name in ("config.yaml", "metrics.jsonl"):
        found.pop(name), expected.pop(name)
    assert found == expected


def test_an_operator_without_its_autoencoder_or_cache_says_what_to_run(runs):
    config = runs.config("bare")
    one_sentence(runs.run("train", config, "--stage", "operator", "--quiet"), "--stage autoencoder")
    runs.must("train", config, "--stage", "autoencoder")
    done = runs.run("train", config, "--stage", "operator", "--set", "data.residency=stream", "--quiet")
    one_sentence(done, "ups cache build", re.escape("data.residency: encode"))


def test_a_plan_needs_nothing_but_the_data_and_leaves_nothing(runs):
    config = runs.config("planned")
    plan = runs.told("train", config, "--plan")
    assert set(plan) == {"autoencoder", "cache", "operator"}
    cache = plan.pop("cache")
    assert cache["latents"] == sum(group["raw_bytes"] for group in runs.told("cache", "list", runs.path("f32"))["caches"])
    assert cache["free"] > 0
    for stage in plan.values():
        parts = ("parameters", "optimizer", "activations", "inputs", "workspace", "loader", "validation_loader", "resident", "encoders")
        assert stage["total"] == sum(stage[part] for part in parts)
        assert stage["batch_size"] == 4
    assert not os.path.exists(runs.path("planned"))
    for name in ("autoencoder", "operator"):
        elements = sum(tensor.size for tensor in load_file(runs.path("f32", name + ".safetensors")).values())
        assert plan[name]["trainable_parameters"] == elements
    said = runs.must("train", config, "--plan").stdout
    assert "total" in said and re.search(r"cache: [\d.]+ MB of latents before compression; .* GB are free at ", said)
    assert "cache" not in runs.told("train", config, "--plan", "--set", "data.residency=encode")


def test_batch_size_auto_takes_what_fits_the_limit_and_says_so_when_nothing_does(runs):
    config = runs.config("auto")
    totals = []
    for limit in (0.01, 0.04):
        plan = runs.told("train", config, "--plan", "--stage", "operator", "--set", "operator.batch_size=auto",
                         "--set", f"operator.memory_limit={limit}")["operator"]
        assert plan["total"] - plan["resident"] <= limit * 2**30
        larger = runs.told("train", config, "--plan", "--stage", "operator", "--set", f"operator.batch_size={plan['batch_size'] + 1}")["operator"]
        assert larger["total"] > limit * 2**30
        totals.append(plan["batch_size"])
    assert totals[0] < totals[1]
    done = runs.run("train", config, "--plan", "--set", "operator.batch_size=auto", "--set", "operator.memory_limit=0.0001")
    one_sentence(done, re.escape("operator.memory_limit"))


def test_restarting_begins_anew_and_ends_with_the_same_bytes(runs):
    config, folder = runs.copy("f32")
    Path(config).write_text(Path(runs.path("f32.yaml")).read_text().replace(runs.path("f32"), folder))  # the same run, in another folder
    runs.must("train", config, "--restart")
    for name in ("autoencoder.safetensors", "operator.safetensors", "state.json"):
        assert Path(folder, name).read_bytes() == Path(runs.path("f32", name)).read_bytes(), name
