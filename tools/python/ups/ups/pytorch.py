"""Trained UPS models as PyTorch modules, to deploy, fine-tune and inspect them where UPS is not installed.

    model = ups.pytorch.load("model.safetensors")     # what `ups export RUN -o FILE` writes, or a run's directory
    model.tasks["advection"].parameters               # ('beta',); a task tells channels, grid, seconds a step …
    with torch.inference_mode():
        model.predict(first, "advection", {"beta": 0.4}, steps=40)     # (B, 41, *grid, channels) from (B, *grid, channels)

This file needs PyTorch 1.13 or later and nothing else: it may be copied into a project, under any name. It computes what the graphs in model/nets/ of UPS
compute, in plain torch operations, so that everything can be differentiated, and its state_dict has the names of the files' tensors. Tables
that follow from a grid alone (waves, angles, windows) are buffers that no file has.

Shapes: B batch, *grid the points of a field along each axis, tokens × dim the latents of a frame. Fields are in physical units, channels last.
"""

import dataclasses
import json
import math
import os
import warnings

import torch
from torch import nn
from torch.nn import functional

__all__ = ["ModelError", "Surrogate", "Task", "load"]


class ModelError(ValueError):
    """A file that holds no model that can be used here; the sentence names the file, the place and what to do."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What the fields of a task are, and how its operator steps."""

    name: str
    channels: tuple  # their names
    grid: tuple  # points along each axis, slowest first
    axes: tuple  # names of the axes
    low: tuple  # where the domain begins along each axis, and where it ends: half a cell beyond the outer points
    high: tuple
    periodic: bool
    dt: float  # time that a step takes; None: they differ, and `predict` takes step_times, or asks for dt where that is None, too
    time_units: str  # None: they are not known
    frames: int  # of a trajectory of the data, as stored
    stride: int  # stored frames in a step
    strides: tuple  # that the operator has learnt, where there are several
    steps: int  # of a trajectory of the data
    parameters: tuple  # names of the PDE's parameters, in the order of `predict`
    history: int  # frames that an application of the operator reads
    bundle: int  # frames that it gives
    steady: bool  # it gives the solution in one step
    tokens: int
    dim: int
    times: tuple = None  # of the data's stored frames, where steps differ within a trajectory, but not from one to another

    @property
    def step_times(self):
        """Of the task's own stride: the time that each step takes, where `times` tell it."""
        return self.times and intervals(self.times, self.stride)


def intervals(times, stride):
    """From frame to frame, of every stride-th one."""
    return tuple(after - before for before, after in zip(times[::stride], times[stride::stride]))


def load(path, *, dtype=torch.float32, device="cpu"):
    """The model that `ups export RUN -o FILE` wrote to a file, or that lies in the directory of a trained run; in eval mode."""
    path = os.fspath(path)
    parts = [path]
    if os.path.isdir(path):
        parts = [os.path.join(path, part + ".safetensors") for part in ("autoencoder", "operator")]
        for part in parts:
            if not os.path.exists(part):
                raise ModelError(f"{path}: a directory without {os.path.basename(part)}; load the directory of a run that has been trained, or what `ups export RUN -o FILE` wrote")
    tensors, metadata = {}, {}
    for part in parts:
        of_part, told = read_safetensors(part)
        tensors |= of_part
        metadata |= told
    metadata.pop("autoencoder", None)  # the hash of a file; here both are one
    return Surrogate(Source(path, tensors), metadata).to(device=device, dtype=dtype).eval()


# ---- files -------------------------------------------------------------------------------------------------------------

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
AGAIN = "copy it again, or write it anew with `ups export RUN -o FILE`"


def read_safetensors(path):
    """Tensors and metadata of a safetensors file: the length of a header, the header in JSON, then the tensors' bytes."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise ModelError(f"{path}: its header would be {length} bytes long, in a file of {size}: truncated, or no safetensors file; {AGAIN}")
        try:
            header = json.loads(file.read(length))
            metadata = header.pop("__metadata__", {})
            entries = {name: (entry["dtype"], [int(n) for n in entry["shape"]], *map(int, entry["data_offsets"])) for name, entry in header.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as mistake:
            raise ModelError(f"{path}: its header is not that of a safetensors file ({mistake!r}); {AGAIN}") from None
        data = bytearray(file.read())
    tensors = {}
    for name, (kind, shape, begin, end) in entries.items():
        if kind not in DTYPES:
            raise ModelError(f"{path}: tensor '{name}' has the dtype {kind}; models of UPS have F32; {AGAIN}")
        count = math.prod(shape)
        if not 0 <= begin <= end <= len(data) or end - begin != count * torch.empty(0, dtype=DTYPES[kind]).element_size():
            raise ModelError(f"{path}: tensor '{name}' should be bytes {begin} to {end} of {len(data)}, {count} numbers: the file is truncated or damaged; {AGAIN}")
        tensors[name] = torch.frombuffer(data, dtype=DTYPES[kind], count=count, offset=begin).clone().reshape(shape) if count else torch.empty(shape)
    return tensors, metadata


def write_safetensors(path, tensors, metadata):
    """The same, in float32; the file is whole or not there."""
    header, at = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + 4 * tensor.numel()]}
        at += 4 * tensor.numel()
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    begun = f"{path}.{os.getpid()}.tmp"
    with open(begun, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    os.replace(begun, path)


class Source:
    """The tensors of a file, taken one by one; what nobody took is something that this file does not know."""

    def __init__(self, path, tensors):
        self.path, self.tensors, self.taken = path, tensors, set()

    def tensor(self, name, *shape):
        if name not in self.tensors:
            raise ModelError(f"{self.path}: tensor '{name}' is missing; {AGAIN}")
        found = self.tensors[name]
        if tuple(found.shape) != shape:
            raise ModelError(f"{self.path}: tensor '{name}' has the shape {tuple(found.shape)}, but the model's configuration asks for {shape}; {AGAIN}")
        self.taken.add(name)
        return found

    def width(self, name, axis):
        """Of a tensor that decides about a size itself."""
        if name not in self.tensors or self.tensors[name].ndim <= axis:
            raise ModelError(f"{self.path}: tensor '{name}' is missing or has too few axes; {AGAIN}")
        return self.tensors[name].shape[axis]

    def linear(self, name, inputs, outputs, bias=True):
        made = nn.Linear(inputs, outputs, bias=bias, device="meta")
        made.weight = nn.Parameter(self.tensor(name + ".weight", outputs, inputs))
        if bias:
            made.bias = nn.Parameter(self.tensor(name + ".bias", outputs))
        if name + ".fp8" in self.tensors:  # what scales of a run in FP8 were decided by; kept for the way back
            made.register_buffer("fp8", self.tensor(name + ".fp8", *self.tensors[name + ".fp8"].shape))
        return made

    def norm(self, name, width, condition=0):
        """LayerNorm; with the width of a condition, scaled and shifted by it."""
        made = Norm(width, device="meta")
        made.weight = nn.Parameter(self.tensor(name + ".weight", width))
        made.bias = nn.Parameter(self.tensor(name + ".bias", width))
        if condition:
            made.condition = self.linear(name + ".condition", condition, 2 * width)
        return made

    def weight(self, name, *shape):
        return Weight(self.tensor(name + ".weight", *shape))


# ---- parts -------------------------------------------------------------------------------------------------------------


class Parts(nn.Module):
    """Modules by the names that files give them. A task may be called as anything, `train` or `to` too: parts[name] finds it."""

    def __init__(self, parts=()):
        super().__init__()
        self._modules.update(parts)

    def __getitem__(self, name):
        return self._modules[name]

    def __contains__(self, name):
        return name in self._modules


class Weight(nn.Module):
    """A weight alone."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)


class HeadNorm(Weight):
    """x / √(mean(x²) + 1e-6) · weight over a head's features."""

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Norm(nn.LayerNorm):
    """LayerNorm of (B, tokens, width), times 1 + scale and plus shift where it has a condition (B, …)."""

    def forward(self, x, condition=None):
        x = super().forward(x)
        if "condition" not in self._modules:
            return x
        scale, shift = self.condition(condition)[:, None].chunk(2, -1)
        return x * (1 + scale) + shift


class Mlp(Parts):
    def forward(self, x):
        return self.down(functional.gelu(self.up(x)))


def mlp_of(source, name, width, ratio, condition=0):
    hidden = round(ratio * width)
    return Mlp({"norm": source.norm(f"{name}.norm", width, condition), "up": source.linear(f"{name}.up", width, hidden), "down": source.linear(f"{name}.down", hidden, width)})


def split_heads(x, heads):
    """(B, heads, tokens, width a head) of (B, tokens, features)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def head_norms(source, name, width):
    return {part: HeadNorm(source.tensor(f"{name}.{part}.weight", width)) for part in ("query_norm", "key_norm")}


class CrossBlock(Parts):
    """Attention of x (B, queries, width) to tokens (B, tokens, …), then an MLP; norms stand behind both."""

    def __init__(self, source, name, width, context, heads, ratio, head_norm):
        attention = {
            "query": source.linear(f"{name}.attention.query", width, width),
            "key_value": source.linear(f"{name}.attention.key_value", context, 2 * width),
            "output": source.linear(f"{name}.attention.output", width, width),
            "norm": source.norm(f"{name}.attention.norm", width),
        }
        if head_norm:
            attention |= head_norms(source, f"{name}.attention", width // heads)
        super().__init__({"attention": Parts(attention), "mlp": mlp_of(source, f"{name}.mlp", width, ratio)})
        self.heads = heads

    def forward(self, x, context):
        attention = self.attention
        keys, values = attention.key_value(context).chunk(2, -1)
        q, k, v = (split_heads(part, self.heads) for part in (attention.query(x), keys, values))
        if "query_norm" in attention:
            q, k = attention.query_norm(q), attention.key_norm(k)
        x = attention.norm(x + attention.output(attend(q, k, v).transpose(1, 2).flatten(2)))
        return self.mlp.norm(x + self.mlp(x))


def attend(q, k, v):
    """(B, heads, tokens, features) of the same. PyTorch before 2.0 has no kernel for it."""
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v)
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v


GROUP = 32  # features that attend by themselves, of `attention: channel_separated`
BIAS_HIDDEN = 32  # of what makes scores differ by how far two tokens of a window lie apart


@dataclasses.dataclass(frozen=True)
class Attending:
    """How blocks attend: all that the configuration says of it."""

    heads: int
    head_norm: bool = True
    groups: int = 1
    rotary: bool = False
    windows: bool = False


class Attention(Parts):
    """Self-attention of normed tokens (B, tokens, width) of a grid; `shifted`: whether its windows are."""

    def __init__(self, source, name, width, options, condition, dims=(), shifted=False):
        group = width // options.groups
        parts = {
            "norm": source.norm(f"{name}.norm", width, condition),
            "qkv": source.linear(f"{name}.qkv", group, 3 * group),
            "output": source.linear(f"{name}.output", group, group),
        }
        if options.head_norm:
            parts |= head_norms(source, name, width // options.heads)
        for d in dims if options.windows else ():
            bias = f"{name}.bias{d}d"
            parts[f"bias{d}d"] = Parts({"hidden": source.linear(f"{bias}.hidden", d, BIAS_HIDDEN), "output": source.linear(f"{bias}.output", BIAS_HIDDEN, options.heads, bias=False)})
        super().__init__(parts)
        self.options, self.shifted = options, shifted

    def forward(self, x, grid):
        batch, tokens, width = x.shape
        heads, groups = self.options.heads, self.options.groups
        qkv = self.qkv(x.reshape(batch, tokens, groups, width // groups))  # each group [q | k | v] of its heads
        q, k, v = (part.reshape(batch, tokens, heads, -1).transpose(1, 2) for part in qkv.unflatten(-1, (3, -1)).unbind(3))
        if self.options.head_norm:
            q, k = self.query_norm(q), self.key_norm(k)
        if self.options.rotary:
            q, k = grid.turn(q), grid.turn(k)
        mixed = self.within_windows(q, k, v, grid) if self.options.windows else attend(q, k, v)
        return self.output(mixed.transpose(1, 2).reshape(batch, tokens, groups, width // groups)).reshape(x.shape)

    def within_windows(self, q, k, v, grid):
        token, empty, offset, place = grid.windows(self.shifted)
        by_offset = self[f"bias{len(grid.cells)}d"]
        bias = by_offset.output(functional.gelu(by_offset.hidden(grid.window_offsets)))[offset].movedim(-1, 1)  # (windows, heads, tokens, tokens)
        q, k, v = (part[:, :, token].transpose(1, 2) for part in (q, k, v))  # (B, windows, heads, tokens, width)
        scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5 + bias
        mixed = scores.masked_fill(empty[:, None, None], -math.inf).softmax(-1) @ v
        return mixed.transpose(1, 2).flatten(2, 3)[:, :, place]


class Spectral(Parts):
    """Modes of normed tokens of a grid, each mixed by a matrix of its own, beside a linear of each token."""

    def __init__(self, source, name, width, modes, level, condition, factorized=False):
        parts = {"norm": source.norm(f"{name}.norm", width, condition), "local": source.linear(f"{name}.local", width, width)}
        for dims, border in modes:
            kept = modes_at(modes[dims, border], level)
            of_border = parts.setdefault(f"{dims}d", Parts())
            where = f"{name}.{dims}d.{border}"
            if factorized and dims > 1:
                of_border._modules[border] = Parts({f"axis{axis}": source.weight(f"{where}.axis{axis}", kept, 2 * width, width) for axis in range(dims)})
            else:
                of_border._modules[border] = source.weight(where, kept**dims, 2**dims * width, width)
        super().__init__(parts)

    def forward(self, x, grid):
        matrices = self[f"{len(grid.cells)}d"][grid.border]
        if isinstance(matrices, Weight):
            return self.together(x, grid, matrices.weight) + self.local(x)
        along = (self.along(x.unflatten(1, grid.cells), axis, table, matrices[f"axis{axis}"].weight) for axis, table in enumerate(grid.tables()))
        return sum(along).reshape(x.shape) + self.local(x)

    @staticmethod
    def along(x, axis, table, weight):
        """Of each line along an axis of x (B, *cells, width), by itself: modes as complex numbers."""
        waves = (x.movedim(axis + 1, -2).transpose(-1, -2) @ table.T).transpose(-1, -2).unflatten(-2, (-1, 2))
        even, odd = weight[: waves.shape[-3]].unflatten(1, (2, -1)).unbind(1)
        cosine, sine = waves.unbind(-2)
        mixed = torch.stack([torch.einsum("...ki,kio->...ko", a, even) + torch.einsum("...ki,kio->...ko", b, odd) for a, b in ((cosine, -sine), (sine, cosine))], -2)
        return (mixed.flatten(-3, -2).transpose(-1, -2) @ table).transpose(-1, -2).movedim(-2, axis + 1)

    @staticmethod
    def together(x, grid, weight):
        """Of all axes."""
        dims, width = len(grid.cells), x.shape[-1]
        waves = x.unflatten(1, grid.cells)
        for axis, table in enumerate(grid.tables(), 1):
            waves = (waves.movedim(axis, -1) @ table.T).movedim(-1, axis)
        counts = [n // 2 for n in waves.shape[1:-1]]
        for axis in range(dims, 0, -1):  # cosines and sines of all axes behind the modes
            waves = waves.unflatten(axis, (-1, 2)).movedim(axis + 1, dims + 1)
        waves = waves.reshape(len(x), math.prod(counts), 2**dims, width)
        modes = round(len(weight) ** (1 / dims))
        weight = weight.unflatten(0, (modes,) * dims)[tuple(slice(n) for n in counts)].flatten(0, dims - 1)
        signed = (waves[:, :, grid.other_part] * grid.sign[..., None]).flatten(3)  # of part p, beside each other ± x_(p xor q)
        mixed = torch.einsum("bkpi,kio->bkpo", signed, weight).reshape(len(x), *counts, *dims * [2], width)
        for axis in range(1, dims + 1):
            mixed = mixed.movedim(dims + 1, axis + 1).flatten(axis, axis + 1)
        for axis, table in enumerate(grid.tables(), 1):
            mixed = (mixed.movedim(axis, -1) @ table).movedim(-1, axis)
        return mixed.reshape(x.shape)


class Block(Parts):
    """x + mixing(norm(x)), then x + mlp(norm(x)), of tokens of a grid. `mixers` by what they mix by; where there are two, the grid tells which.
    Without mixers, or without `mlp`, it is the other half, and whoever runs it has that as another block."""

    def __init__(self, mixers, mlp, kernels=None, drop_path=0.0):
        super().__init__(mixers | ({"mlp": mlp} if mlp else {}) | ({"convolution": Parts(kernels)} if kernels else {}))
        self.mixing, self.drop_path = list(mixers), drop_path

    def forward(self, x, grid, condition=None):
        return self.change(self.mix(x, grid, condition), condition)

    def mix(self, x, grid, condition=None):
        mixer = self[self.mixing[0] if len(self.mixing) == 1 else grid.by_size]
        normed = mixer.norm(x, condition)
        mixed = mixer(normed, grid)
        if "convolution" in self:
            mixed = mixed + grid.convolve(normed, self.convolution[f"{len(grid.cells)}d"].weight)
        return x + self.dropped(mixed)

    def change(self, x, condition=None):
        return x + self.dropped(self.mlp(self.mlp.norm(x, condition)))

    def dropped(self, branch):
        """In training a sample's branch is left out with the probability drop_path."""
        if not self.training or self.drop_path == 0:
            return branch
        kept = torch.rand(len(branch), 1, 1, dtype=branch.dtype, device=branch.device) >= self.drop_path
        return branch * kept / (1 - self.drop_path)


# ---- grids -------------------------------------------------------------------------------------------------------------


def modes_at(modes, level):
    """Modes along an axis where tokens were merged `level` times: half as many waves each time, and the mean."""
    return (modes - 1 >> level) + 1


def centres(counts, dtype=torch.float64, device=None):
    """(Π counts, d): the middles of cells in [0, 1]."""
    axes = [(torch.arange(n, dtype=dtype, device=device) + 0.5) / n for n in counts]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(counts))


def halved(points, count=None):
    """The order in which points (N, d) get `count` places, N if None: halved again and again at the largest power of two below their number, by the axis
    along which a part of the whole is longest, whose sides shrink by half with each level. Where there are more places than points, each half gets points
    in proportion, and some have several."""
    count = len(points) if count is None else count
    side, axes = points.amax(0) - points.amin(0), {}
    for level in range((count - 1).bit_length(), 0, -1):
        axes[level] = int(side.argmax())
        side[axes[level]] /= 2

    def order(index, places):
        if len(index) < 2:
            return index.expand(places)
        level = (places - 1).bit_length()
        left = 1 << level - 1
        right = places - left
        share = max(min(max((len(index) * left + places // 2) // places, len(index) - right), left, len(index) - 1), 1)
        index = index.sort().values  # of equal coordinates the file's order decides
        index = index[points[index, axes[level]].argsort(stable=True)]
        return torch.cat([order(index[:share], left), order(index[share:], right)])

    return order(torch.arange(len(points)), count)


def fourier(places, frequencies):
    """(…, d·(1 + 2 F)): places, then the sines and the cosines of each frequency."""
    turns = [2 * math.pi * f * places for f in frequencies]
    return torch.cat([places] + [wave for angle in turns for wave in (angle.sin(), angle.cos())], -1)


def wide(x):
    """In float64, where the device has it: places and parameters are told apart by their last bits."""
    return x.float() if x.device.type == "mps" else x.double()


def along(x, axis, index):
    return x.index_select(axis, index)


def angles_of(places, pairs):
    """(…, tokens, pairs) by which the pairs of a head's features are turned that lie at places (…, tokens, d) in [0, 1]."""
    dims = places.shape[-1]
    each = pairs // dims
    turns = math.pi * places[..., None] * torch.arange(1, each + 1, device=places.device)
    return functional.pad(turns.flatten(-2), (0, pairs - each * dims))


def turned(x, cosines, sines):
    """Pairs (i, d/2 + i) of (…, tokens, d) turned by their token's angles."""
    real, imaginary = x.chunk(2, -1)
    return torch.cat([real * cosines - imaginary * sines, real * sines + imaginary * cosines], -1)


class Placed:
    """A grid of tokens, of which each sample tells where they lie: places (B, tokens, d)."""

    def __init__(self, grid, places):
        self.grid, self.places = grid, places

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def turn(self, x):
        angles = angles_of(wide(self.places), x.shape[-1] // 2)[:, None].to(x.dtype)  # for all heads
        return turned(x, angles.cos(), angles.sin())


class TokenGrid(nn.Module):
    """Cells that tokens lie in, what that makes of mixing them, and the tables for it. Nothing is learned."""

    def __init__(self, cells, periodic, by_size="attention", merges=True, head_width=0, modes=0, window=0, places=None):
        super().__init__()
        self.cells, self.periodic, self.window = tuple(cells), periodic, window
        self.by_size = by_size  # what blocks mix it by that may do either
        self.merges = merges  # for the next level of a unet
        self.border = "periodic" if periodic else "padded"
        if head_width:
            self.keep_angles(head_width // 2, places)
        if modes:
            self.keep_waves(modes)
        if window:
            self.keep_windows()

    def keep(self, name, table):
        self.register_buffer(name, table, persistent=False)

    def periods(self):
        """Along an axis that is not periodic waves are those of twice its length."""
        return [n if self.periodic else 2 * n for n in self.cells]

    # Rotary places: the k-th pair of an axis goes round k times in its period.

    def keep_angles(self, pairs, places):
        if places is not None:
            angles = angles_of(places, pairs)
            self.keep("cosines", angles.cos())
            self.keep("sines", angles.sin())
            return
        each, dims = pairs // len(self.cells), len(self.cells)
        angles = torch.zeros(*self.cells, pairs, dtype=torch.float64)
        for axis, (n, period) in enumerate(zip(self.cells, self.periods())):
            turns = torch.outer(torch.arange(n), torch.arange(1, each + 1)) % period
            angles[..., axis * each:(axis + 1) * each] = (2 * math.pi / period * turns).reshape([n if a == axis else 1 for a in range(dims)] + [each])
        angles = angles.reshape(-1, pairs)
        self.keep("cosines", angles.cos())
        self.keep("sines", angles.sin())

    def turn(self, x):
        return turned(x, self.cosines, self.sines)

    # Modes: tables of cosines and sines, orthonormal over a period, and how their parts mix, as complex numbers with a unit for each axis.

    def keep_waves(self, modes):
        for axis, (n, period) in enumerate(zip(self.cells, self.periods())):
            k = torch.arange(min(modes, period // 2 + 1))
            angles = 2 * math.pi / period * (torch.outer(k, torch.arange(n)) % period).double()
            alone = (k == 0) | (2 * k == period)  # has no sine
            scale = torch.where(alone, 1.0, 2.0).double().div(period).sqrt()[:, None]
            self.keep(f"waves{axis}", torch.stack([scale * angles.cos(), scale * angles.sin() * ~alone[:, None]], 1).reshape(-1, n))
        part = torch.arange(2 ** len(self.cells))
        other = part[:, None] ^ part
        self.keep("other_part", other)
        self.keep("sign", torch.tensor([[(-1.0) ** bin(p & q).count("1") for q, p in enumerate(row)] for row in other.tolist()], dtype=torch.float64))

    def tables(self):
        return [self.get_buffer(f"waves{axis}") for axis in range(len(self.cells))]

    # Windows: every axis is cut every `window` cells, or those shifted by half of it.

    def keep_windows(self):
        dims, side = len(self.cells), 2 * self.window - 1
        offsets = torch.cartesian_prod(*dims * [torch.arange(1 - self.window, self.window)]).reshape(-1, dims).double()
        self.keep("window_offsets", offsets.sign() * offsets.abs().log1p())
        for shifted in (False, True):
            number = local = torch.zeros(self.cells, dtype=torch.long)
            for axis, n in enumerate(self.cells):
                shift = self.window // 2 if shifted and self.window < n else 0
                place = (torch.arange(n) - shift) % n if self.periodic else torch.arange(n) - shift + (self.window if shift else 0)
                at = [n if a == axis else 1 for a in range(dims)]
                number = number * (2 + n // self.window) + (place // self.window).reshape(at)
                local = local * side + (place % self.window).reshape(at)
            number, local = number.flatten(), local.flatten()
            members = [torch.nonzero(number == one).flatten() for one in number.unique()]
            most = max(map(len, members))
            token = torch.stack([functional.pad(m, (0, most - len(m))) for m in members])
            empty = torch.stack([torch.arange(most) >= len(m) for m in members])
            centre = sum((self.window - 1) * side**axis for axis in range(dims))
            offset = (local[token][:, :, None] - local[token][:, None] + centre).masked_fill(empty[:, None] | empty[:, :, None], centre)
            place = torch.empty(number.numel(), dtype=torch.long)
            place[token[~empty]] = torch.nonzero(~empty.flatten()).flatten()
            for name, table in (("token", token), ("empty", empty), ("offset", offset), ("place", place)):
                self.keep(f"window_{name}{int(shifted)}", table)

    def windows(self, shifted):
        """Of each window its tokens, which of them only fill it up, and the offset of every two; of each token its place in that list."""
        return [self.get_buffer(f"window_{name}{int(shifted)}") for name in ("token", "empty", "offset", "place")]

    # Neighbours, and coarser grids.

    def bordered(self, x, beyond):
        """(B, *cells, D) with so many cells more on both sides of each axis: from the other side, or zeros."""
        for axis, n in enumerate(self.cells, 1):
            if self.periodic:
                x = along(x, axis, torch.arange(-beyond, n + beyond, device=x.device) % n)
            else:
                x = functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [beyond, beyond])
        return x

    def convolve(self, x, weight):
        """Every feature of (B, tokens, D) by a kernel of its own; weight (size^dims, D)."""
        dims, width = len(self.cells), x.shape[-1]
        size = round(len(weight) ** (1 / dims))
        field = self.bordered(x.unflatten(1, self.cells), size // 2).movedim(-1, 1)
        convolution = (functional.conv1d, functional.conv2d, functional.conv3d)[dims - 1]
        return convolution(field, weight.T.reshape(width, 1, *dims * [size]), groups=width).flatten(2).transpose(1, 2)

    def neighbours(self, x):
        """(B, tokens, 3^dims · D): each cell's values beside those around it."""
        field = self.bordered(x.unflatten(1, self.cells), 1)
        for axis, n in enumerate(self.cells, 1):
            field = field.unfold(axis, 3, 1)
        return field.movedim(len(self.cells) + 1, -1).flatten(len(self.cells) + 1).flatten(1, len(self.cells))

    def coarser(self):
        """Cells of the grid on which those of this one are merged in pairs."""
        return tuple((n + 1) // 2 for n in self.cells) if self.merges else self.cells

    def coarsen(self, x):
        """Means of pairs of cells along each axis; the last cell twice where their number is odd. As they are where cells are not merged."""
        if not self.merges:
            return x
        x = x.unflatten(1, self.cells)
        for axis, n in enumerate(self.cells, 1):
            first = torch.arange(0, n, 2, device=x.device)
            x = (along(x, axis, first) + along(x, axis, (first + 1).clamp(max=n - 1))) / 2
        return x.flatten(1, len(self.cells))

    def refine(self, x):
        """To this grid from its coarser one, linearly between the middles of pairs."""
        if not self.merges:
            return x
        x = x.unflatten(1, self.coarser())
        for axis, n in enumerate(self.cells, 1):
            coarse, cell = (n + 1) // 2, torch.arange(n, device=x.device)
            beside = cell // 2 + 2 * (cell % 2) - 1
            beside = beside % coarse if self.periodic else beside.clamp(0, coarse - 1)
            x = 0.75 * along(x, axis, cell // 2) + 0.25 * along(x, axis, beside)
        return x.flatten(1, len(self.cells))


class Domain(nn.Module):
    """The grid of a task's fields: normalisation, patches, and reading between points. Its numbers are those that the file tells."""

    def __init__(self, grid, patch, periodic, statistics, points=None, channels=()):
        super().__init__()
        self.grid, self.patch, self.periodic, self.dims = tuple(grid), tuple(patch), periodic, len(grid)
        self.cells = tuple(-(-n // p) for n, p in zip(grid, patch))
        self.place_dims = points["dims"] if points else self.dims
        self.scattered = bool(points)
        self.coordinates = None  # channels that are the coordinates of points which each sample has of its own
        self.places = None  # (tokens, d) of points that lie anywhere and all samples share; of a grid they follow from its cells
        if points and points["of_each_sample"]:
            self.coordinates = [list(channels).index(name) for name in "xyz"[:self.place_dims]]
        elif points:
            self.take_points(torch.tensor(points["coordinates"], dtype=torch.float64).reshape(-1, self.place_dims))
        mean, scale = torch.tensor(statistics, dtype=torch.float64).T
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("scale", scale, persistent=False)
        self.channels = len(mean)
        self.numbers = math.prod(patch) * self.channels  # of a patch

    def take_points(self, points):
        """The order of points, and where the tokens lie that have a patch of them each."""
        order, patch = halved(points), self.patch[0]
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("stored", order.argsort(), persistent=False)
        low, extent = points.amin(0), (points.amax(0) - points.amin(0)).max()
        last = torch.arange(self.cells[0] * patch).clamp(max=len(points) - 1)
        scaled = ((points[order] - low) / (extent if extent > 0 else 1))[last].reshape(self.cells[0], patch, -1)
        self.places = scaled.mean(1)
        offsets = (scaled - self.places[:, None]).flatten(1)
        deviation = offsets.square().mean().sqrt()
        self.register_buffer("offsets", offsets / (deviation if deviation > 0 else 1), persistent=False)

    def orders(self, field):
        """(B, places): the order of the tree of each sample's points, which (B, N, channels) tells; None where all samples share them, or there is a grid."""
        if self.coordinates is None:
            return None
        return torch.stack([halved(points, self.grid[0]) for points in field[..., self.coordinates].detach().double().cpu()]).to(field.device)

    def sorted(self, field, orders):
        """(B, *grid, channels) with points that lie anywhere in the order of their tree; and back."""
        if orders is not None:
            return field.gather(1, orders[..., None].expand(-1, -1, field.shape[-1]))
        return field[:, self.order] if self.scattered else field

    def unsorted(self, field, orders):
        if orders is not None:  # of a point that has several places, the first
            places = torch.arange(orders.shape[1], device=orders.device).expand_as(orders)
            first = places.new_full((len(orders), int(orders.max()) + 1), orders.shape[1]).scatter_reduce(1, orders, places, "amin")
            return field.gather(1, first[..., None].expand(-1, -1, field.shape[-1]))
        return field[:, self.stored] if self.scattered and self.coordinates is None else field

    def normalise(self, fields):
        return (fields - self.mean) * self.scale

    def physical(self, fields):
        return fields / self.scale + self.mean

    def patches(self, field):
        """(B, cells, numbers of a patch) of (B, *grid, channels); patches that reach beyond the grid repeat its last points."""
        for axis, (n, cells, patch) in enumerate(zip(self.grid, self.cells, self.patch), 1):
            if cells * patch != n:
                field = along(field, axis, torch.arange(cells * patch, device=field.device).clamp(max=n - 1))
        for axis in range(self.dims, 0, -1):
            field = field.unflatten(axis, (self.cells[axis - 1], self.patch[axis - 1])).movedim(axis + 1, self.dims + 1)
        return field.flatten(self.dims + 1).flatten(1, self.dims)

    def field(self, patches):
        """(B, *grid, channels) of (B, cells, numbers of a patch)."""
        field = patches.reshape(len(patches), *self.cells, *self.patch, self.channels)
        for axis in range(1, self.dims + 1):
            field = field.movedim(self.dims + 1, axis + 1).flatten(axis, axis + 1)
        return field[(slice(None), *(slice(n) for n in self.grid))]

    def read(self, field, coordinates):
        """(B, Q, channels) of (B, *grid, channels) at (Q, d) in [0, 1], by cubic convolution (Keys 1981), which goes through grid points."""
        index, weights = torch.zeros(len(coordinates), 1, dtype=torch.long, device=field.device), field.new_ones(len(coordinates), 1)
        for axis, n in enumerate(self.grid):
            place = wide(coordinates[:, axis]) * n - 0.5
            nearest = place.round()
            place = torch.where((place - nearest).abs() < 1e-3, place + (nearest - place).detach(), place)  # a grid point, but for float32
            before = place.detach().floor()
            t = place - before
            taps = torch.stack([t * (-0.5 + t * (1 - 0.5 * t)), 1 + t * t * (-2.5 + 1.5 * t), t * (0.5 + t * (2 - 1.5 * t)), t * t * (-0.5 + 0.5 * t)], -1).to(field.dtype)
            at = before.long()[:, None] + torch.arange(-1, 3, device=field.device)
            at = at % n if self.periodic else at.clamp(0, n - 1)
            index = (index[:, :, None] * n + at[:, None]).flatten(1)
            weights = (weights[:, :, None] * taps[:, None]).flatten(1)
        return torch.einsum("bqtc,qt->bqc", field.flatten(1, self.dims)[:, index], weights)


# ---- encoders and decoders ---------------------------------------------------------------------------------------------

AROUND = (-3, -2, -1, 1, 2, 3)  # points that the correction between grid points looks at along an axis, beside the place itself,
DIFFERENCES = ((0, -1, 3, 1, 0, 0), (0, 0, -1, -3, 1, 0), (0, -1, 5, 10, -5, 1), (-1, 5, -10, -5, 1, 0))  # their weights in its differences,
HERE = (-3, 3, -10, 10)  # and the place's own


class PatchEncoder(Parts):
    """A token a patch, by a linear map of each task."""

    def __init__(self, source, model, domains, latent_dims):
        super().__init__({name: Parts({"patch": source.linear(f"encoder.{name}.patch", domain.numbers, latent_dims[name], bias=False)}) for name, domain in domains.items()})

    def forward(self, name, domain, field):
        return self[name].patch(domain.patches(field))


class PatchDecoder(Parts):
    """And back. Between grid points a learned correction may be added to cubic convolution."""

    def __init__(self, source, model, domains, latent_dims):
        parts, hidden = {}, model["decoder"]["between"]
        for name, domain in domains.items():
            own = {"patch": source.linear(f"decoder.{name}.patch", latent_dims[name], domain.numbers, bias=False)}
            if hidden:
                own["between"] = Parts({
                    "hidden": source.linear(f"decoder.{name}.between.hidden", 4 * domain.dims, hidden),
                    "output": source.linear(f"decoder.{name}.between.output", hidden, len(HERE) * domain.dims * domain.channels),
                })
            parts[name] = Parts(own)
        super().__init__(parts)

    def forward(self, name, domain, latents, coordinates):
        """(B, *grid, channels), or (B, Q, channels) at coordinates (Q, d)."""
        field = domain.field(self[name].patch(latents))
        if coordinates is None:
            return field
        read = domain.read(field, coordinates)
        return read + self.correction(name, domain, field, coordinates, read) if "between" in self[name] else read

    def correction(self, name, domain, field, coordinates, here):
        between, coordinates = self[name].between, wide(coordinates)
        spacing = 1 / torch.tensor(domain.grid, dtype=coordinates.dtype, device=coordinates.device)
        inside = coordinates / spacing
        waves = fourier(inside, (1, 2))[:, domain.dims:].to(field.dtype)
        share = (1 + (2 * math.pi * inside).cos()).mean(-1).to(field.dtype) / 2
        weights = (between.output(functional.gelu(between.hidden(waves))) * share[:, None]).reshape(len(inside), domain.dims, len(HERE), domain.channels)
        total = torch.zeros_like(here)
        for axis in range(domain.dims):
            step = spacing * (torch.arange(domain.dims, device=spacing.device) == axis)
            around = torch.stack([domain.read(field, coordinates + n * step) for n in AROUND], -1)
            for i, (of, own) in enumerate(zip(DIFFERENCES, HERE)):
                total = total + weights[:, axis, i] * (own * here + around @ around.new_tensor(of))
        return total


class Resampler(Parts):
    """Patches to a fixed number of tokens, by means of neighbouring ones or by queries that attend to them."""

    def __init__(self, source, model, domains):
        encoder, parts = model["encoder"], {}
        width, heads, ratio = encoder["width"], encoder["heads"], encoder["mlp_ratio"]
        for name, domain in domains.items():
            stem = min(max(domain.numbers, 16), 128)
            taps = 3**domain.dims * domain.numbers
            parts[name] = Parts({
                "stem": Parts({"0": source.linear(f"encoder.{name}.stem.0", taps, stem), "1": source.linear(f"encoder.{name}.stem.1", stem, domain.numbers)}),
                "embed": source.linear(f"encoder.{name}.embed", domain.numbers, width),
            })
        features = 1 + 2 * len(encoder["frequencies"])
        trunk = {f"position{d}d": source.linear(f"encoder.trunk.position{d}d", d * features, width) for d in sorted({domain.dims for domain in domains.values()})}
        if encoder["pooling"] == "queries":
            trunk["pool"] = CrossBlock(source, "encoder.trunk.pool", width, width, heads, ratio, head_norm=True)
            trunk["pool"].queries = nn.Parameter(source.tensor("encoder.trunk.pool.queries", model["tokens"], width))
        trunk["blocks"] = nn.ModuleList(
            Block({"attention": Attention(source, f"encoder.trunk.blocks.{i}.attention", width, Attending(heads), 0)}, mlp_of(source, f"encoder.trunk.blocks.{i}.mlp", width, ratio))
            for i in range(encoder["depth"]))
        trunk["output"] = source.linear("encoder.trunk.output", width, model["dim"])
        super().__init__(parts | {"trunk": Parts(trunk)})
        self.tokens = model["tokens"]

    def forward(self, name, domain, field):
        own, trunk, patches = self[name], self["trunk"], domain.patches(field)
        stem = own.stem
        patches = patches + stem["1"](functional.gelu(stem["0"](domain.around.neighbours(patches))))
        x = own.embed(patches) + trunk[f"position{domain.dims}d"](domain.patch_features)
        if "pool" in trunk:
            x = trunk.pool(trunk.pool.queries.expand(len(x), -1, -1), x)
        else:
            x = functional.adaptive_avg_pool1d(x.transpose(1, 2), self.tokens).transpose(1, 2)
        for block in trunk.blocks:
            x = block(x, None)
        return trunk.output(x)


class PointDecoder(Parts):
    """Values at any points, which attend to the tokens."""

    def __init__(self, source, model, domains, frequencies, position):
        decoder, parts = model["decoder"], {}
        hidden = decoder["hidden"]
        for name, domain in domains.items():
            features = domain.dims * (1 + 2 * len(frequencies[name]))
            parts[f"query{domain.dims}d"] = source.linear(f"decoder.query{domain.dims}d", features, hidden)
            if position:
                parts[f"token{domain.dims}d"] = source.linear(f"decoder.token{domain.dims}d", features, model["dim"])
            parts[name] = Parts({"head": source.linear(f"decoder.{name}.head", hidden, domain.channels)})
        parts["layers"] = nn.ModuleList(
            CrossBlock(source, f"decoder.layers.{i}", hidden, model["dim"], decoder["heads"], decoder["mlp_ratio"], decoder["qk_norm"]) for i in range(decoder["depth"]))
        super().__init__(parts)
        self.frequencies, self.position = frequencies, position

    def forward(self, name, domain, latents, coordinates):
        dims, on_grid = domain.dims, coordinates is None
        if on_grid:
            coordinates = centres(domain.grid, latents.dtype, latents.device)
        if self.position:
            latents = latents + self[f"token{dims}d"](domain.token_features)
        x = self[f"query{dims}d"](fourier(wide(coordinates), self.frequencies[name]).to(latents.dtype)).expand(len(latents), -1, -1)
        for layer in self["layers"]:
            x = layer(x, latents)
        values = self[name].head(x)
        return values.unflatten(1, domain.grid) if on_grid else values


# ---- the operator ------------------------------------------------------------------------------------------------------

TIME_HIDDEN, CONDITION_HIDDEN = 64, 128
POSITION_FREQUENCIES = (1, 2, 4, 8, 16)


def border_of(domain):
    return "periodic" if domain.periodic else "open"


def refuse_name(source, task, parts):
    if task in parts:
        raise ModelError(f"{source.path}: a task is called '{task}', as is a part of the model, and the two cannot be told apart here; give the task another name and train again")


def by_axes(numbers, dims):
    """Of a list for tasks of one, two and three axes; its last number counts for those it does not have."""
    return numbers[min(dims, len(numbers)) - 1]


class Operator(Parts):
    """Advances latents by a step, or by the steps of a bundle."""

    def __init__(self, source, model, domains, tasks, parameter_count):
        options, on_grid = model["operator"], model["tokens"] == "grid"
        hidden, dim, conditioned = options["hidden"], model["dim"], options["condition"]
        condition = CONDITION_HIDDEN if conditioned and on_grid else 0  # that modulates every block; elsewhere it does the input
        linear = lambda name, *sizes, **more: source.linear(f"operator.{name}", *sizes, **more)  # noqa: E731
        time = {"0": linear("time.0", 1, TIME_HIDDEN)}
        if not on_grid:
            time |= {"1": linear("time.1", TIME_HIDDEN, TIME_HIDDEN), "2": linear("time.2", TIME_HIDDEN, dim)}
        parts = {"time": Parts(time)}
        if conditioned:
            known = {"time": linear("condition.time", TIME_HIDDEN, CONDITION_HIDDEN), "task": linear("condition.task", len(tasks), CONDITION_HIDDEN, bias=False)}
            if parameter_count:
                known["parameters"] = linear("condition.parameters", parameter_count, CONDITION_HIDDEN)
            if on_grid and options["boundary"]:
                known["boundary"] = Parts()
                for border in sorted({border_of(domain) for domain in domains.values()}):
                    known["boundary"].register_parameter(border, nn.Parameter(source.tensor(f"operator.condition.boundary.{border}", 1, CONDITION_HIDDEN)))
            known["hidden"] = linear("condition.hidden", CONDITION_HIDDEN, CONDITION_HIDDEN)
            if not on_grid:
                known["output"] = linear("condition.output", CONDITION_HIDDEN, 3 * dim)
            parts["condition"] = Parts(known)
        parts |= core_of(source, options, domains, condition, on_grid)
        parts["norm"] = source.norm("operator.norm", hidden)
        if on_grid:
            if options["positions"] in ("borders", "rotary"):
                for d in sorted({domain.place_dims for domain in domains.values() if not domain.periodic}):
                    parts[f"position{d}d"] = linear(f"position{d}d", d * (1 + 2 * len(POSITION_FREQUENCIES)), hidden)
            for name, task in tasks.items():
                refuse_name(source, name, parts | {"blocks": None})
                parts[name] = own_part(source, name, task, options, domains[name], condition)
        else:
            parts |= {"input": linear("input", dim, hidden), "output": linear("output", hidden, dim)}
            if options["update_norm"] == "layer_norm":
                parts["update_norm"] = source.norm("operator.update_norm", dim)
        super().__init__(parts)
        self.on_grid, self.options, self.names, self.bound = on_grid, options, list(tasks), model["bound"]

    def known(self, name, domain, dt, parameters):
        """(B, CONDITION_HIDDEN): what is known beside the state."""
        features, condition = functional.silu(self["time"]["0"](dt[:, None])), self["condition"]
        one_hot = features.new_zeros(len(features), len(self.names))
        one_hot[:, self.names.index(name)] = 1
        total = condition["time"](features) + condition["task"](one_hot)
        if "parameters" in condition:
            total = total + condition["parameters"](parameters)
        if "boundary" in condition:
            total = total + condition["boundary"].get_parameter(border_of(domain))
        return functional.silu(condition["hidden"](functional.silu(total)))

    def forward(self, name, task, domain, frames, dt, parameters, stride):
        """(B, bundle, tokens, dim) from (B, history, tokens, dim), dt (B) and scaled parameters (B, P)."""
        known = self.known(name, domain, dt, parameters) if "condition" in self else None
        if self.on_grid:
            return self.advance_on_grid(self[name], task, domain, frames, known, stride)
        z, time = frames[:, -1], self["time"]
        x = z + time["2"](time["1"](functional.silu(time["0"](dt[:, None]))))[:, None]
        if known is not None:
            scale, shift, gate = self["condition"]["output"](known)[:, None].chunk(3, -1)
            x = x + torch.sigmoid(gate + 2) * (functional.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift)
        update = self["output"](self["norm"](self.core(self["input"](x), domain.levels, None)))
        if "update_norm" in self:
            update = self["update_norm"](update)
        return (z + update)[:, None]

    def advance_on_grid(self, own, task, domain, frames, known, stride):
        measured = own[f"stride{stride}"] if f"stride{stride}" in own else own
        z, levels = frames[:, -1], domain.levels
        places, offsets = self.geometry(own, domain, frames[:, 0])
        changes = [(frames[:, -j] - frames[:, -j - 1]) * measured.rate for j in range(1, task.history)]
        x = own["input"](z) + sum(own[f"earlier{j}"](change) for j, change in enumerate(changes, 1))
        if "positions" in own:
            x = x + own["positions"].weight
        elif f"position{domain.place_dims}d" in self and not domain.periodic:
            features = domain.place_features if places is None else fourier(places, POSITION_FREQUENCIES)
            x = x + self[f"position{domain.place_dims}d"](features)
            if "offsets" in own:
                x = x + own["offsets"](offsets)
        if places is not None:
            levels, at = [], places
            for level in domain.levels:
                levels.append(Placed(level, at))
                at = level.coarsen(at)
        x = self["norm"](self.core(x, levels, known, own))
        read = domain.levels[0].neighbours(z) if own["skip"].in_features > z.shape[-1] else z
        update = own["output"](x) + own["skip"](read) + sum(own[f"trend{j}"](change) for j, change in enumerate(changes, 1))
        update = (update * measured.change).unflatten(-1, (task.bundle, -1)).transpose(1, 2)  # (B, bundle, tokens, dim)
        if self.options["conserve"]:
            update = update + update.mean(2, keepdim=True) @ own.kept.T  # less what never changes of the mean
        return z[:, None] + update

    def geometry(self, own, domain, state):
        """Of points that lie anywhere: where tokens lie, (B, tokens, d), where each sample has its own, and how the points of a token lie around that."""
        if "geometry" not in own:
            return None, domain.offsets if domain.scattered and domain.coordinates is None else None
        state = state.detach()
        if self.bound > 0:
            state = self.bound * torch.sinh(state / self.bound)
        found = functional.linear(state, own["geometry"].weight, own["geometry"].bias)
        return found[..., :domain.place_dims], found[..., domain.place_dims:]

    def core(self, x, levels, condition, own=None):
        """`own`: the task's, where it has blocks of its own."""
        shared = self["blocks"] if "blocks" in self else own["blocks"]
        blocks = zip(shared, own["blocks"] if own is not None and "blocks" in own else shared)

        def run(x, grid):
            one, other = next(blocks)
            x = (one if one.mixing else other).mix(x, grid, condition)
            return (one if "mlp" in one else other).change(x, condition)

        if self.options["core"] != "unet":
            for _ in shared:
                x = run(x, levels[0])
            return x
        depths, skips = self.options["depths"], []
        for level, depth in enumerate(depths):
            for _ in range(depth):
                x = run(x, levels[level])
            if level + 1 < len(depths):
                skips.append(x)
                x = levels[level].coarsen(x)
        for level in range(len(depths) - 2, -1, -1):
            x = levels[level].refine(x) + self["skips"][level](skips[level])
            for _ in range(depths[level]):
                x = run(x, levels[level])
        return x


def levels_of(options):
    """The level of each block: 0 but in a unet, down and up again."""
    if options["core"] != "unet":
        return [0] * options["depth"]
    down = [level for level, depth in enumerate(options["depths"]) for _ in range(depth)]
    return down + [level for level in down[::-1] if level + 1 < len(options["depths"])]


def mixing_of(options):
    """What each block mixes by."""
    turns = options["mixing"] or ["spectral" if options["core"] == "spectral" else "attention"]
    return [turns[i % len(turns)] for i in range(len(levels_of(options)))]


def attending(options, on_grid):
    groups = options["hidden"] // GROUP if options["attention"] == "channel_separated" else 1
    return Attending(options["heads"], options["qk_norm"], groups, on_grid and options["positions"] == "rotary", options["attention"] == "window")


HALVES = ("mixing", "mlp")


def blocks_of(source, prefix, options, domains, condition, on_grid, halves):
    """These halves of the blocks, of tasks on these domains."""
    hidden, levels, turns = options["hidden"], levels_of(options), mixing_of(options)
    dims = sorted({domain.dims for domain in domains.values()})
    blocks, attended = [], 0
    for i, (level, mixing) in enumerate(zip(levels, turns)):
        name, mixers, kernels, mlp = f"{prefix}.blocks.{i}", {}, None, None
        drop_path = options["drop_path"] * i / (len(levels) - 1) if len(levels) > 1 else 0.0
        of_auto = {kind: [domain for domain in domains.values() if domain.levels[level].by_size == kind] for kind in ("attention", "spectral")}
        of = of_auto if mixing == "auto" else {mixing: list(domains.values())}
        if "mixing" in halves and of.get("attention"):
            mixers["attention"] = Attention(source, f"{name}.attention", hidden, attending(options, on_grid), condition, sorted({domain.dims for domain in of["attention"]}), shifted=attended % 2 == 1)
        if "mixing" in halves and of.get("spectral"):
            modes = {(domain.dims, domain.levels[level].border): by_axes(options["modes"], domain.dims) for domain in of["spectral"]}
            mixers["spectral"] = Spectral(source, f"{name}.spectral", hidden, modes, level, condition, options.get("factorized", False))
        if "mixing" in halves and options["convolution"]:
            kernels = {f"{d}d": source.weight(f"{name}.convolution.{d}d", options["convolution"] ** d, hidden) for d in dims}
        if "mlp" in halves:
            mlp = mlp_of(source, f"{name}.mlp", hidden, options["mlp_ratio"], condition)
        attended += mixing != "spectral"
        blocks.append(Block(mixers, mlp, kernels, drop_path))
    return nn.ModuleList(blocks)


def core_of(source, options, domains, condition, on_grid):
    """The blocks that tasks share, and what a unet adds on the way up."""
    shared = set(HALVES) - set(options.get("task_specific", []))
    parts = {"blocks": blocks_of(source, "operator", options, domains, condition, on_grid, shared)} if shared else {}
    if options["core"] == "unet":
        parts["skips"] = nn.ModuleList(source.linear(f"operator.skips.{level}", options["hidden"], options["hidden"]) for level in range(len(options["depths"]) - 1))
    return parts


def own_part(source, name, task, options, domain, condition):
    """What a task whose tokens are cells has for itself. Buffers were measured, and are not learned."""
    task_name, name, hidden, width = name, f"operator.{name}", options["hidden"], task.bundle * task.dim
    read = task.dim * (3 ** len(domain.cells) if options.get("linear") == "neighbors" and not domain.scattered else 1)
    parts = {"input": source.linear(f"{name}.input", task.dim, hidden), "output": source.linear(f"{name}.output", hidden, width), "skip": source.linear(f"{name}.skip", read, width)}
    for j in range(1, task.history):
        parts[f"earlier{j}"] = source.linear(f"{name}.earlier{j}", task.dim, hidden, bias=False)
        parts[f"trend{j}"] = source.linear(f"{name}.trend{j}", task.dim, width, bias=False)
    around = domain.patch[0] * domain.place_dims  # numbers that tell how a token's points lie
    if domain.scattered and options["positions"] in ("borders", "rotary"):
        parts["offsets"] = source.linear(f"{name}.offsets", around, hidden, bias=False)
    if "offsets" in parts and domain.coordinates is not None:
        parts["geometry"] = Parts()
        parts["geometry"].register_buffer("weight", source.tensor(f"{name}.geometry.weight", domain.place_dims + around, task.dim))
        parts["geometry"].register_buffer("bias", source.tensor(f"{name}.geometry.bias", domain.place_dims + around))
    if options["positions"] == "learned":
        parts["positions"] = source.weight(f"{name}.positions", task.tokens, hidden)
    if options.get("task_specific"):
        parts["blocks"] = blocks_of(source, name, options, {task_name: domain}, condition, True, options["task_specific"])
    by_stride = {f"stride{stride}": Parts() for stride in task.strides}
    own = Parts(parts | by_stride)
    for part, of in [(part, f"{name}.{stride}") for stride, part in by_stride.items()] or [(own, name)]:
        part.register_buffer("change", source.tensor(f"{of}.change", width))
        if task.history > 1:
            part.register_buffer("rate", source.tensor(f"{of}.rate", task.dim))
    if options["conserve"]:
        own.register_buffer("kept", source.tensor(f"{name}.kept", task.dim, task.dim))
    return own


# ---- the model ---------------------------------------------------------------------------------------------------------


class Surrogate(nn.Module):
    """Encoder, operator and decoder of all tasks of a run. `load` makes it.

    `tasks` tells of each task what its fields are. Parameters are what training trains; what training measured (how much a step changes, what
    is conserved) are buffers. state_dict() has the names of the files' tensors.
    """

    def __init__(self, source, metadata):
        super().__init__()
        self.metadata = dict(metadata)
        told = lambda key: told_of(source.path, metadata, key)  # noqa: E731
        config = told("ups.config")
        if not any(name.startswith("operator.") for name in source.tensors) or not any(name.startswith("encoder.") for name in source.tensors):
            raise ModelError(f"{source.path}: holds an operator or an autoencoder, not both; load the run's directory, or write one file with `ups export RUN -o FILE`")
        try:
            self.build(source, config, told)
        except (KeyError, TypeError, IndexError) as mistake:
            raise ModelError(f"{source.path}: its metadata lack what a model of this version tells ({mistake!r}); write it anew with `ups export RUN -o FILE`") from mistake
        left = sorted(set(source.tensors) - source.taken)
        if left:
            raise ModelError(f"{source.path}: tensor '{left[0]}'{f' and {len(left) - 1} more are' if len(left) > 1 else ' is'} of a part that this version of pytorch.py does not know; use that of the UPS that wrote the file")

    def build(self, source, config, told):
        model, options = config["model"], config["model"]["operator"]
        on_grid = model["tokens"] == "grid"
        self.bound, self.scales, self.tasks = model["bound"], {}, {}
        refuse_unknown(source.path, model)
        self.domains = Parts()
        domains, latent_dims = self.domains._modules, {}
        for task in config["tasks"]:
            name, fields = task["name"], told(f"{task['name']}.fields")
            patch = task["patch"] * len(fields["grid"]) if len(task["patch"]) == 1 else task["patch"]
            domains[name] = domain = Domain(fields["grid"], patch, fields["periodic"], told(f"{name}.normalisation"), fields.get("points"), fields["channels"])
            latent_dims[name] = source.width(f"encoder.{name}.patch.weight", 0) if on_grid else model["dim"]
            parameters = told(f"{name}.parameters")
            names, scales = (parameters, None) if isinstance(parameters, list) else (parameters["names"], parameters.get("scale"))
            self.scales[name] = scales or [["linear", 0.0, 1.0]] * len(names)
            steps = (fields["frames"] - 1) // fields["stride"]
            several = on_grid and steps > 1
            self.tasks[name] = Task(
                name, tuple(fields["channels"]), tuple(fields["grid"]), tuple(fields["axes"]), tuple(fields["low"]), tuple(fields["high"]), fields["periodic"], fields["dt"],
                fields.get("time_units"), fields["frames"], fields["stride"], tuple(task["strides"]), steps, tuple(names), options["history"] if several else 1,
                (task.get("bundle") or options["bundle"]) if several else 1, steps < 2, math.prod(domain.cells) if on_grid else model["tokens"], latent_dims[name],
                tuple(fields["time"]) if fields["dt"] is None and "time" in fields else None)
            domain.levels = nn.ModuleList(token_grids(domain.cells if on_grid else (model["tokens"],), on_grid and domain.periodic, options, on_grid, domain.scattered, domain.places))
            if on_grid and not domain.periodic and domain.coordinates is None:
                places = centres(domain.cells) if domain.places is None else domain.places
                domain.register_buffer("place_features", fourier(places, POSITION_FREQUENCIES), persistent=False)
        self.parameter_count = max(map(len, self.scales.values()))
        if on_grid:
            self.encoder, self.decoder = PatchEncoder(source, model, domains, latent_dims), PatchDecoder(source, model, domains, latent_dims)
        else:
            self.build_fixed(source, model, domains, {name: told(f"{name}.decoder") for name in domains})
        self.operator = Operator(source, model, domains, self.tasks, self.parameter_count)

    def build_fixed(self, source, model, domains, decoders):
        """Of a fixed number of tokens."""
        frequencies = {name: decoder["frequencies"] for name, decoder in decoders.items()}
        for name, domain in domains.items():
            refuse_name(source, name, ("trunk", "layers", *(f"{part}{d}d" for part in ("query", "token") for d in (1, 2, 3))))
            reach = torch.tensor([c * p / n for c, p, n in zip(domain.cells, domain.patch, domain.grid)], dtype=torch.float64)
            places = centres(domain.cells) * reach  # where patches do not divide the grid the last ones reach beyond 1
            of_tokens = functional.adaptive_avg_pool1d(places.T[None], model["tokens"])[0].T
            domain.register_buffer("patch_features", fourier(places, model["encoder"]["frequencies"]), persistent=False)
            domain.register_buffer("token_features", fourier(of_tokens, frequencies[name]), persistent=False)
            domain.around = TokenGrid(domain.cells, domain.periodic)
        self.encoder = Resampler(source, model, domains)
        self.decoder = PointDecoder(source, model, domains, frequencies, position=all(decoder["position"] for decoder in decoders.values()))

    def task(self, name):
        """Of this name; of a model with one task, that one if None."""
        if name is None and len(self.tasks) == 1:
            return next(iter(self.tasks.values()))
        if name is None:
            raise ValueError(f"which task? The model has {', '.join(self.tasks)}")
        if name not in self.tasks:
            raise ValueError(f"there is no task '{name}'; the model has {', '.join(self.tasks)}")
        return self.tasks[name]

    def numbers(self, values):
        """As a tensor of the model's dtype on its device."""
        like = self.domains[next(iter(self.tasks))].mean
        return torch.as_tensor(values).to(like.device, like.dtype)

    def encode(self, fields, task=None):
        """Latents (B, tokens, dim) of fields (B, *grid, channels) in physical units; further axes before the grid's stay, as in (B, time, *grid, channels).
        The last of them is time: where each sample has points of its own, all frames have the order of the first one's, so that frames of one trajectory
        whose points move go in together."""
        task, fields = self.task(task), self.numbers(fields)
        wanted, domain = (*task.grid, len(task.channels)), self.domains[task.name]
        if domain.coordinates is not None and fields.ndim > 2 and 0 < fields.shape[-2] <= task.grid[0]:
            wanted = (fields.shape[-2], wanted[-1])  # of points that are each sample's own there may be fewer
        if fields.ndim <= len(wanted) or tuple(fields.shape[-len(wanted):]) != wanted:
            raise ValueError(f"fields of task '{task.name}' are (B, {', '.join(map(str, wanted))}): samples, grid ({', '.join(task.axes)}) and channels ({', '.join(task.channels)}); these are {tuple(fields.shape)}")
        before = fields.shape[:-len(wanted)]
        first = fields.select(len(before) - 1, 0).reshape(-1, *wanted) if len(before) > 1 else fields
        orders = domain.orders(first)  # of points that move the first frame's
        if orders is not None and len(before) > 1:
            orders = orders.repeat_interleave(before[-1], 0)
        fields = fields.reshape(-1, *wanted)
        latents = self.encoder(task.name, domain, domain.normalise(domain.sorted(fields, orders)))
        if self.bound > 0:
            latents = self.bound * torch.asinh(latents / self.bound)
        return latents.reshape(*before, *latents.shape[1:])

    def decode(self, latents, task=None, coordinates=None):
        """Fields (B, *grid, channels) in physical units of latents (B, tokens, dim); or (B, Q, channels) at coordinates (Q, d) in [0, 1], of which the
        domain's ends along an axis are 0 and 1. Further axes before the tokens stay. Where each sample has points of its own, they come in the order of
        their tree; which point is which its coordinates tell, which are among the channels."""
        return self.decode_to(latents, task, coordinates)

    def decode_to(self, latents, task, coordinates=None, orders=None):
        """`decode`, with the points of each sample put back where they were before `orders`."""
        task = self.task(task)
        latents = self.latents_of(task, latents)
        before, domain = latents.shape[:-2], self.domains[task.name]
        if coordinates is not None:
            if domain.scattered:
                raise ValueError(f"the points of task '{task.name}' lie anywhere, and its fields are known at them alone; leave coordinates out")
            coordinates = torch.as_tensor(coordinates).to(latents.device)
            if coordinates.ndim != 2 or coordinates.shape[1] != len(task.grid):
                raise ValueError(f"coordinates of task '{task.name}' are (Q, {len(task.grid)}), in [0, 1] along {', '.join(task.axes)}; these are {tuple(coordinates.shape)}")
        latents = latents.reshape(-1, *latents.shape[-2:])
        if self.bound > 0:
            latents = self.bound * torch.sinh(latents / self.bound)
        fields = domain.unsorted(domain.physical(self.decoder(task.name, domain, latents, coordinates)), orders)
        return fields.reshape(*before, *fields.shape[1:])

    def advance(self, latents, task=None, parameters=None, dt=None, stride=None):
        """The next frames (B, bundle, tokens, dim) after latents (B, frames, tokens, dim), by one application of the operator.

        It reads the last `history` frames; where there are fewer, the first is repeated. `parameters`: of the PDE, (B, P) in the order of
        Task.parameters, or a dict of numbers or (B,); what is not given is taken for typical. `dt`: the time that a step takes, (B,) or a number, the
        task's own if None; where the data's steps differ in it, it has to be said. `stride`: of an operator that has learnt several, in stored frames of the data.
        """
        task = self.task(task)
        latents = self.latents_of(task, latents)
        if latents.ndim != 4:
            raise ValueError(f"latents of task '{task.name}' are (B, frames, {task.tokens}, {task.dim}); these are {tuple(latents.shape)}")
        stride = self.stride_of(task, stride)
        frames = latents[:, -task.history:]
        if frames.shape[1] < task.history:
            frames = torch.cat([frames[:, :1].expand(-1, task.history - frames.shape[1], -1, -1), frames], 1)
        if dt is None and task.dt is None:
            raise ValueError(f"task '{task.name}': dt is needed, the time that the step takes: the steps that the model was trained on differ in it")
        dt = self.numbers(task.dt * stride / task.stride if dt is None else dt).expand(len(frames))
        return self.operator(task.name, task, self.domains[task.name], frames, dt, self.condition(task, parameters, len(frames)), stride)

    def predict(self, fields, task=None, parameters=None, steps=None, dt=None, stride=None):
        """Rolls out: (B, 1 + steps, *grid, channels) from the first frame (B, *grid, channels), in physical units.

        Frame 0 is the given one as the autoencoder reads it back. Of several given frames, (B, given, *grid, channels) a step apart, all come
        first. `steps`: to be predicted, to the end of a trajectory of the data if None, 1 of a steady task. `dt`: the time that a step takes, a number, (B,),
        (steps,) or (B, steps); the task's own if None: its dt, or its step_times from the first frame on, of which the last goes on behind a trajectory's
        end. It has to be said where both are None. `parameters` and `stride` are those of `advance`.
        """
        known = self.task(task)
        fields = self.numbers(fields)
        if fields.ndim == len(known.grid) + 2:
            fields = fields[:, None]
        latents, orders = self.encode(fields, task), self.domains[known.name].orders(fields[:, 0])
        given, stride = latents.shape[1], self.stride_of(known, stride)
        if steps is None:
            steps = max((known.frames - 1) // stride + 1 - given, 1)
        dt = self.step_times(known, dt, stride, len(latents), given, steps)
        while latents.shape[1] < given + steps:
            now = None if dt is None else dt[:, latents.shape[1] - given]
            latents = torch.cat([latents, self.advance(latents, task, parameters, now, stride)], 1)
        return torch.stack([self.decode_to(latents[:, frame], task, orders=orders) for frame in range(given + steps)], 1)

    def step_times(self, task, dt, stride, batch, given, steps):
        """(B, steps) of what `predict` was told, or of what the model tells where steps differ; None: they are all the task's dt."""
        if dt is None and task.dt is not None:
            return None
        if dt is None and task.times is None:
            raise ValueError(f"task '{task.name}': dt is needed, the time that each step takes: the trajectories that the model was trained on differ in it, so that it knows no length of the steps of others")
        if dt is None:
            of_data = intervals(task.times, stride)
            dt = [[of_data[min(step, len(of_data) - 1)] for step in range(given - 1, given - 1 + steps)]]
        dt = self.numbers(dt)
        if tuple(dt.shape) == (batch,) and batch == steps > 1 and not (dt == dt[0]).all():
            raise ValueError(f"dt has {batch} numbers, which may be of {batch} samples or of {steps} steps; give dt[:, None] or dt[None, :]")
        if tuple(dt.shape) == (batch,) and batch != steps:
            dt = dt[:, None]
        if dt.ndim > 2 or any(have not in (1, want) for have, want in zip(reversed(dt.shape), (steps, batch))):
            raise ValueError(f"dt of task '{task.name}' is a number, ({batch},), ({steps},) or ({batch}, {steps}): samples and steps; this is {tuple(dt.shape)}")
        return dt.expand(batch, steps)

    def forward(self, *arguments, **named):
        """`predict`."""
        return self.predict(*arguments, **named)

    def save(self, path):
        """Writes a file with the metadata that the model was loaded with, in float32. `load` reads it, and so does `ups eval RUN --checkpoint FILE`."""
        write_safetensors(os.fspath(path), dict(sorted(self.state_dict().items())), self.metadata)

    def latents_of(self, task, latents):
        latents = self.numbers(latents)
        if latents.ndim < 3 or tuple(latents.shape[-2:]) != (task.tokens, task.dim):
            raise ValueError(f"latents of task '{task.name}' end in {task.tokens} tokens of {task.dim} numbers; these are {tuple(latents.shape)}")
        return latents

    def stride_of(self, task, stride):
        learnt = task.strides or (task.stride,)
        if stride is not None and stride not in learnt:
            raise ValueError(f"task '{task.name}' has learnt strides of {', '.join(map(str, learnt))}, not of {stride}")
        return task.stride if stride is None else stride

    def condition(self, task, parameters, batch):
        """(B, P of the task that has most): parameters as the operator was trained with them, mean 0 and deviation 1; what is not known is 0."""
        names, like = task.parameters, self.domains[task.name].mean
        if parameters is None or isinstance(parameters, dict):
            given = {name.lower(): value for name, value in (parameters or {}).items()}
            unknown = set(given) - {name.lower() for name in names}
            if unknown:
                raise ValueError(f"task '{task.name}' has no parameter '{unknown.pop()}'; it has {', '.join(names) or 'none'}")
            missing = [name for name in names if name.lower() not in given]
            if missing and self.operator.options["condition"]:
                warnings.warn(f"task '{task.name}': the operator was trained with the parameter '{missing[0]}'; it was not given, and a typical value is used", stacklevel=4)
            columns = [wide(torch.as_tensor(given.get(name.lower(), math.nan), device=like.device)).expand(batch) for name in names]
        else:
            parameters = wide(torch.as_tensor(parameters, device=like.device))
            if tuple(parameters.shape) != (batch, len(names)):
                raise ValueError(f"parameters of task '{task.name}' are ({batch}, {len(names)}): {', '.join(names) or 'none'}; these are {tuple(parameters.shape)}")
            columns = parameters.unbind(1)
        scaled = [((column.log() if kind == "log" else column) - mean) / spread for column, (kind, mean, spread) in zip(columns, self.scales[task.name])]
        scaled = [torch.where(column.isfinite(), column, 0.0).to(like.dtype) for column in scaled]
        return torch.stack(scaled + [like.new_zeros(batch)] * (self.parameter_count - len(scaled)), 1) if self.parameter_count else like.new_zeros(batch, 0)


def token_grids(cells, periodic, options, on_grid, scattered, places=None):
    """A task's tokens, and the coarser grids that a unet merges them to. A fixed number of tokens counts as a line."""
    told, grids = set(mixing_of(options)), []
    how = attending(options, on_grid)
    for level in range(max(levels_of(options)) + 1):
        by_size = "spectral" if on_grid and not scattered and math.prod(cells) > options.get("attended_tokens", 0) else "attention"
        turns = told | {by_size} if "auto" in told else told
        grids.append(TokenGrid(
            cells, periodic, by_size, math.prod(cells) > options.get("merge_above", 0), head_width=options["hidden"] // options["heads"] if how.rotary and "attention" in turns else 0,
            modes=modes_at(by_axes(options["modes"], len(cells)), level) if "spectral" in turns else 0,
            window=by_axes(options["window"], len(cells)) if how.windows and "attention" in turns else 0, places=places))
        if places is not None:
            places = grids[-1].coarsen(places[None])[0]
        cells = grids[-1].coarser()
    return grids


KNOWN = {  # keys of the section `model` of a configuration and of its sections; where a value is one of a few, which
    "": {"tokens": (), "dim": (), "bound": (), "encoder": (), "decoder": (), "operator": ()},
    "encoder": {"width": (), "depth": (), "heads": (), "mlp_ratio": (), "pooling": ("average", "queries"), "frequencies": ()},
    "decoder": {"hidden": (), "depth": (), "heads": (), "mlp_ratio": (), "frequencies": (), "qk_norm": (), "position": (), "between": ()},
    "operator": {
        "core": ("stack", "spectral", "unet"), "hidden": (), "depth": (), "depths": (), "heads": (), "mlp_ratio": (), "drop_path": (), "qk_norm": (), "mixing": ("attention", "spectral", "auto"), "attended_tokens": (), "merge_above": (), "task_specific": ("mixing", "mlp"),
        "attention": ("standard", "channel_separated", "window"), "window": (), "positions": ("borders", "none", "learned", "rotary"), "convolution": (), "modes": (), "factorized": (), "condition": (), "boundary": (),
        "conserve": (), "linear": ("token", "neighbors"), "update_norm": ("layer_norm", "none"), "residual": ("float32", "half"), "history": (), "bundle": ()},
}


def refuse_unknown(path, model):
    """What a later version may have added; a key that says nothing changes nothing."""
    for section, known in KNOWN.items():
        for key, value in (model[section] if section else model).items():
            values = value if isinstance(value, list) else [value]
            if (key not in known and value and value != "none") or (known.get(key) and not set(values) <= set(known[key])):
                name = ".".join(filter(None, ("model", section, key)))
                raise ModelError(f"{path}: the model was trained with {name}: {json.dumps(value)}, which is not known here; use the pytorch.py of the UPS that wrote the file")


def told_of(path, metadata, key):
    """An entry of a file's metadata."""
    if key not in metadata:
        raise ModelError(f"{path}: its metadata lack '{key}': it is no model of UPS, or one of an older version; `ups export RUN -o FILE` writes one that has it")
    try:
        return json.loads(metadata[key])
    except ValueError as mistake:
        raise ModelError(f"{path}: '{key}' of its metadata is not JSON ({mistake}); {AGAIN}") from None
