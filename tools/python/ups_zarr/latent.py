"""ups.latent in NumPy: FP16 trajectories (time first) to bytes and back, as docs/cache-format.md describes them.

It does the same as cache/codec.c, for readers: one trajectory at a time, in vector operations over all series.
"""

import numpy as np
from numcodecs import Zstd

VERSION = 2
HEADER_BYTES = 8
MAX_ORDER = 2

_ENTRY = np.dtype([("order", "u1"), ("reserved", "u1", 3), ("length", "<u4", 3)])
_HIGH_PLANE_BYTES, _QUANTUM = 128 * 1024, 64  # blocks of series whose planes fit a cache
_LOOKED_AT, _STRIDE = 64, 16  # the order is chosen by looking at the first of every sixteen runs of 64 series of a block


def _ordered(bits):
    """FP16 bits to integers in the order of the numbers; its own inverse."""
    return bits ^ (np.right_shift(bits, 15) * np.uint16(0x7FFF))


def _residuals(values, order):
    """values (time, series) uint16, differences along time, wrapping; frame 0 stays, frame 1 has no second difference."""
    out = values.copy()
    if order >= 1:
        out[1:] = values[1:] - values[:-1]
    if order == 2:
        out[2:] -= values[1:-1] - values[:-2]
    return out


def _zigzag(residuals):
    signed = residuals.view(np.int16)
    return ((signed << 1) ^ (signed >> 15)).view(np.uint16)


def _entropy_bits(values):
    counts = np.bincount(values.ravel(), minlength=256).astype(np.float64)
    counts = counts[counts > 0]
    return counts.sum() * np.log2(counts.sum()) - (counts * np.log2(counts)).sum()


def block_series(times, series):
    """How many series an encoder puts into a block, and a decoder accepts at most."""
    return min(max(_HIGH_PLANE_BYTES // times // _QUANTUM * _QUANTUM, _QUANTUM), series)


def choose_order(values):
    """values: (time, series) of a block, mapped by _ordered. The order whose residuals promise the smallest entropy."""
    looked_at = np.arange(values.shape[1]) // _LOOKED_AT % _STRIDE == 0
    sample = np.ascontiguousarray(values[:, looked_at])
    bits = []
    for order in range(MAX_ORDER + 1):
        codes = _zigzag(_residuals(sample, order))
        bits.append(_entropy_bits(codes >> 8) + _entropy_bits(codes & 255))
    return int(np.argmin(bits))


def _pair(nibbles):
    """(series, time) of values below 16: two frames a byte, the first in the low four bits; 0 past an odd end."""
    if nibbles.shape[1] % 2:
        nibbles = np.pad(nibbles, ((0, 0), (0, 1)))
    return (nibbles[:, ::2] | nibbles[:, 1::2] << 4).astype(np.uint8)


def _unpair(rows, times):
    out = np.empty((rows.shape[0], 2 * rows.shape[1]), np.uint16)
    out[:, ::2], out[:, 1::2] = rows & 15, rows >> 4
    return out[:, :times]


def encode(latents, order=None, level=1):
    """latents: float16, time on the first axis. Returns bytes."""
    times = latents.shape[0]
    values = _ordered(np.ascontiguousarray(latents, "<f2").view("<u2").reshape(times, -1))
    series = values.shape[1]
    each = block_series(times, series)
    table, frames = [], []
    for first in range(0, series, each):
        block = values[:, first:first + each]
        chosen = choose_order(block) if order is None else order
        codes = np.ascontiguousarray(_zigzag(_residuals(block, chosen)).T)  # (series, time): time-fastest
        planes = [_pair(codes & 15), _pair(codes >> 4 & 15), (codes >> 8).astype(np.uint8)]
        packed = [Zstd(level=level).encode(plane.tobytes()) if plane.any() else b"" for plane in planes]
        table.append(np.array([(chosen, 0, [len(p) for p in packed])], _ENTRY).tobytes())
        frames += packed
    return b"".join([np.array([VERSION, each], "<u4").tobytes(), *table, *frames])


def orders(data, shape):
    """The order of each block of an encoded trajectory."""
    each = int(np.frombuffer(data, "<u4", 2)[1])
    return np.frombuffer(data, _ENTRY, -(-int(np.prod(shape[1:])) // each), HEADER_BYTES)["order"]


def decode(data, shape):
    """data: bytes of one trajectory; shape: its extents, time first. Returns float16 of that shape."""
    times, series = int(shape[0]), int(np.prod(shape[1:]))
    version, each = (int(n) for n in np.frombuffer(data, "<u4", 2))
    if version != VERSION or not 1 <= each <= block_series(times, series):
        raise ValueError(f"ups.latent: header {bytes(data[:HEADER_BYTES]).hex()} is not one of version {VERSION}")
    table = np.frombuffer(data, _ENTRY, -(-series // each), HEADER_BYTES)
    at = HEADER_BYTES + table.nbytes
    pairs = (times + 1) // 2
    out = np.empty((times, series), np.uint16)
    for first, entry in zip(range(0, series, each), table):
        count = min(each, series - first)
        if entry["order"] > MAX_ORDER or entry["reserved"].any():
            raise ValueError(f"ups.latent: a block of order {entry['order']} is not one of version {VERSION}")
        planes = []
        for length, width in zip(entry["length"].tolist(), (pairs, pairs, times)):
            plane = Zstd().decode(data[at:at + length]) if length else bytes(count * width)
            planes.append(np.frombuffer(plane, np.uint8).reshape(count, width))
            at += length
        codes = planes[2].astype(np.uint16) << 8 | _unpair(planes[1], times) << 4 | _unpair(planes[0], times)
        residuals = np.ascontiguousarray(((codes >> 1) ^ -(codes & 1)).T)  # (time, series)
        if entry["order"] == 2:
            residuals[1:] = np.cumsum(residuals[1:], axis=0, dtype=np.uint16)
        if entry["order"] >= 1:
            residuals = np.cumsum(residuals, axis=0, dtype=np.uint16)
        out[:, first:first + count] = _ordered(residuals)
    if at != len(data):
        raise ValueError(f"ups.latent: {len(data)} bytes where the table says {at}")
    return out.view(np.float16).reshape(shape)
