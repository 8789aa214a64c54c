"""Random changes to the files of a cache, documents included: every one is found by `verify`, none is trained on, and every one
is repaired by `--repair` to the bytes that were there. tests/cache/attack.c makes them in one process.
UPS_TEST_CHANGES says how many, UPS_TEST_SEED which."""

import os

from commands import program, run
from tiny_run import CONFIG

CHANGES = int(os.environ.get("UPS_TEST_CHANGES", "150"))
SEED = os.environ.get("UPS_TEST_SEED", "1")


def test_no_change_goes_unnoticed_or_unrepaired_and_none_is_trained_on(runs):
    config = runs.config("run")
    runs.must("train", config, "--stage", "autoencoder")
    runs.must("cache", "build", config)
    other = runs.config("other", CONFIG.replace("seed: 3", "seed: 4"))
    runs.must("train", other, "--stage", "autoencoder")
    runs.must("cache", "build", other)
    more, folder = runs.copy("run")  # the same encoder, and samples of other data
    runs.must("cache", "build", more, "--restart", "--set", f"data.root={other_data(runs)}")
    done = run(program("attack"), str(CHANGES), SEED, config, runs.path("other", "cache"), os.path.join(folder, "cache"), timeout=60 + 2 * CHANGES)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def other_data(runs):
    kept, runs.data = runs.data, runs.path("other-data")
    os.mkdir(runs.data)
    runs.generate("advection1d", "advection.h5", 12, "-r", "32", "--steps", "9", "--seed", "77")
    runs.generate("darcy2d", "darcy.h5", 12, "-r", "16", "--seed", "77")
    found, runs.data = runs.data, kept
    return found
