"""Data of a user's own: files as people write them with h5py, NumPy, netCDF4 and zarr-python, none in a layout that UPS knows. What
`ups data inspect --suggest` prints is trained on as it stands, and `ups data dump` gives the bits that those libraries read."""

import io
import json
import os
import struct
import tempfile
import zipfile
from pathlib import Path

import h5py
import netCDF4
import numcodecs
import numpy as np
import pytest
import yaml
import zarr
from PIL import Image

from commands import UPS, dump, must, one_sentence, run, same, ups

SAMPLES, TIMES = 6, 9


def waves(shape, seed=0):
    """Smooth along every axis, other from sample to sample, and a little noise that no compressor removes."""
    rng = np.random.default_rng(seed)
    field = np.zeros(shape)
    for axis, length in enumerate(shape):
        line = np.sin(np.linspace(0, 2 + axis + rng.random(), length) * 3)
        field = field + line.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return (field + 0.01 * rng.standard_normal(shape)).astype("f4")


def native(values):
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))


# ---- the files: each writes into a folder, and gives the names and what a sample is: (time, channel, grid…) -----------------------------


def h5py_ntxy(folder):
    """One dataset u (N, T, X, Y), chunked and compressed as h5py does when asked to."""
    u = waves((SAMPLES, TIMES, 16, 12))
    with h5py.File(folder / "flow.h5", "w") as f:
        f.create_dataset("u", data=u, compression="gzip", shuffle=True)
        f["t"], f["x"], f["y"] = np.linspace(0, 1, TIMES), np.linspace(0, 1, 16), np.linspace(0, 2, 12)
        f.attrs["viscosity"] = 0.02
    return ["flow.h5"], lambda i: u[i][:, None], {"viscosity": 0.02}


def two_datasets_tncx(folder):
    """(T, N, C, X) in two datasets of other numbers of channels; samples lie far apart in the file."""
    with h5py.File(folder / "two.h5", "w") as f:
        f["state/velocity"], f["state/tracers"] = waves((TIMES, SAMPLES, 2, 32), 1), waves((TIMES, SAMPLES, 3, 32), 2).astype("f8")
        f["time"] = np.arange(TIMES) * 0.5
        velocity, tracers = f["state/velocity"][:], f["state/tracers"][:]
    # the suggestion begins with the larger one
    return ["two.h5"], lambda i: np.concatenate([tracers[:, i], velocity[:, i].astype("f8")], axis=1), {}


def npz(folder):
    """numpy.savez_compressed, with a parameter for each sample."""
    u, nu = waves((SAMPLES, TIMES, 24)), np.linspace(0.1, 0.6, SAMPLES)
    np.savez_compressed(folder / "runs.npz", u=u, t=np.arange(TIMES) * 0.1, nu=nu)
    return ["runs.npz"], lambda i: u[i][:, None], {"nu": [0.1, 0.6]}


def npz_stored(folder):
    """numpy.savez of two fields in Fortran order."""
    a, b = (np.asfortranarray(waves((SAMPLES, TIMES, 16, 16), s)) for s in (1, 2))
    np.savez(folder / "plain.npz", a=a, b=b)
    return ["plain.npz"], lambda i: np.stack([a[i], b[i]], axis=1), {}


def xarray_netcdf(folder):
    """As xarray.Dataset.to_netcdf writes it: named dimensions, coordinates, a packed variable; samples last."""
    with netCDF4.Dataset(folder / "ensemble.nc", "w") as f:
        for name, length in {"time": TIMES, "x": 20, "run": SAMPLES}.items():
            f.createDimension(name, length)
        f.createVariable("time", "f8", ("time",))[:] = np.arange(TIMES) * 2.0
        f.createVariable("x", "f8", ("x",))[:] = np.linspace(-1, 1, 20)
        w = f.createVariable("w", "i2", ("time", "x", "run"), fill_value=-32768, zlib=True)
        w.scale_factor, w.add_offset = np.float64(0.001), np.float64(1.0)
        w[:] = waves((TIMES, 20, SAMPLES))
        values = f["w"][:].filled(np.nan).astype("f4")
    return ["ensemble.nc"], lambda i: values[:, :, i][:, None], {}


def xarray_like_zarr(folder, version):
    """As xarray.Dataset.to_zarr writes it: dimensions by name, coordinates as arrays, chunks that end beyond the edges."""
    u, name = waves((SAMPLES, TIMES, 18, 10), version), f"v{version}.zarr"
    group = zarr.open_group(folder / name, mode="w", zarr_format=version, attributes={"Re": 100})
    for array, values, dimensions, chunks in (("u", u, ["sample", "time", "y", "x"], (2, 4, 7, 10)),
                                              ("time", np.arange(TIMES) * 0.25, ["time"], (TIMES,)),
                                              ("y", np.linspace(0, 1, 18), ["y"], (18,)), ("x", np.linspace(0, 1, 10), ["x"], (10,))):
        names = {"dimension_names": dimensions} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": dimensions}}
        group.create_array(array, shape=values.shape, dtype=values.dtype, chunks=chunks, **names)[:] = values
    read = zarr.open_group(folder / name, mode="r")["u"][:]
    return [name], lambda i: read[i][:, None], {"Re": 100}


def one_file_a_trajectory(folder):
    """200 files of one trajectory each, parameters in attributes."""
    values = [waves((TIMES, 16), i) for i in range(200)]
    for i, u in enumerate(values):
        with h5py.File(folder / f"run_{i:03}.h5", "w") as f:
            f["u"], f["t"] = u, np.arange(TIMES) * 0.1
            f.attrs["c"] = 1 + i / 100
    return [f"run_{i:03}.h5" for i in range(200)], lambda i: values[i][:, None], {"c": [1, 2.99]}


def time_in_an_attribute(folder):
    """The step in an attribute of the file, and no coordinates."""
    u = waves((SAMPLES, TIMES, 16, 16))
    with h5py.File(folder / "attribute.h5", "w") as f:
        f["vorticity"] = u
        f.attrs["dt"] = 0.05
    return ["attribute.h5"], lambda i: u[i][:, None], {}


def float16(folder):
    u = waves((SAMPLES, TIMES, 32)).astype("f2")
    with h5py.File(folder / "half.h5", "w") as f:
        f.create_dataset("u", data=u, chunks=(2, 4, 32), compression="gzip", shuffle=True)
    return ["half.h5"], lambda i: u[i].astype("f4")[:, None], {}


def big_endian(folder):
    """A bare .npy of big-endian doubles, as another machine wrote it; channels last."""
    u = waves((SAMPLES, TIMES, 16, 16, 2)).astype(">f8")
    np.save(folder / "vectors.npy", u)
    return ["vectors.npy"], lambda i: native(u[i]), {}


def integers_with_a_scale(folder):
    counts = np.round(waves((SAMPLES, TIMES, 24)) * 1000).astype(">i2")
    with h5py.File(folder / "counts.h5", "w") as f:
        f["depth"] = counts
        f["depth"].attrs["scale_factor"], f["depth"].attrs["add_offset"] = 0.001, 5.0
    return ["counts.h5"], lambda i: (counts[i].astype("f8") * 0.001 + 5.0).astype("f4")[:, None], {}


def lat_lon(folder):
    """A year of a planet in classic NetCDF: one trajectory, an unlimited time, (lat, lon)."""
    with netCDF4.Dataset(folder / "year_0.nc", "w", format="NETCDF3_64BIT_OFFSET") as f:
        for name, length in {"time": None, "lat": 12, "lon": 24}.items():
            f.createDimension(name, length)
        f.createVariable("time", "f8", ("time",))[:] = np.arange(TIMES)
        f.createVariable("lat", "f4", ("lat",))[:] = np.linspace(-80, 80, 12)
        f.createVariable("lon", "f4", ("lon",))[:] = np.arange(24) * 15
        for s, name in enumerate(("t2m", "sp")):
            f.createVariable(name, "f4", ("time", "lat", "lon"))[:] = waves((TIMES, 12, 24), s)
        first = np.stack([f["t2m"][:].filled(), f["sp"][:].filled()], axis=1)
    for year in range(1, 4):
        Path(folder, f"year_{year}.nc").write_bytes(Path(folder, "year_0.nc").read_bytes())
    return [f"year_{year}.nc" for year in range(4)], lambda i: first, {}


def five_channels_3d(folder):
    """A field of 5 channels on a grid of three axes, sharded Zarr."""
    u = waves((SAMPLES, TIMES, 5, 8, 8, 8))
    array = zarr.create_array(folder / "cube.zarr", shape=u.shape, dtype="f4", chunks=(1, 3, 5, 4, 8, 8), shards=(2, 9, 5, 8, 8, 8))
    array[:] = u
    read = array[:]
    return ["cube.zarr"], lambda i: read[i], {}


def train_and_test_groups(folder):
    """Groups train and test, as scripts for PyTorch save them, with a table of parameters, and an array that is none of these."""
    u, table = waves((SAMPLES, TIMES, 24)), np.random.default_rng(3).random((SAMPLES, 2))
    with h5py.File(folder / "split.h5", "w") as f:
        f["train/u"], f["train/params"], f["test/u"], f["test/params"] = u, table, u[:2] + 1, table[:2] + 1
        f["train/noise"] = np.ones(5)
    return ["split.h5"], lambda i: u[i][:, None], {f"params{c}": [table[:, c].min(), table[:, c].max()] for c in (0, 1)}


FILES = {"h5py u (N, T, X, Y)": h5py_ntxy, "groups train and test": train_and_test_groups, "(T, N, C, X) in two datasets": two_datasets_tncx, "compressed NPZ": npz, "NPZ in Fortran order": npz_stored,
         "xarray-like NetCDF": xarray_netcdf, "xarray-like Zarr v2": lambda folder: xarray_like_zarr(folder, 2),
         "xarray-like Zarr v3": lambda folder: xarray_like_zarr(folder, 3), "200 files, one trajectory each": one_file_a_trajectory,
         "time in an attribute": time_in_an_attribute, "float16": float16, "big-endian NPY, channels last": big_endian,
         "integers with a scale": integers_with_a_scale, "(lat, lon)": lat_lon, "3D, 5 channels, Zarr shards": five_channels_3d}

TINY = """
output: run
precision: f32
device: {threads: 1}
data: {decode_threads: 1}
model:
  tokens: 4
  dim: 8
  encoder: {width: 8, frequencies: [1, 2]}
  decoder: {hidden: 8, depth: 1, heads: 2, frequencies: [1, 2]}
  operator: {hidden: 8, depth: 1, heads: 2}
autoencoder: {steps: 3, batch_size: 2, queries: 8, validation_batches: 1, gate: 0}
operator: {steps: 3, batch_size: 2, validation_batches: 1}
"""


def dumped(folder, path, layout, sample=0):
    output = os.path.join(folder, "dump.npy")
    done = ups("data", "dump", os.path.join(folder, path), "--layout", layout, "--sample", sample, "--force", "-o", output)
    return np.load(output) if done.returncode == 0 else done.stderr.strip()


def inspected(folder, paths, layout):
    done = must("data", "inspect", "--json", "--together", "--layout", layout, *(os.path.join(folder, path) for path in paths))
    return json.loads(done.stdout)[0]


def need(*libraries):
    """Skips a test where this build is without a library."""
    findings = {finding["topic"]: finding for finding in json.loads(ups("doctor", "--json").stdout)["findings"]}
    for library in libraries:
        if findings[library]["level"] != "ok":
            pytest.skip(f"this build is without {library}")


@pytest.mark.parametrize("name", FILES)
def test_a_suggestion_is_trained_on_as_it_stands_and_dumps_what_others_read(scratch, name):
    need(*(["Blosc"] if name == "xarray-like Zarr v2" else []))  # as zarr-python compresses by itself
    paths, expected, parameters = FILES[name](Path(scratch))
    suggestion = run(UPS, "data", "inspect", "--suggest", *paths, cwd=scratch)
    assert suggestion.returncode == 0, suggestion.stderr
    task = yaml.safe_load(suggestion.stdout)["tasks"][0]
    assert task["files"] == paths
    layout = json.dumps(task["layout"])

    facts = inspected(scratch, paths, layout)
    count, of_one_file = facts["samples"], facts["samples"] // len(paths)
    assert facts["layout"] == "mapped" and count == (len(paths) if of_one_file == 1 else SAMPLES)
    for key, wanted in parameters.items():
        assert facts["parameters"][key] == pytest.approx(wanted if isinstance(wanted, list) else [wanted, wanted]), suggestion.stdout
    for sample in {0, count // 2, count - 1}:
        found = dumped(scratch, paths[sample // of_one_file], layout, sample % of_one_file)
        assert same(found, native(expected(sample))), (found if isinstance(found, str) else (found.dtype, found.shape), suggestion.stdout)

    Path(scratch, "run.yaml").write_text(suggestion.stdout + TINY)
    done = run(UPS, "train", "run.yaml", "--quiet", cwd=scratch)
    assert done.returncode == 0, done.stderr
    assert Path(scratch, "run/operator.safetensors").exists()


# ---- what is not read by guessing: mistakes are answered with the file, the key and what would be right ---------------------------------

U = "{fields: {u: /u}, axes: [sample, time, x, y]%s}"

MISTAKES = {
    "{axes: [time, x]}": r"--layout\.fields: the key is missing; .*was expected",
    "{fields: {u: /u}}": r"--layout\.axes: the key is missing; .*\[sample, time, x, y\]",
    "{fields: {u: /u}, axis: [time, x]}": r"axis: there is no such key; did you mean 'axes'",
    "{fields: {u: /u}, axes: [sample, x, y]}": r"--layout\.fields: layout\.axes names no axis time\..*solution: true\}, and has other fields",
    "{fields: {u: {array: /u, solution: true}}, axes: [sample, x, y]}": r"names no axis time\..*a field that it is sought from as well",
    "{fields: {u: {array: /u, solution: 3}, p: /p}, axes: [sample, x, y]}": r"fields\.u\.solution: '3' stands here; true or false was expected",
    "{fields: {u: {array: /u, solution: true}}, axes: [sample, time, x, y]}": r"u is said to be a solution, .*layout\.axes names time",
    "{fields: {u: {array: /u, solution: true}, p: {array: /p, axes: [sample, time, x, y]}}, axes: [sample, x, y]}": r"fields\.p: it has an axis time",
    "{fields: {u: {array: /u, solution: true}, p: /p}, axes: [sample, x, y], time: {dt: 1}}": r"layout\.time: .*a steady problem has no times",
    "{fields: {u: /u}, axes: [sample, time]}": r"--layout\.axes: none is an axis of the grid",
    "{fields: {u: /u}, axes: [time, a, b, c, d]}": r"'d' would be a fourth axis of the grid",
    "{fields: {u: /u}, axes: [time, x, x]}": r"--layout\.axes: 'x' stands there twice",
    "{fields: {u: /u}, axes: [sample, time, x]}": r"flow\.h5: 'u' has the shape \(4, 3, 6, 5\), but layout\.fields\.u names 3 axes",
    "{fields: {u: /w}, axes: [sample, time, x, y]}": r"layout\.fields\.u: .*flow\.h5 holds no array 'w'; it holds .*'u' \(4, 3, 6, 5\) float32",
    "{fields: {u: /u, p: /p}, axes: [sample, time, x, y]}": r"flow\.h5: 'p' \(4, 3, 7, 5\) has 7 entries along its axis x, where 'u' has 6",
    "{fields: {u: {array: /u, chanel: 1}}, axes: [sample, time, x, y]}": r"fields\.u\.chanel: there is no such key; did you mean 'channel'",
    "{fields: {u: {array: /u, unit: m}}, axes: [sample, time, x, y]}": r"fields\.u\.unit: there is no such key; the keys here are array, channel",
    "{fields: {u: 0}, axes: [sample, time, x, y]}": r"fields\.u: it is a channel of an array, but no axis is called channel",
    "{fields: {u: /c}, axes: [time, channel, x]}": r"fields\.u: its array has an axis 'channel': say which",
    "{fields: {u: 7}, array: /c, axes: [time, channel, x]}": r"flow\.h5: layout\.fields\.u is channel 7 of 'c', which has 2, counted from 0",
    "{fields: {u: 0}, axes: [sample, time, x, channel]}": r"flow\.h5: layout\.fields\.u does not say which array it is in, and the file has 2 with 4 axes",
    "{fields: {u: /u}, axes: [sample, time, _, y]}": r"flow\.h5: 'u' \(4, 3, 6, 5\) has 6 entries along axis 2, which .* calls _",
    "{fields: {u: /text}, axes: [time, x]}": r"flow\.h5: dataset 'text' does not hold numbers",
    "{fields: {u: {array: /u, axes: [sample, time, x, z]}}, axes: [sample, time, x, y]}": r"fields\.u\.axes: 'z' is no axis that layout\.axes names",
    "{fields: {u: {array: /u, axes: [sample, x, y]}}, axes: [sample, time, x, y]}": r"'u' has the shape \(4, 3, 6, 5\), but layout\.fields\.u names 3",
    U % ", time: 3": r"--layout:1: time: '3' stands here; an array's name, \{dt: 0\.01\}",
    U % ", time: {step: 1, to: 2}": r"--layout:1: time: a step and an end cannot both be given",
    U % ", time: /p": r"flow\.h5: layout\.time has the shape \(4, 3, 7, 5\), where there are 4 samples of 3 frames",
    U % ", time: {attribute: dt}": r"flow\.h5: layout\.time is to be the attribute 'dt' of '/', which has none of that name",
    U % ", time: {dt: -1}": r"times do not increase in sample flow\[0\]",
    U % ", coordinates: {x: {attribute: units, of: /u}}": r"layout\.coordinates\.x is to be the attribute 'units' of '/u', which holds none; numbers",
    U % ", coordinates: {z: /t}": r"--layout\.coordinates\.z: layout\.axes names no axis 'z' of the grid",
    U % ", coordinates: {x: /t}": r"flow\.h5: layout\.coordinates\.x has the shape \(3\) where the grid has 6 points",
    U % ", parameters: {nu: {attribute: nu}}": r"flow\.h5: layout\.parameters\.nu is to be the attribute 'nu' of '/', which has none of that name",
    U % ", parameters: {nu: /t}": r"flow\.h5: layout\.parameters\.nu has 3 entries where there are 4 samples",
    U % ", parameters: {nu: {array: /t, column: 3}}": r"flow\.h5: layout\.parameters\.nu is to be column 3 of 't', which has the shape \(3\); columns count from 0",
    U % ", parameters: {nu: {array: /t, column: 0.5}}": r"parameters\.nu\.column: '0\.5' stands here; the number of a column, counted from 0, was expected",
    U % ", parameters: {nu: {array: /t}}": r"parameters\.nu: a mapping stands here; .*column: 0.* was expected",
    U % ", parameters: {nu: {array: /t, colum: 0}}": r"parameters\.nu\.colum: there is no such key; did you mean 'column'",
    U % ", periodic: [z]": r"--layout\.periodic: layout\.axes names no axis 'z' of the grid",
    U % ", periodic: perhaps": r"--layout:1: periodic: 'perhaps' stands here; true, false or a list of axes",
}


def test_every_mistake_in_a_layout_is_named_with_what_would_be_right(scratch):
    path = os.path.join(scratch, "flow.h5")
    with h5py.File(path, "w") as f:
        f["u"], f["p"], f["c"], f["t"] = waves((4, 3, 6, 5)), waves((4, 3, 7, 5)), waves((3, 2, 6)), np.arange(3.0)
        f["text"] = np.array([[b"a", b"b"]])
        f["u"].attrs["units"] = "m/s"
    for layout, sentence in MISTAKES.items():
        one_sentence(ups("data", "inspect", "--layout", layout, path), sentence)


def test_a_mistake_in_a_configuration_is_told_with_its_line(scratch):
    path = os.path.join(scratch, "c.yaml")
    Path(path).write_text("tasks:\n  - name: a\n    files: [a.h5]\n    layout:\n      axes: [time, x]\n      fields:\n        u: {array: /u, scale: big}\n")
    one_sentence(ups("config", "check", "--without-paths", path), r"c\.yaml:6: tasks\[0\]\.layout\.fields\.u\.scale: 'big' stands here; a number or \{attribute: NAME\}")
    Path(path).write_text("tasks:\n  - {name: a, files: [a.h5], layout: {fields: {u: /u}}}\n")
    one_sentence(ups("config", "check", "--without-paths", path), r"c\.yaml:2: tasks\[0\]\.layout\.axes: the key is missing")


def test_a_layout_may_be_given_by_a_configuration(scratch):
    np.save(scratch + "/u.npy", waves((4, 3, 6)))
    task = "  - {name: %s, files: [u.npy], layout: {fields: {u: u}, axes: [sample, time, x]}}\n"
    path = Path(scratch, "c.yaml")
    path.write_text("tasks:\n" + task % "a" + "  - {name: other, files: [x.h5]}\n")
    assert inspected(scratch, ["u.npy"], f"@{path}")["samples"] == 4
    path.write_text("tasks:\n" + task % "a" + task % "b")
    one_sentence(ups("data", "inspect", "--layout", f"@{path}", scratch + "/u.npy"), "2 of its tasks have a layout, where one was expected")


@pytest.mark.parametrize("option", [["--together"], ["--layout", "garbage: ["]])
def test_options_that_a_suggestion_would_not_heed_are_refused(scratch, option):
    one_sentence(ups("data", "inspect", "--suggest", *option, scratch + "/any.h5"), "do not go with it", code=2)


def test_files_that_no_layout_knows_are_answered_with_the_command_that_suggests_one(scratch):
    np.save(scratch + "/a.npy", waves((4, 3, 6)))
    with h5py.File(scratch + "/a.h5", "w") as f:
        f["u"] = waves((4, 3, 6))
    zarr.create_array(scratch + "/a.zarr", shape=(4, 3, 6), dtype="f4")
    for name in ("a.npy", "a.h5", "a.zarr"):
        one_sentence(ups("data", "inspect", f"{scratch}/{name}"), rf"`ups data inspect --suggest .*{name}`")
    os.mkdir(scratch + "/empty")
    one_sentence(ups("data", "inspect", "--suggest", scratch + "/empty"), "is a directory, but no Zarr store")
    np.save(scratch + "/flat.npy", np.arange(4.0))
    one_sentence(ups("data", "inspect", "--suggest", scratch + "/flat.npy"), "holds no array of real numbers with two axes or more")
    Path(scratch, "a.csv").write_text("1, 2\n")
    one_sentence(ups("data", "inspect", "--suggest", scratch + "/a.csv"), r"is not an HDF5 file, nor NetCDF .* NumPy's \.npy and \.npz and folders of Zarr are read too")


def test_a_suggestion_says_what_else_a_file_may_be(scratch):
    np.savez(scratch + "/pair.npz", a=waves((9, 8, 8)), b=waves((9, 8, 8)))
    np.savez(scratch + "/timed.npz", a=waves((9, 8, 8)), t=np.arange(9.0))
    with h5py.File(scratch + "/groups.h5", "w") as f:
        f["first/u"] = f["second/u"] = waves((9, 8))
    pair, timed, groups = (must("data", "inspect", "--suggest", f"{scratch}/{name}").stdout for name in ("pair.npz", "timed.npz", "groups.h5"))
    assert "# axes: [sample, x, y] # of a steady problem" in pair and "several groups" not in pair
    assert "steady problem" not in timed
    assert "If each group is a trajectory, save one array with the samples first" in groups
    train_and_test_groups(Path(scratch))
    split = must("data", "inspect", "--suggest", f"{scratch}/split.h5").stdout
    assert "# Without the group test beside that for training: saved as a file of its own, it is what test_files names." in split
    assert "# not used: /train/noise (5)" in split


def test_a_configuration_begins_from_a_layout(scratch):
    paths, _, _ = two_datasets_tncx(Path(scratch))
    suggestion = run(UPS, "data", "inspect", "--suggest", *paths, cwd=scratch).stdout
    Path(scratch, "layout.yaml").write_text(suggestion)
    for layout in ("@layout.yaml", json.dumps(yaml.safe_load(suggestion)["tasks"][0]["layout"])):
        done = run(UPS, "config", "init", *paths, "--layout", layout, "-o", "whole.yaml", "--force", cwd=scratch)
        assert done.returncode == 0, done.stderr
        task, = yaml.safe_load(Path(scratch, "whole.yaml").read_text())["tasks"]
        assert task["layout"] == yaml.safe_load(suggestion)["tasks"][0]["layout"] and task["files"] == paths
    done = run(UPS, "train", "whole.yaml", "--quiet", "--set", "operator.steps=2", cwd=scratch)
    assert done.returncode == 0, done.stderr
    one_sentence(run(UPS, "config", "init", *paths, "--layout", "{fields: {u: /nothing}, axes: [sample, time, x]}", "-o", "no.yaml", cwd=scratch), r"two\.h5.*nothing")
    assert not Path(scratch, "no.yaml").exists()


# ---- the same data in every form ---------------------------------------------------------------------------------------------------------

CODECS = {
    "none": {"compressors": None}, "zlib": {"compressors": numcodecs.Zlib()}, "gzip": {"compressors": numcodecs.GZip()}, "zstd": {"compressors": numcodecs.Zstd()},
    "lz4": {"compressors": numcodecs.LZ4()}, "blosc lz4": {"compressors": numcodecs.Blosc()},
    "blosc zstd, bits shuffled": {"compressors": numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE)},
    "shuffle, zstd": {"filters": [numcodecs.Shuffle(4)], "compressors": numcodecs.Zstd()}, "Fortran order": {"order": "F", "compressors": numcodecs.Zstd()},
}


@pytest.mark.parametrize("name", CODECS)
def test_zarr_of_version_2_is_read_in_every_codec(scratch, name):
    need(*(library for library in ("Blosc", "LZ4") if name.startswith(library.lower())))
    u = waves((5, 4, 9, 7))
    zarr.create_array(scratch + "/u.zarr", shape=u.shape, dtype="f4", chunks=(2, 3, 4, 7), zarr_format=2, **CODECS[name])[:] = u
    assert same(dumped(scratch, "u.zarr", U % "", 4), u[4][:, None])


CODECS_3 = {
    "none": {"compressors": None}, "gzip": {"compressors": zarr.codecs.GzipCodec()}, "zstd, checked": {"compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]},
    "blosc": {"compressors": zarr.codecs.BloscCodec()}, "big-endian": {"serializer": zarr.codecs.BytesCodec(endian="big")},
    "transposed": {"filters": zarr.codecs.TransposeCodec(order=(2, 0, 3, 1))}, "shards": {"shards": (4, 6, 8, 7)},
    "transposed in shards": {"shards": (4, 6, 8, 7), "filters": zarr.codecs.TransposeCodec(order=(2, 0, 3, 1))},
    "names of version 2": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
}


@pytest.mark.parametrize("name", CODECS_3)
def test_zarr_of_version_3_is_read_in_every_codec(scratch, name):
    need(*(["Blosc"] if name == "blosc" else []))
    u = waves((5, 4, 9, 7))
    array = zarr.create_array(scratch + "/u.zarr", shape=u.shape, dtype="f4", chunks=(2, 3, 4, 7), fill_value=-1.5, **CODECS_3[name])
    array[:4] = u[:4]  # the last is never written
    assert same(dumped(scratch, "u.zarr", U % "", 3), u[3][:, None])
    assert same(dumped(scratch, "u.zarr", U % "", 4), array[4][:, None])


@pytest.mark.parametrize("axes", ["sample time x y", "time sample x y", "x y time sample", "y time x sample", "time x sample y"])
def test_axes_in_any_order_are_the_same_trajectories_in_every_storage(scratch, axes):
    """Rows of 40 kB, so that what lies between samples is passed over."""
    u, names = waves((3, 5, 100, 90)), axes.split()
    stored = u.transpose(["sample time x y".split().index(name) for name in names])
    dims = [name for name in names if name in "xy"]
    wanted = u[2].transpose(0, *(1 + "xy".index(dim) for dim in dims))[:, None]
    with h5py.File(scratch + "/u.h5", "w") as f:
        f["plain"] = stored
        f.create_dataset("packed", data=stored, chunks=tuple(max(1, n // 2) for n in stored.shape), compression="lzf")
    np.save(scratch + "/u.npy", stored)
    np.savez_compressed(scratch + "/u.npz", u=stored)
    for path, array in (("u.h5", "plain"), ("u.h5", "packed"), ("u.npy", "u"), ("u.npz", "u")):
        layout = f"{{fields: {{u: {array}}}, axes: [{', '.join(names)}]}}"
        assert same(dumped(scratch, path, layout, 2), np.ascontiguousarray(wanted)), (path, array)


def test_fields_that_lack_axes_are_repeated_along_them(scratch):
    u, fixed, line = waves((4, 3, 6, 5)), waves((4, 6, 5), 1), waves((3, 5), 2)
    np.savez(scratch + "/u.npz", u=u, fixed=fixed, line=line)
    layout = "{fields: {u: u, fixed: {array: fixed, axes: [sample, x, y]}, line: {array: line, axes: [time, y]}}, axes: [sample, time, x, y]}"
    wanted = np.stack([u[2], np.broadcast_to(fixed[2], (3, 6, 5)), np.broadcast_to(line[:, None], (3, 6, 5))], axis=1)
    assert same(dumped(scratch, "u.npz", layout, 2), np.ascontiguousarray(wanted))


def test_what_is_missing_becomes_nan(scratch):
    u = np.arange(2 * 3 * 4, dtype="i2").reshape(2, 3, 4)
    np.savez(scratch + "/u.npz", u=u)
    found = dumped(scratch, "u.npz", "{fields: {u: {array: u, missing: 17, scale: 0.5}}, axes: [sample, time, x]}", 1)
    assert np.array_equal(found[:, 0], np.where(u[1] == 17, np.nan, u[1] * 0.5), equal_nan=True)


@pytest.mark.parametrize("options", [{}, {"chunks": (1, 3, 4), "compression": "gzip"}], ids=["contiguous", "compressed"])
def test_truth_values_are_zeros_and_ones_and_complex_numbers_are_named(scratch, options):
    mask = np.random.default_rng(0).random((2, 3, 8)) < 0.5
    with h5py.File(scratch + "/m.h5", "w") as file:
        file.create_dataset("mask", data=mask, **options)
        file["spectrum"] = np.ones((2, 3, 8), complex)
    assert np.array_equal(dumped(scratch, "m.h5", "{fields: {m: mask}, axes: [sample, time, x]}", 1)[:, 0], mask[1])
    assert "dataset 'spectrum' holds compounds, as of complex numbers" in one_sentence(ups("data", "inspect", scratch + "/m.h5", "--layout", "{fields: {s: spectrum}, axes: [sample, time, x]}"))


def test_a_parameter_is_a_column_of_a_table(scratch):
    np.savez(scratch + "/u.npz", u=waves((3, 4, 8)), table=[[1.0, 0.1], [1.0, 0.2], [1.0, 0.3]])
    facts = inspected(scratch, ["u.npz"], "{fields: {u: u}, axes: [sample, time, x], parameters: {nu: {array: table, column: 1}}}")
    assert facts["parameters"] == {"nu": [0.1, 0.3]}
    assert "{array: NAME, column: 0} takes a column of a table" in one_sentence(ups("data", "inspect", scratch + "/u.npz", "--layout", "{fields: {u: u}, axes: [sample, time, x], parameters: {nu: table}}"))


def test_times_and_parameters_of_each_sample_are_told(scratch):
    np.savez(scratch + "/u.npz", u=waves((3, 4, 8)), t=np.arange(4) + 10.0 * np.arange(3)[:, None], nu=[0.1, 0.2, 0.3])
    facts = inspected(scratch, ["u.npz"], "{fields: {u: u}, axes: [sample, time, x], time: t, parameters: {nu: nu, seed: 5}}")
    assert facts["time"] == {"frames": 4, "range": [0, 3]}
    assert facts["parameters"] == {"nu": [0.1, 0.3], "seed": [5, 5]}


STEADY = "{fields: {nu: %s, u: {array: %s, solution: true}}, axes: [sample, x, y]}"


def write_steady(folder, samples=12):
    """Darcy flow by our own solver, as other files would keep it: a coefficient and a solution, each (sample, x, y)."""
    must("datagen", "darcy2d", "-o", folder + "/darcy.h5", "-n", str(samples), "-t", "1", "-r", "16")
    with h5py.File(folder + "/darcy.h5") as f:
        nu, u = f["nu"][:], f["tensor"][:, 0]
    np.savez(folder + "/flow.npz", coefficient=nu, pressure=u)
    np.save(folder + "/both.npy", np.stack([nu, u], axis=1))
    with h5py.File(folder + "/flow.h5", "w") as f:
        f.create_dataset("a", data=nu, chunks=(5, 7, 16), compression="gzip")
        f["b"] = u.astype("f8")
    return nu, u


def test_a_steady_problem_becomes_what_pdebenchs_darcy_flow_is(scratch):
    nu, u = write_steady(scratch)
    wanted = dump(scratch + "/darcy.h5", 7)
    assert np.array_equal(wanted, [[nu[7], 0 * u[7]], [nu[7], u[7]]])
    assert same(dumped(scratch, "flow.npz", STEADY % ("coefficient", "pressure"), 7), wanted)
    assert same(dumped(scratch, "flow.h5", STEADY % ("/a", "/b"), 7), wanted.astype("f8"))
    channels = "{fields: {nu: 0, u: {channel: 1, solution: true}}, axes: [sample, channel, x, y]}"
    assert same(dumped(scratch, "both.npy", channels, 7), wanted), "two channels of one array, of which one is sought"
    facts = inspected(scratch, ["flow.npz"], STEADY % ("coefficient", "pressure"))
    assert (facts["samples"], facts["time"], facts["fields"]) == (12, {"frames": 2, "range": [0, 1]}, ["nu", "u"])


def test_a_steady_problem_is_trained_on_as_pdebenchs_darcy_flow_is(scratch):
    """The same numbers in another file give the same weights, the same errors and the same rollouts."""
    write_steady(scratch)
    told = {}
    for name, file, layout in (("theirs", "darcy.h5", ""), ("ours", "flow.npz", ", layout: " + STEADY[:-1] % ("coefficient", "pressure") + ", parameters: {beta: 1}, periodic: false}")):
        Path(scratch, name + ".yaml").write_text(f"output: {name}\nevaluation: {{max_samples: 4}}\ntasks:\n  - {{name: flow, files: [{file}], patch: [8]{layout}}}\n" + TINY.replace("output: run\n", ""))
        for command in (["train", name + ".yaml", "--quiet"], ["rollout", name, "-o", name + ".out.h5"]):
            done = run(UPS, *command, cwd=scratch)
            assert done.returncode == 0, done.stderr
        done = run(UPS, "eval", name, "--json", cwd=scratch)
        assert done.returncode == 0, done.stderr
        task = json.loads(done.stdout)["tasks"][0]
        assert (task["solution_fields"], task["constant_fields"]) == (["u"], ["nu"])
        with h5py.File(Path(scratch, name + ".out.h5")) as file:
            told[name] = [json.dumps(task["horizons"]), *(file[seed]["data"][:].tobytes() for seed in file)]
    assert told["ours"] == told["theirs"]


# ---- damaged files -----------------------------------------------------------------------------------------------------------------------


def npy(dictionary, data=b"", version=1, length=None):
    text = dictionary.encode() + b"\n"
    size = len(text) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + (struct.pack("<H", size) if version == 1 else struct.pack("<I", size)) + text + data


HEADER = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }"
PLAIN = HEADER % ("<f4", "False", "(2, 3, 4)")

DAMAGED_NPY = {
    b"\x93NUMPY\x01\x00\x00": "it ends within its NPY header",
    npy(PLAIN, length=9000): "it ends within its NPY header",
    npy(PLAIN, version=9): "its NPY version is 9; 1 to 3 are known",
    npy(PLAIN, version=3, length=1 << 30): "its NPY header claims 1073741824 bytes",
    npy("{'descr': '<f4', 'shape': (2, 3, 4)}"): "'descr', 'fortran_order' and 'shape' was expected",
    npy("{'descr': '<f4"): "the end of a text was expected",
    npy("{'descr': [('a', '<f4'), ('b'"): "the end of a list of fields was expected",
    npy(HEADER % ("<f4", "Maybe", "(2, 3, 4)")): "True or False was expected at 'Maybe",
    npy(HEADER % ("<f4", "False", "(2, -3, 4)")): "a length was expected at '-3",
    npy(HEADER % ("<f4", "False", "(2 3, 4)")): "',' or '\\)' was expected",
    npy(HEADER % ("<f4", "False", "(4294967296, 4294967296, 4294967296)")): "claims more elements than memory has addresses",
    npy(HEADER % ("<f4", "False", "(1,1,1,1,1,1,1,1,1)")): "it has more than 8 axes",
    npy(PLAIN, bytes(95)): "has .* bytes where its header announces .*; it was cut short",
    npy(HEADER % ("<c8", "False", "(2, 3, 4)"), bytes(192)): "is of type <c8, which is no real number; save real and imaginary parts",
    npy(HEADER % ("|O", "False", "(2, 3, 4)"), bytes(192)): "is of type \\|O, .*numpy.asarray",
    npy("{'descr': [('a', '<f4', (2,))], 'fortran_order': False, 'shape': (2, 3, 4)}", bytes(192)): "is of type structured",
}


def test_damaged_npy_files_are_refused_with_one_sentence(scratch):
    path = scratch + "/u.npy"
    for data, sentence in DAMAGED_NPY.items():
        Path(path).write_bytes(data)
        one_sentence(ups("data", "dump", path, "--layout", "{fields: {u: u}, axes: [sample, time, x]}", "--force", "-o", scratch + "/o.npy"), sentence)
    Path(path).write_bytes(npy(PLAIN, bytes(96)))
    assert dumped(scratch, "u.npy", "{fields: {u: u}, axes: [sample, time, x]}").shape == (3, 1, 4)


def patched(data, at, new):
    return data[:at] + new + data[at + len(new):]


def test_damaged_npz_files_are_refused_with_one_sentence(scratch):
    path, layout = scratch + "/u.npz", "{fields: {u: u}, axes: [sample, time, x]}"
    np.savez_compressed(path, u=waves((2, 3, 400)))
    sound = Path(path).read_bytes()
    end, central = sound.rindex(b"PK\5\6"), sound.index(b"PK\1\2")
    cases = {
        "the end of its ZIP directory is missing": sound[:-5],
        "its ZIP directory does not fit into it": patched(sound, end + 12, struct.pack("<I", 1 << 20)),
        "an entry of its ZIP directory is cut short": patched(sound, central, b"XX"),
        "a member is not where its directory says": patched(sound, 0, b"PK\3\0"),
        "a member lies beyond its end": patched(sound, central + 42, struct.pack("<I", len(sound))),
        "a member goes on beyond its end": patched(sound, central + 20, struct.pack("<I", 1 << 20)),
        "the CRC-32 of 'u.npy' does not match": patched(sound, central + 16, b"\1\2\3\4"),
        "a compressed member is damaged|CRC-32|NPY header": patched(sound, 200, bytes(range(255, 235, -1))),
        "is a ZIP file without arrays that UPS reads": patched(sound, central + 8, b"\1"),  # encrypted
    }
    for sentence, data in cases.items():
        Path(path).write_bytes(data)
        # what begins otherwise is taken for another format
        wanted = sentence if data[:4] == b"PK\3\4" else "is not an HDF5 file"
        one_sentence(ups("data", "dump", path, "--layout", layout, "--force", "-o", scratch + "/o.npy"), wanted)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "no arrays")
    Path(path).write_bytes(file.getvalue())
    one_sentence(ups("data", "inspect", "--suggest", path), "is a ZIP file without arrays that UPS reads")


def document(path, **changes):
    """Changes keys of a document; a value that is None is taken out."""
    found = json.loads(path.read_text())
    for key, value in changes.items():
        found.pop(key, None)
        found.update({} if value is None else {key: value})
    path.write_text(json.dumps(found))


def codecs(*names):
    return [{"name": "bytes", "configuration": {"endian": "little"}}, *({"name": name} for name in names)]


DAMAGED_ZARR = {
    "zarr.json: the file is empty": lambda store: store.joinpath("zarr.json").write_text(""),
    "zarr.json:1:.*not valid JSON": lambda store: store.joinpath("zarr.json").write_text("{'a': 1}"),
    "'shape'": lambda store: document(store / "zarr.json", shape=None),
    "entry 1 of 'shape' cannot be a length": lambda store: document(store / "zarr.json", shape=[4, -3, 8]),
    "entry 2 of 'shape' cannot be a length": lambda store: document(store / "zarr.json", shape=[4, 1 << 40, 1 << 40]),
    "'chunk_shape' has 2 entries where the shape has 3":
        lambda store: document(store / "zarr.json", chunk_grid={"name": "regular", "configuration": {"chunk_shape": [2, 3]}}),
    "entry 0 of 'chunk_shape' cannot be a length":
        lambda store: document(store / "zarr.json", chunk_grid={"name": "regular", "configuration": {"chunk_shape": [0, 3, 8]}}),
    "'chunk_grid' is rectilinear, which UPS does not read": lambda store: document(store / "zarr.json", chunk_grid={"name": "rectilinear"}),
    "its type is complex64; integers and floats": lambda store: document(store / "zarr.json", data_type="complex64"),
    "'fill_value' is no float32": lambda store: document(store / "zarr.json", fill_value="zero"),
    "codec 'bz2' is not read": lambda store: document(store / "zarr.json", codecs=codecs("bz2")),
    "codec 'shuffle' is not read, or not at this place": lambda store: document(store / "zarr.json", codecs=codecs("zstd", "numcodecs.shuffle")),
    "none of its codecs makes bytes": lambda store: document(store / "zarr.json", codecs=[]),
    "is no permutation of 3 axes":
        lambda store: document(store / "zarr.json", codecs=[{"name": "transpose", "configuration": {"order": [0, 1, 1]}}, *codecs()]),
    "its chunks are of .* GiB; up to 4 GiB are read": lambda store: document(
        store / "zarr.json", shape=[4, 1 << 16, 1 << 16], chunk_grid={"name": "regular", "configuration": {"chunk_shape": [2, 1 << 16, 1 << 16]}}),
    "has more than 16777216 chunks": lambda store: document(
        store / "zarr.json", shape=[1 << 12, 1 << 12, 1 << 12], chunk_grid={"name": "regular", "configuration": {"chunk_shape": [1, 1, 1]}}),
    "a chunk has 100 bytes where 192 were expected; it was cut short":
        lambda store: (document(store / "zarr.json", codecs=codecs()), store.joinpath("c/0/0/0").write_bytes(bytes(100))),
    "c/0/0/0: a chunk was expected, not a folder": lambda store: (store.joinpath("c/0/0/0").unlink(), store.joinpath("c/0/0/0").mkdir()),
    "chunk \\(0, 0, 0\\) of dataset .* cannot be decoded: the zstd stream is damaged": lambda store: store.joinpath("c/0/0/0").write_bytes(bytes(range(60))),
}


def test_damaged_zarr_stores_are_refused_with_one_sentence(scratch):
    for number, (sentence, damage) in enumerate(DAMAGED_ZARR.items()):
        store = Path(scratch, f"{number}.zarr")
        zarr.create_array(store, shape=(4, 3, 8), dtype="f4", chunks=(2, 3, 8))[:] = waves((4, 3, 8))
        damage(store)
        done = ups("data", "dump", store, "--layout", "{fields: {u: u}, axes: [sample, time, x]}", "--force", "-o", scratch + "/o.npy")
        one_sentence(done, sentence)


def test_damaged_shards_are_refused_with_one_sentence(scratch):
    store = Path(scratch, "u.zarr")
    zarr.create_array(store, shape=(4, 3, 8), dtype="f4", chunks=(2, 3, 8), shards=(4, 3, 8))[:] = waves((4, 3, 8))
    shard = store / "c/0/0/0"
    sound = shard.read_bytes()
    cases = {
        "a shard of 20 bytes is shorter than its index": sound[:20],
        "the CRC32C of the shard's index does not match": patched(sound, len(sound) - 30, b"\7"),
        "cannot be decoded: its CRC32C does not match|cannot be decoded: the zstd stream is damaged": patched(sound, 3, bytes(range(40, 60))),
    }
    for sentence, data in cases.items():
        shard.write_bytes(data)
        one_sentence(ups("data", "dump", store, "--layout", "{fields: {u: u}, axes: [sample, time, x]}", "--force", "-o", scratch + "/o.npy"), sentence)


@pytest.mark.parametrize("name", ["u.npy", "u.npz", "deflated.npz", "u.zarr/zarr.json", "u.zarr/c/0/0/0"])
def test_any_damaged_byte_is_read_or_refused_with_one_sentence(scratch, name):
    u = waves((2, 3, 8))
    np.save(scratch + "/u.npy", u)
    np.savez(scratch + "/u.npz", u=u)
    np.savez_compressed(scratch + "/deflated.npz", u=u)
    zarr.create_array(scratch + "/u.zarr", shape=u.shape, dtype="f4", chunks=(1, 3, 8), shards=(2, 3, 8))[:] = u
    path, rng = Path(scratch, name), np.random.default_rng(5)
    opened = scratch + "/" + name.split("/")[0]
    sound = path.read_bytes()
    for _ in range(60):
        at = int(rng.integers(len(sound)))
        path.write_bytes(patched(sound, at, bytes([sound[at] ^ (1 << int(rng.integers(8)))])))
        done = ups("data", "dump", opened, "--layout", "{fields: {u: u}, axes: [sample, time, x]}", "--force", "-o", scratch + "/o.npy")
        if done.returncode != 0:
            one_sentence(done)


# ---- rollouts of grids and times that are no even ones, with axes in an order of their own ----------------------------------------------

OWN_AXES = """
output: run
precision: f32
device: {threads: 1}
data: {split: {train: 0.5, validation: 0.25, test: 0.25}}
tasks:
  - {name: air, files: [air.h5], patch: [4], layout: {fields: {c: /c, T: /T}, axes: [sample, time, y, x], time: /t, coordinates: {x: /x, y: /y}, periodic: [x]}}
  - {name: pipe, files: [pipe.h5], patch: [4], layout: {fields: {u: /u}, axes: [sample, time, s], time: /t, coordinates: {s: /s}}}
model:
  tokens: grid
  dim: auto
  operator: {core: stack, hidden: 8, depth: 1, heads: 2}
autoencoder: {steps: 0, target: 0.02, gate: 0}
operator: {steps: 3, batch_size: 2}
"""
SIDE, PLOT_LEFT, PLOT_TOP, BETWEEN = 200, 68, 60, 24  # of a figure, in pixels of a frame (plot.h, pictures.h)


@pytest.fixture(scope="module")
def own_axes():
    """A trained run in a folder: c is its number of the point, x first, but for a corner that moves; u is its number, too."""
    with tempfile.TemporaryDirectory(prefix="ups-test-") as folder:
        n, frames, rows, columns, points = 8, 5, 12, 16, 20
        x, y, t = 1.2**np.arange(columns), np.linspace(11, 0, rows), np.arange(frames) / 2
        y *= (edges_of(x)[-1] - edges_of(x)[0]) / 12  # as high as the grid is wide, and the first row on top
        moving = np.zeros((n, frames, rows, columns))
        moving[:, :, 0, 0] = np.arange(frames)
        c = np.arange(columns) + columns * np.arange(rows)[:, None] + moving
        with h5py.File(f"{folder}/air.h5", "w") as f:
            f.update(c=c, T=101325 + 5 * np.sin(c / 100), x=x, y=y, t=t)
        with h5py.File(f"{folder}/pipe.h5", "w") as f:
            f["u"] = np.broadcast_to(np.arange(points) + points * np.arange(frames)[:, None], (n, frames, points)).astype("f4")
            f.update(s=np.linspace(1, 2, points)**4, t=np.arange(frames)**2.0)
        Path(folder, "run.yaml").write_text(OWN_AXES)
        done = run(UPS, "train", "run.yaml", "--quiet", cwd=folder)
        assert done.returncode == 0, done.stderr
        yield folder


def rolled(folder, *arguments):
    done = run(UPS, "rollout", "run", "-n", "1", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr


def edges_of(x):
    inner = (x[1:] + x[:-1]) / 2
    return np.concatenate([[2 * x[0] - inner[0]], inner, [2 * x[-1] - inner[-1]]])


def test_rollouts_have_the_datas_coordinates_and_call_axes_and_fields_what_the_data_do(own_axes):
    need("NetCDF-C")
    rolled(own_axes, "--task", "air", "-o", "air-out.h5")
    rolled(own_axes, "--task", "air", "-o", "air-out.nc")
    rolled(own_axes, "--task", "pipe", "-o", "pipe-out.h5")
    with h5py.File(f"{own_axes}/air.h5") as data, h5py.File(f"{own_axes}/air-out.h5") as file, netCDF4.Dataset(f"{own_axes}/air-out.nc") as cf:
        group = file["0000"]
        assert [dimension.label for dimension in group["data"].dims] == ["t", "y", "x", "field"] and group.attrs["bc"] == "periodic in x"
        for axis, name in ((1, "y"), (2, "x")):
            assert group["data"].dims[axis][0].name == group["truth"].dims[axis][0].name == f"/0000/{name}"
            for found in (group[name][:], group["grid"][name][:], cf[name][:].filled()):
                assert np.allclose(found, data[name][:], rtol=1e-6, atol=1e-6)
        assert np.array_equal(group["x"][:], data["x"][:]) and group["y"].dtype == "f4"  # y is even
    with h5py.File(f"{own_axes}/pipe.h5") as data, h5py.File(f"{own_axes}/pipe-out.h5") as file:
        assert np.array_equal(file["x-coordinate"][:], data["s"][:]) and np.array_equal(file["s"][:], data["s"][:])
        assert [dimension.label for dimension in file["tensor"].dims] == ["trajectory", "t", "s"]
    for name, fields, axes in (("air", ["c", "T"], ["y", "x"]), ("pipe", ["u"], ["s"])):
        facts, = json.loads(must("data", "inspect", "--json", f"{own_axes}/{name}-out.h5").stdout)
        assert facts["fields"] == fields and [axis["axis"] for axis in facts["grid"]] == axes
        assert ["spacing" in axis for axis in facts["grid"]] == [axis != "y" for axis in axes]
    assert "along x, 1 to 15.407, unevenly spaced: 0.2 to 2.56784 apart" in must("data", "inspect", f"{own_axes}/air-out.h5").stdout


def test_at_another_resolution_coordinates_lie_between_the_datas_by_their_numbers(own_axes):
    rolled(own_axes, "--task", "pipe", "-r", "40", "-o", "fine.h5")
    with h5py.File(f"{own_axes}/pipe.h5") as data, h5py.File(f"{own_axes}/fine.h5") as file:
        places = (np.arange(40) + 0.5) / 2 - 0.5
        inside = (places >= 0) & (places <= 19)
        found = file["x-coordinate"][:]
        assert np.allclose(found[inside], np.interp(places[inside], np.arange(20), data["s"][:])) and (np.diff(found) > 0).all()


def plot_at(path, scale, left, width, height, frame=0):
    with Image.open(path) as image:
        image.seek(frame)
        picture = np.array(image.convert("RGB")).astype(int)
    return picture[PLOT_TOP * scale:(PLOT_TOP + height) * scale, left * scale:(left + width) * scale]


def cells_along(edges, pixels):
    """The cell that each pixel's middle is in, from the smaller coordinates to the larger ones."""
    low, high = min(edges[0], edges[-1]), max(edges[0], edges[-1])
    middle = low + (np.arange(pixels) + 0.5) / pixels * (high - low)
    return np.searchsorted(np.sort(edges), middle) - 1


def test_values_lie_at_their_coordinates_with_x_to_the_right(own_axes):
    """Brightness of the truth's colours rises with the point's number: with x, and against y, whose first row is on top."""
    rolled(own_axes, "--task", "air", "-o", "still.h5", "--animate", "places")
    truth = plot_at(f"{own_axes}/places/air-0-c-animation.png", 1, PLOT_LEFT + SIDE + BETWEEN, SIDE, SIDE)
    with h5py.File(f"{own_axes}/air.h5") as data:
        columns, rows = cells_along(edges_of(data["x"][:]), SIDE), cells_along(edges_of(data["y"][:]), SIDE)
    rows = rows[::-1]  # from the top, where y is largest, down
    rows = 11 - rows   # and y falls with the row's number
    number = columns + 16 * rows[:, None]
    colours = {}
    for value, colour in zip(number.ravel(), truth.reshape(-1, 3)):
        colours.setdefault(value, set()).add(tuple(colour))
    assert len(colours) == 16 * 12 and all(len(found) == 1 for found in colours.values())
    brightness = np.array([sum(min(colours[value])) for value in sorted(colours)])
    assert (np.diff(brightness[::16]) > 0).all(), "y"
    assert (np.diff(brightness[::12]) > 0).all(), "x"


def test_rows_over_time_lie_at_their_times_and_go_on_beyond_the_data(own_axes):
    width, height, known, steps = 250, 200, 5, 7
    rolled(own_axes, "--task", "pipe", "--steps", steps, "-o", "beyond.h5", "--png", "beyond")
    with h5py.File(f"{own_axes}/beyond.h5") as file:
        time, s = file["t"][:].astype(float), file["s"][:]
        assert len(time) == 1 + steps and len(file["truth"][0]) == known
    truth = plot_at(f"{own_axes}/beyond/pipe-0-u.png", 2, PLOT_LEFT + width + BETWEEN, width, height)
    prediction = plot_at(f"{own_axes}/beyond/pipe-0-u.png", 2, PLOT_LEFT, width, height)
    rows, columns = cells_along(edges_of(time), 2 * height)[::-1], cells_along(edges_of(s), 2 * width)
    white = (truth == 255).all(-1)
    text = np.s_[:, width - 70:width + 70]
    blank = np.broadcast_to((rows >= known)[:, None], white.shape).copy()
    white[text], blank[text] = False, False
    assert blank.any() and np.array_equal(white, blank) and not (prediction == 255).all(-1).any()
    for row in range(known):
        for column in range(20):
            colours = truth[rows == row][:, columns == column].reshape(-1, 3)
            assert len(np.unique(colours, axis=0)) == min(len(colours), 1), (row, column)
    assert Path(own_axes, "beyond/pipe-0-u-profiles.png").exists()
