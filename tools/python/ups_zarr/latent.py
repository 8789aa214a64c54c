"""ups.latent in NumPy: FP16 trajectories (time first) to bytes and back, as docs/cache-format.md describes them.

It makes the same bytes as cache/codec/codec.c, for readers rather than for speed: one trajectory at a time, in vector operations over a
group of series.
"""

import numpy as np

VERSION = 3
HEADER_BYTES = 8
MAX_ORDER, STORED = 2, 3
LANES, FEW_LANES = 64, 16
CONTEXTS, TOKENS, PLAIN_TOKENS = 32, 40, 16
BITS, TOTAL, FLOOR = 10, 1 << 10, 1 << 16
GRID_ZERO, MOST_GRID = 25, 40  # numbers may be coded as multiples of 2^(grid - 25)

_BLOCK_VALUES, _FEW_VALUES, _FEW_BYTES = 256 * 1024, 32 * 1024, 8 * 1024
_LOOKED_AT = 32  # the order is chosen by looking at one group of 64 series in so many
_BEFORE_FIRST = 65535  # the codes that stand before the first frame


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


def _bit_length(numbers):
    return np.frexp(numbers.astype(np.float64))[1]


def _contexts(last, before):
    """Of codes, by the last two of the same series."""
    return np.where((last | before) < 4, 4 * last + before, 13 + _bit_length(2 * last + before))


def _tokens(codes):
    """Tokens and how many extra bits they have."""
    length = _bit_length(codes)
    large = codes >= PLAIN_TOKENS
    second = codes >> np.maximum(length - 2, 0) & 1
    return np.where(large, PLAIN_TOKENS + 2 * (length - 5) + second, codes), np.where(large, length - 2, 0)


def _with_contexts(codes):
    """codes (time, series) int64 → contexts, tokens, numbers of extra bits."""
    before = np.full((2, codes.shape[1]), _BEFORE_FIRST)
    past = np.concatenate([before, codes])
    return (_contexts(past[1:-1], past[:-2]), *_tokens(codes))


def block_series(times, series):
    """How many series an encoder puts into a block, and a decoder accepts at most."""
    return min(max(_BLOCK_VALUES // times // LANES * LANES, LANES), series)


_LOGARITHMS = np.concatenate([[0], np.floor(65536 * np.log2(np.arange(1, 2048)) + 0.5)]).astype(np.int64)


def _cost(counts):
    """2^16 times the bits of an ideal coder; logarithms of numbers above 2047 by their first eleven bits."""
    def n_log_n(n):
        shift = np.maximum(_bit_length(n) - 11, 0)
        return n * (_LOGARITHMS[n >> shift] + (shift << 16))
    return max(int(n_log_n(counts.sum()) - n_log_n(counts).sum()), 0)


def _find_grid(bits):
    """The coarsest grid that all of a block's FP16 bits are on, within 32767 steps of 0; 0: none."""
    exponent, fraction = (bits >> 10 & 31).astype(np.int64), (bits & 0x3FF).astype(np.int64)
    if (bits == 0x8000).any() or (exponent == 31).any() or not bits.any():
        return 0
    fraction = np.where(exponent > 0, fraction | 0x400, fraction)
    low = np.maximum(exponent, 1) - 25 + _bit_length(fraction & -fraction) - 1
    lowest, highest = int(low[bits != 0].min()), int((exponent[bits != 0] - 15).max())
    return 0 if highest - lowest > 14 else lowest + GRID_ZERO


def _integers(bits, grid):
    """What is predicted: places in the order of FP16 numbers, or multiples of the grid; uint16."""
    if grid == 0:
        return _ordered(bits)
    return (bits.view(np.float16).astype(np.float64) * 2.0 ** (GRID_ZERO - grid)).astype(np.int16).view(np.uint16)


def _from_integers(values, grid):
    if grid == 0:
        return _ordered(values)
    numbers = values.view(np.int16) * 2.0 ** (grid - GRID_ZERO)
    if (np.abs(numbers) >= 65520).any() or (numbers.astype(np.float16) != numbers).any():
        raise ValueError("ups.latent: a block is damaged: FP16 does not have its numbers")
    return numbers.astype(np.float16).view(np.uint16)


def choose_order(values):
    """values: (time, series) of a block, by _integers. The order whose tokens promise the fewest bits."""
    sample = values[:, np.arange(values.shape[1]) // LANES % _LOOKED_AT == 0]
    bits = []
    for order in range(min(MAX_ORDER + 1, values.shape[0])):
        tokens, extra = _tokens(_zigzag(_residuals(sample, order)).astype(np.int64))
        bits.append((_cost(np.bincount(tokens.ravel(), minlength=TOKENS)) >> 16) + int(extra.sum()))
    return int(np.argmin(bits))


def _merge(counts):
    """A context too rare or too like the one before it to be worth a table gives its counts to that one."""
    into = None
    for c in range(CONTEXTS):
        if not counts[c].any():
            continue
        table = 8 * (2 + int(np.flatnonzero(counts[c])[-1])) << 16
        if into is not None and _cost(counts[into] + counts[c]) <= _cost(counts[into]) + _cost(counts[c]) + table:
            counts[into] += counts[c]
            counts[c] = 0
        else:
            into = c


def _normalise(counts):
    """One context's counts to frequencies that sum up to TOTAL, none of those that occur below 1."""
    total = int(counts.sum())
    out = np.where(counts > 0, np.maximum((counts * TOTAL + total // 2) // total, 1), 0)
    while (missing := TOTAL - int(out.sum())) != 0:
        largest = int(np.argmax(out))
        out[largest] += max(missing, -(int(out[largest]) // 2))
    return out


def _write_frequencies(frequencies):
    present, rows = 0, b""
    for c in range(CONTEXTS):
        if not frequencies[c].any():
            continue
        present |= 1 << c
        used = frequencies[c][:np.flatnonzero(frequencies[c])[-1] + 1].tolist()
        rows += bytes([len(used)]) + b"".join(bytes([128 | f >> 8, f & 255] if f >= 128 else [f]) for f in used)
    return present.to_bytes(4, "little") + rows


def _read_frequencies(data, at):
    """(contexts, tokens), where a context without its own has those of the nearest one before it; and where they end."""
    frequencies = np.zeros((CONTEXTS, TOKENS), np.int64)
    present = int.from_bytes(data[at:at + 4], "little")
    at += 4
    for c in range(CONTEXTS):
        if not present >> c & 1:
            frequencies[c] = frequencies[c - 1] if c else 0
            continue
        used = data[at]
        at += 1
        for i in range(used):
            frequencies[c, i] = data[at]
            if data[at] >= 128:
                frequencies[c, i] = (data[at] & 127) << 8 | data[at + 1]
                at += 1
            at += 1
        if frequencies[c].sum() != TOTAL:
            raise ValueError(f"ups.latent: the frequencies of a context sum up to {frequencies[c].sum()}, not {TOTAL}")
    return frequencies, at


def _encode_words(codes, frequencies, lanes):
    """codes (time, series) → states at the start (lanes), words. Everything runs backwards: what a decoder reads first is written last."""
    times, series = codes.shape
    contexts, tokens, extra = _with_contexts(codes)
    starts = np.cumsum(frequencies, axis=1) - frequencies
    state, words = np.full(lanes, FLOOR, np.int64), []

    def push(needs, here):
        words.extend((here[needs] & 0xFFFF)[::-1].tolist())
        return np.where(needs, here >> 16, here)

    for first in range((series - 1) // lanes * lanes, -1, -lanes):
        group = slice(first, min(first + lanes, series))
        for t in range(times - 1, -1, -1):
            here, bits = state[:group.stop - first], extra[t, group]
            here = push((bits > 0) & (here >> (32 - bits) > 0), here)
            here = here << bits | codes[t, group] & (1 << bits) - 1
            f = frequencies[contexts[t, group], tokens[t, group]]
            here = push(here >= f << 32 - BITS, here)
            state[:group.stop - first] = (here // f << BITS) + here % f + starts[contexts[t, group], tokens[t, group]]
    return state, np.array(words[::-1], "<u2")


def encode(latents, order=None):
    """latents: float16, time on the first axis. Returns bytes."""
    times = latents.shape[0]
    bits = np.ascontiguousarray(latents, "<f2").view("<u2").reshape(times, -1)
    series = bits.shape[1]
    each = block_series(times, series)
    blocks = []
    for first in range(0, series, each):
        grid = _find_grid(bits[:, first:first + each])
        block = _integers(bits[:, first:first + each], grid)
        chosen = choose_order(block) if order is None else order
        codes = _zigzag(_residuals(block, chosen)).astype(np.int64)
        contexts, tokens, extra = _with_contexts(codes)
        counts = np.bincount((contexts * TOKENS + tokens).ravel(), minlength=CONTEXTS * TOKENS).reshape(CONTEXTS, TOKENS)
        _merge(counts)
        promised = sum(_cost(row) >> 16 for row in counts) + int(extra.sum())
        lanes = FEW_LANES if block.size < _FEW_VALUES and promised < 8 * _FEW_BYTES else LANES
        frequencies = np.array([_normalise(row) if row.any() else row for row in counts])
        table, own = _write_frequencies(frequencies), frequencies.any(axis=1)
        shared = frequencies[np.maximum.accumulate(np.where(own, np.arange(CONTEXTS), 0))]
        state, words = _encode_words(codes, shared, lanes)
        packed = table + state.astype("<u4").tobytes() + words.tobytes()
        raw = bits[:, first:first + each].tobytes()
        blocks.append(bytes([chosen, lanes, grid]) + packed if len(packed) < len(raw) else bytes([STORED, 0, 0]) + raw)
    lengths = np.array([len(block) for block in blocks], "<u4")
    return b"".join([np.array([VERSION, each], "<u4").tobytes(), lengths.tobytes(), *blocks])


def _blocks(data, shape):
    """Each block's first series, number of series and bytes."""
    times, series = int(shape[0]), int(np.prod(shape[1:]))
    version, each = (int(n) for n in np.frombuffer(data, "<u4", 2))
    if version != VERSION or not 1 <= each <= block_series(times, series):
        raise ValueError(f"ups.latent: header {bytes(data[:HEADER_BYTES]).hex()} is not one of version {VERSION}")
    lengths = np.frombuffer(data, "<u4", -(-series // each), HEADER_BYTES).astype(np.int64)
    ends = HEADER_BYTES + 4 * len(lengths) + np.cumsum(lengths)
    if ends[-1] != len(data):
        raise ValueError(f"ups.latent: {len(data)} bytes where the table says {ends[-1]}")
    return [(i * each, min(each, series - i * each), data[end - length:end]) for i, (end, length) in enumerate(zip(ends, lengths))]


def orders(data, shape):
    """The order of each block of an encoded trajectory, 3 where it is stored as it is."""
    return np.array([block[0] for _, _, block in _blocks(data, shape)])


class _Stream:
    """A block's frequencies, states and words."""

    def __init__(self, block):
        self.order, self.lanes, self.grid = block[:3]
        if self.order > MAX_ORDER or self.lanes not in (LANES, FEW_LANES) or self.grid > MOST_GRID:
            raise ValueError(f"ups.latent: a block of order {self.order} and {self.lanes} lanes is not one of version {VERSION}")
        frequencies, at = _read_frequencies(block, 3)
        starts = np.cumsum(frequencies, axis=1) - frequencies
        self.token = np.array([np.repeat(np.arange(TOKENS), row) if row.any() else np.zeros(TOTAL, int) for row in frequencies])
        self.frequency = np.take_along_axis(frequencies, self.token, axis=1)
        self.offset = np.arange(TOTAL) - np.take_along_axis(starts, self.token, axis=1)
        self.state = np.frombuffer(block, "<u4", self.lanes, at).astype(np.int64)
        self.words = np.frombuffer(block, "<u2", -1, at + 4 * self.lanes).astype(np.int64)
        self.read = 0

    def _refill(self, here):
        needs = here < FLOOR
        count = int(needs.sum())
        if count:
            here[needs] = here[needs] << 16 | self.words[self.read:self.read + count]
            self.read += count

    def codes(self, last, before):
        """The next frame of len(last) lanes."""
        here, contexts = self.state[:len(last)], _contexts(last, before)
        slot = here & TOTAL - 1
        token = self.token[contexts, slot]
        if not self.frequency[contexts, slot].all():
            raise ValueError("ups.latent: a block is damaged: a context has no frequencies")
        here[:] = self.frequency[contexts, slot] * (here >> BITS) + self.offset[contexts, slot]
        self._refill(here)
        codes, large = token.copy(), np.flatnonzero(token >= PLAIN_TOKENS)
        if large.size:
            bits = (token[large] - PLAIN_TOKENS) // 2 + 3
            part = here[large]
            codes[large] = (2 | token[large] & 1) << bits | part & (1 << bits) - 1
            part >>= bits
            self._refill(part)
            here[large] = part
        return codes


def _decode_block(block, times, count):
    """→ FP16 bits (time, series)."""
    if block[:3] == bytes([STORED, 0, 0]):
        return np.frombuffer(block[3:], "<u2").reshape(times, count)
    stream, codes = _Stream(block), np.empty((times, count), np.int64)
    for first in range(0, count, stream.lanes):
        group = codes[:, first:first + stream.lanes]
        last = before = np.full(group.shape[1], _BEFORE_FIRST)
        for t in range(times):
            group[t] = stream.codes(last, before)
            last, before = group[t], last
    if stream.read != len(stream.words) or (stream.state != FLOOR).any():
        raise ValueError("ups.latent: a block is damaged")
    residuals = ((codes >> 1) ^ -(codes & 1)).astype(np.uint16)
    if stream.order == 2:
        residuals[1:] = np.cumsum(residuals[1:], axis=0, dtype=np.uint16)
    return _from_integers(np.cumsum(residuals, axis=0, dtype=np.uint16) if stream.order else residuals, stream.grid)


def decode(data, shape):
    """data: bytes of one trajectory; shape: its extents, time first. Returns float16 of that shape."""
    data, times = bytes(data), int(shape[0])
    out = np.empty((times, int(np.prod(shape[1:]))), np.uint16)
    for first, count, block in _blocks(data, shape):
        out[:, first:first + count] = _decode_block(block, times, count)
    return out.view(np.float16).reshape(shape)
