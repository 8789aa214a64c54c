"""HDF5 files as h5py writes them, for tests that read them: PDEBench's layouts in any storage form."""

import itertools
import os
import time
import zlib

import h5py
import numpy as np


def made(folder, name, write, **options):
    """The path of a file that `write` fills."""
    path = os.path.join(folder, name)
    with h5py.File(path, "w", **options) as f:
        write(f)
    return path


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


def create(group, name, values, form):
    """Writes `values` in a storage form; `form` is h5py's own keywords plus a few of ours, which begin with '_'."""
    keywords = {k: v for k, v in form.items() if not k.startswith("_")}
    if keywords.get("chunks") == "odd":  # they end beyond every edge
        keywords["chunks"] = tuple(max(1, min(n, (3, 5, 2, 7)[i % 4])) for i, n in enumerate(values.shape))
    if keywords.get("chunks") == "whole":
        keywords["chunks"] = values.shape
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


def write_tensor(f, values, form={}):
    create(f, "tensor", values, form)
    f["x-coordinate"] = np.linspace(0, 1, values.shape[2], dtype="f4")
    f["t-coordinate"] = np.linspace(0, 2, values.shape[1] + 1, dtype="f4")  # one entry too many, as PDEBench has it


def write_darcy(f, values, form={}):
    create(f, "nu", np.abs(values), form)
    create(f, "tensor", values[:, None] * 0.5, form)
    f["x-coordinate"] = np.linspace(0, 1, values.shape[1], dtype="f4")
    f["y-coordinate"] = np.linspace(0, 1, values.shape[2], dtype="f4")


def write_seeds(f, values, form={}, config=None):
    for seed, field in enumerate(values):
        group = f.create_group(f"{seed:04d}")
        create(group, "data", field, form)
        for axis, points in zip("txyz", field.shape[:-1]):
            group[f"grid/{axis}"] = np.linspace(-1 if axis != "t" else 0, 1 if axis != "t" else 5, points, dtype="f4")
        group.attrs["config"] = config or f"sim:\n  Du: 0.00{seed + 1}\n  Dv: 0.005\n  seed: {seed}\n  name: fhn\n"
