"""Random changes to the files of a cache, documents included: every one is found by `verify`, none is trained on, and every one
is mended by `--repair` to the bytes that were there. tests/cache/attack.c makes them in one process.

    test_cache_attack.py UPS ATTACK     UPS_TEST_CHANGES: how many; UPS_TEST_SEED: which
"""

import os
import subprocess
import sys
import unittest

from tiny_run import CONFIG, Runs

UPS, ATTACK = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
CHANGES = int(os.environ.get("UPS_TEST_CHANGES", "150"))
SEED = os.environ.get("UPS_TEST_SEED", "1")


class CacheAttackTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS)

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def test_no_change_goes_unnoticed_or_unmended_and_none_is_trained_on(self):
        runs = self.runs
        config = runs.config("run")
        runs.must("train", config, "--stage", "autoencoder")
        runs.must("cache", "build", config)
        other = runs.config("other", CONFIG.replace("seed: 3", "seed: 4"))
        runs.must("train", other, "--stage", "autoencoder")
        runs.must("cache", "build", other)
        more = runs.copy("more", of="run")  # the same encoder, and samples of other data
        runs.must("cache", "build", more, "--restart", "--set", f"data.root={self.other_data()}")
        done = subprocess.run([ATTACK, str(CHANGES), SEED, config, runs.path("other", "cache"), runs.path("more", "cache")],
                              capture_output=True, text=True, timeout=60 + 2 * CHANGES)
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def other_data(self):
        kept, self.runs.data = self.runs.data, self.runs.path("other-data")
        os.mkdir(self.runs.data)
        self.runs.generate("advection1d", "advection.h5", 12, "-r", "32", "-s", "9", "--seed", "77")
        self.runs.generate("darcy2d", "darcy.h5", 12, "-r", "16", "--seed", "77")
        found, self.runs.data = self.runs.data, kept
        return found


if __name__ == "__main__":
    unittest.main()
