"""`ups eval` and `ups rollout` of a trained tiny run, recomputed with NumPy from the files."""

import json
import os
import re
from pathlib import Path

import h5py
import netCDF4
import numpy
import pytest
import safetensors.numpy
import xarray

from commands import one_sentence
from pages import Page
from tiny_run import CONFIG


def nrmse(prediction, truth):
    """PDEBench's: by (trajectory, frame), then the mean. Arrays (trajectory, frame, points)."""
    error = numpy.sqrt(numpy.mean((prediction - truth) ** 2, axis=2))
    return float(numpy.mean(error / numpy.sqrt(numpy.mean(truth**2, axis=2))))


def vrmse(prediction, truth):
    """The Well's, the same way."""
    return float(numpy.mean(numpy.sqrt(numpy.mean((prediction - truth) ** 2, axis=2) / (numpy.var(truth, axis=2, ddof=1) + 1e-7))))


SAMPLES = 15


@pytest.fixture(scope="module")
def config(runs):
    """A run that is trained, evaluated and rolled out."""
    config = runs.config("run")
    runs.must("train", config)
    runs.must("eval", config)
    runs.must("rollout", config, "-n", "100", "-o", runs.path("out.h5"), "--png", runs.path("pictures"))
    return config


@pytest.fixture
def evaluation(runs, config):
    return json.loads(Path(runs.path("run", "evaluation.json")).read_text())


def last_horizon(evaluation, task):
    """The last horizon of a task: the whole rollout."""
    found = evaluation["tasks"][task]["horizons"][-1]
    assert found["whole"]
    return found


def test_the_whole_rollouts_error_is_that_of_the_files_that_rollout_writes(runs, evaluation):
    with h5py.File(runs.path("out-advection.h5")) as file:
        prediction, truth = file["tensor"][:].astype(float), file["truth"][:].astype(float)
    whole = last_horizon(evaluation, 0)
    assert len(prediction) == evaluation["tasks"][0]["trajectories"]
    assert whole["model"]["nrmse"] / nrmse(prediction[:, 1:], truth[:, 1:]) == pytest.approx(1, abs=0.5e-4)
    assert whole["model"]["vrmse"] / vrmse(prediction[:, 1:], truth[:, 1:]) == pytest.approx(1, abs=0.5e-4)
    still = numpy.broadcast_to(truth[:, :1], truth[:, 1:].shape)
    assert whole["persistence"]["vrmse"] / vrmse(still, truth[:, 1:]) == pytest.approx(1, abs=0.5e-6)
    assert whole["persistence"]["nrmse"] / nrmse(still, truth[:, 1:]) == pytest.approx(1, abs=0.5e-4)
    worst = numpy.abs(prediction - truth)[:, 1:].max(axis=(0, 2)).mean()
    assert whole["model"]["max"] / worst == pytest.approx(1, abs=0.5e-4)


def test_the_truth_in_the_file_is_the_data(runs, evaluation):
    with h5py.File(runs.path("out-advection.h5")) as file, h5py.File(os.path.join(runs.data, "advection.h5")) as data:
        for place, name in enumerate(file.attrs["ups.samples"].split(", ")):
            sample = int(name[len("tensor[") : -1])
            numpy.testing.assert_array_equal(file["truth"][place], data["tensor"][sample])
        numpy.testing.assert_allclose(file["x-coordinate"], data["x-coordinate"], rtol=1e-6)
        numpy.testing.assert_allclose(file["t-coordinate"][:], data["t-coordinate"][:9], rtol=1e-6)
        assert file.attrs["ups.operator"] == evaluation["operator"]["xxh3"]
        assert "darcy" in file.attrs["ups.config"]


def test_a_steady_problem_has_its_solution_field_scored_alone(runs, evaluation):
    darcy = evaluation["tasks"][1]
    assert (darcy["solution_fields"], darcy["constant_fields"]) == (["u"], ["nu"])
    with h5py.File(runs.path("out-darcy.h5")) as file:
        prediction = numpy.stack([file[seed]["data"][1:, :, :, 1].reshape(1, -1) for seed in file])
        truth = numpy.stack([file[seed]["truth"][1:, :, :, 1].reshape(1, -1) for seed in file])
    model = last_horizon(evaluation, 1)["model"]
    assert model["nrmse"] / nrmse(prediction.astype(float), truth.astype(float)) == pytest.approx(1, abs=0.5e-4)
    assert model["vrmse"] / vrmse(prediction.astype(float), truth.astype(float)) == pytest.approx(1, abs=0.5e-4)
    assert model == last_horizon(evaluation, 1)["fields"]["u"]["model"]
    assert last_horizon(evaluation, 1)["persistence"]["nrmse"] == pytest.approx(1, abs=0.5e-5)


def persistence_by_horizon(truth, given, start_every, horizons):
    """nRMSE as published for PDEBench's initial_step: from every start, the last of `given` frames held against the frame `horizon` steps
    behind it; horizon 0: all frames behind the first `given`."""
    found, frames = {}, truth.shape[1] - given
    for horizon in horizons:
        starts = [0] if horizon == 0 else [start for start in range(0, frames, start_every) if horizon <= frames - start]
        pairs = [(truth[:, start + given - 1, None], truth[:, given:] if horizon == 0 else truth[:, start + given + horizon - 1, None])
                 for start in starts]
        found[horizon] = numpy.mean([nrmse(numpy.broadcast_to(still, ahead.shape), ahead) for still, ahead in pairs])
    return found


def write_later(runs):
    """later.h5: advection from its fourth frame on."""
    with h5py.File(os.path.join(runs.data, "advection.h5")) as whole, h5py.File(os.path.join(runs.data, "later.h5"), "w") as later:
        for name in whole:
            later[name] = whole[name][:, 3:] if name == "tensor" else whole[name][3:] if name == "t-coordinate" else whole[name][:]
        later.attrs.update(whole.attrs)


def test_given_frames_are_left_out_as_pdebench_leaves_out_its_initial_steps(runs, config, evaluation):
    assert [task["given"] for task in evaluation["tasks"]] == [1, 1]
    sets = ["--set", "evaluation.start_every=2", "--set", "evaluation.horizons=[1,3,0]"]
    told = runs.told("eval", config, *sets, "--set", "evaluation.given=4", "-o", runs.path("given.json"))
    advection, darcy = told["tasks"]
    assert (advection["given"], advection["steps"], darcy["given"], darcy["steps"]) == (4, 5, 1, 1)
    assert [h["windows"] for h in advection["horizons"]] == [9, 6, 3]
    with h5py.File(runs.path("out-advection.h5")) as file:
        expected = persistence_by_horizon(file["truth"][:].astype(float), 4, 2, [1, 3, 0])
    assert [h["persistence"]["nrmse"] for h in advection["horizons"]] == pytest.approx(list(expected.values()), rel=1e-6)
    write_later(runs)
    from_there = runs.told("eval", config, *sets, "--set", "tasks[0].files=[later.h5]", "-o", runs.path("later.json"))["tasks"][0]
    assert from_there["given"] == 1 and from_there["horizons"] == advection["horizons"]
    text = runs.must("eval", config, "--set", "evaluation.given=4", "-o", runs.path("given.json")).stdout
    assert "3 test trajectories of 5 steps behind 4 given frames" in text
    one_sentence(runs.run("eval", config, "--set", "evaluation.given=9"),
                 "task advection: evaluation.given is 9, which leaves none of the 9 frames of its trajectories to be scored; at most 8 can be given")


def test_rollouts_begin_with_the_frames_that_evaluation_gives(runs, config):
    given = ["--set", "evaluation.given=4"]
    scored = runs.told("eval", config, *given, "-o", runs.path("behind.json"))["tasks"][0]
    told = runs.told("rollout", config, "--task", "advection", "-n", "100", *given, "-o", runs.path("behind.h5"), "--png", runs.path("behind"))[0]
    assert (told["given"], told["steps"]) == (4, 5)
    with h5py.File(runs.path("behind.h5")) as file, h5py.File(runs.path("out-advection.h5")) as first:
        prediction, truth, times = file["tensor"][:].astype(float), file["truth"][:].astype(float), file["t"][:]
        assert (truth == first["truth"][:]).all() and (times == first["t"][:]).all()
        assert (prediction[:, 0] == first["tensor"][:, 0]).all() and (prediction[:, 4:] != first["tensor"][:, 4:]).any(axis=2).all()
        assert (file.attrs["ups.given"], first.attrs["ups.given"]) == ("4", "1")
    write_later(runs)
    runs.must("rollout", config, "--task", "advection", "-n", "100", "--set", "tasks[0].files=[later.h5]", "-o", runs.path("from-there.h5"))
    with h5py.File(runs.path("from-there.h5")) as file:
        assert (prediction[:, 3:] == file["tensor"][:]).all()
    whole = scored["horizons"][-1]
    assert whole["whole"] and whole["model"]["nrmse"] == pytest.approx(nrmse(prediction[:, 4:], truth[:, 4:]), rel=0.5e-4)
    mean = numpy.mean([trajectory["nrmse"]["u"] for trajectory in told["trajectories"]])
    assert mean == pytest.approx(nrmse(prediction[:, 4:], truth[:, 4:]), rel=0.5e-4)
    text = runs.must("rollout", config, "--task", "advection", "--steps", "7", *given, "-o", runs.path("behind.h5")).stdout
    assert "7 steps behind 4 given frames" in text
    with h5py.File(runs.path("behind.h5")) as file:
        assert (file["tensor"].shape[1], file["truth"].shape[1]) == (11, 9)
    one_sentence(runs.run("rollout", config, "--task", "advection", "--set", "evaluation.given=9", "-o", runs.path("none.h5")),
                 "task advection: evaluation.given is 9, which leaves none of the 9 frames")
    one_sentence(runs.run("rollout", config, "--set", "evaluation.given=9", "-o", runs.path("none.h5")), "task advection: evaluation.given is 9")
    assert not any(name.startswith("none") for name in os.listdir(runs.folder))


def test_rollouts_are_read_again_as_data(runs):
    found = runs.told("data", "inspect", runs.path("out-advection.h5"))[0]
    assert (found["layout"], found["samples"]) == ("pdebench.tensor", 3)
    found = runs.told("data", "inspect", runs.path("out-darcy.h5"))[0]
    assert (found["layout"], found["samples"]) == ("pdebench.seedgroup", 3)


def test_axes_of_rollouts_have_names_that_other_readers_see(runs, config):
    with h5py.File(runs.path("out-advection.h5")) as file:
        for name in ("tensor", "truth"):
            assert [axis.label for axis in file[name].dims] == ["trajectory", "t", "x"]
            for axis, coordinates in enumerate((None, "t-coordinate", "x-coordinate")):
                scale, = file[name].dims[axis].values()
                assert coordinates is None or numpy.array_equal(scale, file[coordinates])
    with xarray.open_dataset(runs.path("out-advection.h5"), engine="h5netcdf") as found, h5py.File(runs.path("out-advection.h5")) as file:
        assert found["tensor"].dims == found["truth"].dims == ("trajectory", "t", "x")
        assert numpy.array_equal(found["tensor"], file["tensor"]) and numpy.array_equal(found["x"], file["x-coordinate"])
    with xarray.open_dataset(runs.path("out-darcy.h5"), engine="h5netcdf", group="0001") as found, h5py.File(runs.path("out-darcy.h5")) as file:
        assert found["data"].dims == found["truth"].dims == ("t", "x", "y", "field")
        assert list(found["field"].values) == ["nu", "u"]
        assert numpy.array_equal(found["data"].sel(field="u"), file["0001/data"][..., 1])
        assert numpy.array_equal(found["y"], file["0001/grid/y"]) and numpy.array_equal(found["t"], file["0001/grid/t"])


def netcdf(runs, *options):
    """Rollouts as CF NetCDF-4, or a skip in a build that has no NetCDF-C."""
    done = runs.run("rollout", *options)
    if "without the NetCDF-C library" in done.stderr:
        one_sentence(done, "libnetcdf-dev", "write HDF5")
        pytest.skip("this build has no NetCDF-C")
    assert done.returncode == 0, done.stderr


def test_rollouts_as_netcdf_hold_what_those_as_hdf5_hold(runs, config):
    netcdf(runs, config, "-n", "100", "-o", runs.path("out.nc"))
    with xarray.open_dataset(runs.path("out-advection.nc"), engine="h5netcdf") as found, h5py.File(runs.path("out-advection.h5")) as file:
        assert found.attrs["Conventions"] == "CF-1.11"
        for name in ("task", "fields", "split", "samples", "autoencoder", "operator", "config", "training_run"):
            assert found.attrs["ups." + name] == file.attrs["ups." + name]
        assert (found.attrs["beta"], found.attrs["bc"]) == (file.attrs["beta"], file.attrs["bc"])
        assert found["u"].dims == found["u_truth"].dims == ("trajectory", "time", "x")
        assert found["u"].values.tobytes() == file["tensor"][:].tobytes() and found["u_truth"].values.tobytes() == file["truth"][:].tobytes()
        assert numpy.array_equal(found["time"].astype("f4"), file["t"]) and numpy.array_equal(found["x"].astype("f4"), file["x"])
        assert numpy.array_equal(found["trajectory"], file["trajectory"])
        assert [found[name].attrs.get("axis") for name in ("time", "x")] == ["T", "X"]
        assert found["trajectory"].attrs["standard_name"] == "realization"
    with netCDF4.Dataset(runs.path("out-darcy.nc")) as found, h5py.File(runs.path("out-darcy.h5")) as file:
        found.set_auto_mask(False)
        for field, name in enumerate(("nu", "u")):
            assert found[name].dimensions == ("trajectory", "time", "x", "y") and numpy.isnan(found[name]._FillValue)
            for i, seed in enumerate(file):
                assert found[name][i].tobytes() == file[seed]["data"][..., field].tobytes()
                assert found[name + "_truth"][i].tobytes() == file[seed]["truth"][..., field].tobytes()
        assert found["y"].axis == "Y"
    for name, fields in (("advection", ["u", "u_truth"]), ("darcy", ["nu", "u", "nu_truth", "u_truth"])):
        facts = runs.told("data", "inspect", runs.path(f"out-{name}.nc"))[0]
        assert (facts["layout"], facts["samples"], facts["fields"]) == ("netcdf", 3, fields)


def test_rollouts_as_netcdf_beyond_the_data_and_of_other_times_and_parameters(runs, config):
    """Where the data end, the truth is filled; where trajectories differ, times and parameters are theirs."""
    netcdf(runs, config, "--task", "advection", "--steps", "11", "-o", runs.path("beyond.nc"))
    runs.must("rollout", config, "--task", "advection", "--steps", "11", "-o", runs.path("beyond.h5"))
    with xarray.open_dataset(runs.path("beyond.nc")) as found, xarray.open_dataset(runs.path("beyond.h5"), engine="h5netcdf") as other:
        assert found["u"].shape == found["u_truth"].shape == (3, 12, 32)
        assert numpy.isnan(found["u_truth"][:, 9:]).all() and numpy.array_equal(found["u_truth"][:, :9], other["truth"])
        assert other["truth"].dims == ("trajectory", "t_truth", "x") and numpy.array_equal(found["u"], other["tensor"])
    runs.generate("advection1d", "swift.h5", 6, "-r", "32", "--steps", "9", "--param", "beta=0.7", "--param", "t_end=1")
    several = runs.config("mixed", CONFIG.replace("files: [advection.h5]", "files: [advection.h5, swift.h5]"))
    runs.must("train", several, "--set", "autoencoder.steps=2", "--set", "operator.steps=2")
    netcdf(runs, several, "--task", "advection", "--split", "train", "-n", "100", "-o", runs.path("mixed.nc"))
    with xarray.open_dataset(runs.path("mixed.nc")) as found:
        assert set(found["beta"].values.round(6)) == {0.4, 0.7} and found["beta"].dims == ("trajectory",)
        assert found["t"].dims == ("trajectory", "time") and set(found["t"][:, -1].values.round(6)) == {1.0, 2.0}
        assert "t" in found["u"].coords


def test_units_and_names_of_axes_come_from_the_data(runs, scratch):
    path = os.path.join(scratch, "sea.nc")
    with netCDF4.Dataset(path, "w") as file:
        for name, count, units in (("run", 10, None), ("time", 4, "hours since 2000-01-01"), ("lat", 8, "degrees_north"), ("lon", 8, "degrees_east")):
            file.createDimension(name, count)
            if units:
                variable = file.createVariable(name, "f8", (name,))
                variable[:], variable.units = numpy.arange(count), units
        file["time"].standard_name = "time"
        file.createVariable("height", "f4", ("run", "time", "lat", "lon"))[:] = numpy.random.default_rng(1).normal(size=(10, 4, 8, 8))
    text = CONFIG[:CONFIG.index("tasks:")] + "tasks:\n  - {{name: sea, files: [" + path + "], patch: [4]}}\n" + CONFIG[CONFIG.index("model:"):]
    sea = runs.config("sea", text)
    runs.must("train", sea, "--set", "autoencoder.steps=2", "--set", "operator.steps=2")
    netcdf(runs, sea, "-n", "1", "-o", os.path.join(scratch, "out.nc"))
    with netCDF4.Dataset(os.path.join(scratch, "out.nc")) as found:
        assert found["height"].dimensions == ("trajectory", "time", "lat", "lon")
        assert (found["time"].units, found["lat"].units, found["lon"].units) == ("s", "degrees_north", "degrees_east")
        assert (found["lat"].standard_name, found["lon"].axis) == ("latitude", "X")


def test_trajectories_of_other_parameters_keep_their_own(runs):
    runs.generate("advection1d", "fast.h5", 6, "-r", "32", "--steps", "9", "--param", "beta=0.7")
    config = runs.config("several", CONFIG.replace("files: [advection.h5]", "files: [advection.h5, fast.h5]"))
    runs.must("train", config, "--set", "autoencoder.steps=2", "--set", "operator.steps=2")
    output = runs.path("several.h5")
    runs.must("rollout", config, "--task", "advection", "--split", "train", "-n", "100", "-o", output)
    with h5py.File(output) as file, h5py.File(os.path.join(runs.data, "advection.h5")) as data:
        found = {round(file[seed].attrs["beta"], 6) for seed in file}
        assert found == {round(float(data.attrs["beta"]), 6), 0.7}


def test_pictures_are_there_for_every_trajectory(runs, config):
    pictures = runs.path("pictures")
    names = [f"advection-{i}-u{kind}.png" for i in range(3) for kind in ("", "-profiles")]
    names += [f"darcy-{i}-u.png" for i in range(3)]
    assert sorted(os.listdir(pictures)) == sorted(names)
    for name in names:
        assert Path(pictures, name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_json_on_standard_output_is_the_file(runs, config, evaluation):
    told = runs.told("eval", config, "-o", runs.path("again.json"))
    for found in (told, evaluation):
        for task in found["tasks"]:
            task["seconds"] = task["frame_seconds"] = 0
    assert told == evaluation


def test_a_training_checkpoint_is_evaluated_in_place_of_the_exported_model(runs, evaluation):
    config, folder = runs.copy("run")
    runs.must("train", config, "--stage", "operator", "--restart", "--set", "operator.steps=20")
    told = runs.told("eval", config, "-c", os.path.join(folder, "checkpoints", "operator"), "-o", runs.path("checkpointed.json"))
    assert "step-00000020.safetensors" in told["operator"]["file"]
    assert told["operator"]["xxh3"] != evaluation["operator"]["xxh3"]


def test_a_model_keeps_the_normalisation_it_was_trained_with_whatever_the_configuration_says_now(runs, config, evaluation):
    text = Path(config).read_text().replace("files: [darcy.h5]", "files: [darcy.h5]\n    field_scale: [1, 4]")
    config, folder = runs.copy("run")
    Path(config).write_text(text.replace(runs.path("run"), folder))
    told = runs.told("eval", config)
    for rescaled, task in zip(told["tasks"], evaluation["tasks"], strict=True):
        assert rescaled["horizons"] == task["horizons"]


def test_a_model_is_evaluated_and_rolled_out_on_files_it_was_not_trained_on(runs, config):
    runs.generate("advection1d", "unseen.h5", 6, "-r", "48", "--steps", "12")
    unseen = ["--set", "tasks[0].files=[unseen.h5]", "--set", "data.split={train: 0.1, validation: 0, test: 0.9}"]
    told = runs.told("eval", config, *unseen, "-o", runs.path("unseen.json"))
    assert told["tasks"][0]["trajectories"] == 5
    assert numpy.isfinite(told["tasks"][0]["horizons"][0]["model"]["nrmse"])
    output = runs.path("unseen_rollout.h5")
    runs.must("rollout", config, *unseen, "--task", "advection", "-o", output)
    with h5py.File(output) as file:
        assert file["tensor"].shape[1:] == (12, 48)
    one_sentence(runs.run("eval", config, "--set", "tasks[0].files=[darcy.h5]"), "give it files of the PDE it was trained on")


def again(runs, config, task, field, path):
    """Evaluates a rollout's file with the model that made it; its first task is the one that was rolled out."""
    told = runs.told("eval", config, "--set", f"tasks[0].files=[{path}]", "--set", "data.split={train: 0, validation: 0, test: 1}",
                     "-o", runs.path("again.json"))["tasks"][0]
    assert told["task"] == task
    # What an operator predicted and what it predicts from there on again differ by what is lost in between.
    return told["trajectories"], told["horizons"][0]["fields"][field]["model"]["nrmse"]


def test_a_rollout_is_evaluated_by_the_model_that_made_it(runs, config):
    trajectories, nrmse_again = again(runs, config, "advection", "u", runs.path("out-advection.h5"))
    assert trajectories == 3
    assert numpy.isfinite(nrmse_again)
    # Several parameters make a file of groups, where nothing would wrap around.
    runs.generate("advection1d", "faster.h5", 6, "-r", "32", "--steps", "9", "--param", "beta=0.7")
    output, both = runs.path("both.h5"), ["--set", "tasks[0].files=[advection.h5, faster.h5]"]
    runs.must("rollout", config, *both, "--task", "advection", "-n", "100", "-o", output)
    with h5py.File(output) as file:
        assert {file[seed].attrs["bc"] for seed in file} == {"periodic"}
        assert len({round(float(file[seed].attrs["beta"]), 6) for seed in file}) > 1
    assert runs.told("data", "inspect", output)[0]["layout"] == "pdebench.seedgroup"
    again(runs, config, "advection", "u", output)


def test_a_rollout_between_walls_is_evaluated_by_the_model_that_made_it_and_says_so(runs):
    """Its file is a `tensor`, whose data wrap around where nothing is said."""
    runs.generate("diffsorp1d", "sorption.h5", 8, "-r", "32", "--steps", "6")
    config = runs.config("walls", CONFIG.replace("name: advection", "name: sorption")
                         .replace("[advection.h5]", "[sorption.h5]").replace("steps: 60", "steps: 4"))
    runs.must("train", config)
    output = runs.path("walls.h5")
    runs.must("rollout", config, "--task", "sorption", "-o", output)
    with h5py.File(output) as file:
        assert (file.attrs["bc"], file["tensor"].ndim) == ("not periodic", 3)
    again(runs, config, "sorption", "u", output)
    with h5py.File(output, "r+") as file:
        del file.attrs["bc"]
    done = runs.run("eval", config, "--set", f"tasks[0].files=[{output}]", "--set", "data.split={train: 0, validation: 0, test: 1}")
    assert done.returncode == 1
    assert ("another sorption.encoder than this configuration, its files and its run have: its 'periodic' is "
            "false, here it is true") in done.stderr


def test_a_rollout_of_several_fields_is_evaluated_by_the_model_that_made_it(runs):
    """Fields first in the data, last in the rollout; parameters in another order."""
    runs.generate("cfd1d_rand", "flow.h5", 8, "-r", "32", "--steps", "5")
    config = runs.config("flow", CONFIG.replace("name: advection", "name: flow")
                         .replace("[advection.h5]", "[flow.h5]").replace("steps: 60", "steps: 4"))
    runs.must("train", config)
    output = runs.path("flow-out.h5")
    runs.must("rollout", config, "--task", "flow", "-o", output)
    again(runs, config, "flow", "density", output)


def warned_of(runs, config, file, value, parameter, task):
    """What evaluation and rollout say of samples of a parameter with this value, which both say alike."""
    with h5py.File(os.path.join(runs.data, file), "r+") as data:
        data.attrs.update({name: value for name in data.attrs if name.lower() == parameter})
    given = "--set", f"tasks[0].files=[{file}]", "--set", "data.split={train: 0, validation: 0, test: 1}"
    said = [runs.must("eval", config, *given), runs.must("rollout", config, "--task", task, "-n", "100", "-o", runs.path(runs.fresh() + ".h5"), *given)]
    found = [re.findall(r"warning: (task .*expect its predictions to hold)", done.stderr) for done in said]
    assert found[0] == found[1] and len(found[0]) < 2
    return found[0][0] if found[0] else None


def test_parameters_beyond_those_that_were_learnt_are_warned_of_with_value_and_sample(runs):
    """Of those that the model knows by their logarithm, some have none."""
    runs.generate("burgers1d", "decades.h5", 12, "-r", "32", "--steps", "5", "-p", "nu=log:0.003:0.3")
    runs.generate("burgers1d", "one.h5", 3, "-r", "32", "--steps", "5", "-p", "nu=0.03")
    config = runs.config("decades", CONFIG.replace("name: advection", "name: burgers").replace("[advection.h5]", "[decades.h5]").replace("steps: 60", "steps: 4"))
    runs.must("train", config)
    assert "warning" not in runs.must("eval", config).stderr
    say = lambda value: warned_of(runs, config, "one.h5", value, parameter="nu", task="burgers")  # noqa: E731
    assert say(0.03) is None
    for value in (0.0, -1.0):
        assert f"task burgers: nu is {value:g} and counts as not known, since the model knows its logarithm: sample tensor[0] of " in say(value)
    assert say(numpy.inf).startswith("task burgers: nu is inf and counts as not known: ")
    assert re.search(r"nu is 1e\+06, [\d.]+ deviations away from the mean of what the model was trained on: sample tensor\[0\] of .*one.h5, and as unknown to it "
                     r"in 2 more of the 3 \(tensor\[1\], tensor\[2\]\);", say(1e6))


def test_another_value_than_the_only_one_of_training_is_warned_of(runs, config):
    """However near it is, but for rounding; the model's file tells of it, and one of before that does not goes on as it did."""
    runs.generate("advection1d", "near.h5", 3, "-r", "32", "--steps", "9", "--param", "beta=0.4")
    say = lambda value, model=config: warned_of(runs, model, "near.h5", value, parameter="beta", task="advection")  # noqa: E731
    assert say(0.4) is None and say(float(numpy.float32(0.4))) is None
    assert say(0.41).startswith("task advection: beta is 0.41, and 0.4 in all that the model was trained on: sample tensor[0] of ")
    old, place = runs.copy("run")
    path = os.path.join(place, "operator.safetensors")
    tensors = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, "np") as file:
        told = file.metadata()
    for task in ("advection", "darcy"):
        parameters = json.loads(told[f"{task}.parameters"])
        assert parameters.pop("constant") == [True]
        told[f"{task}.parameters"] = json.dumps(parameters)
    os.unlink(path)
    safetensors.numpy.save_file(tensors, path, told)
    assert say(0.41, old) is None and "deviations away" in say(90.0, old)


def test_errors_of_several_fields_are_told_by_field(runs, scratch):
    """In the terminal and on the page as evaluation.json has them; a task of one field has no such table."""
    runs.generate("cfd1d_rand", "gas.h5", 8, "-r", "32", "--steps", "5")
    config, page = runs.config("gas", CONFIG.replace("name: darcy", "name: gas").replace("[darcy.h5]", "[gas.h5]").replace("steps: 60", "steps: 4")), os.path.join(scratch, "p.html")
    runs.must("train", config)
    said = runs.must("eval", config, "--html", page).stdout
    wave, gas = json.loads(Path(runs.path("gas", "evaluation.json")).read_text())["tasks"]
    assert said.count("nRMSE by field") == 1 and len(gas["solution_fields"]) == 3
    horizons = [h["fields"] for h in gas["horizons"] if h["windows"]]
    lines, text = said[said.index("nRMSE by field"):].splitlines(), " ".join(Page(page).text().split())
    for line, field in zip(lines[2:], gas["solution_fields"]):
        pairs = [[f"{h[field][name]['nrmse']:.3g}" for name in ("model", "persistence")] for h in horizons]
        assert line.split() == [field, *" ".join(" : ".join(pair) for pair in pairs).split()]
        assert f"{field} model {' '.join(pair[0] for pair in pairs)} {field} persistence {' '.join(pair[1] for pair in pairs)}" in text
    assert text.count("nRMSE of each field") == 1


def test_data_that_do_not_change_in_time_are_called_so(runs):
    path = runs.generate("advection1d", "still.h5", 8, "-r", "32", "--steps", "5")
    with h5py.File(path, "r+") as file:
        file["tensor"][:] = file["tensor"][:, :1]
    text = CONFIG.replace("[advection.h5]", "[still.h5]").replace("steps: 60", "steps: 4")
    both = runs.config("both", text)
    runs.must("train", both)
    said = runs.must("eval", both).stdout
    assert "advection: the data do not change in time" in said and "darcy: the data" not in said
    assert "better than persistence at every horizon.\n" not in said
    worse = json.loads(Path(runs.path("both", "evaluation.json")).read_text())["worse_than_persistence"]
    assert all(entry["task"] == "darcy" for entry in worse)


def test_only_the_split_that_is_evaluated_has_to_be_there(runs, config):
    runs.generate("advection1d", "single.h5", 1, "-r", "32", "--steps", "9")
    foreign = ["--set", "tasks[0].files=[single.h5]", "--set", "data.split={train: 0, validation: 0, test: 1}"]
    told = runs.told("eval", config, *foreign, "-o", runs.path("single.json"))
    assert told["tasks"][0]["trajectories"] == 1
    runs.must("rollout", config, *foreign, "--task", "advection", "-o", runs.path("single-out.h5"))
    one_sentence(runs.run("train", runs.config("untrained"), *foreign), re.escape("data.split.train"))


def spoil(path, prefix, value):
    """One value of the first tensor whose name begins so becomes `value`; returns the tensor's name."""
    with safetensors.safe_open(path, "numpy") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
    name = min(name for name in tensors if name.startswith(prefix))
    tensors[name].flat[1] = value
    safetensors.numpy.save_file(tensors, path, metadata)
    return name


@pytest.mark.parametrize("name, prefix, value, commands", [
    ("operator", "operator.", numpy.nan, (["eval", "-c"], ["rollout", "-o", "nothing.h5", "-c"])),
    ("autoencoder", "encoder.advection.", numpy.inf,
     (["cache", "build", "--restart"], ["train", "--stage", "operator", "--restart", "--set", "data.residency=encode"]))])
def test_a_model_that_is_not_finite_is_refused_by_every_command_that_uses_it(runs, config, scratch, name, prefix, value, commands):
    copy, folder = runs.copy("run")
    path = os.path.join(folder, name + ".safetensors")
    shown = re.escape(folder) + rf"/(next/)?{name}\.safetensors"  # as a stage that is done again has it
    tensor = spoil(path, prefix, value)
    os.remove(os.path.join(folder, "evaluation.json"))
    for command in commands:
        done = runs.run(*command, *([path] if command[-1] == "-c" else []), copy, cwd=scratch)
        one_sentence(done, shown + re.escape(f": tensor '{tensor}' holds 1 values that are NaN or infinite, element 1"))
        assert not os.path.exists(os.path.join(folder, "next"))
    assert not os.path.exists(os.path.join(folder, "evaluation.json"))
    assert os.listdir(scratch) == []


@pytest.mark.parametrize("option, value, part", [
    ("--task", "burgers", "no task 'burgers'; it has advection, darcy"), ("--sample", "9", "no trajectory 9 in its test split; 0 to 2 are"),
    ("--resolution", "8x8x8", "names 3 axes"), ("--checkpoint", "/no/such", "the checkpoint cannot be opened")])
def test_mistakes_are_told_and_leave_nothing(runs, config, option, value, part):
    done = runs.run("rollout", config, "-o", runs.path("wrong.h5"), option, value)
    assert done.returncode == (2 if option == "--task" else 1)
    assert part in done.stderr
    assert [name for name in os.listdir(runs.folder) if "wrong" in name] == []


def test_a_single_trajectory_is_trained_on_and_nothing_is_left_to_judge_it_by(runs):
    """Said before training, and by each command that would want another."""
    runs.must("datagen", "burgers1d", "-o", runs.path("one.h5"), "--samples", "1", "--resolution", "32", "--steps", "6", "-q")
    runs.must("config", "init", runs.path("one.h5"), "-o", runs.path("one.yaml"))
    settings = [word for setting in (f"output={runs.path('one')}", "operator.steps=3") for word in ("--set", setting)]
    done = runs.must("train", runs.path("one.yaml"), *settings)
    assert "warning: task one: it has 1 sample, and none is held out" in done.stderr and "times the memory" not in done.stderr
    for command in (["eval", runs.path("one")], ["rollout", runs.path("one"), "-o", runs.path("one-out.h5"), "-q"]):
        one_sentence(runs.run(*command), r"none of its samples is in the validation split .*`ups eval --split train`")
    runs.must("rollout", runs.path("one"), "-o", runs.path("one-out.h5"), "--split", "train", "-q")
    assert "1 train trajectory of 5 steps" in runs.must("eval", runs.path("one"), "--split", "train").stdout
    asked = runs.must("train", runs.path("one.yaml"), *settings, "--set", f"output={runs.path('asked')}", "--set", "data.split={train: 1, validation: 0, test: 0}")
    assert "held out" not in asked.stderr
