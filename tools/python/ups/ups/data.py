"""Data sets: what is in a cache or in simulation files, and one trajectory after the other as NumPy arrays."""

import ctypes
import dataclasses
import json
import operator
import os
import weakref
from pathlib import Path

import numpy as np

from . import library as c

DTYPES = {c.FLOAT32: np.dtype(np.float32), c.FLOAT16: np.dtype(np.float16), c.FLOAT64: np.dtype(np.float64)}
CODES = {dtype: code for code, dtype in DTYPES.items()}


@dataclasses.dataclass(frozen=True)
class Sample:
    """What one sample is. `shape` and `axes` begin with time; `coordinates` has the axes whose positions are known."""

    name: str
    shape: tuple
    axes: tuple
    dtype: np.dtype
    time: np.ndarray
    coordinates: dict
    parameters: dict
    periodic: bool
    origin: int  # of a cached sample: its number in the data that was encoded


def open(path, layout=None):
    """Opens the cache of one task and split (a directory), a simulation file, or a list of files as one data set.

    `layout` says what the arrays of other files are, HDF5, NetCDF, NumPy or Zarr, as a task's `layout` does: YAML such as
    "{fields: {u: /u}, axes: [sample, time, x]}", or "@FILE", a file of it, such as a configuration.
    """
    if layout is not None and layout.startswith("@"):
        layout = Path(layout[1:]).read_text(encoding="utf-8")
    return Data([path] if isinstance(path, (str, os.PathLike)) else list(path), layout)


def _close(library, handle, owner):
    if os.getpid() == owner:
        library.close(handle)


def _texts(pointer, count):
    return tuple(pointer[i].decode() for i in range(count)) if pointer else None


def _doubles(pointer, count):
    return np.array(pointer[:count], np.float64) if pointer else None


class _Opened:
    """The library's data set, of one process. It is closed when the last reference is dropped: whoever is within a call of
    the library keeps one, so that closing in another thread takes nothing away under it."""

    def __init__(self, paths, layout):
        self.library, self.owner = c.library(), os.getpid()
        names = (ctypes.c_char_p * len(paths))(*(os.fsencode(path) for path in paths))
        handle = ctypes.c_void_p()
        text = None if layout is None else layout.encode()
        self.library.open_layout(names, len(paths), text, ctypes.byref(handle))
        self.handle = handle.value
        closing = weakref.finalize(self, _close, self.library, self.handle, self.owner)
        closing.atexit = False  # a daemon thread may be reading until the process ends

    def describe(self):
        info = c.Info()
        self.library.describe(self.handle, ctypes.byref(info))
        return info

    def describe_sample(self, index):
        """Its pointers are good as long as this object."""
        sample = c.CSample()
        self.library.describe_sample(self.handle, index, ctypes.byref(sample))
        return sample


class Data:
    """A sequence of trajectories. `data[i]` is one of them, `data[i, 3:10]` some of its frames, in the type they are stored in.

    Threads may share it. A process that was forked opens its files anew; pickled, it is its paths and its layout.
    """

    def __init__(self, paths, layout=None):
        self.paths, self.layout = tuple(os.path.abspath(os.fspath(path)) for path in paths), layout
        self._parameters = None
        self._opened = _Opened(self.paths, layout)
        info = self._opened.describe()
        self.kind = info.kind.decode()
        self.channels = info.channels
        self.channel_names = _texts(info.channel_names, info.channels)
        self.parameter_names = _texts(info.parameter_names, info.parameter_count) or ()
        self.files = _texts(info.files, info.file_count)
        self.attributes = json.loads(info.attributes) if info.attributes else None
        self._count = info.count

    def _use(self):
        """What is open in this process, to be kept while it is used."""
        opened = self._opened
        if opened is None:
            raise ValueError(f"{self.paths[0]} was closed")
        if opened.owner != os.getpid():
            self._opened = opened = _Opened(self.paths, self.layout)  # the parent's is not ours to close
        return opened

    def close(self):
        """Loaders that were made of it go on, and so do reads in other threads that have begun."""
        self._opened = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __reduce__(self):
        return (Data, (self.paths, self.layout))

    def __repr__(self):
        return f"<ups.Data {self.paths[0]!r}: {len(self)} samples of kind {self.kind}, {self.shape} {self.dtype}>"

    def __len__(self):
        return self._count

    def _index(self, index):
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.paths[0]} has {len(self)} samples; there is no sample {index}")
        return index % len(self)

    def sample(self, index):
        """Name, shape, axes, time grid, coordinates and parameters of one sample."""
        index, opened = self._index(index), self._use()
        s = opened.describe_sample(index)
        axes = tuple(s.axes[a].decode() for a in range(s.rank))
        found = {axes[a]: _doubles(s.coordinates[a], s.shape[a]) for a in range(s.rank) if s.coordinates[a]}
        values = s.parameters[: len(self.parameter_names)] if s.parameters else ()
        return Sample(s.name.decode(), tuple(s.shape[: s.rank]), axes, DTYPES[s.dtype], found.pop("time"), found,
                      dict(zip(self.parameter_names, values)), bool(s.periodic), s.origin)

    @property
    def shape(self):
        """Of the first sample: (time, …). Samples of one data set usually agree."""
        return self.sample(0).shape

    @property
    def axes(self):
        return self.sample(0).axes

    @property
    def dtype(self):
        return self.sample(0).dtype

    @property
    def time(self):
        """Seconds of the first sample's frames."""
        return self.sample(0).time

    @property
    def parameters(self):
        """(samples) values of each parameter by name, NaN where a sample has none."""
        if self._parameters is None:
            names, opened = self.parameter_names, self._use()
            rows = np.empty((len(self), len(names)))
            opened.library.parameters(opened.handle, 0, len(self), rows.ctypes.data, rows.nbytes)
            self._parameters = {name: rows[:, k] for k, name in enumerate(names)}
        return self._parameters

    def read(self, index, frames=slice(None), dtype=None, out=None):
        """Frames of one sample, (frames, …), as `dtype` (float32, or as stored); into `out` where that is given."""
        index, opened = self._index(index), self._use()
        s = opened.describe_sample(index)
        first, stop, step = frames.indices(s.shape[0])
        chosen = range(first, stop, step)
        low, count = (min(chosen), max(chosen) - min(chosen) + 1) if chosen else (0, 0)
        dtype = np.dtype(dtype) if dtype is not None else out.dtype if out is not None else DTYPES[s.dtype]
        if dtype not in CODES:
            raise TypeError(f"trajectories are float32, float16 or float64, not {dtype}")
        frame = tuple(s.shape[1 : s.rank])
        if out is not None and (out.shape != (len(chosen), *frame) or out.dtype != dtype):
            raise ValueError(f"out has shape {out.shape} and type {out.dtype}; {(len(chosen), *frame)} {dtype} is wanted")
        straight = step == 1 and out is not None and out.flags.c_contiguous and out.flags.writeable and out.dtype.isnative
        into = out if straight else np.empty((count, *frame), dtype)
        opened.library.read(opened.handle, index, low, count, CODES[dtype], into.ctypes.data, into.nbytes)
        if straight:
            return out
        found = into if step == 1 else into[::step] if step > 0 else into[::-1][::-step]
        if out is None:
            return found
        out[...] = found
        return out

    def __getitem__(self, key):
        if isinstance(key, slice):
            chosen = [self.read(i) for i in range(*key.indices(len(self)))]
            return np.stack(chosen) if chosen else np.empty((0, *self.shape), self.dtype)
        if not isinstance(key, tuple):
            return self.read(key)
        index, frames, *rest = key
        if isinstance(frames, slice):
            found = self.read(index, frames)
            return found[(slice(None), *rest)] if rest else found
        times = self._use().describe_sample(self._index(index)).shape[0]
        frame = operator.index(frames)
        if not -times <= frame < times:
            raise IndexError(f"sample {index} of {self.paths[0]} has {times} frames; there is no frame {frame}")
        frame %= times
        return self.read(index, slice(frame, frame + 1))[(0, *rest)]

    def __iter__(self):
        return (self.read(i) for i in range(len(self)))

    def loader(self, batch_size=1, frames=None, **options):
        """Batches of this data set alone: see `load`."""
        from .loader import load

        return load(self, batch_size, frames, **options)
