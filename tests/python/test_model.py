"""Trained models in other programs: `ups export`, and predictions by the Python package, held against `ups rollout` to the bit. The data
are out of reach while models predict."""

import dataclasses
import json
import os
import pickle
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from commands import TREE, one_sentence, program, run
from test_cores import ON_GRIDS, core
from test_token_grid import GRID
from tiny_run import CONFIG, Runs

PACKAGE = str(TREE / "tools/python/ups")
os.environ["UPS_LIBRARY"] = program("libups.so")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [PACKAGE, os.environ.get("PYTHONPATH")]))
sys.path.insert(0, PACKAGE)
import ups  # noqa: E402

SHORT = ("--set", "operator.steps=20")
KINDS = {
    "tokens": CONFIG,
    "grid": GRID,
    "several": GRID.replace("modes: [8, 4]}}", "modes: [8, 4], condition: false, history: 3, bundle: 2}}").replace("rollout_steps: 3", "rollout_steps: 2"),
    "strides": GRID.replace("files: [advection.h5]", "files: [advection.h5]\n    stride: 2\n    strides: [1, 2]"),
    "windows": core(ON_GRIDS["windows"]),
}


@pytest.fixture(scope="module")
def runs():
    runs = Runs()
    yield runs
    runs.close()


def moved_away(runs):
    """Within it the data are not where they were."""
    class Away:
        def __enter__(self):
            os.rename(runs.data, runs.data + "-away")

        def __exit__(self, *_):
            os.rename(runs.data + "-away", runs.data)

    return Away()


def rolled(runs, config, task, *options):
    """Predictions and truths of `ups rollout`, (trajectories, frames, *grid, channels)."""
    path = runs.path(runs.fresh() + ".h5")
    runs.must("rollout", config, "--task", task, "-o", path, "-n", "100", *options)
    with h5py.File(path) as file:
        if "tensor" in file:
            return [file[name][:][..., None] if name in file else None for name in ("tensor", "truth")]
        groups = [file[name] for name in sorted(file)]
        groups = [group for group in groups if isinstance(group, h5py.Group) and "data" in group]
        return [np.stack([group[name][:] for group in groups]) if name in groups[0] else None for name in ("data", "truth")]


@pytest.fixture(scope="module", params=KINDS)
def trained(runs, request):
    """The kind's name, its configuration, and its model: of the run's directory, and as a file."""
    config = runs.config(request.param, KINDS[request.param])
    runs.must("train", config, *SHORT)
    with moved_away(runs):
        runs.must("export", runs.path(request.param), "-o", runs.path(request.param + ".safetensors"))
    return request.param, config, runs.path(request.param), runs.path(request.param + ".safetensors")


def test_predictions_are_those_of_rollouts_to_the_bit(runs, trained):
    name, config, directory, file = trained
    for task, parameters, frames in (("advection", {"beta": 0.4}, 2), ("darcy", {"beta": 1.0}, 1)):
        expected, truth = rolled(runs, config, task)
        given, given_truth = rolled(runs, config, task, "--set", f"evaluation.given={frames}")
        longer, _ = rolled(runs, config, task, "--steps", "7")
        finer, _ = rolled(runs, config, task, "--resolution", "19")
        with moved_away(runs):
            for path in (directory, file):
                model = ups.Model.load(path, device="cpu", threads=1)
                told = model.tasks[task]
                if not told.parameters:
                    parameters = None
                first = truth[:, 0]
                assert np.array_equal(model.predict(first, task, parameters), expected)
                assert np.array_equal(model.predict(first, task, parameters, steps=7), longer)
                assert np.array_equal(model.predict(first, task, parameters, resolution=19), finer)
                two = model.predict(given_truth[:, :frames], task, parameters, steps=given.shape[1] - frames)
                assert np.array_equal(two, given)
                one = model.predict(first[0], task, parameters)
                assert one.shape == expected.shape[1:] and np.abs(one - expected[0]).max() <= 1e-5 * np.abs(expected[0]).max()
        assert told.steps == expected.shape[1] - 1 and told.steady == (task == "darcy")


def test_a_stride_of_those_that_were_learnt(runs):
    config = runs.config("strided", KINDS["strides"])
    runs.must("train", config, *SHORT)
    model = ups.Model.load(runs.path("strided"), threads=1)
    assert model.tasks["advection"].stride == 2 and model.tasks["advection"].strides == (1, 2) and model.tasks["darcy"].strides == (1,)
    found = {}
    for stride in (1, 2):
        expected, truth = rolled(runs, config, "advection", "--stride", stride)
        found[stride] = model.predict(truth[:, 0], "advection", {"beta": 0.4}, stride=stride)
        assert np.array_equal(found[stride], expected)
    assert not np.allclose(found[1][:, ::2], found[2], rtol=1e-3)
    with pytest.raises(ValueError, match="stride of 3 was learnt; steps were of 1, 2"):
        model.predict(truth[:, 0], "advection", {"beta": 0.4}, stride=3)


def test_parameters_that_span_decades_are_positive(runs):
    runs.generate("burgers1d", "burgers.h5", 6, "-r", "32", "--steps", "5", "-p", "nu=log:0.001:0.1")
    config = runs.config("decades", "\n".join(line for line in GRID.splitlines() if "darcy" not in line).replace("name: advection", "name: burgers").replace("advection.h5", "burgers.h5"))
    text = Path(config).read_text()
    Path(config).write_text(text.replace("    patch: [4]\n    patch: [4]\n", "    patch: [4]\n"))
    runs.must("train", config, *SHORT)
    model = ups.Model.load(runs.path("decades"), threads=1)
    u = np.ones((2, 32, 1))
    assert model.predict(u, parameters={"nu": 0.01}).shape == (2, 5, 32, 1)  # one task needs no name
    with pytest.raises(ValueError, match="nu of trajectory 1 is -0.01; the model knows its logarithm"):
        model.predict(u, parameters={"nu": [0.01, -0.01]})


def test_what_a_model_tells_is_what_its_data_are(runs, trained):
    tasks = ups.Model.load(trained[3]).tasks
    assert list(tasks) == ["advection", "darcy"]
    advection, darcy = tasks["advection"], tasks["darcy"]
    assert (advection.channels, advection.grid, advection.axes, advection.periodic) == (("u",), (32,), ("x",), True)
    assert (darcy.channels, darcy.grid, darcy.axes, darcy.periodic) == (("nu", "u"), (16, 16), ("x", "y"), False)
    with h5py.File(runs.data + "/advection.h5") as file:
        assert np.allclose(advection.coordinates()["x"], file["x-coordinate"], atol=1e-6)
        assert advection.dt == pytest.approx(float(np.diff(file["t-coordinate"][:2])[0]) * (2 if trained[0] == "strides" else 1))
    assert advection.coordinates(64)["x"][0] == pytest.approx(0.5 / 64)


@pytest.fixture(scope="module")
def grid(runs):
    """A model of which much is asked; its weights are averages."""
    config = runs.config("asked", GRID)
    runs.must("train", config, *SHORT)
    runs.must("export", config, "-o", runs.path("asked.safetensors"))
    return runs.path("asked.safetensors")


def test_fields_by_name_other_grids_and_arrays_of_parameters(grid):
    model = ups.Model.load(grid, threads=1)
    rng = np.random.default_rng(1)
    nu = rng.uniform(size=(3, 16, 16)).astype("f4")
    whole = model.predict(np.stack([nu, 0 * nu], -1), "darcy", {"beta": 1})
    assert np.array_equal(model.predict({"nu": nu}, "darcy", {"beta": 1}), whole)
    assert np.array_equal(model.predict({"nu": nu, "u": 0}, "darcy", np.ones((3, 1))), whole)
    with pytest.warns(UserWarning, match="beta not given"):  # all that it was trained on had one value, which is the mean
        assert np.array_equal(model.predict({"nu": nu}, "darcy"), whole)
    assert model.predict({"nu": np.ones((2, 24, 20))}, "darcy", {"beta": 1}).shape == (2, 2, 24, 20, 2)
    fields, latents = model.predict({"nu": nu}, "darcy", {"beta": 1}, latents=True)
    assert np.array_equal(fields, whole) and latents.shape == (3, 2, *model.tasks["darcy"].latents)
    u = rng.normal(size=(2, 32, 1)).astype("f4")
    usual = model.predict(u, "advection", {"beta": 0.4})
    same = model.predict(u, "advection", {"beta": [0.4, 0.4]}, dt=model.tasks["advection"].dt)
    assert np.array_equal(usual, same)
    assert not np.array_equal(usual[:, 1:], model.predict(u, "advection", {"beta": 0.4}, dt=[0.05, 0.2])[:, 1:])


def test_kinds_of_predictions_come_and_go(grid):
    model, rng = ups.Model.load(grid, threads=1), np.random.default_rng(2)
    asked = [rng.normal(size=(count, 32, 1)).astype("f4") for count in (1, 2, 3, 4, 5, 6)]
    before = [model.predict(u, "advection", {"beta": 0.4}) for u in asked]
    again = [model.predict(u, "advection", {"beta": 0.4}) for u in asked]
    assert all(np.array_equal(a, b) for a, b in zip(before, again))


@pytest.mark.parametrize("words, ask", [
    ("which task.*advection, darcy", lambda m: m.predict(np.ones((1, 32, 1)))),
    ("no task 'advektion'.*did you mean 'advection'", lambda m: m.predict(np.ones((1, 32, 1)), "advektion")),
    ("shape .1, 32..*1 grid axis and 1 channels: u", lambda m: m.predict(np.ones((1, 32)), "advection")),
    ("2 grid axes and 2 channels: nu, u", lambda m: m.predict(np.ones((1, 16, 16, 3)), "darcy")),
    ("no field 'mu'.*did you mean", lambda m: m.predict({"mu": np.ones((16, 16))}, "darcy")),
    ("fields is empty", lambda m: m.predict({}, "darcy")),
    ("nothing in them", lambda m: m.predict(np.ones((0, 32, 1)), "advection")),
    ("no parameter 'betta'.*'beta'", lambda m: m.predict(np.ones((1, 32, 1)), "advection", {"betta": 1})),
    ("steps is 0", lambda m: m.predict(np.ones((1, 32, 1)), "advection", {"beta": 1}, steps=0)),
    ("resolution has 3 numbers", lambda m: m.predict(np.ones((1, 32, 1)), "advection", {"beta": 1}, resolution=(4, 4, 4))),
    ("patches of 4 points on a grid axis of 2", lambda m: m.predict(np.ones((1, 2, 1)), "advection", {"beta": 1})),
    ("trajectory 1 hold NaN", lambda m: m.predict(np.array([1, np.nan])[:, None, None] * np.ones((2, 32, 1)), "advection", {"beta": 1})),
    ("parameter beta of trajectory 1 is infinite", lambda m: m.predict(np.ones((2, 32, 1)), "advection", {"beta": [1, np.inf]})),
    ("step of trajectory 0 is infinite", lambda m: m.predict(np.ones((2, 32, 1)), "advection", {"beta": 1}, dt=-np.inf)),
    ("dt is a number, or one for each of 2 trajectories", lambda m: m.predict(np.ones((2, 32, 1)), "advection", {"beta": 1}, dt=[1, 2, 3])),
    ("beta is a number, or one for each of 2 trajectories", lambda m: m.predict(np.ones((2, 32, 1)), "advection", {"beta": [1, 2, 3]})),
    ("parameters are an array .2, 1.", lambda m: m.predict(np.ones((2, 32, 1)), "advection", np.ones((3, 1)))),
    ("on the grid that the model was trained on", lambda m: m.predict(np.ones((1, 64, 1)), "advection", {"beta": 1}, latents=True)),
])
def test_what_cannot_be_predicted_is_said_in_a_sentence(grid, words, ask):
    model = ups.Model.load(grid, threads=1)
    with pytest.raises((ValueError, ups.UpsError, ArithmeticError), match=words):
        ask(model)
    assert model.predict(np.ones((1, 32, 1)), "advection", {"beta": 0.4}).shape == (1, 9, 32, 1)  # and it goes on


def test_fields_of_another_grid_are_warned_of_where_tokens_are_patches(runs, trained):
    name, _, _, file = trained
    model = ups.Model.load(file, device="cpu", threads=1)
    beta = {"beta": 0.4} if model.tasks["advection"].parameters else None
    assert model.tasks["advection"].patches == (name != "tokens")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.predict(np.ones((1, 32, 1)), "advection", beta, resolution=64)
        assert not [w for w in caught if "grid" in str(w.message)]
        model.predict(np.ones((1, 64, 1)), "advection", beta)
    said = [str(w.message) for w in caught if "grid of 32 points, and these fields have 64" in str(w.message)]
    assert len(said) == (name != "tokens")


def test_a_grid_with_swapped_axes_is_asked_about(grid):
    task = dataclasses.replace(ups.Model.load(grid, threads=1).tasks["darcy"], grid=(24, 32))
    with pytest.warns(UserWarning, match="24 x 32 points, and these fields have 32 x 24. Are axes in another order?"):
        ups.Model._warn_of_grid(task, (32, 24))


def test_progress_tells_and_may_stop_it(grid):
    model, seen = ups.Model.load(grid, threads=1), []
    ask = lambda progress: model.predict(np.ones((4, 32, 1)), "advection", {"beta": 0.4}, progress=progress)  # noqa: E731
    usual = ask(lambda done, every: seen.append((done, every)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen) and seen[-1][0] == seen[-1][1] == 4 * (8 + 9)

    def interrupted(done, _):
        if done > 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(interrupted)
    assert np.array_equal(ask(None), usual)


def test_ctrl_c_ends_a_prediction_and_the_model_goes_on(grid):
    model, u = ups.Model.load(grid, threads=1), np.ones((8, 32, 1))
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        model.predict(u, "advection", {"beta": 0.4}, steps=1000000)
    assert model.predict(u, "advection", {"beta": 0.4}).shape == (8, 9, 32, 1)


def test_a_process_forked_from_one_that_predicted_is_told_so_and_does_not_wait(grid):
    """OpenMP's threads are not there after a fork. Where one thread is enough, a model is loaded anew."""
    u = np.ones((2, 32, 1), "f4")
    expected = ups.Model.load(grid, threads=2).predict(u, "advection", {"beta": 0.4})
    child = os.fork()
    if child == 0:
        try:
            one = ups.Model.load(grid, threads=1).predict(u, "advection", {"beta": 0.4})
            ups.Model.load(grid, threads=2).predict(u, "advection", {"beta": 0.4})
        except ups.UpsError as error:
            os._exit(0 if "forked" in str(error) and np.array_equal(one, expected) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_file_that_was_replaced_is_not_taken_for_the_one_that_was_opened(runs, grid):
    path, u = runs.path("replaced.safetensors"), np.ones((2, 32, 1), "f4")
    shutil.copy(grid, path)
    model = ups.Model.load(path, threads=1)
    expected = model.predict(u, "advection", {"beta": 0.4})
    os.replace(rewritten(runs, grid, lambda m: m.update({"by": "somebody"})), path)
    assert np.array_equal(model.predict(u, "advection", {"beta": 0.4}), expected)  # its graphs are there
    with pytest.raises(ups.UpsError, match="another one than was opened"):
        model.predict(u, "advection", {"beta": 0.4}, resolution=20)
    os.replace(shutil.copy(grid, path + ".again"), path)
    assert model.predict(u, "advection", {"beta": 0.4}, resolution=20).shape == (2, 9, 20, 1)


def test_too_long_a_prediction_is_a_sentence(grid):
    """In a process of its own, where what is allocated holds rubbish and memory ends early."""
    program = f"""if True:
        import ctypes, resource, numpy, ups
        from ups import library
        model, frame = ups.Model.load({grid!r}, threads=1), numpy.ones((1, 32, 1), "f4")
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        for steps in ((1 << 31) - 1, (1 << 62)):
            request = library.CModelRequest(steps=steps, frames=frame.ctypes.data, frame_bytes=frame.nbytes, fields=frame.ctypes.data, field_bytes=1 << 63)
            try:
                model._library.model_predict(model._handle, model._index["advection"], ctypes.byref(request))
            except (MemoryError, ValueError) as error:
                print(type(error).__name__)
    """
    done = run(sys.executable, "-c", program, env=os.environ | {"MALLOC_PERTURB_": "165"})
    assert done.stdout.split() == ["UpsMemoryError", "UpsArgumentError"], done.stderr


def test_threads_share_a_model_and_other_processes_load_it_anew(grid):
    model, u = ups.Model.load(grid, threads=1), np.random.default_rng(3).normal(size=(2, 32, 1)).astype("f4")
    expected, found = model.predict(u, "advection", {"beta": 0.4}), []
    threads = [threading.Thread(target=lambda: found.extend(model.predict(u, "advection", {"beta": 0.4}) for _ in range(20))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 60 and all(np.array_equal(each, expected) for each in found)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(u, "advection", {"beta": 0.4}), expected)
    child = os.fork()
    if child == 0:
        try:
            model.predict(u, "advection", {"beta": 0.4})
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_average_is_what_best_and_exported_models_are(runs):
    config = runs.config("averaged", GRID)
    runs.must("train", config, *SHORT, "--set", "operator.validate_every=20", "--set", "operator.optimizer.ema_decay=0.9")
    for name, of in (("whole", ()), ("best", ("--checkpoint", "best")), ("latest", ("--checkpoint", "latest"))):
        runs.must("export", config, "-o", runs.path(name + ".safetensors"), *of)
    whole, best, latest = (load_file(runs.path(name + ".safetensors")) for name in ("whole", "best", "latest"))
    kept = load_file(runs.path("averaged", "checkpoints", "operator", "best.safetensors"))
    assert any(not np.array_equal(kept["ema." + name], kept[name]) for name in whole if name in kept)
    for other in (best, latest):  # the last step was the best one: there was one validation
        assert whole.keys() == other.keys() and all(np.array_equal(whole[name], other[name]) for name in whole)
    scores = [runs.told("eval", config, *of)["tasks"] for of in ((), ("--checkpoint", "best"), ("--checkpoint", runs.path("best.safetensors")))]
    assert [[task["horizons"][0]["model"] for task in each] for each in scores[1:]] == [[task["horizons"][0]["model"] for task in scores[0]]] * 2


def test_the_c_example_predicts_as_python_does(runs, grid):
    model = ups.Model.load(grid)
    for task, data, beta in (("advection", "advection.h5", 0.4), ("darcy", "darcy.h5", 1.0)):
        trajectory = ups.open(os.path.join(runs.data, data))[2].astype(float)
        if task == "darcy":
            trajectory = np.moveaxis(trajectory, 1, -1)
        predicted = model.predict(trajectory[0], task, {"beta": beta})
        expected = [np.linalg.norm(p - t) / np.linalg.norm(t) for p, t in zip(predicted[1:], trajectory[1:])]
        done = run(program("libups_predict"), grid, task, os.path.join(runs.data, data), 2)
        assert done.returncode == 0, done.stderr
        assert np.allclose([float(line.split()[-1]) for line in done.stdout.splitlines()], expected, rtol=1e-4)
    for arguments, words in (((grid, "none", "x"), "no such task"), ((grid, "darcy", "nowhere"), "nowhere"), (("nowhere", "darcy", "x"), "nowhere"),
                             ((grid, "darcy", os.path.join(runs.data, "darcy.h5"), 99), "99")):
        done = run(program("libups_predict"), *arguments)
        assert done.returncode == 1 and words in done.stderr


# ---- files that are not as they should be

def rewritten(runs, source, change):
    """A copy of a model's file with other metadata."""
    path = runs.path(runs.fresh() + ".safetensors")
    with safe_open(source, "numpy") as file:
        metadata = dict(file.metadata())
    change(metadata)
    save_file(load_file(source), path, metadata=metadata)
    return path


def refused(path, *words, kind=ups.UpsError):
    with pytest.raises(kind) as raised:
        ups.Model.load(path)
    for word in (str(path), *words):
        assert word in str(raised.value)


@pytest.mark.parametrize("key", ["channels", "grid", "axes", "order", "periodic", "low", "high", "dt", "time", "stride", "frames"])
def test_a_file_that_tells_nonsense_of_fields_is_refused_with_the_key(runs, grid, key):
    for nonsense in (None, [], "x", -1, [-5], [1e300, 2, 3, 4], {"a": 1}):
        def change(metadata):
            fields = json.loads(metadata["darcy.fields"])
            if nonsense is None:
                del fields[key]
            else:
                fields[key] = nonsense
            metadata["darcy.fields"] = json.dumps(fields)

        if (key, nonsense) in (("dt", -1), ("time", None)):
            continue  # backwards in time is a number like others; where steps are alike no times are told
        refused(rewritten(runs, grid, change), "darcy", f"'{key}'", "ups export")


def test_a_path_of_any_bytes_is_fine(runs, grid):
    path = os.fsencode(runs.folder) + b"/caf\xe9 'x' {y}: #.safetensors"
    shutil.copy(grid, path)
    assert ups.Model.load(path, threads=1).predict(np.ones((1, 32, 1)), "advection", {"beta": 0.4}).shape == (1, 9, 32, 1)


def test_other_metadata_are_checked_too(runs, grid):
    refused(rewritten(runs, grid, lambda m: m.pop("ups.config")), "does not tell", "ups export RUN")
    refused(rewritten(runs, grid, lambda m: m.update({"ups.config": "[1"})), "ups.config")
    refused(rewritten(runs, grid, lambda m: m.update({"ups.config": "[]"})), "ups.config")
    refused(rewritten(runs, grid, lambda m: m.update({"ups.config": m["ups.config"].replace('"core":"spectral"', '"core":"spektral"')})), "spektral")
    refused(rewritten(runs, grid, lambda m: m.update({"ups.config": m["ups.config"].replace('"name":"darcy"', '"name":"other"')})), "other")
    refused(rewritten(runs, grid, lambda m: m.pop("darcy.fields")), "darcy.fields")
    refused(rewritten(runs, grid, lambda m: m.update({"darcy.fields": "no"})), "darcy.fields")
    refused(rewritten(runs, grid, lambda m: m.pop("darcy.normalisation")), "darcy")
    refused(rewritten(runs, grid, lambda m: m.update({"darcy.parameters": "[1, 2]"})), "parameters")


@pytest.mark.parametrize("words, changes", [
    ("at most 16 were expected", {"model.encoder.frequencies": [1.0] * 5000}),
    ("at most 16 were expected", {"model.decoder.frequencies": [1.0] * 5000}),
    ("names tasks[0] already", {"tasks.1.name": "advection"}),
    ("at most 3 axes", {"tasks.0.patch": [4] * 4}),
    ("'frames'", {"advection.frames": 1 << 25}),
    ("'channels'", {"advection.channels": ["u"] * 5000}),
])
def test_what_no_model_can_have_is_refused_as_it_is_opened(runs, grid, words, changes):
    refused(absurd(runs, grid, changes), words)


@pytest.mark.parametrize("words, changes", [
    ("has shape", {"model.operator.hidden": 65536}),
    ("has shape", {"model.operator.modes": [4096]}),
    ("more weights than", {"model.operator.modes": [4096], "model.operator.hidden": 65536}),
    ("larger than a GiB", {"advection.grid": [1 << 27], "model.operator.modes": [4096]}),
    ("window", {"model.operator.core": "stack", "model.operator.attention": "window", "model.operator.window": [4096]}),
    ("more than a GiB", {"model.operator.core": "stack", "model.operator.positions": "rotary", "model.operator.heads": 1, "model.operator.hidden": 65536,
                         "advection.grid": [1 << 20]}),
])
def test_absurd_sizes_are_refused_before_memory_is_taken(runs, grid, words, changes):
    """A file of some kilobytes, whose header asks for terabytes."""
    path, before = absurd(runs, grid, changes), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ups.UpsError, match=words):
        ups.Model.load(path, threads=1).predict(np.ones((1, 16, 16, 2), "f4"), "darcy", {"beta": 1.0}, steps=1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 200000  # KiB


def absurd(runs, source, changes):
    """Keys of the configuration, and of a task's fields, are others, and nothing tells what they were."""
    def change(metadata):
        config = json.loads(metadata["ups.config"])
        for key, value in changes.items():
            task, *path = key.split(".")
            if task + ".fields" in metadata:
                metadata[task + ".fields"] = json.dumps(json.loads(metadata[task + ".fields"]) | {path[0]: value})
                continue
            at = config[task]
            for name in path[:-1]:
                at = at[int(name) if name.isdigit() else name]
            at[path[-1]] = value
        for key in ("operator", *(key for key in metadata if key.endswith((".encoder", ".decoder")))):
            del metadata[key]
        metadata["ups.config"] = json.dumps(config)

    return rewritten(runs, source, change)


def test_models_that_are_not_there_or_not_whole(runs, grid):
    refused(runs.path("nowhere"), kind=OSError)
    os.mkdir(runs.path("empty-folder"))
    refused(runs.path("empty-folder"), "a directory without")
    config = runs.config("half", GRID)
    runs.must("train", config, "--stage", "autoencoder")
    refused(runs.path("half"), "no trained operator", kind=OSError)
    whole = Path(grid).read_bytes()
    header = struct.unpack("<Q", whole[:8])[0]
    for length in (0, 7, 8, 100, 8 + header // 2, len(whole) - 1):
        cut = runs.path(runs.fresh() + ".safetensors")
        Path(cut).write_bytes(whole[:length])
        refused(cut)
    tensors = load_file(grid)
    with safe_open(grid, "numpy") as file:
        metadata = file.metadata()
    missing = next(name for name in tensors if name.startswith("operator.blocks"))
    lacking = runs.path("lacking.safetensors")
    save_file({name: value for name, value in tensors.items() if name != missing}, lacking, metadata=metadata)
    model = ups.Model.load(lacking, threads=1)
    with pytest.raises(ups.UpsError, match=f"lacking.safetensors.*{missing}"):
        model.predict(np.ones((1, 32, 1)), "advection", {"beta": 0.4})
    wrong = runs.path("wrong.safetensors")
    save_file(tensors | {missing: np.zeros((3, 3), "f4")}, wrong, metadata=metadata)
    with pytest.raises(ups.UpsError, match="wrong.safetensors"):
        ups.Model.load(wrong, threads=1).predict(np.ones((1, 32, 1)), "advection", {"beta": 0.4})


def test_an_operator_of_another_autoencoder_is_refused(runs, grid):
    other = runs.config("other-autoencoder", GRID.replace("files: [advection.h5]", "files: [advection.h5]\n    field_scale: [2]"))
    runs.must("train", other, *SHORT)
    os.replace(runs.path("other-autoencoder", "autoencoder.safetensors"), runs.path("other-autoencoder", "kept"))
    Path(runs.path("other-autoencoder", "autoencoder.safetensors")).write_bytes(Path(runs.path("asked", "autoencoder.safetensors")).read_bytes())
    with pytest.raises(ups.UpsError, match="trained with another autoencoder"):
        ups.Model.load(runs.path("other-autoencoder"), threads=1).predict(np.ones((1, 32, 1)), "advection", {"beta": 0.4})
    one_sentence(runs.run("export", runs.path("other-autoencoder"), "-o", runs.path("never.safetensors")), "trained with another autoencoder")
    assert not os.path.exists(runs.path("never.safetensors"))


def test_a_model_that_tells_nothing_is_exported_by_its_data(runs, grid):
    """As those of earlier versions are."""
    config = runs.config("asked", GRID)
    path = runs.path("asked", "operator.safetensors")
    kept = Path(path).read_bytes()
    with safe_open(path, "numpy") as file:
        metadata = {key: text for key, text in file.metadata().items() if key != "ups.config" and not key.endswith(".fields")}
    save_file(load_file(path), path, metadata=metadata)
    try:
        refused(runs.path("asked"), "does not tell")
        runs.must("export", config, "-o", runs.path("again.safetensors"), *SHORT)
        with moved_away(runs):
            one_sentence(runs.run("export", config, "-o", runs.path("never.safetensors")), "data")
    finally:
        Path(path).write_bytes(kept)
    with safe_open(grid, "numpy") as first, safe_open(runs.path("again.safetensors"), "numpy") as second:
        assert first.metadata() == second.metadata()
    before, again = load_file(grid), load_file(runs.path("again.safetensors"))
    assert before.keys() == again.keys() and all(np.array_equal(before[name], again[name]) for name in before)


def test_what_export_cannot_change_is_refused_by_its_key(runs, grid):
    """A model that tells of itself is packed as it was trained; `output` says where it is."""
    out = runs.path("set.safetensors")
    for key, value in (("tasks[0].stride", "2"), ("precision", "bf16"), ("output_", "x")):
        done = runs.run("export", runs.path("asked"), "-o", out, "--set", f"{key}={value}")
        if key != "output_":  # which is no key
            one_sentence(done, f"--set {re.escape(key)}={value} changes nothing: .*operator.safetensors tells by itself", f"leave {re.escape(key)} out")
        assert done.returncode == 1 and not os.path.exists(out)
    runs.must("export", runs.path("asked.yaml"), "-o", out, "--set", f"output={runs.path('asked')}")
    assert os.path.exists(out)


def test_export_says_what_is_wrong_and_what_it_wrote(runs, grid):
    told = runs.told("export", runs.path("asked"), "-o", runs.path("told.safetensors"))
    tensors = load_file(runs.path("told.safetensors"))
    assert told == {"file": runs.path("told.safetensors"), "tensors": len(tensors), "parameters": sum(t.size for t in tensors.values()),
                    "bytes": os.path.getsize(runs.path("told.safetensors"))}
    one_sentence(runs.run("export", runs.path("asked")), "-o FILE", code=2)
    one_sentence(runs.run("export", runs.path("asked"), "-o", runs.path("nowhere", "x")), "nowhere")
    before = Path(runs.data, "advection.h5").read_bytes()
    one_sentence(runs.run("export", runs.path("asked"), "-o", runs.data + "/advection.h5"), "is no model; name another file")
    assert Path(runs.data, "advection.h5").read_bytes() == before
    for own in ("autoencoder.safetensors", "operator.safetensors"):
        before = Path(runs.path("asked", own)).read_bytes()
        for checkpoint in ((), ("--checkpoint", grid)):
            one_sentence(runs.run("export", runs.path("asked"), "-o", runs.path("asked", own), *checkpoint), "is a model of the run", "name another file")
        assert Path(runs.path("asked", own)).read_bytes() == before
    runs.must("export", runs.path("asked"), "-o", runs.path("told.safetensors"), "--checkpoint", runs.path("told.safetensors"))
    one_sentence(runs.run("export", runs.path("asked"), "-o", "x", "--checkpoint", "bets"), "did you mean 'best'")
    one_sentence(runs.run("export", runs.path("half"), "-o", "x"), "no trained operator")


def test_the_package_does_without_a_library_until_it_is_needed():
    environment = {**os.environ, "UPS_LIBRARY": "/nowhere/libups.so"}
    assert subprocess.run([sys.executable, "-c", "import ups; ups.Model"], env=environment).returncode == 0
    done = run(sys.executable, "-c", "import ups; ups.Model.load('x')", env=environment)
    assert done.returncode != 0 and "UPS_LIBRARY" in done.stderr
