#!/usr/bin/env python3
"""`ups data` against h5py: every storage form in three layouts, three ways of reading, bit for bit; and bad files.

  test_sources.py UPS        UPS is the `ups` binary; the folder $UPS_DATA, where set, holds real PDEBench files
Prints one line a claim; exit code 1 when one fails.
"""
import glob
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zlib

import h5py
import numpy as np

from skipping import skipped
from tiny_run import PATIENCE

UPS = sys.argv[1]
WAYS = ["uring", "threads", "library"]
failures = 0


def claim(text, held, detail=""):
    global failures
    failures += not held
    print(("ok    " if held else "FAILS ") + text + (f": {detail}" if detail and not held else ""), flush=True)


def ups(*arguments):
    return subprocess.run([UPS, "data", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)


def dump(path, sample, way, scratch):
    """The array that `ups data dump` wrote, or the sentence it failed with."""
    out = os.path.join(scratch, "dump.npy")
    if os.path.exists(out):
        os.remove(out)
    done = ups("dump", path, "--sample", sample, "--io", way, "-o", out)
    return np.load(out) if done.returncode == 0 else f"exit {done.returncode}: {done.stderr.strip()}"


def same(found, expected):
    return isinstance(found, np.ndarray) and found.dtype == expected.dtype and found.shape == expected.shape \
        and found.tobytes() == expected.tobytes()


def ways_here(scratch):
    """Leaves io_uring out, saying so, where the kernel refuses it or the build has none."""
    path = os.path.join(scratch, "probe.h5")
    with h5py.File(path, "w") as f:
        write_tensor(f, np.zeros((1, 2, 3), "f4"), {})
    found = dump(path, 0, "uring", scratch)
    if isinstance(found, np.ndarray):
        return WAYS
    skipped("reading by io_uring", found)
    return WAYS[1:]


# ---- storage forms: how a dataset is created, and what is done to it afterwards -------------------------------------

def create(group, name, values, form):
    """Writes `values` in a storage form; `form` is h5py's own keywords plus a few of ours, which begin with '_'."""
    keywords = {k: v for k, v in form.items() if not k.startswith("_")}
    if keywords.get("chunks") == "odd":
        keywords["chunks"] = tuple(max(1, min(n, 5 if i % 2 else 3)) for i, n in enumerate(values.shape))
    if keywords.get("maxshape") == "one":
        keywords["maxshape"] = (None,) + values.shape[1:]
    if keywords.get("maxshape") == "two":
        keywords["maxshape"] = (None, None) + values.shape[2:]
    values = values.astype(form.get("_dtype", values.dtype))
    how = form.get("_how")
    if how == "compact":
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(values.shape)
        h5py.h5d.create(group.id, name.encode(), h5py.h5t.py_create(values.dtype), space, plist)
        group[name][...] = values
    elif how == "external":
        raw = os.path.join(os.path.dirname(group.file.filename), f"external-{time.monotonic_ns()}.raw")
        group.create_dataset(name, data=values, external=[(raw, 0, h5py.h5f.UNLIMITED)])
    elif how == "virtual":
        source = group.create_dataset("source_of_" + name, data=values)
        layout = h5py.VirtualLayout(values.shape, values.dtype)
        layout[...] = h5py.VirtualSource(source)
        group.create_virtual_dataset(name, layout)
    elif how == "unwritten":
        dataset = group.create_dataset(name, values.shape, values.dtype, **keywords)
        half = [slice(0, max(1, n // 2)) for n in values.shape[:-1]]
        half[0] = slice(0, values.shape[0]) if values.shape[0] < 3 else slice(1, values.shape[0])
        dataset[tuple(half)] = values[tuple(half)]
    elif how == "never written":
        group.create_dataset(name, values.shape, values.dtype, **keywords)
    elif how == "early":
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk(tuple(max(1, min(n, 4)) for n in values.shape))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple(values.shape)
        h5py.h5d.create(group.id, name.encode(), h5py.h5t.py_create(values.dtype), space, plist)
        group[name][...] = values
    elif how == "masked":
        write_masked(group.create_dataset(name, values.shape, values.dtype, **keywords), values)
    else:
        group.create_dataset(name, data=values, **keywords)


def write_masked(dataset, values):
    """Writes chunks by hand with each combination of filters left out, as the library itself does where one fails."""
    plist = dataset.id.get_create_plist()
    assert [plist.get_filter(i)[0] for i in range(plist.get_nfilters())] == [h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE]
    size = dataset.dtype.itemsize
    for i, start in enumerate(itertools.product(*(range(0, n, c) for n, c in zip(dataset.shape, dataset.chunks)))):
        chunk = np.zeros(dataset.chunks, dataset.dtype)
        part = values[tuple(slice(s, s + n) for s, n in zip(start, dataset.chunks))]
        chunk[tuple(slice(0, n) for n in part.shape)] = part
        mask = i % 4
        data = chunk.tobytes()
        if not mask & 1:
            data = np.frombuffer(data, np.uint8).reshape(-1, size).T.tobytes()
        if not mask & 2:
            data = zlib.compress(data)
        dataset.id.write_direct_chunk(start, data, filter_mask=mask)
    assert {dataset.id.get_chunk_info(i).filter_mask for i in range(dataset.id.get_num_chunks())} == {0, 1, 2, 3}


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

def memory_dtype(dtype):
    """What UPS decodes a stored type to."""
    if dtype.kind == "f":
        return np.dtype("f8") if dtype.itemsize > 4 else np.dtype("f4")
    return np.dtype("f4") if dtype.itemsize <= 2 else np.dtype("f8")


def native(values):
    return np.ascontiguousarray(values.astype(memory_dtype(values.dtype)))


def smooth(shape, seed):
    """Fields with structure for the compressors to find, and some of it incompressible."""
    rng = np.random.default_rng(seed)
    u = np.sin(np.arange(np.prod(shape)) * 0.02).reshape(shape) * 8
    u += np.where(rng.random(shape) < 0.3, rng.standard_normal(shape), 0)
    u[tuple(slice(0, max(1, n // 3)) for n in shape)] = 1.25
    return u.astype("f4")


def write_tensor(f, values, form):
    create(f, "tensor", values, form)
    f["x-coordinate"] = np.linspace(0, 1, values.shape[2], dtype="f4")
    f["t-coordinate"] = np.linspace(0, 2, values.shape[1] + 1, dtype="f4")  # one entry too many, as PDEBench has it


def write_darcy(f, values, form):
    create(f, "nu", np.abs(values), form)
    create(f, "tensor", values[:, None] * 0.5, form)
    f["x-coordinate"] = np.linspace(0, 1, values.shape[1], dtype="f4")
    f["y-coordinate"] = np.linspace(0, 1, values.shape[2], dtype="f4")
    f.attrs["beta"] = 0.1


def write_seeds(f, values, form):
    for seed, field in enumerate(values):
        group = f.create_group(f"{seed:04d}")
        create(group, "data", field, form)
        group.create_group("grid")
        group["grid/t"] = np.linspace(0, 5, field.shape[0], dtype="f4")
        for axis, points in zip("xyz", field.shape[1:-1]):
            group[f"grid/{axis}"] = np.linspace(-1, 1, points, dtype="f4")
        group.attrs["config"] = f"sim:\n  Du: 0.00{seed + 1}\n  Dv: 0.005\n  seed: {seed}\n  name: fhn\n"


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


def check_forms(ways, scratch):
    for layout, (write, expect, shape) in LAYOUTS.items():
        values = smooth(shape, 1)
        for name, form in FORMS.items():
            for libver in ("earliest", "v110") if layout in ("tensor", "seed groups, 2D") else ("earliest",):
                path = os.path.join(scratch, "form.h5")
                with h5py.File(path, "w", libver=(libver, "v110")) as f:
                    write(f, values, form)
                with h5py.File(path) as f:
                    expected = expect(f, 1)
                # the engines do not know the file format, nor the library the layout: not every product is tried
                tried = ["threads"] if libver == "v110" else ways if layout == "tensor" else ways[:-1]
                wrong = {}
                for way in tried:
                    found = dump(path, 1, way, scratch)
                    if not same(found, expected):
                        wrong[way] = found if isinstance(found, str) else \
                            f"{found.dtype} {found.shape} for {expected.dtype} {expected.shape}, or other bits"
                claim(f"{layout}, {name}, file format {libver}: equals h5py by {', '.join(tried)}", not wrong, wrong)


# ---- more than storage ----------------------------------------------------------------------------------------------

def check_user_block(ways, scratch):
    path = os.path.join(scratch, "block.h5")
    values = smooth((3, 5, 40), 2)
    for form in ({}, {"chunks": (1, 2, 16), "compression": "lzf"}):
        with h5py.File(path, "w", userblock_size=1024) as f:
            write_tensor(f, values, form)
        found = [dump(path, 2, way, scratch) for way in ways]
        claim(f"a file with a user block in front is read at the right place ({form.get('compression', 'contiguous')})",
              all(same(one, values[2][..., None]) for one in found), found)


def check_many_chunks(scratch):
    path = os.path.join(scratch, "many.h5")
    values = np.random.default_rng(3).random((10, 100, 1600), dtype="f4")
    with h5py.File(path, "w") as f:
        write_tensor(f, values, {"chunks": (1, 1, 16)})
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = dump(path, 9, "threads", scratch)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    claim("a file of 100,000 chunks opens and dumps within five seconds of a processor", same(found, values[9][..., None]) and seconds < 5,
          f"{seconds:.1f} s")


def check_guards(ways, scratch):
    """What guards look at (pipeline/hdf5/guards.h), in sound files; attributes of every kind are in test_layouts.py."""
    path = os.path.join(scratch, "guarded.h5")
    values = smooth((3, 5, 40), 4)
    values[:, :, :2] = np.frombuffer(b"GCOL\x02\0\0\0", "<f4")  # how a global heap begins
    for name, form in {"contiguous": {}, "chunked": {"chunks": (1, 5, 40)}, "scale-offset": {"chunks": (1, 5, 40), "scaleoffset": 0}}.items():
        with h5py.File(path, "w") as f:
            write_tensor(f, values, form)
        with h5py.File(path) as f:
            expected = f["tensor"][1][..., None]
        found = [dump(path, 1, way, scratch) for way in ways]
        claim(f"data that begins as a global heap does is read as data ({name})", all(same(one, expected) for one in found))
    for libver in ("earliest", "v110"):
        with h5py.File(path, "w", libver=(libver, "v110")) as f:
            for i in range(40):
                f.create_group(f"once_{i:0{1 + i % 7}}")
            write_tensor(f, values, {})
            for name in [name for name in f if name.startswith("once_")]:
                del f[name]
        found = [dump(path, 1, way, scratch) for way in ways]
        claim(f"a group that lost most of its members is read, file format {libver}", all(same(one, values[1][..., None]) for one in found))
    for form in ({}, {"scaleoffset": 3}):
        with h5py.File(path, "w") as f:
            write_tensor(f, smooth((4, 4, 16), 5), {})
            del f["tensor"]
            sparse = f.create_dataset("tensor", (4, 400, 16 * 50), "f4", chunks=(1, 1, 16), fillvalue=1.5, **form)
            del f["x-coordinate"], f["t-coordinate"]
            f["x-coordinate"], f["t-coordinate"] = np.arange(800, dtype="f4"), np.arange(401, dtype="f4")
            sparse[2, 7, :16] = smooth((1, 1, 16), 6)[0, 0]
        with h5py.File(path) as f:
            expected = f["tensor"][2][..., None]
        found = [dump(path, 2, way, scratch) for way in ways]
        claim(f"80,000 chunks of which one was written are read ({form or 'no filter'})", all(same(one, expected) for one in found))


def check_parameters(scratch):
    def parameters(path):
        done = ups("inspect", "--json", path)
        return json.loads(done.stdout)[0]["parameters"] if done.returncode == 0 else done.stderr

    cases = {"1D_Advection_Sols_beta0.4.hdf5": {"beta": 0.4}, "1D_Burgers_Sols_Nu0.01.hdf5": {"nu": 0.01},
             "ReacDiff_Nu0.5_Rho1.0.hdf5": {"nu": 0.5, "rho": 1.0}, "nothing_here.hdf5": {}}
    for name, expected in cases.items():
        path = os.path.join(scratch, name)
        with h5py.File(path, "w") as f:
            write_tensor(f, smooth((2, 3, 8), 1), {})
        found = parameters(path)
        claim(f"the name {name} says {expected or 'no parameter'}", found == {k: [v, v] for k, v in expected.items()}, found)
    path = os.path.join(scratch, "2D_DarcyFlow_beta1.0_Train.hdf5")
    with h5py.File(path, "w") as f:
        write_darcy(f, smooth((2, 8, 8), 1), {})
    found = parameters(path)
    claim("an attribute's word comes before the file name's", found == {"beta": [0.1, 0.1]}, found)
    path = os.path.join(scratch, "seeds.h5")
    with h5py.File(path, "w") as f:
        write_seeds(f, smooth((2, 3, 8, 8, 2), 1), {})
    found = parameters(path)
    claim("the config attribute gives sim.Du and sim.Dv of each seed, and not the seed",
          found == {"sim.Du": [0.001, 0.002], "sim.Dv": [0.005, 0.005]}, found)


def check_inspect(scratch):
    path = os.path.join(scratch, "inspect.h5")
    with h5py.File(path, "w") as f:
        write_seeds(f, smooth((2, 9, 20, 10, 2), 1), {"chunks": (4, 5, 5, 1), "compression": "lzf", "shuffle": True})
    facts = json.loads(ups("inspect", "--json", path).stdout)[0]
    claim("inspect names layout, samples, fields, grid, time and storage",
          facts["layout"] == "pdebench.seedgroup" and facts["samples"] == 2
          and facts["fields"] == ["activator", "inhibitor"] and [g["points"] for g in facts["grid"]] == [20, 10]
          and facts["time"] == {"frames": 9, "range": [0.0, 5.0]} and not facts["periodic"]
          and facts["arrays"][0]["filters"] == ["shuffle", "lzf"] and facts["arrays"][0]["chunk_shape"] == [4, 5, 5, 1], facts)
    text = ups("inspect", path)
    claim("inspect's text says the same", text.returncode == 0 and "shuffle + lzf" in text.stdout
          and "activator, inhibitor" in text.stdout, text.stdout + text.stderr)


def check_bad_files(scratch):
    """Each bad file is a sentence that names it, exit code 1, and no output file."""
    def bad(text, name, words, *, code=1):
        path = os.path.join(scratch, name)
        out = os.path.join(scratch, "bad.npy")
        for arguments in (("inspect", path), ("dump", path, "-o", out)):
            done = ups(*arguments)
            message = done.stderr.strip()
            held = done.returncode == code and message.startswith("ups: ") and "\n" not in message and name in message \
                and all(word in message for word in words) and not glob.glob(out + "*") and not glob.glob(os.path.join(scratch, ".bad*"))
            claim(f"{text}: {arguments[0]} says so ({message[:90]}…)", held, f"exit {done.returncode}: {message}")

    def write(name, make):
        with h5py.File(os.path.join(scratch, name), "w") as f:
            make(f)

    values = smooth((4, 9, 64), 1)
    bad("a file that is not there", "absent.h5", ["No such file"])
    os.mkdir(os.path.join(scratch, "folder.h5"))
    bad("a directory", "folder.h5", ["directory"])
    open(os.path.join(scratch, "empty.h5"), "w").close()
    bad("an empty file", "empty.h5", ["empty"])
    with open(os.path.join(scratch, "text.h5"), "w") as f:
        f.write("time,u\n0,1\n" * 100)
    bad("a text file", "text.h5", ["not an HDF5 file"])
    with open(os.path.join(scratch, "classic.h5"), "wb") as f:
        f.write(b"CDF\x01" + bytes(200))
    bad("a NetCDF-3 file with nothing in it", "classic.h5", ["NetCDF"])
    write("whole.h5", lambda f: write_tensor(f, values, {}))
    whole = open(os.path.join(scratch, "whole.h5"), "rb").read()
    with open(os.path.join(scratch, "cut.h5"), "wb") as f:
        f.write(whole[:len(whole) // 2])
    bad("a truncated file", "cut.h5", ["truncated", "again"])
    if os.geteuid() == 0:
        skipped("a file without rights", "root may read anything")
    else:
        write("locked.h5", lambda f: write_tensor(f, values, {}))
        os.chmod(os.path.join(scratch, "locked.h5"), 0)
        bad("a file without rights", "locked.h5", ["Permission denied"])
    write("foreign.h5", lambda f: f.create_dataset("vorticity", data=values))
    bad("another layout", "foreign.h5", ["'vorticity'", "tensor"])
    write("bare.h5", lambda f: None)
    bad("an HDF5 file with nothing in it", "bare.h5", ["nothing"])
    write("no_t.h5", lambda f: (write_tensor(f, values, {}), f.__delitem__("t-coordinate")))
    bad("a tensor without its times", "no_t.h5", ["t-coordinate", "missing"])
    write("rank.h5", lambda f: (f.create_dataset("tensor", data=values[0])))
    bad("a tensor of rank 2", "rank.h5", ["rank 2", "(sample, t, x)"])
    write("string.h5", lambda f: f.create_dataset("tensor", data=np.full((2, 2, 2), "a", dtype="S3")))
    bad("a tensor of strings", "string.h5", ["does not hold numbers"])
    write("times.h5", lambda f: (write_tensor(f, values, {}), f.__delitem__("t-coordinate"), f.create_dataset("t-coordinate", data=np.zeros(5))))
    bad("too few times", "times.h5", ["5 entries", "9"])
    write("zero.h5", lambda f: f.create_dataset("tensor", (0, 9, 64), "f4", maxshape=(None, 9, 64)))
    bad("a tensor without samples", "zero.h5", ["empty along axis 0"])
    write("darcy.h5", lambda f: (f.create_dataset("nu", data=values), f.create_dataset("tensor", data=values[:, None, :, :32])))
    bad("a Darcy file whose grids differ", "darcy.h5", ["differ"])
    write("group.h5", lambda f: f.create_group("0000"))
    bad("a seed without data", "group.h5", ["0000/data", "missing"])

    path = os.path.join(scratch, "whole.h5")
    out = os.path.join(scratch, "bad.npy")
    done = ups("dump", path, "--sample", 4, "-o", out)
    claim("a sample beyond the last is refused with the range", done.returncode == 1 and "4 samples" in done.stderr, done.stderr)
    done = ups("dump", path, "-o", os.path.join(scratch, "absent", "x.npy"))
    claim("an output folder that is not there is named", done.returncode == 1 and "absent" in done.stderr, done.stderr)
    for arguments in (("dump", path), ("dump",), ("inspect",), ("dump", path, "--io", "magic", "-o", out), ("dump", path, "--sample", "x", "-o", out), ("nonsense",)):
        done = ups(*arguments)
        claim(f"wrong usage ({' '.join(map(os.path.basename, arguments))}) is exit code 2", done.returncode == 2, f"exit {done.returncode}: {done.stderr}")


def check_damaged_chunks(scratch):
    """Damage inside a chunk names file, sample and chunk."""
    for compression, fletcher32 in (("gzip", False), ("lzf", False), (None, True)):
        path = os.path.join(scratch, "damaged.h5")
        with h5py.File(path, "w") as f:
            write_tensor(f, np.repeat(smooth((2, 16, 8), 1), 8, axis=2), {"chunks": (1, 8, 64), "compression": compression, "fletcher32": fletcher32})
            info = f["tensor"].id.get_chunk_info_by_coord((1, 8, 0))
        with open(path, "r+b") as f:
            f.seek(info.byte_offset)
            f.write(b"\xff" * (info.size // 2))
        done = ups("dump", path, "--sample", 1, "-o", os.path.join(scratch, "bad.npy"))
        words = ["damaged.h5", "tensor[1]", "chunk (1, 1, 0)", "cannot be decoded"]
        claim(f"a damaged chunk ({compression or 'Fletcher-32'}) names file, sample and chunk",
              done.returncode == 1 and all(word in done.stderr for word in words), done.stderr)


def check_real_files(ways, scratch):
    folder = os.environ.get("UPS_DATA")
    if not folder or not os.path.isdir(folder):
        skipped("real files", "UPS_DATA does not name a folder of them")
        return
    for path in sorted(glob.glob(os.path.join(folder, "*.h5")) + glob.glob(os.path.join(folder, "*.hdf5"))):
        with h5py.File(path) as f:
            seeds = sorted(f)
            for way in ways:
                wrong = [seed for i, seed in enumerate(seeds) if not same(dump(path, i, way, scratch), f[seed]["data"][...])]
                claim(f"all {len(seeds)} trajectories of {os.path.basename(path)} equal h5py by {way}", not wrong, wrong)


with tempfile.TemporaryDirectory() as folder:
    available = ways_here(folder)
    check_forms(available, folder)
    check_user_block(available, folder)
    check_guards(available, folder)
    check_many_chunks(folder)
    check_parameters(folder)
    check_inspect(folder)
    check_bad_files(folder)
    check_damaged_chunks(folder)
    check_real_files(available, folder)
print(f"{failures} claims failed" if failures else "all claims hold")
sys.exit(1 if failures else 0)
