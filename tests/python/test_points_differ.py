"""Samples that differ in their number of points: read as they are, trained together, and every score counts each point once."""

import re

import h5py
import numpy as np
import pytest

from commands import dump, must, one_sentence, told, ups
from test_points import configuration, save, waves

TIMES, COUNTS = 7, [3, 40, 17]


def write(path, counts, room, seed, **change):
    """Samples of so many points each, in arrays with room for more. What is behind a sample's points is no number."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 0.4, TIMES)
    points, u = np.full((len(counts), room, 2), np.nan), np.full((len(counts), TIMES, room), np.nan, "f4")
    for i, count in enumerate(counts):
        points[i, :count] = rng.random((count, 2))
        u[i, :, :count] = waves(points[i, :count], t, rng)
    data = {"points": points, "t": t, "u": u, "count": np.array(counts)} | change
    return save(path, data)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two files: one with room for 203 points, of samples that have some of them, one whose samples all have 150."""
    folder = tmp_path_factory.mktemp("differ")
    rng = np.random.default_rng(1)
    write(folder / "a.h5", rng.integers(100, 204, 18), 203, 2)
    write(folder / "b.h5", [150] * 6, 150, 3, count=None)
    must("train", configuration(folder, "a.h5", files=["a.h5", "b.h5"], patch=[2]), "-q")
    must("rollout", folder / "run", "-o", folder / "r.h5", "-q", "--png", folder / "pictures")
    return folder


def truth_of(folder, points):
    """The sample that has these points first: points and u of its own."""
    for name in ("a.h5", "b.h5"):
        with h5py.File(folder / name) as f:
            for i in range(len(f["points"])):
                count = int(f["count"][i]) if "count" in f else f["points"].shape[1]
                if np.array_equal(f["points"][i, 0].astype("f4"), points[0]):
                    return f["points"][i, :count].astype("f4"), f["u"][i][:, :count]
    raise AssertionError("no sample has these points")


def test_fields_are_those_of_h5py_and_the_last_point_fills_them_up(tmp_path):
    path = write(tmp_path / "data.h5", COUNTS, 40, 5)
    facts = told("data", "inspect", path)[0]
    assert (facts["points"]["least"], facts["points"]["count"]) == (3, 40) and facts["fields"] == ["x", "y", "u"] and "left_out" not in facts
    assert "3 to 40, other ones in each sample" in must("data", "inspect", path).stdout
    with h5py.File(path) as f:
        for i, count in enumerate(COUNTS):
            stored = np.concatenate([np.repeat(f["points"][i].T[None], TIMES, 0), f["u"][i][:, None]], 1)
            stored[..., count:] = stored[..., count - 1:count]
            np.testing.assert_array_equal(dump(path, i), stored)


def test_a_field_may_be_called_count(tmp_path):
    """What has an axis of time is no number of points."""
    path = write(tmp_path / "data.h5", [40] * 12, 40, 5, count=np.ones((12, TIMES, 40), "f4"))
    assert told("data", "inspect", path)[0]["fields"] == ["x", "y", "count", "u"]
    must("train", configuration(tmp_path, "data.h5", patch=[2]), "-q", "--stage", "autoencoder")


def test_runs_of_other_files_are_compared_by_the_same_test_samples(tmp_path):
    """Whatever the largest sample of each run's files is."""
    write(tmp_path / "a.h5", [30] * 12, 30, 1)
    write(tmp_path / "b.h5", [50] * 12, 50, 2)
    write(tmp_path / "t.h5", [20, 25, 30], 30, 3)
    for name, files in (("one", ["a.h5"]), ("two", ["a.h5", "b.h5"])):
        config = configuration(tmp_path, "", files=files, test_files=["t.h5"], patch=[2])
        must("train", config, "-q", "--set", f"output={tmp_path}/{name}")
    assert re.search(r"^mesh +3 ", must("compare", tmp_path / "one", tmp_path / "two").stdout, re.M)


@pytest.mark.parametrize("count, sentence", [
    ([3, 40, 0], "'count' says that sample 2 has 0 points; a whole number from 1 to 40"),
    ([3, 41, 17], "'count' says that sample 1 has 41 points"),
    ([3.5, 40, 17], "'count' says that sample 0 has 3.5 points"),
    ([3, 40], r"'count' has shape \(2\), where fields have 3 samples"),
    ([4, 40, 17], "'points' has no number at point 3"),
    (None, "'points' has no number at point 3"),
    (7, r"'count' has shape \(1\)"),
])
def test_broken_counts_are_refused_with_a_sentence(tmp_path, count, sentence):
    path = write(tmp_path / "data.h5", [3, 40, 17], 40, 5, count=count if count is None else np.array(count))
    one_sentence(ups("data", "inspect", path), sentence, "data.h5")


def test_files_that_differ_in_it_are_one_task_of_a_configuration(tmp_path):
    write(tmp_path / "flow1.h5", [20] * 8, 20, 5)
    write(tmp_path / "flow2.h5", [300] * 8, 300, 6)
    must("config", "init", tmp_path / "flow1.h5", tmp_path / "flow2.h5", "-o", tmp_path / "made.yaml")
    text = (tmp_path / "made.yaml").read_text()
    assert text.count("- name:") == 1 and "16 samples of 7 frames, up to 300 points" in text and "patch: [1]" in text
    must("train", tmp_path / "made.yaml", "-q", "--set", f"output={tmp_path}/made", "--set", "operator.steps=2")


def test_what_has_no_number_among_a_samples_points_is_bad(tmp_path):
    path = write(tmp_path / "data.h5", [30] * 12, 40, 5)
    with h5py.File(path, "r+") as f:
        f["u"][4, 2, 29] = np.nan
    done = ups("train", configuration(tmp_path, "data.h5", patch=[2]), "-q", "--stage", "autoencoder")
    one_sentence(done, r"sample\[4\]", code=done.returncode)


def test_rollouts_hold_each_point_once(run):
    """In the order of the file, beside the truth; and what they say of errors counts each once."""
    with h5py.File(run / "r.h5") as r:
        counts = r["count"][:]
        assert r["points"].shape[1] == 203 and len(set(counts)) > 1
        report = []
        for i, count in enumerate(counts):
            points, u = truth_of(run, r["points"][i].astype("f4"))
            assert len(points) == count
            np.testing.assert_array_equal(r["points"][i, :count].astype("f4"), points)
            np.testing.assert_array_equal(r["truth/u"][i, :, :count], u)
            np.testing.assert_allclose(r["u"][i, 0, :count], u[0], atol=2e-3)
            assert np.isfinite(r["u"][i]).all() and np.isfinite(r["points"][i]).all()
            report.append((np.sqrt(((r["u"][i, 1:, :count] - u[1:]) ** 2).mean(-1) / (u[1:] ** 2).mean(-1))).mean())
    told_errors = [t["nrmse"]["u"] for t in told("rollout", run / "run", "-o", run / "again.h5")[0]["trajectories"]]
    np.testing.assert_allclose(told_errors, report, rtol=1e-5)
    whole = told("eval", run / "run", "--set", "evaluation.horizons=[0]")["tasks"][0]["horizons"][-1]
    if whole["windows"] == len(report):
        np.testing.assert_allclose(whole["model"]["nrmse"], np.mean(report), rtol=1e-5)
    assert whole["reconstruction"]["nrmse"] < 1e-6


def test_a_rollouts_file_is_data_again(run, tmp_path):
    facts = told("data", "inspect", run / "r.h5")[0]
    with h5py.File(run / "r.h5") as r:
        assert (facts["points"]["least"], facts["points"]["count"]) == (r["count"][:].min(), r["count"][:].max())
        np.testing.assert_array_equal(dump(run / "r.h5", 0)[:, 2], r["u"][0])


def test_files_of_ones_own_hold_a_sample_each(tmp_path):
    """NPZ, of which each has as many points as it likes: fields that tell where they lie say that they are the sample's own."""
    rng = np.random.default_rng(6)
    for i, count in enumerate(rng.integers(60, 101, 12)):
        points = rng.random((count, 2)).astype("f4")
        np.savez(tmp_path / f"s{i:02}.npz", points=points, u=waves(points, np.linspace(0, 0.4, TIMES), rng), t=np.linspace(0, 0.4, TIMES))
    place = "{array: points, channel: %d, axes: [point, channel]}"
    layout = "{fields: {x: %s, y: %s, u: u}, axes: [time, point], coordinates: {point: points}, time: t}" % (place % 0, place % 1)
    facts = told("data", "inspect", tmp_path / "s03.npz", "--layout", layout)[0]
    with np.load(tmp_path / "s03.npz") as f:
        assert facts["points"]["count"] == len(f["points"]) and facts["points"]["of_each_sample"] is True
        np.testing.assert_array_equal(dump(tmp_path / "s03.npz", 0, "threads", "--layout", layout)[:, 2], f["u"])
    config = configuration(tmp_path, "", files=["s*.npz"], patch=[2])
    config.write_text(config.read_text().replace('"files"', f'"layout": {layout}, "files"'))
    must("train", config, "-q")
    whole = told("eval", tmp_path / "run")["tasks"][0]["horizons"][-1]
    assert whole["reconstruction"]["nrmse"] < 1e-6 < whole["model"]["nrmse"]
    hidden = config.read_text().replace(f"x: {place % 0}, y: {place % 1}, ", "")
    config.write_text(hidden)
    one_sentence(ups("train", config, "-q", "--set", f"output={tmp_path}/other"), "s01.npz has grid", "or give each sample its points .docs/points.md.")


def test_more_points_than_the_trained_are_warned_of(run, tmp_path):
    write(tmp_path / "big.h5", [300] * 10, 300, 8, count=None)
    write(tmp_path / "small.h5", [80] * 10, 80, 9, count=None)
    for name, words in (("big.h5", "trained on 203 points at most, and these samples have up to 300"), ("small.h5", None)):
        done = must("rollout", run / "run", "--set", f"tasks[0].files=[{tmp_path / name}]", "-o", tmp_path / f"of-{name}")
        assert words in done.stderr if words else "points at most" not in done.stderr
