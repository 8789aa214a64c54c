"""Trajectories cut into segments: one long run is split by time, runs of different lengths become one task, and what is written of a segment
is the run's own frames at the run's own times."""

import json
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import yaml
import zarr

from commands import must, one_sentence, told, ups

LONG, SEGMENT, POINTS, STEP = 130, 12, 32, 0.25
LAYOUT = {"fields": {"u": "long"}, "axes": ["time", "x"], "time": {"dt": STEP}, "periodic": True}


def waves(times, speed=1.0):
    """(time, x): two that travel."""
    x, t = np.arange(POINTS) / POINTS, STEP * np.arange(times)[:, None]
    return (np.sin(2 * np.pi * (x - 0.1 * speed * t)) + 0.4 * np.cos(4 * np.pi * (x + 0.05 * t))).astype("f4")


def rollouts(path):
    """(name, times, prediction, truth) of each sample, in either layout: those of segments that begin at other times are groups."""
    with h5py.File(path) as f:
        names = f.attrs["ups.samples"].split(", ")
        for i, name in enumerate(names):
            group = f.get(f"{i:04}")
            if group is None:
                yield name, f["t-coordinate"][:len(f["tensor"][i])], f["tensor"][i], f["truth"][i]
            else:
                assert group.attrs["ups.sample"] == name
                yield name, group["grid/t"][:], group["data"][..., 0], group["truth"][..., 0]


def configuration(folder, name, task, **more):
    path = Path(folder) / name
    path.write_text(json.dumps({
        "output": str(Path(folder) / "run"), "precision": "f32", "data": {"root": str(folder)},
        "tasks": [{"name": "wave", "patch": [4]} | task],
        "model": {"tokens": "grid", "dim": "auto", "operator": {"hidden": 16, "depth": 1, "heads": 1}},
        "autoencoder": {"steps": 0}, "operator": {"steps": 30, "batch_size": 4}} | more))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segments")
    np.save(folder / "long.npy", waves(LONG))
    must("train", configuration(folder, "c.yaml", {"files": ["long.npy"], "segment": SEGMENT, "layout": LAYOUT}), "-q")
    return folder


def test_one_long_run_is_split_by_time_and_its_last_segment_rolled_out(run):
    truth = waves(LONG)
    must("rollout", run / "run", "-o", run / "r.h5", "--steps", 15, "-q")
    first = (LONG // SEGMENT - 1) * SEGMENT
    (name, times, prediction, told_truth), = rollouts(run / "r.h5")
    assert name == f"long[{first}:{first + SEGMENT}]"
    np.testing.assert_array_equal(told_truth, truth[first:first + SEGMENT])
    np.testing.assert_allclose(times, STEP * np.arange(first, first + 16))  # and goes on beyond the data
    np.testing.assert_allclose(prediction[0], truth[first], atol=2e-3)
    for split, count in {"train": LONG // SEGMENT - 2, "validation": 1, "test": 1}.items():
        assert told("eval", run / "run", "--split", split)["tasks"][0]["trajectories"] == count


def test_caches_hold_the_frames_of_their_segments(run):
    assert all(group["sound"] for group in told("cache", "verify", run / "run"))
    must("rollout", run / "run", "-o", run / "t.h5", "--split", "train", "-n", 99, "-q")
    for i, (name, times, _, truth) in enumerate(rollouts(run / "t.h5")):
        assert name == f"long[{i * SEGMENT}:{(i + 1) * SEGMENT}]"
        np.testing.assert_array_equal(truth, waves(LONG)[i * SEGMENT:(i + 1) * SEGMENT])
        np.testing.assert_allclose(times, STEP * np.arange(i * SEGMENT, (i + 1) * SEGMENT))


def test_a_cache_of_other_segments_is_not_taken(tmp_path):
    """Segments of 13 frames are as many, in the same splits, and of fields at rest all else is the same."""
    assert LONG // (SEGMENT + 1) == LONG // SEGMENT
    np.save(tmp_path / "long.npy", np.repeat(waves(1), LONG, 0))
    cache, said = tmp_path / "run/cache", []
    for segment in (SEGMENT, SEGMENT + 1):
        task = {"files": ["long.npy"], "segment": segment, "layout": LAYOUT}
        path = configuration(tmp_path, f"{segment}.yaml", task, output=str(tmp_path / f"run{segment}"), cache={"directory": str(cache)})
        said.append(ups("train", path, "-q"))
    assert said[0].returncode == 0
    assert "weights" not in one_sentence(said[1], "another encoder configuration")
    document = json.loads((cache / "wave/train/zarr.json").read_text())
    assert document["attributes"]["ups"]["encoder"]["segment"] == SEGMENT


def test_a_run_of_segments_is_rolled_out_whole(run):
    must("rollout", run / "run", "--set", "tasks[0].segment=0", "--split", "train", "-o", run / "whole.h5", "-q")
    (name, times, _, truth), = rollouts(run / "whole.h5")
    assert name == "long" and len(times) == LONG
    np.testing.assert_array_equal(truth, waves(LONG))


def test_runs_of_different_lengths_become_one_task(tmp_path):
    times = [40, 61, 25, 33]
    for i, count in enumerate(times):
        with h5py.File(tmp_path / f"run{i}.h5", "w") as f:
            f.create_dataset("u", data=waves(count, 1 + i), chunks=(7, POINTS), compression="gzip")
            f["t"] = STEP * np.arange(count)
    layout = {"fields": {"u": "/u"}, "axes": ["time", "x"], "time": "/t"}
    task = {"files": ["run*.h5"], "layout": layout}
    one_sentence(ups("train", configuration(tmp_path, "c.yaml", task), "-q"), "61 frames.*40 frames.*`segment`")
    task["segment"] = 26
    one_sentence(ups("train", configuration(tmp_path, "c.yaml", task), "-q"), r"run2\.h5.*25 frames, too few for a segment of 26")
    assert "tasks[0].segment: " in ups("config", "check", tmp_path / "c.yaml").stderr
    task["segment"] = 12
    must("train", configuration(tmp_path, "c.yaml", task), "-q")
    found = {}
    for split in ("train", "validation", "test"):
        must("rollout", tmp_path / "run", "-o", tmp_path / f"{split}.h5", "--split", split, "-n", 99, "-q")
        for name, at, _, truth in rollouts(tmp_path / f"{split}.h5"):
            i, start = int(name[3]), int(name.split("[")[1].split(":")[0])
            found.setdefault(split, set()).add(i)
            np.testing.assert_array_equal(truth, waves(times[i], 1 + i)[start:start + 12])
            np.testing.assert_allclose(at, STEP * np.arange(start, start + 12))
    assert sorted(i for split in found.values() for i in split) == [0, 1, 2, 3]  # a run is in one split


def write_netcdf(path, u, t):
    with netCDF4.Dataset(path, "w", format={".nc": "NETCDF4", ".nc3": "NETCDF3_CLASSIC", ".nc5": "NETCDF3_64BIT_DATA"}[path.suffix]) as f:
        f.createDimension("time", None)
        f.createDimension("x", POINTS)
        f.createVariable("time", "f8", ("time",))[:] = t
        f.createVariable("u", "f4", ("time", "x"))[:] = u


def write_zarr(path, u, t):
    group = zarr.open_group(path, mode="w")
    for name, values, chunks in (("u", u, (7, 16)), ("t", t, t.shape)):
        group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=chunks)[:] = values


OTHERS = {"long.nc": write_netcdf, "long.nc3": write_netcdf, "long.nc5": write_netcdf, "long.zarr": write_zarr,
          "long.npz": lambda path, u, t: np.savez(path, u=u, t=t), "packed.npz": lambda path, u, t: np.savez_compressed(path, u=u, t=t)}


@pytest.mark.parametrize("name", OTHERS)
def test_every_format_is_cut(tmp_path, name):
    truth, t = waves(65), STEP * np.arange(65)
    OTHERS[name](tmp_path / name, truth, t)
    task = {"files": [name], "segment": 20}
    if ".nc" not in name:
        task["layout"] = {"fields": {"u": "/u"}, "axes": ["time", "x"], "time": "/t"}
    must("train", configuration(tmp_path, "c.yaml", task, operator={"steps": 2, "batch_size": 1}), "-q")
    for split, first in {"train": 0, "validation": 20, "test": 40}.items():
        must("rollout", tmp_path / "run", "-o", tmp_path / f"{split}.h5", "--split", split, "-q")
        (_, times, _, found), = rollouts(tmp_path / f"{split}.h5")
        np.testing.assert_array_equal(found, truth[first:first + 20])
        np.testing.assert_allclose(times, t[first:first + 20])


def test_what_cannot_be_split_by_time_is_told(tmp_path):
    np.save(tmp_path / "long.npy", waves(LONG))
    layout = {"fields": {"u": "long"}, "axes": ["time", "x"]}
    by_time = {"data": {"root": str(tmp_path), "split": {"by": "time"}}}
    one_sentence(ups("train", configuration(tmp_path, "c.yaml", {"files": ["long.npy"], "layout": layout}, **by_time), "-q"), "its key `segment` cuts them")
    one_sentence(ups("train", configuration(tmp_path, "c.yaml", {"files": ["long.npy"], "layout": layout, "segment": 12, "stride": 12}), "-q"), "stride of 12")
    one_sentence(ups("train", configuration(tmp_path, "c.yaml", {"files": ["long.npy"], "layout": layout, "segment": 1}), "-q"), "tasks.0..segment: an operator needs two")


def test_points_that_move_are_not_cut(tmp_path):
    rng = np.random.default_rng(1)
    with h5py.File(tmp_path / "p.h5", "w") as f:
        f["points"], f["u"], f["t"] = rng.random((1, 60, 20, 2)), rng.random((1, 60, 20)).astype("f4"), np.arange(60.0)
    one_sentence(ups("train", configuration(tmp_path, "c.yaml", {"files": ["p.h5"], "segment": 6}), "-q"), "points that move cannot be cut")
    assert "segment" not in told("config", "init", tmp_path / "p.h5", "-o", tmp_path / "i.yaml")["tasks"][0]


@pytest.mark.parametrize("lengths, samples, segment, heading", [
    ([LONG], 1, 13, "1 sample of 130 frames, 32 points; u; cut into segments of 13 frames"),
    ([1100, 1000], 1, 50, "2 samples of 1000 to 1100 frames, 32 points; u; cut into segments of 50 frames"),
    ([40, 61, 25, 33], 1, 12, "4 samples of 25 to 61 frames, 32 points; u; cut into segments of 12 frames"),
    ([LONG] * 3, 1, None, "3 samples of 130 frames, 32 points; u"),
    ([LONG], 4, None, "4 samples of 130 frames, 32 points; u")])
def test_a_configuration_cuts_what_needs_it(tmp_path, lengths, samples, segment, heading):
    for i, length in enumerate(lengths):
        np.save(tmp_path / f"run{i}.npy", np.stack([waves(length, 1 + i + 10 * k) for k in range(samples)]))
    layout = "{fields: {u: /u}, axes: [sample, time, x]}"
    done = told("config", "init", *sorted(tmp_path.glob("*.npy")), "--layout", layout, "-o", tmp_path / "c.yaml")
    task, = done["tasks"]
    assert task.get("segment") == segment and len(task["files"]) == len(lengths)
    text = (tmp_path / "c.yaml").read_text()
    assert yaml.safe_load(text)["tasks"][0].get("segment") == segment and f"mapped, {heading}\n" in text
    must("config", "check", tmp_path / "c.yaml")


def test_inspecting_a_configuration_tells_of_segments(run):
    facts = told("data", "inspect", run / "c.yaml")[0]
    assert facts["segments_of"] == LONG and facts["time"]["frames"] == SEGMENT and facts["samples"] == LONG // SEGMENT
    assert f"a segment of a trajectory of {LONG}" in must("data", "inspect", run / "c.yaml").stdout
