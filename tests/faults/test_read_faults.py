"""Reading that fails, comes back short or is interrupted, and files that lose their second half while they are read: by
UPS's own threads, by the HDF5 library and by NetCDF-C, and caches. Each ends in the right bytes or in exit code 1 with one
sentence that names the file; no signal, nothing written. (io_uring is looked after by the loader's own tests, through its
seam: tests/pipeline/test_loader_faults.c.)"""

import os
import re
import shutil
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest

from commands import ups
from injection import numbers, with_fault
from tiny_run import tree, Sandbox

VALUES = np.linspace(-1, 1, 4 * 9 * 256, dtype=np.float32).reshape(4, 9, 256)


def write_hdf5(path, **storage):
    with h5py.File(path, "w") as file:
        file.create_dataset("tensor", data=VALUES, **storage)
        file["t-coordinate"] = np.arange(10, dtype=np.float32)
        file["x-coordinate"] = np.linspace(0, 1, 256, dtype=np.float32)


def write_netcdf(path, form, times=9):
    """`times` None: as many as are written; records, in the classic formats."""
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("time", times)
        file.createDimension("x", 256)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(9)
        file.createVariable("x", "f8", ("x",))[:] = np.linspace(0, 1, 256)
        file.createVariable("u", "f4", ("time", "x"))[:] = VALUES[0]


def write_shorter(path):
    """`v` ends within a chunk of the unlimited dimension, which NetCDF-C alone can say."""
    write_netcdf(path, "NETCDF4", None)
    with netCDF4.Dataset(path, "a") as file:
        file.createVariable("v", "f4", ("time", "x"), chunksizes=(4, 64))[0:7] = VALUES[1, 0:7]


def write_attributes(path):
    """Fields that are datasets of their own, and parameters of every kind: much that could be taken for absent."""
    with h5py.File(path, "w") as file:
        for i, name in enumerate(("density", "pressure", "Vx")):
            file[name] = VALUES[:3, i:i + 5, :16]
        file["t-coordinate"], file["x-coordinate"] = np.arange(6.0), np.arange(16.0)
        file.attrs["eta"], file.attrs["bc"], file.attrs["config"] = 0.1, "periodic", "sim:\n  M: 0.5\n"


SAMPLES = 6  # of the run's own data


@pytest.fixture(scope="module")
def sandbox(runs):
    made = Sandbox(runs)
    write_hdf5(made.path("plain.h5"))
    write_hdf5(made.path("gzip.h5"), chunks=(1, 4, 64), compression="gzip", shuffle=True)
    write_hdf5(made.path("unusual.h5"), chunks=(1, 4, 64), scaleoffset=4)  # by the library alone
    write_attributes(made.path("attributes.h5"))
    write_netcdf(made.path("classic.nc"), "NETCDF3_64BIT_OFFSET")
    write_netcdf(made.path("records.nc"), "NETCDF3_64BIT_DATA", None)
    write_netcdf(made.path("four.nc"), "NETCDF4")
    write_shorter(made.path("shorter.nc"))
    config = runs.config("run")
    runs.must("train", config, "--stage", "autoencoder")
    runs.must("cache", "build", config)
    shutil.copytree(runs.path("run", "cache"), made.path("cache"))
    made.keep("kept")
    return made


def written(output):
    return tree(output) if output and os.path.isdir(output) else output and Path(output).read_bytes()


def try_all(sandbox, part, output, *arguments):
    """`part` of the paths that are read; `output` is what the command writes; None: what it prints, alone."""
    sandbox.begin("kept")
    done, struck = with_fault(sandbox, arguments, f"read:1+:none:{part}")
    assert done.returncode == 0, done.stderr
    expected, said = written(output), done.stdout
    assert struck, "no read was seen: the faults do not reach the command"
    for how in (":EIO", ":cut", "+:short", ":EINTR"):
        for n in numbers(len(struck)):
            sandbox.begin("kept")
            done, met = with_fault(sandbox, arguments, f"read:{n}{how}:{part}")
            if how in (":EIO", ":cut") and done.returncode == 1:
                assert re.fullmatch(f"ups: .*{re.escape(part)}.*\n", done.stderr), met
                assert not (output and os.path.exists(output)), met
            else:
                assert done.returncode == 0, f"{done.stderr} {met}"
                assert (written(output), done.stdout) == (expected, said), met


def dump(sandbox, name, way):
    output = sandbox.path("dump.npy")
    try_all(sandbox, "/sandbox/" + name, output, "data", "dump", sandbox.path(name), "-o", output, "--io", way)


@pytest.mark.parametrize("name, way", [("plain.h5", "threads"), ("gzip.h5", "threads"), ("attributes.h5", "threads"), ("plain.h5", "library"),
                                       ("gzip.h5", "library"), ("unusual.h5", "library"), ("classic.nc", "threads"), ("records.nc", "threads"),
                                       ("four.nc", "threads"), ("four.nc", "library")])
def test_hdf5_and_netcdf_by_threads_and_by_libraries(sandbox, name, way):
    dump(sandbox, name, way)


def test_netcdf_by_netcdf_c(sandbox):
    sandbox.begin("kept")
    found = ups("data", "inspect", sandbox.path("shorter.nc"))
    if "which this build is without" in found.stderr:
        pytest.skip("this build is without NetCDF-C")
    assert "read through the library" in found.stdout
    dump(sandbox, "shorter.nc", "threads")


@pytest.mark.parametrize("name", ["attributes.h5", "records.nc", "shorter.nc"])
def test_what_files_contain(sandbox, name):
    try_all(sandbox, "/sandbox/" + name, None, "data", "inspect", "--json", sandbox.path(name))


def test_caches(sandbox):
    output = sandbox.path("latents.npy")
    try_all(sandbox, "/sandbox/cache/", output, "cache", "export", sandbox.path("cache", "advection", "train"), "-o", output)
