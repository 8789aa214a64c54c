"""What the tests of faults share: a folder on which commands run, and a command that meets a fault.

A script that imports this is used as: SCRIPT UPS FAULTS [TEST...]. FAULTS is the library made of faults.c, which says what
a fault is. UPS_TEST_FAULTS=all tries every call of a kind, otherwise some at random."""

import os
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from tiny_run import PATIENCE, Runs  # noqa: E402

UPS = os.path.abspath(sys.argv.pop(1))
FAULTS = os.path.abspath(sys.argv.pop(1))
ALL = os.environ.get("UPS_TEST_FAULTS") == "all"
FEW = 1  # tries of a fault without it


class FaultTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK):
            tempfile.tempdir = "/dev/shm"  # thousands of syncs; which file system it is does not matter here
        cls.runs = Runs(UPS, samples=6)
        cls.folder = cls.runs.path("place")  # where faults are met, one after the other

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def with_fault(self, arguments, fault):
        """The finished process, and the calls that were struck, paths being told from the folder on."""
        report = self.runs.path("report")
        if os.path.exists(report):
            os.remove(report)
        environment = {**os.environ, "LD_PRELOAD": FAULTS, "UPS_FAULT": fault, "UPS_FAULT_REPORT": report,
                       "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}
        done = subprocess.run([UPS, *arguments, "--quiet"], capture_output=True, text=True, timeout=PATIENCE,
                              env=environment)
        if not os.path.exists(report):
            return done, []
        with open(report, encoding="utf-8") as file:
            return done, [line.rstrip("\n").replace(self.folder + "/", "") for line in file]

    def numbers(self, count):
        """Which of so many calls to strike."""
        if ALL or count <= FEW:
            return range(1, count + 1)
        return sorted(random.sample(range(1, count + 1), FEW))
