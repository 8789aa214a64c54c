"""ups.latent in NumPy: FP16 trajectories (time first) to bytes and back, as docs/cache-format.md describes them.

It does the same as cache/codec.c, for readers: one trajectory at a time, in vector operations over all series.
"""

import numpy as np

VERSION = 1
HEADER_BYTES = 4
MAX_ORDER = 2

_BLOCK, _STRIDE = 64, 8  # the order is chosen by looking at the first of every eight blocks of 64 series


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


def choose_order(latents):
    """The order whose byte planes promise the smallest entropy."""
    times = latents.shape[0]
    values = _ordered(np.ascontiguousarray(latents, "<f2").view("<u2").reshape(times, -1))
    looked_at = np.arange(values.shape[1]) // _BLOCK % _STRIDE == 0
    sample = np.ascontiguousarray(values[:, looked_at])
    bits = []
    for order in range(MAX_ORDER + 1):
        codes = _zigzag(_residuals(sample, order))
        bits.append(_entropy_bits(codes >> 8) + _entropy_bits(codes & 255))
    return int(np.argmin(bits))


def encode(latents, order=None):
    """latents: float16, time on the first axis. Returns bytes."""
    if order is None:
        order = choose_order(latents)
    times = latents.shape[0]
    bits = np.ascontiguousarray(latents, "<f2").view("<u2").reshape(times, -1)
    codes = np.ascontiguousarray(_zigzag(_residuals(_ordered(bits), order)).T)  # (series, time): time-fastest
    header = bytes([VERSION, order, 0, 0])
    return header + (codes >> 8).astype(np.uint8).tobytes() + (codes & 255).astype(np.uint8).tobytes()


def decode(data, shape):
    """data: bytes of one trajectory; shape: its extents, time first. Returns float16 of that shape."""
    data = np.frombuffer(data, np.uint8)
    times, count = int(shape[0]), int(np.prod(shape))
    series = count // times
    if data.size != HEADER_BYTES + 2 * count:
        raise ValueError(f"ups.latent: {data.size} bytes where a trajectory of shape {tuple(shape)} has {HEADER_BYTES + 2 * count}")
    version, order = int(data[0]), int(data[1])
    if version != VERSION or order > MAX_ORDER or data[2] or data[3]:
        raise ValueError(f"ups.latent: header {bytes(data[:4]).hex()} is not one of version {VERSION}")
    planes = data[HEADER_BYTES:].reshape(2, series, times)
    codes = planes[0].astype(np.uint16) << 8 | planes[1]
    residuals = np.ascontiguousarray(((codes >> 1) ^ -(codes & 1)).T)  # (time, series)
    if order == 2:
        residuals[1:] = np.cumsum(residuals[1:], axis=0, dtype=np.uint16)
    if order >= 1:
        residuals = np.cumsum(residuals, axis=0, dtype=np.uint16)
    return _ordered(residuals).view(np.float16).reshape(shape)
