#!/usr/bin/env python3
"""Baselines on points that lie anywhere: what people use today on meshes, in plain PyTorch, trained for a given time and scored on whole rollouts.

  mesh_peers.py --model NAME --train FILE (--test FILE | --last N) --seconds S [--clock wall|cpu] [--threads 1] [--seed 0] [--width W] [--depth D] [--batch B]
                [--rate R] [--noise S] [--unroll U] [--start-every E]

FILE is HDF5 as `ups datagen transport_mesh2d` writes it: `points` (point, 2) with `cells` (cell, 3), or `points` (sample, point, 2) of every sample by itself; `u`
(sample, time, point), `vx` and `vy` (sample, point), perhaps `parameters/nu` (sample). --last N holds out the last N samples of --train as the test set.

  meshgraphnet  MeshGraphNets (Pfaff et al., arXiv 2010.03409): edges of the mesh both ways, or to the 8 nearest points where no cells are given; relative positions
                on edges, messages between neighbours, LayerNorm, residuals, noise in training. The first layer of an edge's network is applied to points before their
                values are copied to edges, and sums over edges are products with sparse matrices: the same numbers, in a fraction of the time.
  transolver    Transolver (Wu et al., arXiv 2402.02366): every head softly gathers the points into slices and attends between those. Positions as its authors' code
                gives them with `unified_pos`: distances to the points of an 8 x 8 grid, beside x and y.
  gino          as the geometry-informed neural operator (Li et al., arXiv 2309.00583): from points to a regular grid, here by linear interpolation, a Fourier neural
                operator there (Li et al., arXiv 2010.08895), back by bilinear interpolation of its channels, and a small network at each point.
  fno           the same, but what comes back is the change alone: `griddata`, a Fourier neural operator, and back.

All see u, vx, vy, x, y and nu, normalised, and predict the normalised change of u in a step. The loss is the metric: the relative L2 norm of a frame's error. AdamW,
gradients clipped to norm 1, rate warmed up over 3 % of the time and lowered to zero along a cosine. Only training counts as time; reading files, laying out meshes and
scoring do not. Sizes, rate, noise and unrolled steps are the best of those that were tried at 60 to 300 s on one thread.

Prints one JSON line: nRMSE, sqrt(mean((p - t)^2)) / sqrt(mean(t^2)) over points, averaged over test trajectories, `one` of the frame after one step and `ten` after ten
from starts every E frames (1: from all, as `evaluation.start_every`), `rollout` of all frames predicted from the first one; steps taken, seconds, parameters.
"""
import argparse
import json
import math
import time
import warnings
from dataclasses import dataclass

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

NEIGHBOURS = 8     # of a point, where no cells are given
REFERENCE = 8      # transolver: points of the reference grid along an axis
WARM_UP = 0.03     # share of the time
UNROLLED = 0.3     # last share of the time, in which --unroll steps are predicted in a row
EVALUATED = 50     # windows at once


@dataclass
class Fields:
    u: torch.Tensor       # (sample, time, point)
    nodes: torch.Tensor   # (sample, point, channel): vx, vy, x, y and nu, as far as known
    points: torch.Tensor  # (mesh, point, 2): one mesh, or one a sample
    cells: torch.Tensor   # (cell, 3), or None

    def take(self, samples):
        return Fields(self.u[samples], self.nodes[samples], self.points if len(self.points) == 1 < len(self.u) else self.points[samples], self.cells)


def read(path):
    with h5py.File(path) as file:
        get = lambda name: torch.as_tensor(np.asarray(file[name], np.float32))
        u, points = get("u"), get("points")
        shared = points.ndim == 2
        points = points[None] if shared else points
        parts = [get(name)[..., None] for name in ("vx", "vy") if name in file] + [points.expand(len(u), -1, -1)]
        if "parameters/nu" in file:
            parts.append(get("parameters/nu").reshape(-1, 1, 1).expand(-1, u.shape[2], 1))
        cells = torch.as_tensor(np.asarray(file["cells"], np.int64)) if shared and "cells" in file else None
        return Fields(u, torch.cat(parts, 2), points, cells)


def nearest(places, points, count):
    """Distances to and numbers of the `count` points nearest to each place: (place, count) both."""
    return (torch.cat(parts) for parts in zip(*(torch.cdist(some, points).topk(count, largest=False) for some in places.split(1024))))


class Copy(torch.autograd.Function):
    """Rows of x (point, channel) to the edges that begin or end there. `ends` is (edge), `total` the sparse (point, edge) matrix that sums over the same edges."""
    @staticmethod
    def forward(context, x, ends, total):
        context.total = total
        return x.index_select(0, ends)

    @staticmethod
    def backward(context, gradient):
        return context.total @ gradient, None, None


class Total(torch.autograd.Function):
    """The transpose: what stands on edges (edge, channel), summed at points."""
    @staticmethod
    def forward(context, e, ends, total):
        context.ends = ends
        return total @ e

    @staticmethod
    def backward(context, gradient):
        return gradient.index_select(0, context.ends), None, None


def perceptron(inputs, width, outputs, norm=True):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs), nn.LayerNorm(outputs) if norm else nn.Identity())


class Message(nn.Module):
    """One step of message passing, both networks with one hidden layer."""
    def __init__(self, width):
        super().__init__()
        self.edge, self.sender, self.receiver = nn.Linear(width, width), nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.edge_out = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width))
        self.node = perceptron(2 * width, width, width)

    def forward(self, x, e, senders, receivers):
        message = self.edge_out(self.edge(e) + Copy.apply(self.sender(x), *senders) + Copy.apply(self.receiver(x), *receivers))
        return x + self.node(torch.cat((x, Total.apply(message, *receivers)), 1)), e + message


class MeshGraphNet(nn.Module):
    defaults = dict(width=32, depth=4, batch=1, rate=4e-3, noise=0.01, unroll=1)

    def __init__(self, channels, width, depth):
        super().__init__()
        self.nodes, self.edges = perceptron(channels, width, width), perceptron(3, width, width)
        self.messages = nn.ModuleList(Message(width) for _ in range(depth))
        self.out = perceptron(width, width, 1, norm=False)

    @staticmethod
    def lay_out(points, cells):
        """(2, edge): from, to; sorted by to."""
        if cells is None:
            _, near = nearest(points, points, NEIGHBOURS + 1)
            pairs = torch.stack((near[:, 1:].flatten(), torch.arange(len(points)).repeat_interleave(NEIGHBOURS)))
        else:
            pairs = torch.cat([cells[:, [i, j]] for i, j in ((0, 1), (1, 2), (2, 0))]).T
        pairs = torch.cat((pairs, pairs.flip(0)), 1)
        code = (pairs[1] * len(points) + pairs[0]).unique()
        ends = torch.stack((code % len(points), code // len(points)))
        offset = points[ends[0]] - points[ends[1]]
        length = offset.norm(dim=1, keepdim=True)
        return ends, torch.cat((offset, length), 1) / length.mean()

    @staticmethod
    def collate(meshes, points):
        """A batch is one graph of its samples' graphs side by side."""
        ends = torch.cat([ends + i * points for i, (ends, _) in enumerate(meshes)], 1)
        sums = []
        for side in ends:
            order = side.argsort(stable=True)
            rows = torch.cat((torch.zeros(1, dtype=torch.int64), side.bincount(minlength=points * len(meshes)).cumsum(0)))
            sums.append((side, torch.sparse_csr_tensor(rows, order, torch.ones(len(order)), (points * len(meshes), len(order)))))
        return *sums, torch.cat([features for _, features in meshes])

    def forward(self, nodes, mesh):
        senders, receivers, features = mesh
        x, e = self.nodes(nodes.flatten(0, 1)), self.edges(features)
        for message in self.messages:
            x, e = message(x, e, senders, receivers)
        return self.out(x).view(nodes.shape[:2])


class Slices(nn.Module):
    """Physics attention: points (batch, point, width) to slices, attention between slices, and back by the same weights."""
    def __init__(self, width, heads, slices):
        super().__init__()
        self.heads, size = heads, width // heads
        self.weighed, self.values, self.out = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.slice, self.temperature = nn.Linear(size, slices), nn.Parameter(torch.full((heads, 1, 1), 0.5))
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        nn.init.orthogonal_(self.slice.weight)

    def forward(self, x):
        split = lambda y: y.unflatten(2, (self.heads, -1)).transpose(1, 2)  # (batch, head, point, size)
        weight = self.slice(split(self.weighed(x)) / self.temperature.clamp(0.1, 5)).softmax(-1)
        tokens = weight.transpose(2, 3) @ split(self.values(x)) / (weight.sum(2)[..., None] + 1e-5)
        tokens = F.scaled_dot_product_attention(*self.qkv(tokens).chunk(3, -1))
        return self.out((weight @ tokens).transpose(1, 2).flatten(2))


class Transolver(nn.Module):
    defaults = dict(width=64, depth=4, batch=4, rate=1e-3, noise=0.0, unroll=1)

    def __init__(self, channels, width, depth, heads=4, slices=32, ratio=2):
        super().__init__()
        self.into = nn.Sequential(nn.Linear(channels + REFERENCE**2, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.mixers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), Slices(width, heads, slices)) for _ in range(depth))
        self.mlps = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, ratio * width), nn.GELU(), nn.Linear(ratio * width, width)) for _ in range(depth))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    @staticmethod
    def lay_out(points, cells):
        axes = [torch.linspace(low, high, REFERENCE) for low, high in zip(points.amin(0), points.amax(0))]
        return torch.cdist(points, torch.cartesian_prod(*axes))

    @staticmethod
    def collate(meshes, points):
        return torch.stack(meshes)

    def forward(self, nodes, distances):
        x = self.into(torch.cat((nodes, distances.expand(len(nodes), -1, -1)), 2))
        for mixer, mlp in zip(self.mixers, self.mlps):
            x = x + mixer(x)
            x = x + mlp(x)
        return self.out(x).squeeze(2)


class Spectral(nn.Module):
    """(y, x, batch, channel): the lowest modes of both axes, each multiplied by a complex matrix. Where few modes are kept, products with the matrices of the discrete
    transform are faster than FFTs on the CPU."""
    def __init__(self, width, modes, size):
        super().__init__()
        self.modes, self.width, self.size = modes, width, size
        self.weight = nn.Parameter(torch.randn(2, 2 * modes * modes, width, width) / width / math.sqrt(2))
        wave = lambda kept: torch.outer(kept, torch.arange(size)) * (2 * math.pi / size)
        y, x = wave(torch.cat((torch.arange(modes), torch.arange(-modes, 0)))), wave(torch.arange(modes))
        twice = torch.full((modes, 1), 2.0)
        twice[0] = 1  # of real fields, half of the modes in x are kept; those left out are their mirror images
        complex_ = lambda real, imaginary: torch.stack((torch.stack((real, -imaginary), 1), torch.stack((imaginary, real), 1)), 1)  # (mode, out, in, place)
        into, back = complex_(x.cos(), -x.sin()) / size, complex_(twice * x.cos(), twice * x.sin()) / size
        self.register_buffer("into_y", torch.stack((y.cos(), -y.sin()), 1).flatten(0, 1))                     # (mode and part, y)
        self.register_buffer("into_x", into.flatten(0, 1).flatten(1, 2))                                      # (mode and part, part and x)
        self.register_buffer("back_x", back.permute(1, 3, 0, 2).flatten(0, 1).flatten(1, 2))                  # (part and x, mode and part)
        self.register_buffer("back_y", self.into_y.T.contiguous())                                            # (y, mode and part)

    def forward(self, x):
        rows, batch = 2 * self.modes, x.shape[2]
        low = self.into_x.expand(rows, -1, -1) @ (self.into_y @ x.reshape(self.size, -1)).view(rows, 2 * self.size, -1)
        low = low.view(rows * self.modes, 2, batch, self.width).transpose(1, 2).flatten(2)
        real, imaginary = self.weight
        mixed = (low @ torch.cat((torch.cat((real, imaginary), 2), torch.cat((-imaginary, real), 2)), 1)).unflatten(2, (2, -1)).transpose(1, 2).reshape(rows, rows, -1)
        return (self.back_y @ (self.back_x.expand(rows, -1, -1) @ mixed).view(2 * rows, -1)).view(x.shape)


class Gino(nn.Module):
    defaults = dict(width=32, depth=4, batch=8, rate=4e-3, noise=0.0, unroll=3)
    at_points, grid, border, modes = True, 32, 8, 12  # border: zeros beside the grid, since nothing is periodic

    def __init__(self, channels, width, depth):
        super().__init__()
        pair = lambda inputs, inner: nn.Sequential(nn.Linear(inputs, inner), nn.GELU(), nn.Linear(inner, width))
        self.into = pair(channels + 1, 2 * width)
        self.spectral = nn.ModuleList(Spectral(width, self.modes, self.grid + self.border) for _ in range(depth))
        self.local = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.mlp = nn.ModuleList(pair(width, width) for _ in range(depth))
        self.out = perceptron(width + (channels if self.at_points else 0), 2 * width, 1, norm=False)

    @classmethod
    def lay_out(cls, points, cells):
        """Three points around each of the grid's, their weights, whether it is in the mesh; and where the points are in the grid, from -1 to 1."""
        low, high = points.amin(0), points.amax(0)
        x, y = (torch.linspace(low[i], high[i], cls.grid) for i in (0, 1))
        places = torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1], 2).flatten(0, 1)
        distance, corners = nearest(places, points, 3)
        weights = 1 / distance.square().clamp_min(1e-12)
        inside = torch.ones(len(places), 1)
        if cells is not None:
            a, b, c = points[cells].unbind(1)
            ab, ac, ap = b - a, c - a, places[:, None] - a
            cross = lambda p, q: p[..., 0] * q[..., 1] - p[..., 1] * q[..., 0]
            second, third = cross(ap, ac) / cross(ab, ac), cross(ab, ap) / cross(ab, ac)
            shares = torch.stack((1 - second - third, second, third), 2)
            least, cell = shares.amin(2).max(1)
            inside = (least > -1e-4).float()[:, None]
            corners, weights = torch.where(inside > 0, cells[cell], corners), torch.where(inside > 0, shares[torch.arange(len(places)), cell], weights)
        return corners, weights / weights.sum(1, keepdim=True), inside, 2 * (points - low) / (high - low) - 1

    @staticmethod
    def collate(meshes, points):
        return tuple(torch.stack(parts) for parts in zip(*meshes))

    def forward(self, nodes, mesh):
        corners, weights, inside, where = (part.expand(len(nodes), *part.shape[1:]) for part in mesh)
        around = nodes.gather(1, corners.flatten(1)[..., None].expand(-1, -1, nodes.shape[2])).unflatten(1, (-1, 3))  # (batch, place, corner, channel)
        x = torch.cat(((around * weights[..., None]).sum(2), inside), 2).transpose(0, 1).unflatten(0, (self.grid, self.grid))
        x = F.pad(self.into(x), (0, 0, 0, 0, 0, self.border, 0, self.border))
        for spectral, local, mlp in zip(self.spectral, self.local, self.mlp):
            x = x + mlp(F.gelu(spectral(x) + local(x)))
        x = x[:self.grid, :self.grid]
        x = (x if self.at_points else self.out(x)).permute(2, 3, 0, 1)
        x = F.grid_sample(x, where[:, None], align_corners=True)[:, :, 0].transpose(1, 2)
        return self.out(torch.cat((x, nodes), 2)).squeeze(2) if self.at_points else x.squeeze(2)


MODELS = {"meshgraphnet": MeshGraphNet, "transolver": Transolver, "gino": Gino, "fno": type("Fno", (Gino,), {"at_points": False})}


def nrmse(u, target, floor=0.0):
    """(window)"""
    return (u - target).square().mean(1).sqrt() / (target.square().mean(1).sqrt() + floor)


class Surrogate:
    """A network with the scales of its data."""
    def __init__(self, network, data):
        self.network = network
        self.mean, self.spread = data.u.mean(), data.u.std()
        self.node_mean, self.node_spread = data.nodes.mean((0, 1)), data.nodes.std((0, 1))
        self.node_spread[self.node_spread < 1e-6] = 1  # the same everywhere
        self.change = data.u.diff(dim=1).std()

    def lay_out(self, data):
        """Of these samples: normalised nodes, and a function from their numbers to the meshes of a batch."""
        meshes = [self.network.lay_out(points, data.cells) for points in data.points]
        shared, kept, points = len(meshes) == 1, {}, data.points.shape[1]

        def batch(samples):
            if not shared:
                return self.network.collate([meshes[i] for i in samples], points)
            if len(samples) not in kept:
                kept[len(samples)] = self.network.collate(meshes * len(samples), points)
            return kept[len(samples)]
        return (data.nodes - self.node_mean) / self.node_spread, batch

    def step(self, u, nodes, mesh):
        return u + self.change * self.network(torch.cat(((u[..., None] - self.mean) / self.spread, nodes), 2), mesh)


def train(surrogate, data, arguments):
    """Rate and unrolled steps follow the share of the time that is spent. Returns figures: steps, seconds, mean loss of the last 200 steps."""
    network, (nodes, meshes) = surrogate.network, surrogate.lay_out(data)
    optimizer = torch.optim.AdamW(network.parameters(), arguments.rate, weight_decay=1e-4)
    clock = time.perf_counter if arguments.clock == "wall" else lambda: time.process_time() / arguments.threads
    spent, last, losses, started = 0.0, 0.0, [], time.perf_counter()
    while spent + last / 2 < arguments.seconds:
        began, share = clock(), spent / arguments.seconds
        ahead = arguments.unroll if share > 1 - UNROLLED else 1
        optimizer.param_groups[0]["lr"] = arguments.rate * min(1, (share + 1e-3) / WARM_UP) * (1 + math.cos(math.pi * share)) / 2
        samples = torch.randint(len(data.u), (max(1, arguments.batch // ahead),))
        starts = torch.randint(data.u.shape[1] - ahead, (len(samples),))
        u, loss, mesh = data.u[samples, starts], 0, meshes(samples)
        u = u + arguments.noise * surrogate.change * torch.randn_like(u)
        for i in range(1, ahead + 1):
            u, target = surrogate.step(u, nodes[samples], mesh), data.u[samples, starts + i]
            loss = loss + nrmse(u, target, 1e-2 * surrogate.spread).mean() / ahead  # frames of almost nothing must not rule
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        spent, last = spent + clock() - began, clock() - began
    return dict(steps=len(losses), seconds=time.perf_counter() - started, counted=spent, loss=float(np.mean(losses[-200:])))


@torch.no_grad()
def score(surrogate, data, every):
    (nodes, meshes), frames = surrogate.lay_out(data), data.u.shape[1]

    def errors(start, ahead):
        """(sample, frame): of `ahead` frames from `start` on."""
        found = []
        for samples in torch.arange(len(data.u)).split(EVALUATED):
            u, mesh, row = data.u[samples, start], meshes(samples), []
            for i in range(start + 1, start + ahead + 1):
                u, target = surrogate.step(u, nodes[samples], mesh), data.u[samples, i]
                row.append(nrmse(u, target))
            found.append(torch.stack(row, 1))
        return torch.cat(found)

    starts = range(0, frames - 1, every)
    windows = {s: errors(s, frames - 1 if s == 0 else 10 if s + 10 < frames else 1) for s in starts}
    mean = lambda parts: float(torch.cat(parts).double().mean()) if parts else None
    return dict(one=mean([w[:, 0] for w in windows.values()]), ten=mean([w[:, 9] for s, w in windows.items() if s + 10 < frames]), rollout=mean([windows[0]]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, choices=list(MODELS))
    parser.add_argument("--train", required=True, metavar="FILE")
    parser.add_argument("--test", metavar="FILE", help="scored; or --last of --train")
    parser.add_argument("--last", type=int, default=0, metavar="N", help="without --test: hold out the last N samples of --train")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="what --seconds counts; cpu, where other work runs: seconds of the processor, by threads")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start-every", type=int, default=1, metavar="E")
    for name, kind, text in (("width", int, "channels"), ("depth", int, "blocks, or steps of message passing"), ("batch", int, "windows a step"), ("rate", float, "of learning"),
                             ("noise", float, "on given frames, in spreads of the change"), ("unroll", int, f"steps in a row, in the last {UNROLLED:.0%} of the time")):
        parser.add_argument(f"--{name}", type=kind, help=f"{text}, instead of the model's")
    arguments = parser.parse_args()
    network = MODELS[arguments.model]
    parser.set_defaults(**network.defaults)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.sparse.check_sparse_tensor_invariants.disable()
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
    torch.manual_seed(arguments.seed)
    data = read(arguments.train)
    if not arguments.test and not 0 < arguments.last < len(data.u):
        parser.error(f"--train has {len(data.u)} samples; give --test FILE, or --last N with fewer")
    data, test = (data, read(arguments.test)) if arguments.test else (data.take(slice(0, -arguments.last)), data.take(slice(-arguments.last, None)))
    surrogate = Surrogate(network(data.nodes.shape[2] + 1, arguments.width, arguments.depth), data)
    told = train(surrogate, data, arguments) | score(surrogate, test, arguments.start_every)
    told["parameters"] = sum(p.numel() for p in surrogate.network.parameters())
    print(json.dumps({"model": arguments.model, **{k: round(v, 6) if isinstance(v, float) else v for k, v in told.items()}, "train_samples": len(data.u), "test_samples": len(test.u),
                      **{name: getattr(arguments, name) for name in ("threads", "seed", *network.defaults)}, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
