"""What latents are kept as, and what is read of them between the grid's points: `model.decoder.between`, `model.bound` and the
loss `rounded`, held against NumPy."""

import json

import h5py
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from commands import one_sentence
from tiny_run import CONFIG, metrics

POINTS, FINE, WAVES = 64, 320, 6
HEAD = CONFIG[:CONFIG.index("tasks:")] + "tasks:\n  - {{name: line, files: [{file}], patch: [4]}}\n"
GRID = HEAD + """\
model:
  tokens: grid
  dim: 4
  bound: {bound}
  decoder: {{between: {between}}}
  operator: {{core: spectral, hidden: 16, depth: 1, mlp_ratio: 2, drop_path: 0, modes: [8]}}
autoencoder:
  steps: {steps}
  batch_size: 8
  queries: 64
  log_every: 50
  validate_every: 0
  optimizer: {{learning_rate: 0.01, warmup_steps: 10}}
  losses:
    relative: {{weight: 0}}
    inverse_decoding: {{weight: {decoding}}}
    between: {{weight: {weight}}}
operator: {{steps: 1, validate_every: 0, optimizer: {{learning_rate: 0.001}}}}
cache: {{samples_per_shard: 2}}
"""
FIXED = HEAD + CONFIG[CONFIG.index("model:"):]


def smooth(coefficients, x):
    """Fields (…, points) of Fourier series with coefficients (…, WAVES, 2)."""
    angles = 2 * np.pi * np.arange(1, WAVES + 1)[:, None] * x
    return np.einsum("...kp,kpx->...x", coefficients, np.stack([np.sin(angles), np.cos(angles)], 1))


def places(points):
    return (np.arange(points) + 0.5) / points


@pytest.fixture(scope="module")
def truth(runs):
    """A file of smooth fields, and what they are at any place: the coefficients of (samples, times)."""
    path = runs.generate("advection1d", "smooth.h5", 20, "-r", str(POINTS), "--steps", "3")
    coefficients = np.random.default_rng(3).normal(size=(20, 3, WAVES, 2)) / np.arange(1, WAVES + 1)[:, None]
    with h5py.File(path, "r+") as file:
        file["tensor"][...] = smooth(coefficients, places(POINTS)).reshape(file["tensor"].shape)
    return coefficients


def config(runs, name, **options):
    given = {"file": "smooth.h5", "bound": 0, "between": 0, "weight": 0, "steps": 0, **options}
    return runs.config(name, GRID, **given, decoding=0 if given["weight"] else 1)


def first_frames(runs, path, points):
    """The given states as the decoder reads them back at so many points: (trajectories, points), and the data's own."""
    out = runs.path(runs.fresh() + ".h5")
    runs.must("rollout", path, "-o", out, "-n", "4", "--resolution", str(points))
    with h5py.File(out) as file:
        return file["tensor"][:, 0].reshape(4, -1).astype(float)


@pytest.fixture(scope="module")
def plain(runs, truth):
    path = config(runs, "plain")
    runs.must("train", path)
    return path


@pytest.fixture(scope="module")
def corrected(runs, truth):
    path = config(runs, "corrected", between=16, weight=1, steps=600)
    runs.must("train", path)
    return path


def of_samples(read, coefficients):
    """Coefficients of the trajectories whose first frames these are, at the data's own points."""
    fields = smooth(coefficients[:, 0], places(POINTS))
    found = [int(np.argmin(((fields - one) ** 2).sum(-1))) for one in read]
    assert len(set(found)) == len(read)
    return coefficients[found, 0]


def test_training_lowers_the_error_between_grid_points_and_changes_nothing_at_them(runs, plain, corrected, truth):
    own = first_frames(runs, plain, POINTS)
    chosen = of_samples(own, truth)
    assert np.allclose(first_frames(runs, corrected, POINTS), own, atol=1e-5)
    finer = smooth(chosen, places(FINE))
    errors = [np.linalg.norm(first_frames(runs, path, FINE) - finer) / np.linalg.norm(finer) for path in (plain, corrected)]
    assert errors[1] < 0.4 * errors[0], errors
    losses = [line["losses"]["between"] for line in metrics(runs.path("corrected")) if "between" in line.get("losses", {})]
    assert losses[-1] < 0.5 * losses[0], losses


def keys(distance):
    t = abs(distance)
    return np.where(t < 1, 1 + t * t * (-2.5 + 1.5 * t), np.where(t < 2, 2 - t * (4 - t * (2.5 - 0.5 * t)), 0))


def cubic(fields, x):
    """Periodic fields (…, n) at places x (…)."""
    n = fields.shape[-1]
    at = x * n - 0.5
    taps = np.floor(at).astype(int)[..., None] + np.arange(-1, 3)
    return (fields[..., taps % n] * keys(at[..., None] - taps)).sum(-1)


def gelu(x):
    from scipy.special import erf
    return x * (1 + erf(x / np.sqrt(2))) / 2


def test_what_is_read_is_what_numpy_makes_of_the_weights(runs, corrected):
    weights = {name: values.astype(float) for name, values in load_file(runs.path("corrected", "autoencoder.safetensors")).items()}
    own, fine = (first_frames(runs, corrected, points) for points in (POINTS, FINE))
    x = places(FINE)
    turns = 2 * np.pi * POINTS * x
    waves = np.stack([np.sin(turns), np.cos(turns), np.sin(2 * turns), np.cos(2 * turns)], -1)
    layer = lambda name, y: y @ weights[f"decoder.line.between.{name}.weight"].T + weights[f"decoder.line.between.{name}.bias"]
    w = layer("output", gelu(layer("hidden", waves))) * ((1 + np.cos(turns)) / 2)[:, None]
    r = {step: cubic(own, x + step / POINTS) for step in range(-3, 4)}
    third = lambda at: r[at + 1] - 3 * r[at] + 3 * r[at - 1] - r[at - 2]
    fifth = lambda at: r[at + 2] - 5 * r[at + 1] + 10 * r[at] - 10 * r[at - 1] + 5 * r[at - 2] - r[at - 3]
    expected = r[0] + w[:, 0] * third(0) + w[:, 1] * third(1) + w[:, 2] * fifth(1) + w[:, 3] * fifth(0)
    assert np.abs(fine - expected).max() < 1e-4 * np.abs(expected).max()
    assert np.abs(fine - expected).max() < 0.1 * np.abs(expected - r[0]).max()


def test_a_model_is_whole_whatever_its_losses_read(runs, corrected):
    """Of the correction's loss neither the encoder nor the decoder is a part; of inverse encoding no query points are; and a loss may fall due
    after the last step."""
    names = set(load_file(runs.path("corrected", "autoencoder.safetensors")))
    assert {"encoder.line.patch.weight", "decoder.line.patch.weight", "decoder.line.between.output.weight"} <= names
    inverse = config(runs, "inverse", steps=40)
    runs.must("train", inverse, "--stage", "autoencoder", "--set", "autoencoder.losses.inverse_decoding.weight=0", "--set", "autoencoder.losses.inverse_encoding.weight=1",
              "--set", "model.dim=2", "--set", "autoencoder.log_every=1", "--set", "autoencoder.optimizer.learning_rate=0.001")
    losses = [line["losses"]["inverse_encoding"] for line in metrics(runs.path("inverse")) if "losses" in line]
    assert len(losses) == 40 and np.isfinite(losses).all()
    late = config(runs, "late", between=16, weight=1, steps=2)
    runs.must("train", late, "--stage", "autoencoder", "--set", "autoencoder.losses.inverse_decoding.weight=1", "--set", "autoencoder.losses.between.from=9")
    assert set(load_file(runs.path("late", "autoencoder.safetensors"))) == names


def test_steps_without_the_loss_between_leave_the_correction_as_it_is(runs, truth):
    """It is no part of what is read at grid points: no step but the first moves it, by a momentum or a decay either."""
    learnt = []
    for name, steps in (("once", 1), ("thrice", 3)):
        path = config(runs, name, between=16, weight=1, steps=steps)
        runs.must("train", path, "--stage", "autoencoder", "--set", "autoencoder.losses.between.every=3", "--set", "autoencoder.losses.inverse_decoding.weight=1",
                  "--set", "model.dim=2", "--set", "autoencoder.optimizer.schedule=constant", "--set", "autoencoder.optimizer.warmup_steps=0")
        learnt.append(load_file(runs.path(name, "autoencoder.safetensors")))
    for name, values in learnt[0].items():
        assert np.array_equal(values, learnt[1][name]) == ("between" in name), name


def test_a_run_that_learns_between_grid_points_goes_on_exactly(runs, truth):
    runs.goes_on_exactly("autoencoder", lambda name: config(runs, f"between-{name}", between=16, weight=1, steps=60))


def test_a_correction_that_would_learn_nothing_is_refused(runs, truth):
    one_sentence(runs.run("train", config(runs, "a", between=16, weight=1)), "model.decoder.between", "would learn nothing")
    one_sentence(runs.run("train", config(runs, "b", between=16, steps=10)), "model.decoder.between", "would learn nothing")
    one_sentence(runs.run("train", config(runs, "c", weight=1, steps=10)), "autoencoder.losses.between", "no correction")
    runs.generate("advection1d", "odd.h5", 8, "-r", "33", "--steps", "3")
    one_sentence(runs.run("train", config(runs, "d", file="odd.h5", between=16, weight=1, steps=10)), "task line", "even")
    moved = runs.run("train", config(runs, "g", between=16, weight=1, steps=10), "--set", "autoencoder.losses.latent_norm.weight=0.1")
    one_sentence(moved, "autoencoder.losses", "no loss against the data")
    fixed = runs.config("e", FIXED, file="smooth.h5")
    one_sentence(runs.run("train", fixed, "--set", "model.decoder.between=16"), "model.decoder.between", "tokens: grid")


# ---- bound and rounding

def cached(runs, name):
    out = runs.path(runs.fresh() + ".npy")
    runs.must("cache", "export", runs.path(name, "cache", "line", "train"), "-o", out)
    return np.load(out).astype(float)


def reconstruction(runs, path):
    return runs.told("eval", path)["tasks"][0]["horizons"][0]["reconstruction"]["nrmse"]


def test_bounded_latents_are_asinh_of_latents_and_fields_lose_nothing(runs, plain):
    bounded = config(runs, "bounded", bound=8)
    runs.must("train", bounded)
    free, bound = cached(runs, "plain"), cached(runs, "bounded")
    assert np.allclose(bound, 8 * np.arcsinh(free / 8), rtol=2e-3, atol=1e-5)
    tight = config(runs, "tight", bound=0.5)
    runs.must("train", tight)
    assert abs(cached(runs, "tight")).max() < 0.6 * abs(free).max()
    errors = {path: reconstruction(runs, path) for path in (plain, bounded, tight)}
    assert errors[bounded] < 1.1 * errors[plain] + 1e-7 and errors[tight] < 2.6 * errors[plain] + 1e-7, errors


def test_losses_of_fields_need_unbounded_latents(runs, plain):
    one_sentence(runs.run("train", config(runs, "f", bound=8), "--set", "operator.losses.decoded.weight=1"), "operator.losses.decoded", "model.bound")


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_the_loss_of_rounded_latents_falls(runs, truth, precision):
    name = "rounded" + precision
    path = runs.config(name, FIXED, file="smooth.h5")
    runs.must("train", path, "--stage", "autoencoder", "--set", "autoencoder.losses.rounded={weight: 1}",
              "--set", "autoencoder.losses.inverse_decoding.weight=0", "--set", f"precision={precision}",
              "--set", "autoencoder.steps=200", "--set", "model.bound=10")
    losses = [line["losses"]["rounded"] for line in metrics(runs.path(name)) if line.get("losses", {}).get("rounded")]
    assert len(losses) > 5 and losses[-1] < 0.7 * losses[0], losses


def test_a_bound_is_part_of_what_latents_are(runs, plain):
    """A run with another one has other stages; its cache is none of this one's."""
    answer = runs.run("train", plain, "--set", "model.bound=8")
    assert answer.returncode == 1 and "model.bound" in answer.stderr
    one_sentence(runs.run("eval", plain, "--set", "model.bound=8"), "another line.encoder", "its 'bound' is 0, here it is 8.0")


def test_a_correction_is_part_of_what_a_model_is(runs, plain, corrected):
    without = ["--set", "model.decoder.between=0", "--set", "autoencoder.losses.between.weight=0", "--set", "autoencoder.losses.inverse_decoding.weight=1"]
    one_sentence(runs.run("eval", corrected, *without), "another line.decoder", "its 'between' is 16, here it is 0")
    other = ["--set", "model.decoder.between=16", "--set", "autoencoder.losses.between.weight=1", "--set", "autoencoder.steps=1"]
    one_sentence(runs.run("eval", plain, *other), "another line.decoder", "its 'between' is 0, here it is 16")


def test_a_model_that_tells_of_neither_bound_nor_correction_has_none(runs, plain):
    path, model = runs.path("plain", "autoencoder.safetensors"), runs.path("untold.safetensors")
    with safe_open(path, "numpy") as file:
        told = {key: text for key, text in file.metadata().items() if key.startswith("line.")}
    told["line.decoder"] = json.dumps({"periodic": json.loads(told["line.decoder"])["periodic"]})
    save_file({**load_file(path), **load_file(runs.path("plain", "operator.safetensors"))}, model, metadata=told)
    use = ["eval", plain, "--checkpoint", model]
    runs.must(*use)
    one_sentence(runs.run(*use, "--set", "model.bound=8"), "another line.encoder", "its 'bound' is 0, here it is 8.0")
    other = ["--set", "model.decoder.between=16", "--set", "autoencoder.losses.between.weight=1", "--set", "autoencoder.steps=1"]
    one_sentence(runs.run(*use, *other), "another line.decoder", "its 'between' is 0, here it is 16")
