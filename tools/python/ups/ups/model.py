"""Models: what a trained one predicts, and predictions as NumPy arrays."""

import contextlib
import ctypes
import dataclasses
import difflib
import os
import sys
import threading
import warnings
import weakref

import numpy as np

from . import library as c


@dataclasses.dataclass(frozen=True)
class Task:
    """A PDE that a model was trained on."""

    name: str
    channels: tuple  # names of its fields
    grid: tuple  # points along each axis that it was trained on
    axes: tuple  # their names
    low: tuple  # the domain's edges along each axis; points are centres of cells
    high: tuple
    periodic: bool  # along all axes: the model takes a domain that wraps around along some, as a layout's `periodic: [x]` says, for one with borders
    parameters: tuple  # names of the equation's parameters that the operator is told
    dt: float  # seconds of a step, of its own stride; None: they differ, and `predict` takes step_times, or asks for dt where that is None, too
    frames: int  # of a trajectory of its data, as stored
    stride: int  # stored frames in a step
    strides: tuple  # that the operator has learnt
    time_units: str  # or None
    steps: int  # of the trajectories it was trained on; 1: a steady problem
    history: int  # frames that the operator reads
    bundle: int  # frames that it gives at a time
    latents: tuple  # of a frame: (tokens, dim)
    step_times: tuple = None  # (steps,) seconds of each step, where they differ within a trajectory, but not from one to another
    patches: bool = False  # tokens are patches of so many points: frames on a grid of another spacing are predicted as other physics

    @property
    def steady(self):
        return self.steps == 1

    def coordinates(self, resolution=None):
        """Of the points along each axis, by name: centres of cells."""
        points = self.grid if resolution is None else _sizes(resolution, len(self.grid), "resolution")
        return {axis: low + (np.arange(n) + 0.5) / n * (high - low) for axis, n, low, high in zip(self.axes, points, self.low, self.high)}


def _sizes(value, dims, name):
    sizes = (value,) * dims if np.ndim(value) == 0 else tuple(value)
    if len(sizes) != dims:
        raise ValueError(f"{name} has {len(sizes)} numbers, but the fields have {dims} axes")
    return tuple(int(n) for n in sizes)


def _each(value, count, name):
    """float64 (trajectories,)"""
    try:
        return np.broadcast_to(np.asarray(value, np.float64), (count,))
    except ValueError:
        raise ValueError(f"{name} is a number, or one for each of {count} trajectories; this is {value!r}") from None


def _task(described):
    dims = range(described.dims)
    names = lambda pointer, count: tuple(pointer[i].decode() for i in range(count))  # noqa: E731
    return Task(name=described.name.decode(), channels=names(described.channel_names, described.channel_count),
                grid=tuple(described.grid[a] for a in dims), axes=tuple(described.axes[a].decode() for a in dims),
                low=tuple(described.low[a] for a in dims), high=tuple(described.high[a] for a in dims), periodic=bool(described.periodic),
                parameters=names(described.parameter_names, described.parameter_count), dt=None if np.isnan(described.dt) else described.dt, frames=described.frames, stride=described.stride,
                strides=tuple(described.strides[s] for s in range(described.stride_count)) or (described.stride,),
                time_units=described.time_units.decode() if described.time_units else None, steps=described.steps,
                history=described.history, bundle=described.bundle, latents=(described.tokens, described.dim),
                step_times=tuple(described.step_times[:described.steps]) if described.step_times else None, patches=bool(described.patches))


def _close(library, handle, owner):
    if os.getpid() == owner:
        library.model_close(handle)


def _known(name, names, what):
    near = difflib.get_close_matches(str(name), names, 1)
    return ValueError(f"there is no {what} {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names) or 'none'}"))


class Model:
    """A trained surrogate: Model.load(path).predict(fields, …). `tasks` says what it predicts."""

    @classmethod
    def load(cls, path, device="auto", threads=0):
        """`path`: a file that `ups export` wrote, or the directory of a run that has finished. The data are not needed.

        device: "cpu", "cuda" or "auto", a card where there is one. threads: of the processor; 0: one a core."""
        return cls(os.fspath(path), device, threads)

    def __init__(self, path, device, threads):
        self._arguments = (path, device, threads)
        self._library, self._owner, self._lock = c.library(), os.getpid(), threading.Lock()
        options, handle = c.CModelOptions(device=(device or "auto").encode(), threads=threads), ctypes.c_void_p()
        self._library.model_open(os.fsencode(path), ctypes.byref(options), ctypes.byref(handle))
        self._handle = handle.value
        closing = weakref.finalize(self, _close, self._library, self._handle, self._owner)
        closing.atexit = False  # a daemon thread may be predicting until the process ends
        self.path, self.device = path, self._library.model_device(self._handle).decode()
        self.tasks, self._index = {}, {}
        for index in range(self._library.model_task_count(self._handle)):
            described = c.CModelTask()
            self._library.model_describe(self._handle, index, ctypes.byref(described))
            task = _task(described)
            self.tasks[task.name], self._index[task.name] = task, index

    def __repr__(self):
        return f"<ups.Model {self.path!r} on {self.device}: {', '.join(self.tasks)}>"

    def __reduce__(self):
        return Model, self._arguments

    def predict(self, fields, task=None, parameters=None, steps=None, dt=None, stride=None, resolution=None, latents=False, progress=None):
        """The frames that follow given ones: float32 (trajectories, frames, *resolution, channels), in physical units. The given frames
        come first, as the model's autoencoder reads them back.

        fields: (trajectories, *grid, channels), each trajectory's first frame; or (trajectories, frames, *grid, channels), its first
            frames, a step apart; or (*grid, channels), one trajectory, of which the result has no axis then either. A dict of
            channels by name has arrays without the last axis; of a steady problem, fields that are sought may be left out. The grid
            may be another one than the model was trained on. Where task.patches, it then predicts other physics, unless the points
            lie as far apart as in training: a warning says so. Points that lie anywhere are those that it was trained on; where each
            sample has its own, there may be fewer, and all trajectories of a call have as many.
        task: its name; not needed where the model has one.
        parameters: of the equation, a dict of numbers or arrays (trajectories,) by name, or an array (trajectories, parameters) in
            the order of task.parameters. Those that are left out count as the mean of what the model was trained on.
        steps: to predict; None: to the end of a trajectory of its data.
        dt: seconds of a step: a number, (trajectories,), (steps,) or (trajectories, steps). None: as trained: task.dt, or task.step_times
            from the first frame on, of which the last goes on behind a trajectory's end. It has to be said where both are None, since the
            trajectories that the model was trained on differ in it.
        stride: of a step, one of task.strides; None: the task's own.
        resolution: points along each axis of the result, a number or a tuple; None: those of `fields`.
        latents: also returns the latents, (trajectories, frames, tokens, dim); on the grid that the model was trained on.
        progress: called as progress(done, all) now and then.
        """
        told = self._find(task)
        array, single = self._frames(told, fields)
        count, given, dims = array.shape[0], array.shape[1], len(told.grid)
        grid, stride = array.shape[2:-1], told.stride if stride is None else int(stride)
        if stride not in told.strides:
            raise ValueError(f"no step of a stride of {stride} was learnt; steps were of {', '.join(map(str, told.strides))}")
        steps = max((told.frames - 1) // stride + 1 - given, 1) if steps is None else int(steps)
        points = grid if resolution is None else _sizes(resolution, dims, "resolution")
        if steps < 1 or min(points) < 1:
            raise ValueError(f"steps is {steps} and resolution {points}: both are at least 1")
        self._warn_of_grid(told, grid)
        values, intervals = self._parameters(told, parameters, count), self._intervals(told, dt, count, steps)
        out = np.empty((count, given + steps, *points, len(told.channels)), np.float32)
        request = c.CModelRequest(trajectories=count, given=given, steps=steps, stride=stride, frames=array.ctypes.data, frame_bytes=array.nbytes,
                                  fields=out.ctypes.data, field_bytes=out.nbytes)
        request.grid[:dims], request.resolution[:dims] = grid, points
        hidden = None
        if latents:
            hidden = np.empty((count, given + steps, *self._latents(told, grid)), np.float32)
            request.latents, request.latent_bytes = hidden.ctypes.data, hidden.nbytes
        if values is not None:
            request.parameters = values.ctypes.data
        if intervals is not None:
            request.step_times = intervals.ctypes.data
        self._run(told, request, progress)
        out, hidden = (out[0], hidden if hidden is None else hidden[0]) if single else (out, hidden)
        return (out, hidden) if latents else out

    def _find(self, name):
        if name is None and len(self.tasks) == 1:
            return next(iter(self.tasks.values()))
        if name is None:
            raise ValueError(f"which task? The model has {', '.join(self.tasks)}")
        if name not in self.tasks:
            raise _known(name, list(self.tasks), "task")
        return self.tasks[name]

    def _frames(self, task, fields):
        """(trajectories, frames, *grid, channels) float32, contiguous, and whether it was one trajectory without an axis."""
        if isinstance(fields, dict):
            fields = self._stack(task, fields)
        array, dims = np.asarray(fields), len(task.grid)
        axes = "*grid, channels"
        if array.ndim not in (dims + 1, dims + 2, dims + 3) or array.shape[-1] != len(task.channels):
            raise ValueError(f"fields have the shape {array.shape}; task {task.name} takes ({axes}), (trajectories, {axes}) or (trajectories, frames, "
                             f"{axes}), with {dims} grid {'axis' if dims == 1 else 'axes'} and {len(task.channels)} channels: {', '.join(task.channels)}")
        if 0 in array.shape:
            raise ValueError(f"fields have the shape {array.shape}: there is nothing in them")
        single = array.ndim == dims + 1
        if array.ndim < dims + 3:
            array = array[None, None] if single else array[:, None]
        return np.ascontiguousarray(array, np.float32), single

    @staticmethod
    def _stack(task, fields):
        for name in fields:
            if name not in task.channels:
                raise _known(name, list(task.channels), "field")
        if not fields:
            raise ValueError("fields is empty")
        absent = [name for name in task.channels if name not in fields]
        if absent and not task.steady:
            raise ValueError(f"fields lack {', '.join(absent)}, with which trajectories begin")
        known = np.broadcast_arrays(*(np.asarray(fields[name], np.float32) for name in fields))
        known = dict(zip(fields, known))
        nothing = np.zeros_like(next(iter(known.values())))
        return np.stack([known.get(name, nothing) for name in task.channels], -1)

    @staticmethod
    def _parameters(task, parameters, count):
        if not task.parameters:
            if parameters is not None and len(parameters):
                raise ValueError(f"task {task.name} was trained without parameters")
            return None
        values = np.full((count, len(task.parameters)), np.nan)
        if isinstance(parameters, dict):
            for name, value in parameters.items():
                if name not in task.parameters:
                    raise _known(name, list(task.parameters), "parameter")
                values[:, task.parameters.index(name)] = _each(value, count, name)
        elif parameters is not None:
            try:
                values[:] = parameters
            except ValueError:
                raise ValueError(f"parameters are an array {values.shape}, of {', '.join(task.parameters)}, or a dict by name") from None
        missing = [name for p, name in enumerate(task.parameters) if np.isnan(values[:, p]).all()]
        if missing:
            warnings.warn(f"task {task.name}: {', '.join(missing)} not given: the mean of what the model was trained on is taken", stacklevel=3)
        return values

    @staticmethod
    def _warn_of_grid(task, grid):
        if task.patches and tuple(grid) != task.grid:
            swapped = " Are axes in another order?" if sorted(grid) == sorted(task.grid) else ""
            warnings.warn(f"task {task.name}: the model was trained on a grid of {' x '.join(map(str, task.grid))} points, and these fields have "
                          f"{' x '.join(map(str, grid))}.{swapped} Its tokens are patches of so many points: unless the points lie as far apart as "
                          "those it was trained on, it reads and predicts other physics than the fields'. Bring the fields to its grid; "
                          "`resolution` reads predictions at other points", stacklevel=3)

    @staticmethod
    def _intervals(task, dt, count, steps):
        """float64 (trajectories, steps), or None: as the model tells"""
        if dt is None and task.dt is None and task.step_times is None:
            raise ValueError(f"task {task.name}: dt is needed, seconds of each step: the trajectories that the model was trained on differ in it, so "
                             "that it knows no length of the steps of others")
        if dt is None:
            return None
        given = np.asarray(dt, np.float64)
        if given.shape == (count,) and count == steps and len(set(given.tolist())) > 1:
            raise ValueError(f"dt has {count} numbers, which may be of {count} trajectories or of {steps} steps; give dt[:, None] or dt[None, :]")
        if given.shape == (count,) and count != steps:
            given = given[:, None]
        try:
            return np.ascontiguousarray(np.broadcast_to(given, (count, steps)))
        except ValueError:
            raise ValueError(f"dt is a number, or one for each of {count} trajectories, of {steps} steps, or of both ({count}, {steps}); this is {dt!r}") from None

    @staticmethod
    def _latents(task, grid):
        """Of a frame: (tokens, dim). Where tokens are patches there are others on another grid, which the model does not tell."""
        if tuple(grid) == task.grid or not task.patches:
            return task.latents
        raise ValueError(f"latents are given on the grid that the model was trained on, {task.grid}")

    def _run(self, task, request, progress):
        if os.getpid() != self._owner:
            raise RuntimeError("the model was loaded before this process was forked, and its threads are not here: load it in this process, or "
                               "start processes by 'spawn'")
        interrupted = []

        def go_on(_, done, every):
            try:
                if progress and not interrupted:
                    progress(done, every)
            except BaseException as stopped:
                interrupted.append(stopped)
            return len(interrupted)

        request.progress = c.PROGRESS(go_on)
        with self._lock, _interrupts(go_on, interrupted):
            try:
                self._library.model_predict(self._handle, self._index[task.name], ctypes.byref(request))
            except c.UpsError:
                if not interrupted:
                    raise
        if interrupted:
            raise interrupted[0]


@contextlib.contextmanager
def _interrupts(callback, noted):
    """Notes what handlers of signals raise (Ctrl-C). Python calls these as `callback` begins, before it can catch anything, and ctypes
    ignores what a callback raises but for telling the hook: of which one, since Python 3.13 in its message alone."""
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    usual = sys.unraisablehook

    def hook(raised):
        if raised.object is callback or repr(callback) in (raised.err_msg or ""):
            noted.append(raised.exc_value)
        else:
            usual(raised)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual
