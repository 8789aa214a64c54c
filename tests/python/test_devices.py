"""A run on a device whose work is done late ends in the same bytes as one on the CPU: weights, caches, checkpoints, and
metrics but for rates; with one set of inputs in flight and with two, and also when it is stopped and resumed.
Usage: test_devices.py UPS UPS_ASYNC"""

import json
import os
import shutil
import sys
import unittest

from skipping import main
from tiny_run import CONFIG, Runs, metrics, tree

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"
ASYNC = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups_async"
SHORT = CONFIG.replace("steps: 60", "steps: 24").replace("validate_every: 30", "validate_every: 8")


class Devices(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS)

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def environment(self, **settings):
        return {**os.environ, "UPS_TEST_DEVICE": "test-async", **{"UPS_TEST_" + name: str(value) for name, value in settings.items()}}

    def result(self, ups, text, environment=None, arguments=()):
        """The files of a run, and the lines of its metrics; always in the same folder, whose name stands in them."""
        self.runs.ups = ups
        config = self.runs.config("run", text)
        done = self.runs.run("train", config, *arguments, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.take()

    def take(self):
        files, lines = tree(self.runs.path("run")), metrics(self.runs.path("run"), clock=False)
        del files["metrics.jsonl"]
        shutil.rmtree(self.runs.path("run"))
        return files, lines

    def test_runs_end_in_the_bytes_that_they_have_on_the_cpu(self):
        for precision in ("f32", "bf16"):
            text = SHORT.replace("precision: f32", "precision: " + precision)
            expected = self.result(UPS, text)
            for settings in ({"INPUT_SETS": 1}, {"INPUT_SETS": 2}, {"INPUT_SETS": 2, "SEED": 2, "DELAY": 2000}, {"CAPTURE": 0}):
                with self.subTest(precision=precision, **settings):
                    self.assertEqual(self.result(ASYNC, text, self.environment(**settings)), expected)

    def test_a_run_without_a_cache_ends_in_the_same_bytes(self):
        text = SHORT.replace("decode_threads: 1", "decode_threads: 1\n  residency: encode")
        expected = self.result(UPS, text)
        self.assertEqual(self.result(ASYNC, text, self.environment()), expected)

    def test_a_loss_that_is_not_finite_is_refused_with_the_same_sentence(self):
        text = SHORT.replace("learning_rate: 0.005", "learning_rate: 1e30")
        said = []
        for ups, environment in ((UPS, None), (ASYNC, self.environment(INPUT_SETS=2))):
            self.runs.ups = ups
            done = self.runs.run("train", self.runs.config("run", text), env=environment)
            self.assertEqual(done.returncode, 1)
            said.append([line for line in done.stderr.splitlines() if "is not finite" in line])
            shutil.rmtree(self.runs.path("run"))
        self.assertEqual(len(said[0]), 1)
        self.assertEqual(said[0], said[1])

    def test_a_model_is_evaluated_to_the_same_numbers(self):
        self.runs.ups = UPS
        config = self.runs.config("run", SHORT)
        self.runs.must("train", config)
        expected = json.loads(self.runs.must("eval", config, "--json").stdout)
        self.runs.ups = ASYNC
        done = self.runs.run("eval", config, "--json", env=self.environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        shutil.rmtree(self.runs.path("run"))
        self.assertEqual(json.loads(done.stdout), expected)


if __name__ == "__main__":
    main()
