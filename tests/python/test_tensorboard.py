"""The event file of a run, read by TensorBoard's own code: every number of metrics.jsonl and nothing else, also of a run that was killed and
goes on from an earlier checkpoint, was extended, begun anew, forked or swept, and for a TensorBoard that looked on meanwhile."""

import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from commands import TIMEOUT, UPS, limit, one_sentence
from event_files import assert_shown, event_files, shown, told, watch
from tiny_run import metrics


def latest(folder):
    return json.loads(Path(folder, "checkpoints", "operator", "latest.json").read_text())["step"]


def last_step(folder):
    return max(line["step"] for line in metrics(folder) if line["stage"] == "operator")


@pytest.fixture(scope="module")
def killed(runs):
    """A run that was stopped, went on, and was killed some way behind its last checkpoint."""
    config, folder = runs.config("killed"), runs.path("killed")
    runs.train_until("operator, step 30", config, "--set", "operator.steps=8000")
    going = ("--set", "operator.checkpoint_every=0", "--set", "operator.log_every=40")
    process = subprocess.Popen([UPS, "train", config, "-q", "--resume", *going], stderr=subprocess.DEVNULL)
    began, enough = time.monotonic(), str(latest(folder) // 40 * 40 + 400)
    while f'"operator","step":{enough},' not in Path(folder, "metrics.jsonl").read_text():
        assert process.poll() is None and time.monotonic() < began + TIMEOUT
        time.sleep(0.002)
    process.kill()
    assert process.wait(TIMEOUT) == -signal.SIGKILL
    return "killed"


def test_all_that_the_metrics_say_is_shown(runs, trained):
    _, folder = runs.copy("trained")
    assert_shown(folder)
    tags = set(shown(watch(folder)))
    for tag in ("loss", "task_loss/advection", "losses/rollout", "learning_rate", "gradient_norm", "samples_per_s", "data_wait_share",
                "loader/waited_s", "validation/darcy", "score"):
        assert f"operator/{tag}" in tags
    before = event_files(folder)[0].read_bytes()
    runs.must("train", folder, "--resume")
    assert [path.read_bytes() for path in event_files(folder)] == [before], "a finished run stays as it is"


def test_a_run_that_was_killed_shows_no_point_twice(runs, killed):
    config, folder = runs.copy(killed)
    looking, undone = watch(folder), last_step(folder)
    assert shown(looking)["operator/loss"][-1][0] in (undone, undone - 40) and undone > latest(folder) + 300, "steps that will be done again"
    runs.must("train", config, "--resume", "--set", "operator.log_every=30")
    assert_shown(folder)
    steps = [step for step, _, _ in shown(watch(folder))["operator/loss"]]
    assert steps == sorted(set(steps)) and steps[-1] == 8000
    assert not any(step % 40 == 0 and step % 30 for step in steps if step > latest(folder) and step < 8000)
    assert shown(looking.Reload()) == told(folder), "a TensorBoard that was there before the kill"


@pytest.mark.parametrize("lost", ["nothing", "a record", "half a record", "the end of a checksum", "all records", "the file"])
def test_what_a_kill_left_of_the_file_is_completed(runs, lost):
    """The line of the metrics is written before the event."""
    name = runs.fresh()
    config, folder = runs.config(name), runs.path(name)
    runs.train_until("operator, step 30", config, "--set", "operator.checkpoint_every=1", "--set", "operator.steps=500")
    (path,) = event_files(folder)
    whole, last, at = path.read_bytes(), 0, 0
    while at < len(whole):  # a record: eight bytes of length, a checksum, the event, its checksum
        last, at = at, at + 16 + int.from_bytes(whole[at:at + 8], "little")
    assert at == len(whole)
    kept = {"nothing": at, "a record": last, "half a record": (last + at) // 2, "the end of a checksum": at - 1, "all records": 0}
    if lost == "the file":
        path.unlink()
    else:
        path.write_bytes(whole[:kept[lost]])
    inode = path.stat().st_ino if path.exists() else None
    runs.must("train", config, "--resume", "--set", "operator.checkpoint_every=1000")
    assert_shown(folder)
    (path,) = event_files(folder)
    assert inode in (None, path.stat().st_ino), "TensorBoard may have it open"


def test_a_file_that_says_something_else_is_made_anew(runs):
    name = runs.fresh()
    config, folder = runs.config(name), runs.path(name)
    runs.train_until("operator, step 30", config, "--set", "operator.steps=2000")
    (path,) = event_files(folder)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    other = Path(folder, "events.out.tfevents.1700000000.host.1.0")
    other.write_bytes(b"")
    runs.must("train", config, "--resume")
    assert_shown(folder)
    assert other.exists(), "another program's"


def test_runs_that_are_extended_begun_anew_forked_and_swept_show_their_own_metrics(runs, trained):
    _, folder = runs.copy("trained")
    looking = watch(folder)
    runs.must("train", folder, "--extend", "--set", "operator.steps=90")
    assert_shown(folder)
    assert shown(watch(folder))["operator/loss"][-1][0] == 90
    assert shown(looking.Reload()) == told(folder)

    runs.must("train", folder, "--restart", "--set", "operator.steps=40")
    assert_shown(folder)
    assert shown(watch(folder))["operator/loss"][-1][0] == 40
    assert shown(looking.Reload()) == told(folder)

    fork = runs.path(runs.fresh())
    runs.must("train", folder, "--fork", fork, "--set", "operator.optimizer.learning_rate=0.001")
    assert_shown(fork)
    assert {tag.split("/")[0] for tag in shown(watch(fork))} == {"autoencoder", "operator"}

    runs.must("train", fork, "--sweep", "operator.optimizer.learning_rate=2e-3,3e-3")
    for rate in ("2e-3", "3e-3"):
        assert_shown(os.path.join(fork, f"learning_rate={rate}"))


def test_numbers_that_are_not_finite_are_not_shown(runs):
    """JSON has none: they are null."""
    name = runs.fresh()
    runs.must("train", runs.config(name), "--stage", "autoencoder", "--set", "data.split={train: 0.8, validation: 0, test: 0.2}")
    lines = metrics(runs.path(name))
    assert any(line.get("score", 0) is None for line in lines)
    assert_shown(runs.path(name))


def test_a_file_that_cannot_be_written_is_told_of_before_training_begins(runs):
    name = runs.fresh()
    Path(runs.path(name, "events.out.tfevents.9000000000.ups")).mkdir(parents=True)
    one_sentence(runs.run("train", runs.config(name), "-q"), "events.out.tfevents.9000000000.ups: is a directory")
    assert not os.path.exists(runs.path(name, "checkpoints"))


def test_a_disk_that_fills_up_ends_training_with_a_sentence_and_what_goes_on_is_shown_whole(runs):
    """A limit on the size of files that the event file meets first: it is larger than metrics.jsonl, and checkpoints are smaller."""
    name = runs.fresh()
    config, folder = runs.config(name), runs.path(name)
    often = ("--set", "operator.steps=3000", "--set", "operator.log_every=1")
    one_sentence(runs.run("train", config, "-q", *often, preexec_fn=limit(resource.RLIMIT_FSIZE, 600_000)), "events.out.tfevents", "limit on file size")
    assert shown(watch(folder))["operator/loss"][-1][0] > 100
    runs.must("train", config, "--resume")
    assert_shown(folder)
