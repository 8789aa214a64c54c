"""Points of other numbers, and points that move, in Python: `ups.open` reads them, and a model in one file predicts what `ups rollout` does."""

import os
import sys

import h5py
import numpy as np
import pytest

from commands import TREE, must, program, told
from test_points import configuration
from test_points_differ import COUNTS, TIMES, run, truth_of, write  # noqa: F401  (run is a fixture)
from test_points_move import POINTS, rows
from test_points_move import run as moving_run  # noqa: F401  (another)

os.environ["UPS_LIBRARY"] = program("libups.so")
sys.path.insert(0, str(TREE / "tools/python/ups"))
import ups as package  # noqa: E402


def test_the_last_point_fills_up_what_has_fewer(tmp_path):
    path = write(tmp_path / "data.h5", COUNTS, 40, 5)
    data = package.open(path)
    with h5py.File(path) as f:
        for i, count in enumerate(COUNTS):
            stored = np.concatenate([np.repeat(f["points"][i].T[None], TIMES, 0), f["u"][i][:, None]], 1)
            stored[..., count:] = stored[..., count - 1:count]
            np.testing.assert_array_equal(data[i], stored)
    assert sum(len(batch.values) for batch in data.loader(batch_size=3)) == len(COUNTS)


def test_files_of_other_lengths_are_read_as_one(tmp_path):
    """By Python and by `data inspect --together`, as a task of both is."""
    paths = [write(tmp_path / "a.h5", [3, 7], 9, 1), write(tmp_path / "b.h5", [40], 40, 2, count=None)]
    data = package.open(paths)
    with h5py.File(paths[0]) as a, h5py.File(paths[1]) as b:
        np.testing.assert_array_equal(data[1][:, 2, :7], a["u"][1, :, :7])
        np.testing.assert_array_equal(data[1][:, 2, 7:], np.repeat(a["u"][1, :, 6:7], 33, 1))
        np.testing.assert_array_equal(data[2][:, 2], b["u"][0])
        low = a["points"][0, :3, 0].min()
    together = told("data", "inspect", "--together", *paths)[0]["points"]
    assert (together["least"], together["count"]) == (3, 40) and together["box"]["x"][0] == pytest.approx(low, rel=1e-6)
    config = configuration(tmp_path, "", files=["a.h5", "b.h5"], patch=[2])
    assert told("data", "inspect", config)[0]["points"]["box"]["x"][0] == pytest.approx(low, rel=1e-6)


def test_numbers_of_two_types_are_one_task(tmp_path):
    paths = [write(tmp_path / "a.h5", [30] * 6, 30, 1), write(tmp_path / "b.h5", [30] * 6, 30, 2)]
    with h5py.File(paths[0], "r+") as f:
        wide = f["u"][:].astype("f8") * (1 + 1e-12)
        del f["u"]
        f["u"] = wide
    data = package.open(paths)
    assert data[0].dtype == data[11].dtype == np.float64
    with h5py.File(paths[1]) as b:
        np.testing.assert_array_equal(data[0][:, 2], wide[0])
        np.testing.assert_array_equal(data[11][:, 2], b["u"][5])
    must("train", configuration(tmp_path, "", files=["a.h5", "b.h5"], patch=[2]), "-q")


def test_a_model_predicts_samples_of_any_number_of_points_up_to_the_trained(run, tmp_path):
    """`ups rollout` of the run, bit for bit; and the same points in another order make the same."""
    must("export", run / "run", "-o", tmp_path / "model.safetensors", "-q")
    model = package.Model.load(tmp_path / "model.safetensors")
    with h5py.File(run / "r.h5") as r:
        for i, count in enumerate(r["count"][:]):
            points, u = truth_of(run, r["points"][i].astype("f4"))
            first = np.concatenate([points, u[0][:, None]], -1)
            predicted = model.predict(first)
            assert predicted.shape == (TIMES, count, 3)
            np.testing.assert_array_equal(predicted[..., 2], r["u"][i, :, :count])
            order = np.random.default_rng(i).permutation(count)
            np.testing.assert_array_equal(model.predict(first[order]), predicted[:, order])
        fields, latents = model.predict(first, latents=True)
        assert latents.shape[1:] == model.tasks["mesh"].latents
    with pytest.raises(package.UpsError, match="203 points .* as many points as it was trained on, or fewer"):
        model.predict(np.random.default_rng(0).random((204, 3)))
    assert model.predict(np.random.default_rng(0).random((1, 3))).shape == (TIMES, 1, 3)


@pytest.mark.parametrize("order", [["a.h5", "b.h5"], ["b.h5", "a.h5"]])
def test_what_is_missing_is_missing_among_numbers_of_two_types(tmp_path, order):
    """As HDF5 reads it by itself, which hands float32 out as float64 then."""
    layout = "{fields: {u: {array: u, missing: -77}}, axes: [sample, time, x], time: t}"
    for name, dtype in (("a.h5", "i2"), ("b.h5", "f8")):
        with h5py.File(tmp_path / name, "w") as f:
            u = np.arange(3 * TIMES * 8).reshape(3, TIMES, 8).astype(dtype)
            u[1, 2, 3] = -77
            f.create_dataset("u", data=u, chunks=(1, TIMES, 8), **({"scaleoffset": 0} if dtype == "i2" else {}))
            f["t"] = np.arange(float(TIMES))
    data = package.open([tmp_path / name for name in order], layout=layout)
    for first in (0, 3):
        assert [int(np.isnan(data[first + i]).sum()) for i in range(3)] == [0, 1, 0] and np.isnan(data[first + 1].squeeze()[2, 3])
        assert np.nanmin(data[first + 1]) == 8 * TIMES


def test_a_model_in_one_file_predicts_where_points_go(moving_run, tmp_path):
    """`ups rollout` of the run, bit for bit, and whatever order points come in."""
    must("export", moving_run / "run", "-o", tmp_path / "model.safetensors", "-q")
    model = package.Model.load(tmp_path / "model.safetensors")
    with h5py.File(moving_run / "r.h5") as r, h5py.File(moving_run / "data.h5") as f:
        of = rows(r)
        first = np.concatenate([f["points"][:][of][:, 0], f["T"][:][of][:, 0, :, None]], -1)
        predicted = model.predict(first)
        np.testing.assert_array_equal(predicted[..., :2], r["points"])
        np.testing.assert_array_equal(predicted[..., 2], r["T"])
        order = np.random.default_rng(1).permutation(POINTS)
        np.testing.assert_array_equal(model.predict(first[:, order]), predicted[:, :, order])
