"""`ups train --for`: as many steps of the operator as fit into a time; the run that they make is as any other."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from commands import UPS, one_sentence
from tiny_run import metrics, tree

WRONG = ["0", "-5m", "10x", "m", "", "0.5s", "1e99h", "nan"]


def steps_of(folder):
    return json.loads(Path(folder, "state.json").read_text())["operator"]["steps"]


def begun(runs, name, *options):
    """Left where a step is being measured."""
    process = subprocess.Popen([UPS, "train", runs.config(name), "-q", *options], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "measuring how long a step takes" in line:
            break
    return process


def test_steps_fit_the_time_and_make_a_run_like_any_other(runs):
    timed, plain = runs.path("timed"), runs.path("plain")
    begin = time.monotonic()
    said = runs.must("train", runs.config("timed"), "--for", "10s", "-q").stderr
    took = time.monotonic() - begin
    steps = steps_of(timed)
    assert re.search(rf"operator: {steps} steps fit into the \d+ s that are left: [\d.]+ ms a step, [\d.e-]+ s a validation, measured on \d+ steps", said)
    assert steps > 60 and 3 < took < 60, "machines beside which others work are slower in the end than they were at the beginning"
    assert re.search(rf"^  steps: {steps}$", Path(timed, "config.yaml").read_text(), re.M), "the run owns them"
    assert [line for line in metrics(timed) if line["stage"] == "operator"][-1]["step"] == steps
    assert not any(name.startswith(".trial") for name in os.listdir(timed))
    runs.must("train", runs.config("plain"), "--set", f"operator.steps={steps}", "-q")
    for name in ("autoencoder", "operator"):
        assert Path(timed, f"{name}.safetensors").read_bytes() == Path(plain, f"{name}.safetensors").read_bytes()

    before = tree(timed)
    one_sentence(runs.run("train", runs.config("timed"), "--for", "10s"), rf"the operator has begun, and has {steps} steps\. --resume .*--extend")
    one_sentence(runs.run("train", timed, "--for", "10s"), "is a run, which has its steps; --resume")
    assert tree(timed) == before


def test_a_cache_of_ones_own_and_quoted_places_are_left_clean(runs):
    cache = runs.path("it's a cache")
    runs.must("train", runs.config("placed"), "--for", "12s", "-q", "--set", f'cache.directory="{cache}"')
    assert steps_of(runs.path("placed")) > 0
    assert not [name for name in os.listdir(cache) if name.startswith(".trial")]


def test_where_no_time_is_left_what_was_done_stays(runs):
    config = runs.config("short")
    options = ["-q", "--set", "autoencoder.steps=4000", "--set", "autoencoder.checkpoint_every=4000"]
    one_sentence(runs.run("train", config, "--for", "1s", *options), r"of 1 s nothing is left for the operator.*stays in .*short: give the command again, with more time")
    assert not os.path.exists(runs.path("short", ".trial"))
    before = Path(runs.path("short", "autoencoder.safetensors")).read_bytes()
    said = runs.must("train", config, "--for", "12s", *options).stderr
    assert "autoencoder: finished earlier, skipped" in said and steps_of(runs.path("short")) > 0
    assert Path(runs.path("short", "autoencoder.safetensors")).read_bytes() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_while_it_measures_it_leaves_nothing_of_that(runs, number):
    name = runs.fresh()
    slow = ["--set", "model.operator.hidden=256", "--set", "model.operator.depth=6", "--set", "operator.batch_size=64"]
    process = begun(runs, name, "--for", "2m", *slow)
    time.sleep(0.3)
    process.send_signal(number)
    process.stderr.read()
    assert process.wait() == 128 + number
    assert not os.path.exists(runs.path(name, ".trial"))
    assert "operator" not in json.loads(Path(runs.path(name), "state.json").read_text())


def test_killed_while_it_measures_it_is_given_again(runs):
    name = runs.fresh()
    slow = ["--set", "model.operator.hidden=256", "--set", "model.operator.depth=6", "--set", "operator.batch_size=64"]
    process = begun(runs, name, "--for", "2m", *slow)
    time.sleep(0.3)
    process.kill()
    process.wait()
    one_sentence(runs.run("train", runs.config(name), "--for", "1s", "-q", *slow), "nothing is left for the operator")
    assert not os.path.exists(runs.path(name, ".trial"))


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_time_is_said(runs, text):
    one_sentence(runs.run("train", runs.config("wrong"), f"--for={text}"), "--for: '.*' is no time of a second or more; 90s, 10m and 1.5h are", code=2)


@pytest.mark.parametrize("with_it", [["--resume"], ["--restart"], ["--plan"], ["--stage", "operator"], ["--sweep", "seed=1,2"], ["--fork", "elsewhere"]])
def test_what_does_not_go_with_it_is_said(runs, with_it):
    one_sentence(runs.run("train", runs.config("wrong"), "--for", "10s", *with_it), "--for finds the steps of a run that begins", code=2)


def test_a_configuration_without_an_operator_has_none_to_find(runs):
    done = runs.run("train", runs.config("none"), "--for", "10s", "--set", "stages=[autoencoder]")
    one_sentence(done, "the stages of .*none.yaml have none")
