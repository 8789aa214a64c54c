"""Runs whose operator reads several frames and gives several (`model.operator.history`, `model.operator.bundle`), beside
a steady task that has only two: from data to rollouts, held against NumPy and the operator of test_operator in PyTorch."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import one_sentence
from reference import tensor
from test_operator import grid_operator
from test_token_grid import GRID, fields_of, patches
from tiny_run import metrics

HISTORY, BUNDLE = 3, 2
SEVERAL = (GRID.replace("modes: [8, 4]}}", f"modes: [8, 4], condition: false, history: {HISTORY}, bundle: {BUNDLE}}}}}")
           .replace("rollout_steps: 3", "rollout_steps: 2\n  short_history: 0.4"))
EVERY_HORIZON = "evaluation.horizons=[1, 2, 3, 4, 5, 8, 0]"


@pytest.fixture(scope="module")
def config(runs):
    config = runs.config("several", SEVERAL)
    runs.must("train", config)
    return config


@pytest.fixture(scope="module")
def weights(runs, config):
    return {name: values.astype(float) for name, values in load_file(runs.path("several", "operator.safetensors")).items()}


@pytest.fixture(scope="module")
def rolled(runs, config):
    """Rollouts of all test trajectories: (trajectories, frames, points), and the truth."""
    path = runs.path("several.h5")
    runs.must("rollout", config, "--task", "advection", "-o", path, "-n", "100", "--steps", "11")
    with h5py.File(path) as file:
        return file["tensor"][..., 0] if file["tensor"].ndim == 4 else file["tensor"][:], file["truth"][:].reshape(len(file["truth"]), -1, 32)


ALONE = """\
output: {output}
seed: 3
precision: f32
device: {{threads: 1}}
data: {{root: {data}, decode_threads: 1}}
tasks: [{{name: it, files: [{file}], patch: [4]{more}}}]
model: {{tokens: grid, dim: auto, operator: {{core: stack, hidden: 16, depth: 1, heads: 1}}}}
autoencoder: {{steps: 0}}
operator: {{steps: 0}}
"""


def test_losses_fall_and_every_frame_of_a_bundle_is_far_better_than_persistence(runs, config):
    lines = [line["task_loss"] for line in metrics(runs.path("several")) if line["stage"] == "operator" and "task_loss" in line]
    tasks = runs.told("eval", config, "--set", EVERY_HORIZON)["tasks"]
    for task in ("advection", "darcy"):
        losses = [line[task] for line in lines if task in line]
        assert np.mean(losses[-3:]) < 0.5 * losses[0]
        for horizon in next(t for t in tasks if t["task"] == task)["horizons"]:
            if horizon["windows"] and 1 <= horizon["steps"] <= BUNDLE:
                assert horizon["model"]["nrmse"] < 0.5 * horizon["persistence"]["nrmse"]


def test_a_task_may_have_a_bundle_of_its_own(runs, weights):
    config = runs.config("own", SEVERAL.replace(f"bundle: {BUNDLE}", "bundle: 1"))
    runs.must("train", config, "--set", f"tasks[0].bundle={BUNDLE}")
    own = load_file(runs.path("own", "operator.safetensors"))
    assert own.keys() == weights.keys()
    for name, values in own.items():
        np.testing.assert_array_equal(values, weights[name], err_msg=name)  # the other task has one step, whatever it is told
    assert weights["operator.advection.output.bias"].size == BUNDLE * weights["operator.advection.input.weight"].shape[1]
    assert "bundle: 2" in runs.must("config", "show", config, "--set", "tasks[0].bundle=2").stdout
    one_sentence(runs.run("config", "check", config, "--set", "tasks[0].bundle=40"), "bundle", "32")


def test_a_bundle_trains_with_noise_of_what_its_first_step_changes(runs):
    config = runs.config("noisy", SEVERAL)
    runs.must("train", config, "--set", "operator.noise=0.5", "--set", "operator.steps=12")
    quiet = runs.config("quiet", SEVERAL)
    runs.must("train", quiet, "--set", "operator.steps=12")
    first = [next(line["loss"] for line in metrics(runs.path(name)) if line["stage"] == "operator" and "loss" in line) for name in ("noisy", "quiet")]
    assert first[0] != first[1] and np.isfinite(first).all()


def test_what_each_step_of_a_bundle_changes_was_measured(runs, config, weights):
    dump = runs.path("latents.npy")
    runs.must("cache", "export", runs.path("several", "cache", "advection", "train"), "-o", dump)
    latents = np.load(dump).astype(float)
    change = weights["operator.advection.change"].reshape(BUNDLE, -1)
    for k in range(1, BUNDLE + 1):
        assert np.allclose(change[k - 1], np.sqrt(((latents[:, k:] - latents[:, :-k]) ** 2).mean((0, 1, 2))), rtol=1e-4)
    assert np.allclose(weights["operator.advection.rate"], 1 / change[0], rtol=1e-4)


@pytest.mark.parametrize("linear", ["token", "neighbors"])
def test_an_operator_begins_as_the_linear_map_that_numpy_finds(runs, linear):
    """Of a token, or of it and those beside it, to its changes, by least squares over all tokens and frames, errors over the size of the frame that
    follows."""
    begun = runs.config("begun-" + linear, SEVERAL)
    options = ("--set", f"model.operator.linear={linear}")
    runs.must("train", begun, "--set", "operator.steps=0", "--set", "operator.initial=linear", *options)
    weights = load_file(runs.path("begun-" + linear, "operator.safetensors"))
    dump = runs.path("begun.npy")
    runs.must("cache", "export", runs.path("begun-" + linear, "cache", "advection", "train"), "-o", dump, "-f")
    latents = np.load(dump).astype(float)  # (trajectory, time, token, dim)
    now, following = latents[:, :-BUNDLE], latents[:, 1:latents.shape[1] - BUNDLE + 1]
    change = np.concatenate([latents[:, k:latents.shape[1] - BUNDLE + k] - now for k in range(1, BUNDLE + 1)], -1)
    weight = 1 / (1e-8 + (following**2).mean((2, 3), keepdims=True))
    around = [now] if linear == "token" else [np.roll(now, shift, 2) for shift in (1, 0, -1)]
    read = np.concatenate([*around, np.ones_like(now[..., :1])], -1)
    rows, each = read.reshape(-1, read.shape[-1]), change.reshape(-1, change.shape[-1])
    weighted = (weight * read).reshape(rows.shape)
    moments, count = weighted.T @ rows, read.shape[-1] - 1
    moments[:count, :count] += 0.01 * np.trace(moments[:count, :count]) / count * np.eye(count)
    expected = np.linalg.solve(moments, weighted.T @ each).T / weights["operator.advection.change"][:, None]
    assert np.allclose(weights["operator.advection.skip.weight"], expected[:, :-1], rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    assert np.allclose(weights["operator.advection.skip.bias"], expected[:, -1], rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    still = runs.config("still-" + linear, SEVERAL)
    runs.must("train", still, "--set", "operator.steps=0", "--set", "operator.initial=persistence", *options)
    assert not load_file(runs.path("still-" + linear, "operator.safetensors"))["operator.advection.skip.weight"].any()
    errors = [runs.told("eval", config, "-o", runs.path("errors.json"), *options)["tasks"][0]["horizons"][0]["model"]["nrmse"] for config in (begun, still)]
    assert errors[0] < (0.9 if linear == "token" else 0.5) * errors[1]
    explained = np.sum(np.linalg.solve(moments, weighted.T @ each) * (weighted.T @ each)) / (weight * change**2).sum()
    said = runs.must("train", begun, "--restart", "--set", "operator.steps=0", "--set", "operator.initial=linear", *options).stderr
    assert f"advection: begins as a linear map, which explains {100 * explained:.0f} % of what a step changes" in said


def test_an_operator_begins_as_a_linear_map_where_that_explains_most_and_one_map_can(runs):
    """Of one diffusion coefficient; of several, of two strides, and of waves it begins as persistence."""
    for name, options in (("one", ()), ("several", ("-p", "nu=log:0.05:5"))):
        runs.generate("reacdiff1d", f"{name}.h5", 12, "-r", "32", "--steps", "9", *options)
    for name, file, more, begins in (("one", "one.h5", "", True), ("several", "several.h5", "", False), ("strides", "one.h5", ", strides: [1, 2]", False),
                                     ("waves", "advection.h5", "", False)):
        config = runs.config("auto-" + name, ALONE, file=file, more=more)
        said = runs.must("train", config).stderr
        weights = load_file(runs.path("auto-" + name, "operator.safetensors"))
        assert weights["operator.it.skip.weight"].any() == begins == ("begins as a linear map" in said), name


def test_a_steady_task_reads_one_frame_and_gives_one(runs, config, weights):
    own = {name[len("operator.darcy."):]: values.shape for name, values in weights.items() if name.startswith("operator.darcy.")}
    dim = own["input.weight"][1]
    assert own["change"] == (dim,) and own["output.weight"][0] == dim
    assert not [name for name in own if name.startswith(("rate", "earlier", "trend"))]
    assert weights["operator.advection.trend2.weight"].shape[0] == BUNDLE * weights["operator.advection.input.weight"].shape[1]


def test_rollouts_are_those_of_pytorch(runs, config, weights, rolled):
    """From the first frame, encoded and decoded by NumPy: a history repeats it, and the last bundle is cut."""
    autoencoder = load_file(runs.path("several", "autoencoder.safetensors"))
    encode, decode = (autoencoder[f"{part}.advection.patch.weight"].astype(float) for part in ("encoder", "decoder"))
    statistics = np.array(json.loads(Path(runs.path("several", "normalisation.json")).read_text())["advection"]["statistics"]).ravel()
    predicted, truth = rolled
    first = truth[:, 0, :, None]
    parameters = {name.replace("operator.advection.", "operator.wave."): tensor(values) for name, values in weights.items() if "darcy" not in name}
    z = tensor(patches((first - statistics[0]) * statistics[1], 4) @ encode.T)
    states, inputs = [z], {"dt": tensor(np.full((len(z), 1), 0.25))}
    while len(states) < predicted.shape[1]:
        states += grid_operator(parameters, [z] * HISTORY + states[1:], inputs, dict(tokens=z.shape[1], depth=2, heads=1, periodic=1, modes=8))
    expected = np.stack([s.numpy() @ decode.T for s in states[:predicted.shape[1]]], 1)
    expected = expected.reshape(*expected.shape[:2], -1) / statistics[1] + statistics[0]
    assert predicted.shape[1] % BUNDLE == 0  # one frame that is given, and the last application cut
    assert np.linalg.norm(predicted.reshape(expected.shape) - expected) < 1e-4 * np.linalg.norm(expected)


def test_horizons_are_frames_of_the_rollout_whether_or_not_bundles_end_there(runs, config, rolled):
    predicted, truth = rolled
    told = runs.told("eval", config, "--set", EVERY_HORIZON, "--set", "evaluation.start_every=100")["tasks"]
    horizons = {0 if h["whole"] else h["steps"]: h for h in next(t for t in told if t["task"] == "advection")["horizons"]}
    predicted = predicted.reshape(len(truth), -1, 32)[:, :truth.shape[1]]
    nrmse = np.linalg.norm(predicted - truth, axis=2) / np.linalg.norm(truth, axis=2)
    for steps in (1, 2, 3, 4, 5, 8):
        assert np.isclose(horizons[steps]["model"]["nrmse"], nrmse[:, steps].mean(), rtol=1e-4)
    assert np.allclose(horizons[0]["nrmse_by_frame"]["model"], nrmse[:, 1:].mean(0), rtol=1e-4)


def test_a_stopped_run_goes_on_to_the_same_bytes_and_so_does_one_on_two_threads(runs, config):
    other = runs.config("other", SEVERAL)
    runs.train_until("operator, step 100", other, "--set", "device.threads=2")
    runs.must("train", other, "--resume")
    models = [Path(runs.path(run, "operator.safetensors")).read_bytes() for run in ("several", "other")]
    assert models[0] == models[1]


def test_training_without_a_cache_gives_the_same_operator(runs, config, weights):
    other = runs.config("encoded", SEVERAL)
    runs.must("train", other, "--set", "data.residency=encode", "--set", "stages=[autoencoder, operator]")
    model = load_file(runs.path("encoded", "operator.safetensors"))
    assert all(np.array_equal(model[name], weights[name]) for name in weights)


@pytest.mark.parametrize("share", [0, 1])
def test_windows_that_know_one_frame_teach_nothing_of_earlier_ones(runs, share):
    config = runs.config(f"share{share}", SEVERAL)
    runs.must("train", config, "--set", f"operator.short_history={share}", "--set", "operator.steps=10", "--set", "model.operator.history=2",
              "--set", "operator.losses.rollout_relative.weight=0")
    weights = load_file(runs.path(f"share{share}", "operator.safetensors"))
    for name in ("earlier1", "trend1"):
        assert np.any(weights[f"operator.advection.{name}.weight"]) == (share == 0)


def test_the_longest_rollout_that_trajectories_have_room_for_is_trained_on(runs):
    """Nine frames: three known, and one application of four or three of two, whatever rollout_steps says."""
    for bundle, applications in ((4, 1), (2, 3)):
        config = runs.config(f"room{bundle}", SEVERAL.replace(f"bundle: {BUNDLE}", f"bundle: {bundle}"))
        runs.must("train", config, "--set", "operator.rollout_steps=8", "--set", "operator.steps=4", "--set", "operator.losses.rollout_relative.from=0")
        plans = [runs.told("train", config, "--plan", "--restart", "--stage", "operator", "--set", f"operator.rollout_steps={steps}")["operator"]
                 for steps in (8, max(2, applications))]
        for part in ("activations", "inputs", "loader"):
            assert plans[0][part] == plans[1][part]


def test_a_trajectory_shorter_than_a_window_is_named(runs):
    config = runs.config("short", SEVERAL)
    runs.must("train", config, "--stage", "autoencoder")
    for command in (["train", config, "--plan"], ["train", config]):
        one_sentence(runs.run(*command, "--set", "model.operator.bundle=8"), "task advection", "9 frames", r"3 \+ 8 frames", "model.operator.history")


def test_a_model_of_another_history_or_bundle_is_refused(runs, config):
    model = runs.path("several", "operator.safetensors")
    for key, value in (("history", 2), ("bundle", 1)):
        done = runs.run("eval", config, "--checkpoint", model, "--set", f"model.operator.{key}={value}")
        one_sentence(done, key)


def test_history_and_bundle_need_a_grid_of_tokens(runs):
    for key in ("history", "bundle"):
        one_sentence(runs.run("train", runs.config(f"fixed-{key}"), "--set", f"model.operator.{key}=2"), f"model.operator.{key}", "tokens: grid")
    one_sentence(runs.run("train", runs.config("fixed-own"), "--set", "tasks[0].bundle=2"), r"tasks\[0\].bundle", "tokens: grid")


def test_files_of_a_single_step_are_refused_by_name(runs, config):
    """Such a task is taken for a steady one, which this operator was not trained as."""
    runs.generate("advection1d", "one_step.h5", 4, "-r", "32", "--steps", "2")
    for command in ("rollout", "eval"):
        more = ("--task", "advection", "-o", runs.path("none.h5")) if command == "rollout" else ()
        answer = runs.run(command, config, "--set", "tasks[0].files=[one_step.h5]", *more)
        one_sentence(answer, r"one_step\.h5: task advection: trajectories of 2 frames have 1 step", "reads 3 frames and gives 2", "at least 3 frames")
    runs.generate("advection1d", "two_steps.h5", 10, "-r", "32", "--steps", "3")
    runs.must("rollout", config, "--task", "advection", "-o", runs.path("some.h5"), "--set", "tasks[0].files=[two_steps.h5]")
