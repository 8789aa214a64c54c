"""Reading that fails, comes back short or is interrupted, and files that lose their second half while they are read: by
UPS's own threads, by the HDF5 library and by NetCDF-C, and caches. Each ends in the right bytes or in exit code 1 with one
sentence that names the file; no signal, nothing written. (io_uring is looked after by the loader's own tests, through its
seam: tests/pipeline/test_loader_faults.c.)

Usage: test_read_faults.py UPS FAULTS [TEST...]. UPS_TEST_FAULTS=all tries every read, otherwise some at random."""

import hashlib
import os
import re
import shutil
import unittest

import h5py
import netCDF4
import numpy as np

from injection import FaultTests
from skipping import main
from tiny_run import tree

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


class ReadFaults(FaultTests):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kept = cls.runs.path("kept")
        os.mkdir(cls.kept)
        write_hdf5(os.path.join(cls.kept, "plain.h5"))
        write_hdf5(os.path.join(cls.kept, "gzip.h5"), chunks=(1, 4, 64), compression="gzip", shuffle=True)
        write_hdf5(os.path.join(cls.kept, "unusual.h5"), chunks=(1, 4, 64), scaleoffset=4)  # by the library alone
        write_attributes(os.path.join(cls.kept, "attributes.h5"))
        write_netcdf(os.path.join(cls.kept, "classic.nc"), "NETCDF3_64BIT_OFFSET")
        write_netcdf(os.path.join(cls.kept, "records.nc"), "NETCDF3_64BIT_DATA", None)
        write_netcdf(os.path.join(cls.kept, "four.nc"), "NETCDF4")
        write_shorter(os.path.join(cls.kept, "shorter.nc"))
        config = cls.runs.config("run")
        cls.runs.must("train", config, "--stage", "autoencoder")
        cls.runs.must("cache", "build", config)
        shutil.copytree(cls.runs.path("run", "cache"), os.path.join(cls.kept, "cache"))

    def begin(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.kept, self.folder)

    def written(self, output):
        if output is None:
            return None
        if os.path.isdir(output):
            return tree(output)
        with open(output, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def try_all(self, part, output, *arguments):
        """`part` of the paths that are read; `output` is what the command writes; None: what it prints, alone."""
        self.begin()
        done, struck = self.with_fault(arguments, f"read:1+:none:{part}")
        self.assertEqual(done.returncode, 0, done.stderr)
        expected, said = self.written(output), done.stdout
        reads = len(struck)
        self.assertGreater(reads, 0, "no read was seen: the faults do not reach the command")
        for how in (":EIO", ":cut", "+:short", ":EINTR"):
            for n in self.numbers(reads):
                with self.subTest(command=arguments, n=n, how=how):
                    self.begin()
                    done, struck = self.with_fault(arguments, f"read:{n}{how}:{part}")
                    what = f"{done.stderr} {struck[:1]}"
                    if how in (":EIO", ":cut") and done.returncode == 1:
                        lines = done.stderr.splitlines()
                        self.assertEqual(len(lines), 1, what)
                        self.assertRegex(lines[0], "^ups: .*" + re.escape(part), what)
                        self.assertFalse(output and os.path.exists(output), what)
                    else:
                        self.assertEqual(done.returncode, 0, what)
                        self.assertEqual(self.written(output), expected, what)
                        self.assertEqual(done.stdout, said, what)

    def dump(self, name, way):
        output = os.path.join(self.folder, "dump.npy")
        self.try_all("/place/" + name, output, "data", "dump", os.path.join(self.folder, name), "-o", output, "--io", way)

    def test_hdf5_by_threads(self):
        for name in ("plain.h5", "gzip.h5", "attributes.h5"):
            self.dump(name, "threads")

    def test_hdf5_by_the_library(self):
        for name in ("plain.h5", "gzip.h5", "unusual.h5"):
            self.dump(name, "library")

    def test_netcdf_by_threads(self):
        for name in ("classic.nc", "records.nc", "four.nc"):
            self.dump(name, "threads")

    def test_netcdf_by_hdf5(self):
        self.dump("four.nc", "library")

    def test_netcdf_by_netcdf_c(self):
        found = self.runs.run("data", "inspect", os.path.join(self.kept, "shorter.nc"))
        if "which this build is without" in found.stderr:
            self.skipTest("this build is without NetCDF-C")
        self.assertIn("read through the library", found.stdout)
        self.dump("shorter.nc", "threads")

    def test_what_files_contain(self):
        for name in ("attributes.h5", "records.nc", "shorter.nc"):
            self.try_all("/place/" + name, None, "data", "inspect", "--json", os.path.join(self.folder, name))

    def test_caches(self):
        output = os.path.join(self.folder, "latents.npy")
        self.try_all("/place/cache/", output, "cache", "export", os.path.join(self.folder, "cache", "advection", "train"),
                     "-o", output)


if __name__ == "__main__":
    main()
