"""libups through ctypes: finding it, its structs (tools/libups/ups.h, field by field), and its errors as exceptions."""

import ctypes
import os
import site
import sys
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

SONAME = "libups.so.0"
NEEDED = 100  # what ups.h calls UPS_DATA_VERSION
MAX_RANK = 5
MAX_DIMS = 3

FLOAT32, FLOAT16, FLOAT64 = 1, 2, 3
SEQUENTIAL, ONE_TASK_PER_BATCH, IN_PLACE, DIRECT, SKIP_BAD = 1, 2, 4, 8, 16


class UpsError(Exception):
    """What libups says, as a sentence; `status` is its kind: "argument", "io", "format", "checksum", …

    Kinds that Python knows too can be caught as such: ValueError, OSError, MemoryError.
    """

    status = "unknown"


def _kind(status, *bases):
    return type(f"Ups{status.capitalize()}Error", (UpsError, *bases), {"status": status, "__module__": __name__})


_KINDS = {
    1: _kind("argument", ValueError),
    3: _kind("io", OSError),
    4: _kind("format", ValueError),
    5: _kind("checksum", OSError),
    6: _kind("stale", RuntimeError),
    7: _kind("numeric", ArithmeticError),
    8: _kind("memory", MemoryError),
    9: _kind("unsupported", NotImplementedError),
    10: _kind("cancelled", RuntimeError),
}
globals().update({kind.__name__: kind for kind in _KINDS.values()})  # so that they can be pickled


class Sized(ctypes.Structure):
    """A struct that begins with its own size."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.size = ctypes.sizeof(self)


class CError(ctypes.Structure):
    _fields_ = [("status", c_int), ("message", c_char * 1020)]


class Info(Sized):
    _fields_ = [("size", c_size_t), ("count", c_int64), ("kind", c_char_p), ("channels", c_int64),
                ("channel_names", POINTER(c_char_p)), ("parameter_count", c_int32), ("parameter_names", POINTER(c_char_p)),
                ("file_count", c_int64), ("files", POINTER(c_char_p)), ("attributes", c_char_p)]


class CSample(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("rank", c_int32), ("channel_axis", c_int32),
                ("shape", c_int64 * MAX_RANK), ("axes", c_char_p * MAX_RANK), ("coordinates", POINTER(c_double) * MAX_RANK),
                ("dtype", c_int), ("periodic", c_int32), ("parameters", POINTER(c_double)), ("origin", c_int64)]


class CTask(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("name", c_char_p), ("samples", POINTER(c_int64)), ("sample_count", c_int64),
                ("weight", c_double), ("later", c_void_p * 4)]


class Options(Sized):
    _fields_ = [("size", c_size_t), ("seed", c_uint64), ("batch_size", c_int64), ("frames", c_int64), ("time_stride", c_int64),
                ("windows_per_sample", c_int64), ("first_batch", c_int64), ("batches", c_int64), ("dtype", c_int),
                ("flags", c_uint32), ("strategy", c_int), ("temperature", c_double), ("rank", c_int32), ("ranks", c_int32),
                ("threads", c_int32), ("slots", c_int32), ("queue_depth", c_int32), ("residency", c_int), ("memory", c_uint64),
                ("allocate", c_void_p), ("release", c_void_p), ("allocator_context", c_void_p)]


class CBatch(ctypes.Structure):
    _fields_ = [("index", c_int64), ("windows", c_int64), ("frames", c_int64), ("frame_elements", c_int64), ("dtype", c_int),
                ("rank", c_int32), ("shape", POINTER(c_int64)), ("values", c_void_p), ("window_values", POINTER(c_void_p)),
                ("frame_step", POINTER(c_int64)), ("task", POINTER(c_int32)), ("sample", POINTER(c_int64)),
                ("start", POINTER(c_int64)), ("dt", POINTER(c_double)), ("parameter_count", c_int64),
                ("parameters", POINTER(c_double))]


class Statistics(Sized):
    _fields_ = [("size", c_size_t), ("batches", c_int64), ("windows", c_int64), ("draws", c_int64), ("resident", c_int64),
                ("bytes_read", c_uint64), ("memory", c_uint64), ("kept", c_uint64), ("seconds_disk", c_double),
                ("seconds_decode", c_double), ("seconds_consumer", c_double), ("seconds_full", c_double),
                ("skipped_count", c_int64), ("skipped", POINTER(c_char_p)), ("residency", c_int), ("threads", c_int32),
                ("slots", c_int32)]


class CModelOptions(Sized):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("threads", c_int32), ("later", c_int32)]


class CModelTask(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("channel_count", c_int32), ("channel_names", POINTER(c_char_p)),
                ("dims", c_int32), ("grid", c_int64 * MAX_DIMS), ("axes", c_char_p * MAX_DIMS), ("low", c_double * MAX_DIMS),
                ("high", c_double * MAX_DIMS), ("periodic", c_int32), ("parameter_count", c_int32),
                ("parameter_names", POINTER(c_char_p)), ("dt", c_double), ("time_units", c_char_p), ("steps", c_int64),
                ("history", c_int32), ("bundle", c_int32), ("tokens", c_int64), ("dim", c_int64), ("frames", c_int64), ("stride", c_int64),
                ("stride_count", c_int32), ("strides", POINTER(c_int64)), ("patches", c_int32), ("step_times", POINTER(c_double))]


PROGRESS = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int64, c_int64)


class CModelRequest(Sized):
    _fields_ = [("size", c_size_t), ("trajectories", c_int64), ("given", c_int64), ("steps", c_int64), ("stride", c_int64), ("grid", c_int64 * MAX_DIMS),
                ("resolution", c_int64 * MAX_DIMS), ("frames", c_void_p), ("frame_bytes", c_size_t), ("parameters", c_void_p),
                ("dt", c_void_p), ("fields", c_void_p), ("field_bytes", c_size_t), ("latents", c_void_p), ("latent_bytes", c_size_t),
                ("progress", PROGRESS), ("progress_context", c_void_p), ("step_times", c_void_p)]


STATUS = object()  # of a function that can fail, and then says so in a last argument

_PROTOTYPES = {
    "version": (c_int32, []),
    "open_layout": (STATUS, [POINTER(c_char_p), c_int64, c_char_p, POINTER(c_void_p)]),
    "close": (None, [c_void_p]),
    "describe": (STATUS, [c_void_p, POINTER(Info)]),
    "describe_sample": (STATUS, [c_void_p, c_int64, POINTER(CSample)]),
    "parameters": (STATUS, [c_void_p, c_int64, c_int64, c_void_p, c_size_t]),
    "read": (STATUS, [c_void_p, c_int64, c_int64, c_int64, c_int, c_void_p, c_size_t]),
    "loader_open": (STATUS, [POINTER(CTask), c_int32, POINTER(Options), POINTER(c_void_p)]),
    "loader_close": (None, [c_void_p]),
    "loader_next": (STATUS, [c_void_p, POINTER(POINTER(CBatch))]),
    "loader_release": (None, [c_void_p, c_void_p]),
    "loader_wait": (c_int32, [c_void_p, c_double]),
    "loader_seek": (STATUS, [c_void_p, c_int64]),
    "loader_position": (c_int64, [c_void_p]),
    "loader_epoch_batches": (c_int64, [c_void_p]),
    "loader_describe": (STATUS, [c_void_p, POINTER(Statistics)]),
    "model_open": (STATUS, [c_char_p, POINTER(CModelOptions), POINTER(c_void_p)]),
    "model_close": (None, [c_void_p]),
    "model_task_count": (c_int32, [c_void_p]),
    "model_device": (c_char_p, [c_void_p]),
    "model_describe": (STATUS, [c_void_p, c_int32, POINTER(CModelTask)]),
    "model_predict": (STATUS, [c_void_p, c_int32, POINTER(CModelRequest)]),
}


class Library:
    """The functions without their prefix; those that can fail raise what the library said."""

    def __init__(self, path):
        self.path = path
        loaded = ctypes.CDLL(path)
        try:
            for name, (result, arguments) in _PROTOTYPES.items():
                function = getattr(loaded, "ups_" + name if name.startswith("model_") else "ups_data_" + name)
                fails = result is STATUS
                function.restype = c_int if fails else result
                function.argtypes = [*arguments, POINTER(CError)] if fails else arguments
                setattr(self, name, _raising(function) if fails else function)
        except AttributeError as missing:
            raise ImportError(f"{path} is not a libups that this package can use: {missing}") from None
        if not NEEDED <= self.version() < (NEEDED // 10000 + 1) * 10000:
            raise ImportError(f"{path} is version {self.version()} of libups; this package needs {NEEDED} or a later one of its kind")


def _raising(function):
    def call(*arguments):
        error = CError()
        status = function(*arguments, ctypes.byref(error))
        if status != 0:
            raise _KINDS.get(status, UpsError)(error.message.decode("utf-8", "replace"))

    return call


def _candidates():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")  # of the wheel
    places = (os.path.join(prefix, lib) for prefix in (sys.prefix, site.getuserbase()) for lib in ("lib", "lib64"))
    for folder in (here, *places):
        for name in (SONAME, "libups.so"):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                yield path
    yield SONAME  # wherever the system looks
    yield os.path.join("/usr/local/lib", SONAME)


_library = None


def library():
    """libups: named by UPS_LIBRARY, else that of the wheel, in the lib of the environment or of ~/.local, or
    where the system finds it."""
    global _library
    if _library is not None:
        return _library
    named = os.environ.get("UPS_LIBRARY")
    reasons = []
    for path in [named] if named else _candidates():
        try:
            _library = Library(path)
            return _library
        except OSError as why:
            reasons.append(str(why))
    remedy = "correct UPS_LIBRARY" if named else "install it (cmake --install), or let UPS_LIBRARY name it"
    raise ImportError(f"libups was not found: {remedy}. Tried: {'; '.join(reasons)}")


def version():
    """Of libups: major × 10000 + minor × 100 + patch."""
    return library().version()
