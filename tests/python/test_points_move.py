"""Points that move: their coordinates are fields that change in time, rollouts predict where they go, and pictures show values there."""

import json

import h5py
import netCDF4
import numpy as np
import pytest
import yaml
import zarr

from commands import dump, must, one_sentence, told, ups
from test_points import configuration, save

SAMPLES, TIMES, POINTS = 40, 9, 90


def write(path, samples=SAMPLES, seed=0, **change):
    """Particles that a vortex carries around the middle of the square, the faster the nearer, and cool down on the way."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 0.8, TIMES)
    first = rng.random((samples, POINTS, 2)) - 0.5
    heat = np.exp(-((first - 0.3 * (rng.random((samples, 1, 2)) - 0.5)) ** 2).sum(-1) / 0.1)
    radius = np.linalg.norm(first, axis=-1)
    turn = np.exp(-4 * radius**2)[:, None] * t[None, :, None] + np.arctan2(first[..., 1], first[..., 0])[:, None]
    points = radius[:, None, :, None] * np.stack([np.cos(turn), np.sin(turn)], -1) + [3.0, 1.0]
    data = {"points": points.astype("f4"), "t": t, "T": (heat[:, None] * np.exp(-t[:, None])).astype("f4")} | change
    return save(path, data)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("move")
    write(folder / "data.h5")
    config = configuration(folder, "data.h5", patch=[2])
    more = {"operator.steps": 400, "operator.optimizer.learning_rate": 0.003, "model.operator.hidden": 32, "model.operator.depth": 2}
    must("train", config, "-q", *(word for key, value in more.items() for word in ("--set", f"{key}={value}")))
    must("rollout", folder / "run", "-o", folder / "r.h5", "-q", "--png", folder / "pictures", "--animate", folder / "pictures")
    return folder


def rows(r):
    return [int(name.split("[")[1][:-1]) for name in r.attrs["ups.samples"].split(", ")]


@pytest.mark.parametrize("layout", ["contiguous", "chunked"])
def test_fields_are_those_of_h5py_in_the_order_of_the_file(tmp_path, layout):
    path = write(tmp_path / "data.h5", points=None)
    with h5py.File(write(tmp_path / "plain.h5")) as plain, h5py.File(path, "r+") as f:
        f.create_dataset("points", data=plain["points"], **({"chunks": (7, 2, 30, 2), "compression": "gzip"} if layout == "chunked" else {}))
    facts = told("data", "inspect", path)[0]
    assert facts["fields"] == ["x", "y", "T"] and facts["points"]["moving"] is True and facts["points"]["count"] == POINTS
    assert "90, which move, other ones in each sample" in must("data", "inspect", path).stdout
    with h5py.File(path) as f:
        box = f["points"][0, 0]
        np.testing.assert_allclose(facts["points"]["box"]["x"], [box[:, 0].min(), box[:, 0].max()], rtol=1e-6)
        for i in (0, SAMPLES - 1):
            np.testing.assert_array_equal(dump(path, i), np.concatenate([np.moveaxis(f["points"][i], -1, 1), f["T"][i][:, None]], 1))


def mapped(array, axes, **more):
    """A mapping whose points are fields of these axes."""
    place = {"array": array, "axes": axes}
    return {"fields": {"x": place | {"channel": 0}, "y": place | {"channel": 1}} | more, "coordinates": {"point": array}}


@pytest.mark.parametrize("axes", ["sample time point channel", "time sample point channel", "sample channel time point", "point sample time _ channel"])
@pytest.mark.parametrize("format", ["hdf5", "gzip", "netcdf", "npz", "zarr"])
def test_a_mapping_says_that_points_move_by_an_axis_of_time(tmp_path, format, axes):
    own = write(tmp_path / "own.h5", samples=5)
    axes = axes.split()
    with h5py.File(own) as f:
        points, t, heat = f["points"][:], f["t"][:], f["T"][:]
    named = [axis for axis in axes if axis != "_"]
    positions = np.transpose(points, [["sample", "time", "point", "channel"].index(axis) for axis in named])
    if "_" in axes:
        positions = np.expand_dims(positions, axes.index("_"))
    arrays, path = {"pos": np.ascontiguousarray(positions), "t": t, "T": heat}, tmp_path / f"mine.{format}"
    if format in ("hdf5", "gzip"):
        with h5py.File(path, "w") as f:
            for name, array in arrays.items():
                f.create_dataset(name, data=array, **({"chunks": tuple(max(1, n // 2) for n in array.shape), "compression": "gzip"} if format == "gzip" else {}))
    elif format == "netcdf":
        with netCDF4.Dataset(path, "w") as f:
            for name, array in arrays.items():
                dims = [f"{name}{axis}" for axis in range(array.ndim)]
                for dim, length in zip(dims, array.shape):
                    f.createDimension(dim, length)
                f.createVariable(name, array.dtype, dims)[:] = array
    elif format == "npz":
        np.savez(path, **arrays)
    else:
        group = zarr.open_group(str(path), mode="w", zarr_format=3)
        for name, array in arrays.items():
            group.create_array(name, data=array, chunks=tuple(max(1, n // 2) for n in array.shape))
    layout = json.dumps(mapped("pos", axes, T="T") | {"axes": ["sample", "time", "point"], "time": "t"})
    facts, wanted = told("data", "inspect", path, "--layout", layout)[0], told("data", "inspect", own)[0]
    assert facts["points"] == wanted["points"] and facts["points"]["moving"] is True and facts["fields"] == ["x", "y", "T"]
    for sample in (0, 4):
        np.testing.assert_array_equal(dump(path, sample, "threads", "--layout", layout), dump(own, sample))


def test_files_of_a_trajectory_each_and_particles_that_all_samples_share(tmp_path):
    """Trained on as one task; and positions without an axis of samples stand for each of them."""
    own = write(tmp_path / "own.h5")
    with h5py.File(own) as f:
        points, t, heat = f["points"][:], f["t"][:], f["T"][:]
    for i in range(SAMPLES):
        np.savez(tmp_path / f"run{i:02}.npz", pos=points[i], t=t, T=heat[i])
    layout = mapped("pos", ["time", "point", "channel"], T="T") | {"axes": ["time", "point"], "time": "t"}
    assert told("data", "inspect", tmp_path / "run07.npz", "--layout", json.dumps(layout))[0]["points"]["moving"] is True
    np.testing.assert_array_equal(dump(tmp_path / "run07.npz", 0, "threads", "--layout", json.dumps(layout)), dump(own, 7))
    must("train", configuration(tmp_path, "run*.npz", layout=layout), "-q")
    must("rollout", tmp_path / "run", "-o", tmp_path / "r.h5", "-q", "--png", tmp_path / "pictures")
    with h5py.File(tmp_path / "r.h5") as r:
        assert r["truth/points"].shape[1:] == (TIMES, POINTS, 2) and any(np.array_equal(r["truth/points"][0], each) for each in points)
    np.savez(tmp_path / "shared.npz", pos=points[3], t=t, T=heat[:2])
    layout["axes"] = ["sample", "time", "point"]
    assert told("data", "inspect", tmp_path / "shared.npz", "--layout", json.dumps(layout))[0]["samples"] == 2
    for i in range(2):
        found = dump(tmp_path / "shared.npz", i, "threads", "--layout", json.dumps(layout))
        np.testing.assert_array_equal(found, np.concatenate([np.moveaxis(points[3], -1, 1), heat[i][:, None]], 1))


@pytest.mark.parametrize("change, sentence", [
    (lambda layout: layout["fields"].pop("x"), "points move, so that a model has to be told where they lie: name their coordinates in layout.fields, too: "
     r"x: \{array: pos, channel: 0, axes: \[sample, time, point, channel\]\}"),
    (lambda layout: layout["fields"].pop("y"), r"too: y: \{array: pos, channel: 1, axes: \[sample, time, point, channel\]\}"),
    (lambda layout: layout["fields"]["y"].update(axes=["sample", "time", "channel", "point"]), "positions of one array have the same|has 90 entries along its axis channel|along its axis"),
    (lambda layout: layout["fields"]["y"].update(scale=0.1), "layout.fields.y tells where points lie, which scale, offset and missing do not change"),
    (lambda layout: layout.update(segment=3), "points that move cannot be cut into segments"),
])
def test_mappings_that_do_not_tell_where_points_go_are_refused(tmp_path, change, sentence):
    write(tmp_path / "own.h5", samples=12)
    with h5py.File(tmp_path / "own.h5") as f:
        np.savez(tmp_path / "mine.npz", pos=f["points"][:], T=f["T"][:])
    layout = mapped("pos", ["sample", "time", "point", "channel"], T="T") | {"axes": ["sample", "time", "point"]}
    change(layout)
    segment = layout.pop("segment", 0)
    config = configuration(tmp_path, "mine.npz", layout=layout, **({"segment": segment} if segment else {}))
    one_sentence(ups("train", config, "-q", "--plan"), sentence, "mine.npz")


@pytest.mark.parametrize("arrays", [
    {"pos": (20, 7, 30, 2), "heat": (20, 7, 30)},  # they move, each sample's own
    {"mesh_pos": (7, 30, 2), "velocity": (7, 30, 2), "pressure": (7, 30)},  # one trajectory a file; a field without the other's channels
    {"positions": (20, 30, 3), "heat": (20, 7, 30), "k": (20,)},  # each sample's own, at rest
    {"nodes": (30, 2), "flow/u": (20, 7, 30), "wall": (20, 30)},  # shared, and a field that does not change
    {"pos": (20, 7, 30, 2)},  # positions alone
], ids=lambda arrays: " ".join(arrays))
def test_a_suggestion_for_points_is_trained_on_as_it_stands(tmp_path, arrays):
    rng = np.random.default_rng(3)
    places = next(iter(arrays))
    with h5py.File(tmp_path / "mine.h5", "w") as f:
        for name, shape in arrays.items():
            f[name] = rng.random(shape, dtype="f4")
    single = "pressure" in arrays
    for i in range(20 if single else 0):
        with h5py.File(tmp_path / f"mine{i}.h5", "w") as f:
            for name, shape in arrays.items():
                f[name] = rng.random(shape, dtype="f4")
    text = must("data", "inspect", "--suggest", tmp_path / "mine.h5").stdout
    task = yaml.safe_load(text)["tasks"][0]
    assert task["layout"]["coordinates"] == {"point": f"/{places}"} and "not used" not in text, text
    own = arrays[places][:-2] != () or single
    assert ("x" in task["layout"]["fields"]) is own and task["patch"] == [1 if own else 8], text
    facts = told("data", "inspect", tmp_path / "mine.h5", "--layout", json.dumps(task["layout"]))[0]
    assert facts["points"]["moving"] is (len(arrays[places]) == 4 or single) and facts["points"]["count"] == 30
    channels = sum(shape[-1] if name in (places, "velocity") else 1 for name, shape in arrays.items() if name != "k") - (0 if own else 2)
    assert len(facts["fields"]) == channels and facts.get("parameters", {}).keys() == {"k"} & arrays.keys()
    files = {"files": ["mine?*.h5"]} if single else {}
    must("train", configuration(tmp_path, "mine.h5", **{key: task[key] for key in ("layout", "patch")} | files), "-q")


@pytest.mark.parametrize("arrays", [
    {"u": (9, 12, 16), "coords": (12, 16, 2)},
    {"u": (50, 32, 32), "coords": (32, 2)},  # x and y of a square grid
    {"u": (32, 32, 32, 2), "coords": (32, 32, 2)},  # as many frames as rows
    {"u": (16, 16, 24), "coords": (16, 24, 2)},
    {"u": (50, 31, 15), "vertices": (32, 16, 2)},  # values in cells of a grid that its corners tell
    {"u": (50, 16, 32, 2), "coords": (32, 16, 2)},
    {"u": (20, 10, 32, 32), "pos": (5, 2), "sensor": (20, 10, 5)},  # stations beside a grid
    {"cell_u": (20, 7, 25), "points": (20, 7, 36, 2)},
    {"u": (7, 30), "pos": (8, 30, 2)},  # a frame more
], ids=str)
def test_positions_beside_a_grid_are_no_points(tmp_path, arrays):
    np.savez(tmp_path / "grid.npz", **{name: np.zeros(shape, "f4") for name, shape in arrays.items()})
    text = must("data", "inspect", "--suggest", tmp_path / "grid.npz").stdout
    assert "point" not in yaml.safe_load(text)["tasks"][0]["layout"]["axes"], text


@pytest.mark.parametrize("arrays", [
    {"u": ("time", "lat", "lon"), "nodes": ("lon", "two")}, {"u": ("time", "y", "x"), "coords": ("x", "two")},
    {"u": ("time", "level", "node"), "coords": ("node", "two")}, {"u": ("time", "a", "b"), "coords": ("b", "two")}], ids=str)
def test_dimensions_that_a_file_names_are_kept(tmp_path, arrays):
    sizes = {"time": 7, "lat": 10, "lon": 12, "x": 12, "y": 10, "two": 2, "node": 12, "level": 10, "a": 10, "b": 12}
    with netCDF4.Dataset(tmp_path / "named.nc", "w") as f:
        for dim in {dim for dims in arrays.values() for dim in dims}:
            f.createDimension(dim, sizes[dim])
        for name, dims in arrays.items():
            f.createVariable(name, "f4", dims)[:] = 0
    task = yaml.safe_load(must("data", "inspect", "--suggest", tmp_path / "named.nc").stdout)["tasks"][0]
    assert task["layout"]["axes"] == list(arrays["u"])


def test_what_stands_beside_points_is_told_apart(tmp_path):
    """Masses do not change; positions are no parameters of as many samples; a field `x` gets another name."""
    def suggested(**arrays):
        with h5py.File(tmp_path / "mine.h5", "w") as f:
            for name, shape in arrays.items():
                f[name] = np.random.default_rng(1).random(shape, dtype="f4")
        text = must("data", "inspect", "--suggest", tmp_path / "mine.h5").stdout
        layout = yaml.safe_load(text)["tasks"][0]["layout"]
        return layout, told("data", "inspect", tmp_path / "mine.h5", "--layout", json.dumps(layout))[0]

    layout, facts = suggested(pos=(20, 7, 30, 2), mass=(20, 30))
    assert facts["points"]["moving"] is True and facts["fields"] == ["x", "y"]
    layout, facts = suggested(pos=(30, 2), u=(30, 7, 30))
    assert "parameters" not in layout and facts["fields"] == ["u"]
    layout, facts = suggested(pos=(20, 30, 2), x=(20, 7, 30), u=(20, 7, 30))
    assert facts["fields"][:2] == ["x", "y"] and sorted(facts["fields"][2:]) == ["u", "x_field"]


def test_positions_alone_are_enough(tmp_path):
    path = write(tmp_path / "data.h5", T=None)
    assert told("data", "inspect", path)[0]["fields"] == ["x", "y"]
    must("train", configuration(tmp_path, "data.h5"), "-q")
    must("rollout", tmp_path / "run", "-o", tmp_path / "r.h5", "-q")
    with h5py.File(tmp_path / "r.h5") as r:
        assert set(r) == {"points", "t", "truth"} and set(r["truth"]) == {"points"}


@pytest.mark.parametrize("change, sentence", [
    ({"points": np.zeros((2, 3, 4, 5, 2), "f4")}, "'points' has rank 5"),
    ({"points": np.full((SAMPLES, TIMES, POINTS, 2), np.nan, "f4")}, "'points' has no number at point 0"),
    ({"points": np.zeros((SAMPLES, TIMES, POINTS, 4), "f4")}, r"'points' has shape \(40, 9, 90, 4\); .* with 1 to 3 coordinates"),
    ({"count": np.full((SAMPLES, TIMES), 30)}, r"'count' has shape \(40, 9\), where fields have 40 samples"),
    ({"count": np.full((SAMPLES, 1), 30)}, r"'count' has shape \(40, 1\), where fields have 40 samples"),
    ({"t": np.arange(5.0)}, r"'t' has shape \(5\) where fields have 40 samples of 9 frames"),
    ({"x": np.zeros((SAMPLES, TIMES, POINTS), "f4")}, "'x' is a field, but the points of each sample are fields"),
])
def test_broken_files_are_refused_with_a_sentence(tmp_path, change, sentence):
    one_sentence(ups("data", "inspect", write(tmp_path / "data.h5", **change)), sentence, "data.h5")


def test_a_point_that_is_lost_on_the_way_makes_a_bad_sample(tmp_path):
    path = write(tmp_path / "data.h5")
    with h5py.File(path, "r+") as f:
        f["points"][4, 5, 6] = np.nan
    done = ups("train", configuration(tmp_path, "data.h5"), "-q", "--stage", "autoencoder")
    one_sentence(done, r"sample\[4\]", code=done.returncode)


def test_rollouts_say_where_points_go(run):
    with h5py.File(run / "r.h5") as r, h5py.File(run / "data.h5") as f:
        of = rows(r)
        np.testing.assert_array_equal(r["truth/points"], f["points"][:][of])
        np.testing.assert_array_equal(r["truth/T"], f["T"][:][of])
        assert r["points"].shape == r["truth/points"].shape
        np.testing.assert_allclose(r["points"][:, 0], f["points"][:][of][:, 0], atol=2e-3)
        error = np.abs(r["points"][:, -1] - r["truth/points"][:, -1]).mean()
        moved = np.abs(r["truth/points"][:, -1] - r["truth/points"][:, 0]).mean()
        assert error < 0.3 * moved, (error, moved)
    assert told("data", "inspect", run / "r.h5")[0]["points"]["moving"] is True
    whole = told("eval", run / "run")["tasks"][0]["horizons"][-1]
    assert whole["reconstruction"]["nrmse"] < 1e-6 and whole["model"]["nrmse"] < 0.5 * whole["persistence"]["nrmse"]


def test_pictures_are_drawn(run):
    with h5py.File(run / "r.h5") as r:
        count = len(rows(r))
    assert len(list((run / "pictures").glob("*.png"))) >= count
    must("report", run / "run", "-q", "-o", run / "page.html")
    must("cache", "inspect", run / "run" / "cache", "--html", run / "cache.html", "-q")


@pytest.mark.parametrize("first", ["still.h5", "moving.h5"])
def test_a_task_may_have_points_that_move_and_points_that_stay(tmp_path, first):
    """Rollouts of both say where each is in every frame."""
    path = write(tmp_path / "moving.h5", samples=6)
    with h5py.File(path) as f, h5py.File(tmp_path / "still.h5", "w") as still:
        still["points"], still["t"], still["T"] = f["points"][:, 0], f["t"][:], f["T"][:]
    files = [first, *({"still.h5", "moving.h5"} - {first})]
    must("train", configuration(tmp_path, "", files=files, patch=[2]), "-q", "--set", "data.split.by=sample")
    must("rollout", tmp_path / "run", "-o", tmp_path / "r.h5", "-q", "--split", "train", "-n", "9", "--png", tmp_path / "pictures")
    moved = []
    with h5py.File(tmp_path / "r.h5") as r:
        for i, name in enumerate(r.attrs["ups.samples"].split(", ")):
            sample = int(name.split("[")[1][:-1])
            moved.append(np.abs(r["truth/points"][i, -1] - r["truth/points"][i, 0]).max() > 0)
            with h5py.File(tmp_path / ("moving.h5" if moved[-1] else "still.h5")) as f:
                expected = f["points"][sample] if moved[-1] else np.repeat(f["points"][sample][None], TIMES, 0)
                np.testing.assert_array_equal(r["truth/points"][i], expected)
    assert {False, True} == set(moved)


@pytest.mark.parametrize("dims, count", [(1, None), (3, 60)])
def test_they_move_in_any_number_of_dimensions(tmp_path, dims, count):
    """With fewer points than there is room for, too, and pictures of what leaves the data's box."""
    rng = np.random.default_rng(dims)
    t, first = np.linspace(0, 0.5, TIMES), rng.random((12, 70, dims))
    points = first[:, None] + t[None, :, None, None] * (first[:, None] - 0.5)
    counts = rng.integers(count, 71, 12) if count else np.full(12, 70)
    for i in range(12):
        points[i, :, counts[i]:] = np.nan
    with h5py.File(tmp_path / "data.h5", "w") as f:
        f["points"], f["t"] = points.astype("f4"), t
        if count:
            f["count"] = counts
    must("train", configuration(tmp_path, "data.h5", patch=[2]), "-q", "--set", "data.residency=encode")
    must("rollout", tmp_path / "run", "-o", tmp_path / "r.h5", "-q", "--steps", "20", "--png", tmp_path / "pictures", "--animate", tmp_path / "pictures")
    with h5py.File(tmp_path / "r.h5") as r:
        for i, sample in enumerate(rows(r)):
            np.testing.assert_array_equal(r["truth/points"][i, :, :counts[sample]], points[sample, :, :counts[sample]].astype("f4"))
        assert np.isfinite(r["points"][:]).all() and r["points"].shape[1:] == (21, 70, dims)
