"""The operator's losses on decoded fields, noise and shifts: each loss's value against NumPy in float64, from the
exported models and latents alone; runs in which a loss lowers what it is for; exact resume; what is refused."""

import json
import signal
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import one_sentence, program
from tiny_run import metrics

CONFIG = """\
output: {output}
seed: 3
precision: f32
device: {{threads: 1}}
data:
  root: {data}
  split: {{train: 0.34, validation: 0.33, test: 0.33}}
tasks:
  - {{name: {task}, files: [{task}.h5], patch: [{patch}]}}
model:
  tokens: grid
  dim: auto
  operator: {{core: spectral, hidden: 16, depth: 2, mlp_ratio: 2, drop_path: 0, modes: [8, 4]}}
autoencoder: {{steps: 0, target: 0.01, gate: 0}}
operator:
  steps: {steps}
  batch_size: 4
  log_every: {log_every}
  validation_batches: 1
  checkpoint_every: 10
  rollout_steps: {rollout_steps}
  optimizer: {{learning_rate: 0.003, warmup_steps: 4}}
  losses:
    one_step: {{weight: 0}}
    relative: {{weight: 1}}
{losses}
"""
FRAMES = 5
TASKS = {  # patch, whether the domain is periodic; a patch of 5 reaches beyond the grid of 16
    "line": ("advection1d", 4, True, ["-r", "32"]),
    "diffreact": ("diffreact2d", 5, False, ["-r", "16"]),
    "flow": ("cfd2d_rand", 4, True, ["-r", "16"]),
}
FIELDS = {"line": ["u"], "diffreact": ["activator", "inhibitor"], "flow": ["density", "pressure", "Vx", "Vy"]}
LOSSES = """\
    decoded: {weight: 0.5}
    rollout_decoded: {weight: 0.25}
    spectral: {weight: 0.1}
    conservation: {weight: 2}
    positivity: {weight: 3, fields: [%s]}
"""


@pytest.fixture(scope="module", autouse=True)
def data(runs):
    for task, (solver, _, _, options) in TASKS.items():
        runs.generate(solver, task + ".h5", 3, "--steps", str(FRAMES), *options)


def config(runs, name, task, losses, steps=1, log_every=1, rollout_steps=FRAMES - 1, patch=None):
    return runs.config(name, CONFIG, task=task, patch=patch or TASKS[task][1], losses=losses.rstrip(), steps=steps,
                       log_every=log_every, rollout_steps=rollout_steps)


def lines_of(runs, name):
    return [line for line in metrics(runs.path(name)) if line["stage"] == "operator" and "losses" in line]


class Trajectory:
    """The training trajectory of a run: normalised fields that its latents decode to, (frames, grid…, channels)."""

    def __init__(self, runs, name, task):
        dump = runs.path(name + ".npy")
        runs.must("cache", "export", runs.path(name, "cache", task, "train"), "-o", dump)
        latents = np.load(dump)[0].astype(float)
        decode = load_file(runs.path(name, "autoencoder.safetensors"))[f"decoder.{task}.patch.weight"].astype(float)
        self.statistics = np.array(json.loads(Path(runs.path(name, "normalisation.json")).read_text())[task]["statistics"]).reshape(-1, 2)
        _, patch, self.periodic, _ = TASKS[task]
        channels = len(FIELDS[task])
        dims, n = (1, 32) if task == "line" else (2, 16)
        cells = -(-n // patch)
        patches = latents @ decode.T
        frames = len(patches)
        if dims == 1:
            self.fields = patches.reshape(frames, cells * patch, channels)[:, :n]
        else:
            whole = patches.reshape(frames, cells, cells, patch, patch, channels).transpose(0, 1, 3, 2, 4, 5)
            self.fields = whole.reshape(frames, cells * patch, cells * patch, channels)[:, :n, :n]
        self.dims, self.n = dims, n

    def modes(self, field):
        """Orthonormal modes of (grid…, channels), and each one's wavenumber."""
        n = self.n
        k = np.abs(np.fft.fftfreq(n, 1 / n)) if self.periodic else np.arange(n) / 2
        for axis in range(self.dims):
            if self.periodic:
                field = np.fft.fft(field, axis=axis, norm="ortho")
            else:
                r, i = np.arange(n)[:, None], np.arange(n)[None]
                cosine = np.sqrt(np.where(r == 0, 1, 2) / n) * np.cos(np.pi * r * (2 * i + 1) / (2 * n))
                field = np.moveaxis(np.tensordot(cosine, field, (1, axis)), 0, axis)
        return field, np.sqrt(k**2 if self.dims == 1 else k[:, None] ** 2 + k[None] ** 2)


def decoded(t, p, truth):
    offset = t.statistics[:, 0] * t.statistics[:, 1]
    axes = tuple(range(t.dims))
    return np.mean(np.sqrt(((p - truth) ** 2).sum(axes) / ((truth + offset) ** 2).sum(axes)))


def spectral(t, p, truth):
    error, k = t.modes(p - truth)
    whole, _ = t.modes(truth)
    octave = np.where(k < 1, 0, 1 + np.floor(np.log2(np.maximum(k, 1)) + 1e-9)).astype(int)
    least = 1e-2 * np.sqrt(t.n**t.dims)
    ratios = [np.sqrt((np.abs(error[octave == o]) ** 2).sum(0)) / np.maximum(np.sqrt((np.abs(whole[octave == o]) ** 2).sum(0)), least)
              for o in np.unique(octave)]
    return np.mean(ratios)


def conservation(t, p, truth):
    axes = tuple(range(t.dims))
    return np.mean((p.mean(axes) - truth.mean(axes)) ** 2)


def positivity(t, p, truth, channel):
    offset = t.statistics[channel, 0] * t.statistics[channel, 1]
    return np.mean(np.minimum(p[..., channel] + offset, 0) ** 2)


def divergence(t, p, truth, channels, spacing):
    deviation = 1 / t.statistics[:, 1]
    scale = np.sqrt(np.mean([deviation[c] ** 2 for c in channels]))

    def of(field):
        slopes = [(np.roll(field[..., c], -1, a) - np.roll(field[..., c], 1, a)) * deviation[c] / (2 * spacing[a]) for a, c in enumerate(channels)]
        return sum(slopes) * min(spacing) / scale
    return np.mean((of(p) - of(truth)) ** 2)


def boundary(t, p, truth):
    outside = np.ones((t.n,) * t.dims, bool)
    outside[(slice(1, -1),) * t.dims] = False
    return np.mean((p - truth)[outside] ** 2)


@pytest.mark.parametrize("task", list(TASKS))
def test_every_loss_has_the_value_that_numpy_finds(runs, task):
    """At step 0 the operator is persistence, whatever its weights: predictions are the window's first frame."""
    losses = LOSSES % FIELDS[task][0]
    if task == "flow":
        losses += "    divergence: {weight: 0.3, fields: [Vx, Vy]}\n"
    if task == "diffreact":
        losses += "    boundary: {weight: 0.7}\n"
    runs.must("train", config(runs, task, task, losses))
    found = lines_of(runs, task)[0]["losses"]
    t = Trajectory(runs, task, task)
    p, truths = t.fields[0], t.fields[1:]
    expected = {
        "decoded": decoded(t, p, truths[0]),
        "rollout_decoded": np.mean([decoded(t, p, truth) for truth in truths[1:]]),
        "spectral": np.mean([spectral(t, p, truth) for truth in truths]),
        "conservation": np.mean([conservation(t, p, truth) for truth in truths]),
        "positivity": positivity(t, p, None, 0),
    }
    if task == "flow":
        expected["divergence"] = np.mean([divergence(t, p, truth, [2, 3], [1, 1]) for truth in truths])
    if task == "diffreact":
        expected["boundary"] = np.mean([boundary(t, p, truth) for truth in truths])
    assert set(found) == set(expected) | {"relative"}
    for loss, value in expected.items():
        assert found[loss] == pytest.approx(value, rel=2e-5, abs=1e-9), loss


def test_a_shift_by_whole_tokens_is_a_shift_of_the_field_by_whole_patches(runs):
    """The encoder looks at each patch alone: latents of a field that was moved are the moved latents, bit for bit."""
    _, patch, _, _ = TASKS["line"]
    with h5py.File(runs.path("data", "line.h5")) as file, h5py.File(runs.path("data", "moved.h5"), "w") as moved:
        for name in file:
            if name != "tensor":
                file.copy(name, moved)
        moved.attrs.update(file.attrs)
        moved["tensor"] = np.concatenate([np.roll(file["tensor"][:1], s * patch, -1) for s in (0, 3, 7)])
    text = CONFIG.replace("train: 0.34, validation: 0.33, test: 0.33", "train: 1, validation: 0, test: 0")
    runs.must("train", runs.config("moved", text, task="moved", patch=patch, losses="", steps=1, log_every=1, rollout_steps=2), "--set", "operator.augment=shift")
    dump = runs.path("moved.npy")
    runs.must("cache", "export", runs.path("moved", "cache", "moved", "train"), "-o", dump)
    first, third, seventh = np.load(dump)
    assert np.array_equal(np.roll(first, 3, 1), third) and np.array_equal(np.roll(first, 7, 1), seventh)


def test_what_a_loss_weighs_nothing_costs_nothing(runs):
    """Not in the plan, not in the graph: the same memory, and the same model to the byte."""
    zero = "    decoded: {weight: 0}\n    spectral: {weight: 0, every: 7, from: 3}\n    divergence: {weight: 0, fields: [nothing]}\n"
    plans, models = [], []
    for name, losses in (("plain", ""), ("nothing", zero), ("decoded", "    decoded: {weight: 1}\n")):
        path = config(runs, name, "line", losses, steps=20)
        runs.must("train", path)
        plans.append(json.loads(runs.must("train", path, "--plan", "--json", "--stage", "operator").stdout))
        models.append(Path(runs.path(name, "operator.safetensors")).read_bytes())
    assert models[0] == models[1] != models[2]
    assert plans[0] == plans[1] != plans[2]
