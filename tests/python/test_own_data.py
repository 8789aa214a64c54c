"""Data of a user's own: files as people write them with h5py, NumPy, netCDF4 and zarr-python, none in a layout that UPS knows. What
`ups data inspect --suggest` prints is trained on as it stands, and `ups data dump` gives the bits that those libraries read."""

import io
import json
import os
import struct
import subprocess
import zipfile
from pathlib import Path

import h5py
import netCDF4
import numcodecs
import numpy as np
import pytest
import yaml
import zarr

from commands import UPS, must, one_sentence, run, same, ups

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


FILES = {"h5py u (N, T, X, Y)": h5py_ntxy, "(T, N, C, X) in two datasets": two_datasets_tncx, "compressed NPZ": npz, "NPZ in Fortran order": npz_stored,
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
autoencoder: {steps: 3, batch_size: 2, queries: 8, validation_batches: 1}
operator: {steps: 3, batch_size: 2, validation_batches: 1}
"""


def dumped(folder, path, layout, sample=0):
    output = os.path.join(folder, "dump.npy")
    done = ups("data", "dump", os.path.join(folder, path), "--layout", layout, "--sample", sample, "-o", output)
    return np.load(output) if done.returncode == 0 else done.stderr.strip()


def inspected(folder, paths, layout):
    done = must("data", "inspect", "--json", "--together", "--layout", layout, *(os.path.join(folder, path) for path in paths))
    return json.loads(done.stdout)[0]


@pytest.mark.parametrize("name", FILES)
def test_a_suggestion_is_trained_on_as_it_stands_and_dumps_what_others_read(scratch, name):
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
    assert Path(scratch, "run/operator").is_dir() or any(Path(scratch, "run").glob("*operator*"))
