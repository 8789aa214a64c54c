"""A run on a device whose work is done late ends in the same bytes as one on the CPU: weights, caches, checkpoints, and
metrics but for rates; with one set of inputs in flight and with two, and also when it goes on where the other stopped.
Usage: test_devices.py UPS UPS_ASYNC"""

import json
import os
import shutil
import sys
import unittest

import numpy as np

from skipping import main
from tiny_run import CONFIG, Runs, metrics, tree

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"
ASYNC = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups_async"
SHORT = CONFIG.replace("steps: 60", "steps: 24").replace("validate_every: 30", "validate_every: 8")


def without_seconds(value):
    if isinstance(value, dict):
        return {key: without_seconds(of) for key, of in value.items() if not key.endswith("seconds")}
    return [without_seconds(of) for of in value] if isinstance(value, list) else value


def spoil(checkpoints, prefix):
    """Weights of a checkpoint so large that their products overflow."""
    with open(os.path.join(checkpoints, "latest.json"), encoding="utf-8") as file:
        path = os.path.join(checkpoints, json.load(file)["file"])
    with open(path, "rb") as file:
        data = bytearray(file.read())
    begin = 8 + int.from_bytes(data[:8], "little")
    for name, tensor in json.loads(data[8:begin]).items():
        if name.startswith(prefix):
            first, last = tensor["data_offsets"]
            values = np.frombuffer(data, np.float32, (last - first) // 4, begin + first)
            data[begin + first : begin + last] = (np.where(values == 0, 1, values) * np.float32(1e30)).astype(np.float32).tobytes()
    with open(path, "wb") as file:
        file.write(data)


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

    def test_a_run_that_goes_on_on_the_other_device_ends_in_the_same_bytes(self):
        config = self.runs.config("run", SHORT.replace("precision: f32", "precision: fp16"))
        arguments = ["train", config, "--stage", "autoencoder", "--set", "autoencoder.optimizer.schedule=constant", "--set"]
        models = []
        for parts in (((UPS, 24),), ((ASYNC, 7), (UPS, 13), (ASYNC, 24))):
            for ups, steps in parts:
                self.runs.ups = ups
                done = self.runs.run(*arguments, f"autoencoder.steps={steps}", env=self.environment())
                self.assertEqual(done.returncode, 0, done.stderr)
            files = tree(self.runs.path("run"))
            models.append({name: files[name] for name in files if name.startswith(("checkpoints", "autoencoder.safetensors"))})
            shutil.rmtree(self.runs.path("run"))
        self.assertGreater(len(models[0]), 3)
        self.assertEqual(models[0], models[1])

    def test_a_loss_that_is_not_finite_is_refused_with_the_same_sentence(self):
        self.runs.ups = UPS
        self.runs.must("train", self.runs.config("run", SHORT))
        os.remove(self.runs.path("run", "state.json"))
        spoil(self.runs.path("run", "checkpoints", "autoencoder"), "decoder.")
        before, said = tree(self.runs.path("run", "checkpoints")), []
        for ups, environment in ((UPS, None), (ASYNC, self.environment(INPUT_SETS=1)), (ASYNC, self.environment(INPUT_SETS=2))):
            self.runs.ups = ups
            done = self.runs.run("train", self.runs.config("run", CONFIG), "--resume", env=environment)
            self.assertEqual(done.returncode, 1, done.stderr)
            said.append([line for line in done.stderr.splitlines() if "loss is not finite" in line])
            self.assertEqual(tree(self.runs.path("run", "checkpoints")), before)
        shutil.rmtree(self.runs.path("run"))
        self.assertEqual(len(said[0]), 1, done.stderr)
        self.assertIn("autoencoder, step 24: ", said[0][0])
        self.assertIn("the batch held ", said[0][0])
        self.assertEqual(said, [said[0]] * 3)

    def test_a_model_is_evaluated_to_the_same_numbers(self):
        self.runs.ups = UPS
        config = self.runs.config("run", SHORT)
        self.runs.must("train", config)
        expected = without_seconds(json.loads(self.runs.must("eval", config, "--json").stdout))
        self.runs.ups = ASYNC
        done = self.runs.run("eval", config, "--json", env=self.environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        shutil.rmtree(self.runs.path("run"))
        self.assertEqual(without_seconds(json.loads(done.stdout)), expected)


if __name__ == "__main__":
    main()
