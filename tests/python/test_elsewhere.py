"""Data that an HDF5 file keeps in other files: all of it is there and lies where it may, or one sentence says what is
missing or where it leads."""

import os
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from commands import must, one_sentence, ups
from tiny_run import CONFIG

COUNT, TIMES, POINTS = 4, 9, 32
SHAPE = (COUNT, TIMES, POINTS)
SAMPLES = 2  # of the runs' own data
UNLIMITED = h5py.h5s.UNLIMITED


def values(shape=SHAPE):
    return np.random.default_rng(3).standard_normal(shape).astype("f4")


def axes(file):
    file["x-coordinate"], file["t-coordinate"] = np.linspace(0, 1, POINTS), np.linspace(0, 1, TIMES)


@pytest.fixture
def place(scratch):
    """A folder with data/source.h5 and the empty folder outside/."""
    os.mkdir(os.path.join(scratch, "data"))
    os.mkdir(os.path.join(scratch, "outside"))
    plain(scratch, "source.h5")
    return scratch


def inside(place, name):
    return os.path.join(place, "data", name)


def plain(place, name, content=None, **options):
    """A file with all its data in it."""
    content = values() if content is None else content
    with h5py.File(inside(place, name), "w") as file:
        file.create_dataset("tensor", data=content, **options)
        axes(file)
    return content


def virtual(place, name, source, dataset="tensor", shape=SHAPE):
    with h5py.File(inside(place, name), "w", libver=("earliest", "v110")) as file:
        layout = h5py.VirtualLayout(shape, "f4")
        layout[...] = h5py.VirtualSource(source, dataset, shape)
        file.create_virtual_dataset("tensor", layout)
        axes(file)
    return inside(place, name)


def growing(place, name, mappings):
    """A virtual dataset without end along the samples: of (source, dataset, block, x), `block` samples each in
    numbered files, or of one source that has no end either, from grid point x on."""
    with h5py.File(inside(place, name), "w", libver=("earliest", "v110")) as file:
        whole = h5py.h5s.create_simple(SHAPE, (UNLIMITED, *SHAPE[1:]))
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        for source, dataset, block, x, points in mappings:
            if block:
                whole.select_hyperslab((0, 0, x), (UNLIMITED, 1, 1), (block, 1, 1), (block, TIMES, points))
                taken = h5py.h5s.create_simple((block, TIMES, points))
            else:
                whole.select_hyperslab((0, 0, x), (1, 1, 1), (1, 1, 1), (UNLIMITED, TIMES, points))
                taken = h5py.h5s.create_simple((COUNT, TIMES, points), (UNLIMITED, TIMES, points))
                taken.select_hyperslab((0, 0, 0), (1, 1, 1), (1, 1, 1), (UNLIMITED, TIMES, points))
            creation.set_virtual(whole, source.encode(), dataset.encode(), taken)
        h5py.h5d.create(file.id, b"tensor", h5py.h5t.IEEE_F32LE, whole, creation)
        axes(file)
    return inside(place, name)


def external(place, name, raw, offset=0, write=True):
    with h5py.File(inside(place, name), "w") as file:
        where = {"external": [(raw, offset, UNLIMITED)]}
        if write:
            file.create_dataset("tensor", data=values(), **where)
        else:
            file.create_dataset("tensor", SHAPE, "f4", **where)
        axes(file)
    return inside(place, name)


def link(place, name, target):
    with h5py.File(inside(place, name), "w") as file:
        file["tensor"] = h5py.ExternalLink(target, "tensor")
        axes(file)
    return inside(place, name)


def read(place, path):
    out = os.path.join(place, "out.npy")
    must("data", "dump", path, "--sample", str(COUNT - 1), "--force", "-o", out)
    return np.load(out)[..., 0]


def refused(place, path, *parts):
    out = os.path.join(place, "refused.npy")
    for command in (["data", "inspect", path], ["data", "dump", path, "--io", "library", "-o", out]):
        one_sentence(ups(*command), re.escape(path), *parts)
    assert not os.path.exists(out)


def config(runs, place, path, root=None):
    text = CONFIG.replace("files: [advection.h5]", f"files: [{path}]").replace("files: [darcy.h5]", f"files: [{runs.data}/darcy.h5]")
    return runs.config("of_" + os.path.basename(place), text, data=root or os.path.join(place, "data"))


# ---- virtual datasets ----

def test_a_virtual_dataset_is_read_with_all_its_sources(place):
    assert np.array_equal(read(place, virtual(place, "v.h5", "source.h5")), values()[-1])
    assert np.array_equal(read(place, virtual(place, "w.h5", "v.h5")), values()[-1]), "a virtual dataset of a virtual dataset"
    with h5py.File(virtual(place, "own.h5", ".", "other"), "r+") as file:
        file["other"] = values()
    assert np.array_equal(read(place, inside(place, "own.h5")), values()[-1]), "of the file itself"


def test_a_virtual_dataset_without_its_source_is_refused(runs, place):
    path, missing = virtual(place, "v.h5", "gone.h5"), r"missing: dataset 'tensor' of the file gone\.h5"
    refused(place, path, "'tensor'", missing)
    one_sentence(ups("train", config(runs, place, path), "--plan"), re.escape(path), "'tensor'", missing)
    refused(place, virtual(place, "v.h5", "source.h5", "absent"), "'tensor'", r"dataset 'absent' of the file source\.h5")
    virtual(place, "v.h5", "gone.h5")
    refused(place, virtual(place, "w.h5", "v.h5"), r"dataset 'tensor' of the file gone\.h5")


def test_a_virtual_dataset_of_a_damaged_source_is_refused(place):
    Path(inside(place, "damaged.h5")).write_bytes(b"x" * 5000)
    refused(place, virtual(place, "v.h5", "damaged.h5"), r"damaged\.h5, a source of the virtual dataset 'tensor', cannot be read")


def test_a_virtual_dataset_of_a_source_that_is_too_small_is_refused(place):
    refused(place, virtual(place, "v.h5", "source.h5", shape=(2 * COUNT, *SHAPE[1:])), r"source\.h5", "smaller")


def test_a_virtual_dataset_that_refers_to_itself_is_refused(place):
    refused(place, virtual(place, "v.h5", "."), "'tensor'", "refers to itself")
    refused(place, virtual(place, "v.h5", "v.h5"), "'tensor'", "refers to itself")
    refused(place, growing(place, "v.h5", [("v.h5", "tensor", 0, 0, POINTS)]), "'tensor'", "refers to itself")
    virtual(place, "a.h5", "b.h5")
    refused(place, virtual(place, "b.h5", "a.h5"), "'tensor'", "refers to itself")


def test_numbered_sources_are_read_up_to_the_last(place):
    for number in range(COUNT // 2):
        plain(place, f"part-{number}.h5", values()[2 * number:2 * number + 2])
    path = growing(place, "v.h5", [("part-%b.h5", "tensor", 2, 0, POINTS)])
    assert np.array_equal(read(place, path), values()[-1])


def test_a_numbered_source_that_is_missing_is_named(place):
    path = growing(place, "v.h5", [("part-%b.h5", "tensor", 2, 0, POINTS)])
    refused(place, path, r"missing: dataset 'tensor' of the file part-0\.h5")
    for number in (0, 1, 3):
        plain(place, f"part-{number}.h5", values()[:2])
    refused(place, path, r"missing: dataset 'tensor' of the file part-2\.h5")


def test_views_of_growing_sources_are_read_where_they_are_of_one_length(place):
    half = POINTS // 2
    for name, samples in (("left.h5", COUNT), ("right.h5", COUNT), ("short.h5", COUNT - 1)):
        content = values()[:samples, :, :half] if name == "left.h5" else values()[:samples, :, half:]
        plain(place, name, content, maxshape=(None, TIMES, half))
    path = growing(place, "v.h5", [("left.h5", "tensor", 0, 0, half), ("right.h5", "tensor", 0, half, half)])
    assert np.array_equal(read(place, path), values()[-1])
    path = growing(place, "v.h5", [("left.h5", "tensor", 0, 0, half), ("short.h5", "tensor", 0, half, half)])
    refused(place, path, "'tensor'", "axis 0", f"{COUNT - 1} entries, another for {COUNT}")
    path = growing(place, "v.h5", [("left.h5", "tensor", 0, 0, half), ("gone.h5", "tensor", 0, half, half)])
    refused(place, path, r"missing: dataset 'tensor' of the file gone\.h5")


# ---- where other files may lie ----

def put_outside(place):
    """Names by which a file in data/ may try to reach one that lies beside that folder."""
    shutil.copy(inside(place, "source.h5"), os.path.join(place, "outside"))
    os.symlink(os.path.join(place, "outside", "source.h5"), inside(place, "link.h5"))
    os.symlink(os.path.join(place, "outside"), inside(place, "folder"))
    return "../outside/source.h5", os.path.join(place, "outside", "source.h5"), "link.h5", "folder/source.h5"


def test_files_outside_are_not_reached_by_virtual_datasets(place):
    for target in put_outside(place):
        refused(place, virtual(place, "v.h5", target), re.escape(os.path.join(place, "outside", "source.h5")), "does not lie below", "data.root")


def test_files_outside_are_not_reached_by_external_links(place):
    for target in put_outside(place):
        refused(place, link(place, "v.h5", target), re.escape(os.path.join(place, "outside", "source.h5")), "does not lie below", "data.root")


def test_files_outside_are_not_reached_by_external_storage(place):
    for target in ("/etc/passwd", os.path.join(place, "outside", "raw")):
        path = external(place, "v.h5", target, write=not target.startswith("/etc"))
        refused(place, path, re.escape(target), "does not lie below", "data.root")


def test_below_data_root_files_may_refer_to_each_other(runs, place):
    put_outside(place)
    path = virtual(place, "v.h5", "../outside/source.h5")
    must("train", config(runs, place, path, root=place), "--plan")
    one_sentence(ups("train", config(runs, place, path), "--plan"), re.escape(path), "does not lie below")
    must("train", config(runs, place, link(place, "v.h5", "../outside/source.h5"), root=place), "--plan")


def test_a_link_to_a_file_may_refer_to_what_lies_beside_that_file(place):
    virtual(place, "v.h5", "source.h5")
    os.symlink(inside(place, "v.h5"), os.path.join(place, "outside", "v.h5"))
    assert np.array_equal(read(place, os.path.join(place, "outside", "v.h5")), values()[-1])


# ---- external links and storage ----

def test_what_lies_behind_an_external_link_is_read_or_missed(place):
    assert np.array_equal(read(place, link(place, "v.h5", "source.h5")), values()[-1])
    refused(place, link(place, "v.h5", "gone.h5"), "'/tensor'", "external link", r"missing: .*gone\.h5")


def test_external_storage_is_read_or_missed(place):
    raw = inside(place, "raw")
    assert np.array_equal(read(place, external(place, "v.h5", raw)), values()[-1])
    refused(place, external(place, "v.h5", raw, offset=100, write=False), "'tensor'", re.escape(raw), "cut short")
    os.remove(raw)
    refused(place, inside(place, "v.h5"), "'tensor'", re.escape(raw), "missing")


def test_prefixes_of_the_environment_lead_nowhere_else(place):
    put_outside(place)
    outer, whole = external(place, "e.h5", inside(place, "raw")), virtual(place, "v.h5", "source.h5")
    for variable, path, other in ("HDF5_EXTFILE_PREFIX", outer, whole), ("HDF5_VDS_PREFIX", whole, outer):
        prefix = {**os.environ, variable: os.path.join(place, "outside")}
        out = os.path.join(place, "out.npy")
        one_sentence(ups("data", "dump", path, "-o", out, env=prefix), re.escape(path), variable, "unset it")
        assert ups("data", "dump", other, "--force", "-o", out, env=prefix).returncode == 0


def test_what_is_no_regular_file_is_not_waited_for(place):
    os.mkfifo(inside(place, "pipe"))
    refused(place, virtual(place, "v.h5", "pipe"), re.escape(inside(place, "pipe")), "a named pipe")
    refused(place, link(place, "v.h5", "pipe"), re.escape(inside(place, "pipe")), "a named pipe")
    refused(place, external(place, "v.h5", inside(place, "pipe"), write=False), re.escape(inside(place, "pipe")), "no regular file")
