"""Commands that are stopped at any moment, by SIGKILL or by SIGTERM or SIGINT, and given again, end with the same bytes as
one that nothing disturbed.

UPS_TEST_KILLS sets how many kills there are, over all commands that write. The moments are drawn; how fast the machine
happens to be decides how long a test takes, and nothing else."""

import os
import random
import re
import signal
import subprocess
import time

import pytest

from commands import TIMEOUT, UPS, must
from tiny_run import CONFIG, metrics, tree, Sandbox

KILLS = int(os.environ.get("UPS_TEST_KILLS", "45"))
KILLS_A_RUN = 3  # then it may finish, and its bytes are compared

# How tasks are drawn changes while it runs: by validation losses, and one task enters late. Lines of the metrics fall
# between checkpoints.
CHANGING = (CONFIG.replace("steps: 60", "steps: 160").replace("log_every: 10", "log_every: 7")
            .replace("validate_every: 30", "validate_every: 20")
            .replace("decode_threads: 1", "decode_threads: 1\n  sampling: difficulty")
            .replace("[darcy.h5]", "[darcy.h5]\n    from: 20\n    ramp: 100"))


class Command:
    """What is given again until it is done. `states`: how many different ones its kills have to leave."""

    def __init__(self, before, arguments, states):
        self.before, self.arguments, self.states = before, arguments, states
        self.seconds, self.after = 0, {}


@pytest.fixture(scope="module")
def sandbox(runs):
    """Each command has run once, undisturbed: how long it takes and what it leaves is known."""
    made = Sandbox(runs)
    config = runs.config("changing", CHANGING, output=made.path("run"))
    cache, group = made.path("run", "cache"), made.path("run", "cache", "advection", "train")
    made.commands = {
        "datagen": Command("empty", ["datagen", "diffreact2d", "-o", made.path("made.h5"), "-n", "6", "-t", "1", "-r", "16", "--steps", "6",
                                     "--force"], 3),
        "autoencoder": Command("empty", ["train", config, "--stage", "autoencoder", "--resume"], 4),
        "cache": Command("encoder", ["cache", "build", config], 4),
        "operator": Command("cached", ["train", config, "--stage", "operator", "--resume"], 4),
        "repair": Command("damaged", ["cache", "verify", cache, "--repair"], 2),
        "npy": Command("cached", ["cache", "export", group, "--force", "-o", made.path("latents.npy")], 1),
        "hdf5": Command("cached", ["cache", "export", group, "--format", "hdf5", "--force", "-o", made.path("latents.h5")], 1),
        "zarr": Command("cached", ["cache", "export", group, "--format", "zarr", "-o", made.path("latents.zarr")], 1),
        "rollout": Command("trained", ["rollout", config, "-n", "9", "-o", made.path("out.h5"), "--png", made.path("pictures"), "--animate", made.path("animations")], 2),
        "eval": Command("trained", ["eval", config], 1),
    }
    leaves = {"autoencoder": "encoder", "cache": "cached", "operator": "trained"}
    for name in [*leaves, *(name for name in made.commands if name not in leaves)]:
        command = made.commands[name]
        made.begin(command.before)
        began = time.monotonic()
        runs.must(*command.arguments)
        command.seconds, command.after = time.monotonic() - began, made.look()
        if name in leaves:
            made.keep(leaves[name])
        if name == "operator":
            made.begin("cached")
            damage(cache)
            made.keep("damaged")
    return made


def damage(cache):
    """A shard is gone, one is cut, one has other bytes."""
    shards = sorted(os.path.join(at, name) for at, _, names in os.walk(cache + "/advection/train/latent/c") for name in names)
    os.remove(shards[0])
    with open(shards[1], "r+b") as file:
        file.truncate(os.path.getsize(shards[1]) // 2)
    with open(shards[2], "r+b") as file:
        file.seek(os.path.getsize(shards[2]) // 3)
        file.write(b"other bytes")


# ---- stopping ----

def stop(sandbox, name, number, delay):
    """Gives the command, sends signal `number` after `delay`; the exit code, whether it was still running, and what it said."""
    process = subprocess.Popen([UPS, *sandbox.commands[name].arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        process.wait(delay)
        running = False
    except subprocess.TimeoutExpired:
        running = True
        process.send_signal(number)
    message = process.communicate(timeout=TIMEOUT)[1]
    return process.returncode, running, message


def finish(sandbox, name):
    """Gives it for the last time, unless the signal met a command that had done all."""
    found = sandbox.look()
    if found != sandbox.commands[name].after:
        must(*sandbox.commands[name].arguments)
        found = sandbox.look()
    expected = sandbox.commands[name].after
    assert sorted(found) == sorted(expected)
    for path, content in expected.items():
        assert found[path] == content, path


@pytest.mark.parametrize("name", ["datagen", "cache", "repair", "autoencoder", "operator", "npy", "hdf5", "zarr", "rollout", "eval"])
def test_a_command_killed_at_any_moment_and_given_again_ends_in_the_same_bytes(sandbox, name):
    """At random moments of the duration that the machine has just now: a command that was done before its moment
    makes moments come earlier, one that was met before it had done anything makes them come later. The kills do not
    end before they met the command in enough different states."""
    command, wanted = sandbox.commands[name], -(-KILLS // len(sandbox.commands))
    moments = random.Random(name)
    seconds, hit, in_this_run, left = command.seconds, 0, 0, set()
    sandbox.begin(command.before)
    untouched = frozenset(tree(sandbox.folder))
    while hit < wanted or len(left) < command.states:
        assert hit < 50 * wanted + 500, f"kills met the run in {len(left)} different states alone"
        share = (hit % wanted + moments.random()) / wanted  # one from each of as many equal parts
        code, running, message = stop(sandbox, name, signal.SIGKILL, share * seconds)
        if running and code == -signal.SIGKILL:
            hit, in_this_run = hit + 1, in_this_run + 1
            state = frozenset(tree(sandbox.folder))
            left.add(state)
            if state == untouched and share > 0.5:
                seconds *= 1.5
        else:
            # A kill may have come when all was done: a store that is there is refused, whatever is in it.
            refused = name == "zarr" and in_this_run > 0 and "latents.zarr: is there already" in message
            assert code == 0 or refused and sandbox.look() == command.after, message
            if in_this_run == 0:
                seconds *= 0.8
        if not running or code in (0, 1) or in_this_run == KILLS_A_RUN:
            finish(sandbox, name)
            sandbox.begin(command.before)
            in_this_run = 0
    finish(sandbox, name)


def interrupt(sandbox, name, number):
    """Sends a signal half-way through, or when the machine has it so; what the stopped command said."""
    seconds, began = sandbox.commands[name].seconds, time.monotonic()
    while time.monotonic() < began + TIMEOUT:
        for share in (0.5, 0.3, 0.7, 0.4, 0.2, 0.6):
            sandbox.begin(sandbox.commands[name].before)
            code, running, message = stop(sandbox, name, number, share * seconds)
            if running and code == 128 + number:
                return message
            # It was done before the signal came, or the signal came before the program could take it.
            assert code in (0, -number), message
            seconds *= 0.8 if code == 0 else 1.5
    pytest.fail("no signal met a running process")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("stage", ["autoencoder", "operator"])
def test_sigterm_and_sigint_leave_a_checkpoint_end_with_its_number_and_resume_to_the_same_bytes(sandbox, stage, number):
    message = interrupt(sandbox, stage, number)
    assert re.search(rf"ups: {stage}: stopped at step \d+ of 160; --resume goes on from there", message)
    step = int(message.partition("stopped at step ")[2].split()[0])
    left = set(os.listdir(sandbox.path("run", "checkpoints", stage))) - {"best.safetensors"}  # once it was validated
    assert left == {"latest.json", f"step-{step:08d}.safetensors"}
    finish(sandbox, stage)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cache_build_stopped_by_a_signal_ends_with_130_and_goes_on_to_the_same_bytes(sandbox, number):
    assert "the same command goes on from there" in interrupt(sandbox, "cache", number)
    finish(sandbox, "cache")


def test_a_cache_build_stopped_late_where_fields_are_read_back_says_how_to_go_on(sandbox):
    seconds, met, began = sandbox.commands["cache"].seconds, 0, time.monotonic()
    while met < 8 and time.monotonic() < began + TIMEOUT:
        for share in (0.95, 0.9, 0.85, 0.8, 0.75, 0.7):
            sandbox.begin(sandbox.commands["cache"].before)
            code, running, message = stop(sandbox, "cache", signal.SIGINT, share * seconds)
            if running and code == 128 + signal.SIGINT:
                met += 1
                assert "the same command goes on from there" in message, message
            else:
                seconds *= 0.97 if code == 0 else 1.2  # as the machine has it
    assert met > 0, "no signal met a running process"


def test_a_finished_stage_that_is_resumed_changes_nothing(sandbox):
    for stage, state in (("autoencoder", "encoder"), ("cache", "cached"), ("operator", "trained")):
        sandbox.begin(state)
        must(*sandbox.commands[stage].arguments)
        assert sandbox.look() == sandbox.commands[stage].after


def test_tasks_were_drawn_in_changing_shares(sandbox):
    sandbox.begin("trained")
    shares = {}
    for line in metrics(sandbox.path("run")):
        if "validation" in line:
            shares.setdefault(line["stage"], []).append(line["sampling"]["shares"]["darcy"])
    for stage in ("autoencoder", "operator"):
        assert len(set(shares[stage])) > 3, shares
        assert all(0 < share < 1 for share in shares[stage][3:]), shares
