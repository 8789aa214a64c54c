"""Data that an HDF5 file keeps in other files: all of it is there and lies where it may, or one sentence says what is
missing or where it leads. Usage: test_elsewhere.py UPS"""

import os
import re
import shutil
import sys
import tempfile
import unittest

import h5py
import numpy as np

from skipping import main
from tiny_run import CONFIG, Runs

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"
SAMPLES, TIMES, POINTS = 4, 9, 32
SHAPE = (SAMPLES, TIMES, POINTS)
UNLIMITED = h5py.h5s.UNLIMITED


def values(shape=SHAPE):
    return np.random.default_rng(3).standard_normal(shape).astype("f4")


def axes(file):
    file["x-coordinate"], file["t-coordinate"] = np.linspace(0, 1, POINTS), np.linspace(0, 1, TIMES)


class Elsewhere(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS, samples=2)

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=self.runs.folder)
        self.data = os.path.join(self.folder, "data")
        self.outside = os.path.join(self.folder, "outside")
        os.mkdir(self.data)
        os.mkdir(self.outside)
        self.plain("source.h5")

    def path(self, name):
        return os.path.join(self.data, name)

    def plain(self, name, content=None, **options):
        """A file with all its data in it."""
        content = values() if content is None else content
        with h5py.File(self.path(name), "w") as file:
            file.create_dataset("tensor", data=content, **options)
            axes(file)
        return content

    def virtual(self, name, source, dataset="tensor", shape=SHAPE):
        with h5py.File(self.path(name), "w", libver=("earliest", "v110")) as file:
            layout = h5py.VirtualLayout(shape, "f4")
            layout[...] = h5py.VirtualSource(source, dataset, shape)
            file.create_virtual_dataset("tensor", layout)
            axes(file)
        return self.path(name)

    def growing(self, name, mappings):
        """A virtual dataset without end along the samples: of (source, dataset, block, x), `block` samples each in
        numbered files, or of one source that has no end either, from grid point x on."""
        with h5py.File(self.path(name), "w", libver=("earliest", "v110")) as file:
            place = h5py.h5s.create_simple(SHAPE, (UNLIMITED, *SHAPE[1:]))
            creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            for source, dataset, block, x, points in mappings:
                if block:
                    place.select_hyperslab((0, 0, x), (UNLIMITED, 1, 1), (block, 1, 1), (block, TIMES, points))
                    taken = h5py.h5s.create_simple((block, TIMES, points))
                else:
                    place.select_hyperslab((0, 0, x), (1, 1, 1), (1, 1, 1), (UNLIMITED, TIMES, points))
                    taken = h5py.h5s.create_simple((SAMPLES, TIMES, points), (UNLIMITED, TIMES, points))
                    taken.select_hyperslab((0, 0, 0), (1, 1, 1), (1, 1, 1), (UNLIMITED, TIMES, points))
                creation.set_virtual(place, source.encode(), dataset.encode(), taken)
            h5py.h5d.create(file.id, b"tensor", h5py.h5t.IEEE_F32LE, place, creation)
            axes(file)
        return self.path(name)

    def external(self, name, raw, offset=0, write=True):
        with h5py.File(self.path(name), "w") as file:
            where = {"external": [(raw, offset, UNLIMITED)]}
            if write:
                file.create_dataset("tensor", data=values(), **where)
            else:
                file.create_dataset("tensor", SHAPE, "f4", **where)
            axes(file)
        return self.path(name)

    def link(self, name, target):
        with h5py.File(self.path(name), "w") as file:
            file["tensor"] = h5py.ExternalLink(target, "tensor")
            axes(file)
        return self.path(name)

    def read(self, path):
        out = os.path.join(self.folder, "out.npy")
        self.runs.must("data", "dump", path, "--sample", str(SAMPLES - 1), "-o", out)
        return np.load(out)[..., 0]

    def refused(self, path, *parts):
        out = os.path.join(self.folder, "refused.npy")
        for command in (["data", "inspect", path], ["data", "dump", path, "--io", "library", "-o", out]):
            with self.subTest(command[1]):
                self.one_sentence(self.runs.run(*command), re.escape(path), *parts)
        self.assertFalse(os.path.exists(out))

    def one_sentence(self, done, *parts):
        self.assertEqual(done.returncode, 1, done.stderr + done.stdout)
        lines = [line for line in done.stderr.splitlines() if line.startswith("ups")]
        self.assertEqual(len(lines), 1, done.stderr)
        for part in parts:
            self.assertRegex(lines[0], part)

    def config(self, path, root=None):
        text = CONFIG.replace("files: [advection.h5]", f"files: [{path}]").replace("files: [darcy.h5]", f"files: [{self.runs.data}/darcy.h5]")
        return self.runs.config("of_" + os.path.basename(self.folder), text, data=root or self.data)

    # ---- virtual datasets ----

    def test_a_virtual_dataset_is_read_with_all_its_sources(self):
        self.assertTrue(np.array_equal(self.read(self.virtual("v.h5", "source.h5")), values()[-1]))
        self.assertTrue(np.array_equal(self.read(self.virtual("w.h5", "v.h5")), values()[-1]), "a virtual dataset of a virtual dataset")
        with h5py.File(self.virtual("own.h5", ".", "other"), "r+") as file:
            file["other"] = values()
        self.assertTrue(np.array_equal(self.read(self.path("own.h5")), values()[-1]), "of the file itself")

    def test_a_virtual_dataset_without_its_source_is_refused(self):
        path, missing = self.virtual("v.h5", "gone.h5"), r"missing: dataset 'tensor' of the file gone\.h5"
        self.refused(path, "'tensor'", missing)
        self.one_sentence(self.runs.run("train", self.config(path), "--plan"), re.escape(path), "'tensor'", missing)
        self.refused(self.virtual("v.h5", "source.h5", "absent"), "'tensor'", r"dataset 'absent' of the file source\.h5")
        self.virtual("v.h5", "gone.h5")
        self.refused(self.virtual("w.h5", "v.h5"), r"dataset 'tensor' of the file gone\.h5")

    def test_a_virtual_dataset_of_a_damaged_source_is_refused(self):
        with open(self.path("damaged.h5"), "wb") as file:
            file.write(b"x" * 5000)
        self.refused(self.virtual("v.h5", "damaged.h5"), r"damaged\.h5, a source of the virtual dataset 'tensor', cannot be read")

    def test_a_virtual_dataset_of_a_source_that_is_too_small_is_refused(self):
        self.refused(self.virtual("v.h5", "source.h5", shape=(2 * SAMPLES, *SHAPE[1:])), r"source\.h5", "smaller")

    def test_a_virtual_dataset_that_refers_to_itself_is_refused(self):
        self.refused(self.virtual("v.h5", "."), "'tensor'", "refers to itself")
        self.refused(self.virtual("v.h5", "v.h5"), "'tensor'", "refers to itself")
        self.refused(self.growing("v.h5", [("v.h5", "tensor", 0, 0, POINTS)]), "'tensor'", "refers to itself")
        self.virtual("a.h5", "b.h5")
        self.refused(self.virtual("b.h5", "a.h5"), "'tensor'", "refers to itself")

    def test_numbered_sources_are_read_up_to_the_last(self):
        for number in range(SAMPLES // 2):
            self.plain(f"part-{number}.h5", values()[2 * number:2 * number + 2])
        path = self.growing("v.h5", [("part-%b.h5", "tensor", 2, 0, POINTS)])
        self.assertTrue(np.array_equal(self.read(path), values()[-1]))

    def test_a_numbered_source_that_is_missing_is_named(self):
        path = self.growing("v.h5", [("part-%b.h5", "tensor", 2, 0, POINTS)])
        self.refused(path, r"missing: dataset 'tensor' of the file part-0\.h5")
        for number in (0, 1, 3):
            self.plain(f"part-{number}.h5", values()[:2])
        self.refused(path, r"missing: dataset 'tensor' of the file part-2\.h5")

    def test_views_of_growing_sources_are_read_where_they_are_of_one_length(self):
        half = POINTS // 2
        for name, samples in (("left.h5", SAMPLES), ("right.h5", SAMPLES), ("short.h5", SAMPLES - 1)):
            content = values()[:samples, :, :half] if name == "left.h5" else values()[:samples, :, half:]
            self.plain(name, content, maxshape=(None, TIMES, half))
        path = self.growing("v.h5", [("left.h5", "tensor", 0, 0, half), ("right.h5", "tensor", 0, half, half)])
        self.assertTrue(np.array_equal(self.read(path), values()[-1]))
        path = self.growing("v.h5", [("left.h5", "tensor", 0, 0, half), ("short.h5", "tensor", 0, half, half)])
        self.refused(path, "'tensor'", "axis 0", f"{SAMPLES - 1} entries, another for {SAMPLES}")
        path = self.growing("v.h5", [("left.h5", "tensor", 0, 0, half), ("gone.h5", "tensor", 0, half, half)])
        self.refused(path, r"missing: dataset 'tensor' of the file gone\.h5")

    # ---- where other files may lie ----

    def put_outside(self):
        """Names by which a file in data/ may try to reach one that lies beside that folder."""
        shutil.copy(self.path("source.h5"), self.outside)
        os.symlink(os.path.join(self.outside, "source.h5"), self.path("link.h5"))
        os.symlink(self.outside, self.path("folder"))
        return "../outside/source.h5", os.path.join(self.outside, "source.h5"), "link.h5", "folder/source.h5"

    def test_files_outside_are_not_reached_by_virtual_datasets(self):
        for target in self.put_outside():
            with self.subTest(target):
                self.refused(self.virtual("v.h5", target), re.escape(os.path.join(self.outside, "source.h5")), "does not lie below", "data.root")

    def test_files_outside_are_not_reached_by_external_links(self):
        for target in self.put_outside():
            with self.subTest(target):
                self.refused(self.link("v.h5", target), re.escape(os.path.join(self.outside, "source.h5")), "does not lie below", "data.root")

    def test_files_outside_are_not_reached_by_external_storage(self):
        for target in ("/etc/passwd", os.path.join(self.outside, "raw")):
            with self.subTest(target):
                path = self.external("v.h5", target, write=not target.startswith("/etc"))
                self.refused(path, re.escape(target), "does not lie below", "data.root")

    def test_below_data_root_files_may_refer_to_each_other(self):
        self.put_outside()
        path = self.virtual("v.h5", "../outside/source.h5")
        self.runs.must("train", self.config(path, root=self.folder), "--plan")
        self.one_sentence(self.runs.run("train", self.config(path), "--plan"), re.escape(path), "does not lie below")
        self.runs.must("train", self.config(self.link("v.h5", "../outside/source.h5"), root=self.folder), "--plan")

    def test_a_link_to_a_file_may_refer_to_what_lies_beside_that_file(self):
        self.virtual("v.h5", "source.h5")
        os.symlink(self.path("v.h5"), os.path.join(self.outside, "v.h5"))
        self.assertTrue(np.array_equal(self.read(os.path.join(self.outside, "v.h5")), values()[-1]))

    # ---- external links and storage ----

    def test_what_lies_behind_an_external_link_is_read_or_missed(self):
        self.assertTrue(np.array_equal(self.read(self.link("v.h5", "source.h5")), values()[-1]))
        self.refused(self.link("v.h5", "gone.h5"), "'/tensor'", "external link", r"missing: .*gone\.h5")

    def test_external_storage_is_read_or_missed(self):
        raw = self.path("raw")
        self.assertTrue(np.array_equal(self.read(self.external("v.h5", raw)), values()[-1]))
        self.refused(self.external("v.h5", raw, offset=100, write=False), "'tensor'", re.escape(raw), "cut short")
        os.remove(raw)
        self.refused(self.path("v.h5"), "'tensor'", re.escape(raw), "missing")

    def test_prefixes_of_the_environment_lead_nowhere_else(self):
        self.put_outside()
        external, virtual = self.external("e.h5", self.path("raw")), self.virtual("v.h5", "source.h5")
        for variable, path, other in ("HDF5_EXTFILE_PREFIX", external, virtual), ("HDF5_VDS_PREFIX", virtual, external):
            prefix = {**os.environ, variable: self.outside}
            out = os.path.join(self.folder, "out.npy")
            self.one_sentence(self.runs.run("data", "dump", path, "-o", out, env=prefix), re.escape(path), variable, "unset it")
            self.assertEqual(self.runs.run("data", "dump", other, "-o", out, env=prefix).returncode, 0)

    def test_what_is_no_regular_file_is_not_waited_for(self):
        os.mkfifo(self.path("pipe"))
        self.refused(self.virtual("v.h5", "pipe"), re.escape(self.path("pipe")), "a named pipe")
        self.refused(self.link("v.h5", "pipe"), re.escape(self.path("pipe")), "a named pipe")
        self.refused(self.external("v.h5", self.path("pipe"), write=False), re.escape(self.path("pipe")), "no regular file")


if __name__ == "__main__":
    main()
