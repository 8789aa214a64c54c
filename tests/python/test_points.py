"""Fields on points that lie anywhere: what `ups data dump` gives is h5py's, whatever order the tree has; models are trained on them,
evaluated, rolled out and handed on, and every number comes back in the order of the file."""

import json
import shutil

import h5py
import netCDF4
import numpy as np
import pytest
import zarr
from safetensors.numpy import load_file

from commands import dump, must, one_sentence, told, ups

SAMPLES, TIMES, POINTS = 24, 9, 203  # no power of two: the last token is short


def waves(places, t, rng):
    """(time, point): a few plane waves that travel and decay."""
    k, phase, a = rng.integers(1, 3, (3, places.shape[-1])), rng.random(3) * 6, rng.random(3)
    angles = 2 * np.pi * places @ k.T  # (point, 3)
    return (a * np.exp(-t[:, None, None]) * np.cos(angles - 2 * t[:, None, None] + phase)).sum(-1).astype("f4")


def triangles(places):
    """Some: of three points that follow each other."""
    return np.stack([np.arange(len(places) - 2), np.arange(1, len(places) - 1), np.arange(2, len(places))], -1).astype("i4")


def save(path, data):
    """Datasets by name, but for those that are None."""
    with h5py.File(path, "w") as f:
        for name, values in data.items():
            if values is not None:
                f[name] = values
    return path


def write(path, own, dims=2, **change):
    """A file of the layout `points`; `change` replaces datasets, or leaves them out where it is None."""
    rng = np.random.default_rng(dims)
    t = np.linspace(0, 0.4, TIMES)
    places = rng.random((SAMPLES, POINTS, dims) if own else (POINTS, dims))
    of = places if own else [places] * SAMPLES
    data = {"points": places, "t": t, "u": np.stack([waves(p, t, rng) for p in of]), "parameters/nu": np.linspace(0.1, 0.3, SAMPLES)}
    if not own:
        data |= {"cells": triangles(places), "wall": (places[:, 0] - 0.5).astype("f4"), "force": rng.random((SAMPLES, POINTS, 2)).astype("f4"),
                 "odd": np.arange(7.0)}
    return save(path, data | change)


def channels_of(f, i):
    """(time, channel, point) of sample i, as the layout puts them together."""
    u = f["u"][i]
    still = [f["points"][i].T] if f["points"].ndim == 3 else [f["force"][i].T]
    behind = [] if f["points"].ndim == 3 else [f["wall"][:][None]]
    parts = [np.repeat(p[None], len(u), 0) for p in still] + [u[:, None]] + [np.repeat(p[None], len(u), 0) for p in behind]
    return np.concatenate(parts, 1)


def configuration(folder, name, **task):
    task = {"name": "mesh", "files": [name], "patch": [8]} | task
    config = {
        "output": str(folder / "run"), "seed": 5, "precision": "f32", "device": {"threads": 1}, "data": {"root": str(folder), "decode_threads": 1},
        "tasks": [task], "model": {"tokens": "grid", "dim": "auto", "operator": {"core": "stack", "hidden": 16, "depth": 1, "heads": 2, "mlp_ratio": 2}},
        "autoencoder": {"steps": 0}, "operator": {"steps": 30, "batch_size": 4, "validate_every": 0}}
    (folder / "run.yaml").write_text(json.dumps(config))
    return folder / "run.yaml"


@pytest.fixture(scope="module", params=[False, True], ids=["shared", "own"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("points")
    write(folder / "data.h5", request.param)
    must("train", configuration(folder, "data.h5"), "-q")
    return folder


# ---- reading -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
def test_fields_are_those_of_h5py_in_the_order_of_the_file(tmp_path, own):
    path = write(tmp_path / "data.h5", own)
    facts = told("data", "inspect", path)[0]
    assert facts["layout"] == "points" and facts["samples"] == SAMPLES and facts["grid"] == []
    assert facts["points"]["count"] == POINTS and facts["points"]["of_each_sample"] is own
    assert facts["fields"] == (["x", "y", "u"] if own else ["force_x", "force_y", "u", "wall"])
    with h5py.File(path) as f:
        if not own:
            assert facts["points"]["cells"] == POINTS - 2 and facts["left_out"] == "'odd' (7)"
            box = f["points"][:]
            assert facts["points"]["box"] == {"x": [box[:, 0].min(), box[:, 0].max()], "y": [box[:, 1].min(), box[:, 1].max()]}
        for i in (0, SAMPLES - 1):
            np.testing.assert_array_equal(dump(path, i), channels_of(f, i))


def test_formats_of_ones_own_have_points_too(tmp_path):
    path = write(tmp_path / "data.h5", True)
    with h5py.File(path) as f:
        store = zarr.open_group(tmp_path / "data.zarr", mode="w")
        for name in ("points", "u"):
            store[name] = f[name][:]
        np.savez(tmp_path / "data.npz", points=f["points"][:], u=f["u"][:])
        expected = channels_of(f, 3)
    place = "{array: points, channel: %d, axes: [sample, point, channel]}"
    layout = "{fields: {x: %s, y: %s, u: u}, axes: [sample, time, point], coordinates: {point: points}}" % (place % 0, place % 1)
    for name in ("data.zarr", "data.npz", "data.h5"):
        np.testing.assert_array_equal(dump(tmp_path / name, 3, "threads", "--layout", layout), expected)
    hidden = "{fields: {u: u}, axes: [sample, time, point], coordinates: {point: points}}"
    one_sentence(ups("data", "inspect", tmp_path / "data.npz", "--layout", hidden), "name their coordinates in layout.fields, too: x: ")
    other = layout.replace("x: {", "px: {").replace("y: {", "py: {")
    one_sentence(ups("data", "inspect", tmp_path / "data.npz", "--layout", other), "name their coordinates in layout.fields, too: x: ")


@pytest.mark.parametrize("layout, sentence", [
    ("{fields: {u: u}, axes: [sample, time, point]}", "where the points lie was expected"),
    ("{fields: {u: u}, axes: [time, point, x], coordinates: {point: points}}", "'x' is an axis of a grid"),
    ("{fields: {u: u}, axes: [sample, time, point], coordinates: {point: t}}", r"'t' has shape \(9\)"),
    ("{fields: {u: u}, axes: [sample, time, point], coordinates: {point: points}, periodic: true}", "not periodic"),
])
def test_mappings_that_cannot_be_are_refused(tmp_path, layout, sentence):
    path = write(tmp_path / "data.h5", False)
    done = ups("data", "inspect", path, "--layout", layout)
    assert done.returncode != 0
    one_sentence(done, sentence, code=done.returncode)


@pytest.mark.parametrize("change, sentence", [
    ({"points": np.full((POINTS, 2), np.nan)}, "'points' has no number at point 0"),
    ({"points": np.zeros((POINTS, 4))}, "with 1 to 3 coordinates was expected"),
    ({"points": np.zeros((POINTS + 1, 2))}, "no dataset has axes .sample, time, point."),
    ({"points": np.zeros(POINTS)}, "'points' has rank 1"),
    ({"points": np.zeros((3, POINTS, 2))}, r"'points' has shape \(3, 203, 2\), where fields have 24 samples"),
    ({"cells": np.full((5, 3), POINTS)}, "cell 0 has the corner 203, but points are counted from 0 to 202"),
    ({"cells": np.full((5, 3), -1)}, "cell 0 has the corner -1"),
    ({"cells": np.full((5, 3), 0.5)}, "cell 0 has the corner 0.5"),
    ({"cells": np.zeros(5)}, r"'cells' has shape \(5\)"),
    ({"t": None}, "dataset 't' is missing"),
    ({"t": np.arange(5.0)}, r"'t' has shape \(5\) where fields have 24 samples of 9 frames"),
    ({"u": None}, "no dataset has axes"),
])
def test_broken_files_are_refused_with_a_sentence(tmp_path, change, sentence):
    path = write(tmp_path / "data.h5", False, **change)
    one_sentence(ups("data", "inspect", path), sentence, "data.h5")


def test_what_holds_no_numbers_is_left_out_and_named(tmp_path):
    path = write(tmp_path / "data.h5", False, label=np.array([b"wall", b"inlet"]), mask=np.zeros(POINTS, bool))
    facts = told("data", "inspect", path)[0]
    assert facts["fields"] == ["force_x", "force_y", "mask", "u", "wall"] and "'label' (no numbers that can be read)" in facts["left_out"]


def test_a_dimension_of_netcdf_called_points_makes_no_mesh(tmp_path):
    with netCDF4.Dataset(tmp_path / "line.nc", "w") as f:
        for name, length in {"time": TIMES, "points": 40}.items():
            f.createDimension(name, length)
        f.createVariable("time", "f8", ("time",))[:] = np.arange(TIMES)
        f.createVariable("u", "f4", ("time", "points"))[:] = np.random.default_rng(0).random((TIMES, 40))
    assert told("data", "inspect", tmp_path / "line.nc")[0]["layout"] == "netcdf"


def test_a_field_with_the_name_of_a_coordinate_is_refused(tmp_path):
    path = write(tmp_path / "data.h5", True, x=np.zeros((SAMPLES, TIMES, POINTS), "f4"))
    one_sentence(ups("data", "inspect", path), "'x' is a field, but the points of each sample are fields")


# ---- configurations ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting, sentence", [
    ("tasks[0].patch=[6]", "a power of two was expected"),
    ("model.tokens=8", "set model.tokens: grid"),
    ("model.operator.core=spectral", "spectral mixing works on a regular grid"),
    ("model.operator.convolution=3", "convolution works on a regular grid"),
    ("operator.losses.spectral.weight=1", "wavenumbers are those of a grid"),
    ("operator.losses.boundary.weight=1", "its points lie anywhere"),
])
def test_what_needs_a_grid_is_refused(tmp_path, setting, sentence):
    write(tmp_path / "data.h5", False)
    config = configuration(tmp_path, "data.h5")
    settings = ["--set", setting] + (["--set", "model.dim=8"] if "tokens" in setting else [])
    one_sentence(ups("train", config, "-q", *settings), sentence, code=1)
    assert not (tmp_path / "run" / "operator.safetensors").exists()


def test_files_with_other_points_are_no_one_task(tmp_path):
    write(tmp_path / "a.h5", False)
    write(tmp_path / "b.h5", False, points=np.random.default_rng(9).random((POINTS, 2)))
    one_sentence(ups("train", configuration(tmp_path, "a.h5", files=["a.h5", "b.h5"]), "-q"), "lie elsewhere", "tasks of their own")
    shutil.copy(tmp_path / "a.h5", tmp_path / "c.h5")
    must("train", configuration(tmp_path, "a.h5", files=["a.h5", "c.h5"]), "--stage", "autoencoder", "-q")


@pytest.mark.parametrize("own", [False, True])
def test_a_configuration_is_written_for_them(tmp_path, own):
    write(tmp_path / "data.h5", own)
    must("config", "init", tmp_path / "data.h5", "-o", tmp_path / "made.yaml")
    must("config", "check", tmp_path / "made.yaml")
    must("train", tmp_path / "made.yaml", "-q", "--set", f"output={tmp_path}/made", "--set", "operator.steps=2")


@pytest.mark.parametrize("own, points, patch, core", [
    (False, 512, 1, "stack"), (False, 513, 2, "stack"), (True, 1024, 1, "stack"), (True, 1025, 2, "stack"), (True, 70000, 64, "unet"),
])
def test_it_makes_as_many_tokens_as_attention_bears(tmp_path, own, points, patch, core):
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "data.h5", "w") as f:
        f["points"] = rng.random((4, points, 2) if own else (points, 2), "f4")
        f["t"] = np.arange(3.0)
        f["u"] = rng.random((4, 3, points), "f4")
    made = told("config", "init", tmp_path / "data.h5", "-o", tmp_path / "made.yaml")
    assert made["tasks"][0]["patch"] == [patch]
    text = (tmp_path / "made.yaml").read_text()
    assert f"core: {core}\n" in text and "precision: auto\n" in text and "batch_size: 4\n" in text
    assert ("attention: window" in text) == (core == "unet")


# ---- models --------------------------------------------------------------------------------------------------------------------------


def test_the_autoencoder_keeps_every_number(run):
    facts = told("eval", run / "run")["tasks"][0]
    whole = facts["horizons"][-1]
    assert whole["reconstruction"]["nrmse"] < 1e-6
    assert whole["model"]["brmse"] is None and set(whole["model"]["frmse"].values()) == {None}
    assert whole["model"]["nrmse"] > 0


def test_a_rollout_is_in_the_order_of_the_file_and_reads_back(run, tmp_path):
    report = told("rollout", run / "run", "-o", tmp_path / "r.h5", "--png", tmp_path / "pictures", "--animate", tmp_path / "pictures")[0]
    with h5py.File(tmp_path / "r.h5") as r, h5py.File(run / "data.h5") as f:
        rows = [int(name.split("[")[1][:-1]) for name in r.attrs["ups.samples"].split(", ")]
        own = f["points"].ndim == 3
        np.testing.assert_array_equal(r["points"], f["points"][:][rows].astype("f4") if own else f["points"])
        np.testing.assert_array_equal(r["truth/u"], f["u"][:][rows])
        np.testing.assert_array_equal(r["parameters/nu"], f["parameters/nu"][:][rows])
        if not own:
            np.testing.assert_array_equal(r["cells"], f["cells"])
        np.testing.assert_allclose(r["u"][:, 0], f["u"][:][rows][:, 0], atol=2e-3)  # as the latents' FP16 keeps it
        error = np.sqrt(((r["u"][:, 1:] - r["truth/u"][:, 1:]) ** 2).mean(-1) / (r["truth/u"][:, 1:] ** 2).mean(-1)).mean(-1)
        np.testing.assert_allclose([t["nrmse"]["u"] for t in report["trajectories"]], error, rtol=1e-4)
        assert report["pictures"] == len(rows) and report["animations"] == len(rows)
    facts = told("data", "inspect", tmp_path / "r.h5")[0]
    assert facts["layout"] == "points" and facts["samples"] == len(rows) and facts["points"]["of_each_sample"] is own
    one_sentence(ups("rollout", run / "run", "-o", tmp_path / "r.nc", "-q"), "written as HDF5")
    one_sentence(ups("rollout", run / "run", "-o", tmp_path / "s.h5", "--resolution", "64", "-q"), "have no resolution")


def test_the_order_of_the_file_changes_no_prediction(run, tmp_path):
    """The same points in another order, told to the same model: the same numbers, at the same points."""
    with h5py.File(run / "data.h5") as f, h5py.File(tmp_path / "data.h5", "w") as g:
        order = np.random.default_rng(1).permutation(POINTS)
        place = np.argsort(order)
        for name in ("t", "parameters/nu"):
            g[name] = f[name][:]
        g["points"] = f["points"][:][..., order, :]
        g["u"] = f["u"][:][..., order]
        for name in ("wall", "force", "cells"):
            if name in f:
                g[name] = place[f[name][:]].astype("i4") if name == "cells" else f[name][:][..., order, :] if name == "force" else f[name][:][order]
    must("rollout", run / "run", "-o", tmp_path / "one.h5", "-q")
    must("rollout", run / "run", "-o", tmp_path / "other.h5", "-q", "--set", f"data.root={tmp_path}")
    with h5py.File(tmp_path / "one.h5") as one, h5py.File(tmp_path / "other.h5") as other:
        np.testing.assert_array_equal(one["u"][:][..., order], other["u"])


def test_files_may_have_the_same_points_in_other_orders(tmp_path):
    """A rollout's file has one order for all: that of the first trajectory's points."""
    write(tmp_path / "a.h5", False)
    order = np.random.default_rng(3).permutation(POINTS)
    with h5py.File(tmp_path / "a.h5") as f:
        change = {"points": f["points"][:][order], "u": f["u"][:][..., order], "wall": f["wall"][:][order], "force": f["force"][:][:, order], "cells": None}
    write(tmp_path / "b.h5", False, **change)
    must("train", configuration(tmp_path, "a.h5", files=["a.h5"], test_files=["b.h5"]), "-q")
    must("rollout", tmp_path / "run", "-o", tmp_path / "r.h5", "-q", "--samples", "4")
    with h5py.File(tmp_path / "r.h5") as r, h5py.File(tmp_path / "a.h5") as a:
        places = {tuple(p): i for i, p in enumerate(a["points"][:])}
        at = [places[tuple(p)] for p in r["points"][:]]
        np.testing.assert_array_equal(r["truth/wall"][:], np.broadcast_to(a["wall"][:][at], r["truth/wall"].shape))


def test_a_field_that_a_rollouts_file_has_no_place_for_is_refused_before_the_work(tmp_path):
    write(tmp_path / "data.h5", False)
    layout = {"fields": {"t": "u"}, "axes": ["sample", "time", "point"], "coordinates": {"point": "points"}}
    must("train", configuration(tmp_path, "data.h5", layout=layout), "-q")
    one_sentence(ups("rollout", tmp_path / "run", "-o", tmp_path / "r.h5", "-q"), "a field is called 't'", "another name")


def test_the_same_run_again_is_the_same_bytes(run, tmp_path):
    must("train", run / "run.yaml", "-q", "--set", f"output={tmp_path}/again")
    for name in ("autoencoder.safetensors", "operator.safetensors", "normalisation.json"):
        assert (run / "run" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_pages_show_them(run, tmp_path):
    must("report", run / "run", "-q", "-o", tmp_path / "page.html")
    must("cache", "inspect", run / "run" / "cache", "--html", tmp_path / "cache.html", "-q")
    assert "mesh" in (tmp_path / "page.html").read_text() and "mesh" in (tmp_path / "cache.html").read_text()


@pytest.mark.parametrize("bound", [0, 3])
def test_a_model_finds_where_each_samples_points_lie(tmp_path, bound):
    """What `operator.mesh.geometry` makes of latents: the middle of each token's points, and what lies between it and them, as NumPy finds both in the fields that
    the latents decode to."""
    write(tmp_path / "data.h5", True, points=np.random.default_rng(3).random((SAMPLES, POINTS, 2)) * [2, 1] + [5, -3])
    must("train", configuration(tmp_path, "data.h5"), "-q", "--set", f"model.bound={bound}")
    must("cache", "export", tmp_path / "run/cache/mesh/train", "--format", "npy", "-o", tmp_path / "z.npy")
    z = np.load(tmp_path / "z.npy")[:, 0].astype("f8")  # (sample, token, dim)
    z = bound * np.sinh(z / bound) if bound else z
    operator, autoencoder = load_file(tmp_path / "run/operator.safetensors"), load_file(tmp_path / "run/autoencoder.safetensors")
    geometry = z @ operator["operator.mesh.geometry.weight"].T.astype("f8") + operator["operator.mesh.geometry.bias"]
    places, offsets = geometry[..., :2], geometry[..., 2:].reshape(*z.shape[:2], 8, 2)
    normalised = (z @ autoencoder["decoder.mesh.patch.weight"].T.astype("f8")).reshape(*z.shape[:2], 8, 3)[..., :2]  # fields x, y, u
    with h5py.File(tmp_path / "data.h5") as f:
        deviation = f["points"][:].reshape(-1, 2).std(0)
    coordinates = normalised * deviation / deviation.max() / np.sqrt(12)  # of an even distribution along x: from −½ to ½
    middle = coordinates.mean(-2)
    np.testing.assert_allclose(places, middle + 0.5, atol=0.02)  # the training split has another deviation than all samples
    assert -0.05 < places[..., 0].min() < 0.1 and 0.9 < places[..., 0].max() < 1.05 and 0.2 < places[..., 1].min() and places[..., 1].max() < 0.8
    ratio = offsets / (coordinates - middle[..., None, :])
    assert np.median(np.abs(ratio / np.median(ratio) - 1)) < 0.02  # both axes have one unit
    np.testing.assert_allclose((offsets**2).mean(), 1, rtol=0.05)


def test_points_of_each_sample_are_learnt(tmp_path):
    """A pulse that moves at one speed, seen at other points in each sample: without where these lie nothing could be learnt."""
    rng = np.random.default_rng(4)
    t, points, centre = np.linspace(0, 0.3, TIMES), rng.random((60, POINTS, 2)), 0.2 + 0.3 * rng.random((60, 1, 1, 2))
    at = points[:, None] - centre - t[:, None, None] * [1.0, 0.5]
    with h5py.File(tmp_path / "data.h5", "w") as f:
        f["points"], f["t"], f["u"] = points, t, np.exp(-(at**2).sum(-1) / 0.03).astype("f4")
    config = configuration(tmp_path, "data.h5", patch=[2])
    more = {"operator.steps": 400, "operator.optimizer.learning_rate": 0.003, "model.operator.hidden": 32, "model.operator.depth": 2}
    must("train", config, "-q", *(word for key, value in more.items() for word in ("--set", f"{key}={value}")))
    whole = told("eval", tmp_path / "run")["tasks"][0]["horizons"][-1]
    assert whole["model"]["nrmse"] < 0.2 * whole["persistence"]["nrmse"], whole
