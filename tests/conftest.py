"""What all tests in Python share: scratch folders, a small run that is trained, and skips that are said the way tests/skipped reads them."""

import tempfile
from pathlib import Path

import pytest

pytest.register_assert_rewrite("commands", "event_files", "hdf5_files", "tiny_run", "injection")

from commands import skipped, skips  # noqa: E402
from tiny_run import Runs  # noqa: E402


@pytest.fixture
def scratch():
    with tempfile.TemporaryDirectory(prefix="ups-test-") as folder:
        yield folder


@pytest.fixture(scope="module")
def runs(request):
    """A folder for runs, with data; a test file says in SAMPLES how many samples each data file has."""
    made = Runs(samples=getattr(request.module, "SAMPLES", 12))
    yield made
    made.close()


@pytest.fixture(scope="module")
def trained(runs):
    """The configuration of a finished run in trained/, which is only read; `runs.copy` makes one to change."""
    config = runs.config("trained")
    runs.must("train", config, "--quiet")
    return config


def pytest_runtest_logreport(report):
    if report.skipped:
        skipped(report.nodeid.rpartition("::")[2], report.longrepr[2].removeprefix("Skipped: "))


def pytest_collectreport(report):
    """A file that is skipped before its tests are known."""
    if report.skipped:
        skipped(Path(report.nodeid).name, report.longrepr[2].removeprefix("Skipped: "))


def pytest_terminal_summary(terminalreporter):
    for line in skips:
        terminalreporter.write_line(line)


def pytest_sessionfinish(session, exitstatus):
    """77, which CTest takes for a skip, where nothing ran and nothing failed."""
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and "skipped" in stats and "passed" not in stats:
        session.exitstatus = 77
