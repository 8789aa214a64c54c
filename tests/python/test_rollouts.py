"""Rollouts in training: lengths that grow, losses that warm up, applications that are taught by themselves."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import one_sentence
from tiny_run import metrics

FRAMES = 9
CONFIG = """\
output: {output}
seed: 3
precision: f32
device: {{threads: 1}}
data:
  root: {data}
  split: {{train: 0.34, validation: 0.33, test: 0.33}}
tasks:
  - {{name: line, files: [line.h5], patch: [4]}}
model:
  tokens: grid
  dim: auto
  operator: {{core: spectral, hidden: 16, depth: 2, mlp_ratio: 2, drop_path: 0, modes: [8, 4]}}
autoencoder: {{steps: 0, target: 0.01, gate: 0}}
operator:
  steps: 12
  batch_size: 4
  log_every: 1
  validate_every: 4
  validation_batches: 1
  checkpoint_every: 5
  rollout_steps: 8
  optimizer: {{kind: adamw, ema_decay: 0, learning_rate: 0, warmup_steps: 1}}
  losses:
    relative: {{weight: 1}}
    rollout_relative: {{weight: 0.5}}
"""


@pytest.fixture(scope="module", autouse=True)
def data(runs):
    runs.generate("advection1d", "line.h5", 3, "--steps", str(FRAMES), "-r", "32")


def lines_of(runs, name):
    return [line for line in metrics(runs.path(name)) if line["stage"] == "operator" and "losses" in line]


def options(**keys):
    return [word for key, value in keys.items() for word in ("--set", f"operator.{key.replace('__', '.')}={value}")]


def test_rollouts_grow_by_the_curriculum(runs):
    """An untrained operator that begins so repeats the first frame, and the only window is the only training trajectory from its first
    frame on: the loss of each length is known from the cached latents."""
    runs.must("train", runs.config("grow", CONFIG), *options(rollout_curriculum="[2, 4]", initial="persistence"))
    dump = runs.path("grow.npy")
    runs.must("cache", "export", runs.path("grow", "cache", "line", "train"), "-o", dump)
    z = np.load(dump)[0].astype(float).reshape(FRAMES, -1)
    far = np.linalg.norm(z - z[0], axis=1) / np.linalg.norm(z, axis=1)
    expected = [far[2:length + 1].mean() for length in (2, 4, 8)]
    told = [line["losses"]["rollout_relative"] for line in lines_of(runs, "grow")]
    assert told == pytest.approx(np.repeat(expected, 4), rel=1e-4)
    validated = [line["validation"] for line in metrics(runs.path("grow")) if line["stage"] == "operator" and "validation" in line]
    assert validated[0] == validated[1] == validated[2]  # by rollouts of one length, so that they can be compared


def test_a_run_stopped_between_two_lengths_goes_on_to_the_same_bytes(runs):
    grown = options(steps=90, log_every=15, validate_every=10, rollout_curriculum="[2, 4]", optimizer__learning_rate=0.003, losses__rollout_relative__warmup=40)
    runs.must("train", runs.config("whole", CONFIG), *grown)
    runs.train_until("operator, step 20", runs.config("stopped", CONFIG), *grown)
    runs.must("train", runs.path("stopped"), "--resume")
    models = [load_file(runs.path(run, "operator.safetensors")) for run in ("whole", "stopped")]
    assert all(np.array_equal(models[0][name], models[1][name]) for name in models[0])
    lines = [[(line["step"], line["losses"]) for line in lines_of(runs, run)] for run in ("whole", "stopped")]
    assert lines[0] == lines[1] and len(lines[0]) == 6


def test_a_loss_that_warms_up_counts_by_its_part_and_is_told_whole(runs):
    moving = dict(steps=1, optimizer__learning_rate=0.003)
    runs.must("train", runs.config("half", CONFIG), *options(losses__rollout_relative__weight=0.25, **moving))
    runs.must("train", runs.config("warm", CONFIG), *options(losses__rollout_relative__warmup=2, **moving))
    runs.must("train", runs.config("full", CONFIG), *options(**moving))
    half, warm, full = (load_file(runs.path(run, "operator.safetensors")) for run in ("half", "warm", "full"))
    assert all(np.array_equal(half[name], warm[name]) for name in half)
    assert not all(np.array_equal(full[name], warm[name]) for name in full)
    assert len({json.dumps(lines_of(runs, run)[0]["losses"]) for run in ("half", "warm", "full")}) == 1


def test_pushed_forward_the_first_loss_is_the_same_and_learning_is_not(runs):
    moving = dict(steps=4, optimizer__learning_rate=0.003)
    for name, pushed in (("through", "false"), ("pushed", "true")):
        runs.must("train", runs.config(name, CONFIG), *options(pushforward=pushed, **moving))
    told = [[line["losses"]["rollout_relative"] for line in lines_of(runs, name)] for name in ("through", "pushed")]
    assert told[0][0] == told[1][0] and told[0][-1] != told[1][-1]
    assert told[1][-1] < told[1][0]


@pytest.mark.parametrize("keys, words", [
    (dict(rollout_curriculum="[2, 8]"), ["operator.rollout_curriculum", "rollout_steps", "shorter"]),
    (dict(rollout_curriculum="[0]"), ["operator.rollout_curriculum"]),
    (dict(rollout_curriculum="[2]", losses__rollout_relative__weight=0), ["operator.rollout_curriculum", "no loss of rollouts"]),
    (dict(pushforward="true", losses__rollout_relative__weight=0), ["operator.pushforward", "no loss of rollouts"]),
])
def test_what_cannot_be_is_refused_before_anything_runs(runs, keys, words):
    one_sentence(runs.run("train", runs.config(runs.fresh(), CONFIG), *options(**keys)), *words)
