"""Maps of tokens that are patches (`tokens: grid`), their losses, and what corrects values between grid points: values and gradients of
training steps of `ups train` against PyTorch in float64, as in test_autoencoder_gradients.py. Places between grid points are drawn as
train/stages/autoencoder.c draws them, by Philox."""

import numpy as np
import pytest

import test_autoencoder_gradients as fixed
from reference import tensor, torch
from test_autoencoder_gradients import LOSSES, compare_with_pytorch, covariance, patches_of, per_sample
from test_loss_gradients import STEPS
from test_operator import functional, linear

SEED, QUERIES, FEATURES, LINE = 3, 1000, 8, 8
CONFIG = fixed.CONFIG[:fixed.CONFIG.index("model:")].replace("patch: [4]", "patch: [{patch}]") + """\
model:
  tokens: grid
  dim: {dim}
  bound: {bound}
  decoder: {{between: {between}}}
""" + fixed.CONFIG[fixed.CONFIG.index("checkpoint:"):].replace("queries: 100000", f"queries: {QUERIES}")
# solver, periodic, grid, patch, latents a token: fewer than a patch has numbers; patches of 4 reach beyond 18 points
TASKS = {"line": ("advection1d", True, (32,), 4, 3), "rough": ("diffreact2d", False, (18, 18), 4, 9)}


@pytest.fixture(scope="module", autouse=True)
def data(runs):
    fixed.make_frames(runs, TASKS)


def fields_from(task, patches, channels):
    grid, patch = TASKS[task][2], TASKS[task][3]
    cells, dims = [-(-n // patch) for n in grid], len(grid)
    whole = patches.reshape(len(patches), *cells, *dims * [patch], channels)
    order = [axis for a in range(dims) for axis in (1 + a, 1 + dims + a)]
    whole = whole.permute(0, *order, 1 + 2 * dims).reshape(len(patches), *(c * patch for c in cells), channels)
    return whole[(slice(None), *(slice(n) for n in grid))]


# ---- reading between grid points ----

def cubic(t):
    """Weights (…, 4) of the points around a place, t behind the second (Keys 1981)."""
    return np.stack([t * (-0.5 + t * (1 - 0.5 * t)), 1 + t * t * (-2.5 + 1.5 * t), t * (0.5 + t * (2 - 1.5 * t)), t * t * (-0.5 + 0.5 * t)], -1)


def reader(grid, periodic, coordinates):
    """What values at coordinates (Q, d) are made of: (Q, points)."""
    rows = np.ones((len(coordinates), 1))
    for axis, n in enumerate(grid):
        place = coordinates[:, axis].astype(float) * n - 0.5
        nearest = np.rint(place)
        place = np.where(abs(place - nearest) < 1e-3, nearest, place)  # coordinates are float32
        before = np.floor(place).astype(int)
        along = np.zeros((len(place), n))
        for tap, weight in enumerate(cubic(place - before).T):
            at = before + tap - 1
            np.add.at(along, (np.arange(len(place)), at % n if periodic else np.clip(at, 0, n - 1)), weight)
        rows = (rows[:, :, None] * along[:, None]).reshape(len(place), -1)
    return rows


AROUND = (-3, -2, -1, 1, 2, 3)
DIFFERENCES = ((0, -1, 3, 1, 0, 0), (0, 0, -1, -3, 1, 0), (0, -1, 5, 10, -5, 1), (-1, 5, -10, -5, 1, 0))  # of points around, and here:
HERE = (-3, 3, -10, 10)


def read(p, grid, periodic, values, coordinates):
    """Values (B, Q, C), corrected, at coordinates (Q, d) of (B, points, C)."""
    read_at = lambda shift: torch.einsum("qn,bnc->bqc", tensor(reader(grid, periodic, coordinates + np.float32(shift))), values)
    here, dims, channels = read_at(0), len(grid), values.shape[-1]
    inside = 2 * np.pi * coordinates.astype(float) * np.array(grid)
    waves = tensor(np.concatenate([wave(f * inside) for f in (1, 2) for wave in (np.sin, np.cos)], -1))
    share = tensor((1 + np.cos(inside)).mean(-1) / 2)
    weights = linear(p, "between.output", functional.gelu(linear(p, "between.hidden", waves))) * share[:, None]
    weights = weights.reshape(len(coordinates), dims, len(HERE), channels)
    for axis in range(dims):
        around = [read_at(step * np.eye(dims)[axis] / grid[axis]) for step in AROUND]
        for i, (of, own) in enumerate(zip(DIFFERENCES, HERE)):
            here = here + weights[None, :, axis, i] * (own * read_at(0) + sum(w * value for w, value in zip(of, around)))
    return here


def philox(index, purpose, item):
    """The first 64 bits of Philox4x32-10 (Salmon et al. 2011)."""
    c, k = [index & 0xFFFFFFFF, index >> 32, purpose, item], [SEED, 0]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[1] << 32 | c[0]


def drawn_places(grid, periodic, count, item):
    """Places (Q, d) between the middle two of eight grid points in a row, and what the polynomial through these is there: (Q, points)."""
    places, rows = [], np.zeros((count, int(np.prod(grid))))
    for q in range(count):
        first = QUERIES + 5 * q
        below = lambda i, bound: philox(first + i, 4, item) * bound >> 64
        along = below(0, len(grid))
        inside = LINE / 2 - 1 + (philox(first + 1, 4, item) >> 11) / 2**53
        start = [below(2 + d, n - LINE + 1 if d == along and not periodic else n) for d, n in enumerate(grid)]
        places.append([(s + (inside if d == along else 0) + 0.5) / n % 1 for d, (s, n) in enumerate(zip(start, grid))])
        for i in range(LINE):
            at = [(s + i) % n if d == along else s for d, (s, n) in enumerate(zip(start, grid))]
            rows[q, np.ravel_multi_index(at, grid)] += np.prod([(inside - j) / (i - j) for j in range(LINE) if j != i])
    return np.float32(places), rows


def between(p, task, fields):
    """The loss of the correction on fields of which every second point along an axis stays."""
    _, periodic, grid, _, _ = TASKS[task]
    half = tuple(-(-n // 2) for n in grid)
    kept = fields[(slice(None), *(slice(None, None, 2) for _ in grid))].reshape(len(fields), -1, fields.shape[-1])
    whole = fields.reshape(len(fields), -1, fields.shape[-1])
    on_half = lambda places: np.float32(places * (np.array(grid) / (2 * np.array(half))) + 0.25 / np.array(half))
    places, rows = drawn_places(grid, periodic, whole.shape[1], STEPS - 1)
    pairs = ((fixed.centres(grid), whole), (places, torch.einsum("qn,bnc->bqc", tensor(rows), whole)))
    return sum((per_sample(read(p, half, periodic, kept, on_half(at)) - truth) / per_sample(truth)).mean() / 2 for at, truth in pairs)


# ---- losses ----

def losses_of(p, task, fields, bound):
    points, channels = fields.reshape(len(fields), -1, fields.shape[-1]), fields.shape[-1]

    def encode(fields):
        latents = patches_of(fields, *TASKS[task][2:4]).flatten(1, -2) @ p[f"encoder.{task}.patch.weight"].T
        return bound * torch.asinh(latents / bound) if bound else latents

    def decode(latents):
        latents = bound * torch.sinh(latents / bound) if bound else latents
        return fields_from(task, latents @ p[f"decoder.{task}.patch.weight"].T, channels)

    latents = encode(fields)
    rounded = latents + (latents.float().half().double() - latents).detach()
    decoded, c = decode(latents), covariance(latents)
    relative = lambda found: (per_sample(found.reshape(points.shape) - points) / per_sample(points)).mean()
    return {
        "inverse_decoding": ((decoded - fields) ** 2).mean(),
        "relative": relative(decoded),
        "rounded": relative(decode(rounded)),
        "inverse_encoding": ((encode(decoded) - latents) ** 2).mean(),
        "latent_norm": ((c.diag() - 1) ** 2).mean(),
        "latent_diversity": (c[~torch.eye(len(c), dtype=bool)] ** 2).mean(),
        "between": between({name[len(f"decoder.{task}."):]: w for name, w in p.items()}, task, fields) if any("between" in name for name in p) else fields.new_zeros(()),
    }


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("loss, bound", [(loss, 0) for loss in LOSSES] + [("relative", 1), ("inverse_encoding", 1), ("between", 0)])
def test_a_training_step_of_patch_maps_has_the_gradients_of_pytorch(runs, task, loss, bound):
    weights = {"inverse_decoding": 0.5} | {loss: 1} | ({"relative": 0} if loss != "relative" else {})
    name, (_, _, _, patch, dim) = runs.fresh(), TASKS[task]
    losses = "\n".join(f"    {n}: {{weight: {w}}}" for n, w in weights.items())
    runs.must("train", runs.config(name, CONFIG, task=task, patch=patch, dim=dim, bound=bound, between=FEATURES if loss == "between" else 0, losses=losses))
    found = compare_with_pytorch(runs, name, task, weights, lambda p, fields: losses_of(p, task, fields, bound))
    assert float(found[loss]) > 1e-6, found  # else nothing is tested
