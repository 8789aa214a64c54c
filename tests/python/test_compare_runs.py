"""`ups compare` of two runs: what they cost and how they learnt, reckoned again from metrics.jsonl, the models' files and the cache by NumPy;
what a run does not tell; and losses and machines that may not be held against each other."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import must, terminal, told
from tiny_run import metrics

SAMPLES = 20
MEDIANS = ("step_s", "samples_per_s", "flops_per_s", "data_wait_share")


def rewrite(folder, change):
    """Every line of metrics.jsonl, as `change` makes it; None drops it."""
    lines = [change(line) for line in metrics(folder)]
    Path(folder, "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines if line))


@pytest.fixture(scope="module")
def pair(runs, trained):
    """Two finished runs with one autoencoder, of which the second has a deeper operator, another rate, and lines at other steps."""
    runs.must("train", runs.config("deep"), "--set", "model.operator.depth=3", "--set", "operator.optimizer.learning_rate=0.004",
              "--set", "operator.log_every=7", "--set", "operator.validate_every=20", "--quiet")
    return runs.path("trained"), runs.path("deep")


def of_training(folder, stage):
    return [line for line in metrics(folder) if line["stage"] == stage and "learning_rate" in line]


def clock(folder, stage):
    """Seconds of training at any step, from the lines."""
    lines = of_training(folder, stage)
    steps = np.array([0] + [line["step"] for line in lines])
    seconds = np.concatenate([[0], np.cumsum([line["step_s"] for line in lines] * np.diff(steps))])
    return lambda step: np.interp(step, steps, seconds)


def first_at(folder, stage, loss):
    return next(line["step"] for line in metrics(folder) if line["stage"] == stage and line.get("score", np.inf) <= loss)


def test_numbers_of_both_are_those_of_their_files_and_ratios_those_of_numbers(pair):
    found = told("compare", *pair)
    for side, folder in zip("ab", pair):
        for stage in ("autoencoder", "operator"):
            summary, lines = found[side]["stages"][stage], of_training(folder, stage)
            later = lines[max(1, len(lines) // 10):]
            assert summary["lines"] == len(later)
            for key in MEDIANS:
                assert summary[key] == pytest.approx(np.median([line[key] for line in later]), rel=1e-12), key
            assert summary["steps"] == lines[-1]["step"] == 60
            assert summary["training_s"] == pytest.approx(clock(folder, stage)(60), rel=1e-9)
            assert summary["parameters"] == sum(tensor.size for tensor in load_file(Path(folder, stage + ".safetensors")).values())
            assert summary["memory"] == {key: max(line["memory"][key] for line in lines) for key in lines[0]["memory"]}
            validated = [line for line in metrics(folder) if line["stage"] == stage and "score" in line]
            assert (summary["validation"], summary["best"]) == (validated[-1]["score"], min(line["score"] for line in validated))
            assert "mfu" not in summary
        evaluation = json.loads(Path(folder, "evaluation.json").read_text())
        assert {task["task"]: (task["latents_per_frame"], task["frame_seconds"]) for task in evaluation["tasks"]}["advection"] == \
            (64, found[side]["tasks"]["advection"]["frame_seconds"])
        shards = [path for path in Path(folder, "cache").rglob("latent/c/**/*") if path.is_file()]
        cache = found[side]["cache"]
        assert cache["samples"] == 2 * SAMPLES and cache["raw_bytes"] == 2 * 64 * SAMPLES * (9 + 2)
        assert cache["bytes"] == sum(path.stat().st_size for path in shards) and cache["ratio"] == pytest.approx(cache["raw_bytes"] / cache["bytes"])
    a, b, ratio = (found[side]["stages"]["operator"] for side in ("a", "b", "ratio"))
    for key in (*MEDIANS[:3], "parameters", "training_s", "validation", "best"):
        assert ratio[key] == pytest.approx(b[key] / a[key])
    assert ratio["memory"]["resident"] == pytest.approx(b["memory"]["resident"] / a["memory"]["resident"])
    assert ratio["parameters"] > 1.05


def test_what_was_changed_is_named_and_speeds_are_of_one_machine(pair):
    found = told("compare", *pair)
    assert {(each["key"], each["a"], each["b"], each["neutral"]) for each in found["differences"]} == {
        ("model.operator.depth", "2", "3", False), ("operator.optimizer.learning_rate", "0.005", "0.004", False),
        ("operator.log_every", "10", "7", True), ("operator.validate_every", "30", "20", False)}
    assert {name: each["same"] for name, each in found["machines"].items()} == {"autoencoder": True, "operator": True, "evaluation": True}
    assert re.search(r", 1 thread$", found["machines"]["operator"]["a"][0])
    text = must("compare", *pair).stdout
    assert re.search(r"^model\.operator\.depth +2 +3$", text, re.M) and "*" not in text
    a, b = (found[side]["stages"]["operator"] for side in "ab")
    assert re.search(rf"^  a step, ms +{1e3 * a['step_s']:.4g} +{1e3 * b['step_s']:.4g} +{b['step_s'] / a['step_s']:.3g}$", text, re.M)
    assert told("compare", pair[0], pair[0])["differences"] == []


@pytest.mark.parametrize("columns", [80, 120])
def test_the_tables_fit_the_terminal(pair, columns):
    code, shown = terminal("compare", *pair, "--quiet", columns=columns)
    assert code == 0 and "windows a second" in shown and "95 % interval" in shown
    assert [line for line in shown.splitlines() if len(line) > columns and not line.startswith(("A: ", "B: "))] == []


def test_a_loss_that_both_reached_is_told_with_the_time_that_each_needed(pair):
    """Between lines, time goes on evenly."""
    found = told("compare", *pair)
    by_stage = {each["stage"]: each for each in found["learning"]}
    lowest = [min(line["score"] for line in metrics(folder) if line["stage"] == "operator" and "score" in line) for folder in pair]
    operator = by_stage["operator"]
    assert operator["comparable"] and operator["loss"] == max(lowest) and operator["of"] == "ab"[int(np.argmax(lowest))]
    needed = []
    for side, folder in zip("ab", pair):
        step = first_at(folder, "operator", max(lowest))
        needed.append(clock(folder, "operator")(step))
        assert operator[side]["step"] == step and operator[side]["seconds"] == pytest.approx(needed[-1], rel=1e-9)
    assert operator["ratio"]["seconds"] == pytest.approx(needed[1] / needed[0])
    assert re.search(rf"^  s until validation loss {max(lowest):.4g} +{needed[0]:.4g} +{needed[1]:.4g} ", must("compare", *pair).stdout, re.M)


def test_losses_of_other_latents_or_other_weights_are_not_held_against_each_other(runs, trained, pair):
    runs.must("train", runs.config("seeded"), "--set", "autoencoder.steps=30", "--quiet")
    found = told("compare", trained, runs.path("seeded"))
    operator = next(each for each in found["learning"] if each["stage"] == "operator")
    assert not operator["comparable"] and "two autoencoders" in operator["reason"] and "loss" not in operator
    assert "validation" not in found["ratio"]["stages"]["operator"] and "best" in found["a"]["stages"]["operator"]
    assert "validation losses are not held against each other" in must("compare", trained, runs.path("seeded")).stdout

    runs.must("train", runs.path("trained"), "--fork", runs.path("tuned"), "--set", "operator.steps=20", "--quiet")
    found = told("compare", trained, runs.path("tuned"))
    operator = next(each for each in found["learning"] if each["stage"] == "operator")
    assert operator["comparable"] and "B began from another run's weights" == operator["reason"] and "loss" not in operator

    runs.must("train", runs.path("trained"), "--fork", runs.path("weighed"), "--set", "operator.losses.rollout.weight=0.5", "--quiet")
    operator = next(each for each in told("compare", trained, runs.path("weighed"))["learning"] if each["stage"] == "operator")
    assert not operator["comparable"] and "operator.losses.rollout.weight" in operator["reason"]


def test_unlike_machines_are_marked_wherever_one_was_measured(runs, pair):
    _, folder = runs.copy("deep")
    rewrite(folder, lambda line: {**line, "machine": "abacus, 3 threads"} if "machine" in line and line["stage"] == "operator" else line)
    found = told("compare", pair[0], folder)
    assert found["machines"]["operator"]["same"] is False and found["machines"]["operator"]["b"] == ["abacus, 3 threads"]
    text = must("compare", pair[0], folder).stdout
    operator = text[text.index("\noperator\n"):text.index("\ncache\n")]
    marked = [line.strip().split("  ")[0] for line in operator.splitlines() if line.endswith(" *")]
    assert marked[:4] == ["training, s", "a step, ms", "windows a second", "GFLOP/s"] and "parameters" not in marked
    assert any(label.startswith("s until") for label in marked)
    assert " *" not in text[text.index("\nautoencoder\n"):text.index("\noperator\n")] and "B: abacus, 3 threads" in text

    rewrite(folder, lambda line: {key: value for key, value in line.items() if key != "machine"})
    assert told("compare", pair[0], folder)["machines"]["operator"]["same"] is None
    assert "B: not recorded" in must("compare", pair[0], folder).stdout


def test_what_an_old_run_does_not_tell_is_left_out(runs, pair):
    _, folder = runs.copy("deep")
    gone = ("memory", "flops_per_s", "machine", "step_s")
    rewrite(folder, lambda line: {key: value for key, value in line.items() if line["stage"] == "autoencoder" or key not in gone})
    runs.must("eval", folder)
    evaluation = json.loads(Path(folder, "evaluation.json").read_text())
    evaluation.pop("machine")
    for task in evaluation["tasks"]:
        del task["latents_per_frame"], task["frame_seconds"]
    Path(folder, "evaluation.json").write_text(json.dumps(evaluation))
    found = told("compare", pair[0], folder)
    operator = found["b"]["stages"]["operator"]
    assert not {"memory", "flops_per_s", "machines", "step_s", "training_s"} & operator.keys() and operator["samples_per_s"] > 0
    assert "tasks" not in found["b"] and "evaluated_on" not in found["b"]
    assert not {"memory", "flops_per_s", "step_s", "training_s"} & found["ratio"]["stages"]["operator"].keys()
    learning = next(each for each in found["learning"] if each["stage"] == "operator")
    assert "seconds" not in learning["b"] and "seconds" not in learning["ratio"] and learning["b"]["step"] > 0
    text = must("compare", pair[0], folder).stdout
    operator = text[text.index("\noperator\n"):text.index("\ncache\n")]
    assert re.search(r"^  a step, ms +[\d.]+ +-$", operator, re.M) and not re.search("nan|inf|null", text)

    Path(folder, "metrics.jsonl").unlink()
    found = told("compare", pair[0], folder)
    assert "stages" not in found["b"] and "cache" in found["b"] and found["learning"] == []


def test_a_file_has_what_it_holds_and_no_more(runs, pair):
    file = Path(pair[0], "evaluation.json")
    found = told("compare", file, pair[1])
    assert found["a"].keys() == {"name", "operator", "tasks", "evaluated_on"} and "stages" in found["b"]
    assert found["tasks"] == told("compare", *pair)["tasks"] and found["learning"] == []
    assert found["ratio"].keys() == {"tasks"}
    assert "model.operator.depth" in {each["key"] for each in found["differences"]}
    assert re.search(r"^  a step, ms +- +[\d.]+$", must("compare", file, pair[1]).stdout, re.M)
    bare = {key: value for key, value in json.loads(file.read_text()).items() if key in ("tasks", "operator")}
    Path(runs.path("bare.json")).write_text(json.dumps(bare))
    assert "differences" not in told("compare", runs.path("bare.json"), pair[1])


def test_a_resumed_run_counts_every_step_once(runs):
    """Killed at step 20, whose lines stay; the run that goes on says again what it computes on."""
    config = runs.config("resumed")
    runs.train_until("operator, step 30", config)
    runs.must("train", config, "--resume", "--quiet")
    folder = runs.path("resumed")
    machines = [line["machine"] for line in metrics(folder) if line["stage"] == "operator" and "machine" in line]
    summary = told("compare", folder, folder)["a"]["stages"]["operator"]
    assert len(machines) == 2 and summary["machines"] == machines[:1]
    assert summary["training_s"] == pytest.approx(clock(folder, "operator")(60), rel=1e-9)
