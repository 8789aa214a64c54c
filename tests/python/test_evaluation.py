"""`ups eval` and `ups rollout` of a trained tiny run, recomputed with NumPy from the files. Usage: test_evaluation.py UPS"""

import json
import os
import sys
import unittest

import h5py
import numpy
import safetensors.numpy

from skipping import main
from tiny_run import CONFIG, Runs

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"


def nrmse(prediction, truth):
    """PDEBench's: by (trajectory, frame), then the mean. Arrays (trajectory, frame, points)."""
    error = numpy.sqrt(numpy.mean((prediction - truth) ** 2, axis=2))
    return float(numpy.mean(error / numpy.sqrt(numpy.mean(truth**2, axis=2))))


class Evaluated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runs = Runs(UPS, samples=15)
        cls.config = cls.runs.config("run")
        cls.runs.must("train", cls.config)
        cls.runs.must("eval", cls.config)
        with open(cls.runs.path("run", "evaluation.json"), encoding="utf-8") as file:
            cls.evaluation = json.load(file)
        cls.pictures = cls.runs.path("pictures")
        cls.runs.must("rollout", cls.config, "-n", "100", "-o", cls.runs.path("out.h5"), "--png", cls.pictures)

    @classmethod
    def tearDownClass(cls):
        cls.runs.close()

    def whole(self, task):
        """The last horizon of a task: the whole rollout."""
        found = self.evaluation["tasks"][task]["horizons"][-1]
        self.assertTrue(found["whole"])
        return found

    def test_the_whole_rollouts_error_is_that_of_the_files_that_rollout_writes(self):
        with h5py.File(self.runs.path("out-advection.h5")) as file:
            prediction, truth = file["tensor"][:].astype(float), file["truth"][:].astype(float)
        whole = self.whole(0)
        self.assertEqual(len(prediction), self.evaluation["tasks"][0]["trajectories"])
        self.assertAlmostEqual(whole["model"]["nrmse"] / nrmse(prediction[:, 1:], truth[:, 1:]), 1, 4)
        still = numpy.broadcast_to(truth[:, :1], truth[:, 1:].shape)
        self.assertAlmostEqual(whole["persistence"]["nrmse"] / nrmse(still, truth[:, 1:]), 1, 4)
        worst = numpy.abs(prediction - truth)[:, 1:].max(axis=(0, 2)).mean()
        self.assertAlmostEqual(whole["model"]["max"] / worst, 1, 4)

    def test_the_truth_in_the_file_is_the_data(self):
        with h5py.File(self.runs.path("out-advection.h5")) as file, h5py.File(
            os.path.join(self.runs.data, "advection.h5")
        ) as data:
            for place, name in enumerate(file.attrs["ups.samples"].split(", ")):
                sample = int(name[len("tensor[") : -1])
                numpy.testing.assert_array_equal(file["truth"][place], data["tensor"][sample])
            numpy.testing.assert_allclose(file["x-coordinate"], data["x-coordinate"], rtol=1e-6)
            numpy.testing.assert_allclose(file["t-coordinate"][:], data["t-coordinate"][:9], rtol=1e-6)
            self.assertEqual(file.attrs["ups.operator"], self.evaluation["operator"]["xxh3"])
            self.assertIn("darcy", file.attrs["ups.config"])

    def test_a_steady_problem_has_its_solution_field_scored_alone(self):
        darcy = self.evaluation["tasks"][1]
        self.assertEqual((darcy["solution_fields"], darcy["constant_fields"]), (["u"], ["nu"]))
        with h5py.File(self.runs.path("out-darcy.h5")) as file:
            prediction = numpy.stack([file[seed]["data"][1:, :, :, 1].reshape(1, -1) for seed in file])
            truth = numpy.stack([file[seed]["truth"][1:, :, :, 1].reshape(1, -1) for seed in file])
        model = self.whole(1)["model"]
        self.assertAlmostEqual(model["nrmse"] / nrmse(prediction.astype(float), truth.astype(float)), 1, 4)
        self.assertEqual(model, self.whole(1)["fields"]["u"]["model"])
        self.assertAlmostEqual(self.whole(1)["persistence"]["nrmse"], 1, 5)

    def test_rollouts_are_read_again_as_data(self):
        found = json.loads(self.runs.must("data", "inspect", "--json", self.runs.path("out-advection.h5")).stdout)[0]
        self.assertEqual((found["layout"], found["samples"]), ("pdebench.tensor", 3))
        found = json.loads(self.runs.must("data", "inspect", "--json", self.runs.path("out-darcy.h5")).stdout)[0]
        self.assertEqual((found["layout"], found["samples"]), ("pdebench.seedgroup", 3))

    def test_trajectories_of_other_parameters_keep_their_own(self):
        self.runs.generate("advection1d", "fast.h5", 6, "-r", "32", "-s", "9", "--param", "beta=0.7")
        config = self.runs.config("several")
        with open(config, encoding="utf-8") as file:
            text = file.read().replace("files: [advection.h5]", "files: [advection.h5, fast.h5]")
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        self.runs.must("train", config, "--set", "autoencoder.steps=2", "--set", "operator.steps=2")
        output = self.runs.path("several.h5")
        self.runs.must("rollout", config, "--task", "advection", "--split", "train", "-n", "100", "-o", output)
        with h5py.File(output) as file, h5py.File(os.path.join(self.runs.data, "advection.h5")) as data:
            found = {round(file[seed].attrs["beta"], 6) for seed in file}
            self.assertEqual(found, {round(float(data.attrs["beta"]), 6), 0.7})

    def test_pictures_are_there_for_every_trajectory(self):
        names = [f"advection-{i}-u{kind}.png" for i in range(3) for kind in ("", "-profiles")]
        names += [f"darcy-{i}-u.png" for i in range(3)]
        self.assertEqual(sorted(os.listdir(self.pictures)), sorted(names))
        for name in names:
            with open(os.path.join(self.pictures, name), "rb") as file:
                self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")

    def test_json_on_standard_output_is_the_file(self):
        told = json.loads(self.runs.must("eval", self.config, "--json", "-o", self.runs.path("again.json")).stdout)
        for evaluation in (told, self.evaluation):
            for task in evaluation["tasks"]:
                task["seconds"] = 0
        self.assertEqual(told, self.evaluation)

    def test_a_training_checkpoint_is_evaluated_in_place_of_the_exported_model(self):
        config = self.runs.copy("checkpointed", "run")
        self.runs.must("train", config, "--stage", "operator", "--restart", "--set", "operator.steps=20")
        folder = self.runs.path("checkpointed", "checkpoints", "operator")
        output = self.runs.path("checkpointed.json")
        told = json.loads(self.runs.must("eval", self.config, "-c", folder, "--json", "-o", output).stdout)
        self.assertIn("step-00000020.safetensors", told["operator"]["file"])
        self.assertNotEqual(told["operator"]["xxh3"], self.evaluation["operator"]["xxh3"])

    def test_a_model_keeps_the_normalisation_it_was_trained_with_whatever_the_configuration_says_now(self):
        with open(self.config, encoding="utf-8") as file:
            text = file.read().replace("files: [darcy.h5]", "files: [darcy.h5]\n    field_scale: [1, 4]")
        config = self.runs.copy("rescaled", "run")
        with open(config, "w", encoding="utf-8") as file:
            file.write(text.replace(self.runs.path("run"), self.runs.path("rescaled")))
        told = json.loads(self.runs.must("eval", config, "--json").stdout)
        for rescaled, task in zip(told["tasks"], self.evaluation["tasks"], strict=True):
            self.assertEqual(rescaled["horizons"], task["horizons"])

    def test_a_model_is_evaluated_and_rolled_out_on_files_it_was_not_trained_on(self):
        self.runs.generate("advection1d", "unseen.h5", 6, "-r", "48", "-s", "12")
        unseen = ["--set", "tasks[0].files=[unseen.h5]", "--set", "data.split={train: 0.1, validation: 0, test: 0.9}"]
        told = json.loads(self.runs.must("eval", self.config, *unseen, "--json", "-o", self.runs.path("unseen.json")).stdout)
        self.assertEqual(told["tasks"][0]["trajectories"], 5)
        self.assertTrue(numpy.isfinite(told["tasks"][0]["horizons"][0]["model"]["nrmse"]))
        output = self.runs.path("unseen_rollout.h5")
        self.runs.must("rollout", self.config, *unseen, "--task", "advection", "-o", output)
        with h5py.File(output) as file:
            self.assertEqual(file["tensor"].shape[1:], (12, 48))
        done = self.runs.run("eval", self.config, "--set", "tasks[0].files=[darcy.h5]")
        self.assertEqual(done.returncode, 1)
        self.assertIn("give it files of the PDE it was trained on", done.stderr)

    def again(self, config, task, field, path):
        """Evaluates a rollout's file with the model that made it; its first task is the one that was rolled out."""
        told = json.loads(self.runs.must("eval", config, "--set", f"tasks[0].files=[{path}]", "--set",
                                         "data.split={train: 0, validation: 0, test: 1}", "--json", "-o",
                                         self.runs.path("again.json")).stdout)["tasks"][0]
        self.assertEqual(told["task"], task)
        # What an operator predicted and what it predicts from there on again differ by what is lost in between.
        return told["trajectories"], told["horizons"][0]["fields"][field]["model"]["nrmse"]

    def test_a_rollout_is_evaluated_by_the_model_that_made_it(self):
        trajectories, nrmse_again = self.again(self.config, "advection", "u", self.runs.path("out-advection.h5"))
        self.assertEqual(trajectories, 3)
        self.assertTrue(numpy.isfinite(nrmse_again))
        # Several parameters make a file of groups, where nothing would wrap around.
        self.runs.generate("advection1d", "faster.h5", 6, "-r", "32", "-s", "9", "--param", "beta=0.7")
        output, both = self.runs.path("both.h5"), ["--set", "tasks[0].files=[advection.h5, faster.h5]"]
        self.runs.must("rollout", self.config, *both, "--task", "advection", "-n", "100", "-o", output)
        with h5py.File(output) as file:
            self.assertEqual({file[seed].attrs["bc"] for seed in file}, {"periodic"})
            self.assertGreater(len({round(float(file[seed].attrs["beta"]), 6) for seed in file}), 1)
        self.assertEqual(json.loads(self.runs.must("data", "inspect", "--json", output).stdout)[0]["layout"], "pdebench.seedgroup")
        self.again(self.config, "advection", "u", output)

    def test_a_rollout_between_walls_is_evaluated_by_the_model_that_made_it_and_says_so(self):
        """Its file is a `tensor`, whose data wrap around where nothing is said."""
        self.runs.generate("diffsorp1d", "sorption.h5", 8, "-r", "32", "-s", "6")
        config = self.runs.config("walls", CONFIG.replace("name: advection", "name: sorption")
                                  .replace("[advection.h5]", "[sorption.h5]").replace("steps: 60", "steps: 4"))
        self.runs.must("train", config)
        output = self.runs.path("walls.h5")
        self.runs.must("rollout", config, "--task", "sorption", "-o", output)
        with h5py.File(output) as file:
            self.assertEqual((file.attrs["bc"], file["tensor"].ndim), ("not periodic", 3))
        self.again(config, "sorption", "u", output)
        with h5py.File(output, "r+") as file:
            del file.attrs["bc"]
        done = self.runs.run("eval", config, "--set", f"tasks[0].files=[{output}]", "--set",
                             "data.split={train: 0, validation: 0, test: 1}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("another sorption.encoder than this configuration, its files and its run have: its 'periodic' is "
                      "false, here it is true", done.stderr)

    def test_a_rollout_of_several_fields_is_evaluated_by_the_model_that_made_it(self):
        """Fields first in the data, last in the rollout; parameters in another order."""
        self.runs.generate("cfd1d_rand", "flow.h5", 8, "-r", "32", "-s", "5")
        config = self.runs.config("flow", CONFIG.replace("name: advection", "name: flow")
                                  .replace("[advection.h5]", "[flow.h5]").replace("steps: 60", "steps: 4"))
        self.runs.must("train", config)
        output = self.runs.path("flow-out.h5")
        self.runs.must("rollout", config, "--task", "flow", "-o", output)
        self.again(config, "flow", "field0", output)

    def test_only_the_split_that_is_evaluated_has_to_be_there(self):
        self.runs.generate("advection1d", "single.h5", 1, "-r", "32", "-s", "9")
        foreign = ["--set", "tasks[0].files=[single.h5]", "--set", "data.split={train: 0, validation: 0, test: 1}"]
        told = json.loads(self.runs.must("eval", self.config, *foreign, "--json", "-o", self.runs.path("single.json")).stdout)
        self.assertEqual(told["tasks"][0]["trajectories"], 1)
        self.runs.must("rollout", self.config, *foreign, "--task", "advection", "-o", self.runs.path("single-out.h5"))
        done = self.runs.run("train", self.runs.config("untrained"), *foreign)
        self.assertEqual(done.returncode, 1)
        self.assertIn("data.split.train", done.stderr)

    def spoil(self, path, prefix, value):
        """One value of the first tensor whose name begins so becomes `value`; returns the tensor's name."""
        with safetensors.safe_open(path, "numpy") as file:
            metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
        name = min(name for name in tensors if name.startswith(prefix))
        tensors[name].flat[1] = value
        safetensors.numpy.save_file(tensors, path, metadata)
        return name

    def test_a_model_that_is_not_finite_is_refused_by_every_command_that_uses_it(self):
        for name, prefix, value, commands in (
            ("operator", "operator.", numpy.nan, (["eval"], ["rollout", "-o", self.runs.path("nothing.h5")])),
            ("autoencoder", "encoder.advection.", numpy.inf,
             (["cache", "build", "--restart"], ["train", "--stage", "operator", "--restart", "--set", "data.residency=encode"])),
        ):
            config = self.runs.copy("spoilt-" + name, "run")
            path = self.runs.path("spoilt-" + name, name + ".safetensors")
            tensor = self.spoil(path, prefix, value)
            os.remove(self.runs.path("spoilt-" + name, "evaluation.json"))
            for command in commands:
                with self.subTest(name=name, command=command[0]):
                    checkpoint = ["-c", path] if command[0] in ("eval", "rollout") else []
                    done = self.runs.run(*command, config, *checkpoint)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertIn(f"{path}: tensor '{tensor}' holds 1 values that are NaN or infinite, element 1", done.stderr)
            self.assertFalse(os.path.exists(self.runs.path("spoilt-" + name, "evaluation.json")))
            self.assertFalse(os.path.exists(self.runs.path("nothing.h5")))

    def test_mistakes_are_told_and_leave_nothing(self):
        for arguments, part in (
            (["--task", "burgers"], "no task 'burgers'; it has advection, darcy"),
            (["--sample", "9"], "no trajectory 9 in its test split; 0 to 2 are"),
            (["--resolution", "8x8x8"], "names 3 axes"),
            (["--checkpoint", self.runs.path("nothing")], "the checkpoint cannot be opened"),
        ):
            done = self.runs.run("rollout", self.config, "-o", self.runs.path("wrong.h5"), *arguments)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(part, done.stderr)
        self.assertEqual([name for name in os.listdir(self.runs.folder) if "wrong" in name], [])


if __name__ == "__main__":
    main()
