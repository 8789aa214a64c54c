"""Reading that fails, comes back short or is interrupted, and files that lose their second half while they are read: by
UPS's own threads, by the HDF5 library and by NetCDF-C, and caches. Each ends in the right bytes or in exit code 1 with one
sentence that names the file; no signal, nothing written. (io_uring is looked after by the loader's own tests, through its
seam: tests/pipeline/test_loader_faults.c.)

Usage: test_read_faults.py UPS FAULTS [TEST...]. FAULTS is the library made of faults.c. UPS_TEST_FAULTS=all tries every
read, otherwise some at random."""

import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import netCDF4
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from tiny_run import PATIENCE, Runs, tree  # noqa: E402

UPS = os.path.abspath(sys.argv.pop(1))
FAULTS = os.path.abspath(sys.argv.pop(1))
ALL = os.environ.get("UPS_TEST_FAULTS") == "all"
FEW = 1
VALUES = np.linspace(-1, 1, 4 * 9 * 256, dtype=np.float32).reshape(4, 9, 256)


def write_hdf5(path, **storage):
    with h5py.File(path, "w") as file:
        file.create_dataset("tensor", data=VALUES, **storage)
        file["t-coordinate"] = np.arange(10, dtype=np.float32)
        file["x-coordinate"] = np.linspace(0, 1, 256, dtype=np.float32)


def write_netcdf(path, form):
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("time", 9)
        file.createDimension("x", 256)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(9)
        file.createVariable("x", "f8", ("x",))[:] = np.linspace(0, 1, 256)
        file.createVariable("u", "f4", ("time", "x"))[:] = VALUES[0]


class ReadFaults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK):
            tempfile.tempdir = "/dev/shm"
        cls.runs = Runs(UPS, samples=6)
        cls.kept, cls.place = cls.runs.path("kept"), cls.runs.path("place")
        os.mkdir(cls.kept)
        write_hdf5(os.path.join(cls.kept, "plain.h5"))
        write_hdf5(os.path.join(cls.kept, "gzip.h5"), chunks=(1, 4, 64), compression="gzip", shuffle=True)
        write_hdf5(os.path.join(cls.kept, "unusual.h5"), chunks=(1, 4, 64), scaleoffset=4)  # by the library alone
        write_netcdf(os.path.join(cls.kept, "classic.nc"), "NETCDF3_64BIT_OFFSET")
        write_netcdf(os.path.join(cls.kept, "four.nc"), "NETCDF4")
        config = cls.runs.config("run")
        cls.runs.must("train", config, "--stage", "autoencoder")
        cls.runs.must("cache", "build", config)
        shutil.copytree(cls.runs.path("run", "cache"), os.path.join(cls.kept, "cache"))

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def begin(self):
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.kept, self.place)

    def with_fault(self, arguments, fault):
        report = self.runs.path("report")
        if os.path.exists(report):
            os.remove(report)
        environment = {**os.environ, "LD_PRELOAD": FAULTS, "UPS_FAULT": fault, "UPS_FAULT_REPORT": report,
                       "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}
        done = subprocess.run([UPS, *arguments, "--quiet"], capture_output=True, text=True, timeout=PATIENCE,
                              env=environment)
        with open(report, encoding="utf-8") if os.path.exists(report) else open(os.devnull, encoding="utf-8") as file:
            return done, file.read().splitlines()

    def written(self, output):
        if os.path.isdir(output):
            return tree(output)
        with open(output, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def try_all(self, part, output, *arguments, hows=(":EIO", ":cut", "+:short", ":EINTR")):
        """`part` of the paths that are read; `output` is what the command writes."""
        self.begin()
        done, struck = self.with_fault(arguments, f"read:1+:none:{part}")
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = self.written(output)
        numbers = range(1, len(struck) + 1)
        for how in hows:
            for n in numbers if ALL or len(struck) <= FEW else sorted(random.sample(numbers, FEW)):
                with self.subTest(command=arguments, n=n, how=how):
                    self.begin()
                    done, struck = self.with_fault(arguments, f"read:{n}{how}:{part}")
                    what = f"{done.stderr} {struck[:1]}"
                    if how in (":EIO", ":cut") and done.returncode == 1:
                        lines = done.stderr.splitlines()
                        self.assertEqual(len(lines), 1, what)
                        self.assertRegex(lines[0], "^ups: .*" + re.escape(part), what)
                        self.assertFalse(os.path.exists(output), what)
                    else:
                        self.assertEqual(done.returncode, 0, what)
                        self.assertEqual(self.written(output), expected, what)

    def dump(self, name, way, **options):
        output = os.path.join(self.place, "dump.npy")
        self.try_all("/place/" + name, output, "data", "dump", os.path.join(self.place, name), "-o", output, "--io", way,
                     **options)

    def test_hdf5_by_threads(self):
        for name in ("plain.h5", "gzip.h5"):
            self.dump(name, "threads")

    def test_hdf5_by_the_library(self):
        for name in ("plain.h5", "gzip.h5", "unusual.h5"):
            self.dump(name, "library")

    def test_netcdf_by_threads(self):
        for name in ("classic.nc", "four.nc"):
            self.dump(name, "threads")

    def test_netcdf_by_the_library(self):
        self.dump("classic.nc", "library", hows=(":EIO", ":cut"))  # NetCDF-C takes a short read for the end of the file
        self.dump("four.nc", "library")

    def test_caches(self):
        output = os.path.join(self.place, "latents.npy")
        self.try_all("/place/cache/", output, "cache", "export", os.path.join(self.place, "cache", "advection", "train"),
                     "-o", output)


if __name__ == "__main__":
    unittest.main()
