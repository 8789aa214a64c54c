"""The checks of a cache's documents, made from docs/cache-format.md alone: for tests that change a document on purpose."""

import ctypes
import ctypes.util
import json
import os
from pathlib import Path


class _Hash(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


_xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash"))
_xxhash.XXH3_128bits.restype = _Hash
_xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def xxh3(data):
    """XXH3-128 as 32 hex digits."""
    found = _xxhash.XXH3_128bits(data, len(data))
    return f"{found.high:016x}{found.low:016x}"


def check_of(text):
    """What `check` of a group's zarr.json has to be."""
    digits = json.loads(text)["attributes"]["ups"]["check"].encode()
    head, tail = text.rsplit(b'"check": "' + digits, 1)
    return xxh3(head + b'"check": "' + b"0" * 32 + tail)


def rewrite(group, change):
    """Calls change(attributes.ups) of the group in a directory, and writes the document with the check it then has."""
    path = os.path.join(group, "zarr.json")
    document = json.loads(Path(path).read_text())
    attributes = document["attributes"]["ups"]
    change(attributes)
    attributes["check"] = "0" * 32
    attributes["check"] = check_of(json.dumps(document, indent=2).encode())
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
