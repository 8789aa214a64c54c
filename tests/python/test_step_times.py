"""How long steps take: models without their data predict what `ups rollout` predicts, whatever the times of the data are."""

import ctypes
import os
import sys

import h5py
import numpy as np
import pytest
import torch

from commands import TREE, program, run
from test_token_grid import GRID
from tiny_run import Runs

sys.path.insert(0, str(TREE / "tools/python/ups"))
os.environ["UPS_LIBRARY"] = program("libups.so")
import ups  # noqa: E402
import ups.pytorch  # noqa: E402
from ups import library  # noqa: E402

FRAMES, POINTS, SAMPLES = 12, 32, 12
UNEVEN = np.cumsum(np.arange(FRAMES)) * 0.01  # 0, 0.01, 0.03, 0.06, …
TASKS = """tasks:
  - {{name: even, files: [even.h5], patch: [4]}}
  - {{name: uneven, files: [uneven.h5], patch: [4], stride: 2, strides: [1, 2]}}
  - {{name: two, files: [near.h5, far.h5], patch: [4]}}
  - {{name: wild, files: [wild.h5, uneven.h5], patch: [4]}}
"""


def waves(path, time, seed):
    """Advections of speed 1, with times that are kept in float32."""
    random = np.random.default_rng(seed)
    x, time = (np.arange(POINTS) + 0.5) / POINTS, np.asarray(time, "f4")
    phase = x[None, None] - time[None, :, None].astype(float) + random.random((SAMPLES, 1, 1))
    with h5py.File(path, "w") as file:
        file["tensor"] = (np.sin(2 * np.pi * phase) + 0.5 * random.random((SAMPLES, 1, 1)) * np.cos(4 * np.pi * phase)).astype("f4")
        file["t-coordinate"], file["x-coordinate"] = time, x.astype("f4")


@pytest.fixture(scope="module")
def trained():
    """A scratch folder with a run, its configuration, and its model as a file."""
    runs = Runs()
    runs.generate("advection1d", "even.h5", 24, "-r", str(POINTS))
    for number, (name, time) in enumerate({"uneven": UNEVEN, "near": 0.02 * np.arange(FRAMES), "far": 0.08 * np.arange(FRAMES), "wild": 1.1 * UNEVEN}.items()):
        waves(f"{runs.data}/{name}.h5", time, number)
    config = runs.config("times", GRID[:GRID.index("tasks:")] + TASKS + GRID[GRID.index("model:"):])
    runs.must("train", config, "--set", "operator.steps=200")
    runs.must("export", config, "-o", runs.path("times.safetensors"))
    yield runs, config, runs.path("times.safetensors")
    runs.close()


def rolled(trained, task, *options):
    """Of `ups rollout`: predictions and truths (trajectories, frames, x, 1), times (trajectories, frames), and parameters by name."""
    runs, config, _ = trained
    path = runs.path(runs.fresh() + ".h5")
    runs.must("rollout", config, "--task", task, "-o", path, "-n", "100", *options)
    with h5py.File(path) as file:
        parameters = {name: float(value) for name, value in file.attrs.items() if name == "beta"}
        if "tensor" in file:
            found = [file[name][:][..., None] for name in ("tensor", "truth")]
            return *found, np.tile(file["t"][:].astype(float), (len(found[0]), 1)), parameters
        groups = [file[name] for name in sorted(file) if name.isdigit()]
        parameters = {name: [float(group.attrs[name]) for group in groups] for name in ("beta",) if name in groups[0].attrs}
        return *(np.stack([group[name][:] for group in groups]) for name in ("data", "truth")), np.stack([group["t"][:].astype(float) for group in groups]), parameters


def both(trained):
    """The model by the Python package and as a module of PyTorch, each as a function that predicts."""
    model, module = ups.Model.load(trained[2], device="cpu", threads=1), ups.pytorch.load(trained[2])

    def by_torch(*arguments, **named):
        with torch.no_grad():
            return module.predict(*arguments, **named).numpy()

    return (model, model.predict), (module, by_torch)


def agree(found, expected):
    assert found.shape == expected.shape and np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_times_that_a_file_rounds_are_told_as_one_length_of_a_step_to_the_bit(trained):
    expected, truth, time, parameters = rolled(trained, "even")
    assert len(set(np.diff(time[0].astype("f4")).tolist())) > 1  # rounded, as they are stored
    given, longer = rolled(trained, "even", "--set", "evaluation.given=3")[0], rolled(trained, "even", "--steps", "60")[0]
    (model, predict), (_, by_torch) = both(trained)
    task = model.tasks["even"]
    assert task.dt == (time[0, -1] - time[0, 0]) / (time.shape[1] - 1) and task.step_times is None
    assert np.array_equal(predict(truth[:, 0], "even", parameters), expected)
    assert np.array_equal(predict(truth[:, 0], "even", parameters, dt=task.dt), expected)
    assert np.array_equal(predict(truth[:, 0], "even", parameters, steps=60), longer)
    assert np.array_equal(predict(truth[:, :3], "even", parameters), given)
    agree(by_torch(truth[:, 0], "even", parameters), expected)


@pytest.mark.parametrize("stride", [1, 2])
def test_uneven_times_that_trajectories_share_are_what_steps_take_by_default(trained, stride):
    expected, truth, time, parameters = rolled(trained, "uneven", "--stride", stride)
    given, _, _, _ = rolled(trained, "uneven", "--stride", stride, "--set", "evaluation.given=2")
    longer, _, _, _ = rolled(trained, "uneven", "--stride", stride, "--steps", "14")
    steps = np.diff(time[0])
    assert np.allclose(time[0], UNEVEN[::stride], atol=1e-6)
    for (model, predict), same in zip(both(trained), (lambda *pair: np.testing.assert_array_equal(*pair), agree)):
        task = model.tasks["uneven"]
        assert task.dt is None and np.allclose(task.step_times, np.diff(UNEVEN[::2]), atol=1e-6) and len(task.step_times) == task.steps
        same(predict(truth[:, 0], "uneven", parameters, stride=stride), expected)
        same(predict(truth[:, :2], "uneven", parameters, stride=stride), given)
        same(predict(truth[:, 0], "uneven", parameters, steps=14, stride=stride), longer)
        same(predict(truth[:, 0], "uneven", parameters, dt=steps, stride=stride), expected)
        same(predict(truth[:, 0], "uneven", parameters, dt=np.tile(steps, (len(truth), 1)), stride=stride), expected)
        constant = predict(truth[:, 0], "uneven", parameters, dt=steps[0], stride=stride)
        assert np.abs(constant - expected).max() > 2e-3


def test_trajectories_that_differ_in_their_steps_have_no_default(trained):
    for name in ("two", "wild"):
        expected, truth, time, parameters = rolled(trained, name)
        steps = np.diff(time)
        assert len({round(step, 6) for step in steps[:, 0].tolist()}) == 2  # of both files
        dt = (time[:, -1] - time[:, 0]) / (time.shape[1] - 1) if name == "two" else steps
        for (model, predict), same in zip(both(trained), (lambda *pair: np.testing.assert_array_equal(*pair), agree)):
            assert model.tasks[name].dt is None and model.tasks[name].step_times is None
            with pytest.raises(ValueError, match=f"{name}.*: dt is needed"):
                predict(truth[:, 0], name, parameters)
            same(predict(truth[:, 0], name, parameters, dt=dt), expected)
    with pytest.raises(ValueError, match="task 'uneven': dt is needed"):  # which of the steps?
        model.advance(torch.zeros(1, 1, model.tasks["uneven"].tokens, model.tasks["uneven"].dim), "uneven")


def test_the_library_says_so_itself_and_takes_each_step(trained):
    expected, truth, time, _ = rolled(trained, "two")
    model = ups.Model.load(trained[2], device="cpu", threads=1)
    first, fields = np.ascontiguousarray(truth[:, 0], "f4"), np.empty_like(expected)
    steps, each = np.ascontiguousarray(np.diff(time)), np.ascontiguousarray((time[:, -1] - time[:, 0]) / (time.shape[1] - 1))

    def ask(**times):
        request = library.CModelRequest(trajectories=len(first), frames=first.ctypes.data, frame_bytes=first.nbytes, fields=fields.ctypes.data, field_bytes=fields.nbytes,
                                        **{"steps": time.shape[1] - 1, **{name: value.ctypes.data if isinstance(value, np.ndarray) else value for name, value in times.items()}})
        model._library.model_predict(model._handle, model._index["two"], ctypes.byref(request))
        return fields

    assert np.array_equal(ask(dt=each), expected)
    assert np.array_equal(ask(step_times=np.repeat(each[:, None], steps.shape[1], 1)), expected)
    for words, times in (("task two: dt is needed, seconds of each step", {}), ("task two: dt is needed", {"dt": np.full(len(first), np.nan)}),
                         ("both given", {"dt": each, "step_times": steps}), ("set steps to how many", {"step_times": steps, "steps": 0}),
                         ("step of trajectory 0 is infinite", {"step_times": np.full(steps.shape, np.inf)})):
        with pytest.raises((ValueError, ups.UpsError), match=words):
            ask(**times)


def test_the_c_example_takes_the_times_of_its_data(trained):
    runs, _, file = trained
    model = ups.Model.load(file, threads=1)
    for task, data in (("two", "far.h5"), ("wild", "wild.h5")):
        with h5py.File(f"{runs.data}/{data}") as read:
            trajectory, steps = read["tensor"][2][..., None], np.diff(read["t-coordinate"][:].astype(float))
        predicted = model.predict(trajectory[0], task, dt=steps)
        expected = [np.linalg.norm(p - t) / np.linalg.norm(t) for p, t in zip(predicted[1:], trajectory[1:])]
        done = run(program("libups_predict"), file, task, f"{runs.data}/{data}", 2)
        assert done.returncode == 0, done.stderr
        assert np.allclose([float(line.split()[-1]) for line in done.stdout.splitlines()], expected, rtol=1e-4)


def test_numbers_that_may_be_of_trajectories_or_of_steps_are_asked_about(trained):
    first = np.ones((3, POINTS, 1), "f4")
    for _, predict in both(trained):
        expected = predict(first, "two", steps=3, dt=[[0.02, 0.04, 0.08]])
        assert np.array_equal(predict(first, "two", steps=3, dt=[[0.02, 0.04, 0.08]] * 3), expected)
        with pytest.raises(ValueError, match="3 numbers, which may be of 3"):
            predict(first, "two", steps=3, dt=[0.02, 0.04, 0.08])
        with pytest.raises(ValueError, match="dt .*is a number"):
            predict(first, "two", steps=3, dt=[0.02, 0.04])


def test_evaluations_take_the_same_steps(trained):
    """`ups eval` scores the model's own predictions as those that are made without the data."""
    runs, config, _ = trained
    for task in ("even", "uneven", "two"):
        expected, truth, time, parameters = rolled(trained, task)
        own = next(t for t in runs.told("eval", config)["tasks"] if t["task"] == task)["horizons"]
        whole = next(h for h in own if h["frames"] > 1)["model"]["nrmse"]
        error = np.linalg.norm((expected - truth)[:, 1:], axis=2) / np.linalg.norm(truth[:, 1:], axis=2)
        assert whole == pytest.approx(error.mean(), rel=1e-4)
