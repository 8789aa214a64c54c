"""Encoder and any-point decoder of a fixed number of tokens, and their losses: values and gradients of training steps of `ups train` against
PyTorch in float64, as in test_loss_gradients.py. A batch has all frames that there are, and query points are all of the grid."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from reference import along, tensor, torch, value_and_gradients
from test_loss_gradients import BETA, STEPS, metrics
from test_operator import bordered, functional, linear, norm, part, rms_norm

FREQUENCIES = (1, 2)
CONFIG = """\
output: {output}
seed: 3
precision: f32
device: {{threads: 1}}
stages: [autoencoder]
data:
  root: {data}
  split: {{train: 1, validation: 0, test: 0}}
tasks:
  - {{name: {task}, files: [{task}.h5], patch: [4]}}
model:
  tokens: 6
  dim: 8
  encoder: {{width: 16, frequencies: [1, 2]{encoder}}}
  decoder: {{hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, frequencies: [1, 2]}}
checkpoint: {{keep: 2}}
autoencoder:
  gate: 0
  steps: 6
  batch_size: 3
  queries: 100000
  log_every: 1
  checkpoint_every: 1
  optimizer: {{kind: adamw, clip: 0, ema_decay: 0, learning_rate: 0.003, warmup_steps: 1}}
  losses:
{losses}
"""
TASKS = {"line": ("advection1d", True, (32,)), "pattern": ("diffreact2d", False, (14, 14))}  # patches of 4 reach beyond 14


@pytest.fixture(scope="module", autouse=True)
def data(runs):
    make_frames(runs, TASKS)


def make_frames(runs, tasks):
    """Files of three trajectories, in each of which any frame is the same."""
    for task, (solver, _, grid, *_) in tasks.items():
        with h5py.File(runs.generate(solver, task + ".h5", 3, "-r", str(grid[0]), "--steps", "2"), "a") as file:
            for trajectory in trajectories(file):
                trajectory[1] = trajectory[0]
            if "tensor" in file:
                file["tensor"][:, 1] = file["tensor"][:, 0]


def trajectories(file):
    return [file[name]["data"] for name in sorted(file) if name.isdigit()]


def fields_of(runs, name, task):
    """(B, grid…, channels), normalised."""
    statistics = np.array(json.loads(Path(runs.path(name, "normalisation.json")).read_text())[task]["statistics"]).reshape(-1, 2)
    with h5py.File(runs.path("data", task + ".h5")) as file:
        fields = file["tensor"][:, 0][..., None] if task == "line" else np.stack([trajectory[0] for trajectory in trajectories(file)])
    fields = fields.astype(float)
    assert fields.mean(tuple(range(fields.ndim - 1))) == pytest.approx(statistics[:, 0], abs=1e-5)
    return (fields - statistics[:, 0]) * statistics[:, 1]


def fourier(places):
    places = tensor(places)
    return torch.cat([places] + [wave(2 * np.pi * f * places) for f in FREQUENCIES for wave in (torch.sin, torch.cos)], -1)


def centres(cells):
    return np.stack(np.meshgrid(*((np.arange(n) + 0.5) / n for n in cells), indexing="ij"), -1).reshape(-1, len(cells))


def patch_centres(grid, patch=4):
    """The last patches may reach beyond the grid."""
    cells = np.array([-(-n // patch) for n in grid])
    return centres(cells) * (cells * patch / np.array(grid))


def pooled(x, tokens):
    n, x = x.shape[-2], tensor(x)
    return torch.stack([x[..., t * n // tokens:-(-(t + 1) * n // tokens), :].mean(-2) for t in range(tokens)], -2)


def attend(p, q, context_keys, context_values, heads):
    def split(x):
        return x.reshape(len(x), -1, heads, x.shape[-1] // heads).transpose(1, 2)

    q, k, v = split(q), split(context_keys), split(context_values)
    if "attention.query_norm.weight" in p:
        q, k = rms_norm(q, p["attention.query_norm.weight"]), rms_norm(k, p["attention.key_norm.weight"])
    attended = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v
    return linear(p, "attention.output", attended.transpose(1, 2).reshape(len(q), -1, heads * q.shape[-1]))


def mlp(p, x):
    return linear(p, "mlp.down", functional.gelu(linear(p, "mlp.up", x)))


def cross(p, x, context, heads):
    keys, values = linear(p, "attention.key_value", context).chunk(2, -1)
    x = norm(p, "attention.norm", x + attend(p, linear(p, "attention.query", x), keys, values, heads))
    return norm(p, "mlp.norm", x + mlp(p, x))


def within(p, x, heads):
    q, k, v = linear(p, "attention.qkv", norm(p, "attention.norm", x)).chunk(3, -1)
    x = x + attend(p, q, k, v, heads)
    return x + mlp(p, norm(p, "mlp.norm", x))


def patches_of(fields, grid, patch):
    """(B, cells…, numbers) of (B, grid…, channels). The last patches may reach beyond the grid, where its last points are repeated."""
    cells, dims = [-(-n // patch) for n in grid], len(grid)
    for axis, (n, c) in enumerate(zip(grid, cells), 1):
        fields = along(fields, axis, np.minimum(np.arange(c * patch), n - 1))
    fields = fields.reshape(len(fields), *(n for c in cells for n in (c, patch)), fields.shape[-1])
    axes = range(1, 1 + 2 * dims)
    return fields.permute(0, *axes[::2], *axes[1::2], 1 + 2 * dims).reshape(len(fields), *cells, -1)


def encode(p, task, fields, tokens, heads=2):
    """Latents (B, tokens, dim) of normalised fields (B, grid…, channels)."""
    grid, periodic = TASKS[task][2], TASKS[task][1]
    dims, patches = len(grid), patches_of(fields, grid, 4)
    stem = part(p, f"encoder.{task}.stem.")
    if stem:
        around = bordered(patches, dims, 1, periodic)
        taps = [around[(slice(None), *(slice(i, i + n) for i, n in zip(at, patches.shape[1:])))] for at in np.ndindex(*dims * (3,))]
        patches = patches + linear(stem, "1", functional.gelu(linear(stem, "0", torch.cat(taps, -1))))
    x = linear(p, f"encoder.{task}.embed", patches).reshape(len(fields), -1, p[f"encoder.{task}.embed.weight"].shape[0])
    x = x + linear(p, f"encoder.trunk.position{dims}d", fourier(patch_centres(grid)))
    trunk = part(p, "encoder.trunk.")
    if "pool.queries" in trunk:
        x = cross(part(trunk, "pool."), trunk["pool.queries"].expand(len(x), tokens, -1), x, heads)
    else:
        x = pooled(x, tokens)
    for i in range(sum(name.endswith("attention.qkv.weight") for name in trunk)):
        x = within(part(trunk, f"blocks.{i}."), x, heads)
    return linear(trunk, "output", x)


def decode(p, task, latents, heads=2):
    """Normalised fields at all points of the grid: (B, points, channels)."""
    grid = TASKS[task][2]
    places = f"decoder.token{len(grid)}d"
    if places + ".weight" in p:
        latents = latents + linear(p, places, fourier(pooled(patch_centres(grid), latents.shape[1])))
    x = linear(p, f"decoder.query{len(grid)}d", fourier(centres(grid)))
    x = x.expand(len(latents), *x.shape)
    for i in range(2):
        x = cross(part(p, f"decoder.layers.{i}."), x, latents, heads)
    return linear(p, f"decoder.{task}.head", x)


def per_sample(x):
    return (x**2).flatten(1).sum(1).sqrt()


def covariance(latents):
    rows = latents.reshape(-1, latents.shape[-1])
    rows = rows - rows.mean(0)
    return rows.T @ rows / len(rows)


def losses_of(p, task, fields, tokens):
    points = fields.reshape(len(fields), -1, fields.shape[-1])
    latents = encode(p, task, fields, tokens)
    rounded = latents + (latents.float().half().double() - latents).detach()
    decoded, c = decode(p, task, latents), covariance(latents)
    beside = ~torch.eye(len(c), dtype=bool)
    return {
        "inverse_decoding": ((decoded - points) ** 2).mean(),
        "relative": (per_sample(decoded - points) / per_sample(points)).mean(),
        "rounded": (per_sample(decode(p, task, rounded) - points) / per_sample(points)).mean(),
        "inverse_encoding": ((encode(p, task, decoded.reshape(fields.shape), tokens) - latents) ** 2).mean(),
        "latent_norm": ((c.diag() - 1) ** 2).mean(),
        "latent_diversity": (c[beside] ** 2).mean(),
    }


LOSSES = ["inverse_decoding", "relative", "rounded", "inverse_encoding", "latent_norm", "latent_diversity"]
ENCODERS = {"mean": "", "queries": ", pooling: queries, depth: 1, heads: 2, mlp_ratio: 2"}


def compare_with_pytorch(runs, name, task, weights, losses_of):
    """The last training step of a run: its losses and all gradients; of `losses_of(p, fields)` PyTorch's. Returns what these losses are."""
    first, last = (load_file(runs.path(name, "checkpoints", "autoencoder", f"step-{step:08d}.safetensors")) for step in (STEPS - 1, STEPS))
    key = "adamw.first_moment."
    p = {n: tensor(v) for n, v in first.items() if n.split(".")[0] in ("encoder", "decoder")}
    gradients = {n[len(key):]: (tensor(v) - BETA * tensor(first[n])) / (1 - BETA) for n, v in last.items() if n.startswith(key)}
    told = [line for line in metrics(runs.path(name)) if "losses" in line][-1]["losses"]
    fields = tensor(fields_of(runs, name, task))

    def total(p):
        found = losses_of(p, fields)
        return sum(w * found[n] for n, w in weights.items()), found

    _, found, reference = value_and_gradients(total, p)
    assert set(reference) == set(gradients)
    size = np.sqrt(sum(float((g**2).sum()) for g in reference.values()))
    errors = {n: abs(told[n] - float(found[n])) / float(found[n]) for n, w in weights.items() if w > 0}
    errors |= {n: np.linalg.norm(g - reference[n]) / max(np.linalg.norm(reference[n]), 1e-2 * size) for n, g in gradients.items()}
    assert np.isfinite(list(errors.values())).all() and max(errors.values()) < 1e-5, sorted(errors.items(), key=lambda e: -e[1])[:5]
    return found


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_training_step_of_the_autoencoder_has_the_gradients_of_pytorch(runs, task, loss, encoder):
    weights = {"inverse_decoding": 0.5} | {loss: 1} | ({"relative": 0} if loss != "relative" else {})
    name = runs.fresh()
    text = "\n".join(f"    {n}: {{weight: {w}}}" for n, w in weights.items())
    runs.must("train", runs.config(name, CONFIG, task=task, encoder=ENCODERS[encoder], losses=text))
    compare_with_pytorch(runs, name, task, weights, lambda p, fields: losses_of(p, task, fields, 6))
