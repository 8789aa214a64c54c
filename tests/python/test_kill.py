"""Runs that are stopped at any moment, by SIGKILL or by a polite signal, end with the same bytes as one that nothing
disturbed. Usage: test_kill.py UPS"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

from skipping import main
from tiny_run import CONFIG, PATIENCE, Runs, metrics, tree

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"
KILLS = 20
KILLS_A_RUN = 3  # then it may finish, and its bytes are compared
STATES = 4  # different sets of files that the kills have to leave
CLOCKED = "metrics.jsonl"  # holds rates, so its bytes differ from run to run; compared without them

# How tasks are drawn changes while it runs: by validation losses, and one task enters late.
CHANGING = (CONFIG.replace("steps: 60", "steps: 160").replace("validate_every: 30", "validate_every: 20")
            .replace("decode_threads: 1", "decode_threads: 1\n  sampling: difficulty")
            .replace("[darcy.h5]", "[darcy.h5]\n    from: 20\n    ramp: 100"))


class Stopped(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS)
        config = cls.runs.config("undisturbed", CHANGING)
        cls.before, cls.seconds = {}, {}
        for stage in ("autoencoder", "cache", "operator"):
            cls.before[stage] = cls.runs.path("before-" + stage)
            if os.path.exists(cls.runs.path("undisturbed")):
                shutil.copytree(cls.runs.path("undisturbed"), cls.before[stage])
            else:
                os.mkdir(cls.before[stage])
            began = time.monotonic()
            cls.runs.must(*cls.command(stage, config))
            cls.seconds[stage] = time.monotonic() - began
            shutil.copytree(cls.runs.path("undisturbed"), cls.runs.path("after-" + stage))

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    @staticmethod
    def command(stage, config):
        if stage == "cache":
            return ["cache", "build", config]
        return ["train", config, "--stage", stage, "--resume"]

    def begin(self, stage):
        """A run that stands where the undisturbed one stood before the stage. All runs lie in the same folder, one
        after the other, since config.yaml names it."""
        folder = self.runs.path("undisturbed")
        shutil.rmtree(folder)
        shutil.copytree(self.before[stage], folder)
        return folder

    def stop(self, stage, number, delay):
        """Starts the stage, sends signal `number` after `delay`; the exit code, and whether it was still running."""
        process = subprocess.Popen([UPS, *self.command(stage, self.runs.path("undisturbed.yaml"))],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            process.wait(delay)
            running = False
        except subprocess.TimeoutExpired:
            running = True
            process.send_signal(number)
        message = process.communicate(timeout=PATIENCE)[1]
        return process.returncode, running, message

    def was_faster(self, stage, delay):
        """A run from the start was done before its signal came: the machine has less else to do than it had."""
        self.seconds[stage] = min(self.seconds[stage], delay) * 0.8

    def finish(self, stage):
        self.runs.must(*self.command(stage, self.runs.path("undisturbed.yaml")))

    def check(self, stage, lines=True):
        found, expected = tree(self.runs.path("undisturbed")), tree(self.runs.path("after-" + stage))
        found.pop(CLOCKED, None), expected.pop(CLOCKED, None)
        self.assertEqual(sorted(found), sorted(expected))
        self.assertEqual({name for name in expected if found[name] != expected[name]}, set())
        if lines:
            self.assertEqual(metrics(self.runs.path("undisturbed"), clock=False),
                             metrics(self.runs.path("after-" + stage), clock=False))

    def test_tasks_were_drawn_in_changing_shares(self):
        shares = {}
        for line in metrics(self.runs.path("after-operator")):
            if "validation" in line:
                shares.setdefault(line["stage"], []).append(line["sampling"]["shares"]["darcy"])
        for stage in ("autoencoder", "operator"):
            self.assertGreater(len(set(shares[stage])), 3, shares)
            self.assertTrue(all(0 < share < 1 for share in shares[stage][3:]), shares)

    def kill_often(self, stage):
        moments = random.Random(stage)
        # One random moment from each of KILLS equal parts of the undisturbed duration, in random order.
        shares = [(i + moments.random()) / KILLS for i in range(KILLS)]
        moments.shuffle(shares)
        hit = in_this_run = tries = 0
        left = set()
        self.begin(stage)
        while (hit < KILLS or len(left) < STATES) and tries < 8 * KILLS:
            tries += 1
            delay = shares[hit % KILLS] * self.seconds[stage]
            code, running, message = self.stop(stage, signal.SIGKILL, delay)
            if running and code == -signal.SIGKILL:
                hit, in_this_run = hit + 1, in_this_run + 1
                left.add(frozenset(tree(self.runs.path("undisturbed"))))
                if hit % KILLS == 0:  # if others are needed, these came too early: the machine has more else to do than it had
                    self.seconds[stage] *= 2
            else:
                self.assertEqual(code, 0, message)
                if in_this_run == 0:
                    self.was_faster(stage, delay)
            if not running or in_this_run == KILLS_A_RUN:
                self.finish(stage)
                self.check(stage)
                self.begin(stage)
                in_this_run = 0
        self.finish(stage)
        self.check(stage)
        self.assertGreaterEqual(hit, KILLS, "too few kills met a running process")
        self.assertGreaterEqual(len(left), STATES, "the kills met the run in too few different states")

    def test_a_cache_build_killed_at_any_moment_resumes_to_the_same_bytes(self):
        self.kill_often("cache")

    def test_training_an_autoencoder_killed_at_any_moment_resumes_to_the_same_bytes(self):
        self.kill_often("autoencoder")

    def test_training_an_operator_killed_at_any_moment_resumes_to_the_same_bytes(self):
        self.kill_often("operator")

    def stop_politely(self, stage, number):
        """Sends a signal half-way through, at the latest; returns what the stopped run left."""
        for share in (0.5, 0.3, 0.7, 0.4, 0.2, 0.6) * 3:
            folder = self.begin(stage)
            delay = share * self.seconds[stage]
            code, running, message = self.stop(stage, number, delay)
            if running and code == 130:
                return folder, message
            # It was done before the signal came, or the signal came before the program could take it.
            self.assertIn(code, (0, -number), message)
            if code == 0:
                self.was_faster(stage, delay)
        self.fail("no signal met a running process")

    def check_checkpoint_after(self, number):
        for stage in ("autoencoder", "operator"):
            folder, message = self.stop_politely(stage, number)
            self.assertRegex(message, rf"ups: {stage}: stopped at step \d+ of 160; --resume goes on from there")
            step = int(message.partition("stopped at step ")[2].split()[0])
            self.assertEqual(sorted(os.listdir(os.path.join(folder, "checkpoints", stage))),
                             ["latest.json", f"step-{step:08d}.safetensors"])
            self.finish(stage)
            self.check(stage, lines=False)  # a line's mean is over the steps since the run began, if that was later

    def test_sigterm_writes_a_checkpoint_and_ends_with_130_and_resumes_to_the_same_bytes(self):
        self.check_checkpoint_after(signal.SIGTERM)

    def test_ctrl_c_writes_a_checkpoint_and_ends_with_130_and_resumes_to_the_same_bytes(self):
        self.check_checkpoint_after(signal.SIGINT)

    def test_a_cache_build_stopped_by_a_signal_ends_with_130_and_goes_on_to_the_same_bytes(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            _, message = self.stop_politely("cache", number)
            self.assertIn("the same command goes on from there", message)
            self.finish("cache")
            self.check("cache")

    def test_a_finished_stage_that_is_resumed_changes_nothing(self):
        for stage in ("autoencoder", "cache", "operator"):
            shutil.rmtree(self.runs.path("undisturbed"))
            shutil.copytree(self.runs.path("after-" + stage), self.runs.path("undisturbed"))
            self.finish(stage)
            self.check(stage)


if __name__ == "__main__":
    main()
