"""The operator trained without a cache, on fields that are encoded on the fly: the same run, to the byte, as from the cache, and what it
refuses."""

import json
import os
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from tiny_run import CONFIG, metrics, tree

ENCODE = ("--set", "data.residency=encode")
NO_MEMORY = ("--set", "data.residency_memory=0.000001")
THREADS = ("--set", "data.decode_threads=3")


def cache(folder, *splits):
    """The groups of a cache with all their bytes."""
    found = tree(os.path.join(folder, "cache"))
    return {name: hashed for name, hashed in found.items() if name.split(os.sep)[1:2] and name.split(os.sep)[1] in splits}


@pytest.fixture(scope="module")
def runs(runs):
    """`before` has a trained encoder and no cache; `cached` is the whole run. All runs lie in the same folder, one after the other, since
    config.yaml names it."""
    runs.yaml, runs.here, runs.before, runs.cached = runs.config("run"), runs.path("run"), runs.path("before"), runs.path("cached")
    runs.must("train", runs.yaml, "--stage", "autoencoder")
    shutil.copytree(runs.here, runs.before)
    runs.must("train", runs.yaml)
    shutil.copytree(runs.here, runs.cached)
    return runs


@pytest.fixture(autouse=True)
def begin(runs):
    put(runs, runs.before)


def put(runs, state):
    shutil.rmtree(runs.here)
    shutil.copytree(state, runs.here)


def train(runs, *options):
    return runs.must("train", runs.yaml, "--stage", "operator", *options)


def assert_trained_as_from_the_cache(runs):
    found, expected = tree(runs.here), tree(runs.cached)
    for name in {*found, *expected}:
        # Settings differ, and so does what clocks said; the state does not list the cache.
        if name.startswith("cache") or name in ("config.yaml", "metrics.jsonl", "state.json"):
            continue
        assert found.get(name, "absent") == expected.get(name, "absent"), name
    assert any(name.startswith("checkpoints/operator") for name in found)
    assert metrics(runs.here, clock=False) == metrics(runs.cached, clock=False)


# ---- the same run ----

def test_a_run_without_a_cache_is_the_run_from_the_cache_to_the_byte(runs):
    for options in (ENCODE, (*ENCODE, *NO_MEMORY, *THREADS), (*ENCODE, *THREADS, "--set", "data.io=threads")):
        put(runs, runs.before)
        said = train(runs, *options).stderr
        assert "fields are encoded on the fly (residency: encode)" in said
        assert_trained_as_from_the_cache(runs)
        assert not os.path.exists(os.path.join(runs.here, "cache"))
        lines = [line for line in metrics(runs.here) if line["stage"] == "operator" and "loader" in line]
        assert {line["loader"]["residency"] for line in lines} == {"encode"}
        assert (lines[-1]["loader"]["resident_share"] == 1) == (NO_MEMORY[1] not in options)


def test_auto_encodes_where_no_complete_cache_is_and_says_so_in_a_sentence(runs):
    said = train(runs).stderr
    assert said.count("the cache of advection/train is not complete") == 1, said
    assert_trained_as_from_the_cache(runs)
    put(runs, runs.cached)
    shutil.rmtree(os.path.join(runs.here, "cache", "darcy", "validation"))
    said = train(runs, "--restart").stderr
    assert "the cache of darcy/validation is not complete" in said
    assert re.search(r"(\d+) of \1 encoded samples stay in memory", said)
    assert_trained_as_from_the_cache(runs)


def test_all_stages_without_a_cache_leave_it_out(runs):
    said = runs.must("train", runs.yaml, *ENCODE).stderr
    assert "cache: not built" in said
    assert not os.path.exists(os.path.join(runs.here, "cache"))
    assert_trained_as_from_the_cache(runs)


def test_an_error_bound_is_held_as_the_cache_holds_it(runs):
    bound = ("--set", "cache.max_abs_error=0.01")
    runs.must("cache", "build", runs.yaml, *bound)
    train(runs, *bound)
    expected = Path(runs.here, "operator.safetensors").read_bytes()
    for options in (ENCODE, (*ENCODE, *NO_MEMORY)):
        train(runs, "--restart", *bound, *options)
        assert Path(runs.here, "operator.safetensors").read_bytes() == expected
    assert Path(runs.cached, "operator.safetensors").read_bytes() != expected


def test_fields_are_encoded_from_any_storage_as_a_build_encodes_them(runs):
    forms = {"double": {"dtype": ">f8"},
             "chunks": {"dtype": "<f8", "chunks": (1, 4, 9), "compression": "gzip", "shuffle": True},
             "library": {"dtype": "<f4", "chunks": (2, 9, 32), "scaleoffset": 4}}  # a filter that only HDF5 itself undoes
    for name, form in forms.items():
        path = os.path.join(runs.data, name + ".h5")
        with h5py.File(os.path.join(runs.data, "advection.h5")) as given, h5py.File(path, "w") as made:
            for key in given:
                made.create_dataset(key, data=given[key][:], **(form if key == "tensor" else {}))
            made.attrs.update(given.attrs)
        config = runs.config(name, CONFIG.replace("[advection.h5]", f"[{name}.h5]").replace("steps: 60", "steps: 12"))
        runs.must("train", config)
        model = runs.path(name, "operator.safetensors")
        expected = Path(model).read_bytes()
        for options in (ENCODE, (*ENCODE, *NO_MEMORY, *THREADS)):
            runs.must("train", config, "--stage", "operator", "--restart", *options)
            assert Path(model).read_bytes() == expected


def test_a_plan_counts_encoders(runs):
    def plan(*options):
        return runs.told("train", runs.yaml, "--plan", *options)["operator"]

    assert not plan()["encodes"]  # the cache stage comes before
    assert plan("--stage", "operator")["encodes"]
    assert plan(*ENCODE)["encoders"] > 0


# ---- what is refused ----

def refused(runs, *options, **replaced):
    config = runs.config("run", replaced["text"]) if replaced else runs.yaml
    done = runs.run("train", config, "--stage", "operator", "--quiet", *options)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("value", ["true"])
def test_filling_a_cache_while_training_is_refused_with_what_to_do_instead(runs, value):
    said = refused(runs, "--set", f"cache.fill={value}")
    assert "cache.fill" in said
    assert "ups cache build" in said


def test_without_its_trained_encoder_it_says_what_to_run(runs):
    os.remove(os.path.join(runs.here, "autoencoder.safetensors"))
    assert "--stage autoencoder" in refused(runs, *ENCODE)


def test_an_encoder_of_another_configuration_is_refused(runs):
    own = Path(runs.here, "config.yaml")
    own.write_text(own.read_text().replace("frequencies: [1, 2]", "frequencies: [1, 3]"))
    try:
        said = refused(runs, *ENCODE, text=CONFIG.replace("frequencies: [1, 2]", "frequencies: [1, 3]"))
        assert "was trained with another advection." in said
    finally:
        runs.config("run")


def test_a_stale_cache_is_not_read(runs):
    put(runs, runs.cached)
    before = cache(runs.here, "train", "validation", "test")
    runs.must("train", runs.config("other"), "--stage", "autoencoder", "--set", "autoencoder.steps=61")
    shutil.copy(runs.path("other", "autoencoder.safetensors"), runs.here)
    said = refused(runs, "--restart")
    assert "--restart" in said
    assert re.search("encoder", said)
    assert cache(runs.here, "train", "validation", "test") == before
    train(runs, "--restart", *ENCODE)  # reads none
    assert cache(runs.here, "train", "validation", "test") == before


# ---- what scripts are told ----

def test_a_build_tells_scripts_what_it_took_and_where_the_time_went(runs):
    groups = runs.told("cache", "build", runs.yaml)
    assert [(of["task"], of["split"]) for of in groups] \
        == [(task, split) for task in ("advection", "darcy") for split in ("train", "validation", "test")]
    for of in groups:
        assert (of["skipped"], of["encoded"], of["extended_from"]) == (0, of["samples"], 0)
        frames = {"advection": 9, "darcy": 2}[of["task"]]
        assert of["raw_bytes"] == of["samples"] * frames * 8 * 8 * 2
        assert of["source_bytes"] == pytest.approx(of["field_gb_per_s"] * of["seconds"] * 1e9, abs=0.5)
        assert of["frames_per_s"] * of["seconds"] == pytest.approx(of["samples"] * frames, abs=0.5e-3)
        assert of["processors"] == 1
        assert of["processor_use"] > 0
        assert of["processor_use"] * of["seconds"] == pytest.approx(of["processor_seconds"], abs=0.5e-7)
        stages = of["stages"]
        assert list(stages) == ["read", "decode", "encode", "compress", "publish", "idle"]
        for name, stage in stages.items():
            assert sorted(stage) == ["processor_seconds", "seconds"]
            assert 0 <= stage["seconds"] <= 3 * of["seconds"], name  # of three threads at most
        for name in ("encode", "compress", "publish"):
            assert stages[name]["seconds"] > 0, name
        assert sum(stage["processor_seconds"] for stage in stages.values()) <= of["processor_seconds"] + 0.02
        tenths = of["trajectories_per_s_by_tenth"]
        assert len(tenths) <= 10 and all(rate > 0 for rate in tenths)
        assert (len(tenths) > 0) == (of["encoded"] >= 10)
        assert sum(of["encoded"] / 10 / rate for rate in tenths) <= of["seconds"]
    again = runs.told("cache", "build", runs.yaml)
    for of, before in zip(again, groups):
        assert (of["encoded"], of["stored_bytes"]) == (0, before["stored_bytes"])
        assert "stages" not in of  # nothing took any time


def test_the_runs_own_encoder_is_timed_apart_and_on_all_processors(runs):
    bench = ("bench", "encode", runs.yaml, "--runs", "1", "--seconds", "0.05", "--json")
    for options, task, frames in (((), "advection", 9), (("--task", "darcy"), "darcy", 2)):
        found = json.loads(runs.must(*bench, *options).stdout)
        assert sorted(found) == ["apart", "frames_per_s", "frames_per_trajectory", "fused", "task"]
        assert (found["task"], found["frames_per_trajectory"]) == (task, frames)
        for way in (found["apart"], found["fused"]):
            assert sorted(way) == ["cpu_us_per_frame", "encoders", "frames_per_s", "threads"]
            assert (way["encoders"], way["threads"]) == (1, 1)  # device.threads
            assert way["cpu_us_per_frame"] > 0
            assert way["cpu_us_per_frame"] * way["frames_per_s"] < 2e6 * os.cpu_count()  # clocks are coarse
        assert found["frames_per_s"] == max(found["apart"]["frames_per_s"], found["fused"]["frames_per_s"])
    done = runs.run(*bench, "--task", "nonsense")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "usage"


def test_samples_that_are_not_finite_stop_training_or_are_left_out_as_in_a_build(runs):
    whole = os.path.join(runs.data, "advection.h5")
    shutil.copy(whole, whole + ".whole")
    try:
        with h5py.File(whole, "r+") as file:
            for sample in (0, 2, 5):
                file["tensor"][sample, 4:6, 3] = np.nan
        skip = ("--set", "data.on_bad_sample=skip")
        said = refused(runs, *ENCODE)
        assert re.search(r"task advection, sample tensor\[[025]\] \(.*advection.h5\): \d+ NaN values, first at frame \d", said)
        assert "fields that are not finite" in said
        said = train(runs, "--restart", *ENCODE, *skip).stderr
        assert "skipped: task advection, sample tensor" in said
        runs.must("cache", "build", runs.yaml, *skip)
        document = json.loads(Path(runs.here, "cache", "advection", "train", "zarr.json").read_text())
        left_out = [entry["source_sample"] for entry in document["attributes"]["ups"]["result"]["skipped"]]
        assert len(left_out) > 0
        for sample in left_out:
            assert said.count(f"skipped: task advection, sample tensor[{sample}]") <= 1, said
    finally:
        os.replace(whole + ".whole", whole)
