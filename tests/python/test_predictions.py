"""`ups eval --predictions`: what another model predicted, from files that NumPy and h5py write, has the errors that NumPy computes; what UPS itself
predicted has those of its run; and what does not fit is refused."""

import json
import os
import re
import shutil

import h5py
import numpy as np
import pytest
import xarray
import zarr

from commands import one_sentence
from pages import Page

SAMPLES = 20  # of which a fifth is for tests: four

CONFIG = """\
output: {output}
device: {{threads: 1}}
data: {{root: {data}, split: {{train: 0.6, validation: 0.2, test: last 20%}}, decode_threads: 1}}
tasks:
  - {{name: it, files: [{file}], patch: [4]{more}}}
model: {{tokens: grid, dim: auto, operator: {{core: stack, hidden: 16, depth: 1, heads: 1}}}}
autoencoder: {{steps: 0}}
operator: {{steps: 4, batch_size: 2}}
evaluation: {{horizons: [1, 3, 0]}}
"""
TEST = slice(16, 20)


@pytest.fixture(scope="module")
def line(runs):
    """A configuration of which nothing was trained, and the truth of its test trajectories (trajectory, time, x)."""
    with h5py.File(os.path.join(runs.data, "advection.h5")) as file:
        truth = file["tensor"][TEST]
    return runs.config("line", CONFIG, file="advection.h5", more=""), truth


@pytest.fixture(scope="module")
def plane(runs):
    """The same with four fields in 2D: (trajectory, time, x, y, field)."""
    path = runs.generate("cfd2d_rand", "plane.h5", SAMPLES, "-r", "16", "--steps", "5")
    with h5py.File(path) as file:
        names = ["density", "pressure", "Vx", "Vy"]
        truth = np.stack([file[name][TEST] for name in names], -1)
    return runs.config("plane", CONFIG, file="plane.h5", more=""), truth


def noisy(truth, seed=1):
    rng = np.random.default_rng(seed)
    return (truth + 0.1 * rng.standard_normal(truth.shape)).astype("f4")


def saved(runs, name, array):
    np.save(runs.path(name), array)
    return runs.path(name)


def scored(runs, config, *options):
    return runs.told("eval", config, *options)


def whole(document, task=0):
    return next(h for h in document["tasks"][task]["horizons"] if h["whole"])


def flat(metrics):
    """Those that there are: coarse grids have no high wave numbers."""
    return {key: value for key, value in (metrics | metrics["frmse"]).items() if isinstance(value, float)}


def nrmse(prediction, truth, axes):
    prediction, truth = prediction.astype("f8"), truth.astype("f8")
    return np.sqrt(((prediction - truth) ** 2).mean(axes) / (truth**2).mean(axes))


# ---- what is scored ------------------------------------------------------------------------------------------------------------------

def test_errors_are_those_that_numpy_computes(runs, line):
    config, truth = line
    made = noisy(truth)
    document = scored(runs, config, "--predictions", saved(runs, "made.npy", made))
    assert document["predictions"] == [{"task": "it", "files": [runs.path("made.npy")], "xxh3": document["predictions"][0]["xxh3"]}]
    assert not {"operator", "autoencoder", "training"} & set(document)
    assert json.loads(open(runs.path("made.json")).read()) == document  # the default name
    errors = nrmse(made, truth, -1)  # (trajectory, time)
    task = document["tasks"][0]
    assert task["trajectories"] == 4 and task["by_trajectory"]["sample"] == [16, 17, 18, 19]
    for horizon, wanted in zip(task["horizons"], (errors[:, 1], errors[:, 3], errors[:, 1:])):
        assert horizon["windows"] == 4
        assert horizon["model"]["nrmse"] == pytest.approx(wanted.mean(), rel=1e-6)
        assert set(horizon) & {"model", "persistence", "reconstruction"} == {"model", "persistence"}
    repeated = np.repeat(truth[:, :1], truth.shape[1], 1)
    assert whole(document)["persistence"]["nrmse"] == pytest.approx(nrmse(repeated, truth, -1)[:, 1:].mean(), rel=1e-5)
    assert task["by_trajectory"]["nrmse"] == pytest.approx(errors[:, 1:].mean(1), rel=1e-6)
    assert not os.path.exists(runs.path("line"))  # the run's directory: nothing was trained
    assert "reconstruction" not in json.dumps(document["tasks"]) and "frame_seconds" not in task


@pytest.mark.parametrize("form", ["field axis", "behind the given", "float64", "hdf5", "zarr", "npz", "pdebench"])
def test_forms_of_one_field(runs, line, form):
    config, truth = line
    made = noisy(truth, seed=2)
    path = runs.path("form-" + form.split()[0])
    if form == "hdf5":
        with h5py.File(path := path + ".h5", "w") as file:
            file.create_dataset("prediction", data=made[..., None], chunks=(1, 3, 16, 1), compression="gzip")
    elif form == "zarr":
        zarr.save_group(path := path + ".zarr", prediction=made)
    elif form == "npz":
        np.savez_compressed(path := path + ".npz", prediction=made[..., None])
    elif form == "pdebench":
        with h5py.File(path := path + ".hdf5", "w") as file, h5py.File(os.path.join(runs.data, "advection.h5")) as data:
            file["tensor"] = made
            for name in ("x-coordinate", "t-coordinate"):
                file[name] = data[name][:]
    else:
        np.save(path := path + ".npy", {"field axis": made[..., None], "behind the given": made[:, 1:], "float64": made.astype("f8")}[form])
    found = scored(runs, config, "--predictions", path, "-o", runs.path("form.json"))
    assert whole(found)["model"]["nrmse"] == pytest.approx(nrmse(made, truth, -1)[:, 1:].mean(), rel=1e-6)


def test_several_fields_by_their_order_or_by_their_names(runs, plane):
    config, truth = plane
    made = noisy(truth, seed=3)
    wanted = nrmse(made, truth, (2, 3))[:, 1:].mean((0, 1))  # (field)
    with h5py.File(runs.path("named.h5"), "w") as file, h5py.File(os.path.join(runs.data, "plane.h5")) as data:
        for name in ("x-coordinate", "y-coordinate", "t-coordinate"):
            file[name] = data[name][:]
        for c, name in reversed(list(enumerate(["density", "pressure", "Vx", "Vy"]))):
            file[name] = made[..., c]
    for path in (saved(runs, "ordered.npy", made), runs.path("named.h5")):
        fields = whole(scored(runs, config, "--predictions", path))["fields"]
        found = [fields[name]["model"]["nrmse"] for name in ("density", "pressure", "Vx", "Vy")]
        assert found == pytest.approx(wanted, rel=1e-6)


def test_what_a_run_predicted_has_the_errors_of_the_run(runs, trained):
    """Tasks of one field and of several, one of them steady; each needs its name."""
    own = scored(runs, trained, "--set", "evaluation.horizons=[0]", "-o", runs.path("own.json"))
    runs.must("rollout", trained, "-n", "100", "-o", runs.path("out.h5"))
    files = [part for task in ("advection", "darcy") for part in ("--predictions", f"{task}={runs.path(f'out-{task}.h5')}")]
    found = scored(runs, trained, "--set", "evaluation.horizons=[0]", *files, "-o", runs.path("again.json"))
    for task in (0, 1):
        assert all(flat(whole(found, task)["model"])[key] == pytest.approx(value, rel=1e-6) for key, value in flat(whole(own, task)["model"]).items())
        assert found["tasks"][task]["by_trajectory"]["truth_xxh3"] == own["tasks"][task]["by_trajectory"]["truth_xxh3"]
        assert found["tasks"][task]["gates"].keys() == own["tasks"][task]["gates"].keys()
    darcy = scored(runs, trained, *files[2:], "-o", runs.path("darcy.json"))
    assert [task["task"] for task in darcy["tasks"]] == ["darcy"]
    one_sentence(runs.run("eval", trained, "--predictions", runs.path("out-darcy.h5")), "of which task", "advection=")
    one_sentence(runs.run("eval", trained, "--predictions", "darci=" + runs.path("out-darcy.h5")), "no task darci")


def test_rollouts_that_lack_bad_trajectories_are_matched_by_the_names_that_they_tell(runs):
    path = runs.generate("advection1d", "holes.h5", SAMPLES, "-r", "32", "--steps", "9")
    with h5py.File(path, "r+") as file:
        file["tensor"][17, 3] = np.nan
    config = runs.config("holes", CONFIG.replace("root: {data},", "root: {data}, on_bad_sample: skip,"), file="holes.h5", more="")
    runs.must("train", config)
    own = scored(runs, config, "-o", runs.path("holes-own.json"))["tasks"][0]
    runs.must("rollout", config, "-n", "100", "-o", runs.path("holes.h5"))
    found = scored(runs, config, "--predictions", runs.path("holes.h5"))["tasks"][0]
    assert own["trajectories"] == found["trajectories"] == 3
    assert found["by_trajectory"]["truth_xxh3"] == own["by_trajectory"]["truth_xxh3"]
    assert found["by_trajectory"]["nrmse"] == pytest.approx(own["by_trajectory"]["nrmse"], rel=1e-6)
    three = scored(runs, config, "--predictions", runs.path("holes.h5"), "--set", "evaluation.max_samples=3")["tasks"][0]  # 16, 17 and 18, of which one is bad
    assert three["by_trajectory"]["nrmse"] == found["by_trajectory"]["nrmse"][:2]
    runs.must("rollout", config, "-n", "2", "-o", runs.path("two.h5"))  # 16 and 18, but 19 could be predicted, too
    one_sentence(runs.run("eval", config, "--predictions", runs.path("two.h5")), r"two.h5: by its attribute ups.samples no trajectory is tensor\[19\]")
    np.save(runs.path("three.npy"), np.zeros((3, 9, 32), "f4"))  # which tells no names
    one_sentence(runs.run("eval", config, "--predictions", runs.path("three.npy")), "3 trajectories are predicted, but the split has 4")


def test_two_models_are_compared_by_trajectory(runs, line):
    config, truth = line
    for name, size in (("near", 0.01), ("far", 0.5)):
        scored(runs, config, "--predictions", saved(runs, name + ".npy", truth + size * np.random.default_rng(4).standard_normal(truth.shape)))
    table = runs.told("compare", runs.path("near.json"), runs.path("far.json"))
    assert table["tasks"][0]["interval"][1] < 0 and table["tasks"][0]["probability_a_better"] == 1
    assert "A is better" in runs.must("compare", runs.path("near.json"), runs.path("far.json")).stdout


def test_several_files_follow_one_another(runs, line):
    config, truth = line
    made = noisy(truth, seed=5)
    parts = [part for i in (0, 1) for part in ("--predictions", saved(runs, f"part{i}.npy", made[2 * i:2 * i + 2]))]
    found = scored(runs, config, *parts)
    assert whole(found)["model"]["nrmse"] == pytest.approx(nrmse(made, truth, -1)[:, 1:].mean(), rel=1e-6)
    assert len(found["predictions"][0]["files"]) == 2


def test_given_frames_and_trajectories_that_are_left_out(runs, line):
    config, truth = line
    made = noisy(truth, seed=6)
    errors = nrmse(made, truth, -1)
    given = ("--set", "evaluation.given=4")
    for array in (made, made[:, 4:]):
        found = scored(runs, config, *given, "--predictions", saved(runs, "given.npy", array))
        assert whole(found)["model"]["nrmse"] == pytest.approx(errors[:, 4:].mean(), rel=1e-6)
        assert found["tasks"][0]["steps"] == 5
    fewer = ("--set", "evaluation.max_samples=2")
    for array in (made, made[::2]):  # of all, or of those that are scored
        found = scored(runs, config, *fewer, "--predictions", saved(runs, "fewer.npy", array))
        assert found["tasks"][0]["by_trajectory"]["sample"] == [16, 18]
        assert whole(found)["model"]["nrmse"] == pytest.approx(errors[::2, 1:].mean(), rel=1e-6)


def test_a_stride(runs, line):
    _, truth = line
    config = runs.config("strided", CONFIG, file="advection.h5", more=", stride: 2")
    made = noisy(truth, seed=7)
    wanted = nrmse(made, truth, -1)[:, 2::2].mean()
    for array in (made, made[:, ::2], made[:, 2::2]):  # as stored, at the stride, behind the given frame
        found = scored(runs, config, "--predictions", saved(runs, "strided.npy", array))
        assert whole(found)["model"]["nrmse"] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
def test_points_that_lie_anywhere_stand_in_the_order_of_the_file(runs, own):
    rng = np.random.default_rng(8)
    places, count = rng.random((SAMPLES, 50, 2) if own else (50, 2)), np.full(SAMPLES, 50)
    t = np.linspace(0, 1, 6)
    at = np.broadcast_to(places, (SAMPLES, 50, 2))
    u = np.sin(3 * at[..., 0] + 2 * at[..., 1])[:, None] * np.exp(-t)[:, None] + 0.1 * rng.random((SAMPLES, 1, 50))
    name = f"points-{own}.h5"
    with h5py.File(os.path.join(runs.data, name), "w") as file:
        file["points"], file["t"], file["u"] = places, t, u.astype("f4")
    config = runs.config(f"points-{own}", CONFIG, file=name, more="")
    truth = u[TEST].astype("f4")
    made = noisy(truth, seed=9)
    fields = 3 if own else 1  # where points differ, their places are fields
    found = truth_and = made[..., None]
    if own:
        still = np.repeat(at[TEST][:, None], len(t), 1)
        found = truth_and = np.concatenate([still, made[..., None]], -1)
    assert found.shape[-1] == fields and count.all()
    document = scored(runs, config, "--predictions", saved(runs, "points.npy", truth_and.astype("f4")))
    assert document["tasks"][0]["solution_fields"] == ["u"]
    assert whole(document)["model"]["nrmse"] == pytest.approx(nrmse(made, truth, -1)[:, 1:].mean(), rel=1e-5)
    with h5py.File(runs.path("points.h5"), "w") as file:  # the layout of the data
        file["points"], file["t"], file["u"] = places[TEST] if own else places, t, made
    again = scored(runs, config, "--predictions", runs.path("points.h5"), "-o", runs.path("again-points.json"))
    assert whole(again)["model"]["nrmse"] == pytest.approx(whole(document)["model"]["nrmse"], rel=1e-6)


def test_a_page_and_gates(runs, plane):
    config, truth = plane
    made = noisy(truth, seed=10)
    made[0, 2, 3, 4, 0] = -1  # a density
    path = saved(runs, "gated.npy", made)
    done = runs.run("eval", config, "--predictions", path, "--html", runs.path("page.html"), "--gates", "--set", "evaluation.gates.positivity=0.01")
    one_sentence(done, "positivity")
    assert "ups rollout" not in done.stdout and f"written to {runs.path('gated.json')}" in done.stdout
    page = Page(runs.path("page.html"))
    assert re.search("Predictions of it: <code>.*gated.npy", page.source) and "reconstruction" not in page.source and not page.problems
    assert "reconstruction" not in done.stdout


def test_numbers_that_are_not_finite_are_told(runs, line):
    config, truth = line
    made = noisy(truth, seed=11)
    made[1, 5] = np.nan
    found = scored(runs, config, "--predictions", saved(runs, "nan.npy", made))
    assert whole(found)["model"]["nrmse"] is None and found["worse_than_persistence"]
    assert [value is None for value in found["tasks"][0]["by_trajectory"]["nrmse"]] == [False, True, False, False]


# ---- what is refused -----------------------------------------------------------------------------------------------------------------

def test_predictions_that_do_not_fit_are_refused(runs, line, plane):
    config, truth = line

    def refused(array, *parts, of=config):
        one_sentence(runs.run("eval", of, "--predictions", saved(runs, "bad.npy", array)), *parts)
        assert not os.path.exists(runs.path("bad.json"))

    refused(truth[:3], "3 trajectories are predicted", "has 4")
    refused(truth[:, :5], "5 frames", "predict the 8 behind", "9 in all")
    refused(truth[..., ::2], "32 points, not 16")
    refused(np.stack([truth, truth], -1), "has 1 field, not 2")
    refused(np.concatenate([plane[1], plane[1]], -1), "has 4 fields, not 8", of=plane[0])
    refused(plane[1][..., :3], "has 4 fields, not 3", of=plane[0])
    refused(plane[1][..., 0], re.escape("(4, 5, 16, 16)"), re.escape("(trajectory, time, grid, grid, field)"), of=plane[0])
    refused(truth[0], re.escape("(9, 32)"))
    refused(truth.astype("c8"), "no real number")
    refused(np.array(["text"]), "bad.npy")
    refused(truth[:0], "bad.npy")


def test_each_of_several_files_is_looked_at(runs, plane):
    config, truth = plane
    whole, more = saved(runs, "first.npy", truth[:2]), saved(runs, "second.npy", np.concatenate([truth[2:], truth[2:, ..., :1]], -1))
    one_sentence(runs.run("eval", config, "--predictions", whole, "--predictions", more), "second.npy", "4 fields, not 5")
    one_sentence(runs.run("eval", config, "--predictions", whole, "--predictions", runs.path("third.npy")), "third.npy")


def test_samples_of_a_file_that_differ_are_refused(runs):
    """Groups of one file, which each say their own shape."""
    runs.generate("diffreact2d", "groups.h5", SAMPLES, "-r", "16", "--steps", "6")
    config = runs.config("groups", CONFIG, file="groups.h5", more="")
    for shape, what in (((6, 40, 40, 2), "grid"), ((6, 8, 32, 2), "grid"), ((4, 16, 16, 2), "number of frames"), ((12, 16, 16, 2), "number of frames")):
        with h5py.File(os.path.join(runs.data, "groups.h5")) as data, h5py.File(runs.path("odd.h5"), "w") as file:
            for i in range(4):
                data.copy(f"{16 + i:04d}", file, f"{i:04d}")
            group = file["0002"]
            del group["data"], group["grid"]
            group["data"] = np.zeros(shape, "f4")
            for name, points in zip(("t", "x", "y"), shape):
                group[f"grid/{name}"] = np.linspace(0, 1, points)
        one_sentence(runs.run("eval", config, "--predictions", runs.path("odd.h5")), "odd.h5", "0002", what)


def test_an_array_called_prediction_is_meant_before_all_else(runs, line):
    """Beside the truth, in a copy of the data."""
    config, truth = line
    made = noisy(truth, seed=12)
    with h5py.File(os.path.join(runs.data, "advection.h5")) as data, h5py.File(runs.path("beside.h5"), "w") as file:
        file["tensor"], file["prediction"] = truth, made
        for name in ("x-coordinate", "t-coordinate"):
            file[name] = data[name][:]
    found = scored(runs, config, "--predictions", runs.path("beside.h5"))
    assert whole(found)["model"]["nrmse"] == pytest.approx(nrmse(made, truth, -1)[:, 1:].mean(), rel=1e-6)


def test_a_layout_of_the_tasks_own(runs):
    """Axes in another order, a scale: arrays named `prediction` and .npy files are as documented, other files as the layout says."""
    rng = np.random.default_rng(13)
    stored = rng.random((9, SAMPLES, 2, 12, 16)).astype("f4")  # time, sample, channel, y, x
    with h5py.File(os.path.join(runs.data, "own.h5"), "w") as file:
        file["it"] = stored
    layout = ", layout: {{fields: {{a: {{channel: 0, scale: 0.5}}, b: {{channel: 1, scale: 0.5}}}}, axes: [time, sample, channel, y, x], array: /it}}"
    config = runs.config("own", CONFIG, file="own.h5", more=layout.format())
    truth = 0.5 * np.moveaxis(stored[:, TEST], (1, 0, 3, 4, 2), (0, 1, 2, 3, 4))  # trajectory, time, y, x, field
    made = noisy(truth, seed=14)
    wanted = nrmse(made, truth, (2, 3))[:, 1:].mean()
    with h5py.File(runs.path("as-data.h5"), "w") as file:
        file["it"] = 2 * np.moveaxis(made, (0, 1, 2, 3, 4), (1, 0, 3, 4, 2))
    with h5py.File(runs.path("named-prediction.h5"), "w") as file:
        file["prediction"] = made
    for path in (saved(runs, "documented.npy", made), runs.path("named-prediction.h5"), runs.path("as-data.h5")):
        assert whole(scored(runs, config, "--predictions", path))["model"]["nrmse"] == pytest.approx(wanted, rel=1e-5), path


def test_fields_and_axes_that_go_by_other_names_are_not_taken_by_their_order(runs):
    rng = np.random.default_rng(15)
    values = {name: rng.random((SAMPLES, 6, 8, 8)).astype("f4") for name in ("u", "v")}

    def write(path, which, order=("lat", "lon"), names=("u", "v")):
        xarray.Dataset({name: (("sample", "time", *order), values[of][which]) for name, of in zip(names, ("u", "v"))},
                       {"time": np.arange(6.0), "lat": np.arange(8.0), "lon": np.arange(8.0)}).to_netcdf(path, engine="netcdf4")
    write(os.path.join(runs.data, "named.nc"), slice(None))
    config = runs.config("netcdf", CONFIG, file="named.nc", more="")
    write(runs.path("right.nc"), TEST)
    assert whole(scored(runs, config, "--predictions", runs.path("right.nc")))["model"]["nrmse"] == 0
    write(runs.path("turned.nc"), TEST, order=("lon", "lat"))
    one_sentence(runs.run("eval", config, "--predictions", runs.path("turned.nc")), "turned.nc", "axis 1 of its grid is lon", "is lat")
    write(runs.path("renamed.nc"), TEST, names=("w", "u"))
    one_sentence(runs.run("eval", config, "--predictions", runs.path("renamed.nc")), "renamed.nc", "v is not among them")


def test_files_that_are_no_predictions_are_refused(runs, line):
    config, truth = line
    np.save(runs.path("whole.npy"), truth)
    with open(runs.path("whole.npy"), "rb") as file:
        data = file.read()
    with open(runs.path("cut.npy"), "wb") as file:
        file.write(data[:-100])
    with open(runs.path("cut.h5"), "wb") as file, open(os.path.join(runs.data, "advection.h5"), "rb") as from_:
        file.write(from_.read()[:3000])
    for name in ("cut.npy", "cut.h5", "absent.npy"):
        one_sentence(runs.run("eval", config, "--predictions", runs.path(name)), re.escape(runs.path(name)))
    one_sentence(runs.run("eval", config, "--predictions", runs.path("whole.npy"), "--checkpoint", "best"), "--checkpoint and --predictions")
    one_sentence(runs.run("eval", config, "--predictions", runs.path("whole.npy"), "-o", runs.path("whole.npy")), "reads")
    with open(runs.path("whole.json"), "w") as file:
        file.write("{}")
    one_sentence(runs.run("eval", config, "--predictions", runs.path("whole.npy")), "whole.json", "name another file")
    assert open(runs.path("whole.json")).read() == "{}"
    os.unlink(runs.path("whole.json"))
    for _ in range(2):  # what this wrote is replaced
        runs.must("eval", config, "--predictions", runs.path("whole.npy"))


def test_trajectories_in_another_order_are_warned_of(runs, line):
    config, truth = line
    done = runs.run("eval", config, "--predictions", saved(runs, "turned.npy", truth[::-1]))
    assert done.returncode == 0 and done.stderr.count("begins otherwise than") == 1
    assert "begins otherwise" not in runs.run("eval", config, "--predictions", saved(runs, "right.npy", truth)).stderr


def test_the_files_of_a_task_are_not_changed(runs, line):
    config, truth = line
    before = open(os.path.join(runs.data, "advection.h5"), "rb").read()
    shutil.copy(os.path.join(runs.data, "advection.h5"), runs.path("copy.h5"))
    done = runs.run("eval", config, "--predictions", runs.path("copy.h5"))  # all samples, not those of the split alone
    one_sentence(done, "20 trajectories are predicted")
    assert open(os.path.join(runs.data, "advection.h5"), "rb").read() == before


def test_fields_of_an_array_go_by_their_order_whatever_the_tasks_are_called(runs):
    rng = np.random.default_rng(17)
    stored = rng.random((SAMPLES, 6, 12, 2)).astype("f4")
    np.save(os.path.join(runs.data, "named.npy"), stored)
    layout = ", layout: {{fields: {{f1: 0, f0: 1}}, axes: [sample, time, x, channel]}}"
    config = runs.config("fields", CONFIG, file="named.npy", more=layout.format())
    assert whole(scored(runs, config, "--predictions", saved(runs, "fields.npy", stored[TEST])))["model"]["nrmse"] == 0


def test_points_that_move_are_predicted_behind_the_given_frame(runs):
    rng = np.random.default_rng(18)
    places = 0.5 + 0.1 * rng.standard_normal((SAMPLES, 6, 30, 2)).cumsum(1)
    u = rng.random((SAMPLES, 6, 30)).astype("f4")

    def write(path, which, frames):
        with h5py.File(path, "w") as file:
            file["points"], file["t"], file["u"] = places[which, frames], np.linspace(0, 1, 6)[frames], u[which, frames]
    write(os.path.join(runs.data, "moving.h5"), slice(None), slice(None))
    config = runs.config("moving", CONFIG, file="moving.h5", more="")
    for frames in (slice(None), slice(1, None)):
        write(runs.path("moved.h5"), TEST, frames)
        found = scored(runs, config, "--predictions", runs.path("moved.h5"))
        assert whole(found)["model"]["nrmse"] < 1e-6


def test_points_that_lie_elsewhere_are_refused(runs):
    rng = np.random.default_rng(16)
    places, t = rng.random((40, 2)), np.linspace(0, 1, 5)
    u = rng.random((SAMPLES, 5, 40)).astype("f4")
    with h5py.File(os.path.join(runs.data, "fixed.h5"), "w") as file:
        file["points"], file["t"], file["u"] = places, t, u
    config = runs.config("fixed", CONFIG, file="fixed.h5", more="")
    order = rng.permutation(40)
    with h5py.File(runs.path("permuted.h5"), "w") as file:
        file["points"], file["t"], file["u"] = places[order], t, u[TEST][..., order]
    one_sentence(runs.run("eval", config, "--predictions", runs.path("permuted.h5")), "permuted.h5", "in the same order")
    one_sentence(runs.run("eval", config, "--predictions", saved(runs, "more.npy", np.repeat(u[TEST], 2, -1))), "80 points", "has 40")


def test_a_field_that_begins_otherwise_is_warned_of_beside_larger_ones(runs, plane):
    config, truth = plane
    turned = truth.copy()
    turned[..., 2] = truth[::-1, ..., 2]
    done = runs.run("eval", config, "--predictions", saved(runs, "one-turned.npy", turned))
    assert done.returncode == 0 and re.search("begins otherwise than .*: Vx of its given frame", done.stderr)
    turned[..., 2] = np.nan
    assert "Vx of its given frame is another" in runs.run("eval", config, "--predictions", saved(runs, "one-nan.npy", turned)).stderr


def test_nothing_of_a_run_is_replaced(runs, trained):
    own = json.loads(runs.must("eval", trained, "--json").stdout)
    kept = runs.path("trained", "evaluation.json")
    runs.must("rollout", trained, "-n", "100", "-o", runs.path("trained", "evaluation.h5"), "--task", "advection")
    done = runs.run("eval", trained, "--predictions", "advection=" + runs.path("trained", "evaluation.h5"))
    one_sentence(done, "evaluation.json", "name another file")
    assert json.loads(open(kept).read()) == own
    named = runs.path("either.json")
    for kind in (("--predictions", "advection=" + runs.path("trained", "evaluation.h5")), ()) * 2:  # under a name that is given, either takes the other's place
        found = scored(runs, trained, *kind, "-o", named)
        assert json.loads(open(named).read()) == found and ("predictions" in found) == bool(kind)
    one_sentence(runs.run("eval", trained, "--predictions", "advection=x.h5", "--stride", "2"), "--stride", "tasks")
    missing = runs.run("eval", trained, "--predictions", "advection=" + runs.path("trained", "evaluation.h5"), "--predictions", "darcy=absent.h5",
                       "-o", runs.path("both.json"))
    one_sentence(missing, "absent.h5")
    fewer = saved(runs, "fewer-darcy.npy", np.zeros((2, 2, 16, 16, 2), "f4"))
    unlike = runs.run("eval", trained, "--predictions", "advection=" + runs.path("trained", "evaluation.h5"), "--predictions", "darcy=" + fewer,
                      "-o", runs.path("both.json"))
    one_sentence(unlike, "2 trajectories are predicted")
    assert "nRMSE" not in missing.stdout + unlike.stdout  # all are held against the data first
