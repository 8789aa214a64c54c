"""Commands that are stopped at any moment, by SIGKILL or by a polite signal, and given again, end with the same bytes as
one that nothing disturbed. Usage: test_kill.py UPS

UPS_TEST_KILLS sets how many kills there are, over all commands that write. The moments are drawn; how fast the machine
happens to be decides how long a test takes, and nothing else."""

import json
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
KILLS = int(os.environ.get("UPS_TEST_KILLS", "60"))
KILLS_A_RUN = 3  # then it may finish, and its bytes are compared
METRICS, EVALUATION = "metrics.jsonl", "evaluation.json"  # hold clocks and rates; compared without them

# How tasks are drawn changes while it runs: by validation losses, and one task enters late. Lines of the metrics fall
# between checkpoints.
CHANGING = (CONFIG.replace("steps: 60", "steps: 160").replace("log_every: 10", "log_every: 7")
            .replace("validate_every: 30", "validate_every: 20")
            .replace("decode_threads: 1", "decode_threads: 1\n  sampling: difficulty")
            .replace("[darcy.h5]", "[darcy.h5]\n    from: 20\n    ramp: 100"))


class Command:
    """What is given again until it is done. `states`: how many different ones its kills have to leave."""

    def __init__(self, before, arguments, states):
        self.before, self.arguments, self.states = before, arguments, states
        self.seconds, self.after = 0, {}


class Stopped(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS)
        cls.folder = cls.runs.path("world")  # all happens here, one after the other, since files name their paths
        config = cls.config = cls.runs.config("changing", CHANGING, output=os.path.join(cls.folder, "run"))
        cache, out = os.path.join(cls.folder, "run", "cache"), lambda name: os.path.join(cls.folder, name)
        cls.commands = {
            "datagen": Command("empty", ["datagen", "diffreact2d", "-o", out("made.h5"), "-n", "6", "-t", "1", "-r", "16",
                                         "-s", "6", "--force"], 3),
            "autoencoder": Command("empty", ["train", config, "--stage", "autoencoder", "--resume"], 4),
            "cache": Command("encoder", ["cache", "build", config], 4),
            "operator": Command("cached", ["train", config, "--stage", "operator", "--resume"], 4),
            "repair": Command("damaged", ["cache", "verify", cache, "--repair"], 2),
            "npy": Command("cached", ["cache", "export", cache + "/advection/train", "-o", out("latents.npy")], 1),
            "hdf5": Command("cached", ["cache", "export", cache + "/advection/train", "--format", "hdf5", "-o",
                                       out("latents.h5")], 1),
            "zarr": Command("cached", ["cache", "export", cache + "/advection/train", "--format", "zarr", "-o",
                                       out("latents.zarr")], 1),
            "rollout": Command("trained", ["rollout", config, "-n", "9", "-o", out("out.h5"), "--png", out("pictures")], 2),
            "eval": Command("trained", ["eval", config], 1),
        }
        os.mkdir(cls.folder)
        cls.keep("empty")
        for name, state in (("autoencoder", "encoder"), ("cache", "cached"), ("operator", "trained")):
            cls.measure(name)
            cls.keep(state)
        cls.begin("cached")
        cls.damage(cache)
        cls.keep("damaged")
        for name, command in cls.commands.items():
            if not command.after:
                cls.measure(name)

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    # ---- the folder ----

    @classmethod
    def keep(cls, state):
        shutil.copytree(cls.folder, cls.runs.path("state-" + state), symlinks=True)

    @classmethod
    def begin(cls, state):
        shutil.rmtree(cls.folder)
        shutil.copytree(cls.runs.path("state-" + state), cls.folder, symlinks=True)

    @classmethod
    def measure(cls, name):
        """The command, undisturbed: how long it takes and what it leaves."""
        command = cls.commands[name]
        cls.begin(command.before)
        began = time.monotonic()
        cls.runs.must(*command.arguments)
        command.seconds = time.monotonic() - began
        command.after = cls.look()

    @staticmethod
    def damage(cache):
        """A shard is gone, one is cut, one has other bytes."""
        shards = sorted(os.path.join(at, name) for at, _, names in os.walk(cache + "/advection/train/latent/c")
                        for name in names)
        os.remove(shards[0])
        with open(shards[1], "r+b") as file:
            file.truncate(os.path.getsize(shards[1]) // 2)
        with open(shards[2], "r+b") as file:
            file.seek(os.path.getsize(shards[2]) // 3)
            file.write(b"other bytes")

    @classmethod
    def look(cls):
        """What lies there, but for what the clock says."""
        found = tree(cls.folder)
        for name in found:
            path = os.path.join(cls.folder, name)
            if os.path.basename(name) == METRICS:
                found[name] = metrics(os.path.dirname(path), clock=False)
            elif os.path.basename(name) == EVALUATION:
                with open(path, encoding="utf-8") as file:
                    found[name] = json.load(file)
                for task in found[name]["tasks"]:
                    del task["seconds"]
        return found

    # ---- stopping ----

    def stop(self, name, number, delay):
        """Gives the command, sends signal `number` after `delay`; the exit code, whether it was still running, and what it said."""
        process = subprocess.Popen([UPS, *self.commands[name].arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            process.wait(delay)
            running = False
        except subprocess.TimeoutExpired:
            running = True
            process.send_signal(number)
        message = process.communicate(timeout=PATIENCE)[1]
        return process.returncode, running, message

    def finish(self, name):
        """Gives it for the last time, unless the signal met a command that had done all."""
        found = self.look()
        if found != self.commands[name].after:
            self.runs.must(*self.commands[name].arguments)
            found = self.look()
        expected = self.commands[name].after
        self.assertEqual(sorted(found), sorted(expected))
        for path, content in expected.items():
            self.assertEqual(found[path], content, path)

    def kill_often(self, name):
        """At random moments of the duration that the machine has just now: a command that was done before its moment
        makes moments come earlier, one that was met before it had done anything makes them come later. The kills do not
        end before they met the command in enough different states."""
        command, wanted = self.commands[name], -(-KILLS // len(self.commands))
        moments = random.Random(name)
        seconds, hit, in_this_run, left = command.seconds, 0, 0, set()
        self.begin(command.before)
        untouched = frozenset(tree(self.folder))
        while hit < wanted or len(left) < command.states:
            self.assertLess(hit, 50 * wanted + 500, f"kills met the run in {len(left)} different states alone")
            share = (hit % wanted + moments.random()) / wanted  # one from each of as many equal parts
            code, running, message = self.stop(name, signal.SIGKILL, share * seconds)
            if running and code == -signal.SIGKILL:
                hit, in_this_run = hit + 1, in_this_run + 1
                state = frozenset(tree(self.folder))
                left.add(state)
                if state == untouched and share > 0.5:
                    seconds *= 1.5
            else:
                self.assertEqual(code, 0, message)
                if in_this_run == 0:
                    seconds *= 0.8
            if not running or code == 0 or in_this_run == KILLS_A_RUN:
                self.finish(name)
                self.begin(command.before)
                in_this_run = 0
        self.finish(name)

    def test_datagen_killed_at_any_moment_goes_on_to_the_same_bytes(self):
        self.kill_often("datagen")

    def test_a_cache_build_killed_at_any_moment_resumes_to_the_same_bytes(self):
        self.kill_often("cache")

    def test_mending_a_cache_killed_at_any_moment_mends_it_to_the_same_bytes(self):
        self.kill_often("repair")

    def test_training_an_autoencoder_killed_at_any_moment_resumes_to_the_same_bytes(self):
        self.kill_often("autoencoder")

    def test_training_an_operator_killed_at_any_moment_resumes_to_the_same_bytes(self):
        self.kill_often("operator")

    def test_exports_killed_at_any_moment_leave_nothing_in_the_way_of_the_next(self):
        for kind in ("npy", "hdf5", "zarr"):
            with self.subTest(kind):
                self.kill_often(kind)

    def test_rollouts_and_evaluations_killed_at_any_moment_end_in_the_same_bytes(self):
        for name in ("rollout", "eval"):
            with self.subTest(name):
                self.kill_often(name)

    def stop_politely(self, name, number):
        """Sends a signal half-way through, or when the machine has it so; what the stopped command said."""
        seconds, began = self.commands[name].seconds, time.monotonic()
        while time.monotonic() < began + PATIENCE:
            for share in (0.5, 0.3, 0.7, 0.4, 0.2, 0.6):
                self.begin(self.commands[name].before)
                code, running, message = self.stop(name, number, share * seconds)
                if running and code == 130:
                    return message
                # It was done before the signal came, or the signal came before the program could take it.
                self.assertIn(code, (0, -number), message)
                seconds *= 0.8 if code == 0 else 1.5
        self.fail("no signal met a running process")

    def check_checkpoint_after(self, number):
        for stage in ("autoencoder", "operator"):
            message = self.stop_politely(stage, number)
            self.assertRegex(message, rf"ups: {stage}: stopped at step \d+ of 160; --resume goes on from there")
            step = int(message.partition("stopped at step ")[2].split()[0])
            self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "run", "checkpoints", stage))),
                             ["latest.json", f"step-{step:08d}.safetensors"])
            self.finish(stage)

    def test_sigterm_writes_a_checkpoint_and_ends_with_130_and_resumes_to_the_same_bytes(self):
        self.check_checkpoint_after(signal.SIGTERM)

    def test_ctrl_c_writes_a_checkpoint_and_ends_with_130_and_resumes_to_the_same_bytes(self):
        self.check_checkpoint_after(signal.SIGINT)

    def test_a_cache_build_stopped_by_a_signal_ends_with_130_and_goes_on_to_the_same_bytes(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.assertIn("the same command goes on from there", self.stop_politely("cache", number))
            self.finish("cache")

    def test_a_finished_stage_that_is_resumed_changes_nothing(self):
        for stage, state in (("autoencoder", "encoder"), ("cache", "cached"), ("operator", "trained")):
            self.begin(state)
            self.runs.must(*self.commands[stage].arguments)
            self.assertEqual(self.look(), self.commands[stage].after)

    def test_tasks_were_drawn_in_changing_shares(self):
        self.begin("trained")
        shares = {}
        for line in metrics(os.path.join(self.folder, "run")):
            if "validation" in line:
                shares.setdefault(line["stage"], []).append(line["sampling"]["shares"]["darcy"])
        for stage in ("autoencoder", "operator"):
            self.assertGreater(len(set(shares[stage])), 3, shares)
            self.assertTrue(all(0 < share < 1 for share in shares[stage][3:]), shares)


if __name__ == "__main__":
    main()
