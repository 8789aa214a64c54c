"""What `operator.noise` and `operator.augment: shift` are for: rollouts of states that are a little off, and places that training has not
seen. Both with `positions: learned`, which does not treat all places of a periodic domain alike."""

import h5py
import numpy as np

SAMPLES = 4
POINTS, SPEED = 32, 0.03  # the way in a step, of the whole domain
CONFIG = """\
output: {output}
seed: 3
precision: f32
device: {{threads: 1}}
data: {{root: {data}, split: {{train: 1, validation: 0, test: 0}}}}
tasks:
  - {{name: wave, files: [{train}.h5], test_files: [{test}.h5], patch: [4]}}
model:
  tokens: grid
  dim: 4
  operator: {{core: stack, positions: learned, hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, drop_path: 0}}
autoencoder: {{steps: 0}}
operator:
  steps: {steps}
  batch_size: 4
  validate_every: 0
  noise: {noise}
  augment: {augment}
  optimizer: {{kind: adamw, ema_decay: 0, learning_rate: 0.003, warmup_steps: 4}}
  losses:
    relative: {{weight: 1}}
"""


def travelling(runs, name, profile, starts, frames):
    """A file of profiles that travel unchanged, each from its start; its path."""
    path = runs.generate("advection1d", name + ".h5", len(starts), "-r", str(POINTS), "--steps", str(frames))
    x = (np.arange(POINTS) + 0.5) / POINTS
    with h5py.File(path, "r+") as file:
        file["tensor"][...] = profile((x - starts[:, None, None] - SPEED * np.arange(frames)[:, None]) % 1).reshape(file["tensor"].shape)
    return path


def rollout_error(runs, **options):
    """nRMSE of whole rollouts of the test file, of a training with these options."""
    name = runs.fresh()
    runs.must("train", runs.config(name, CONFIG, **{"noise": 0, "augment": "none", **options}))
    return runs.told("eval", runs.path(name))["tasks"][0]["horizons"][-1]["model"]["nrmse"]


def test_rollouts_of_an_operator_trained_with_noise_stay_near_the_truth_from_states_that_are_a_little_off(runs):
    random = np.random.default_rng(0)
    waves = lambda x: np.sin(2 * np.pi * x) + np.sin(4 * np.pi * x) / 2
    travelling(runs, "waves", waves, random.random(12), 40)
    path = travelling(runs, "off", waves, random.random(12), 40)
    with h5py.File(path, "r+") as file:
        file["tensor"][:, 0] += 0.05 * random.normal(size=file["tensor"][:, 0].shape)
    still, noisy = (rollout_error(runs, train="waves", test="off", steps=300, noise=noise) for noise in (0, 0.3))
    assert noisy < 0.6 * still, (noisy, still)


def test_shifts_teach_places_that_no_training_window_has(runs):
    """Two short trajectories of a hump that crosses a third of the domain; in the test file humps are everywhere."""
    hump = lambda x: np.exp(-0.5 * ((x - 0.5) / 0.08) ** 2)
    travelling(runs, "few", hump, np.array([0.2, 0.3]), 5)
    travelling(runs, "everywhere", hump, np.random.default_rng(1).random(12), 5)
    still, shifted = (rollout_error(runs, train="few", test="everywhere", steps=200, augment=augment) for augment in ("none", "shift"))
    assert shifted < 0.6 * still, (shifted, still)
