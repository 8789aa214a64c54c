"""The operator trained without a cache, on fields that are encoded on the fly: the same run, to the byte, as from the
cache, and what it refuses. Usage: test_encode.py UPS"""

import json
import os
import shutil
import sys
import unittest

import h5py
import numpy as np

from skipping import main
from tiny_run import CONFIG, Runs, metrics, tree

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"
ENCODE = ("--set", "data.residency=encode")
NO_MEMORY = ("--set", "data.residency_memory=0.000001")
THREADS = ("--set", "data.decode_threads=3")


def cache(folder, *splits):
    """The groups of a cache with all their bytes."""
    found = tree(os.path.join(folder, "cache"))
    return {name: hashed for name, hashed in found.items() if name.split(os.sep)[1:2] and name.split(os.sep)[1] in splits}


class Encode(unittest.TestCase):
    """`before` has a trained encoder and no cache; `cached` is the whole run. All runs lie in the same folder, one after
    the other, since config.yaml names it."""

    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS)
        cls.configuration = cls.runs.config("run")
        cls.folder = cls.runs.path("run")
        cls.runs.must("train", cls.configuration, "--stage", "autoencoder")
        cls.before, cls.cached = cls.runs.path("before"), cls.runs.path("cached")
        shutil.copytree(cls.folder, cls.before)
        cls.runs.must("train", cls.configuration)
        shutil.copytree(cls.folder, cls.cached)

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def setUp(self):
        shutil.rmtree(self.folder)
        shutil.copytree(self.before, self.folder)

    def train(self, *options):
        return self.runs.must("train", self.configuration, "--stage", "operator", *options)

    def assert_trained_as_from_the_cache(self):
        found, expected = tree(self.folder), tree(self.cached)
        for name in {*found, *expected}:
            # Settings differ, and so does what clocks said; the state does not list the cache.
            if name.startswith("cache") or name in ("config.yaml", "metrics.jsonl", "state.json"):
                continue
            self.assertEqual(found.get(name, "absent"), expected.get(name, "absent"), name)
        self.assertTrue(any(name.startswith("checkpoints/operator") for name in found))
        self.assertEqual(metrics(self.folder, clock=False), metrics(self.cached, clock=False))

    # ---- the same run ----

    def test_a_run_without_a_cache_is_the_run_from_the_cache_to_the_byte(self):
        for options in (ENCODE, (*ENCODE, *NO_MEMORY, *THREADS), (*ENCODE, *THREADS, "--set", "data.io=threads")):
            with self.subTest(options=options):
                self.setUp()
                said = self.train(*options).stderr
                self.assertIn("fields are encoded on the fly (residency: encode)", said)
                self.assert_trained_as_from_the_cache()
                self.assertFalse(os.path.exists(os.path.join(self.folder, "cache")))
                lines = [line for line in metrics(self.folder) if line["stage"] == "operator" and "loader" in line]
                self.assertEqual({line["loader"]["residency"] for line in lines}, {"encode"})
                self.assertEqual(lines[-1]["loader"]["resident_share"] == 1, NO_MEMORY[1] not in options)

    def test_auto_encodes_where_no_complete_cache_is_and_says_so_in_a_sentence(self):
        said = self.train().stderr
        self.assertEqual(said.count("the cache of advection/train is not complete"), 1, said)
        self.assert_trained_as_from_the_cache()
        shutil.rmtree(self.folder)
        shutil.copytree(self.cached, self.folder)
        shutil.rmtree(os.path.join(self.folder, "cache", "darcy", "validation"))
        said = self.train("--restart").stderr
        self.assertIn("the cache of darcy/validation is not complete", said)
        self.assertRegex(said, r"(\d+) of \1 encoded samples stay in memory")
        self.assert_trained_as_from_the_cache()

    def test_all_stages_without_a_cache_leave_it_out(self):
        said = self.runs.must("train", self.configuration, *ENCODE).stderr
        self.assertIn("cache: not built", said)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "cache")))
        self.assert_trained_as_from_the_cache()

    def test_an_error_bound_is_held_as_the_cache_holds_it(self):
        bound = ("--set", "cache.max_abs_error=0.01")
        self.runs.must("cache", "build", self.configuration, *bound)
        self.train(*bound)
        with open(os.path.join(self.folder, "operator.safetensors"), "rb") as file:
            expected = file.read()
        for options in (ENCODE, (*ENCODE, *NO_MEMORY)):
            self.train("--restart", *bound, *options)
            with open(os.path.join(self.folder, "operator.safetensors"), "rb") as file:
                self.assertEqual(file.read(), expected)
        with open(os.path.join(self.cached, "operator.safetensors"), "rb") as file:
            self.assertNotEqual(file.read(), expected)

    def test_fields_are_encoded_from_any_storage_as_a_build_encodes_them(self):
        forms = {"double": {"dtype": ">f8"},
                 "chunks": {"dtype": "<f8", "chunks": (1, 4, 9), "compression": "gzip", "shuffle": True},
                 "library": {"dtype": "<f4", "chunks": (2, 9, 32), "scaleoffset": 4}}  # a filter that only HDF5 itself undoes
        for name, form in forms.items():
            with self.subTest(form=name):
                path = os.path.join(self.runs.data, name + ".h5")
                with h5py.File(os.path.join(self.runs.data, "advection.h5")) as given, h5py.File(path, "w") as made:
                    for key in given:
                        made.create_dataset(key, data=given[key][:], **(form if key == "tensor" else {}))
                    made.attrs.update(given.attrs)
                config = self.runs.config(name, CONFIG.replace("[advection.h5]", f"[{name}.h5]").replace("steps: 60", "steps: 12"))
                self.runs.must("train", config)
                model = self.runs.path(name, "operator.safetensors")
                with open(model, "rb") as file:
                    expected = file.read()
                for options in (ENCODE, (*ENCODE, *NO_MEMORY, *THREADS)):
                    self.runs.must("train", config, "--stage", "operator", "--restart", *options)
                    with open(model, "rb") as file:
                        self.assertEqual(file.read(), expected)

    def test_a_plan_counts_encoders(self):
        def plan(*options):
            return json.loads(self.runs.must("train", self.configuration, "--plan", "--json", *options).stdout)["operator"]

        self.assertFalse(plan()["encodes"])  # the cache stage comes before
        self.assertTrue(plan("--stage", "operator")["encodes"])
        self.assertGreater(plan(*ENCODE)["encoders"], 0)

    # ---- what is refused ----

    def refused(self, *options, **replaced):
        config = self.runs.config("run", replaced["text"]) if replaced else self.configuration
        done = self.runs.run("train", config, "--stage", "operator", "--quiet", *options)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_filling_a_cache_while_training_is_refused_with_what_to_do_instead(self):
        for value in ("true", "false"):
            said = self.refused("--set", f"cache.fill={value}")
            self.assertIn("cache.fill", said)
            self.assertIn("ups cache build", said)

    def test_without_its_trained_encoder_it_says_what_to_run(self):
        os.remove(os.path.join(self.folder, "autoencoder.safetensors"))
        self.assertIn("--stage autoencoder", self.refused(*ENCODE))

    def test_an_encoder_of_another_configuration_is_refused(self):
        try:
            said = self.refused(*ENCODE, text=CONFIG.replace("frequencies: [1, 2]", "frequencies: [1, 3]"))
            self.assertIn("was trained with another advection.", said)
        finally:
            self.runs.config("run")

    def test_a_stale_cache_is_not_read(self):
        shutil.rmtree(self.folder)
        shutil.copytree(self.cached, self.folder)
        before = cache(self.folder, "train", "validation", "test")
        self.runs.must("train", self.configuration, "--stage", "autoencoder", "--set", "autoencoder.steps=61")
        said = self.refused()
        self.assertIn("--restart", said)
        self.assertRegex(said, "encoder")
        self.assertEqual(cache(self.folder, "train", "validation", "test"), before)
        self.train(*ENCODE)  # reads none
        self.assertEqual(cache(self.folder, "train", "validation", "test"), before)

    # ---- what scripts are told ----

    def test_a_build_tells_scripts_what_it_took_and_where_the_time_went(self):
        groups = json.loads(self.runs.must("cache", "build", self.configuration, "--json").stdout)
        self.assertEqual([(of["task"], of["split"]) for of in groups],
                         [(task, split) for task in ("advection", "darcy") for split in ("train", "validation", "test")])
        for of in groups:
            with self.subTest(of=of):
                self.assertEqual((of["skipped"], of["encoded"], of["extended_from"]), (0, of["samples"], 0))
                frames = {"advection": 9, "darcy": 2}[of["task"]]
                self.assertEqual(of["raw_bytes"], of["samples"] * frames * 8 * 8 * 2)
                self.assertAlmostEqual(of["frames_per_s"] * of["seconds"], of["samples"] * frames, places=3)
                self.assertEqual(of["processors"], 1)
                self.assertGreater(of["processor_use"], 0)
                self.assertAlmostEqual(of["processor_use"] * of["seconds"], of["processor_seconds"])
                stages = of["stages"]
                self.assertEqual(list(stages), ["read", "decode", "encode", "compress", "publish", "idle"])
                for name, stage in stages.items():
                    self.assertEqual(sorted(stage), ["processor_seconds", "seconds"])
                    self.assertTrue(0 <= stage["seconds"] <= 3 * of["seconds"], name)  # of three threads at most
                for name in ("encode", "compress", "publish"):
                    self.assertGreater(stages[name]["seconds"], 0, name)
                self.assertLessEqual(sum(stage["processor_seconds"] for stage in stages.values()), of["processor_seconds"] + 0.02)
                tenths = of["trajectories_per_s_by_tenth"]
                self.assertTrue(len(tenths) <= 10 and all(rate > 0 for rate in tenths))
                self.assertEqual(len(tenths) > 0, of["encoded"] >= 10)
                self.assertLessEqual(sum(of["encoded"] / 10 / rate for rate in tenths), of["seconds"])
        again = json.loads(self.runs.must("cache", "build", self.configuration, "--json").stdout)
        for of, before in zip(again, groups):
            self.assertEqual((of["encoded"], of["stored_bytes"]), (0, before["stored_bytes"]))
            self.assertNotIn("stages", of)  # nothing took any time

    def test_the_runs_own_encoder_is_timed_apart_and_on_all_processors(self):
        bench = ("bench", "encode", self.configuration, "--runs", "1", "--seconds", "0.05", "--json")
        for options, task, frames in (((), "advection", 9), (("--task", "darcy"), "darcy", 2)):
            found = json.loads(self.runs.must(*bench, *options).stdout)
            self.assertEqual(sorted(found), ["apart", "frames_per_s", "frames_per_trajectory", "fused", "task"])
            self.assertEqual((found["task"], found["frames_per_trajectory"]), (task, frames))
            for way in (found["apart"], found["fused"]):
                self.assertEqual(sorted(way), ["cpu_us_per_frame", "encoders", "frames_per_s", "threads"])
                self.assertEqual((way["encoders"], way["threads"]), (1, 1))  # device.threads
                self.assertGreater(way["cpu_us_per_frame"], 0)
                self.assertLess(way["cpu_us_per_frame"] * way["frames_per_s"], 2e6 * os.cpu_count())  # clocks are coarse
            self.assertEqual(found["frames_per_s"], max(found["apart"]["frames_per_s"], found["fused"]["frames_per_s"]))
        done = self.runs.run(*bench, "--task", "nonsense")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["error"]["code"], "argument")

    def test_samples_that_are_not_finite_stop_training_or_are_left_out_as_in_a_build(self):
        whole = os.path.join(self.runs.data, "advection.h5")
        shutil.copy(whole, whole + ".whole")
        try:
            with h5py.File(whole, "r+") as file:
                for sample in (0, 2, 5):
                    file["tensor"][sample, 4:6, 3] = np.nan
            skip = ("--set", "data.on_bad_sample=skip")
            said = self.refused(*ENCODE)
            self.assertRegex(said, r"task advection, sample tensor\[[025]\] \(.*advection.h5\): \d+ NaN values, first at frame \d")
            self.assertIn("fields that are not finite", said)
            said = self.train("--restart", *ENCODE, *skip).stderr
            self.assertIn("skipped: task advection, sample tensor", said)
            self.runs.must("cache", "build", self.configuration, *skip)
            with open(os.path.join(self.folder, "cache", "advection", "train", "zarr.json"), encoding="utf-8") as file:
                left_out = [entry["source_sample"] for entry in json.load(file)["attributes"]["ups"]["result"]["skipped"]]
            self.assertGreater(len(left_out), 0)
            for sample in left_out:
                self.assertLessEqual(said.count(f"skipped: task advection, sample tensor[{sample}]"), 1, said)
        finally:
            os.replace(whole + ".whole", whole)


if __name__ == "__main__":
    main()
