"""An operator trained on steps of several strides at once (`tasks[].strides`): what each changes, held against NumPy, and
rollouts that take steps of any of them."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import one_sentence
from test_token_grid import GRID
from tiny_run import CONFIG, metrics

STRIDES = (1, 2, 4)
STRIDED = (GRID.replace("    files: [advection.h5]\n", f"    files: [advection.h5]\n    strides: {list(STRIDES)}\n")
           .replace("rollout_steps: 3", "rollout_steps: 2").replace("steps: 200", "steps: 300"))


@pytest.fixture(scope="module")
def config(runs):
    config = runs.config("strided", STRIDED)
    runs.must("train", config)
    return config


@pytest.fixture(scope="module")
def latents(runs, config):
    dump = runs.path("strided.npy")
    runs.must("cache", "export", runs.path("strided", "cache", "advection", "train"), "-o", dump)
    return np.load(dump).astype(float)


def test_what_a_step_of_each_stride_changes_was_measured(runs, latents):
    weights = load_file(runs.path("strided", "operator.safetensors"))
    assert "operator.advection.change" not in weights and "operator.darcy.change" in weights
    for stride in STRIDES:
        steps = latents[:, stride:] - latents[:, :-stride]
        assert np.allclose(weights[f"operator.advection.stride{stride}.change"], np.sqrt((steps**2).mean((0, 1, 2))), rtol=1e-4)


@pytest.mark.parametrize("stride", STRIDES)
def test_a_step_of_any_stride_is_far_better_than_persistence(runs, config, stride):
    tasks = runs.told("eval", config, "--stride", str(stride), "-o", runs.path("strided.json"), "--set", "evaluation.horizons=[1, 0]")["tasks"]
    assert [task["task"] for task in tasks] == ["advection", "darcy"] and tasks[0]["stride"] == stride and tasks[0]["steps"] == 8 // stride
    first = tasks[0]["horizons"][0]
    assert first["model"]["nrmse"] < 0.5 * first["persistence"]["nrmse"], first


def test_tasks_that_keep_their_own_stride_are_named(runs, config):
    told = runs.must("eval", config, "--stride", "2", "-o", runs.path("kept.json"), "--set", "evaluation.horizons=[1]").stderr
    assert "--stride 2: where no step of it was learnt, steps are of the task's own stride: darcy (1)\n" in told
    assert "own stride" not in runs.must("eval", config, "--stride", "1", "-o", runs.path("kept.json"), "--set", "evaluation.horizons=[1]").stderr


def test_a_stride_that_was_not_learnt_is_warned_of(runs):
    plain = runs.config("plain", CONFIG)
    runs.must("train", plain, "--quiet", "--set", "autoencoder.steps=2", "--set", "operator.steps=2", "--set", "tasks[0].stride=2")
    for command in (["eval", "-o", runs.path("other.json"), "--set", "evaluation.horizons=[1]"], ["rollout", "--task", "advection", "-n", "1", "-o", runs.path("other.h5")]):
        said = [runs.must(command[0], runs.path("plain"), *command[1:], "--set", f"tasks[0].stride={stride}").stderr for stride in (4, 2)]
        assert "task advection: its steps are of stride 4, and the operator learnt steps of stride 2" in said[0]
        assert "stride" not in said[1]


def test_a_rollout_takes_steps_of_the_stride_that_is_asked_for(runs, config):
    rolled = {}
    for stride in STRIDES:
        path = runs.path(f"stride{stride}.h5")
        runs.must("rollout", config, "--task", "advection", "-o", path, "-n", "2", "--stride", str(stride))
        with h5py.File(path) as file:
            rolled[stride] = (file["tensor"][:].reshape(2, 8 // stride + 1, -1), file["truth"][:].reshape(2, 8 // stride + 1, -1))
    for stride in STRIDES:
        assert np.array_equal(rolled[stride][1], rolled[1][1][:, ::stride])
        assert np.array_equal(rolled[stride][0][:, 0], rolled[1][0][:, 0])
    assert not np.allclose(rolled[4][0][:, 1], rolled[1][0][:, 4], rtol=1e-5)


def test_a_stopped_run_goes_on_to_the_same_bytes(runs, config):
    other = runs.config("strided2", STRIDED)
    runs.train_until("operator, step 150", other)
    runs.must("train", other, "--resume")
    models = [Path(runs.path(run, "operator.safetensors")).read_bytes() for run in ("strided", "strided2")]
    assert models[0] == models[1]


def test_a_fixed_number_of_tokens_learns_several_strides_too(runs):
    """And windows with a history, encoded on the fly."""
    fixed = runs.config("fixed", CONFIG.replace("    files: [advection.h5]\n", "    files: [advection.h5]\n    strides: [1, 3]\n"))
    runs.must("train", fixed, "--set", "operator.steps=120")
    losses = [line["loss"] for line in metrics(runs.path("fixed")) if line["stage"] == "operator" and "loss" in line]
    assert np.mean(losses[-3:]) < 0.7 * np.mean(losses[:2])
    several = runs.config("several", STRIDED)
    runs.must("train", several, "--set", "model.operator.history=2", "--set", "data.residency=encode", "--set", "stages=[autoencoder, operator]", "--set", "operator.steps=20",
              "--set", "operator.losses.rollout_relative.weight=0")
    weights = load_file(runs.path("several", "operator.safetensors"))
    for stride in STRIDES:
        name = f"operator.advection.stride{stride}."
        assert np.allclose(weights[name + "rate"] * weights[name + "change"], 1, rtol=1e-5)
    runs.generate("advection1d", "one_step.h5", 4, "-r", "32", "--steps", "2")
    short = runs.run("eval", several, "--set", "model.operator.history=2", "--set", "tasks[0].files=[one_step.h5]")
    one_sentence(short, r"one_step\.h5: task advection: trajectories of 2 frames have 1 step", "reads 2 frames and gives 1")


def test_strides_that_cannot_be_are_refused(runs, config):
    one_sentence(runs.run("train", runs.config("a", STRIDED), "--set", "tasks[0].stride=3"), "tasks\\[0\\].strides", "stride 3 is not among them")
    one_sentence(runs.run("train", runs.config("b", STRIDED), "--set", "tasks[0].strides=[1, 2, 1]"), "tasks\\[0\\].strides", "1 stands there twice")
    one_sentence(runs.run("train", runs.config("c", STRIDED), "--set", "tasks[0].strides=[1, 9]"), "task advection: a stride of 9 leaves no step", "leave 9 out of tasks")
    one_sentence(runs.run("train", runs.config("f", STRIDED), "--set", "model.operator.history=3"), "task advection", "3 at a stride of 4", "or leave 4 out of tasks")
    one_sentence(runs.run("train", runs.config("d", STRIDED), "--set", "operator.losses.semigroup.weight=1"), "operator.losses.semigroup", "learn one stride")
    one_sentence(runs.run("train", runs.config("e", STRIDED), "--set", "model.operator.condition=false"), "tasks\\[0\\].strides", "condition: true")
    one_sentence(runs.run("rollout", config, "--task", "advection", "-o", runs.path("no.h5"), "--stride", "3"), "--stride 3", "advection 1, 2, 4")
    one_sentence(runs.run("eval", config, "--stride", "3"), "--stride 3", "advection 1, 2, 4; darcy 1")
    assert json.loads(Path(runs.path("strided", "state.json")).read_text())["operator"]["steps"] == 300


GAPS = (0.05, 0.5, 0.05, 0.05, 0.5, 0.5, 0.05, 0.5, 0.05, 0.5, 0.5, 0.05)  # seconds from frame to frame


def test_a_step_is_told_the_time_that_it_takes_where_gaps_differ(runs):
    """Fields that decay by exp(-t): how much a step changes hangs on its time alone, which no field and no rhythm tells."""
    times, x = np.concatenate([[0], np.cumsum(GAPS)]), (np.arange(64) + 0.5) / 64
    random = np.random.default_rng(0)
    phases, heights = random.uniform(0, 2 * np.pi, (48, 1)), np.exp(random.uniform(-2, 2, (48, 1)))
    with h5py.File(runs.path("data", "decay.h5"), "w") as file:
        file["tensor"] = (np.exp(-times)[None, :, None] * (heights * np.sin(2 * np.pi * x + phases))[:, None, :]).astype("f4")
        file["t-coordinate"], file["x-coordinate"] = times, x
    tasks = GRID[GRID.index("  - name: advection"):GRID.index("model:")]
    config = runs.config("decay", GRID.replace(tasks, "  - name: decay\n    files: [decay.h5]\n    patch: [4]\n    strides: [1, 2]\n")
                         .replace("modes: [8, 4]", "modes: [8]").replace("steps: 200", "steps: 600").replace("drop_path: 0.1", "drop_path: 0"))
    runs.must("train", config)
    for stride in (1, 2):
        told = runs.told("eval", config, "--stride", str(stride), "-o", runs.path("decay.json"), "--set", "evaluation.horizons=[1, 4]")
        for steps in told["tasks"][0]["horizons"]:
            assert steps["model"]["nrmse"] < 0.1 * steps["persistence"]["nrmse"], (stride, steps)
