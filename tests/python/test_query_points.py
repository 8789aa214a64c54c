"""What `autoencoder.query_sampling` draws, seen in the loss of a model that stands still: fields are made so that its error at a point
tells where the point lies."""

import numpy as np
import pytest

from tiny_run import metrics

SAMPLES = 4
PATCH, POINTS = 8, 32  # along each axis
CONFIG = """\
output: {output}
precision: f32
device: {{threads: 1}}
data: {{root: {data}, split: {{train: 1, validation: 0, test: 0}}}}
tasks:
  - name: field
    files: ["{dims}d.npy"]
    patch: [8]
    layout: {{fields: {{u: 0}}, axes: [sample, time{axes}, channel], periodic: true}}
model: {{tokens: grid, dim: 1, operator: {{core: spectral}}}}
autoencoder:
  gate: 0
  steps: {steps}
  batch_size: 2
  queries: {queries}
  query_sampling: {sampling}
  log_every: 1
  validate_every: 0
  checkpoint_every: 1000
  optimizer: {{learning_rate: 0, warmup_steps: 0}}
  losses: {{inverse_decoding: {{weight: 1}}, relative: {{weight: 0}}}}
"""


def patterned(runs, dims, kept, lost):
    """A file of fields whose every patch is ± kept ± lost, patterns at right angles. With one number a token the model finds `kept` again
    and errs by `lost`; the squares of that, over the grid, as the loss has them."""
    cells = (POINTS // PATCH,) * dims
    signs = np.random.default_rng(1).permutation(np.tile([[1, 1], [1, -1], [-1, 1], [-1, -1]], (np.prod(cells) // 4, 1))).T
    tiled = [np.tile(pattern, cells) * np.kron(sign.reshape(cells), np.ones((PATCH,) * dims)) for pattern, sign in zip((kept, lost), signs)]
    field = sum(tiled)
    frames = np.broadcast_to(field[..., None], (SAMPLES, 2, *field.shape, 1)) * np.where(np.arange(SAMPLES) % 2, -1, 1).reshape(-1, *[1] * (dims + 2))
    np.save(runs.path("data", f"{dims}d.npy"), frames.astype("f4"))
    return tiled[1] ** 2 / field.var()


def losses(runs, dims, sampling, queries, steps):
    name = runs.fresh()
    path = runs.config(name, CONFIG, dims=dims, axes="".join(f", {axis}" for axis in "xyz"[:dims]), sampling=sampling, queries=queries, steps=steps)
    runs.must("train", path, "--stage", "autoencoder")
    return np.array([line["losses"]["inverse_decoding"] for line in metrics(runs.path(name)) if "losses" in line])


@pytest.mark.parametrize("dims", [1, 2])
def test_stratified_points_are_one_from_each_part_of_the_grid(runs, dims):
    """Errors differ from one row of four points to the next and are equal within it. One point of each row makes the mean over the grid, in
    every step; one of every two rows makes it on average, since either may be drawn."""
    rows = np.kron(np.arange(1, 2 * PATCH ** (dims - 1) + 1), np.ones(PATCH // 2)).reshape((PATCH,) * dims)
    squares = patterned(runs, dims, kept=100 * np.resize([1, -1], PATCH ** dims).reshape(rows.shape), lost=rows)
    one, either, any_of_all = (losses(runs, dims, *drawn, 20) for drawn in
                               (("stratified", squares.size // 4), ("stratified", squares.size // 8), ("uniform", squares.size // 4)))
    assert one == pytest.approx(np.full(20, squares.mean()), rel=1e-4)
    for varied in (either, any_of_all):
        assert varied.std() > 0.005 * varied.mean() and varied.mean() == pytest.approx(squares.mean(), rel=0.15)


@pytest.mark.parametrize("dims", [1, 2])
def test_a_curriculum_draws_from_every_eighth_point_along_each_axis_then_from_ever_more(runs, dims):
    places = np.stack(np.meshgrid(*[np.arange(PATCH)] * dims, indexing="ij"))
    finest = np.gcd.reduce(np.gcd(places, 8))  # of 8, 4, 2, 1 the largest that divides a point's place along every axis
    lost = np.select([finest == 8, finest == 4, finest == 2], [0, 1, 10**0.5], 10)
    squares = patterned(runs, dims, kept=1000.0 * (finest == 8), lost=lost)
    found = losses(runs, dims, "curriculum", 32, 80).reshape(4, 20).mean(1)
    assert found[0] < 1e-4 * squares.max()
    for quarter, stride in ((1, 4), (2, 2), (3, 1)):
        assert found[quarter] == pytest.approx(squares[(slice(None, None, stride),) * dims].mean(), rel=0.15), stride
