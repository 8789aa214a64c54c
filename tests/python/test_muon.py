"""Muon against NumPy in float64: what tests/train/optimizer_steps.c does with given weights and gradients. Its steps, and
that the direction of each is nearly orthogonal."""

import os
import subprocess

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # on a busy machine threads wait long for each other
os.environ["GOMP_SPINCOUNT"] = "1000"

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from commands import TIMEOUT, program

RATE, MOMENTUM = 0.02, 0.95
BETAS, EPSILON = (0.9, 0.99), 1e-8
COEFFICIENTS = (3.4445, -4.7750, 2.0315)

# name: shape, matrices in it (0: AdamW's). Some odd, one larger than those that a thread takes alone.
SHAPES = {"square": ((48, 48), 1), "wide": ((17, 96), 1), "tall": ((131, 24), 1), "qkv": ((3 * 40, 40), 3), "row": ((1, 7), 1), "rows": ((3, 7), 3),
          "modes": ((5, 2 * 19, 21), 5), "large": ((260, 190), 1), "gain": ((48,), 0), "input": ((24, 9), 0)}
if not os.environ.get("UPS_TEST_DEVICE"):  # an emulated card would take minutes
    SHAPES |= {"up": ((256, 64), 1), "down": ((64, 256), 1), "long": ((101, 1005), 1), "larger": ((600, 640), 1)}


def take_steps(scratch, weights, gradients, matrices, **options):
    """The weights and what the optimizer keeps, after as many steps as there are gradients."""
    tensors = {f"weights.{n}": w for n, w in weights.items()}
    tensors |= {f"gradients.{k}.{n}": g for k, step in enumerate(gradients) for n, g in step.items()}
    save_file(tensors, scratch + "/in", metadata={n: str(m) for n, m in matrices.items() if m})
    options = {"muon": 1, "rate": RATE, "momentum": MOMENTUM, "steps": len(gradients)} | options
    subprocess.run([program("optimizer_steps"), scratch + "/in", scratch + "/out", *(f"{k}={v}" for k, v in options.items())],
                   check=True, timeout=TIMEOUT)
    return load_file(scratch + "/out")


def newton_schulz(x):
    """The quintic's five steps, by the singular values: of these it is a polynomial."""
    left, values, right = np.linalg.svd(x, full_matrices=False)
    norm = np.linalg.norm(x)
    values = values / norm if norm > 0 else values
    a, b, c = COEFFICIENTS
    for _ in range(5):
        values = a * values + b * values**3 + c * values**5
    return left * values @ right


def draw(seed, shapes=SHAPES, steps=3):
    """Weights as small as a network's, whose rounding is small beside what a step moves them."""
    generator = np.random.default_rng(seed)
    weights = {n: (0.1 * generator.standard_normal(s)).astype(np.float32) for n, (s, _) in shapes.items()}
    gradients = [{n: generator.standard_normal(s).astype(np.float32) for n, (s, _) in shapes.items()} for _ in range(steps)]
    return weights, gradients, {n: m for n, (_, m) in shapes.items()}


def expected_steps(weights, gradients, matrices, decay, clip):
    """Weights, first and second moments in float64."""
    weights = {n: w.astype(np.float64) for n, w in weights.items()}
    first, second = ({n: np.zeros_like(w) for n, w in weights.items()} for _ in range(2))
    for k, step in enumerate(gradients):
        norm = np.sqrt(sum((g.astype(np.float64)**2).sum() for g in step.values()))
        scale = min(1, clip / norm) if clip else 1
        for name, weight in weights.items():
            gradient = scale * step[name].astype(np.float64)
            kept = decay if weight.ndim > 1 else 0
            beta = MOMENTUM if matrices[name] else BETAS[0]
            first[name] = beta * first[name] + (1 - beta) * gradient
            if matrices[name]:
                ahead = beta * first[name] + (1 - beta) * gradient
                stack = ahead.reshape(matrices[name], -1, weight.shape[-1])
                moved = np.stack([newton_schulz(m) * 0.2 * max(m.shape)**0.5 for m in stack]).reshape(weight.shape)
            else:
                second[name] = BETAS[1] * second[name] + (1 - BETAS[1]) * gradient**2
                moved = first[name] / (1 - BETAS[0]**(k + 1))
                moved = moved / (np.sqrt(second[name] / (1 - BETAS[1]**(k + 1))) + EPSILON)
            weights[name] = weight * (1 - RATE * kept) - RATE * moved
    return weights, first, second


@pytest.mark.parametrize("bf16, tolerance", [(0, 1e-5), (1, 0.06)])
def test_steps_are_those_of_float64(scratch, bf16, tolerance):
    weights, gradients, matrices = draw(1)
    found = take_steps(scratch, weights, gradients, matrices, decay=0.1, clip=30, bf16=bf16, threads=2)
    expected, first, second = expected_steps(weights, gradients, matrices, 0.1, 30)
    for name, weight in weights.items():
        moved, reference = found[name] - weight, expected[name] - weight
        assert np.linalg.norm(moved - reference) <= tolerance * np.linalg.norm(reference), name
        kept = {"muon.momentum.": first} if matrices[name] else {"adamw.first_moment.": first, "adamw.second_moment.": second}
        for buffer, values in kept.items():
            assert np.linalg.norm(found[buffer + name] - values[name]) <= 2e-6 * np.linalg.norm(values[name]), buffer + name  # their norm is rounded


def test_only_what_adamw_moves_has_its_moments(scratch):
    kept = take_steps(scratch, *draw(2))
    assert {n for n in kept if n.startswith("muon.")} == {f"muon.momentum.{n}" for n, (_, m) in SHAPES.items() if m}
    for moment in ("adamw.first_moment.", "adamw.second_moment."):
        assert {n for n in kept if n.startswith(moment)} == {moment + n for n, (_, m) in SHAPES.items() if not m}


def directions(scratch, gradients, **options):
    """What the first step moves each matrix along, and the singular values of the momentum over its norm."""
    weights = {n: np.zeros_like(g) for n, g in gradients.items()}
    found = take_steps(scratch, weights, [gradients], dict.fromkeys(gradients, 1), **options)
    for name, gradient in gradients.items():
        direction = -found[name] / (RATE * 0.2 * max(gradient.shape)**0.5)
        norm = np.linalg.norm(gradient.astype(np.float64))
        before = np.linalg.svd(gradient.astype(np.float64) / (norm or 1), compute_uv=False)
        yield name, before, np.linalg.svd(direction.astype(np.float64), compute_uv=False), direction


@pytest.mark.parametrize("bf16", [0, 1])
def test_singular_values_come_near_one(scratch, bf16):
    generator = np.random.default_rng(3)
    shapes = {"wide": (30, 200), "tall": (200, 30), "square": (64, 64), "large": (256, 300), "row": (1, 50), "column": (50, 1), "one": (1, 1)}
    gradients = {n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    deficient = generator.standard_normal((80, 6)) @ generator.standard_normal((6, 60))
    gradients |= {"deficient": deficient.astype(np.float32), "tiny": (1e-12 * deficient).astype(np.float32)}
    for name, before, after, direction in directions(scratch, gradients, bf16=bf16):
        within = before > 0.01
        assert np.isfinite(direction).all() and within.any(), name
        assert after[: within.sum()].min() > 0.6 and after.max() < 1.25, name
        # What has no part in the momentum gets none, but for rounding that the polynomial enlarges by 485 at most.
        assert after[before < 1e-9].max(initial=0) < (0.6 if bf16 else 1e-2), name


def test_small_singular_values_grow_as_in_float64(scratch):
    """Values down to a millionth of the largest: what a float32 of their square says of them is rounding."""
    generator = np.random.default_rng(7)
    orthogonal = lambda n, k: np.linalg.qr(generator.standard_normal((n, k)))[0]
    gradients = {f"{rows} x {columns}": (orthogonal(rows, n) * 10.0**np.linspace(0, -6, n) @ orthogonal(columns, n).T).astype(np.float32)
                 for rows, columns in ((48, 48), (64, 192), (200, 64), (96, 96)) for n in [min(rows, columns)]}
    for name, _, _, direction in directions(scratch, gradients, bf16=0):
        gradient = gradients[name].astype(np.float64)
        error = np.linalg.norm(direction - newton_schulz(gradient), 2)
        assert error < 5e-3, (name, error)


def test_a_momentum_of_zero_moves_nothing(scratch):
    gradients = {"zero": np.zeros((12, 20), np.float32), "denormal": np.full((12, 20), 1e-42, np.float32)}
    for bf16 in (0, 1):
        for name, _, _, direction in directions(scratch, gradients, bf16=bf16):
            assert (direction == 0).all(), name


def test_steps_do_not_depend_on_threads(scratch):
    for bf16 in (0, 1):
        alone = take_steps(scratch, *draw(4), bf16=bf16, ema=0.9)
        for threads in (2, 3, 7):
            together = take_steps(scratch, *draw(4), bf16=bf16, ema=0.9, threads=threads)
            assert set(alone) == set(together)
            assert all(np.array_equal(alone[n], together[n]) for n in alone)


def test_matrices_below_each_other_move_as_if_each_were_a_parameter(scratch):
    weights, gradients, _ = draw(5, {"qkv": ((3 * 40, 40), 3)})
    split = lambda tensors: {f"{n}{i}": part for n, t in tensors.items() for i, part in enumerate(np.split(t, 3))}
    whole = take_steps(scratch, weights, gradients, {"qkv": 3})["qkv"]
    parts = take_steps(scratch, split(weights), list(map(split, gradients)), dict.fromkeys(("qkv0", "qkv1", "qkv2"), 1))
    assert np.array_equal(whole, np.concatenate([parts[f"qkv{i}"] for i in range(3)]))


def test_the_rest_moves_as_with_adamw_alone(scratch):
    weights, gradients, matrices = draw(6)
    muon, adamw = (take_steps(scratch, weights, gradients, matrices, muon=kind, decay=0.1, clip=1) for kind in (1, 0))
    assert all(np.array_equal(muon[n], adamw[n]) == (m == 0) for n, m in matrices.items())
