"""The Python package ups and libups' C example against h5py, `ups cache export` and each other: trajectories, batches, lifetimes, processes."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import hdf5_files
from commands import CACHE_SHAPE, TIMEOUT, TREE, make_cache, must, program, run, same

READER = str(TREE / "tools/python/ups")
os.environ["UPS_LIBRARY"] = program("libups.so")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [READER, os.environ.get("PYTHONPATH")]))
sys.path.insert(0, READER)
import ups  # noqa: E402


def raises(kind, call):
    """The exception, or None when it is another one or none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return error if isinstance(error, kind) else None
    return None


def write_tensor(path, values, beta=0.4, **storage):
    return hdf5_files.made(*os.path.split(path), lambda f: (hdf5_files.write_tensor(f, values, storage), f.attrs.__setitem__("beta", beta)))


# ---- trajectories

SKIPPED = 3


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A cache's group, and the latents of the samples that it has."""
    folder = str(tmp_path_factory.mktemp("reader"))
    latents = make_cache(folder, f"skip={SKIPPED}")
    return folder + "/waves/train", np.delete(latents, SKIPPED, axis=0)


@pytest.fixture(scope="module")
def chunked(tmp_path_factory):
    """A file of fields, chunked and compressed."""
    return write_tensor(str(tmp_path_factory.mktemp("fields") / "chunked.hdf5"), np.random.default_rng(5).normal(size=(6, 11, 34)).astype("f4"),
                        chunks=(1, 3, 16), compression="gzip", shuffle=True)


def test_a_cache_is_read_as_it_was_made_and_as_it_is_exported(scratch, made):
    (path, put_in), kept = made, [i for i in range(CACHE_SHAPE[0]) if i != SKIPPED]
    for form in ("npy", "hdf5"):
        must("cache", "export", path, "--format", form, "-o", f"{scratch}/latents.{form}")
    with h5py.File(scratch + "/latents.hdf5") as f, ups.open(path) as data:
        exported, condition, times = f["latent"][:], f["condition"][:], f["time"][:]
        assert len(data) == len(kept), "a cache has as many samples as were not skipped"
        assert all(same(data[i], put_in[i]) for i in range(len(data))), "trajectories of a cache are those that were put in"
        assert (all(same(data[i], exported[k]) for i, k in enumerate(kept))
                and same(data[2], np.load(scratch + "/latents.npy")[kept[2]])), "and those of `ups cache export`, HDF5 and NPY"
        assert (data.shape == CACHE_SHAPE[1:] and data.axes == ("time", "token", "channel")
                and data.dtype == np.float16 and np.array_equal(data.time, times)), "shape, axes, type and time grid are told"
        assert (np.array_equal(np.stack(list(data.parameters.values()), 1), condition[kept], equal_nan=True)
                and list(data.parameters) == ["beta", "nu"]), "parameters are the export's, by name"
        assert [data.sample(i).origin for i in range(len(data))] == kept, "a sample knows which of the encoded data's it was"
        assert data.attributes["task"] == "waves" and "encoder_weights" in data.attributes["fingerprint"], "what made a cache is told"
        assert len(list(data)) == 8 and same(data[2:7:2], put_in[2:7:2]) and data[3:3].shape == (0, *CACHE_SHAPE[1:]), \
            "iteration gives every trajectory, a slice stacks some"
        assert same(data.read(5, dtype=np.float32), put_in[5].astype(np.float32)), "float32 is float16, widened"
        out = np.zeros((4, *CACHE_SHAPE[2:]), np.float32)
        assert data.read(1, slice(3, 7), out=out) is out and np.array_equal(out, put_in[1, 3:7]), "frames are read into an array that is given"
        wide = np.zeros((4, *CACHE_SHAPE[2:], 2), np.float32)[..., 0]
        data.read(1, slice(9, 1, -2), out=wide)
        assert np.array_equal(wide, put_in[1, 9:1:-2]), "also into one that is not contiguous, backwards"
        slices = [slice(a, b, c) for a in (None, 0, 4, -3, 30) for b in (None, 1, 9, -1, 21, 50) for c in (None, 1, 3, -1, -4)]
        assert all(same(data[6, s], put_in[6][s]) for s in slices), f"{len(slices)} slices of frames are NumPy's own"
        assert (same(data[6, -1], put_in[6, -1]) and same(data[-2, 3, 1:3], put_in[-2, 3, 1:3])
                and same(data[0, 2:5, :, 7], put_in[0, 2:5, :, 7])), "single frames and what comes after them too"


def test_fields_of_every_storage_form_layout_and_grid_are_read(scratch):
    rng = np.random.default_rng(5)
    forms = {
        "contiguous": ("f4", {}),
        "chunked": ("f4", {"chunks": (1, 3, 16), "compression": "gzip", "shuffle": True}),
        "lzf_big_endian_f64": (">f8", {"chunks": (2, 5, 16), "compression": "lzf"}),
    }
    for name, (kind, storage) in forms.items():
        path = write_tensor(f"{scratch}/{name}.hdf5", rng.normal(size=(6, 11, 34)).astype(kind), **storage)
        with h5py.File(path) as f, ups.open(path) as data:
            expected = f["tensor"][:]
            native = expected.astype(expected.dtype.newbyteorder("="))
            assert all(same(data[i], native[i][..., None]) for i in range(6)) and same(data[2, 4:9:2], native[2, 4:9:2, :, None]), \
                f"{name} fields are h5py's, while h5py has the file open"
            assert same(data.read(3, dtype="f4"), native[3][..., None].astype("f4")), f"{name} fields as float32"
            assert (data.parameters["beta"][0] == 0.4 and data.axes == ("time", "x", "channel")
                    and data.channel_names == ("u",) and np.array_equal(data.sample(1).coordinates["x"], f["x-coordinate"][:])), \
                f"{name} parameters and coordinates too"
    path = scratch + "/flow.hdf5"
    with h5py.File(path, "w") as f:
        fields = {name: rng.normal(size=(2, 4, 8, 6)).astype("f4") for name in ("density", "pressure", "Vx", "Vy")}
        for name, values in fields.items():
            f[name] = values
        for name, points in (("x", 8), ("y", 6), ("t", 5)):
            f[name + "-coordinate"] = np.linspace(0, 1, points, dtype="f4")
        f.attrs["eta"], f.attrs["zeta"], f.attrs["M"] = 0.1, 0.2, 0.3
    with ups.open(path) as data:
        expected = np.stack([fields[name] for name in data.channel_names], 2)
        assert same(data[1], expected[1]) and data.axes == ("time", "channel", "x", "y") and set(data.parameters) >= {"eta", "zeta", "M"}, \
            "fields of several datasets are channels"
        batch = next(iter(data.loader(batch_size=2, frames=2, seed=1)))
        assert (batch.values.shape == (2, 2, 4, 8, 6)
                and all(np.array_equal(batch.values[w], expected[s, t : t + 2]) for w, (s, t) in enumerate(zip(batch.samples, batch.starts)))), \
            "and stay so in batches"
    path = scratch + "/grids.hdf5"
    with h5py.File(path, "w") as f:
        for k, grid in enumerate([(8, 6), (6, 8), (8, 6)]):
            group = f.create_group(f"{k:04d}")
            group["data"] = rng.normal(size=(4, *grid, 2)).astype("f4")
            for name, points in (("t", 4), ("x", grid[0]), ("y", grid[1])):
                group["grid/" + name] = np.linspace(0, 1, points, dtype="f4")
    with h5py.File(path) as f, ups.open(path) as data:
        for size, shapes in ((1, [(8, 6, 2), (6, 8, 2), (8, 6, 2)]), (2, [(96,), (8, 6, 2)])):
            batches = list(data.loader(batch_size=size, frames=2, shuffle=False))
            assert ([b.values.shape[2:] for b in batches] == shapes
                    and all(np.array_equal(v.ravel(), f[f"{s:04d}/data"][:2].ravel()) for b in batches for v, s in zip(b.values, b.samples))), \
                f"batches of {size} have their samples' grid where they share one"
    paths = [write_tensor(f"{scratch}/part{k}.hdf5", np.full((2, 3, 4), k, "f4"), beta=k) for k in range(3)]
    with ups.open(paths) as data:
        assert ([data[i][0, 0, 0] for i in range(6)] == [0, 0, 1, 1, 2, 2]
                and list(data.parameters["beta"]) == [0, 0, 1, 1, 2, 2]), "several files are one data set, each with its parameters"


# ---- batches

def check_batch(batch, values, stride=1):
    frames = batch.windows[0].shape[0]
    return len(batch) == len(batch.windows) and all(
        np.array_equal(window, values[s, t : t + (frames - 1) * stride + 1 : stride])
        for window, s, t in zip(batch.windows, batch.samples, batch.starts))


def order(batches):
    return [(batch.index, *zip(batch.samples.tolist(), batch.starts.tolist())) for batch in batches]


def test_batches_hold_the_frames_they_name_in_an_order_that_can_be_resumed(made):
    path, values = made
    with ups.open(path) as data:
        for options in ({"frames": 2}, {"frames": 4, "stride": 3}, {}, {"frames": 2, "windows_per_sample": 3},
                        {"frames": 1, "residency": "ram_compressed"},
                        {"frames": 2, "residency": "ram", "in_place": True}, {"frames": 3, "dtype": "float16"}):
            loader = data.loader(batch_size=3, seed=7, **options)
            held = [check_batch(batch, values, options.get("stride", 1)) for _ in range(3) for batch in loader]
            assert all(held) and len(held) == 3 * len(loader), f"batches hold the frames they name ({options})"
        loader = data.loader(batch_size=4, frames=2, seed=9)
        epochs = [list(loader) for _ in range(3)]
        seen = [sorted(np.concatenate([b.samples for b in epoch]).tolist()) for epoch in epochs]
        assert seen == [list(range(8))] * 3 and order(epochs[0])[0][1:] != order(epochs[1])[0][1:], \
            "each loop is an epoch: every sample once, in an order of its own"
        batch = epochs[0][0]
        assert (np.array_equal(batch.parameters[:, 0], data.parameters["beta"][batch.samples])
                and np.allclose(batch.dt, 0.05) and loader.parameter_names == ("beta", "nu")), "a batch has its parameters and time step"
        loader.set_epoch(1)
        assert order(loader) == order(epochs[1]), "an epoch can be chosen"
        whole, resumed = order(batch for epoch in epochs for batch in epoch), []
        first = data.loader(batch_size=4, frames=2, seed=9, threads=1)
        for batch in first:
            resumed.append(batch)
            break
        state = pickle.loads(pickle.dumps(first.state_dict()))
        second = data.loader(batch_size=4, frames=2, seed=9)
        second.load_state_dict(state)
        resumed += [batch for _ in range(3) for batch in second][: len(whole) - 1]
        assert order(resumed) == whole, "a run goes on exactly where its position says"
        begun = iter(data.loader(batch_size=4, frames=2, seed=9))
        assert order([next(begun)]) == whole[:1] and order(begun.loader) == whole[:2], \
            "a loop that is left does not count: the next is the same epoch"
        assert "another one" in str(raises(RuntimeError, lambda: next(begun))), "and ends the one before it"
        in_order = data.loader(batch_size=3, shuffle=False)
        passes = [np.concatenate([b.samples for b in in_order]).tolist() for _ in range(2)]
        assert passes == [list(range(8))] * 2 and len(in_order) == 3, "without shuffling every loop is the whole pass, its last batch smaller"
        halves = [order(data.loader(batch_size=2, frames=2, seed=9, rank=rank, ranks=2)) for rank in range(2)]
        assert [(a[0], *a[1:], *b[1:]) for a, b in zip(*halves)] == whole[:2], "ranks share every batch of one"
        chosen = data.loader(batch_size=1, frames=2, samples=[6, 1, 2])
        assert sorted(b.samples[0] for b in chosen) == [1, 2, 6], "a split is drawn from alone"
        endless = iter(data.loader(batch_size=3, shuffle=False, endless=True))
        assert np.concatenate([next(endless).samples for _ in range(6)]).tolist() == 2 * list(range(8)), "an endless walk begins anew"
        with ups.open(path) as other:
            mixed = ups.load({"a": data, "b": other}, 4, 2, weights={"a": 3, "b": 1}, samples={"b": [5]}, strategy="balanced")
            tasks = [b.tasks for _ in range(2) for b in mixed]
            counts = np.bincount(np.concatenate(tasks))
            assert counts[0] == 3 * counts[1] and mixed.tasks == ("a", "b"), "several data sets are mixed by weight"
        bound = data.loader(batch_size=3, frames=2, memory=2 << 20, residency="auto", slots=0)
        list(bound)
        facts = bound.statistics()
        assert facts["memory"] + facts["kept"] <= 2 << 20 and facts["residency"] == "ram" and facts["kept"] > 0, \
            "memory is bound, and what is kept counted"


def test_arrays_outlive_whatever_they_came_from(made):
    path, values = made
    data = ups.open(path)
    loader = data.loader(batch_size=4, frames=2, seed=2)
    kept = [(b.samples, b.starts, b.values) for _ in range(20) for b in loader]
    assert all(np.array_equal(v[w], values[s[w], t[w] : t[w] + 2]) for s, t, v in kept for w in range(4)), \
        "who keeps every batch gets copies, and is not left waiting"
    del kept  # or copies go on, which malloc puts into the same few places too
    addresses = [batch.values.__array_interface__["data"][0] for _ in range(30) for batch in loader]
    assert len(set(addresses)) <= loader.statistics()["slots"], "who drops them gets the same few slots again and again, without a copy"
    batch = next(iter(loader))
    views = [np.from_dlpack(batch), np.asarray(batch), np.from_dlpack(batch.values[1:])]
    assert all(np.shares_memory(view, batch.values) for view in views) and batch.__dlpack_device__() == (1, 0), \
        "DLPack and asarray share the batch's memory"
    expected, pieces = batch.values.copy(), views
    del batch, views
    gc.collect()
    for _ in range(10):
        list(loader)
    assert same(pieces[0], expected) and same(pieces[2], expected[1:]), "an array that is kept keeps its batch's memory"
    loader.close()
    data.close()
    del loader, data
    gc.collect()
    assert same(pieces[0], expected) and same(pieces[1], expected), "also when loader and data set are closed and gone"
    with ups.open(path) as data, data.loader(batch_size=2, residency="ram", in_place=True) as loader:
        for _ in range(3):
            for batch in loader:
                windows = batch.windows[0]
    del batch
    gc.collect()
    assert (windows.shape == CACHE_SHAPE[1:] and not windows.flags.writeable
            and any(np.array_equal(windows, value) for value in values)), "windows in place outlive everything too, and cannot be written"
    library, data, events, found = ups.library.library(), ups.open(path), [], []
    read, close, begun, go_on = library.read, library.close, threading.Event(), threading.Event()
    library.read = lambda *arguments: (begun.set(), go_on.wait(60), read(*arguments), events.append("read"))
    library.close = lambda handle: (events.append("close"), close(handle))
    reader = threading.Thread(target=lambda: found.append(data[0]))
    reader.start()
    begun.wait(60)
    data.close()
    go_on.set()
    reader.join()
    library.read, library.close = read, close
    assert events == ["read", "close"] and same(found[0], values[0]), "closing takes nothing away under a read in another thread"
    assert "was closed" in str(raises(ValueError, lambda: data[0])), "a data set that was closed says so"


# ---- files of a layout of their own

def test_other_files_are_read_by_a_layout(scratch):
    values = np.random.default_rng(3).normal(size=(5, 6, 8, 2)).astype("f4")
    np.save(scratch + "/waves.npy", values)
    zarr.create_array(scratch + "/waves.zarr", data=values[..., 0], name="u")
    layout = "{fields: {u: 0, v: 1}, axes: [sample, time, x, channel], time: {dt: 0.5}, parameters: {nu: 0.1}}"
    with ups.open(scratch + "/waves.npy", layout=layout) as data:
        assert (len(data), data.kind, data.channel_names, data.parameter_names) == (5, "mapped", ("u", "v"), ("nu",))
        assert np.array_equal(data[3], values[3]) and np.array_equal(data.sample(0).time, np.arange(6) / 2)
        again = pickle.loads(pickle.dumps(data))
        assert np.array_equal(again[1], values[1]), "pickled, it is its paths and its layout"
        batches = list(data.loader(batch_size=1, shuffle=False))
        assert len(batches) == 5
    with ups.open([scratch + "/waves.zarr"], "{fields: {u: /u}, axes: [sample, time, x]}") as data:
        assert np.array_equal(data[4][..., 0] if data[4].ndim == 3 and data[4].shape[-1] == 1 else data[4][:, 0], values[4, :, :, 0]), "a store"
    (Path(scratch) / "lab.yaml").write_text("tasks:\n  - {name: a, files: [waves.npy], layout: " + layout + "}\n")
    with ups.open(scratch + "/waves.npy", layout=f"@{scratch}/lab.yaml") as data:
        assert np.array_equal(data[3], values[3]), "a file of the layout, as the command takes it"
    for wrong, sentence in (("{fields: {u: 0}}", "the layout.axes: the key is missing"), ("{fields: [", "the layout"),
                            ("{fields: {u: 5}, axes: [sample, time, x, channel]}", "channel 5 of")):
        assert sentence in str(raises(Exception, lambda: ups.open(scratch + "/waves.npy", layout=wrong)))
    assert "waves.npy" in str(raises(ups.UpsError, lambda: ups.open(scratch + "/waves.npy")))


# ---- mistakes

@pytest.mark.parametrize("kind, sentence, call", [
    (OSError, "nowhere cannot be opened", lambda data, scratch: ups.open(scratch + "/nowhere")),
    (ups.UpsError, "is not an HDF5 file", lambda data, scratch: ups.open(scratch + "/text.h5")),
    (ValueError, "open one of waves/train", lambda data, scratch: ups.open(os.path.dirname(os.path.dirname(data.paths[0])))),
    (IndexError, "there is no sample 8", lambda data, scratch: data[8]),
    (IndexError, "there is no frame 21", lambda data, scratch: data[0, 21]),
    (TypeError, "not int32", lambda data, scratch: data.read(0, dtype="i4")),
    (NotImplementedError, "float16 values, which cannot be read as float64", lambda data, scratch: data.read(0, dtype="f8")),
    (ValueError, "out has shape", lambda data, scratch: data.read(0, out=np.empty((3, 3)))),
    (ValueError, "windows of 22", lambda data, scratch: list(data.loader(frames=22))),
    (ValueError, "no sample 8", lambda data, scratch: list(data.loader(samples=[8]))),
    (ValueError, "stream, ram_compressed, ram, auto", lambda data, scratch: data.loader(residency="disk")),
    (ValueError, "1 or more", lambda data, scratch: data.loader(batch_size=0)),
    (ValueError, "slots is 1", lambda data, scratch: list(data.loader(slots=1))),
    (MemoryError, "memory is bound", lambda data, scratch: list(data.loader(batch_size=64, memory=1 << 16))),
    (TypeError, "as ups.open makes it", lambda data, scratch: ups.load([data])),
    (ValueError, "batch.windows one by one", lambda data, scratch: np.from_dlpack(next(iter(data.loader(in_place=True)))))])
def test_a_mistake_is_an_exception_with_a_sentence(scratch, made, kind, sentence, call):
    Path(scratch + "/text.h5").write_text("no HDF5 at all, and long enough to be looked at in earnest")
    with ups.open(made[0]) as data:
        assert sentence in str(raises(kind, lambda: call(data, scratch)))


def test_errors_have_a_kind_and_bad_samples_end_a_run_or_are_passed_over(scratch, made):
    data = ups.open(made[0])
    error = raises(ups.UpsError, lambda: ups.open(scratch + "/nowhere"))
    assert error.status == "io" and str(pickle.loads(pickle.dumps(error))) == str(error), "an error has its kind, and can be pickled"
    assert len(list(data.loader(batch_size=2))) == 4, "a loader of a closed data set goes on"
    values = np.ones((5, 4, 8), "f4")
    values[3, 2, 5] = np.nan
    with ups.open(write_tensor(scratch + "/bad.hdf5", values)) as bad:
        error = raises(ups.UpsError, lambda: list(bad.loader(batch_size=5)))
        assert error is not None and error.status == "numeric" and "tensor[3]" in str(error), "a sample with NaN ends a run in a sentence"
        loader = bad.loader(batch_size=5, skip_bad=True)
        served = np.concatenate([b.values for b in loader])
        assert np.isfinite(served).all() and len(loader.statistics()["skipped"]) == 1 and "tensor[3]" in loader.statistics()["skipped"][0], \
            "or is passed over, and listed"
        assert same(bad[3], values[3][..., None]), "reading shows it as it is"


@pytest.mark.parametrize("name, said", [("/no/such/none.so", "correct UPS_LIBRARY"), (h5py.__file__, "UPS_LIBRARY")])
def test_a_library_that_is_not_there_is_a_sentence(name, said):
    done = run(sys.executable, "-c", "import ups; ups.open('x')", env={**os.environ, "UPS_LIBRARY": name})
    assert done.returncode == 1 and "ImportError: libups was not found" in done.stderr and said in done.stderr


# ---- processes and interrupts

def first_epoch(loader, queue):
    queue.put(order(loader))


def test_loaders_and_data_sets_work_in_other_processes_and_threads(made, chunked):
    path, values = made
    data, field = ups.open(path), ups.open(chunked)
    loader = data.loader(batch_size=4, frames=2, seed=3)
    expected = order(loader)
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    child = spawn.Process(target=first_epoch, args=(data.loader(batch_size=4, frames=2, seed=3), queue))
    child.start()
    assert queue.get(timeout=TIMEOUT) == expected, "a loader that is pickled into another process gives the same batches"
    child.join(TIMEOUT)
    loop = iter(loader)
    next(loop)
    stop = threading.Event()
    opener = threading.Thread(target=lambda: [ups.open(chunked).close() for _ in iter(stop.is_set, True)])
    opener.start()  # is within HDF5 most of the time: a child must not find its lock taken
    ended = []
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            signal.alarm(TIMEOUT)
            good = "another process" in str(raises(RuntimeError, lambda: next(loop))) and np.array_equal(data[2], values[2])
            good = good and field[1].shape == (11, 34, 1) and len(order(loader)) == 2
            del loop
            gc.collect()
            os._exit(0 if good else 1)
        ended.append(os.waitpid(pid, 0)[1])
    stop.set()
    opener.join()
    assert ended == [0] * 10, "after fork a loop says that it is another process's; data sets and new loops work, whatever the parent was doing"
    assert len(list(loop)) == 1, "and the parent's loop goes on"
    wrong = []
    look = lambda: wrong.extend(i for _ in range(20) for i in range(8) if not same(data[i], values[i]))
    readers = [threading.Thread(target=look) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert not wrong, "threads may share a data set"


WAIT = """
import sys, ups

loader = ups.open(sys.argv[1]).loader(batch_size=2048, frames=2, threads=1)
try:
    print("waiting", flush=True)
    for batch in loader:
        print("too early", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_wait_for_a_batch_at_once(scratch):
    # Chunks of 30 MB that take a hundredth of that on disk: every window decodes all of its chunk, and a batch is 1912 windows.
    path = write_tensor(scratch + "/slow.hdf5", np.zeros((8, 240, 1 << 14), "f8"), chunks=(1, 240, 1 << 14), compression="gzip", compression_opts=1)
    began = time.monotonic()
    with ups.open(path) as data:
        window = next(iter(data.loader(batch_size=1, frames=2, threads=1)))
        del window
    a_window = time.monotonic() - began
    child = subprocess.Popen([sys.executable, "-c", WAIT, path], stdout=subprocess.PIPE, text=True)
    begun = child.stdout.readline()
    time.sleep(10 * a_window)
    child.send_signal(signal.SIGINT)
    sent = time.monotonic()
    said = child.stdout.readline()
    took = time.monotonic() - sent
    child.wait(TIMEOUT)
    assert begun == "waiting\n" and said == "interrupted\n" and took < 30 * a_window + 0.5 and child.returncode == 0


# ---- the C example

def test_the_c_examples_sums_and_pairs_are_those_of_python(made, chunked):
    with h5py.File(chunked) as f:
        tensor = f["tensor"][:][..., None]
    for name, expected in ((made[0], made[1].astype("f4")), (chunked, tensor)):
        done = run(program("libups_example"), name)
        lines = [line.split() for line in done.stdout.splitlines()]
        sums = [float(line[2]) for line in lines if line[0] == "sum"]
        assert done.returncode == 0 and np.allclose(sums, expected.reshape(len(expected), -1).sum(1, dtype="f8"), rtol=1e-6, atol=1e-9), \
            f"the C example's sums are NumPy's ({os.path.basename(name)})"
        pairs = [[int(line[1]), int(line[2]), int(line[3]), *map(float, line[4:])] for line in lines if line[0] == "pair"]
        right = [np.allclose([a, b], expected[s, t : t + 2].reshape(2, -1)[:, 0], rtol=1e-6) for _, s, t, a, b in pairs]
        with ups.open(name) as data:
            loader = data.loader(batch_size=4, frames=2, seed=42)
            python = [(b.index, s, t) for _ in range(2) for b in loader for s, t in zip(b.samples, b.starts)]
        assert all(right) and len(pairs) >= 8 and [tuple(p[:3]) for p in pairs] == python, "and its pairs are those frames, in the order Python gets"
