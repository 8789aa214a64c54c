"""Bad input: one sentence that names the file and says what to do, a non-zero exit, nothing half-written.
Usage: test_bad_input.py UPS"""

import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

import h5py
import numpy as np

from skipping import main, skipped
from tiny_run import CONFIG, PATIENCE, Runs, metrics, tree

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"
NOBODY = 65534
SEED = 7


class BadInput(unittest.TestCase):
    """`trained` is a finished run; each test works on its own copy of it."""

    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS)
        os.chmod(cls.runs.folder, 0o755)
        cls.trained = cls.runs.config("trained")
        cls.runs.must("train", cls.trained, "--quiet")

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def run_of_its_own(self):
        name = self.id().rpartition(".")[2]
        return self.runs.copy(name, "trained"), self.runs.path(name)

    def one_sentence(self, done, *parts, code=1):
        """Standard error holds one message, and it contains each part (patterns)."""
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        lines = [line for line in done.stderr.splitlines() if line.startswith("ups")]
        self.assertEqual(len(lines), 1, done.stderr)
        for part in parts:
            self.assertRegex(lines[0], part)
        return lines[0]

    def refused(self, arguments, *parts, unchanged=None, **options):
        """The command fails with one sentence and leaves every file of the scratch folder as it was."""
        folder = unchanged or self.runs.folder
        before = tree(folder)
        done = self.runs.run(*arguments, "--quiet", **options)
        message = self.one_sentence(done, *parts)
        after = tree(folder)
        self.assertEqual({name for name in {*before, *after} if before.get(name, "") != after.get(name, "")}, set(), message)
        return message

    # ---- fields ----

    def with_field_file(self, write):
        """A configuration for one task whose file `write(path)` makes; what `ups train` needs to begin with it."""
        name = self.id().rpartition(".")[2]
        path = os.path.join(self.runs.data, name + ".h5")
        write(path)
        text = CONFIG.replace("files: [advection.h5]", f"files: [{name}.h5]")
        return self.runs.config("fields_" + name, text), path

    def refused_fields(self, write, *parts):
        config, path = self.with_field_file(write)
        self.refused(["train", config], *parts, re.escape(path))
        self.refused(["train", config, "--plan"], *parts, re.escape(path))
        self.refused(["data", "inspect", path], *parts, re.escape(path))

    def original(self):
        with open(os.path.join(self.runs.data, "advection.h5"), "rb") as file:
            return file.read()

    def test_an_empty_file_is_refused(self):
        self.refused_fields(lambda path: open(path, "wb").close(), "empty")

    def test_a_file_that_is_not_there_is_refused(self):
        self.refused_fields(lambda path: None, "No such file")

    def test_a_truncated_hdf5_file_is_refused_wherever_it_was_cut(self):
        whole = self.original()
        for length in (1, 8, 100, len(whole) // 4, len(whole) // 2, len(whole) - 1):
            with self.subTest(length=length):
                def write(path, length=length):
                    with open(path, "wb") as file:
                        file.write(whole[:length])
                self.refused_fields(write, "truncated|cut|damaged|not an HDF5 file|ends|shorter")

    def test_a_file_that_is_no_hdf5_is_refused(self):
        def write(path):
            with open(path, "wb") as file:
                file.write(random.Random(SEED).randbytes(5000))
        self.refused_fields(write, "HDF5")

    def test_an_hdf5_file_with_corrupted_metadata_is_refused(self):
        def write(path):
            with open(path, "wb") as file:
                damaged = bytearray(self.original())
                start = damaged.find(b"TREE")
                damaged[start:start + 64] = b"\xff" * 64
                file.write(damaged)
        self.refused_fields(write, "damaged|corrupt|cannot be")

    def test_a_damaged_chunk_is_refused_naming_file_and_sample(self):
        def write(path):
            with h5py.File(os.path.join(self.runs.data, "advection.h5")) as old, h5py.File(path, "w") as new:
                for name in old:
                    packed = {"compression": "gzip", "chunks": (1, *old[name].shape[1:])} if name == "tensor" else {}
                    new.create_dataset(name, data=old[name][...], **packed)
                where = [new["tensor"].id.get_chunk_info(i) for i in range(12)]
            with open(path, "r+b") as file:
                for chunk in where:
                    file.seek(chunk.byte_offset + chunk.size // 2)
                    file.write(b"\xff" * 16)
        config, path = self.with_field_file(write)
        self.refused(["train", config], re.escape(path), r"tensor\[\d+\]|sample \d+")

    @staticmethod
    def write_few_chunks(path, **options):
        """230 400 chunks are declared, few are written."""
        with h5py.File(path, "w") as file:
            tensor = file.create_dataset("tensor", (400, 9, 64), "f4", chunks=(1, 1, 1), **options)
            tensor[0] = np.sin(np.arange(64))
            file["x-coordinate"], file["t-coordinate"] = np.linspace(0, 1, 64), np.linspace(0, 1, 10)

    def test_more_chunks_than_the_file_can_have_written_are_not_left_to_the_library(self):
        self.refused_fields(lambda path: self.write_few_chunks(path, scaleoffset=3),
                            r"'tensor' has 230400 chunks, more than a file of \d+ bytes")

    def test_a_file_that_is_yet_to_be_filled_is_read(self):
        _, path = self.with_field_file(self.write_few_chunks)
        self.assertIn("400", self.runs.must("data", "inspect", path).stdout)

    def test_a_missing_dataset_is_refused_naming_what_was_looked_for(self):
        def write(path):
            with h5py.File(path, "w") as file:
                file["something"] = np.zeros((4, 9, 32), "f4")
        self.refused_fields(write, "tensor|layout")

    def test_a_dataset_of_the_wrong_rank_is_refused_with_the_right_one(self):
        for shape in ((32,), (2, 2, 2, 9, 32)):
            with self.subTest(shape=shape):
                def write(path, shape=shape):
                    with h5py.File(path, "w") as file:
                        file["tensor"] = np.zeros(shape, "f4")
                        file["x-coordinate"], file["t-coordinate"] = np.linspace(0, 1, 32), np.linspace(0, 1, 9)
                self.refused_fields(write, f"rank|{len(shape)} dimensions|shape|axes")

    def poisoned(self, path, sample):
        shutil.copyfile(os.path.join(self.runs.data, "advection.h5"), path)
        self.poison(path, sample)

    @staticmethod
    def poison(path, sample):
        with h5py.File(path, "r+") as file:
            file["tensor"][sample, 3, 5] = np.nan

    def samples(self, split):
        """What a split of the advection task holds, as the cache of the trained run says (float64 and int64 arrays end
        with a CRC32C)."""
        with open(self.runs.path("trained", "cache", "advection", split, "source_sample", "c", "0"), "rb") as file:
            return [sample for sample, in struct.iter_unpack("<q", file.read()[:-4])]

    def training_sample(self):
        return self.samples("train")[0]

    def test_a_nan_in_a_field_stops_the_run_naming_file_sample_and_frame(self):
        sample = self.training_sample()
        config, path = self.with_field_file(lambda path: self.poisoned(path, sample))
        self.refused(["train", config], re.escape(os.path.basename(path)), rf"tensor\[{sample}\]|sample {sample}\b", "frame 3", "NaN",
                     "on_bad_sample: skip")

    def test_a_nan_in_a_field_is_skipped_and_recorded_where_the_configuration_says_so(self):
        sample = self.training_sample()
        config, path = self.with_field_file(lambda path: self.poisoned(path, sample))
        done = self.runs.must("train", config, "--set", "data.on_bad_sample=skip")
        self.assertRegex(done.stderr, rf"(tensor\[{sample}\]|sample {sample}\b).*NaN")
        folder = config.removesuffix(".yaml")
        self.assertTrue(all(line["loss"] is not None for line in metrics(folder) if "loss" in line))
        with open(os.path.join(folder, "cache", "advection", "train", "zarr.json"), encoding="utf-8") as file:
            recorded = json.load(file)["attributes"]["ups"]
        self.assertEqual([entry["source_sample"] for entry in recorded["result"]["skipped"]], [sample])
        self.runs.must("cache", "verify", os.path.join(folder, "cache"))

    def test_a_split_of_nothing_but_bad_samples_is_skipped_and_recorded_too(self):
        def write(path):
            shutil.copyfile(os.path.join(self.runs.data, "advection.h5"), path)
            for sample in self.samples("test"):
                self.poison(path, sample)
        config, path = self.with_field_file(write)
        self.runs.must("train", config, "--set", "data.on_bad_sample=skip", "--stage", "autoencoder")
        done = self.runs.must("cache", "build", config, "--set", "data.on_bad_sample=skip", "--json")
        built = {group["split"]: group["skipped"] for group in json.loads(done.stdout) if group["task"] == "advection"}
        self.assertEqual(built, {"train": 0, "validation": 0, "test": len(self.samples("test"))})

    def test_what_is_no_regular_file_is_refused_at_once(self):
        def pipe(path):
            os.mkfifo(path)

        def listening(path):
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path)
        for make, kind in ((pipe, "a named pipe"), (listening, "a socket"), (lambda path: os.symlink("/dev/zero", path), "a device"),
                           (os.mkdir, "a directory")):
            with self.subTest(kind):
                config, path = self.with_field_file(make)
                for command in (["data", "inspect", path], ["data", "dump", path, "-o", self.runs.path("no.npy")], ["train", config, "--plan"]):
                    self.one_sentence(self.runs.run(*command), re.escape(path), kind)
                for command in (["config", "check", path], ["train", path]):
                    self.one_sentence(self.runs.run(*command), re.escape(path), kind)
                shutil.rmtree(path) if kind == "a directory" else os.remove(path)

    def test_a_configuration_that_never_comes_is_not_waited_for_beyond_a_signal(self):
        with open(self.trained, encoding="utf-8") as file:
            whole = self.runs.run("config", "check", "/dev/stdin", stdin=file)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        with subprocess.Popen([UPS, "config", "check", "/dev/stdin"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as waiting:
            time.sleep(0.5)
            waiting.terminate()
            try:
                self.assertEqual(waiting.wait(timeout=20), 130)
            finally:
                waiting.kill()

    def test_times_that_do_not_increase_are_refused_naming_where(self):
        for place, value, told in ((5, 0.1, "frame 4 is at .*, frame 5 at 0.1"), (5, None, "frame 4 is at .*, frame 5 at"), (8, np.nan, "frame 8 at")):
            def write(path, place=place, value=value):
                shutil.copyfile(os.path.join(self.runs.data, "advection.h5"), path)
                with h5py.File(path, "r+") as file:
                    file["t-coordinate"][place] = file["t-coordinate"][place - 1] if value is None else value
            self.refused_fields(write, "times do not increase", told)

    def test_times_of_steps_that_rounding_made_uneven_are_read(self):
        def write(path):
            shutil.copyfile(os.path.join(self.runs.data, "advection.h5"), path)
            with h5py.File(path, "r+") as file:
                steps = np.float32(1000) + np.float32(1e-3) * np.arange(file["t-coordinate"].shape[0], dtype="f4")
                del file["t-coordinate"]
                file["t-coordinate"] = steps
        _, path = self.with_field_file(write)
        self.runs.must("data", "inspect", path)

    # ---- what a terminal would take for commands ----

    TITLE = "\x1b]0;owned\x07"

    def nothing_for_the_terminal(self, done):
        for text in (done.stdout, done.stderr):
            self.assertEqual([c for c in text if ord(c) < 32 and c not in "\n\t" or 127 <= ord(c) < 160], [], repr(text))

    def test_escape_sequences_in_names_are_shown_and_not_obeyed(self):
        def strange(path):
            with h5py.File(path, "w") as file:
                file["a" + self.TITLE + "b"] = np.zeros(3)

        def attribute(path):
            shutil.copyfile(os.path.join(self.runs.data, "advection.h5"), path)
            with h5py.File(path, "r+") as file:
                file.attrs["nu" + self.TITLE + "\u009b31m\u202e"] = 0.5
                file.attrs["config"] = "sim:\n  beta: 0.25"
        for write, code in ((strange, 1), (attribute, 0)):
            config, path = self.with_field_file(write)
            done = self.runs.run("data", "inspect", path)
            self.assertEqual(done.returncode, code, done.stderr)
            self.nothing_for_the_terminal(done)
            self.assertIn("\\u001b]0;owned\\u0007", done.stdout + done.stderr)
            told = self.runs.run("data", "inspect", "--json", path)
            self.nothing_for_the_terminal(told)
            self.assertIn("owned", str(json.loads(told.stdout)))
            self.nothing_for_the_terminal(self.runs.run("train", config, "--plan"))

    def test_escape_sequences_in_names_of_files_are_shown_and_not_obeyed(self):
        folder = os.fsencode(self.runs.path(self.id().rpartition(".")[2]))
        os.mkdir(folder)
        for name in (self.TITLE.encode() + b".h5", b"latin-\xe9.h5"):
            path = os.path.join(folder, name)
            gone = self.runs.run("data", "inspect", path)
            self.one_sentence(gone, r"owned|latin-\\xe9", "No such file")
            self.nothing_for_the_terminal(gone)
            shutil.copyfile(os.path.join(self.runs.data, "advection.h5"), path)
            self.nothing_for_the_terminal(self.runs.must("data", "inspect", path))
            for command in (["data", "inspect", "--json", path], ["data", "inspect", "--json", path + b".gone"],
                            ["data", "dump", path, "-o", os.path.join(folder, b"x.npy"), "--json"]):
                done = self.runs.run(*command)
                self.nothing_for_the_terminal(done)
                self.assertTrue(json.loads(done.stdout))
        self.nothing_for_the_terminal(self.runs.run("data", self.TITLE))
        self.nothing_for_the_terminal(self.runs.run("data", "inspect", "--" + self.TITLE))

    # ---- where nothing can be written ----

    def test_standard_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([UPS, "data", "inspect", os.path.join(self.runs.data, "advection.h5")], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "standard output cannot be written: No space left")

    def without_rights(self):
        """How to run as somebody who may not write what root owns; the binary is copied to where anybody can run it."""
        if os.geteuid() != 0:
            return [UPS]
        copy = self.runs.path("ups")
        if not os.path.exists(copy):
            shutil.copy(UPS, copy)
            os.chmod(copy, 0o755)
        nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        if subprocess.run([*nobody, "true"], capture_output=True).returncode != 0:
            self.skipTest("root of this container cannot become another user, and may write anywhere")
        return [*nobody, copy]

    def test_a_directory_without_rights_is_refused(self):
        config, folder = self.run_of_its_own()
        locked = self.runs.path("locked")
        os.mkdir(locked, 0o555)
        for arguments in (["train", config, "--set", f"output={locked}/run"],
                          ["train", config, "--set", f"output={locked}"],
                          ["cache", "build", config, "--set", f"cache.directory={locked}/cache"],
                          ["datagen", "advection1d", "-o", f"{locked}/a.h5", "-n", "2"]):
            with self.subTest(arguments):
                command = [*self.without_rights(), *arguments, "--quiet"]
                before = tree(self.runs.folder)
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
                self.one_sentence(done, re.escape(locked), "Permission denied")
                self.assertEqual(tree(self.runs.folder), before)
        os.chmod(locked, 0o755)

    def test_a_directory_below_a_file_is_refused(self):
        config, folder = self.run_of_its_own()
        plain = self.runs.path("plain-file")
        open(plain, "w").close()
        self.refused(["train", config, "--set", f"output={plain}/run"], re.escape(plain), "not a directory|Not a directory")
        self.refused(["cache", "build", config, "--set", f"cache.directory={plain}/cache"], re.escape(plain),
                     "not a directory|Not a directory")

    def full(self, arguments, kib):
        """Runs with files of at most `kib` KiB: what writes more is told that there is no room, as on a full disk."""
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, kib << 10))
        return subprocess.run([UPS, *arguments, "--quiet"], capture_output=True, text=True, timeout=PATIENCE, preexec_fn=limit)

    def on_a_full_disk(self, config, folder, arguments, kib):
        """Runs with `folder` on a file system of `kib` KiB besides what it holds; None where mounting is not allowed.
        What was left of `folder` comes back into its place."""
        script = ('set -e; mkdir -p "$1.disk"; mount -t tmpfs -o size=$2k tmpfs "$1.disk"; cp -a "$1/." "$1.disk"; '
                  'mount --move "$1.disk" "$1"; shift 2; save=$1; shift; set +e; "$@"; code=$?; mkdir "$save"; '
                  'cp -a "$FOLDER/." "$save"; exit $code')
        held = sum(-(-os.path.getsize(os.path.join(at, name)) // 4096) * 4 for at, _, names in os.walk(folder) for name in names)
        saved = folder + ".saved"
        isolate = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
        if subprocess.run([*isolate, "sh", "-c", 'mount -t tmpfs tmpfs "$0"', folder], capture_output=True).returncode != 0:
            return None
        done = subprocess.run([*isolate, "sh", "-c", script, "sh", folder, str(held + kib), saved, UPS, *arguments, "--quiet"],
                              capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "FOLDER": folder})
        shutil.rmtree(folder)
        shutil.move(saved, folder)
        return done

    def say_no_disk(self):
        skipped(self._testMethodName, "no file system of one's own can be mounted here: files were limited in size instead")

    def nothing_half_written(self, folder):
        for name in tree(folder):
            self.assertNotIn("partial", name)

    def no_room(self, config, folder, arguments, kib, *parts):
        done = self.on_a_full_disk(config, folder, arguments, kib)
        message = "No space left on device"
        if done is None:
            self.say_no_disk()
            done, message = self.full(arguments, min(kib, 400)), "the limit on file size"  # a limit on each file: below a checkpoint's size
        self.one_sentence(done, message, re.escape(folder), *parts)
        self.nothing_half_written(folder)

    def test_a_full_disk_stops_training_and_leaves_the_last_checkpoint_whole(self):
        config, folder = self.run_of_its_own()
        expected = tree(folder)
        shutil.rmtree(os.path.join(folder, "checkpoints", "operator"))
        self.no_room(config, folder, ["train", config, "--stage", "operator", "--restart"], 200, "checkpoints/operator")
        self.no_room(config, folder, ["train", config, "--stage", "operator", "--resume"], 600, "checkpoints/operator")
        self.runs.must("train", config, "--stage", "operator", "--resume")
        found = tree(folder)
        found.pop("metrics.jsonl"), expected.pop("metrics.jsonl")
        self.assertEqual({name for name in expected if found.get(name) != expected[name]}, {"config.yaml"})

    def test_a_full_disk_stops_a_cache_build_which_then_goes_on(self):
        config, folder = self.run_of_its_own()
        expected = tree(os.path.join(folder, "cache"))
        shutil.rmtree(os.path.join(folder, "cache"))
        done = self.on_a_full_disk(config, folder, ["cache", "build", config], 60)
        if done is None:
            self.say_no_disk()
            done = self.full(["cache", "build", config], 1)
        self.one_sentence(done, "No space left on device|File too large", re.escape(os.path.join(folder, "cache")))
        self.nothing_half_written(folder)
        self.runs.must("cache", "build", config)
        self.assertEqual(tree(os.path.join(folder, "cache")), expected)

    # ---- caches ----

    def test_a_cache_of_another_encoder_is_refused_naming_what_differs(self):
        config, folder = self.run_of_its_own()
        self.runs.must("train", config, "--stage", "autoencoder", "--restart", "--set", "seed=99", "--quiet")
        self.refused(["train", config, "--stage", "operator", "--restart"], re.escape(os.path.join(folder, "cache")), "weights", "cache build",
                     unchanged=os.path.join(folder, "cache"))
        self.refused(["cache", "build", config], re.escape(os.path.join(folder, "cache")), "weights", "--restart")
        self.runs.must("cache", "build", config, "--restart")
        self.runs.must("cache", "verify", os.path.join(folder, "cache"))
        done = self.runs.must("train", config, "--stage", "operator", "--resume", "--set", "seed=99")
        self.assertNotIn("(resumed)", done.stderr, "the operator went on with weights trained on other latents")

    def test_a_cache_of_other_fields_is_refused_naming_them(self):
        config, folder = self.run_of_its_own()
        data = self.runs.path("other-data")
        shutil.copytree(self.runs.data, data)
        self.runs.must("datagen", "advection1d", "-o", os.path.join(data, "advection.h5"), "-n", "12", "-r", "32", "-s", "9", "--seed", "5",
                       "--force")
        moved = self.runs.config(os.path.basename(folder), data=data)
        self.refused(["cache", "build", moved], re.escape(os.path.join(folder, "cache")), "source", "--restart")

    def test_a_field_scale_changed_after_training_is_said_to_wait_for_a_new_one(self):
        config, folder = self.run_of_its_own()
        before = tree(os.path.join(folder, "cache"))
        done = self.runs.must("cache", "build", config, "--set", "tasks[1].field_scale=[1, 3]")
        self.assertRegex(done.stderr, "darcy: its field_scale was changed since the model was trained.*--restart")
        self.assertEqual(tree(os.path.join(folder, "cache")), before)

    def test_flipped_bytes_in_shards_are_found_with_shard_and_sample(self):
        config, folder = self.run_of_its_own()
        chance = random.Random(SEED)
        shards = sorted(os.path.join(at, name) for at, _, names in os.walk(os.path.join(folder, "cache")) for name in names
                        if os.sep + "latent" + os.sep in at + os.sep and name != "zarr.json")
        self.assertEqual(self.runs.run("cache", "verify", os.path.join(folder, "cache"), "--quiet").returncode, 0)
        for _ in range(12):
            shard = chance.choice(shards)
            with open(shard, "r+b") as file:
                at = chance.randrange(os.path.getsize(shard))
                file.seek(at)
                old = file.read(1)[0]
                file.seek(at)
                file.write(bytes([old ^ chance.randrange(1, 256)]))
            done = self.runs.run("cache", "verify", os.path.join(folder, "cache"), "--json", "--quiet")
            self.assertEqual(done.returncode, 1, (shard, at))
            unsound = [group for group in json.loads(done.stdout) if not group["sound"]]
            self.assertEqual(len(unsound), 1)
            self.assertTrue(shard.startswith(unsound[0]["directory"] + os.sep))
            relative = os.path.relpath(shard, unsound[0]["directory"])
            self.assertTrue(all(relative in finding["message"] and "shard" in finding for finding in unsound[0]["findings"]), unsound)
            self.assertTrue(any(re.search("sample|index", finding["message"]) for finding in unsound[0]["findings"]), unsound)
            with open(shard, "r+b") as file:
                file.seek(at)
                file.write(bytes([old]))
        self.assertEqual(self.runs.run("cache", "verify", os.path.join(folder, "cache"), "--quiet").returncode, 0)

    def test_training_on_a_damaged_shard_stops_naming_it(self):
        config, folder = self.run_of_its_own()
        for number in range(3):
            shard = os.path.join(folder, "cache", "advection", "train", "latent", "c", str(number), "0", "0", "0")
            with open(shard, "r+b") as file:
                file.seek(os.path.getsize(shard) // 3)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 0x10]))
        done = self.runs.run("train", config, "--stage", "operator", "--restart", "--quiet")
        self.one_sentence(done, re.escape(os.path.join(folder, "cache")), "checksum|changed|damaged", "verify|build|--restart")
        self.nothing_half_written(folder)

    def test_a_folder_that_holds_no_cache_is_refused(self):
        for command in ("verify", "inspect"):
            self.refused(["cache", command, self.runs.data], re.escape(self.runs.data))
        self.refused(["cache", "verify", self.runs.path("nowhere")], re.escape(self.runs.path("nowhere")))

    # ---- models and checkpoints ----

    def malformed(self):
        """Name and bytes of files that are no safetensors."""
        with open(self.runs.path("trained", "autoencoder.safetensors"), "rb") as file:
            whole = file.read()
        length = struct.unpack_from("<Q", whole)[0]
        header = json.loads(whole[8:8 + length])

        def with_header(text):
            return struct.pack("<Q", len(text)) + text + whole[8 + length:]

        def changed(change):
            copy = json.loads(json.dumps(header))
            change(copy, next(name for name in copy if name != "__metadata__"))
            return with_header(json.dumps(copy).encode())

        def overlap(copy, first):
            begin, end = copy[first]["data_offsets"]
            copy[first]["data_offsets"] = [begin + 4, end + 4]

        yield "empty", b""
        yield "three bytes", whole[:3]
        yield "cut in the header", whole[:8 + length // 2]
        yield "cut in the data", whole[:-1]
        yield "longer than it says", whole + b"\0"
        yield "a header longer than the file", struct.pack("<Q", 1 << 62) + whole[8:]
        yield "a header that is no JSON", with_header(b"x" * length)
        yield "a header that is a list", with_header(b"[]")
        yield "an offset moved", changed(overlap)
        yield "another shape", changed(lambda copy, first: copy[first].update(shape=[7, 7]))
        yield "an unknown element type", changed(lambda copy, first: copy[first].update(dtype="Q7"))
        yield "a tensor of another name", changed(lambda copy, first: copy.update({"stranger": copy.pop(first)}))

    def test_malformed_safetensors_are_refused_as_the_encoder(self):
        config, folder = self.run_of_its_own()
        model = os.path.join(folder, "autoencoder.safetensors")
        shutil.rmtree(os.path.join(folder, "cache"))
        for what, content in self.malformed():
            with self.subTest(what):
                with open(model, "wb") as file:
                    file.write(content)
                done = self.runs.run("cache", "build", config, "--quiet")
                self.one_sentence(done, re.escape(model))
                self.nothing_half_written(folder)
                shutil.rmtree(os.path.join(folder, "cache"), ignore_errors=True)
        os.remove(model)
        self.refused(["cache", "build", config], re.escape(model), "--stage autoencoder")

    def test_malformed_checkpoints_are_refused_on_resume_and_left_alone(self):
        config, folder = self.run_of_its_own()
        self.unfinish(folder)
        checkpoint = os.path.join(folder, "checkpoints", "autoencoder", "step-00000060.safetensors")
        for what, content in self.malformed():
            with self.subTest(what):
                with open(checkpoint, "wb") as file:
                    file.write(content)
                self.refused(["train", config, "--stage", "autoencoder", "--resume"], re.escape(checkpoint), "--restart",
                             unchanged=os.path.join(folder, "checkpoints"))
        os.remove(checkpoint)
        self.refused(["train", config, "--stage", "autoencoder", "--resume"], re.escape(checkpoint),
                     unchanged=os.path.join(folder, "checkpoints"))

    def unfinish(self, folder):
        os.remove(os.path.join(folder, "state.json"))

    def test_a_checkpoint_of_another_model_is_refused(self):
        config, folder = self.run_of_its_own()
        self.unfinish(folder)
        resume = ["train", config, "--stage", "operator", "--resume"]
        self.refused([*resume, "--set", "model.operator.hidden=24"], "checkpoints/operator", "shape", "--restart",
                     unchanged=os.path.join(folder, "checkpoints"))
        self.refused([*resume, "--set", "model.operator.depth=3"], "checkpoints/operator", "blocks.2", "--restart",
                     unchanged=os.path.join(folder, "checkpoints"))

    def test_a_checkpoint_of_another_seed_is_refused(self):
        config, folder = self.run_of_its_own()
        self.unfinish(folder)
        self.refused(["train", config, "--stage", "operator", "--resume", "--set", "seed=4"], "checkpoints/operator", "seed", "--restart",
                     unchanged=os.path.join(folder, "checkpoints"))

    def test_a_checkpoint_is_neither_continued_nor_overwritten_unasked(self):
        config, folder = self.run_of_its_own()
        self.unfinish(folder)
        self.refused(["train", config, "--stage", "operator"], "checkpoints/operator", "--resume", "--restart",
                     unchanged=os.path.join(folder, "checkpoints"))

    def test_malformed_state_files_are_refused_and_left_alone(self):
        config, folder = self.run_of_its_own()
        for name in ("state.json", "normalisation.json", "checkpoints/operator/latest.json"):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                whole = file.read()
            for what, content in (("empty", b""), ("cut", whole[:len(whole) // 2]), ("a list", b"[]\n"), ("other", b'{"operator": 3}\n')):
                if name == "normalisation.json" and what == "other":
                    continue  # says nothing of the tasks, which are then measured anew
                with self.subTest(name=name, what=what):
                    with open(path, "wb") as file:
                        file.write(content)
                    if "latest" in name:
                        self.unfinish(folder)
                    self.refused(["train", config, "--stage", "operator", "--resume"], re.escape(path), unchanged=os.path.join(folder, "checkpoints"))
                    with open(path, "rb") as file:
                        self.assertEqual(file.read(), content)
                    with open(path, "wb") as file:
                        file.write(whole)
                    if "latest" in name:
                        shutil.copy(self.runs.path("trained", "state.json"), folder)

    # ---- configurations ----

    def test_mistakes_in_a_configuration_are_told_with_file_and_key_and_a_script_gets_an_object(self):
        mistakes = [("model.tokns=8", "model.tokns", "tokens"), ("model.tokens=many", "model.tokens", "number"),
                    ("model.tokens=0", "model.tokens", "between|least"), ("model.operator.heads=3", "model.operator.heads", "16"),
                    ("data.split.test=0.5", "data.split", "1 was expected"), ("tasks[1].name=advection", r"tasks\[1\].name", "already"),
                    ("autoencoder.pairs_per_trajectory=3", "autoencoder.batch_size", "multiple"),
                    ("precision=f16", "precision", "f32, bf16 or fp16"), ("tasks[0].patch=[4, 4]", "advection", "patch"),
                    ("operator.losses.one_step.from=10", "operator.losses", "from"),
                    ("tasks[0].field_scale=[1, 2]", "advection", "field_scale"),
                    ("tasks[0].stride=100", "advection", "stride")]
        for override, *parts in mistakes:
            with self.subTest(override):
                self.refused(["train", self.runs.config("mistaken"), "--set", override], *parts)
                done = self.runs.run("train", self.runs.config("mistaken"), "--set", override, "--json")
                self.assertEqual(done.returncode, 1)
                answer = json.loads(done.stdout)
                self.assertEqual(answer["error"]["code"], "config", answer)
                for part in parts:
                    self.assertRegex(answer["error"]["message"], part)
        self.assertFalse(os.path.exists(self.runs.path("mistaken")))

    def test_a_mistake_in_the_file_is_told_with_its_line(self):
        config = self.runs.config("misspelt", CONFIG.replace("  dim: 8", "  dimension: 8"))
        with open(config, encoding="utf-8") as file:
            line = next(i for i, text in enumerate(file, 1) if "dimension" in text)
        self.refused(["train", config], re.escape(f"{config}:{line}"), "model.dimension", "dim")
        self.refused(["train", self.runs.path("absent.yaml")], "absent.yaml", "No such file")

    def test_what_is_nested_too_deep_is_refused_at_once(self):
        deep = 40000
        for content in ("a: " + "[" * deep + "]" * deep, "? " * deep, "".join("{a: " for _ in range(deep)),
                        "\n".join(" " * i + "a:" for i in range(200))):
            path = self.runs.path("deep.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            self.refused(["config", "check", path], rf"{re.escape(path)}:\d+: nested more than 64 deep")
            self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 2)
        self.refused(["config", "check", self.trained, "--set", ".".join(["a"] * deep) + "=1"], "more than 64 keys, one below the other")

        def write(path):
            shutil.copyfile(os.path.join(self.runs.data, "advection.h5"), path)
            with h5py.File(path, "r+", libver="latest") as file:
                file.attrs["config"] = "[" * deep
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        self.runs.must("data", "inspect", self.with_field_file(write)[1])
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 2)

    def test_latents_larger_than_any_memory_are_refused(self):
        path = self.runs.path("latents.npy")
        header = "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 4294967296, 4294967296, 1), }\n".encode()
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + bytes(64))
        self.refused(["bench", "codec", path], "latents.npy", "larger than")


if __name__ == "__main__":
    main()
