"""Batches: shuffled windows of trajectories, read and decoded ahead by libups' threads, as NumPy arrays over its memory."""

import ctypes
import os
import sys
import weakref

import numpy as np

from . import library as c
from .data import CODES, DTYPES, Data

RESIDENCIES = ("stream", "ram_compressed", "ram", "auto")
STRATEGIES = ("proportional", "balanced", "temperature")
PATIENCE = 0.1  # seconds between looks at whether Python wants something else: Ctrl-C


class _Memory:
    """Array memory that belongs to a batch. An array over it keeps it, and so the batch, alive."""

    def __init__(self, held, address, shape, dtype, strides=None, read_only=False):
        self.held = held
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": dtype.str, "strides": strides,
                                    "data": (address, read_only)}


class _Held:
    """A batch of the library, given back when nobody wants it any more."""

    def __init__(self, session, address):
        self.session, self.address = session, address
        session.held.add(address)

    def __del__(self, getpid=os.getpid):
        session = self.session
        session.held.discard(self.address)
        if getpid() == session.owner:
            session.library.loader_release(session.handle, self.address)


def _copy(pointer, count, dtype):
    return np.frombuffer(bytearray(ctypes.string_at(pointer, count * np.dtype(dtype).itemsize)), dtype)


class Batch:
    """Windows of trajectories.

    values      (windows, frames, …) array, each frame as in its sample; None with in_place, where `windows` has them
    parameters  (windows, parameters) float64, in the order of `Loader.parameter_names`, NaN where a sample has none
    samples, starts, tasks, dt   (windows): sample, its first frame, data set, seconds between the first two frames

    The arrays stay valid as long as they are kept. torch.from_dlpack(batch), np.from_dlpack(batch) and the like take
    `values` without a copy.
    """

    def __init__(self, held, batch):
        windows, shape = batch.windows, tuple(batch.shape[: batch.rank])
        dtype = DTYPES[batch.dtype]
        self.index = batch.index
        self.samples = _copy(batch.sample, windows, np.int64)
        self.starts = _copy(batch.start, windows, np.int64)
        self.tasks = _copy(batch.task, windows, np.int32)
        self.dt = _copy(batch.dt, windows, np.float64)
        count = batch.parameter_count
        self.parameters = _copy(batch.parameters, windows * count, np.float64).reshape(windows, count)
        self.values = self._windows = None
        if batch.values is None and windows > 0:
            self._windows = [self._window(held, batch, w, shape[1:], dtype) for w in range(windows)]
        else:
            self.values = np.asarray(_Memory(held, batch.values or 0, shape, dtype)) if windows else np.empty(shape, dtype)

    @staticmethod
    def _window(held, batch, w, shape, dtype):
        strides = [dtype.itemsize]
        for length in reversed(shape[2:]):
            strides.insert(0, strides[0] * length)
        strides.insert(0, batch.frame_step[w] * dtype.itemsize)
        # Others read the same trajectory: it is not to be written.
        return np.asarray(_Memory(held, batch.window_values[w], shape, dtype, tuple(strides[: len(shape)]), True))

    @property
    def windows(self):
        """One array (frames, …) a window: with in_place where it lies in memory, to be read only."""
        return self._windows if self._windows is not None else list(self.values)

    def __len__(self):
        return len(self.samples)

    def __dlpack__(self, **arguments):
        return self._whole().__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._whole().__dlpack_device__()

    def __array__(self, dtype=None, copy=None):
        return np.array(self._whole(), dtype) if copy else np.asarray(self._whole(), dtype)

    def _whole(self):
        if self.values is None:
            raise ValueError("windows of an in_place loader lie where they lie; take batch.windows one by one")
        return self.values

    def _detach(self):
        """Copies, so that the library can have its memory back."""
        if self._windows is not None:
            self._windows = [window.copy() for window in self._windows]
        else:
            self.values = self.values.copy()


class _Session:
    """An open loader of the library, of one process."""

    def __init__(self, tasks, options):
        self.library, self.owner, self.held = c.library(), os.getpid(), set()
        handle = ctypes.c_void_p()
        self.library.loader_open(tasks, len(tasks), ctypes.byref(options), ctypes.byref(handle))
        self.handle = handle.value
        self.close = weakref.finalize(self, _close, self.library, self.handle, self.owner)
        self.slots = self.describe().slots

    def describe(self):
        facts = c.Statistics()
        self.library.loader_describe(self.handle, ctypes.byref(facts))
        return facts

    def seek(self, position):
        self.library.loader_seek(self.handle, position)

    def next(self):
        """The next batch; None at the end. Ctrl-C ends the wait."""
        pointer = ctypes.POINTER(c.CBatch)()
        while not self.library.loader_wait(self.handle, PATIENCE):
            pass
        self.library.loader_next(self.handle, ctypes.byref(pointer))
        if not pointer:
            return None
        held = _Held(self, ctypes.addressof(pointer.contents))
        batch = Batch(held, pointer.contents)
        # Two slots at least are for reading ahead: who keeps more batches than the others gets copies.
        if len(self.held) > max(self.slots - 2, 1):
            batch._detach()
        return batch


def _close(library, handle, owner):
    if os.getpid() == owner:
        library.loader_close(handle)


def _worker():
    """(number, count) of this PyTorch DataLoader worker; (0, 1) anywhere else."""
    torch_data = sys.modules.get("torch.utils.data")
    info = torch_data.get_worker_info() if torch_data else None
    return (info.id, info.num_workers) if info else (0, 1)


def load(data, batch_size=1, frames=None, *, stride=1, windows_per_sample=1, seed=0, shuffle=True, dtype="float32",
         samples=None, weights=None, strategy="proportional", temperature=1.0, one_task_per_batch=False, endless=False,
         first_batch=0, rank=0, ranks=1, threads=0, slots=4, queue_depth=0, memory=0, residency="stream", direct=False,
         skip_bad=False, in_place=False):
    """Makes a Loader.

    data         a Data, or {name: Data} of several to be mixed; samples and weights are then by name too
    frames       in a window: 2 for pairs, k + 1 for rollouts of k steps; None: whole trajectories
    stride       time steps between a window's frames
    samples      those to draw from, such as a split; None: all
    shuffle      an order of its own for each epoch, drawn from `seed`; False: in order, windows from frame 0
    rank, ranks  this process's share of every global batch of ranks × batch_size
    memory       bytes that loader and kept samples may take; slots and threads shrink to fit. 0: no bound
    residency    what stays in memory from one draw to the next: stream, ram_compressed, ram or auto
    in_place     windows are not gathered: batch.windows are arrays over kept trajectories (with residency ram)
    skip_bad     samples with NaN or Inf are replaced by other draws and listed in statistics(); else they are an error
    """
    several = isinstance(data, dict)
    sets = dict(data) if several else {None: data}
    if not sets or not all(isinstance(one, Data) for one in sets.values()):
        raise TypeError("data is a Data, as ups.open makes it, or a dict of them by name")
    per_task = lambda given, name, otherwise: (given or {}).get(name, otherwise) if several else given
    chosen = {name: per_task(samples, name, None) for name in sets}
    chosen = {name: None if given is None else np.ascontiguousarray(given, np.int64).reshape(-1) for name, given in chosen.items()}
    options = {
        "seed": seed, "batch_size": batch_size, "frames": frames or 0, "time_stride": stride,
        "windows_per_sample": windows_per_sample, "dtype": CODES[np.dtype(dtype)] if np.dtype(dtype) in CODES else -1,
        "flags": (c.ONE_TASK_PER_BATCH * bool(one_task_per_batch) | c.SEQUENTIAL * (not shuffle) | c.DIRECT * bool(direct)
                  | c.SKIP_BAD * bool(skip_bad) | c.IN_PLACE * bool(in_place)),
        "strategy": _choice("strategy", strategy, STRATEGIES), "temperature": temperature, "rank": rank, "ranks": ranks,
        "threads": threads, "slots": slots, "queue_depth": queue_depth, "memory": memory,
        "residency": _choice("residency", residency, RESIDENCIES),
    }
    if batch_size < 1 or windows_per_sample < 1 or stride < 1 or ranks < 1 or not 0 <= rank < ranks:
        raise ValueError("batch_size, windows_per_sample, stride and ranks are 1 or more, and rank is below ranks")
    return Loader(sets, chosen, dict(weights or {}), options, endless, first_batch)


def _choice(option, given, known):
    if given not in known:
        raise ValueError(f"{option} is {given!r}; {', '.join(known)} are possible")
    return known.index(given)


class _Loop:
    """One `for` loop over a loader. It keeps no batch, so that memory goes back as soon as its taker drops it."""

    def __init__(self, loader, session, end):
        self.loader, self.session, self.end, self.turn = loader, session, end, loader._turn
        self.over = False

    def __iter__(self):
        return self

    def __next__(self):
        loader = self.loader
        if self.over:
            raise StopIteration
        if self.turn != loader._turn:
            raise RuntimeError("this loop is over: another one over the same loader has begun, or the loader was closed")
        if self.session.owner != os.getpid():
            raise RuntimeError("this loop was begun in another process, whose threads did not follow the fork: begin one here")
        batch = self.session.next()
        if not batch and self.end is None:
            self.session.seek(0)  # an endless walk through the samples in order
            batch = self.session.next()
        if batch is None or (len(batch) == 0 and loader._share[1] > 1):  # no samples are left for this worker
            self._finish(loader._position if self.end is None else self.end)
            raise StopIteration
        loader._position += 1
        if loader._position == self.end:
            self._finish(self.end)
        return batch

    def _finish(self, end):
        self.over = True
        self.loader._position = self.loader._start = end
        self.loader._epoch = None


class Loader:
    """Batches of an endless run, an epoch for each `for` loop: iterating goes to the end of the epoch, and the next loop
    takes the next one. `position` is the one number that resumes exactly.

    What batch p holds depends on data, seed and options alone. An epoch is as many batches as samples fill; what is left
    over comes first in the next. Where this is iterated in a worker of a PyTorch DataLoader, workers share every epoch.
    Pickled, and in a forked process, it opens anew.
    """

    def __init__(self, data, samples, weights, options, endless, first_batch):
        self._data, self._samples, self._weights, self._options, self._endless = data, samples, weights, options, endless
        self._start = first_batch  # where the next loop begins …
        self._epoch = None  # … or at this epoch, whose length only the loop's process knows
        self._position = first_batch
        self._session = None
        self._turn = 0  # of the loop that may go on
        self._share = (0, 1)  # of the worker that _session is for
        if first_batch < 0:
            raise ValueError(f"first_batch is {first_batch}; 0 is the lowest")

    def __getstate__(self):
        return {**self.__dict__, "_session": None}

    @property
    def parameter_names(self):
        """What the columns of batch.parameters are; of several data sets, by name."""
        names = {name: data.parameter_names for name, data in self._data.items()}
        return names[None] if None in names else names

    @property
    def tasks(self):
        """Names of the data sets, as batch.tasks counts them."""
        return tuple(self._data)

    def _epoch_batches(self, workers=1):
        counts = [len(data) if self._samples[name] is None else len(self._samples[name]) for name, data in self._data.items()]
        draws = max(1, self._options["batch_size"] // self._options["windows_per_sample"]) * self._options["ranks"] * workers
        if not self._options["flags"] & c.SEQUENTIAL:
            return max(1, sum(counts) // draws)
        by_task = self._options["flags"] & c.ONE_TASK_PER_BATCH
        return sum(-(-count // draws) for count in (counts if by_task else [sum(counts)]))

    def __len__(self):
        """Batches in an epoch of this rank; a DataLoader's workers may drop a few, as they share them evenly."""
        if self._endless:
            raise TypeError("an endless loader has no length")
        workers = _worker()[1]
        return self._epoch_batches(workers)

    @property
    def position(self):
        """The next batch of the latest loop. Setting it says where the next loop begins: that is how a run resumes."""
        return self._position

    @position.setter
    def position(self, batch):
        if batch < 0:
            raise ValueError(f"position is {batch}; 0 is the lowest")
        self._start = self._position = batch
        self._epoch = None

    def set_epoch(self, epoch):
        """The next loop is this epoch, from its beginning."""
        self.position = epoch * self._epoch_batches(_worker()[1])
        self._epoch = epoch

    def state_dict(self):
        return {"position": self._position}

    def load_state_dict(self, state):
        self.position = state["position"]

    def _open(self, position, share):
        number, workers = share
        rank, ranks = self._options["rank"], self._options["ranks"]
        own = {**self._options, "rank": rank * workers + number, "ranks": ranks * workers, "first_batch": position}
        if workers > 1 and own["threads"] == 0:
            own["threads"] = max(1, len(os.sched_getaffinity(0)) // workers)
        tasks = (c.CTask * len(self._data))()
        keep = []  # what tasks point to, until the loader has its own
        for task, (name, data) in zip(tasks, self._data.items()):
            opened = data._use()
            keep.append(opened)
            task.data = opened.handle
            usual = data.attributes["task"] if data.attributes else os.path.basename(data.paths[0])
            task.name = str(usual if name is None else name).encode()
            task.weight = self._weights.get(name, 0.0)
            chosen = self._samples[name]
            if chosen is not None:
                keep.append(chosen)
                task.samples = chosen.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
                task.sample_count = len(chosen)
        self._session, self._share = _Session(tasks, c.Options(**own)), share

    def _go_to(self, position, share):
        session = self._session
        if session is None or session.owner != os.getpid() or share != self._share:
            self._open(position, share)
        elif session.library.loader_position(session.handle) != position:
            session.seek(position)

    def __iter__(self):
        self._turn += 1
        share = _worker()
        length = self._epoch_batches(share[1])
        start = self._start if self._epoch is None else self._epoch * length
        end = None if self._endless else (start // length + 1) * length
        sequential = self._options["flags"] & c.SEQUENTIAL
        self._go_to(start % length if sequential else start, share)
        self._position = start
        return _Loop(self, self._session, end)

    def statistics(self):
        """Counts and seconds since the loop began, memory, what stays in it, and the samples that were skipped."""
        if self._session is None:
            raise RuntimeError("nothing was loaded yet")
        facts = self._session.describe()
        names = ("batches", "windows", "draws", "resident", "bytes_read", "memory", "kept", "seconds_disk", "seconds_decode",
                 "seconds_consumer", "seconds_full", "threads", "slots")
        found = {name: getattr(facts, name) for name in names}
        found["residency"] = RESIDENCIES[facts.residency]
        found["skipped"] = [facts.skipped[i].decode() for i in range(facts.skipped_count)]
        return found

    def close(self):
        """Ends reading ahead and gives memory back; arrays that are kept stay valid. A later loop opens anew."""
        self._turn += 1
        if self._session is not None:
            self._session.close()
            self._session = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
