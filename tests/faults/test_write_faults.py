"""Writing that fails: for every command that writes, and for the nth write, sync, rename … of it, for every n until the
command succeeds without reaching the fault. It ends with exit code 1 and one sentence; nothing half-written has a final
name; and the same command without the fault ends with the bytes of an undisturbed run.

UPS_TEST_FAULTS=all tries every n of every fault (some minutes); otherwise some, at random."""

import collections
import json
import os
import random
import re
import signal
from pathlib import Path

import pytest

from commands import must, ups
from injection import ALL, numbers, with_fault
from tiny_run import CONFIG, Sandbox

SOME = 8  # of the faults, where not all are tried
SAMPLES = 6  # of the run's data

# One task, few samples, few steps: what is written is small, and of every kind.
SMALL = CONFIG[:CONFIG.index("  - name: darcy")] + CONFIG[CONFIG.index("model:"):]
SMALL = SMALL.replace("steps: 60", "steps: 8").replace("validate_every: 30", "validate_every: 4")
SMALL = SMALL.replace("checkpoint_every: 10", "checkpoint_every: 4").replace("warmup_steps: 4", "warmup_steps: 2")
SMALL = SMALL.replace("log_every: 10", "log_every: 2").replace("rollout_steps: 3", "rollout_steps: 2")

# Calls, how they fail, and words of the sentence; None: all goes well nevertheless. A full disk stays full.
FAULTY = [("write", "+:ENOSPC", "No space left on device; make room"), ("write", ":EIO", "Input/output error; the disk"),
          ("write", "+:EDQUOT", "Disk quota exceeded; your quota"), ("write", "+:short", None), ("write", ":EINTR", None),
          ("sync", ":EIO", "Input/output error"), ("sync", ":EINTR", None), ("close", ":EDQUOT", "Disk quota exceeded"),
          ("rename", ":EIO", "Input/output error"), ("rename", "+:ENOSPC", "No space left on device"),
          ("open", "+:EROFS", "Read-only file system; it is mounted"), ("space", "+:ENOSPC", "No space left on device"),
          ("mkdir", "+:EROFS", "Read-only file system; it is mounted"), ("link", "+:ENOSPC", "No space left on device"),
          ("write,sync,rename,open,space,mkdir,link,close,unlink", ":kill", "killed")]

# A descriptor whose data was synced, or that only held a lock, may be closed badly. What is published is looked after.
# A shard that is whole under its name is taken as built; its directory is synced once more then. Entering the builders of
# a group is tried again.
COSTS_NOTHING = r"^close (?!.*\.ups-partial-)|^sync .*/latent/c/\d+/0/0$|/\.building(/|$)"


@pytest.fixture(scope="module")
def sandbox(runs):
    made = Sandbox(runs)
    config = made.config = runs.config("small", SMALL, output=made.path("run"))
    for state, command in (("encoder", ["train", config, "--stage", "autoencoder"]), ("cached", ["cache", "build", config]),
                           ("trained", ["train", config, "--stage", "operator"])):
        runs.must(*command)
        made.keep(state)
    made.begin("cached")
    group = made.path("run", "cache", "advection", "train")
    with open(os.path.join(group, "latent/c/0/0/0/0"), "r+b") as shard:
        shard.write(b"\x55\xaa\x55")
    os.truncate(os.path.join(group, "latent/zarr.json"), 100)
    made.keep("damaged")
    return made


def one_line(sandbox, done, words, what):
    assert done.returncode == 1, what + done.stderr + done.stdout
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("[")]  # [clock]: log
    assert len(lines) == 1, what + done.stderr
    assert re.search(r"^ups: .*" + re.escape(os.path.dirname(sandbox.folder)), lines[0]), what
    assert re.search(words, lines[0]), what


def nothing_torn(sandbox, before, after, what):
    """What has a final name is as it was, or as an undisturbed run leaves it, or, in the middle of a run, whole."""
    for name, content in sandbox.look().items():
        path = Path(sandbox.folder, name)
        if content in (None, before.get(name), after.get(name)) or path.is_symlink() or ".ups-" in name or path.name in ("lock", "metrics.jsonl"):
            continue
        if path.suffix == ".json" or path.name.startswith("builder-"):
            json.loads(path.read_text())
        elif path.suffix == ".safetensors":
            whole = path.read_bytes()
            head = int.from_bytes(whole[:8], "little")
            ends = [tensor["data_offsets"][1] for key, tensor in json.loads(whole[8:8 + head]).items() if key != "__metadata__"]
            assert len(whole) == 8 + head + max(ends), what + name
        else:
            pytest.fail(what + name + " is neither what it was nor what it was to be")


def counted(sandbox, state, arguments):
    """How often an undisturbed run makes each of the calls."""
    sandbox.begin(state)
    every = ",".join(sorted({call for calls, _, _ in FAULTY for call in calls.split(",")}))
    done, struck = with_fault(sandbox, arguments, f"{every}:1+:none")
    assert done.returncode == 0, done.stderr
    return collections.Counter(line.partition(" ")[0] for line in struck)


def try_all(sandbox, state, arguments, *again):
    """Runs that meet a fault, each with one after it that does not. `again`: options of the command that goes on after a failure."""
    sandbox.begin(state)
    before = sandbox.look()
    must(*arguments, "--quiet")
    after = sandbox.look()
    counts = counted(sandbox, state, arguments)
    assert counts["write"] > 0, "no write was seen: the faults do not reach the command"
    for calls, how, words in FAULTY if ALL else random.sample(FAULTY, SOME):
        for n in numbers(sum(counts[call] for call in calls.split(","))):
            sandbox.begin(state)
            fault = f"{calls}:{n}{how}"
            done, struck = with_fault(sandbox, arguments, fault)
            what = f"\nups {' '.join(arguments)}, {fault}, struck {struck[:1]}\n"
            if words is None or not struck:
                assert done.returncode == 0, what + done.stderr
                assert sandbox.look() == after, what
                continue
            if words == "killed":
                assert done.returncode == -signal.SIGKILL, what + done.stderr
            elif done.returncode != 0 or not re.search(COSTS_NOTHING, struck[0]):
                one_line(sandbox, done, words, what)
            nothing_torn(sandbox, before, after, what)
            if sandbox.look() == after:  # the fault met what comes after everything was in place
                continue
            done = ups(*arguments, *again, "--quiet")
            assert done.returncode == 0, what + "then " + done.stderr
            assert sandbox.look() == after, what


# The state to begin from; the command, where SANDBOX is the folder and CONFIG the run's configuration; what goes on after a failure.
@pytest.mark.parametrize("state, command, again", [
    ("empty", "datagen advection1d -o SANDBOX/a.h5 -n 3 -t 1 -r 16 --steps 4", ["--force"]),
    ("empty", "datagen diffreact2d -o SANDBOX/d.h5 -n 2 -t 1 -r 16 --steps 3", ["--force"]),
    ("empty", "train CONFIG --stage autoencoder", ["--resume"]),
    ("cached", "train CONFIG --stage operator", ["--resume"]),
    ("encoder", "cache build CONFIG", []),
    ("damaged", "cache verify --repair CONFIG", []),
    ("cached", "cache export SANDBOX/run/cache/advection/train --format npy -o SANDBOX/latents.npy", []),
    ("cached", "cache export SANDBOX/run/cache/advection/train --format hdf5 -o SANDBOX/latents.hdf5", []),
    ("cached", "cache export SANDBOX/run/cache/advection/train --format zarr -o SANDBOX/latents.zarr", []),
    ("cached", "cache inspect SANDBOX/run/cache --html SANDBOX/page.html", []),
    ("cached", "cache inspect SANDBOX/run/cache/advection/train --png SANDBOX/latent.png", []),
    ("empty", "data dump DATA/advection.h5 -o SANDBOX/dump.npy", []),
    ("trained", "eval CONFIG", []),
    ("trained", "rollout CONFIG -o SANDBOX/rollout.h5 --png SANDBOX/pictures --animate SANDBOX/pictures", [])])
def test_a_command_whose_writing_fails_is_told_and_given_again_ends_in_the_same_bytes(sandbox, state, command, again):
    arguments = command.replace("SANDBOX", sandbox.folder).replace("CONFIG", sandbox.config).replace("DATA", sandbox.runs.data).split()
    try_all(sandbox, state, arguments, *again)
