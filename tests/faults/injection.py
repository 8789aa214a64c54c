"""A command that meets a fault: faults.c says what a fault is. UPS_TEST_FAULTS=all tries every call of a kind, otherwise some at random."""

import os
import random
import tempfile

from commands import program, ups

ALL = os.environ.get("UPS_TEST_FAULTS") == "all"
FEW = 1  # tries of a fault without it

if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK):
    tempfile.tempdir = "/dev/shm"  # thousands of syncs; which file system it is does not matter here


def with_fault(sandbox, arguments, fault):
    """The finished process, and the calls that were struck, paths being told from the sandbox's folder on."""
    report = sandbox.runs.path("report")
    if os.path.exists(report):
        os.remove(report)
    done = ups(*arguments, "--quiet", env={
        **os.environ, "LD_PRELOAD": program("libups_faults.so"), "UPS_FAULT": fault, "UPS_FAULT_REPORT": report,
        "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")})
    if not os.path.exists(report):
        return done, []
    with open(report, encoding="utf-8") as file:
        return done, [line.rstrip("\n").replace(sandbox.folder + "/", "") for line in file]


def numbers(count):
    """Which of so many calls to strike."""
    return range(1, count + 1) if ALL or count <= FEW else sorted(random.sample(range(1, count + 1), FEW))
