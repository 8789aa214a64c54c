#!/usr/bin/env python3
"""ups_reader and libups' C example against h5py, `ups cache export` and each other: trajectories, batches, lifetimes, processes.

  test_reader.py UPS MAKE_CACHE LIBUPS EXAMPLE
Prints one line a claim; exit code 1 when one fails.
"""
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time

import h5py
import numpy as np

from tiny_run import PATIENCE

UPS, MAKE_CACHE, LIBUPS, EXAMPLE = (os.path.abspath(path) for path in sys.argv[1:5])
READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/python/reader")
os.environ["UPS_LIBRARY"] = LIBUPS
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [READER, os.environ.get("PYTHONPATH")]))
sys.path.insert(0, READER)
import ups_reader  # noqa: E402

SHAPE = (9, 21, 5, 32)  # what make_cache makes
failures = 0


def claim(text, held, detail=""):
    global failures
    failures += not held
    print(("ok    " if held else "FAILS ") + text + ("" if held else f": {detail}"), flush=True)


def raises(kind, call):
    """The exception, or None when it is another one or none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return error if isinstance(error, kind) else None
    return None


def same(found, expected):
    return isinstance(found, np.ndarray) and found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


def write_tensor(path, values, beta=0.4, **storage):
    with h5py.File(path, "w") as f:
        f.create_dataset("tensor", data=values, **storage)
        f["x-coordinate"] = np.linspace(0, 1, values.shape[2], dtype="f4")
        f["t-coordinate"] = np.linspace(0, 2, values.shape[1] + 1, dtype="f4")
        f.attrs["beta"] = beta
    return path


# ---- trajectories


def check_cache(scratch):
    subprocess.run([MAKE_CACHE, scratch + "/cache", "skip=3"], check=True, timeout=PATIENCE)
    path, kept = scratch + "/cache/waves/train", [i for i in range(SHAPE[0]) if i != 3]
    put_in = np.fromfile(scratch + "/cache/expected.f16", "<f2").reshape(SHAPE)[kept]
    for form in ("npy", "hdf5"):
        subprocess.run([UPS, "cache", "export", path, "-f", form, "-o", f"{scratch}/latents.{form}"], check=True, timeout=PATIENCE, capture_output=True)
    with h5py.File(scratch + "/latents.hdf5") as f, ups_reader.open(path) as data:
        exported, condition, times = f["latent"][:], f["condition"][:], f["time"][:]
        claim("a cache has as many samples as were not skipped", len(data) == len(kept))
        claim("trajectories of a cache are those that were put in", all(same(data[i], put_in[i]) for i in range(len(data))))
        claim("and those of `ups cache export`, HDF5 and NPY", all(same(data[i], exported[k]) for i, k in enumerate(kept))
              and same(data[2], np.load(scratch + "/latents.npy")[kept[2]]))
        claim("shape, axes, type and time grid are told", data.shape == SHAPE[1:] and data.axes == ("time", "token", "channel")
              and data.dtype == np.float16 and np.array_equal(data.time, times))
        claim("parameters are the export's, by name", np.array_equal(np.stack(list(data.parameters.values()), 1), condition[kept], equal_nan=True)
              and list(data.parameters) == ["beta", "nu"])
        claim("a sample knows which of the encoded data's it was", [data.sample(i).origin for i in range(len(data))] == kept)
        claim("what made a cache is told", data.attributes["task"] == "waves" and "encoder_weights" in data.attributes["fingerprint"])
        claim("iteration gives every trajectory, a slice stacks some", len(list(data)) == 8 and same(data[2:7:2], put_in[2:7:2]) and data[3:3].shape == (0, *SHAPE[1:]))
        claim("float32 is float16, widened", same(data.read(5, dtype=np.float32), put_in[5].astype(np.float32)))
        out = np.zeros((4, *SHAPE[2:]), np.float32)
        claim("frames are read into an array that is given", data.read(1, slice(3, 7), out=out) is out and np.array_equal(out, put_in[1, 3:7]))
        wide = np.zeros((4, *SHAPE[2:], 2), np.float32)[..., 0]
        data.read(1, slice(9, 1, -2), out=wide)
        claim("also into one that is not contiguous, backwards", np.array_equal(wide, put_in[1, 9:1:-2]))
        slices = [slice(a, b, c) for a in (None, 0, 4, -3, 30) for b in (None, 1, 9, -1, 21, 50) for c in (None, 1, 3, -1, -4)]
        claim(f"{len(slices)} slices of frames are NumPy's own", all(same(data[6, s], put_in[6][s]) for s in slices))
        claim("single frames and what comes after them too", same(data[6, -1], put_in[6, -1]) and same(data[-2, 3, 1:3], put_in[-2, 3, 1:3])
              and same(data[0, 2:5, :, 7], put_in[0, 2:5, :, 7]))
    return path, put_in


def check_fields(scratch):
    rng = np.random.default_rng(5)
    forms = {
        "contiguous": ("f4", {}),
        "chunked": ("f4", {"chunks": (1, 3, 16), "compression": "gzip", "shuffle": True}),
        "lzf_big_endian_f64": (">f8", {"chunks": (2, 5, 16), "compression": "lzf"}),
    }
    for name, (kind, storage) in forms.items():
        path = write_tensor(f"{scratch}/{name}.hdf5", rng.normal(size=(6, 11, 34)).astype(kind), **storage)
        with h5py.File(path) as f, ups_reader.open(path) as data:
            expected = f["tensor"][:]
            native = expected.astype(expected.dtype.newbyteorder("="))
            claim(f"{name} fields are h5py's, while h5py has the file open",
                  all(same(data[i], native[i][..., None]) for i in range(6)) and same(data[2, 4:9:2], native[2, 4:9:2, :, None]))
            claim(f"{name} fields as float32", same(data.read(3, dtype="f4"), native[3][..., None].astype("f4")))
            claim(f"{name} parameters and coordinates too", data.parameters["beta"][0] == 0.4 and data.axes == ("time", "x", "channel")
                  and data.channel_names == ("u",) and np.array_equal(data.sample(1).coordinates["x"], f["x-coordinate"][:]))
    path = scratch + "/flow.hdf5"
    with h5py.File(path, "w") as f:
        fields = {name: rng.normal(size=(2, 4, 8, 6)).astype("f4") for name in ("density", "pressure", "Vx", "Vy")}
        for name, values in fields.items():
            f[name] = values
        for name, points in (("x", 8), ("y", 6), ("t", 5)):
            f[name + "-coordinate"] = np.linspace(0, 1, points, dtype="f4")
        f.attrs["eta"], f.attrs["zeta"], f.attrs["M"] = 0.1, 0.2, 0.3
    with ups_reader.open(path) as data:
        expected = np.stack([fields[name] for name in data.channel_names], 2)
        claim("fields of several datasets are channels", same(data[1], expected[1]) and data.axes == ("time", "channel", "x", "y") and set(data.parameters) >= {"eta", "zeta", "M"})
        batch = next(iter(data.loader(batch_size=2, frames=2, seed=1)))
        claim("and stay so in batches", batch.values.shape == (2, 2, 4, 8, 6)
              and all(np.array_equal(batch.values[w], expected[s, t : t + 2]) for w, (s, t) in enumerate(zip(batch.samples, batch.starts))))
    path = scratch + "/grids.hdf5"
    with h5py.File(path, "w") as f:
        for k, grid in enumerate([(8, 6), (6, 8), (8, 6)]):
            group = f.create_group(f"{k:04d}")
            group["data"] = rng.normal(size=(4, *grid, 2)).astype("f4")
            for name, points in (("t", 4), ("x", grid[0]), ("y", grid[1])):
                group["grid/" + name] = np.linspace(0, 1, points, dtype="f4")
    with h5py.File(path) as f, ups_reader.open(path) as data:
        for size, shapes in ((1, [(8, 6, 2), (6, 8, 2), (8, 6, 2)]), (2, [(96,), (8, 6, 2)])):
            batches = list(data.loader(batch_size=size, frames=2, shuffle=False))
            claim(f"batches of {size} have their samples' grid where they share one", [b.values.shape[2:] for b in batches] == shapes
                  and all(np.array_equal(v.ravel(), f[f"{s:04d}/data"][:2].ravel()) for b in batches for v, s in zip(b.values, b.samples)))
    paths = [write_tensor(f"{scratch}/part{k}.hdf5", np.full((2, 3, 4), k, "f4"), beta=k) for k in range(3)]
    with ups_reader.open(paths) as data:
        claim("several files are one data set, each with its parameters", [data[i][0, 0, 0] for i in range(6)] == [0, 0, 1, 1, 2, 2]
              and list(data.parameters["beta"]) == [0, 0, 1, 1, 2, 2])


# ---- batches


def check_batch(batch, values, stride=1):
    frames = batch.windows[0].shape[0]
    return len(batch) == len(batch.windows) and all(
        np.array_equal(window, values[s, t : t + (frames - 1) * stride + 1 : stride]) for window, s, t in zip(batch.windows, batch.samples, batch.starts))


def order(batches):
    return [(batch.index, *zip(batch.samples.tolist(), batch.starts.tolist())) for batch in batches]


def check_batches(path, values):
    with ups_reader.open(path) as data:
        for options in ({"frames": 2}, {"frames": 4, "stride": 3}, {}, {"frames": 2, "windows_per_sample": 3}, {"frames": 1, "residency": "ram_compressed"},
                        {"frames": 2, "residency": "ram", "in_place": True}, {"frames": 3, "dtype": "float16"}):
            loader = data.loader(batch_size=3, seed=7, **options)
            held = [check_batch(batch, values, options.get("stride", 1)) for _ in range(3) for batch in loader]
            claim(f"batches hold the frames they name ({options})", all(held) and len(held) == 3 * len(loader), held)
        loader = data.loader(batch_size=4, frames=2, seed=9)
        epochs = [list(loader) for _ in range(3)]
        seen = [sorted(np.concatenate([b.samples for b in epoch]).tolist()) for epoch in epochs]
        claim("each loop is an epoch: every sample once, in an order of its own", seen == [list(range(8))] * 3 and order(epochs[0])[0][1:] != order(epochs[1])[0][1:])
        batch = epochs[0][0]
        claim("a batch has its parameters and time step", np.array_equal(batch.parameters[:, 0], data.parameters["beta"][batch.samples])
              and np.allclose(batch.dt, 0.05) and loader.parameter_names == ("beta", "nu"))
        loader.set_epoch(1)
        claim("an epoch can be chosen", order(loader) == order(epochs[1]))
        whole, resumed = order(batch for epoch in epochs for batch in epoch), []
        first = data.loader(batch_size=4, frames=2, seed=9, threads=1)
        for batch in first:
            resumed.append(batch)
            break
        state = pickle.loads(pickle.dumps(first.state_dict()))
        second = data.loader(batch_size=4, frames=2, seed=9)
        second.load_state_dict(state)
        resumed += [batch for _ in range(3) for batch in second][: len(whole) - 1]
        claim("a run goes on exactly where its position says", order(resumed) == whole)
        begun = iter(data.loader(batch_size=4, frames=2, seed=9))
        claim("a loop that is left does not count: the next is the same epoch", order([next(begun)]) == whole[:1] and order(begun.loader) == whole[:2])
        claim("and ends the one before it", "another one" in str(raises(RuntimeError, lambda: next(begun))))
        in_order = data.loader(batch_size=3, shuffle=False)
        passes = [np.concatenate([b.samples for b in in_order]).tolist() for _ in range(2)]
        claim("without shuffling every loop is the whole pass, its last batch smaller", passes == [list(range(8))] * 2 and len(in_order) == 3)
        halves = [order(data.loader(batch_size=2, frames=2, seed=9, rank=rank, ranks=2)) for rank in range(2)]
        claim("ranks share every batch of one", [(a[0], *a[1:], *b[1:]) for a, b in zip(*halves)] == whole[:2])
        chosen = data.loader(batch_size=1, frames=2, samples=[6, 1, 2])
        claim("a split is drawn from alone", sorted(b.samples[0] for b in chosen) == [1, 2, 6])
        endless = iter(data.loader(batch_size=3, shuffle=False, endless=True))
        claim("an endless walk begins anew", np.concatenate([next(endless).samples for _ in range(6)]).tolist() == 2 * list(range(8)))
        with ups_reader.open(path) as other:
            mixed = ups_reader.load({"a": data, "b": other}, 4, 2, weights={"a": 3, "b": 1}, samples={"b": [5]}, strategy="balanced")
            tasks = [b.tasks for _ in range(2) for b in mixed]
            counts = np.bincount(np.concatenate(tasks))
            claim("several data sets are mixed by weight", counts[0] == 3 * counts[1] and mixed.tasks == ("a", "b"), counts)
        bound = data.loader(batch_size=3, frames=2, memory=2 << 20, residency="auto", slots=0)
        list(bound)
        facts = bound.statistics()
        claim("memory is bound, and what is kept counted", facts["memory"] + facts["kept"] <= 2 << 20 and facts["residency"] == "ram" and facts["kept"] > 0, facts)


def check_lifetimes(path, values):
    data = ups_reader.open(path)
    loader = data.loader(batch_size=4, frames=2, seed=2)
    kept = [(b.samples, b.starts, b.values) for _ in range(20) for b in loader]
    claim("who keeps every batch gets copies, and is not left waiting",
          all(np.array_equal(v[w], values[s[w], t[w] : t[w] + 2]) for s, t, v in kept for w in range(4)))
    del kept  # or copies go on, which malloc puts into the same few places too
    addresses = [batch.values.__array_interface__["data"][0] for _ in range(30) for batch in loader]
    claim("who drops them gets the same few slots again and again, without a copy", len(set(addresses)) <= loader.statistics()["slots"], len(set(addresses)))
    batch = next(iter(loader))
    views = [np.from_dlpack(batch), np.asarray(batch), np.from_dlpack(batch.values[1:])]
    claim("DLPack and asarray share the batch's memory", all(np.shares_memory(view, batch.values) for view in views) and batch.__dlpack_device__() == (1, 0))
    expected, pieces = batch.values.copy(), views
    del batch, views
    gc.collect()
    for _ in range(10):
        list(loader)
    claim("an array that is kept keeps its batch's memory", same(pieces[0], expected) and same(pieces[2], expected[1:]))
    loader.close()
    data.close()
    del loader, data
    gc.collect()
    claim("also when loader and data set are closed and gone", same(pieces[0], expected) and same(pieces[1], expected))
    with ups_reader.open(path) as data, data.loader(batch_size=2, residency="ram", in_place=True) as loader:
        for _ in range(3):
            for batch in loader:
                windows = batch.windows[0]
    del batch
    gc.collect()
    claim("windows in place outlive everything too, and cannot be written", windows.shape == SHAPE[1:] and not windows.flags.writeable
          and any(np.array_equal(windows, value) for value in values))
    library, data, events, found = ups_reader.library.library(), ups_reader.open(path), [], []
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
    claim("closing takes nothing away under a read in another thread", events == ["read", "close"] and same(found[0], values[0]), events)
    claim("a data set that was closed says so", "was closed" in str(raises(ValueError, lambda: data[0])))


# ---- mistakes


def check_mistakes(scratch, path):
    with open(scratch + "/text.h5", "w", encoding="utf-8") as f:
        f.write("no HDF5 at all, and long enough to be looked at in earnest")
    data = ups_reader.open(path)
    mistakes = [
        (OSError, "nowhere cannot be opened", lambda: ups_reader.open(scratch + "/nowhere")),
        (ups_reader.UpsError, "is not an HDF5 file", lambda: ups_reader.open(scratch + "/text.h5")),
        (ValueError, "open one of waves/train", lambda: ups_reader.open(scratch + "/cache")),
        (IndexError, "there is no sample 8", lambda: data[8]),
        (IndexError, "there is no frame 21", lambda: data[0, 21]),
        (TypeError, "not int32", lambda: data.read(0, dtype="i4")),
        (NotImplementedError, "float16 values, which cannot be read as float64", lambda: data.read(0, dtype="f8")),
        (ValueError, "out has shape", lambda: data.read(0, out=np.empty((3, 3)))),
        (ValueError, "windows of 22", lambda: list(data.loader(frames=22))),
        (ValueError, "no sample 8", lambda: list(data.loader(samples=[8]))),
        (ValueError, "stream, ram_compressed, ram, auto", lambda: data.loader(residency="disk")),
        (ValueError, "1 or more", lambda: data.loader(batch_size=0)),
        (ValueError, "slots is 1", lambda: list(data.loader(slots=1))),
        (MemoryError, "memory is bound", lambda: list(data.loader(batch_size=64, memory=1 << 16))),
        (TypeError, "as ups_reader.open makes it", lambda: ups_reader.load([data])),
        (ValueError, "batch.windows one by one", lambda: np.from_dlpack(next(iter(data.loader(in_place=True))))),
    ]
    for kind, sentence, call in mistakes:
        error = raises(kind, call)
        claim(f"{kind.__name__}: … {sentence} …", sentence in str(error), error)
    error = raises(ups_reader.UpsError, lambda: ups_reader.open(scratch + "/nowhere"))
    claim("an error has its kind, and can be pickled", error.status == "io" and str(pickle.loads(pickle.dumps(error))) == str(error))
    claim("a loader of a closed data set goes on", len(list(data.loader(batch_size=2))) == 4)
    values = np.ones((5, 4, 8), "f4")
    values[3, 2, 5] = np.nan
    with ups_reader.open(write_tensor(scratch + "/bad.hdf5", values)) as bad:
        error = raises(ups_reader.UpsError, lambda: list(bad.loader(batch_size=5)))
        claim("a sample with NaN ends a run in a sentence", error is not None and error.status == "numeric" and "tensor[3]" in str(error), error)
        loader = bad.loader(batch_size=5, skip_bad=True)
        served = np.concatenate([b.values for b in loader])
        claim("or is passed over, and listed", np.isfinite(served).all() and len(loader.statistics()["skipped"]) == 1 and "tensor[3]" in loader.statistics()["skipped"][0])
        claim("reading shows it as it is", same(bad[3], values[3][..., None]))
    for name, said in ((scratch + "/none.so", "correct UPS_LIBRARY"), (h5py.__file__, "UPS_LIBRARY")):
        done = subprocess.run([sys.executable, "-c", "import ups_reader; ups_reader.open('x')"], env={**os.environ, "UPS_LIBRARY": name}, capture_output=True, text=True, timeout=PATIENCE)
        claim(f"a library that is not there is a sentence ({os.path.basename(name)})", done.returncode == 1 and "ImportError: libups was not found" in done.stderr and said in done.stderr, done.stderr)


# ---- processes and interrupts


def first_epoch(loader, queue):
    queue.put(order(loader))


def check_processes(scratch, path, values):
    data = ups_reader.open(path)
    field = ups_reader.open(scratch + "/chunked.hdf5")
    loader = data.loader(batch_size=4, frames=2, seed=3)
    expected = order(loader)
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    child = spawn.Process(target=first_epoch, args=(data.loader(batch_size=4, frames=2, seed=3), queue))
    child.start()
    claim("a loader that is pickled into another process gives the same batches", queue.get(timeout=PATIENCE) == expected)
    child.join(PATIENCE)
    loop = iter(loader)
    next(loop)
    stop = threading.Event()
    opener = threading.Thread(target=lambda: [ups_reader.open(scratch + "/chunked.hdf5").close() for _ in iter(stop.is_set, True)])
    opener.start()  # is within HDF5 most of the time: a child must not find its lock taken
    ended = []
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            signal.alarm(PATIENCE)
            good = "another process" in str(raises(RuntimeError, lambda: next(loop))) and np.array_equal(data[2], values[2])
            good = good and field[1].shape == (11, 34, 1) and len(order(loader)) == 2
            del loop
            gc.collect()
            os._exit(0 if good else 1)
        ended.append(os.waitpid(pid, 0)[1])
    stop.set()
    opener.join()
    claim("after fork a loop says that it is another process's; data sets and new loops work, whatever the parent was doing", ended == [0] * 10, ended)
    claim("and the parent's loop goes on", len(list(loop)) == 1)
    wrong = []
    readers = [threading.Thread(target=lambda: wrong.extend(i for _ in range(20) for i in range(8) if not same(data[i], values[i]))) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    claim("threads may share a data set", not wrong)


WAIT = """
import sys, ups_reader
loader = ups_reader.open(sys.argv[1]).loader(batch_size=256, frames=2, threads=1)
try:
    print("waiting", flush=True)
    for batch in loader:
        print("too early", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def check_interrupt(scratch):
    # One chunk of 30 MB that takes a hundredth of that on disk: every window decodes all of it, a batch takes as long as hundreds of windows.
    path = write_tensor(scratch + "/slow.hdf5", np.zeros((1, 240, 1 << 14), "f8"), chunks=(1, 240, 1 << 14), compression="gzip", compression_opts=1)
    began = time.monotonic()
    with ups_reader.open(path) as data:
        window = next(iter(data.loader(batch_size=1, frames=2, threads=1)))
        del window
    a_window = time.monotonic() - began
    child = subprocess.Popen([sys.executable, "-c", WAIT, path], stdout=subprocess.PIPE, text=True)
    begun = child.stdout.readline()
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    sent = time.monotonic()
    said = child.stdout.readline()
    took = time.monotonic() - sent
    child.wait(PATIENCE)
    claim("Ctrl-C ends a wait for a batch at once", begun == "waiting\n" and said == "interrupted\n" and took < 30 * a_window and child.returncode == 0, (begun, said, took, a_window))


# ---- the C example


def check_example(scratch, path, values):
    fields = scratch + "/chunked.hdf5"
    with h5py.File(fields) as f:
        tensor = f["tensor"][:][..., None]
    for name, expected in ((path, values.astype("f4")), (fields, tensor)):
        done = subprocess.run([EXAMPLE, name], capture_output=True, text=True, timeout=PATIENCE)
        lines = [line.split() for line in done.stdout.splitlines()]
        sums = [float(line[2]) for line in lines if line[0] == "sum"]
        claim(f"the C example's sums are NumPy's ({os.path.basename(name)})",
              done.returncode == 0 and np.allclose(sums, expected.reshape(len(expected), -1).sum(1, dtype="f8"), rtol=1e-6, atol=1e-9), done.stderr)
        pairs = [[int(line[1]), int(line[2]), int(line[3]), *map(float, line[4:])] for line in lines if line[0] == "pair"]
        right = [np.allclose([a, b], expected[s, t : t + 2].reshape(2, -1)[:, 0], rtol=1e-6) for _, s, t, a, b in pairs]
        with ups_reader.open(name) as data:
            loader = data.loader(batch_size=4, frames=2, seed=42)
            python = [(b.index, s, t) for _ in range(2) for b in loader for s, t in zip(b.samples, b.starts)]
        claim("and its pairs are those frames, in the order Python gets", all(right) and len(pairs) >= 8 and [tuple(p[:3]) for p in pairs] == python)


def main():
    began = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        path, values = check_cache(scratch)
        check_fields(scratch)
        check_batches(path, values)
        check_lifetimes(path, values)
        check_mistakes(scratch, path)
        check_processes(scratch, path, values)
        check_interrupt(scratch)
        check_example(scratch, path, values)
    print(f"{time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
    sys.exit(failures > 0)
