"""The programs under test, and what tests of any kind do with them. CTest names programs in UPS_TEST_PROGRAMS; by hand, those of
build/release are taken: `python -m pytest tests/python/test_cache.py`."""

import fcntl
import itertools
import json
import os
import pty
import re
import resource
import select
import struct
import subprocess
import tempfile
import termios
from pathlib import Path

import numpy as np

TREE = Path(__file__).parents[2]
TIMEOUT = 600  # seconds, before a command is taken to hang: for machines that have a lot else to do


def program(name):
    """Its path. A library's file may carry a version behind its name."""
    listed = map(Path, filter(None, os.environ.get("UPS_TEST_PROGRAMS", "").split(":")))
    for path in itertools.chain(listed, (TREE / "build/release").rglob(name)):
        if path.is_file() and (path.name == name or path.name.startswith(name + ".")):
            return str(path)
    raise FileNotFoundError(f"{name} is not built; build the tree, or name its path in UPS_TEST_PROGRAMS")


UPS = program("ups")


def run(*command, **options):
    words = [part if isinstance(part, bytes) else str(part) for part in command]
    return subprocess.run(words, **{"capture_output": True, "text": True, "timeout": TIMEOUT, **options})


def ups(*arguments, **options):
    return run(UPS, *arguments, **options)


def must(*arguments):
    done = ups(*arguments)
    assert done.returncode == 0, f"ups {' '.join(map(str, arguments))} failed ({done.returncode}): {done.stderr}"
    return done


def told(*arguments):
    """What a command that succeeds tells scripts."""
    return json.loads(must(*arguments, "--json").stdout)


def one_sentence(done, *parts, code=1):
    """Standard error holds one message; it contains each of these patterns, and is returned."""
    assert done.returncode == code, done.stderr + done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("ups")]
    assert len(lines) == 1, done.stderr
    for part in parts:
        assert re.search(part, lines[0])
    return lines[0]


def terminal(*arguments, columns=80, begun=None, **environment):
    """Runs the command in a terminal so many columns wide; exit code, and all that was written there. `begun(process)` is called meanwhile."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    without = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "CLICOLOR")}
    process = subprocess.Popen([UPS, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs, env={**without, "TERM": "xterm", **environment})
    if begun:
        begun(process)
    written, ended = b"", False
    while True:  # the other end stays open here: once nobody has it, Linux may say so before the last of what was written
        if select.select([ours], [], [], 0.2 if ended else 0.02)[0]:
            written += os.read(ours, 1 << 16)
        elif ended:
            break
        else:
            ended = process.poll() is not None
    os.close(theirs)
    os.close(ours)
    return process.wait(TIMEOUT), written.decode().replace("\r\n", "\n")


skips = []


def skipped(claim, reason):
    """A part of a test that cannot run here. It is said at the end, in the words that tests/skipped collects."""
    skips.append(f"SKIPPED {claim}: {reason}")


def limit(which, value):
    """For `preexec_fn`: a resource limit of a command, such as resource.RLIMIT_NOFILE."""
    return lambda: resource.setrlimit(which, (value, value))


def same(found, expected):
    """The same bits. What is no array is the sentence of a command that failed."""
    return isinstance(found, np.ndarray) and (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


CACHE_SHAPE = (9, 21, 5, 32)  # of the latents that make_cache makes


def make_cache(directory, *options):
    """Makes a synthetic cache of one group, waves/train; the latents that were put in."""
    subprocess.run([program("make_cache"), directory, *options], check=True, timeout=TIMEOUT)
    return np.fromfile(os.path.join(directory, "expected.f16"), "<f2").reshape(CACHE_SHAPE)


def dump(path, sample=0, way="threads", *options):
    """The array that `ups data dump` writes, or the sentence it failed with."""
    with tempfile.TemporaryDirectory(prefix="ups-dump-") as folder:
        done = ups("data", "dump", path, "--sample", sample, "--io", way, *options, "-o", folder + "/dump.npy")
        return np.load(folder + "/dump.npy") if done.returncode == 0 else f"exit {done.returncode}: {done.stderr.strip()}"


def inspect(*paths, together=False):
    """What `ups data inspect` says of the first file, or of all as one task; or the sentence it failed with."""
    done = ups("data", "inspect", "--json", *(["--together"] if together else []), *paths)
    return json.loads(done.stdout)[0] if done.returncode == 0 else done.stderr.strip()
