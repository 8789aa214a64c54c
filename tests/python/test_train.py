"""`ups train` from data to a finished operator, as a user runs it: stages in order and skipped when finished, losses
that fall, metrics that say so, a plan that comes before. Usage: test_train.py UPS"""

import fcntl
import json
import os
import shutil
import sys
import unittest

import numpy as np
from safetensors.numpy import load_file

from skipping import main
from tiny_run import CONFIG, Runs, metrics, tree

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"
LONGER = CONFIG.replace("steps: 60", "steps: 300")


class Train(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS, samples=24)
        cls.folder, cls.said = {}, {}
        for precision in ("f32", "bf16", "fp16"):
            config = cls.runs.config(precision, LONGER.replace("precision: f32", "precision: " + precision))
            cls.said[precision] = cls.runs.must("train", config).stderr
            cls.folder[precision] = cls.runs.path(precision)

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def lines(self, precision, stage, field):
        return [line for line in metrics(self.folder[precision]) if line["stage"] == stage and field in line]

    def test_all_stages_run_in_order_and_leave_their_models(self):
        for precision, folder in self.folder.items():
            said = self.said[precision]
            self.assertLess(said.index("autoencoder:"), said.index("cache advection/train"))
            self.assertLess(said.index("cache darcy/test"), said.index("operator:"))
            with open(os.path.join(folder, "state.json"), encoding="utf-8") as file:
                state = json.load(file)
            self.assertEqual({stage: entry["steps"] for stage, entry in state.items()}, {"autoencoder": 300, "cache": 0, "operator": 300})
            names = {stage: set(load_file(os.path.join(folder, stage + ".safetensors"))) for stage in ("autoencoder", "operator")}
            self.assertTrue(all(name.startswith(("encoder.", "decoder.")) for name in names["autoencoder"]))
            self.assertTrue(all(name.startswith("operator.") for name in names["operator"]))
            self.assertTrue(any(name.startswith("encoder.darcy.") for name in names["autoencoder"]))

    def test_losses_fall_for_every_task_in_both_stages_and_all_precisions(self):
        for precision in self.folder:
            # The operator's first line is of steps before the rollout's loss is added.
            for stage, first, share in (("autoencoder", slice(0, 1), 0.65), ("operator", slice(1, 4), 0.85)):
                for task in ("advection", "darcy"):
                    with self.subTest(precision=precision, stage=stage, task=task):
                        losses = [line["task_loss"][task] for line in self.lines(precision, stage, "task_loss") if task in line["task_loss"]]
                        self.assertTrue(np.isfinite(losses).all())
                        self.assertLess(np.mean(losses[-5:]), share * np.mean(losses[first]), losses)

    def test_bf16_and_fp16_train_to_about_the_loss_of_float32(self):
        for stage in ("autoencoder", "operator"):
            ends = {precision: np.mean([line["loss"] for line in self.lines(precision, stage, "loss")[-5:]]) for precision in self.folder}
            for precision, within in (("bf16", 0.25), ("fp16", 0.03)):
                self.assertLess(abs(ends[precision] / ends["f32"] - 1), within, (stage, ends))

    def test_fp16_skips_steps_that_overflow_says_so_and_resumes_exactly(self):
        """The largest scale there is makes gradients overflow; it is written where a run stops, and taken up from there."""
        text, name = CONFIG.replace("precision: f32", "precision: fp16"), "autoencoder.safetensors"
        config, latest = self.runs.config("scaled", text), self.runs.path("scaled", "checkpoints", "autoencoder", "latest.json")
        command = ("train", config, "--stage", "autoencoder", "--set", "autoencoder.optimizer.schedule=constant", "--set")
        self.assertIn("precision: fp16 (processors compute it in float32", self.runs.must(*command, "autoencoder.steps=10").stderr)
        with open(latest, encoding="utf-8") as file:
            kept = json.load(file)
        self.assertEqual(kept["loss_scale"], {"scale": 65536.0, "good_steps": 10, "skipped": 0})
        kept["loss_scale"]["scale"] = 2.0**24
        with open(latest, "w", encoding="utf-8") as file:
            json.dump(kept, file)
        other = self.runs.copy("halted", "scaled")
        shutil.copy(config, other)
        with open(config, encoding="utf-8") as file:
            text = file.read()
        with open(other, "w", encoding="utf-8") as file:
            file.write(text.replace(self.runs.path("scaled"), self.runs.path("halted")))
        self.runs.must(*command, "autoencoder.steps=40")
        for steps in (11, 12, 13, 25, 40):
            self.runs.must("train", other, *command[2:], f"autoencoder.steps={steps}")
        lines = [line for line in metrics(self.runs.path("scaled"), clock=False) if "loss" in line]
        skipped = lines[1]["skipped"]
        self.assertGreater(skipped, 0)
        self.assertEqual([line["loss_scale"] for line in lines], [65536] + [2.0 ** (24 - skipped)] * 3)
        self.assertEqual([line["skipped"] for line in lines], [0] + [skipped] * 3)
        resumed = {line["step"]: line for line in metrics(self.runs.path("halted"), clock=False) if "loss" in line}
        self.assertEqual([resumed[line["step"]] for line in lines], lines)
        with open(self.runs.path("scaled", name), "rb") as a, open(self.runs.path("halted", name), "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_auto_is_decided_once_said_and_recorded(self):
        config = self.runs.config("automatic", CONFIG.replace("precision: f32", "precision: auto"))
        shown = json.loads(self.runs.must("config", "show", config, "--json").stdout)
        here = shown["resolved"]["precision"]
        self.assertEqual(here, json.loads(self.runs.must("doctor", "--json").stdout)["precision"])
        self.assertIn(f"precision: auto # here {here} (", self.runs.must("config", "show", config).stdout)
        done = self.runs.must("train", config, "--set", "autoencoder.steps=20", "--set", "operator.steps=20")
        self.assertEqual(done.stderr.count(f"precision: {here} ("), 1, done.stderr)
        with open(self.runs.path("automatic", "config.yaml"), encoding="utf-8") as file:
            self.assertIn(f"precision: {here}\n", file.read())
        begun = [line for line in metrics(self.runs.path("automatic")) if "precision" in line]
        self.assertEqual([(line["stage"], line["step"], line["precision"]) for line in begun],
                         [("autoencoder", 0, here), ("operator", 0, here)])

    def test_a_run_goes_on_in_the_precision_it_began_in_and_another_one_is_refused(self):
        text = CONFIG.replace("precision: f32", "precision: auto")
        config, folder = self.runs.config("began", text), self.runs.path("began")
        command = ("train", config, "--stage", "autoencoder", "--set", "autoencoder.steps=40")
        self.runs.must(*command[:-1], "autoencoder.steps=20", "--set", "precision=f32")
        record, latest = os.path.join(folder, "config.yaml"), os.path.join(folder, "checkpoints", "autoencoder", "latest.json")
        with open(latest, encoding="utf-8") as file:
            kept = json.load(file)
        self.assertEqual(kept["precision"], "f32")

        def refuse(precision, other):
            with open(record, encoding="utf-8") as file:
                before = file.read()
            done = self.runs.run(*command[:-1], "autoencoder.steps=50", "--set", "precision=" + precision)
            self.assertEqual(done.returncode, 1)
            for words in ("checkpoints/autoencoder", f"is of a run in {other}", f"`precision: {precision}` is configured", "--restart"):
                self.assertIn(words, done.stderr)
            with open(record, encoding="utf-8") as file:
                self.assertEqual(file.read(), before)

        refuse("bf16", "f32")
        done = self.runs.must(*command)  # auto, whatever is faster here
        self.assertIn("precision: f32 (", done.stderr)
        # Before checkpoints told it, the run's config.yaml did.
        with open(latest, encoding="utf-8") as file:
            kept = json.load(file)
        del kept["precision"]
        with open(latest, "w", encoding="utf-8") as file:
            json.dump(kept, file)
        with open(record, encoding="utf-8") as file:
            old = file.read().replace("precision: f32", "precision: bf16")
        with open(record, "w", encoding="utf-8") as file:
            file.write(old)
        refuse("f32", "bf16")
        plan = lambda *options: json.loads(self.runs.must("train", config, "--plan", "--json", *options).stdout)["operator"]["parameters"]
        self.assertEqual(plan(), plan("--set", "precision=bf16"))  # of the run
        self.assertGreater(plan(), plan("--set", "precision=f32"))
        told = self.runs.must(*command[:-1], "autoencoder.steps=50").stderr  # auto: in bf16, on any processor
        self.assertIn("precision: bf16 (", told)
        if json.loads(self.runs.must("doctor", "--json").stdout)["precision"] == "f32":
            self.assertIn("f32 would be faster); the run began in it", told)

    def test_metrics_have_a_line_at_each_due_step_with_every_field(self):
        for stage in ("autoencoder", "operator"):
            lines = self.lines("f32", stage, "loss")
            self.assertEqual([line["step"] for line in lines], list(range(10, 301, 10)))
            for line in lines:
                self.assertEqual(set(line), {"stage", "step", "loss", "task_loss", "learning_rate", "gradient_norm", "samples_per_s",
                                             "data_wait_share", "loader"})
                self.assertEqual(line["loader"].pop("residency"), "ram")
                self.assertEqual(set(line["loader"]), {"waited_s", "disk_s", "decode_s", "full_s", "read_bytes", "resident_share"})
                self.assertTrue(all(value >= 0 for value in line["loader"].values()), line)
                self.assertGreater(line["samples_per_s"], 0)
                self.assertTrue(0 <= line["data_wait_share"] <= 1.01, line)
                self.assertGreater(line["gradient_norm"], 0)
            self.assertGreater(lines[0]["loader"]["read_bytes"], 0)
            self.assertEqual((lines[-1]["loader"]["read_bytes"], lines[-1]["loader"]["resident_share"]), (0, 1))  # auto keeps them
            validations = self.lines("f32", stage, "validation")
            self.assertEqual([line["step"] for line in validations], list(range(30, 301, 30)))
            for line in validations:
                self.assertEqual(set(line["validation"]), {"advection", "darcy"})
                self.assertAlmostEqual(line["score"], np.mean(list(line["validation"].values())), places=5)

    def test_the_learning_rate_warms_up_and_ends_at_its_share_of_the_peak(self):
        rates = [line["learning_rate"] for line in self.lines("f32", "operator", "loss")]
        self.assertAlmostEqual(rates[-1], 0.005 * 0.01, places=9)
        self.assertEqual(rates, sorted(rates, reverse=True))

    def test_finished_stages_are_skipped_and_nothing_changes(self):
        before = tree(self.folder["f32"])
        done = self.runs.must("train", self.runs.path("f32.yaml"))
        self.assertEqual(done.stderr.count("skipped"), 2, done.stderr)
        self.assertEqual(tree(self.folder["f32"]), before)

    def test_a_finished_stage_that_is_to_have_more_steps_goes_on_and_ends_as_if_it_had_had_them(self):
        constant = CONFIG.replace("warmup_steps: 4", "warmup_steps: 4, schedule: constant")
        whole = self.runs.config("whole", constant)
        self.runs.must("train", whole, "--stage", "autoencoder")
        raised = self.runs.config("raised", constant)
        self.runs.must("train", raised, "--stage", "autoencoder", "--set", "autoencoder.steps=35")
        done = self.runs.must("train", raised, "--stage", "autoencoder")
        self.assertIn("finished earlier with 35 steps, goes on to 60", done.stderr)
        name = "autoencoder.safetensors"
        with open(self.runs.path("whole", name), "rb") as a, open(self.runs.path("raised", name), "rb") as b:
            self.assertEqual(a.read(), b.read())
        shutil.rmtree(self.runs.path("raised", "checkpoints"))
        done = self.runs.run("train", raised, "--stage", "autoencoder", "--set", "autoencoder.steps=70")
        self.assertEqual(done.returncode, 1)
        self.assertIn("checkpoint to go on from is gone", done.stderr)
        self.assertTrue(os.path.exists(self.runs.path("raised", name)))

    def test_a_second_training_in_the_same_directory_is_refused(self):
        config = self.runs.config("busy")
        os.mkdir(self.runs.path("busy"))
        with open(self.runs.path("busy", "lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("process 4711 on host elsewhere\n")
            lock.flush()
            done = self.runs.run("train", config)
            self.assertEqual(done.returncode, 1)
            self.assertIn("process 4711 on host elsewhere is training there", done.stderr)
            self.assertEqual(os.listdir(self.runs.path("busy")), ["lock"])

    def test_a_script_is_told_what_is_finished(self):
        told = json.loads(self.runs.must("train", self.runs.path("f32.yaml"), "--json").stdout)
        self.assertEqual(told["output"], self.folder["f32"])
        with open(os.path.join(self.folder["f32"], "state.json"), encoding="utf-8") as file:
            state = json.load(file)
        self.assertEqual(set(told["stages"]), {"autoencoder", "cache", "operator"})
        for stage in ("autoencoder", "operator"):
            self.assertEqual(told["stages"][stage]["weights"], state[stage]["weights"])
            self.assertTrue(os.path.exists(told["stages"][stage]["model"]))

    def test_the_same_run_on_more_decode_threads_and_another_io_engine_is_the_same_to_the_bit(self):
        config = self.runs.config("again", LONGER)
        self.runs.must("train", config, "--set", "data.decode_threads=3", "--set", "data.io=threads", "--set", "data.slots=2")
        for stage in ("autoencoder", "operator"):
            name = stage + ".safetensors"
            with open(os.path.join(self.folder["f32"], name), "rb") as a, open(self.runs.path("again", name), "rb") as b:
                self.assertEqual(a.read(), b.read(), stage)

    def test_weights_do_not_depend_on_the_number_of_threads(self):
        """Nor do checkpoints and the cache between the stages."""
        left = {}
        for threads in (1, 2, 3):
            config = self.runs.config("threads")
            self.runs.must("train", config, "--set", f"device.threads={threads}")
            left[threads] = tree(self.runs.path("threads"))
            for name in ("config.yaml", "metrics.jsonl"):  # name the threads; hold rates
                del left[threads][name]
            shutil.rmtree(self.runs.path("threads"))
        self.assertIn("checkpoints/operator/step-00000060.safetensors", left[1])
        for threads in (2, 3):
            self.assertEqual(sorted(left[threads]), sorted(left[1]))
            self.assertEqual([name for name in left[1] if left[threads][name] != left[1][name]], [], threads)

    def test_another_seed_is_another_run(self):
        config = self.runs.config("reseeded")
        self.runs.must("train", config, "--stage", "autoencoder", "--set", "seed=4")
        self.runs.must("train", self.runs.config("seeded"), "--stage", "autoencoder")
        a, b = (load_file(self.runs.path(name, "autoencoder.safetensors")) for name in ("seeded", "reseeded"))
        self.assertTrue(all(not np.array_equal(a[name], b[name]) for name in a))

    def test_stages_run_singly_make_the_run_that_they_make_together(self):
        config = self.runs.config("singly", LONGER)
        for stage in ("autoencoder", "cache", "operator"):
            self.runs.must("train", config, "--stage", stage)
        found, expected = tree(self.runs.path("singly")), tree(self.folder["f32"])
        for name in ("config.yaml", "metrics.jsonl"):
            found.pop(name), expected.pop(name)
        self.assertEqual(found, expected)

    def test_an_operator_without_its_autoencoder_or_cache_says_what_to_run(self):
        config = self.runs.config("bare")
        done = self.runs.run("train", config, "--stage", "operator", "--quiet")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--stage autoencoder", done.stderr)
        self.runs.must("train", config, "--stage", "autoencoder")
        done = self.runs.run("train", config, "--stage", "operator", "--set", "data.residency=stream", "--quiet")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ups cache build", done.stderr)
        self.assertIn("data.residency: encode", done.stderr)

    def test_a_plan_needs_nothing_but_the_data_and_leaves_nothing(self):
        config = self.runs.config("planned")
        plan = json.loads(self.runs.must("train", config, "--plan", "--json").stdout)
        self.assertEqual(set(plan), {"autoencoder", "operator"})
        for stage in plan.values():
            parts = ("parameters", "optimizer", "activations", "inputs", "workspace", "loader", "validation_loader", "resident",
                     "encoders", "filling")
            self.assertEqual(stage["total"], sum(stage[part] for part in parts))
            self.assertEqual(stage["batch_size"], 4)
        self.assertFalse(os.path.exists(self.runs.path("planned")))
        for name in ("autoencoder", "operator"):
            elements = sum(tensor.size for tensor in load_file(os.path.join(self.folder["f32"], name + ".safetensors")).values())
            self.assertEqual(plan[name]["trainable_parameters"], elements)
        self.assertIn("total", self.runs.must("train", config, "--plan").stdout)

    def test_batch_size_auto_takes_what_fits_the_limit_and_says_so_when_nothing_does(self):
        config = self.runs.config("auto")
        totals = []
        for limit in (0.01, 0.04):
            plan = json.loads(self.runs.must("train", config, "--plan", "--json", "--stage", "operator", "--set", "operator.batch_size=auto",
                                             "--set", f"operator.memory_limit={limit}").stdout)["operator"]
            self.assertLessEqual(plan["total"] - plan["resident"], limit * 2**30)
            larger = json.loads(self.runs.must("train", config, "--plan", "--json", "--stage", "operator", "--set",
                                               f"operator.batch_size={plan['batch_size'] + 1}").stdout)["operator"]
            self.assertGreater(larger["total"], limit * 2**30)
            totals.append(plan["batch_size"])
        self.assertLess(totals[0], totals[1])
        done = self.runs.run("train", config, "--plan", "--set", "operator.batch_size=auto", "--set", "operator.memory_limit=0.0001")
        self.assertEqual(done.returncode, 1)
        self.assertIn("operator.memory_limit", done.stderr)

    def test_restarting_begins_anew_and_ends_with_the_same_bytes(self):
        config = self.runs.copy("restarted", "f32")
        shutil.copy(self.runs.path("f32.yaml"), config)  # the same run, in another folder
        with open(config, encoding="utf-8") as file:
            text = file.read()
        with open(config, "w", encoding="utf-8") as file:
            file.write(text.replace(self.folder["f32"], self.runs.path("restarted")))
        self.runs.must("train", config, "--restart")
        for name in ("autoencoder.safetensors", "operator.safetensors", "state.json"):
            with open(self.runs.path("restarted", name), "rb") as a, open(os.path.join(self.folder["f32"], name), "rb") as b:
                self.assertEqual(a.read(), b.read(), name)


if __name__ == "__main__":
    main()
