"""`ups train --for`: as many steps of the operator as fit into a time; the run that they make is as any other."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from commands import UPS, one_sentence
from tiny_run import metrics, tree

WRONG = ["0", "-5m", "10x", "m", "", "0.5s", "1e99h", "nan"]


def steps_of(folder):
    return json.loads(Path(folder, "state.json").read_text())["operator"]["steps"]


SLOW = ["--set", "model.operator.hidden=256", "--set", "model.operator.depth=6", "--set", "operator.batch_size=64"]


def measuring(runs, name, *options):
    """Left where a step is being measured, in a run of its own."""
    process = subprocess.Popen([UPS, "train", runs.config(name), "-q", "--for", "10m", *SLOW, *options], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "measuring how long a step takes" in line:
            break
    for _ in range(1000):
        if os.path.exists(runs.path(name, ".trial", "lock")):
            return process
        time.sleep(0.01)
    raise AssertionError("no trial has begun")


def test_steps_fit_the_time_and_make_a_run_like_any_other(runs):
    timed, plain = runs.path("timed"), runs.path("plain")
    begin = time.monotonic()
    said = runs.must("train", runs.config("timed"), "--for", "10s", "-q").stderr
    took = time.monotonic() - begin
    steps = steps_of(timed)
    assert re.search(rf"operator: {steps} steps fit into the \d+ s that are left: [\d.]+ ms a step, [\d.]+ s a validation, measured on \d+ steps", said)
    assert steps > 60 and 3 < took < 35, "machines beside which others work are slower in the end than they were at the beginning"
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
    assert not [name for name in os.listdir(cache) if "trial" in name]


def test_where_no_time_is_left_what_was_done_stays(runs):
    config = runs.config("short")
    options = ["-q", "--set", "autoencoder.steps=4000", "--set", "autoencoder.checkpoint_every=4000"]
    one_sentence(runs.run("train", config, "--for", "1s", *options), r"1 s are too short: .*What is done stays in .*short: give the command again, with more time")
    assert not os.path.exists(runs.path("short", ".trial"))
    before = Path(runs.path("short", "autoencoder.safetensors")).read_bytes()
    said = runs.must("train", config, "--for", "12s", *options).stderr
    assert "autoencoder: finished earlier, skipped" in said and steps_of(runs.path("short")) > 0
    assert Path(runs.path("short", "autoencoder.safetensors")).read_bytes() == before


def test_what_only_many_steps_have_room_for_is_no_hindrance(runs):
    """The trial has the run's own steps, of which it does the first."""
    name = runs.fresh()
    runs.must("train", runs.config(name), "--for", "10s", "-q", "--set", "operator.optimizer.schedule=wsd", "--set", "operator.optimizer.warmup_steps=40",
              "--set", "operator.validate_every=0", "--set", "operator.checkpoint_every=0", "--set", "tasks[1].from=50")
    assert steps_of(runs.path(name)) > 50


def test_what_begins_later_is_warned_of(runs):
    name = runs.fresh()
    said = runs.must("train", runs.config(name), "--for", "10s", "-q", "--set", "operator.rollout_curriculum=[2]").stderr
    assert "what begins later was not measured (rollouts that grow): training will take longer" in said


def test_what_needs_no_cache_gets_none(runs):
    name = runs.fresh()
    runs.must("train", runs.config(name), "--for", "10s", "-q", "--set", "data.residency=encode")
    assert steps_of(runs.path(name)) > 0 and not os.path.exists(runs.path(name, "cache"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_while_it_measures_it_leaves_nothing_of_that(runs, number):
    name = runs.fresh()
    process = measuring(runs, name)
    process.send_signal(number)
    said = process.stderr.read()
    assert process.wait() == 128 + number
    assert "stopped while the operator's steps were measured. Of the operator nothing is done; what is stays in" in said
    assert not os.path.exists(runs.path(name, ".trial"))
    assert "operator" not in json.loads(Path(runs.path(name), "state.json").read_text())


def test_two_at_once_do_not_disturb_each_other(runs):
    name = runs.fresh()
    first = measuring(runs, name)
    one_sentence(runs.run("train", runs.config(name), "--for", "10m", "-q", *SLOW), r"\.trial")
    assert first.poll() is None, "the first goes on"
    first.terminate()
    first.stderr.read()
    assert first.wait() == 128 + signal.SIGTERM


def test_killed_while_it_measures_it_is_given_again(runs):
    name = runs.fresh()
    process = measuring(runs, name)
    process.kill()
    process.wait()
    assert os.path.exists(runs.path(name, ".trial"))
    one_sentence(runs.run("train", runs.config(name), "--for", "1s", "-q", *SLOW), "are too short")
    assert not os.path.exists(runs.path(name, ".trial"))


def test_stopped_before_the_operator_it_is_resumed(runs):
    name = runs.fresh()
    config = runs.config(name)
    long = ["--set", "autoencoder.steps=1200"]  # a second or two; beside much else fewer than fifteen
    runs.train_until("autoencoder, step 30 of", config, "--for", "1m", *long)
    one_sentence(runs.run("train", config, "--for", "15s", "-q", *long), "--resume")
    done = runs.must("train", config, "--for", "15s", "-q", "--json", "--resume", *long)
    assert json.loads(done.stdout)["stages"]["operator"]["steps"] == steps_of(runs.path(name)) > 0


def test_what_is_measured_is_what_will_be_trained(runs):
    """An operator that is given only now, of a run whose other stages have finished."""
    name = runs.fresh()
    encoded = ["--set", "data.residency=encode", "-q"]
    runs.must("train", runs.config(name), "--stage", "autoencoder", *encoded)
    said = runs.must("train", runs.config(name), "--for", "10s", *encoded, *SLOW).stderr
    steps = steps_of(runs.path(name))
    assert f"operator: {steps} steps fit" in said
    assert "hidden: 256" in Path(runs.path(name), "config.yaml").read_text() and 0 < steps < 500, "of the small one it would be thousands"


def test_with_resume_it_is_the_runs_own_operator(runs):
    name = runs.fresh()
    config = runs.config(name)
    runs.train_until("autoencoder, step 30 of", config, "--set", "autoencoder.steps=1200")
    text = Path(config).read_text()
    Path(config).write_text(text.replace("operator: {hidden: 16", "operator: {hidden: 32").replace("  steps: 60", "  steps: 1200", 1))
    runs.must("train", config, "--for", "15s", "-q", "--resume")
    assert load_file(runs.path(name, "operator.safetensors"))["operator.blocks.0.mlp.up.weight"].shape == (32, 16)
    assert re.search(r"^    hidden: 16", Path(runs.path(name), "config.yaml").read_text(), re.M)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_time_is_said(runs, text):
    one_sentence(runs.run("train", runs.config("wrong"), f"--for={text}"), r"--for: ('.*' is not a time; 90s, 10m, 1.5h|.* is out of range; 1 to 1e\+09 seconds)", code=2)


@pytest.mark.parametrize("with_it", [["--extend"], ["--restart"], ["--plan"], ["--stage", "operator"], ["--sweep", "seed=1,2"], ["--fork", "elsewhere"]])
def test_what_does_not_go_with_it_is_said(runs, with_it):
    one_sentence(runs.run("train", runs.config("wrong"), "--for", "10s", *with_it), "--for finds the steps of a run that begins", code=2)


def test_a_configuration_without_an_operator_has_none_to_find(runs):
    done = runs.run("train", runs.config("none"), "--for", "10s", "--set", "stages=[autoencoder]")
    one_sentence(done, "the stages of .*none.yaml have none")
