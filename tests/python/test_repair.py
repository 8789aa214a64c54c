"""`ups cache verify --repair` where it may not do what it would like to: without descriptors, without the right to read or to
write. What is sound stays, what is broken is replaced only by what is whole.

    test_repair.py UPS
"""

import os
import resource
import shutil
import subprocess
import sys
import unittest

from skipping import main
from tiny_run import PATIENCE, Runs, tree

UPS = os.path.abspath(sys.argv.pop(1))
NOBODY = 65534


class RepairTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS)
        cls.ups = shutil.copy(UPS, cls.runs.path("ups"))  # where others may run it; a build may lie in root's home
        cls.config = cls.runs.config("run")
        cls.runs.must("train", cls.config, "--stage", "autoencoder")
        cls.runs.must("cache", "build", cls.config)
        cls.cache = cls.runs.path("run", "cache")
        cls.sound = tree(cls.cache)
        cls.kept = cls.runs.path("kept")
        shutil.copytree(cls.cache, cls.kept)

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def setUp(self):
        shutil.rmtree(self.cache)
        shutil.copytree(self.kept, self.cache)

    def shard(self, number=0):
        return os.path.join(self.cache, "advection", "train", "latent", "c", str(number), "0", "0", "0")

    def damage(self, number=0):
        with open(self.shard(number), "r+b") as file:
            file.seek(20)
            file.write(b"\x55\xaa\x55")

    def repair(self, before=None):
        return subprocess.run([self.ups, "cache", "verify", "--repair", self.config, "--quiet", "--threads", "2"],
                              capture_output=True, text=True, timeout=PATIENCE, preexec_fn=before)

    def as_nobody(self):
        """The run belongs to a user without rights, who runs the command; where the tests are not run by root, to us."""
        if os.getuid() != 0:
            return None
        os.chmod(self.runs.folder, 0o755)
        for at, folders, files in os.walk(self.runs.folder):
            for name in folders + files:
                os.chown(os.path.join(at, name), NOBODY, NOBODY, follow_symlinks=False)

        def become():
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)

        return become

    def test_without_descriptors_nothing_sound_is_given_up(self):
        for limit in range(3, 16):
            done = self.repair(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
            self.assertEqual(tree(self.cache), self.sound, (limit, done.stdout, done.stderr))

    def test_without_descriptors_a_damaged_shard_is_replaced_or_stays(self):
        self.damage(1)
        damaged = tree(self.cache)
        for limit in range(4, 40, 3):
            done = self.repair(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
            found = tree(self.cache)
            if found == self.sound:
                self.damage(1)
                continue
            self.assertIn(done.returncode, (1, 127))  # 127: its libraries could not be opened
            found = {name: content for name, content in found.items() if ".building" not in name}
            self.assertEqual(found, damaged, (limit, done.stderr))
            shutil.rmtree(os.path.join(self.cache, "advection", "train", ".building"), ignore_errors=True)
        self.assertEqual(self.repair().returncode, 0)
        self.assertEqual(tree(self.cache), self.sound)

    def test_without_descriptors_no_data_file_is_called_damaged(self):
        for limit in range(3, 12):
            done = subprocess.run([UPS, "data", "inspect", os.path.join(self.runs.data, "darcy.h5")], capture_output=True,
                                  text=True, timeout=PATIENCE,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
            self.assertNotIn("generate it again", done.stderr, limit)
            if done.returncode == 1:
                self.assertIn("raise `ulimit -n`", done.stderr, limit)

    def test_what_may_not_be_read_is_not_taken_for_broken(self):
        self.damage(1)
        become = self.as_nobody()
        before = tree(self.cache)
        for path in (self.shard(0), os.path.join(self.cache, "advection", "train", "zarr.json"),
                     os.path.join(self.cache, "advection", "train", "statistics", "c", "0", "0"),
                     os.path.dirname(self.shard(0)), os.path.join(self.cache, "darcy", "test")):
            mode = os.stat(path).st_mode
            os.chmod(path, 0)
            done = self.repair(become)
            os.chmod(path, mode)
            self.assertEqual(done.returncode, 1, (path, done.stdout, done.stderr))
            self.assertIn("Permission denied", done.stdout + done.stderr, path)
            if path == self.shard(0):
                self.assertIn("Make it readable, or remove that file to have it built again", done.stderr)
            if "darcy" not in path:
                self.assertEqual(tree(self.cache), before, path)
        self.assertEqual(self.repair(become).returncode, 0)
        self.assertEqual(tree(self.cache), self.sound)

    def test_where_nothing_may_be_written_everything_stays(self):
        self.damage(0)
        os.remove(self.shard(1))
        become = self.as_nobody()
        before = tree(self.cache)
        for at in (os.path.dirname(self.shard(0)), os.path.join(self.cache, "advection", "train")):
            os.chmod(at, 0o555)
            done = self.repair(become)
            os.chmod(at, 0o755)
            self.assertEqual(done.returncode, 1, (at, done.stdout, done.stderr))
            found = tree(self.cache)
            for name in (self.shard(0), ):
                self.assertEqual(found[os.path.relpath(name, self.cache)], before[os.path.relpath(name, self.cache)], at)
            for name, content in self.sound.items():
                self.assertIn(found.get(name), (content, before.get(name)), (at, name))
        self.assertEqual(self.repair(become).returncode, 0)
        self.assertEqual(tree(self.cache), self.sound)


if __name__ == "__main__":
    main()
