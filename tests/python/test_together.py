"""Commands that work on one cache together: builds side by side, some of them killed; more files; damage mended. The
result is always that of one undisturbed build. Usage: test_together.py UPS"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

from sealed import rewrite
from skipping import main
from tiny_run import CONFIG, PATIENCE, Runs, tree

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"
PROCESSES = 4
KILLS = int(os.environ.get("UPS_TEST_KILLS", "8"))
LONGER = CONFIG.replace("files: [advection.h5]", "files: [advection.h5, more.h5]")


class Together(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS, samples=30)
        cls.config = cls.runs.config("run")
        cls.cache = cls.runs.path("run", "cache")
        cls.runs.must("train", cls.config, "--stage", "autoencoder")
        began = time.monotonic()
        cls.runs.must("cache", "build", cls.config)
        cls.seconds = time.monotonic() - began
        cls.alone = tree(cls.cache)

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def setUp(self):
        shutil.rmtree(self.cache)

    def tearDown(self):
        shutil.rmtree(self.cache, ignore_errors=True)
        self.runs.must("cache", "build", self.config)

    def start(self, **environment):
        return subprocess.Popen([UPS, "cache", "build", self.config, "--json"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})

    def test_four_commands_build_one_cache_and_share_the_work(self):
        builders = [self.start(OMPI_COMM_WORLD_RANK=str(r), OMPI_COMM_WORLD_SIZE=str(PROCESSES))
                    for r in range(PROCESSES)]
        encoded = 0
        for builder in builders:
            out, message = builder.communicate(timeout=PATIENCE)
            self.assertEqual(builder.returncode, 0, message)
            groups = json.loads(out)
            self.assertEqual(len(groups), 6)  # each reports on the whole
            self.assertEqual(sum(g["samples"] for g in groups), 60)
            encoded += sum(g["encoded"] for g in groups)
        self.assertEqual(encoded, 60)
        self.assertEqual(tree(self.cache), self.alone)

    def test_commands_killed_at_random_leave_their_work_to_the_others(self):
        moments = random.Random(time.time_ns())
        killed = 0
        while killed < KILLS:
            shutil.rmtree(self.cache, ignore_errors=True)
            builders = [self.start() for _ in range(PROCESSES)]
            for victim in moments.sample(builders, 2):
                time.sleep(moments.random() * self.seconds)
                victim.send_signal(signal.SIGKILL)
            for builder in builders:
                message = builder.communicate(timeout=PATIENCE)[1]
                self.assertIn(builder.returncode, (0, -signal.SIGKILL), message)
                killed += builder.returncode != 0
            self.runs.must("cache", "build", self.config)  # one killed when all was done leaves its record to the next
            self.assertEqual(tree(self.cache), self.alone)

    def test_what_a_builder_killed_at_the_very_end_left_goes_when_the_cache_is_verified(self):
        self.runs.must("cache", "build", self.config)
        left = os.path.join(self.cache, "advection", "train", ".building")
        os.mkdir(left)
        dead = subprocess.Popen(["true"])
        dead.wait()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        with open(os.path.join(left, "builder-dead"), "w", encoding="utf-8") as file:
            json.dump({"host": "here", "pid": dead.pid, "boot": boot, "pid_space": os.readlink("/proc/self/ns/pid"),
                       "started": 1, "purpose": "x"}, file)
        os.symlink("builder-dead", os.path.join(left, "shard-0"))
        self.runs.must("cache", "verify", self.cache)
        self.assertEqual(tree(self.cache), self.alone)

    def test_a_build_of_what_is_there_writes_nothing_anew(self):
        self.runs.must("cache", "build", self.config)
        before = {name: os.stat(os.path.join(self.cache, name)).st_ino for name in self.alone}
        self.runs.must("cache", "build", self.config)
        self.assertEqual({name: os.stat(os.path.join(self.cache, name)).st_ino for name in self.alone}, before)

    def test_a_cache_under_construction_is_not_removed(self):
        self.runs.must("cache", "build", self.config)
        group = os.path.join(self.cache, "advection", "train", ".building")
        os.mkdir(group)
        with open(os.path.join(group, "builder-elsewhere"), "w", encoding="utf-8") as file:
            json.dump({"host": "node3", "pid": 7, "boot": "b", "pid_space": "p", "started": 1, "purpose": "x"}, file)
        done = self.runs.run("cache", "build", self.config, "--restart")
        self.assertEqual(done.returncode, 1)
        self.assertIn("process 7 on node3 is at work in it", done.stderr)
        shutil.rmtree(group)
        done = subprocess.run([UPS, "cache", "build", self.config, "--restart"], capture_output=True, text=True,
                              timeout=PATIENCE, env={**os.environ, "SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
        self.assertIn("removed by one process alone", done.stderr)
        self.assertEqual(tree(self.cache), self.alone)

    def test_more_files_extend_a_cache_to_the_bytes_of_a_build_from_nothing(self):
        self.runs.generate("advection1d", "more.h5", 9, "-r", "32", "-s", "9", "--seed", "5")
        longer = self.runs.config("longer", text=LONGER, output=self.runs.path("run"))
        self.runs.must("cache", "build", self.config)
        shards = {name: os.stat(os.path.join(self.cache, name)).st_mtime_ns for name, of in tree(self.cache).items()
                  if of and name.startswith("advection") and "latent/c" in name}
        extended = json.loads(self.runs.must("cache", "build", longer, "--json").stdout)
        self.assertLess(sum(g["encoded"] for g in extended), 20)  # 9 new ones, and those of last shards
        self.assertEqual([g["extended_from"] > 0 for g in extended], [True] * 3 + [False] * 3)
        kept = sum(os.stat(os.path.join(self.cache, name)).st_mtime_ns == then for name, then in shards.items())
        self.assertGreaterEqual(kept, len(shards) - 3)
        found = tree(self.cache)
        self.runs.must("cache", "build", longer, "--restart")
        self.assertEqual(found, tree(self.cache))
        refused = self.runs.run("cache", "build", self.config)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("was made of 2 files, now there are 1", refused.stderr)
        shutil.rmtree(self.cache)

    def damage(self):
        shard = os.path.join(self.cache, "advection", "train", "latent", "c", "2", "0", "0", "0")
        with open(shard, "r+b") as file:
            file.seek(20)
            file.write(b"\x55\xaa\x55")
        os.remove(os.path.join(self.cache, "darcy", "test", "latent", "c", "1", "0", "0", "0"))
        with open(os.path.join(self.cache, "darcy", "train", "statistics", "zarr.json"), "w", encoding="utf-8") as file:
            file.write("{")

    def test_what_is_broken_is_mended_and_nothing_else(self):
        self.runs.must("cache", "build", self.config)
        for operand in (self.config, self.cache):
            self.damage()
            shutil.copy(self.config, self.runs.path("run", "config.yaml"))
            self.assertEqual(self.runs.run("cache", "verify", self.cache).returncode, 1)
            mended = json.loads(self.runs.must("cache", "verify", "--repair", operand, "--json").stdout)
            repaired = {os.path.relpath(g["directory"], self.cache): g["repaired"] for g in mended if "repaired" in g}
            self.assertEqual(repaired, {"advection/train": {"shards": 1, "encoded": 2, "sound": True},
                                        "darcy/test": {"shards": 1, "encoded": 2, "sound": True},
                                        "darcy/train": {"shards": 0, "encoded": 0, "sound": True}})
            self.assertEqual(tree(self.cache), self.alone)

    def test_damaged_documents_are_written_again(self):
        """From the copy that the latents' document keeps; without it the shards are built again as well."""
        self.runs.must("cache", "build", self.config)
        own, latents, root = (os.path.join(self.cache, *names, "zarr.json") for names in (("darcy", "test"), ("darcy", "test", "latent"), ()))
        for files, encoded in (((own,), 0), ((latents,), 0), ((root,), 0), ((own, latents), 6)):
            for file in files:
                with open(file, "w", encoding="utf-8") as damaged:
                    damaged.write("{")
            self.assertEqual(self.runs.run("cache", "verify", self.cache).returncode, 1)
            mended = json.loads(self.runs.must("cache", "verify", "--repair", self.config, "--json").stdout)
            repaired = [g["repaired"] for g in mended if "repaired" in g]  # the root's by the first group below it
            self.assertEqual([(r["encoded"], r["sound"]) for r in repaired], [(encoded, True)])
            self.assertEqual(tree(self.cache), self.alone)

    def test_a_cache_of_another_encoder_is_not_mended(self):
        self.runs.must("cache", "build", self.config)
        group = os.path.join(self.cache, "darcy", "test")
        rewrite(group, lambda attributes: attributes["fingerprint"].update(encoder_weights="0" * 32))
        os.remove(os.path.join(group, "latent", "zarr.json"))
        before = tree(self.cache)
        done = self.runs.run("cache", "verify", "--repair", self.config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("another encoder weights", done.stderr)
        self.assertEqual(tree(self.cache), before)
        shutil.rmtree(group)


if __name__ == "__main__":
    main()
