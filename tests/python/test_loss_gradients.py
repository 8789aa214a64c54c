"""Gradients of whole training steps against PyTorch in float64: of `ups train` itself, by what AdamW keeps of them in two checkpoints, at the
weights of the first. Trajectories are as long as a window and a batch has all of them, so that the data of a step are known."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from reference import tensor, torch, value_and_gradients
from test_operator import grid_operator
from tiny_run import metrics

BETA, STEPS, FRAMES = 0.9, 6, 4
CONFIG = """\
output: {output}
seed: 3
precision: f32
device: {{threads: 1}}
data:
  root: {data}
  split: {{train: 0.5, validation: 0.25, test: 0.25}}
tasks:
  - {{name: {task}, files: [{task}.h5], patch: [{patch}]{layout}}}
model:
  tokens: grid
  dim: auto
  operator: {{core: spectral, hidden: 8, depth: 1, mlp_ratio: 2, drop_path: 0, modes: [4, 3, 2]}}
autoencoder: {{steps: 0, target: 0.01, gate: 0}}
checkpoint: {{keep: 2}}
operator:
  steps: 6
  batch_size: 2
  log_every: 1
  checkpoint_every: 1
  validation_batches: 1
  rollout_steps: 3
  optimizer: {{kind: adamw, clip: 0, ema_decay: 0, learning_rate: 0.003, warmup_steps: 1}}
  losses:
    relative: {{weight: 1}}
{losses}
"""
LAYOUT = "{fields: {h: /h, u: /u, v: /v}, axes: [sample, time, x, y], time: /t, parameters: {nu: /nu}, coordinates: {x: {from: 0, step: 0.1}, y: {from: 0, step: 0.25}}, periodic: false}"
DEEP = LAYOUT.replace("v: /v}", "v: /v, w: /w}").replace("x, y]", "x, y, z]").replace("step: 0.25}}", "step: 0.25}, z: {from: 0, step: 0.2}}")
# solver or layout, patch, periodic, grid, its spacing; `sea` and `tank` are oblong, with walls
TASKS = {"line": ("advection1d", 4, True, (32,), (1,)), "diffreact": ("diffreact2d", 4, False, (16, 16), (1, 1)), "flow": ("cfd2d_rand", 4, True, (16, 16), (1, 1)),
         "sea": (LAYOUT, 4, False, (16, 12), (0.1, 0.25)), "tank": (DEEP, 2, False, (8, 6, 4), (0.1, 0.25, 0.2))}


class Step:
    """The last step of a run: weights before it, gradients, latents (B, frames, tokens, dim), what the operator was told."""

    def __init__(self, runs, name, task):
        self.task = task
        first, last = (load_file(runs.path(name, "checkpoints", "operator", f"step-{step:08d}.safetensors")) for step in (STEPS - 1, STEPS))
        key = "adamw.first_moment."
        self.weights = {n: tensor(v) for n, v in first.items() if n.startswith("operator.")}
        self.gradients = {n[len(key):]: (tensor(v) - BETA * tensor(first[n])) / (1 - BETA) for n, v in last.items() if n.startswith(key)}
        dump = runs.path(name + ".npy")
        runs.must("cache", "export", runs.path(name, "cache", task, "train"), "-o", dump)
        self.latents = tensor(np.load(dump))
        self.decode = tensor(load_file(runs.path(name, "autoencoder.safetensors"))[f"decoder.{task}.patch.weight"])
        self.losses = [line for line in metrics(runs.path(name)) if line["stage"] == "operator" and "losses" in line][-1]["losses"]
        self.patch, self.periodic, self.n, self.spacing = TASKS[task][1:]
        self.dims, self.cells = len(self.n), tuple(n // self.patch for n in self.n)
        self.statistics = tensor(np.array(json.loads(Path(runs.path(name, "normalisation.json")).read_text())[task]["statistics"]).reshape(-1, 2))
        batch, (time, parameters) = len(self.latents), (small_array(runs.path(name, "cache", task, "train", array)) for array in ("time", "condition"))
        told = parameters - parameters.mean(0)  # one with the same value in all samples is told as 0
        told = told / np.where(told == 0, 1, parameters.std(0))
        self.told = {"dt": tensor(np.full((batch, 1), time[1] - time[0])), "parameters": tensor(told), "task": tensor(np.ones((batch, 1)))}
        self.options = {"depth": 1, "tokens": int(np.prod(self.cells)), "periodic": self.periodic, "modes": 5 - self.dims}
        self.options |= dict(zip(("columns", "rows"), self.cells[:0:-1]))

    def advance(self, weights, z, dt=1):
        named = {n.replace(f"operator.{self.task}.", "operator.wave."): w for n, w in weights.items()}
        return grid_operator(named, [z], dict(self.told, dt=dt * self.told["dt"]), self.options)[0]

    def fields(self, latents):
        """(B, frames, grid…, channels) of latents (B, frames, tokens, dim)."""
        numbers = latents @ self.decode.T
        shape = numbers.shape[:2] + self.cells + self.dims * (self.patch,) + (-1,)
        order = (axis for a in range(self.dims) for axis in (2 + a, 2 + self.dims + a))
        return numbers.reshape(shape).permute(0, 1, *order, 2 + 2 * self.dims).reshape(numbers.shape[:2] + self.n + (-1,))


def small_array(folder):
    """An array of a cache that is one chunk: its values, and a checksum (docs/cache-format.md)."""
    shape = json.loads(Path(folder, "zarr.json").read_text())["shape"]
    return np.frombuffer(Path(folder, "c", *len(shape) * ["0"]).read_bytes()[:-4], "<f8").reshape(shape)


def norms(x):
    return (x**2).flatten(2).sum(2).sqrt()


def relative(s, states, truths):
    return (norms(states - truths) / norms(truths))[:, 0].mean()


def decoded(s, states, truths):
    axes, offset = tuple(range(2, 2 + s.dims)), s.statistics[:, 0] * s.statistics[:, 1]
    p, t = s.fields(states), s.fields(truths)
    return (((p - t) ** 2).sum(axes) / ((t + offset) ** 2).sum(axes)).sqrt()


def conservation(s, states, truths):
    axes = tuple(range(2, 2 + s.dims))
    return ((s.fields(states).mean(axes) - s.fields(truths).mean(axes)) ** 2).mean()


def modes(s, fields):
    """Orthonormal modes of (B, frames, grid…, channels): sines and cosines together, or cosines where there is a border."""
    for axis, n in enumerate(s.n, 2):
        r, i = np.arange(n)[:, None], np.arange(n)[None]
        cosines = np.sqrt(np.where(r == 0, 1, 2) / n) * np.cos(np.pi * r * (2 * i + 1) / (2 * n))
        fields = torch.fft.fft(fields, dim=axis, norm="ortho") if s.periodic else torch.tensordot(tensor(cosines), fields, ([1], [axis])).movedim(0, axis)
    return fields


def spectral(s, states, truths):
    p, t = s.fields(states), s.fields(truths)
    error, truth = (m.abs() ** 2 for m in (modes(s, p - t), modes(s, t)))
    k = [abs(np.fft.fftfreq(n, 1 / n)) if s.periodic else np.arange(n) / 2 for n in s.n]
    k = np.sqrt(sum(part**2 for part in np.meshgrid(*k, indexing="ij")))
    octave = np.where(k < 1, 0, 1 + np.floor(np.log2(np.maximum(k, 1)) + 1e-9))
    least = 1e-2 * np.sqrt(np.prod(s.n))
    def size(squares, o):
        return (squares[:, :, torch.as_tensor(octave == o)].sum(2) + 1e-60).sqrt()  # a wave that no latents decode to has no slope

    return torch.stack([size(error, o) / size(truth, o).clamp(min=least) for o in np.unique(octave)]).mean()


def positivity(s, states, truths):
    channel = SIGNED[s.task][1]
    offset = s.statistics[channel, 0] * s.statistics[channel, 1]
    return ((s.fields(states)[..., channel] + offset).clamp(max=0) ** 2).mean()


def divergence(s, states, truths):
    """In units of the velocities' deviation over the finest spacing; of the interior where there are walls."""
    channels = VELOCITY[s.task][1]
    deviation, fields = 1 / s.statistics[:, 1], s.fields(states) - s.fields(truths)
    scale = (deviation[list(channels)] ** 2).mean().sqrt() / min(s.spacing)
    slopes = [(fields[..., c].roll(-1, a) - fields[..., c].roll(1, a)) * deviation[c] / (2 * dx) for a, c, dx in zip(range(2, 5), channels, s.spacing)]
    inside = slice(None) if s.periodic else slice(1, -1)
    return ((sum(slopes)[(slice(None), slice(None), *s.dims * [inside])] / scale) ** 2).mean()


def boundary(s, states, truths):
    outside = np.ones(s.n, bool)
    outside[s.dims * (slice(1, -1),)] = False
    return ((s.fields(states) - s.fields(truths))[:, :, torch.as_tensor(outside)] ** 2).mean()


LOSSES = {
    "spectral": spectral,
    "positivity": positivity,
    "divergence": divergence,
    "boundary": boundary,
    "relative": relative,
    "one_step": lambda s, p, t: ((p - t)[:, 0] ** 2).mean(),
    "rollout": lambda s, p, t: ((p - t)[:, 1:] ** 2).mean(),
    "rollout_relative": lambda s, p, t: (norms(p - t) / norms(t))[:, 1:].mean(),
    "decoded": lambda s, p, t: decoded(s, p, t)[:, 0].mean(),
    "rollout_decoded": lambda s, p, t: decoded(s, p, t)[:, 1:].mean(),
    "conservation": conservation,
}


@pytest.fixture(scope="module", autouse=True)
def data(runs):
    for task, (solver, _, _, grid, _) in TASKS.items():
        if not solver.startswith("{"):
            runs.generate(solver, task + ".h5", 4, "--steps", str(FRAMES), "-r", str(grid[0]))
    for task, names in (("sea", "huv"), ("tank", "huvw")):
        random, grid = np.random.default_rng(5), TASKS[task][3]
        t, *x = np.meshgrid(0.3 * np.arange(FRAMES), *(k * np.arange(n) for k, n in zip((0.25, 0.35, 0.6), grid)), indexing="ij")
        with h5py.File(runs.path("data", task + ".h5"), "w") as file:
            file["t"], file["nu"] = np.arange(FRAMES) * 0.1, [0.2, 0.3, 0.5, 0.4]
            for name, speed in zip(names, (1, 2, -1, 1.5)):
                phases = random.uniform(0, 2 * np.pi, (1 + len(grid), 4, *(1 + len(grid)) * [1]))
                waves = np.cos(x[0] + phases[0] - speed * t) * np.prod([np.sin(at + phase) for at, phase in zip(x[1:], phases[1:])], 0)
                # of an octave without error the norm has no slope
                file[name] = (2 * (name == "h") + waves + 0.2 * random.standard_normal(waves.shape)).astype(np.float32)


SIGNED = {"line": ("u", 0), "diffreact": ("inhibitor", 1), "flow": ("Vx", 2), "sea": ("v", 2), "tank": ("v", 2)}  # a field that is below zero somewhere
VELOCITY = {"flow": ("Vx, Vy", (2, 3)), "sea": ("u, v", (1, 2)), "tank": ("u, v, w", (1, 2, 3))}
ONLY = {"divergence": list(VELOCITY), "boundary": ["diffreact", "sea", "tank"]}


def semigroup(s, operator, first, second):
    """A step of twice the length against two: each is the other's target."""
    longer = s.advance(operator, first, 2)

    def against(state, target):
        target = target.detach()
        return ((state - target).flatten(1).norm(dim=1) / target.flatten(1).norm(dim=1)).mean()

    return (against(longer, second) + against(second, longer)) / 2


def check(runs, task, loss, *, pushforward=False):
    weights = {"relative": 0.5, "rollout": 0.25} | {loss: 1}  # of rollouts, so that windows are whole trajectories
    fields = {"positivity": f", fields: [{SIGNED[task][0]}]", "divergence": f", fields: [{VELOCITY[task][0]}]" if task in VELOCITY else ""}
    losses = "".join(f"    {n}: {{weight: {w}{fields.get(n, '')}}}\n" for n, w in weights.items())
    kept = loss not in ("spectral", "conservation")  # the error of a mean that is kept is 0, where a norm has no slope
    text = CONFIG.replace("drop_path: 0,", f"drop_path: 0, conserve: {str(kept).lower()},").replace("    relative: {{weight: 1}}\n", "")
    name = runs.fresh()
    runs.must("train", runs.config(name, text, task=task, patch=TASKS[task][1], layout=", layout: " + TASKS[task][0] if TASKS[task][0].startswith("{") else "", losses=losses.rstrip()), "--set", f"operator.pushforward={str(pushforward).lower()}")
    s = Step(runs, name, task)

    def total(operator):
        states = [s.latents[:, 0]]
        for _ in range(s.latents.shape[1] - 1):
            states.append(s.advance(operator, states[-1].detach() if pushforward else states[-1]))
        predicted, truth = torch.stack(states[1:], 1), s.latents[:, 1:]
        parts = {n: semigroup(s, operator, states[0], states[2]) if n == "semigroup" else LOSSES[n](s, predicted, truth) for n in weights}
        return sum(w * parts[n] for n, w in weights.items()), parts

    _, parts, reference = value_and_gradients(total, s.weights)
    assert set(reference) == set(s.gradients)
    assert float(parts[loss]) > 1e-4  # else nothing is tested
    size = np.sqrt(sum(float((g**2).sum()) for g in reference.values()))
    errors = {n: abs(s.losses[n] - float(parts[n])) / (float(parts[n]) + 1e-6) for n in weights}
    least = 1e-2 * size  # small gradients are sums of large ones that cancel
    errors |= {n: np.linalg.norm(g - reference[n]) / max(np.linalg.norm(reference[n]), least) for n, g in s.gradients.items()}
    assert np.isfinite(list(errors.values())).all() and max(errors.values()) < 1e-5, sorted(errors.items(), key=lambda e: -e[1])[:5]


@pytest.mark.parametrize("loss, task", [(loss, task) for loss in LOSSES for task in ONLY.get(loss, TASKS)] + [("semigroup", "line"), ("semigroup", "flow")])
def test_a_training_step_has_the_gradients_of_pytorch(runs, task, loss):
    check(runs, task, loss)


@pytest.mark.parametrize("loss", ["rollout_relative", "spectral"])
def test_with_pushforward_gradients_go_through_one_application(runs, loss):
    check(runs, "flow", loss, pushforward=True)
