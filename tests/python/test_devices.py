"""A run on a device whose work is done late (tests/model/async_device.h) ends in the same bytes as one on the CPU: weights, caches,
checkpoints, and metrics but for rates; with one set of inputs in flight and with two, and also when it goes on where the other stopped."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from commands import UPS, one_sentence, program, run
from tiny_run import CONFIG, metrics, tree

SHORT = CONFIG.replace("steps: 60", "steps: 24").replace("validate_every: 30", "validate_every: 8")
ASYNC = program("ups_async")


def start(ups, *arguments, **settings):
    late = {"UPS_TEST_DEVICE": "test-async", **{"UPS_TEST_" + name: str(value) for name, value in settings.items()}}
    return run(ups, *arguments, env={**os.environ, **late} if ups == ASYNC else None)


def must(*arguments, **settings):
    done = start(*arguments, **settings)
    assert done.returncode == 0, done.stderr
    return done


def result(runs, ups, text, **settings):
    """The files of a run, and the lines of its metrics; always in the same folder, whose name stands in them."""
    must(ups, "train", runs.config("run", text), **settings)
    files, said = tree(runs.path("run")), metrics(runs.path("run"), clock=False)
    del files["metrics.jsonl"]
    shutil.rmtree(runs.path("run"))
    return files, said


@pytest.mark.parametrize("precision", ["f32", "bf16", "fp16"])
def test_runs_end_in_the_bytes_that_they_have_on_the_cpu(runs, precision):
    text = SHORT.replace("precision: f32", "precision: " + precision)
    expected = result(runs, UPS, text)
    for settings in ({"INPUT_SETS": 1}, {"INPUT_SETS": 2}, {"SEED": 2, "DELAY": 2000}, {"CAPTURE": 0}):
        assert result(runs, ASYNC, text, **settings) == expected, settings


@pytest.mark.parametrize("residency", ["encode", "device"])
def test_a_run_without_a_cache_or_with_windows_drawn_on_the_device_ends_in_the_same_bytes(runs, residency):
    text = SHORT.replace("decode_threads: 1", f"decode_threads: 1\n  residency: {residency}")
    assert result(runs, ASYNC, text) == result(runs, UPS, text)


def test_a_run_that_goes_on_on_the_other_device_ends_in_the_same_bytes(runs):
    config = runs.config("run", SHORT.replace("precision: f32", "precision: fp16"))
    models = []
    for parts in (((UPS, 24),), ((ASYNC, 7), (UPS, 13), (ASYNC, 24))):
        for ups, steps in parts:
            held = ("--set", "autoencoder.optimizer.schedule=constant", "--set", f"autoencoder.steps={steps}")
            longer = ["--extend"] if os.path.exists(runs.path("run")) else []
            must(ups, "train", config, "--stage", "autoencoder", *held, *longer)
        files = tree(runs.path("run"))
        models.append({name: files[name] for name in files if name.startswith(("checkpoints", "autoencoder.safetensors"))})
        shutil.rmtree(runs.path("run"))
    assert len(models[0]) > 3
    assert models[0] == models[1]


def spoil(checkpoints, prefix):
    """Weights of a checkpoint so large that their products overflow."""
    path = checkpoints / json.loads((checkpoints / "latest.json").read_text())["file"]
    data = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    for name, tensor in json.loads(data[8:begin]).items():
        if name.startswith(prefix):
            first, last = tensor["data_offsets"]
            values = np.frombuffer(data, np.float32, (last - first) // 4, begin + first)
            data[begin + first : begin + last] = (np.where(values == 0, 1, values) * np.float32(1e30)).astype(np.float32).tobytes()
    path.write_bytes(data)


def test_a_loss_that_is_not_finite_is_refused_with_the_same_sentence(runs):
    must(UPS, "train", runs.config("run", SHORT))
    os.remove(runs.path("run", "state.json"))
    Path(runs.path("run", "config.yaml")).write_text(must(UPS, "config", "show", runs.config("run", CONFIG)).stdout)  # more steps
    checkpoints = Path(runs.path("run", "checkpoints"))
    spoil(checkpoints / "autoencoder", "decoder.")
    before = tree(checkpoints)
    said = set()
    for ups, sets in ((UPS, 1), (ASYNC, 1), (ASYNC, 2)):
        done = start(ups, "train", runs.config("run", CONFIG), "--resume", INPUT_SETS=sets)
        said.add(one_sentence(done, "autoencoder, step 24: the loss is not finite; the batch held "))
        assert tree(checkpoints) == before
    assert len(said) == 1
    shutil.rmtree(runs.path("run"))


def without_seconds(value):
    if isinstance(value, dict):
        return {key: without_seconds(of) for key, of in value.items() if not key.endswith("seconds")}
    return [without_seconds(of) for of in value] if isinstance(value, list) else value


def test_a_model_is_evaluated_to_the_same_numbers(runs, trained):
    expected, found = (json.loads(must(ups, "eval", trained, "--json").stdout) for ups in (UPS, ASYNC))
    assert without_seconds(found) == without_seconds(expected)
