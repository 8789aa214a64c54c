"""Writing that fails: for every command that writes, and for the nth write, sync, rename … of it, for every n until the
command succeeds without reaching the fault. It ends with exit code 1 and one sentence; nothing half-written has a final
name; and the same command without the fault ends with the bytes of an undisturbed run.

Usage: test_write_faults.py UPS FAULTS [TEST...]. UPS_TEST_FAULTS=all tries every n of every fault (some minutes);
otherwise some, at random."""

import json
import os
import random
import re
import shutil
import signal
import unittest

from injection import ALL, FaultTests
from skipping import main
from tiny_run import CONFIG, metrics, tree

SOME = 8  # of the faults, where not all are tried
METRICS, EVALUATION = "metrics.jsonl", "evaluation.json"

# One task, few samples, few steps: what is written is small, and of every kind.
SMALL = (CONFIG[:CONFIG.index("  - name: darcy")] + CONFIG[CONFIG.index("model:"):])
SMALL = re.sub(r"steps: 60", "steps: 8", SMALL).replace("validate_every: 30", "validate_every: 4")
SMALL = SMALL.replace("checkpoint_every: 10", "checkpoint_every: 4").replace("warmup_steps: 4", "warmup_steps: 2")
SMALL = SMALL.replace("log_every: 10", "log_every: 2").replace("rollout_steps: 3", "rollout_steps: 2")

# Calls, how they fail, and words of the sentence; None: all goes well nevertheless. A full disk stays full.
FAULTY = [("write", "+:ENOSPC", "No space left on device; make room"), ("write", ":EIO", "Input/output error; the disk"),
          ("write", "+:EDQUOT", "Disk quota exceeded; your quota"), ("write", "+:short", None), ("write", ":EINTR", None),
          ("sync", ":EIO", "Input/output error"), ("sync", ":EINTR", None), ("close", ":EDQUOT", "Disk quota exceeded"),
          ("rename", ":EIO", "Input/output error"), ("rename", "+:ENOSPC", "No space left on device"),
          ("open", "+:EROFS", "Read-only file system; it is mounted"), ("space", "+:ENOSPC", "No space left on device"),
          ("mkdir", "+:EROFS", "Read-only file system; it is mounted"), ("link", "+:ENOSPC", "No space left on device"),
          ("write,sync,rename,open,space,mkdir,link,close,unlink", ":kill", "killed")]


# A descriptor whose data was synced, or that only held a lock, may be closed badly. What is published is looked after.
# A shard that is whole under its name is taken as built; its directory is synced once more then. Entering the builders of
# a group is tried again.
COSTS_NOTHING = r"^close (?!.*\.ups-partial-)|^sync .*/latent/c/\d+/0/0$|/\.building(/|$)"


class WriteFaults(FaultTests):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.mkdir(cls.folder)
        cls.config = cls.runs.config("small", SMALL, output=os.path.join(cls.folder, "run"))
        cls.states = {}
        cls.state("empty")
        cls.runs.must("train", cls.config, "--stage", "autoencoder")
        cls.state("encoder")
        cls.runs.must("cache", "build", cls.config)
        cls.state("cached")
        cls.runs.must("train", cls.config, "--stage", "operator")
        cls.state("trained")
        shutil.copytree(cls.states["cached"], cls.runs.path("state-damaged"), symlinks=True)
        cls.states["damaged"] = cls.runs.path("state-damaged")
        group = os.path.join(cls.states["damaged"], "run/cache/advection/train")
        with open(os.path.join(group, "latent/c/0/0/0/0"), "r+b") as shard:
            shard.write(b"\x55\xaa\x55")
        os.truncate(os.path.join(group, "latent/zarr.json"), 100)

    @classmethod
    def state(cls, name):
        cls.states[name] = cls.runs.path("state-" + name)
        shutil.copytree(cls.folder, cls.states[name], symlinks=True)

    def begin(self, state):
        shutil.rmtree(self.folder)
        shutil.copytree(self.states[state], self.folder, symlinks=True)

    def look(self):
        """What lies there, but for what holds the clock, of which only the rest counts."""
        found = tree(self.folder)
        for name in found:
            base, path = os.path.basename(name), os.path.join(self.folder, name)
            if base == METRICS:
                found[name] = metrics(os.path.dirname(path), clock=False)
            elif base == EVALUATION:
                with open(path, encoding="utf-8") as file:
                    found[name] = [line for line in file if "seconds" not in line]
            elif base.endswith(".html"):
                with open(path, encoding="utf-8") as file:
                    found[name] = re.sub(r"\d\d:\d\d", "", file.read())
        return found

    def one_sentence(self, done, words, what):
        self.assertEqual(done.returncode, 1, what + done.stderr + done.stdout)
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("[")]  # [clock]: log
        self.assertEqual(len(lines), 1, what + done.stderr)
        self.assertRegex(lines[0], r"^ups: .*" + re.escape(os.path.dirname(self.folder)), what)
        self.assertRegex(lines[0], words, what)

    def nothing_torn(self, what):
        """What has a final name is as it was, or as an undisturbed run leaves it, or, in the middle of a run, whole."""
        for name, content in self.look().items():
            base, path = os.path.basename(name), os.path.join(self.folder, name)
            if content in (None, self.before.get(name), self.after.get(name)) or os.path.islink(path):
                continue
            if ".ups-" in name or base in ("lock", METRICS):
                continue
            if base.endswith(".json") or base.startswith("builder-"):
                with open(path, encoding="utf-8") as file:
                    json.load(file)
            elif base.endswith(".safetensors"):
                with open(path, "rb") as file:
                    head = int.from_bytes(file.read(8), "little")
                    header = json.loads(file.read(head))
                ends = [tensor["data_offsets"][1] for key, tensor in header.items() if key != "__metadata__"]
                self.assertEqual(os.path.getsize(path), 8 + head + max(ends), what + name)
            else:
                self.fail(what + name + " is neither what it was nor what it was to be")

    def counted(self, state, arguments, calls):
        """How many of these calls an undisturbed run makes, and how it leaves the folder."""
        self.begin(state)
        done, struck = self.with_fault(arguments, f"{calls}:1+:none")
        self.assertEqual(done.returncode, 0, done.stderr)
        return len(struck)

    def disturbed(self, state, arguments, again, fault, words, may_succeed):
        """One run that meets the fault, and one after it that does not."""
        self.begin(state)
        done, struck = self.with_fault(arguments, fault)
        what = f"\nups {' '.join(arguments)}, {fault}, struck {struck[:1]}\n"
        if words is None or not struck:
            self.assertEqual(done.returncode, 0, what + done.stderr)
            self.assertEqual(self.look(), self.after, what)
            return
        if words == "killed":
            self.assertEqual(done.returncode, -signal.SIGKILL, what + done.stderr)
        elif done.returncode != 0 or not re.search(may_succeed or COSTS_NOTHING, struck[0]):
            self.one_sentence(done, words, what)
        self.nothing_torn(what)
        if self.look() == self.after:  # the fault met what comes after everything was in place
            return
        done = self.runs.run(*again, "--quiet")
        self.assertEqual(done.returncode, 0, what + "then " + done.stderr)
        self.assertEqual(self.look(), self.after, what)

    def try_all(self, state, arguments, *again, may_succeed=None):
        """`again`: options of the command that goes on after a failure. `may_succeed`: calls (a pattern) whose failure costs nothing."""
        self.begin(state)
        self.before = self.look()
        self.runs.must(*arguments, "--quiet")
        self.after = self.look()
        self.assertGreater(self.counted(state, arguments, "write"), 0, "no write was seen: the faults do not reach the command")
        counts = {}
        for calls, how, words in FAULTY if ALL else random.sample(FAULTY, SOME):
            if calls not in counts:
                counts[calls] = self.counted(state, arguments, calls)
            for n in self.numbers(counts[calls]):
                with self.subTest(command=arguments[:2], calls=calls, n=n, how=how):
                    self.disturbed(state, arguments, [*arguments, *again], f"{calls}:{n}{how}", words, may_succeed)

    # ---- the commands ----

    def output(self, name):
        return os.path.join(self.folder, name)

    def test_datagen(self):
        self.try_all("empty", ["datagen", "advection1d", "-o", self.output("a.h5"), "-n", "3", "-t", "1", "-r", "16",
                               "-s", "4"], "--force")
        self.try_all("empty", ["datagen", "diffreact2d", "-o", self.output("d.h5"), "-n", "2", "-t", "1", "-r", "16",
                               "-s", "3"], "--force")

    def test_training_an_autoencoder(self):
        self.try_all("empty", ["train", self.config, "--stage", "autoencoder"], "--resume")

    def test_training_an_operator(self):
        self.try_all("cached", ["train", self.config, "--stage", "operator"], "--resume")

    def test_cache_build(self):
        self.try_all("encoder", ["cache", "build", self.config])

    def test_cache_repair(self):
        self.try_all("damaged", ["cache", "verify", "--repair", self.config])

    def test_cache_export(self):
        for kind in ("npy", "hdf5", "zarr"):
            self.try_all("cached", ["cache", "export", self.output("run/cache/advection/train"), "--format", kind, "-o",
                                    self.output("latents." + kind)])

    def test_looking(self):
        cache = self.output("run/cache")
        self.try_all("cached", ["cache", "inspect", cache, "--html", self.output("page.html")])
        self.try_all("cached", ["cache", "inspect", cache + "/advection/train", "--png", self.output("latent.png")])
        self.try_all("empty", ["data", "dump", os.path.join(self.runs.data, "advection.h5"), "-o",
                               self.output("dump.npy")])

    def test_evaluation_and_rollout(self):
        self.try_all("trained", ["eval", self.config])
        self.try_all("trained", ["rollout", self.config, "-o", self.output("rollout.h5"), "--png",
                                 self.output("pictures")])


if __name__ == "__main__":
    main()
