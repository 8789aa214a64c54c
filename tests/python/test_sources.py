"""`ups data` against h5py: every storage form in three layouts, three ways of reading, bit for bit; and bad files.
The folder $UPS_DATA, where set, holds real PDEBench files."""

import glob
import os
import re
import resource
from pathlib import Path

import h5py
import numpy as np
import pytest

from commands import dump, inspect, one_sentence, same, skipped, ups
from hdf5_files import made, native, smooth, write_darcy, write_seeds, write_tensor


WAYS = ["uring", "threads", "library"]


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    """Leaves io_uring out, saying so, where the kernel refuses it or the build has none."""
    path = made(tmp_path_factory.mktemp("probe"), "probe.h5", lambda f: write_tensor(f, np.zeros((1, 2, 3), "f4")))
    found = dump(path, 0, "uring")
    if isinstance(found, np.ndarray):
        return WAYS
    skipped("reading by io_uring", found)
    return WAYS[1:]


# ---- storage forms: how a dataset is created (hdf5_files.create) -----------------------------------------------------

FORMS = {
    "contiguous": {},
    "contiguous, big-endian": {"_dtype": ">f4"},
    "contiguous, float64": {"_dtype": "<f8"},
    "contiguous, big-endian float64": {"_dtype": ">f8"},
    "chunks as h5py guesses": {"chunks": True},
    "odd chunks": {"chunks": "odd"},
    "odd chunks, gzip": {"chunks": "odd", "compression": "gzip"},
    "odd chunks, LZF": {"chunks": "odd", "compression": "lzf"},
    "odd chunks, shuffle": {"chunks": "odd", "shuffle": True},
    "odd chunks, shuffle + gzip 9": {"chunks": "odd", "shuffle": True, "compression": "gzip", "compression_opts": 9},
    "odd chunks, shuffle + LZF": {"chunks": "odd", "shuffle": True, "compression": "lzf"},
    "odd chunks, shuffle + LZF, float64": {"chunks": "odd", "shuffle": True, "compression": "lzf", "_dtype": "<f8"},
    "odd chunks, shuffle + gzip, big-endian": {"chunks": "odd", "shuffle": True, "compression": "gzip", "_dtype": ">f4"},
    "odd chunks, LZF, big-endian float64": {"chunks": "odd", "compression": "lzf", "_dtype": ">f8"},
    "odd chunks, Fletcher-32": {"chunks": "odd", "fletcher32": True},
    "odd chunks, shuffle + LZF + Fletcher-32": {"chunks": "odd", "shuffle": True, "compression": "lzf", "fletcher32": True},
    "scale-offset": {"chunks": "odd", "scaleoffset": 3},
    "float16": {"_dtype": "<f2"},
    "int16": {"_dtype": "<i2"},
    "int32, gzip": {"_dtype": "<i4", "compression": "gzip"},
    "compact": {"_how": "compact"},
    "external file": {"_how": "external"},
    "virtual": {"_how": "virtual"},
    "unwritten chunks": {"chunks": "odd", "_how": "unwritten"},
    "unwritten chunks, fill value": {"chunks": "odd", "fillvalue": -7.25, "compression": "lzf", "_how": "unwritten"},
    "unwritten chunks, fill value, big-endian": {"chunks": "odd", "fillvalue": 1.5, "_dtype": ">f8", "_how": "unwritten"},
    "never written": {"fillvalue": 3.5, "_how": "never written"},
    "never written, chunked": {"chunks": "odd", "fillvalue": 2.5, "_how": "never written"},
    "filter masks": {"chunks": "odd", "shuffle": True, "compression": "gzip", "_how": "masked"},
    "appendable": {"chunks": "odd", "maxshape": "one", "compression": "gzip"},
    "appendable along two axes": {"chunks": "odd", "maxshape": "two", "shuffle": True},
    "chunks allocated early": {"_how": "early"},
}


# ---- layouts --------------------------------------------------------------------------------------------------------

def expect_tensor(f, i):
    return native(f["tensor"][i])[..., None]


def expect_darcy(f, i):
    nu, u = native(f["nu"][i]), native(f["tensor"][i, 0])
    return np.stack([np.stack([nu, np.zeros_like(u)]), np.stack([nu, u])])


def expect_seeds(f, i):
    return native(f[f"{i:04d}"]["data"][...])


LAYOUTS = {
    "tensor": (write_tensor, expect_tensor, (4, 9, 33)),
    "darcy": (write_darcy, expect_darcy, (4, 17, 21)),
    "seed groups, 1D": (write_seeds, expect_seeds, (2, 9, 37, 1)),
    "seed groups, 2D": (write_seeds, expect_seeds, (2, 7, 18, 11, 2)),
}


# Engines do not know the file format, nor the library the layout: not every product is tried.
@pytest.mark.parametrize("layout, name, libver", [(layout, name, libver) for layout in LAYOUTS for name in FORMS for libver in ("earliest", "v110")
                                                  if libver == "earliest" or layout in ("tensor", "seed groups, 2D")])
def test_every_storage_form_equals_h5py(ways, scratch, layout, name, libver):
    write, expect, shape = LAYOUTS[layout]
    path = made(scratch, "form.h5", lambda f: write(f, smooth(shape, 1), FORMS[name]), libver=(libver, "v110"))
    with h5py.File(path) as f:
        expected = expect(f, 1)
    for way in ["threads"] if libver == "v110" else ways if layout == "tensor" else ways[:-1]:
        assert same(dump(path, 1, way), expected)


# ---- more than storage ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("form", [{}, {"chunks": (1, 2, 16), "compression": "lzf"}])
def test_a_file_with_a_user_block_in_front_is_read_at_the_right_place(ways, scratch, form):
    values = smooth((3, 5, 40), 2)
    path = made(scratch, "block.h5", lambda f: write_tensor(f, values, form), userblock_size=1024)
    for way in ways:
        assert same(dump(path, 2, way), values[2][..., None])


# ---- what guards look at (pipeline/hdf5/guards.h), in sound files; attributes of every kind are in test_layouts.py ----

def read_back(path, sample):
    with h5py.File(path) as f:
        return f["tensor"][sample][..., None]


@pytest.mark.parametrize("form", [{}, {"chunks": (1, 5, 40)}, {"chunks": (1, 5, 40), "scaleoffset": 0}],
                         ids=["contiguous", "chunked", "scale-offset"])
def test_data_that_begins_as_a_global_heap_does_is_read_as_data(ways, scratch, form):
    values = smooth((3, 5, 40), 4)
    values[:, :, :2] = np.frombuffer(b"GCOL\x02\0\0\0", "<f4")
    path = made(scratch, "heap.h5", lambda f: write_tensor(f, values, form))
    for way in ways:
        assert same(dump(path, 1, way), read_back(path, 1)), way


@pytest.mark.parametrize("libver", ["earliest", "v110"])
def test_a_group_that_lost_most_of_its_members_is_read(ways, scratch, libver):
    values = smooth((3, 5, 40), 4)
    with h5py.File(os.path.join(scratch, "lost.h5"), "w", libver=(libver, "v110")) as f:
        for i in range(40):
            f.create_group(f"once_{i:0{1 + i % 7}}")
        write_tensor(f, values)
        for name in [name for name in f if name.startswith("once_")]:
            del f[name]
    for way in ways:
        assert same(dump(os.path.join(scratch, "lost.h5"), 1, way), values[1][..., None]), way


@pytest.mark.parametrize("form", [{}, {"scaleoffset": 3}], ids=["no filter", "scale-offset"])
def test_a_dataset_of_80000_chunks_of_which_one_was_written_is_read(ways, scratch, form):
    with h5py.File(os.path.join(scratch, "sparse.h5"), "w") as f:
        sparse = f.create_dataset("tensor", (4, 400, 16 * 50), "f4", chunks=(1, 1, 16), fillvalue=1.5, **form)
        f["x-coordinate"], f["t-coordinate"] = np.arange(800, dtype="f4"), np.arange(401, dtype="f4")
        sparse[2, 7, :16] = smooth((1, 1, 16), 6)[0, 0]
    for way in ways:
        assert same(dump(os.path.join(scratch, "sparse.h5"), 2, way), read_back(os.path.join(scratch, "sparse.h5"), 2)), way


def test_a_file_of_100000_chunks_opens_and_dumps_within_five_cpu_seconds(scratch):
    values = np.random.default_rng(3).random((10, 100, 1600), dtype="f4")
    path = made(scratch, "many.h5", lambda f: write_tensor(f, values, {"chunks": (1, 1, 16)}))
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = dump(path, 9, "threads")
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    assert same(found, values[9][..., None]) and seconds < 5


@pytest.mark.parametrize("name, write, said", [
    ("2D_DarcyFlow_beta1.0_Train.hdf5", lambda f: (write_darcy(f, smooth((2, 8, 8), 1)), f.attrs.__setitem__("beta", 0.1)),
     {"beta": [0.1, 0.1]}),  # the attribute comes first
    ("seeds.h5", lambda f: write_seeds(f, smooth((2, 3, 8, 8, 2), 1)), {"Du": [0.001, 0.002], "Dv": [0.005, 0.005]})])  # not the seed
def test_attributes_come_before_the_files_name_and_each_seed_has_its_own_parameters(scratch, name, write, said):
    assert inspect(made(scratch, name, write))["parameters"] == said


def test_inspect_names_layout_samples_fields_grid_time_and_storage(scratch):
    stored = {"chunks": (4, 5, 5, 1), "compression": "lzf", "shuffle": True}
    path = made(scratch, "inspect.h5", lambda f: write_seeds(f, smooth((2, 9, 20, 10, 2), 1), stored))
    facts = inspect(path)
    assert (facts["layout"] == "pdebench.seedgroup" and facts["samples"] == 2
            and facts["fields"] == ["activator", "inhibitor"] and [g["points"] for g in facts["grid"]] == [20, 10]
            and facts["time"] == {"frames": 9, "range": [0.0, 5.0]} and not facts["periodic"]
            and facts["arrays"][0]["filters"] == ["shuffle", "lzf"] and facts["arrays"][0]["chunk_shape"] == [4, 5, 5, 1]), \
        "inspect names layout, samples, fields, grid, time and storage"
    text = ups("data", "inspect", path)
    assert text.returncode == 0 and "shuffle + lzf" in text.stdout and "activator, inhibitor" in text.stdout, "inspect's text says the same"


VALUES = smooth((4, 9, 64), 1)


def hdf5(write):
    return lambda path: made(*os.path.split(path), write)


def truncated(path):
    hdf5(lambda f: write_tensor(f, VALUES))(path)
    os.truncate(path, os.path.getsize(path) // 2)


def locked(path):
    if os.geteuid() == 0:
        pytest.skip("root may read anything")
    hdf5(lambda f: write_tensor(f, VALUES))(path)
    os.chmod(path, 0)


@pytest.mark.parametrize("make, words", [
    (lambda path: None, ["No such file"]), (os.mkdir, ["directory"]), (lambda path: Path(path).touch(), ["empty"]),
    (lambda path: Path(path).write_text("time,u\n0,1\n" * 100), ["not an HDF5 file"]),
    (lambda path: Path(path).write_bytes(b"CDF\x01" + bytes(200)), ["NetCDF"]), (truncated, ["truncated", "again"]), (locked, ["Permission denied"]),
    (hdf5(lambda f: f.create_dataset("vorticity", data=VALUES)), ["'vorticity'", "tensor"]), (hdf5(lambda f: None), ["nothing"]),
    (hdf5(lambda f: (write_tensor(f, VALUES), f.__delitem__("t-coordinate"))), ["t-coordinate", "missing"]),
    (hdf5(lambda f: f.create_dataset("tensor", data=VALUES[0])), ["rank 2", "(sample, t, x)"]),
    (hdf5(lambda f: f.create_dataset("tensor", data=np.full((2, 2, 2), "a", dtype="S3"))), ["does not hold numbers"]),
    (hdf5(lambda f: (write_tensor(f, VALUES), f.__delitem__("t-coordinate"), f.create_dataset("t-coordinate", data=np.zeros(5)))),
     ["5 entries", "9"]),
    (hdf5(lambda f: f.create_dataset("tensor", (0, 9, 64), "f4", maxshape=(None, 9, 64))), ["empty along axis 0"]),
    (hdf5(lambda f: (f.create_dataset("nu", data=VALUES), f.create_dataset("tensor", data=VALUES[:, None, :, :32]))), ["differ"]),
    (hdf5(lambda f: f.create_group("0000")), ["0000/data", "missing"])])
def test_a_bad_file_is_a_sentence_that_names_it_and_leaves_no_output(scratch, make, words):
    path, out = os.path.join(scratch, "bad.h5"), os.path.join(scratch, "out.npy")
    make(path)
    before = os.listdir(scratch)
    for arguments in (("inspect", path), ("dump", path, "-o", out)):
        one_sentence(ups("data", *arguments), "bad.h5", *map(re.escape, words))
        assert os.listdir(scratch) == before


def test_mistakes_of_the_command_line_are_told(scratch):
    path, out = os.path.join(scratch, "whole.h5"), os.path.join(scratch, "out.npy")
    hdf5(lambda f: write_tensor(f, VALUES))(path)
    one_sentence(ups("data", "dump", path, "--sample", 4, "-o", out), "4 samples")
    one_sentence(ups("data", "dump", path, "-o", os.path.join(scratch, "absent", "x.npy")), "absent")
    for arguments in (("dump", path), ("dump",), ("inspect",), ("dump", path, "--io", "magic", "-o", out),
                      ("dump", path, "--sample", "x", "-o", out), ("nonsense",)):
        assert ups("data", *arguments).returncode == 2


@pytest.mark.parametrize("compression, fletcher32", [("gzip", False), ("lzf", False), (None, True)])
def test_a_damaged_chunk_is_told_with_file_sample_and_chunk(scratch, compression, fletcher32):
    path = os.path.join(scratch, "damaged.h5")
    with h5py.File(path, "w") as f:
        write_tensor(f, np.repeat(smooth((2, 16, 8), 1), 8, axis=2), {"chunks": (1, 8, 64), "compression": compression, "fletcher32": fletcher32})
        info = f["tensor"].id.get_chunk_info_by_coord((1, 8, 0))
    with open(path, "r+b") as f:
        f.seek(info.byte_offset)
        f.write(b"\xff" * (info.size // 2))
    done = ups("data", "dump", path, "--sample", 1, "-o", os.path.join(scratch, "bad.npy"))
    one_sentence(done, "damaged.h5", r"tensor\[1\]", r"chunk \(1, 1, 0\)", "cannot be decoded")


def test_real_files_equal_h5py(ways):
    folder = os.environ.get("UPS_DATA")
    if not folder or not os.path.isdir(folder):
        pytest.skip("UPS_DATA does not name a folder of them")
    for path in sorted(glob.glob(os.path.join(folder, "*.h5")) + glob.glob(os.path.join(folder, "*.hdf5"))):
        with h5py.File(path) as f:
            for i, seed in enumerate(sorted(f)):
                for way in ways:
                    assert same(dump(path, i, way), f[seed]["data"][...])
