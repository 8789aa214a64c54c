"""The command in a terminal: help that fits it, colours that are wanted, progress that gives way and counts truly."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from commands import must, terminal, ups

ESCAPE = "\033"


# ---- help

@pytest.mark.parametrize("command", [("train",), ("cache", "prune"), ("eval",), ("datagen",), ("data", "inspect"), ("bench", "loader"), ()])
def test_help_fits_the_terminal_between_80_and_120_columns(command):
    written = must(*command, "--help").stdout
    pages = {}
    for columns, width in ((40, 80), (80, 80), (97, 97), (120, 120), (200, 120)):
        code, pages[columns] = terminal(*command, "--help", columns=columns)
        assert code == 0
        assert pages[columns].split() == written.split()  # the same words
        # Commands to copy stay on one line.
        wide = [line for line in pages[columns].splitlines() if len(line) > width and not line.startswith(("  ups ", "  mpirun "))]
        assert wide == [] or command == ("datagen",) and all(re.match("  [^ ]", line) for line in wide), wide
    assert pages[40] == pages[80]
    assert pages[120] == pages[200]
    assert terminal(*command, "--help", columns=80, COLUMNS="97")[1] == pages[97]


def test_an_options_description_goes_on_below_itself():
    lines = terminal("train", "--help", columns=80)[1].splitlines()
    at = lines.index(next(line for line in lines if line.startswith("      --extend ")))
    assert re.match(r"      --extend {18}\S", lines[at])
    assert re.match(r" {32}\S", lines[at + 1])
    at = lines.index(next(line for line in lines if line.startswith("  --extend ")))  # of the list of ways on
    assert re.match(r" {15}\S", lines[at + 1])


def test_help_that_is_no_terminals_is_as_it_was_written():
    for columns in ("40", "200"):
        assert ups("train", "--help", env={**os.environ, "COLUMNS": columns}).stdout == must("train", "--help").stdout


# ---- colour

def test_colours_are_for_terminals_and_for_those_who_want_them():
    assert ESCAPE + "[3" in terminal("doctor")[1]
    assert ESCAPE + "[3" in terminal("doctor", NO_COLOR="")[1]
    for unwanted in ({"NO_COLOR": "1"}, {"CLICOLOR": "0"}, {"TERM": "dumb"}):
        assert ESCAPE not in terminal("doctor", **unwanted)[1]
    assert ESCAPE not in ups("doctor", env={**os.environ, "TERM": "xterm"}).stdout


# ---- progress

STEPS = ["--stage", "autoencoder", "--set", "autoencoder.checkpoint_every=100", "--set"]


def drawn(written):
    """Every state of the line of progress, and what was left of it at the end."""
    states = [state.partition("\n")[0] for state in written.split("\r" + ESCAPE + "[K") if state.startswith("autoencoder ")]
    return states[:-1], states[-1]


def interrupt_after(checkpoint):
    """Ctrl-C once there is another checkpoint, and the line of progress has been drawn a few times."""
    before = checkpoint.read_bytes() if checkpoint.exists() else b""

    def wait(process):
        while (not checkpoint.exists() or checkpoint.read_bytes() == before) and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
    return wait


@pytest.mark.parametrize("columns, barred", [(40, False), (60, False), (100, True)])
def test_the_bar_gives_way_before_the_time_left_and_a_resumed_run_counts_what_it_did(runs, columns, barred):
    name, began = f"narrow{columns}", 0
    config, checkpoint = runs.config(name), Path(runs.path(name, "checkpoints", "autoencoder", "latest.json"))
    for resumed in (False, True):
        code, written = terminal("train", config, *STEPS, "autoencoder.steps=100000", *["--resume"][:resumed], columns=columns,
                                 begun=interrupt_after(checkpoint))
        assert code == 130
        ended = int(re.search(r"stopped at step (\d+) of 100000", written)[1])
        states, last = drawn(written)
        assert all(len(state) < columns for state in states)
        timed = [state for state in states if " left" in state]
        assert timed  # there was room for it, whatever else gave way
        assert all(("%" in state and re.search(" {10}", state) is not None) == barred for state in timed)
        if resumed:
            assert re.match(rf"autoencoder {ended - began} steps in .*, from {began} to {ended} of 100000$", last)
            assert all(f"/100000 steps from {began}" in state for state in states) or not barred
        else:
            assert re.match(rf"autoencoder {ended} of 100000 steps in ", last)
        began = ended


def test_a_dumb_terminal_gets_lines(runs):
    code, written = terminal("train", runs.config("dumb"), *STEPS, "autoencoder.steps=20", TERM="dumb")
    assert code == 0
    assert ESCAPE not in written
    assert re.search(r"^autoencoder 20 steps in .*", written, re.M)
