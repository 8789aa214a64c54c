"""Where the machine has no more to give (ulimit -f, -n, -v): a command does its work or ends with one sentence that says
which limit it met, never by a signal, and leaves nothing half-written. Usage: test_limits.py UPS"""

import os
import re
import resource
import shutil
import subprocess
import sys
import unittest

import h5py
import numpy as np

from skipping import main
from tiny_run import PATIENCE, Runs, tree

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"
KIB, MIB = 1 << 10, 1 << 20


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS)
        cls.runs.must("train", cls.runs.config("trained"), "--quiet")

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def limited(self, limit, value, *arguments):
        return subprocess.run([UPS, *arguments, "--quiet"], capture_output=True, text=True, timeout=PATIENCE,
                              preexec_fn=lambda: resource.setrlimit(limit, (value, value)))

    def own_run(self):
        name = self.id().rpartition(".")[2]
        return self.runs.copy(name, "trained"), self.runs.path(name)

    def commands(self, config, folder):
        """What reads and what writes; the last two begin with nothing but a model, or nothing."""
        field, group = os.path.join(self.runs.data, "advection.h5"), os.path.join(folder, "cache", "advection", "train")
        yield ["data", "dump", field, "-o", os.path.join(folder, "dump.npy")]
        yield ["datagen", "advection1d", "-o", os.path.join(folder, "made.h5"), "-n", "8", "-r", "64", "-s", "20"]
        yield ["cache", "inspect", os.path.join(folder, "cache"), "--html", os.path.join(folder, "page.html")]
        yield ["cache", "export", group, "-o", os.path.join(folder, "latents.npy")]
        yield ["cache", "export", group, "-f", "hdf5", "-o", os.path.join(folder, "latents.h5")]
        yield ["eval", config]
        yield ["rollout", config, "-o", os.path.join(folder, "rollout.h5")]
        shutil.rmtree(os.path.join(folder, "cache"))
        yield ["cache", "build", config]
        shutil.rmtree(folder)
        yield ["train", config]

    def one_sentence(self, done, *parts):
        self.assertEqual(done.returncode, 1, done.stderr + done.stdout)
        lines = [line for line in done.stderr.splitlines() if line.startswith("ups: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        for part in parts:
            self.assertRegex(lines[0], part)

    def nothing_half_written(self, before):
        after = tree(self.runs.folder)
        self.assertEqual([name for name in after if "partial" in name], [])
        for name in after.keys() - before.keys():
            self.assertFalse(name.endswith((".npy", ".h5", ".html", ".safetensors")), name)

    def test_a_limit_on_file_size_is_told_and_leaves_nothing_half_written(self):
        for kib in (0, 1):
            config, folder = self.own_run()
            for command in self.commands(config, folder):
                with self.subTest(command[:2], kib=kib):
                    before = tree(self.runs.folder)
                    done = self.limited(resource.RLIMIT_FSIZE, kib * KIB, *command)
                    self.one_sentence(done, re.escape(folder), r"the limit on file size \(ulimit -f\) was reached")
                    self.nothing_half_written(before)
            shutil.rmtree(folder, ignore_errors=True)

    def test_little_address_space_is_no_reason_to_crash(self):
        field = os.path.join(self.runs.data, "advection.h5")
        for mib in (110, 125, 150, 200, 400, 1000, 2000):
            config, folder = self.own_run()
            for command in [["data", "inspect", field], *self.commands(config, folder)] if mib < 200 else [["cache", "build", config], ["train", config]]:
                with self.subTest(command[:2], mib=mib):
                    done = self.limited(resource.RLIMIT_AS, mib * MIB, *command)
                    self.assertIn(done.returncode, (0, 1, 127), done.stderr)  # 127: not even the libraries find room
                    self.assertNotRegex(done.stderr, "damaged|copy or generate")
                    if done.returncode == 1:
                        self.assertRegex(done.stderr, "ups: |libgomp: ")
            shutil.rmtree(folder, ignore_errors=True)

    def test_a_coordinate_larger_than_the_address_space_is_told(self):
        path, points = self.runs.path("long.h5"), 1 << 24
        with h5py.File(path, "w") as file:
            file.create_dataset("tensor", (1, 2, points), "f4", chunks=(1, 1, points))
            file.create_dataset("x-coordinate", (points,), "f8", chunks=(1 << 20,))
            file["t-coordinate"] = [0.0, 1.0]
        self.runs.must("data", "inspect", path)
        for mib in (150, 180):
            done = self.limited(resource.RLIMIT_AS, mib * MIB, "data", "inspect", path)
            self.one_sentence(done, "memory")
            self.assertNotRegex(done.stderr, "damaged|copy or generate")

    def test_files_are_not_called_damaged_where_descriptors_run_out(self):
        field = os.path.join(self.runs.data, "advection.h5")
        met = 0
        for count in range(3, 12):
            for command in (["data", "inspect", field], ["data", "dump", field, "-o", self.runs.path("dump.npy")],
                            ["train", self.runs.config("few"), "--plan"]):
                with self.subTest(command[:2], count=count):
                    done = self.limited(resource.RLIMIT_NOFILE, count, *command)
                    self.assertIn(done.returncode, (0, 1, 127), done.stderr)
                    if done.returncode == 1:
                        met += 1
                        self.one_sentence(done, "ulimit -n")
                    self.assertNotRegex(done.stderr, "damaged|copy or generate")
        self.assertGreater(met, 0)

    def test_sources_of_a_virtual_dataset_are_not_called_missing_where_descriptors_run_out(self):
        folder = self.runs.path("virtual")
        os.mkdir(folder)
        layout, parts = h5py.VirtualLayout((12, 9, 32), "f4"), 12
        for i in range(parts):
            with h5py.File(os.path.join(folder, f"part{i}.h5"), "w") as file:
                file["data"] = np.full((9, 32), i + 1, "f4")
            layout[i] = h5py.VirtualSource(f"part{i}.h5", "data", (9, 32))
        path = os.path.join(folder, "whole.h5")
        with h5py.File(path, "w", libver=("earliest", "v110")) as file:
            file.create_virtual_dataset("tensor", layout)
            file["x-coordinate"], file["t-coordinate"] = np.linspace(0, 1, 32), np.linspace(0, 1, 9)
        out, met = self.runs.path("virtual.npy"), 0
        for count in range(4, 12):
            done = self.limited(resource.RLIMIT_NOFILE, count, "data", "dump", path, "--sample", "11", "-o", out)
            if done.returncode == 0:
                self.assertTrue((np.load(out) == parts).all(), count)
                continue
            met += 1
            self.one_sentence(done, "ulimit -n")
        self.assertGreater(met, 0)


if __name__ == "__main__":
    main()
