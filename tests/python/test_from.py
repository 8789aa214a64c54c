"""A model that begins as another one (model.from): what it takes, by name, what is begun anew, and what is refused."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from commands import TIMEOUT, UPS, must, one_sentence, told, ups
from tiny_run import tree

SIZES = {"tokens": "grid", "dim": "auto", "operator": {"core": "stack", "hidden": 16, "depth": 2, "heads": 2, "mlp_ratio": 2}}
TASK_COLUMNS, VALUE_COLUMNS = "operator.condition.task.weight", "operator.condition.parameters.weight"


def configuration(folder, name, tasks, **more):
    path = Path(folder) / f"{name}.yaml"
    path.write_text(json.dumps({
        "output": str(Path(folder) / name), "precision": "f32", "data": {"root": str(folder)}, "tasks": tasks,
        "model": SIZES, "autoencoder": {"steps": 0}, "operator": {"steps": 20, "batch_size": 4, "checkpoint_every": 10, "validate_every": 20}} | more))
    return path


def advection(*files, **more):
    return {"name": "advection", "files": list(files), "patch": [4]} | more


DARCY = {"name": "darcy", "files": ["darcy.hdf5"], "patch": [8]}
BURGERS = {"name": "burgers", "files": ["burgers.hdf5"], "patch": [4]}


def tensors(run, stage="operator"):
    return load_file(Path(run) / f"{stage}.safetensors")


def metadata(run, stage="operator"):
    with safe_open(Path(run) / f"{stage}.safetensors", "np") as file:
        return file.metadata()


def errors(*arguments):
    """Of whole rollouts, by task."""
    return {task["task"]: task["horizons"][-1]["model"]["nrmse"] for task in told("eval", *arguments)["tasks"]}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data, and the run `many`, trained on advection at two speeds and on Darcy flow."""
    folder = tmp_path_factory.mktemp("from")
    for speed in (0.1, 0.4):
        must("datagen", "advection1d", "-o", folder / f"slow_beta{speed}.hdf5", "-n", 12, "-r", 32, "--steps", 9, "--param", f"beta={speed}", "-q")
    must("datagen", "advection1d", "-o", folder / "fast_beta2.0.hdf5", "-n", 12, "-r", 32, "--steps", 9, "--param", "beta=2", "--seed", 7, "-q")
    must("datagen", "burgers1d", "-o", folder / "burgers.hdf5", "-n", 12, "-r", 32, "--steps", 9, "-q")
    must("datagen", "darcy2d", "-o", folder / "darcy.hdf5", "-n", 12, "-r", 16, "-q")
    must("train", configuration(folder, "many", [advection("slow_beta0.1.hdf5", "slow_beta0.4.hdf5"), DARCY], operator={
        "steps": 60, "batch_size": 4, "accumulation": 2, "validate_every": 60}), "-q")
    return folder


def test_a_task_of_the_same_name_goes_on_as_it_was_whatever_the_order_of_tasks(place):
    config = configuration(place, "same", [DARCY, advection("slow_beta0.1.hdf5", "slow_beta0.4.hdf5")], model={"from": str(place / "many")}, operator={"steps": 0})
    must("train", config, "-q")
    for run in ("many", "same"):
        must("rollout", place / run, "-o", place / f"{run}.h5", "-q")
    for task in ("advection", "darcy"):
        with h5py.File(place / f"many-{task}.h5") as old, h5py.File(place / f"same-{task}.h5") as new:
            compared = []
            old.visititems(lambda name, what: compared.append(name) if isinstance(what, h5py.Dataset) else None)
            assert any(name.endswith(("tensor", "data")) for name in compared)
            for name in compared:
                np.testing.assert_array_equal(old[name][()], new[name][()], err_msg=f"{task}: {name}")
    old, new = metadata(place / "many"), metadata(place / "same")
    assert old["advection.parameters"] == new["advection.parameters"]
    assert "from" not in json.loads(new["ups.config"])["model"], "where it came from is nobody else's business"


def test_a_new_task_shares_the_blocks_and_begins_with_maps_of_its_own(place):
    config = configuration(place, "new", [BURGERS, DARCY], model={"from": str(place / "many")}, operator={"steps": 0})
    said = must("train", config, "-q").stderr
    assert "new to it: burgers" in said and f"begins as that of {place / 'many'}" in said
    fresh = configuration(place, "fresh", [BURGERS, DARCY], operator={"steps": 0})
    must("train", fresh, "-q")
    old, new, random = (tensors(place / run) for run in ("many", "new", "fresh"))
    assert set(new) == set(random)
    for name, values in new.items():
        if name == TASK_COLUMNS:
            np.testing.assert_array_equal(values[:, 1], old[name][:, 1])  # Darcy's
            np.testing.assert_allclose(values[:, 0], old[name].mean(axis=1), rtol=1e-6, atol=1e-9)  # what tasks have in common
        elif ".burgers." in name:
            np.testing.assert_array_equal(values, random[name], err_msg=name)
        else:
            np.testing.assert_array_equal(values, old[name], err_msg=name)
    assert any(".burgers." in name for name in new) and not any(".advection." in name for name in new)


def test_other_files_of_a_task_are_encoded_and_told_as_those_that_were_trained_on(place):
    """Another speed: normalisation, latents and the scale of parameters are the model's, so that its maps mean the same."""
    config = configuration(place, "fast", [advection("fast_beta2.0.hdf5")], model={"from": str(place / "many")}, operator={"steps": 0})
    must("train", config, "-q")
    old, new = metadata(place / "many", "autoencoder"), metadata(place / "fast", "autoencoder")
    assert old["advection.normalisation"] == new["advection.normalisation"]
    assert metadata(place / "many")["advection.parameters"] == metadata(place / "fast")["advection.parameters"]
    for name, values in tensors(place / "fast", "autoencoder").items():
        np.testing.assert_array_equal(values, tensors(place / "many", "autoencoder")[name])
    before = errors(place / "fast", "--split", "train")["advection"]
    must("train", config, "--restart", "--set", "operator.steps=200", "-q")
    assert errors(place / "fast", "--split", "train")["advection"] < before


def test_a_parameter_that_the_model_was_not_told_of_comes_behind_those_it_knows(place, tmp_path):
    """Columns stand for parameters in their order: the known one keeps its column."""
    for name, source in {"a.npz": "slow_beta0.4.hdf5", "b.npz": "fast_beta2.0.hdf5"}.items():
        with h5py.File(place / source) as file:
            count = len(file["tensor"])
            np.savez(tmp_path / name, u=file["tensor"][:], alpha=np.linspace(0.5, 1.5, count), beta=np.full(count, file.attrs.get("beta", 0.4) if name == "a.npz" else 2.0))
    layout = {"fields": {"u": "u"}, "axes": ["sample", "time", "x"], "time": {"dt": 0.1}, "periodic": True}
    known = {"name": "advection", "patch": [4], "files": ["a.npz"], "layout": layout | {"parameters": {"beta": "beta"}}}
    more = known | {"files": ["b.npz"], "layout": layout | {"parameters": {"alpha": "alpha", "beta": "beta"}}}
    must("train", configuration(tmp_path, "known", [known], operator={"steps": 20, "batch_size": 4}), "-q")
    said = must("train", configuration(tmp_path, "more", [more], model={"from": str(tmp_path / "known")}, operator={"steps": 0}), "-q").stderr
    assert "not told of the parameter 'alpha'" in said
    before, after = (json.loads(metadata(tmp_path / run)["advection.parameters"]) for run in ("known", "more"))
    assert before["names"] == ["beta"] and after["names"] == ["beta", "alpha"]
    assert after["scale"][0] == before["scale"][0]
    old, new = tensors(tmp_path / "known")[VALUE_COLUMNS], tensors(tmp_path / "more")[VALUE_COLUMNS]
    assert new.shape[1] == 2
    np.testing.assert_array_equal(new[:, 0], old[:, 0])
    must("eval", tmp_path / "more")


def test_a_file_of_export_is_as_good_as_the_run(place):
    must("export", place / "many", "-o", place / "many.safetensors")
    for name, source in {"by_run": "many", "by_file": "many.safetensors"}.items():
        must("train", configuration(place, name, [BURGERS], model={"from": str(place / source)}), "-q")
    old, new = tensors(place / "by_run"), tensors(place / "by_file")
    assert old.keys() == new.keys() and all(np.array_equal(old[name], new[name]) for name in old)


def test_a_run_goes_on_exactly_when_the_model_it_began_as_is_gone(place, tmp_path):
    shutil.copytree(place / "many", tmp_path / "source")
    steps = {"steps": 4000, "batch_size": 4, "checkpoint_every": 10, "validate_every": 0}
    runs = [configuration(tmp_path, name, [BURGERS | {"files": [str(place / "burgers.hdf5")]}], model={"from": str(tmp_path / "source")}, operator=steps)
            for name in ("whole", "killed")]
    process = subprocess.Popen([UPS, "train", runs[1], "-q"], stderr=subprocess.DEVNULL)
    while not (tmp_path / "killed/checkpoints/operator/latest.json").exists() and process.poll() is None:
        time.sleep(0.002)
    assert process.poll() is None, "it ended before it could be killed"
    process.kill()
    process.wait(TIMEOUT)
    must("train", runs[0], "-q")
    shutil.rmtree(tmp_path / "source")
    must("train", tmp_path / "killed", "--resume", "-q")
    assert (tmp_path / "whole/operator.safetensors").read_bytes() == (tmp_path / "killed/operator.safetensors").read_bytes()
    must("eval", tmp_path / "whole")  # the run's own configuration says all
    must("train", tmp_path / "whole", "--extend", "--set", "operator.steps=4010", "-q")
    one_sentence(ups("train", runs[0], "--restart"), "model.from", "there is no .*source")
    assert (tmp_path / "whole/operator.safetensors").exists()


def test_a_run_goes_on_when_the_model_it_began_as_is_another_one_now(place, tmp_path):
    shutil.copytree(place / "many", tmp_path / "source")
    config = configuration(tmp_path, "tuned", [BURGERS | {"files": [str(place / "burgers.hdf5")]}], model={"from": str(tmp_path / "source")}, operator={"steps": 20, "batch_size": 4})
    must("train", config, "-q")
    other = configuration(tmp_path, "source", [BURGERS | {"files": [str(place / "burgers.hdf5")], "patch": [8]}], model=SIZES | {"operator": SIZES["operator"] | {"hidden": 32}})
    must("train", other, "--restart", "-q")
    for command in (("eval", "tuned"), ("export", "tuned", "-o", tmp_path / "m.safetensors"), ("train", "tuned", "--resume"), ("train", "tuned", "--extend", "--set", "operator.steps=22")):
        must(*(tmp_path / word if word == "tuned" else word for word in command), "-q")
    one_sentence(ups("train", tmp_path / "tuned", "--restart"), "model.operator.hidden: 16, and 32 in the model")
    assert not (tmp_path / "tuned/next").exists()


def test_its_cache_is_sound_and_pruning_leaves_it(place, tmp_path):
    config = configuration(tmp_path, "fast", [advection(str(place / "fast_beta2.0.hdf5"))], model={"from": str(place / "many")})
    must("train", config, "-q")
    before = tree(tmp_path / "fast")
    assert "nothing to remove" in must("cache", "prune", "--config", tmp_path / "fast", "--yes").stdout
    assert tree(tmp_path / "fast") == before, "asking writes nothing, either"


def test_it_goes_on_with_the_data_it_began_with_alone(place, tmp_path):
    """Its normalisation is the model's, whatever the data are; which they were is kept nevertheless."""
    for name, file in (("one", "slow_beta0.1.hdf5"), ("other", "slow_beta0.4.hdf5")):
        os.mkdir(tmp_path / name)
        shutil.copy(place / file, tmp_path / name / "wave_beta0.1.hdf5")
    config = configuration(tmp_path, "run", [advection("wave_beta0.1.hdf5")], model={"from": str(place / "many")}, data={"root": str(tmp_path / "one")})
    must("train", config, "-q")
    before = tree(tmp_path / "run")
    for way in (["--resume"], ["--extend", "--set", "operator.steps=30"]):
        one_sentence(ups("train", tmp_path / "run", *way, "--set", f"data.root={tmp_path / 'other'}"), "advection: its files have other contents since the run began")
        assert tree(tmp_path / "run") == before
    must("train", tmp_path / "run", "--fork", tmp_path / "fork", "--set", f"data.root={tmp_path / 'other'}", "--set", "operator.steps=30", "-q")
    must("train", tmp_path / "fork", "--resume", "-q")
    one_sentence(ups("train", tmp_path / "fork", "--resume", "--set", f"data.root={tmp_path / 'one'}"), "its files have other contents since the run began")


def test_what_is_done_again_begins_as_the_run_began(place, tmp_path):
    """--extend of the autoencoder, whose operator is done again, keeps the model; --restart takes what model.from says now, and leaves nothing of the old."""
    shutil.copytree(place / "many", tmp_path / "source")
    stages = {"autoencoder": {"steps": 0}, "operator": {"steps": 0}}
    files = {"files": [str(place / "slow_beta0.1.hdf5"), str(place / "slow_beta0.4.hdf5")]}
    config = configuration(tmp_path, "run", [advection() | files], model={"from": str(tmp_path / "source")}, **stages)
    must("train", config, "-q")
    first = tensors(tmp_path / "run")
    must("train", configuration(tmp_path, "source", [advection(str(place / "fast_beta2.0.hdf5"))], seed=5), "--restart", "-q")
    must("train", tmp_path / "run", "--extend", "--set", "autoencoder.steps=1", "-q")
    again = tensors(tmp_path / "run")
    assert all(np.array_equal(again[name], first[name]) for name in first if ".change" not in name and ".kept" not in name)
    must("train", config, "--restart", "-q")
    turned, source = tensors(tmp_path / "run"), tensors(tmp_path / "source")
    assert np.array_equal(turned["operator.blocks.0.mlp.up.weight"], source["operator.blocks.0.mlp.up.weight"])
    must("train", tmp_path / "run", "--extend", "--set", "operator.steps=3", "-q")  # told parameters as the new model was
    plain = configuration(tmp_path, "run", [advection() | files], **stages)
    must("train", plain, "--restart", "-q")
    assert not list((tmp_path / "run").glob("initial/*"))
    must("train", tmp_path / "run", "--extend", "--set", "operator.steps=3", "-q")


def test_a_beginning_that_came_to_nothing_is_not_gone_on_with(place, tmp_path):
    """Its copies stay until the run begins, which may be without a model."""
    task = BURGERS | {"files": [str(place / "burgers.hdf5")]}
    must("train", configuration(tmp_path, "honest", [task]), "-q")
    stale = configuration(tmp_path, "stale", [task])
    (tmp_path / "stale/initial").mkdir(parents=True)
    for stage in ("autoencoder", "operator"):
        shutil.copy(place / f"many/{stage}.safetensors", tmp_path / f"stale/initial/{stage}.safetensors")
    must("train", stale, "-q")
    honest, made = tensors(tmp_path / "honest"), tensors(tmp_path / "stale")
    assert all(np.array_equal(made[name], honest[name]) for name in honest)


def test_what_stays_the_same_is_what_does_so_in_these_data(place, tmp_path):
    """Advection keeps the mean; a reaction of that name does not, and must not be kept from changing it."""
    must("datagen", "reacdiff1d", "-o", tmp_path / "reaction.hdf5", "-n", 12, "-r", 32, "--steps", 9, "-q")
    must("train", configuration(tmp_path, "reaction", [advection(str(tmp_path / "reaction.hdf5"))], model={"from": str(place / "many")}, operator={"steps": 0}), "-q")
    mean = np.ones(4)  # of a patch, whose four numbers are latents as they stand
    np.testing.assert_allclose(mean @ tensors(place / "many")["operator.advection.kept"], -mean, atol=0.1)
    np.testing.assert_allclose(mean @ tensors(tmp_path / "reaction")["operator.advection.kept"], 0, atol=0.1)


def test_init_leaves_a_learnt_encoder_its_training(place, tmp_path):
    sizes = {"tokens": 8, "dim": 8, "encoder": {"width": 16}, "decoder": {"hidden": 16, "depth": 1}, "operator": {"hidden": 16, "depth": 1, "heads": 2}}
    must("train", configuration(tmp_path, "learnt", [BURGERS | {"files": [str(place / "burgers.hdf5")]}], model=sizes, autoencoder={"steps": 2, "gate": 0}, operator={"steps": 2}), "-q")
    must("config", "init", place / "slow_beta0.4.hdf5", "--from", tmp_path / "learnt", "-o", tmp_path / "c.yaml")
    shown = told("config", "show", tmp_path / "c.yaml")["values"]
    assert shown["model"]["tokens"] == 8 and shown["autoencoder"]["steps"] > 0 and shown["operator"]["losses"]["decoded"]["weight"] == 0


def test_a_pipe_is_no_model(place, tmp_path):
    os.mkfifo(tmp_path / "pipe.safetensors")
    path = configuration(place, "piped", [BURGERS], model={"from": str(tmp_path / "pipe.safetensors")})
    one_sentence(ups("train", path, timeout=20), "pipe.safetensors", "pipe")


def test_a_run_that_has_begun_keeps_its_beginning(place):
    """--fork of it begins with its own weights; another model is a fork that begins as that."""
    config = configuration(place, "kept", [BURGERS], model={"from": str(place / "many")})
    must("train", config, "-q")
    one_sentence(ups("train", config, "--set", "model.from=''", *(f"--set=model.{key}={value}" for key, value in {"tokens": "grid", "dim": "auto"}.items()),
                     *(f"--set=model.operator.{key}={value}" for key, value in SIZES["operator"].items())), "holds a run of another configuration")
    must("train", config, "--fork", place / "kept-on", "--set", "operator.optimizer.learning_rate=0", "-q")
    mine, forked = tensors(place / "kept"), tensors(place / "kept-on")
    for name, values in mine.items():
        np.testing.assert_allclose(forked[name], values, rtol=1e-5, atol=1e-8, err_msg=name)  # the average rounds
    must("train", configuration(place, "other", [DARCY], operator={"steps": 5}), "-q")
    must("train", place / "kept", "--fork", place / "turned", "--set", f"model.from={place / 'other'}", "--set", "operator.steps=0", "-q")
    other, turned = tensors(place / "other"), tensors(place / "turned")
    assert np.array_equal(turned["operator.blocks.0.mlp.up.weight"], other["operator.blocks.0.mlp.up.weight"])


def test_a_fork_with_one_more_task_measures_it(place):
    """Its encoder, and what a step changes, are those of its data, as in a run that begins with it."""
    config = configuration(place, "grown", [advection("slow_beta0.1.hdf5", "slow_beta0.4.hdf5"), DARCY, BURGERS], operator={"steps": 0})
    must("train", config, "-q")
    told_by = json.loads(config.read_text()) | {"output": str(place / "many")}
    wider = place / "wider.yaml"
    wider.write_text(json.dumps(told_by))
    must("train", wider, "--fork", place / "wider", "-q")
    fresh, forked, old = tensors(place / "grown", "autoencoder"), tensors(place / "wider", "autoencoder"), tensors(place / "many", "autoencoder")
    assert all(np.array_equal(forked[name], fresh[name] if ".burgers." in name else old[name]) for name in forked)
    assert np.array_equal(tensors(place / "wider")["operator.burgers.change"], tensors(place / "grown")["operator.burgers.change"])


def test_learnt_encoders_are_taken_too(place, tmp_path):
    """A fixed number of tokens, whose encoder and decoder are trained."""
    sizes = {"tokens": 8, "dim": 8, "encoder": {"width": 16}, "decoder": {"hidden": 16, "depth": 1}, "operator": {"hidden": 16, "depth": 1, "heads": 2}}
    stages = {"autoencoder": {"steps": 30, "batch_size": 4, "gate": 0}, "operator": {"steps": 10, "batch_size": 4}}
    task = advection(str(place / "slow_beta0.4.hdf5"))
    must("train", configuration(tmp_path, "learnt", [task], model=sizes, **stages), "-q")
    must("train", configuration(tmp_path, "on", [task, BURGERS | {"files": [str(place / "burgers.hdf5")]}], model={"from": str(tmp_path / "learnt")},
                                autoencoder={"steps": 0, "gate": 0}, operator={"steps": 0}), "-q")
    for stage in ("autoencoder", "operator"):
        old, new = tensors(tmp_path / "learnt", stage), tensors(tmp_path / "on", stage)
        shared = [name for name in old if name in new and old[name].shape == new[name].shape]
        assert shared and all(np.array_equal(old[name], new[name]) for name in shared)


def test_init_writes_a_configuration_that_begins_as_a_model(place, tmp_path):
    must("config", "init", place / "burgers.hdf5", "--from", place / "many", "-o", tmp_path / "c.yaml")
    shown = told("config", "show", tmp_path / "c.yaml")["values"]
    assert shown["model"]["from"] == str(place / "many") and shown["model"]["operator"]["hidden"] == 16
    shutil.copy(place / "slow_beta0.4.hdf5", tmp_path / "advection.hdf5")
    written = told("config", "init", tmp_path / "advection.hdf5", "--from", place / "many", "-o", tmp_path / "d.yaml")
    assert written["tasks"][0]["name"] == "advection" and written["tasks"][0]["patch"] == [4]
    one_sentence(ups("config", "init", place / "burgers.hdf5", "--from", tmp_path / "nothing", "-o", tmp_path / "e.yaml"), "there is no .*nothing")
    assert not (tmp_path / "e.yaml").exists()


def test_a_task_keeps_its_bundle(place, tmp_path):
    shutil.copy(place / "slow_beta0.4.hdf5", tmp_path / "advection.hdf5")
    tasks = [advection("slow_beta0.4.hdf5", bundle=2)]
    must("train", configuration(place, "bundles", tasks), "-q")
    written = told("config", "init", tmp_path / "advection.hdf5", "--from", place / "bundles", "-o", tmp_path / "on.yaml")
    assert written["tasks"][0]["name"] == "advection" and "bundle: 2" in (tmp_path / "on.yaml").read_text()
    must("train", configuration(place, "bundles-on", tasks, model={"from": str(place / "bundles")}, operator={"steps": 0}), "-q")
    for name, values in tensors(place / "bundles").items():
        assert not name.startswith("operator.advection.output") or np.array_equal(values, tensors(place / "bundles-on")[name]), name
    other = configuration(place, "bundles-other", [advection("slow_beta0.4.hdf5")], model={"from": str(place / "bundles")})
    one_sentence(ups("config", "check", other), r"tasks\[0\].bundle: an application gives 1 of its frames", "2 in the model", "say bundle: 2", "another name")


def test_a_sweep_begins_each_run_as_the_model(place):
    config = configuration(place, "swept", [BURGERS], model={"from": str(place / "many")}, operator={"steps": 0})
    must("train", config, "--sweep", "operator.optimizer.learning_rate=0.001,0.003", "-q")
    old = tensors(place / "many")
    for run in sorted((place / "swept").iterdir()):
        assert np.array_equal(tensors(run)["operator.blocks.1.mlp.down.weight"], old["operator.blocks.1.mlp.down.weight"])


@pytest.mark.parametrize("change, parts", [
    ({"model": {"from": "nowhere"}}, ["model.from: there is no .*nowhere", "ups export"]),
    ({"model": {"from": "data-only"}}, ["holds no trained operator"]),
    ({"model": {"from": "many", "operator": {"hidden": 32}}}, ["model.operator.hidden: 32, and 16 in the model", "leave the key out"]),
    ({"model": {"from": "many", "operator": {"heads": 4, "positions": "borders"}}}, ["model.operator.heads: 4, and 2 in the model"]),
    ({"model": {"from": "many", "tokens": 64, "dim": 8}}, ["model.tokens: 64, and grid in the model"]),
    ({"tasks": [DARCY | {"patch": [4]}]}, ["tasks.0..patch", "has a task darcy, whose patches are", "another name"]),
    ({"model": {"from": "many", "dim": 4}}, ["model.dim: 4, and auto in the model", "another name"]),
    ({"model": {"from": "many", "operator": {"bundle": 2}}}, ["model.operator.bundle: 2, and 1 in the model", "another name"]),
])
def test_what_does_not_fit_is_a_mistake_of_its_key(place, tmp_path, change, parts):
    (place / "data-only").mkdir(exist_ok=True)
    change = {"model": {"from": "many"}} | change
    change["model"] = change["model"] | {"from": str(place / change["model"]["from"])}
    path = configuration(place, "mistaken", **({"tasks": [DARCY]} | change))
    said = ups("config", "check", path)
    assert said.returncode == 1 and "mistaken.yaml" in said.stderr
    for part in parts:
        assert re.search(part, said.stderr), said.stderr
    assert ups("train", path).returncode == 1 and not (place / "mistaken").exists()


def test_fields_of_a_known_name_have_to_be_the_same(place):
    path = configuration(place, "misnamed", [BURGERS | {"name": "darcy", "patch": [8]}], model={"from": str(place / "many")})
    one_sentence(ups("train", path), "task darcy", "other fields: nu, u there, u here", "another name")


def test_new_tasks_may_give_several_frames_at_once(place):
    must("train", configuration(place, "bundled", [BURGERS], model={"from": str(place / "many"), "operator": {"bundle": 2}}), "-q")
    must("eval", place / "bundled")


def test_a_task_may_need_what_no_task_of_the_model_did(place):
    """Of blocks that mix by size the model has one kind, and the new task needs the other."""
    core = {"operator": SIZES["operator"] | {"mixing": ["auto"], "attended_tokens": 6, "modes": [4, 2]}}
    must("train", configuration(place, "few", [DARCY], model=SIZES | core), "-q")
    must("train", configuration(place, "of-few", [DARCY, BURGERS], model={"from": str(place / "few")}), "-q")
    of_few, few = tensors(place / "of-few"), tensors(place / "few")
    assert "operator.blocks.1.spectral.local.weight" in of_few and "operator.blocks.1.spectral.local.weight" not in few
    must("train", place / "of-few", "--fork", place / "of-few-on", "--set", "model.operator.depth=3", "--set", "operator.steps=2", "-q")
    assert "operator.blocks.2.mlp.up.weight" in tensors(place / "of-few-on")


def test_what_all_tasks_share_is_not_left_random(place, tmp_path):
    path = tmp_path / "model.safetensors"
    must("export", place / "many", "-o", path)
    whole, metadata = load_file(path), safe_open(path, "np").metadata()
    save_file({name: values for name, values in whole.items() if "blocks.1.mlp.down" not in name}, path, metadata)
    started = configuration(place, "lacking", [BURGERS], model={"from": str(path)})
    one_sentence(ups("train", started, "-q"), "no tensor 'operator.blocks.1.mlp.down", "restore the model", "--restart")
    save_file(whole, path, metadata)
    must("train", started, "--restart", "-q")
    shutil.rmtree(place / "lacking")
    save_file({name: values for name, values in whole.items() if "time.0" not in name}, path, metadata)
    one_sentence(ups("train", started, "-q"), "no tensor 'operator.time.0")
    shutil.rmtree(place / "lacking")


OWN = SIZES | {"operator": SIZES["operator"] | {"task_specific": ["mlp"]}}


def test_blocks_of_a_task_s_own_begin_as_those_that_tasks_share(place):
    tasks = [DARCY, advection("slow_beta0.1.hdf5", "slow_beta0.4.hdf5")]
    must("train", configuration(place, "parted", tasks, model={"from": str(place / "many"), "operator": {"task_specific": ["mlp"]}}, operator={"steps": 0}), "-q")
    old, new = tensors(place / "many"), tensors(place / "parted")
    for name, values in new.items():
        shared = re.sub(r"operator\.(darcy|advection)\.blocks", "operator.blocks", name)
        np.testing.assert_array_equal(values[:, ::-1] if name == TASK_COLUMNS else values, old[shared], err_msg=name)
    assert "operator.darcy.blocks.1.mlp.norm.weight" in new and "operator.blocks.1.mlp.up.weight" not in new
    assert errors(place / "parted") == errors(place / "many")
    must("train", place / "parted", "--fork", place / "parted-on", "--set", "operator.steps=20", "-q")
    on = tensors(place / "parted-on")
    assert not np.array_equal(on["operator.darcy.blocks.0.mlp.up.weight"], on["operator.advection.blocks.0.mlp.up.weight"])


def test_blocks_of_a_new_task_s_own_begin_as_those_of_the_task_it_is_most_like(place, tmp_path):
    must("train", configuration(place, "owners", [DARCY, advection("slow_beta0.1.hdf5", "slow_beta0.4.hdf5")], model=OWN), "-q")
    started = configuration(place, "owner", [DARCY, BURGERS], model={"from": str(place / "owners")}, operator={"steps": 0})
    said = must("train", started, "-q").stderr
    assert "new to it: burgers (its own blocks begin as those of advection)" in said, said
    old, new = tensors(place / "owners"), tensors(place / "owner")
    for name in (name for name in new if ".blocks." in name):
        np.testing.assert_array_equal(new[name], old[name.replace(".burgers.", ".advection.")], err_msg=name)
    assert "operator.burgers.blocks.1.mlp.down.bias" in new and "operator.blocks.1.attention.qkv.weight" in new
    one_sentence(ups("config", "check", configuration(place, "owned", [BURGERS], model={"from": str(place / "owners"), "operator": {"task_specific": []}})), "task_specific", "in the model")
    path = tmp_path / "model.safetensors"
    must("export", place / "owners", "-o", path)
    whole, told_of = load_file(path), safe_open(path, "np").metadata()
    for task in ("darcy", "advection"):  # that goes on, and that a new one is like
        save_file({name: values for name, values in whole.items() if name != f"operator.{task}.blocks.1.mlp.up.bias"}, path, told_of)
        lacking = configuration(place, "lacking", [DARCY, BURGERS], model={"from": str(path)})
        one_sentence(ups("train", lacking, "-q"), rf"no tensor 'operator.{'darcy' if task == 'darcy' else 'burgers'}.blocks.1.mlp.up.bias'", "restore the model")
        shutil.rmtree(place / "lacking")


BOTH = SIZES | {"operator": SIZES["operator"] | {"mixing": ["auto"], "attended_tokens": 6, "modes": [4, 2], "task_specific": ["mlp", "mixing"]}}
FEW, MANY = BURGERS | {"name": "few", "patch": [8]}, BURGERS | {"name": "many", "patch": [2]}  # 4 tokens attend, 16 mix modes


@pytest.fixture(scope="module")
def mixers(place):
    must("train", configuration(place, "mixers", [FEW, MANY], model=BOTH), "-q")
    return place / "mixers"


def test_a_new_task_is_like_one_that_mixes_tokens_as_it_does(place, mixers):
    said = must("train", configuration(place, "fine", [BURGERS | {"name": "fine", "patch": [2]}], model={"from": str(mixers)}, operator={"steps": 0}), "-q").stderr
    assert "new to it: fine (its own blocks begin as those of many)" in said, said
    old, new = tensors(mixers), tensors(place / "fine")
    assert any(".spectral.1d." in name for name in new)
    for name in (name for name in new if ".blocks." in name):
        np.testing.assert_array_equal(new[name], old[name.replace(".fine.", ".many.")], err_msg=name)


def test_halves_are_named_in_any_order(place, mixers):
    assert re.search(r"task_specific: \[mixing, mlp\]|task_specific:\n *- mixing\n *- mlp", must("config", "show", mixers).stdout)
    path = configuration(place, "ordered", [FEW], model={"from": str(mixers), "operator": {"task_specific": ["mlp", "mixing"]}})
    must("config", "check", path)
    must("train", mixers, "--set", "model.operator.task_specific=[mlp, mixing]", "-q")


def test_a_known_task_may_come_to_need_the_other_kind_of_mixing(place, mixers):
    """Its own blocks keep what they have of it, and the other kind begins anew, as where tasks share it."""
    must("train", mixers, "--fork", place / "flipped", "--set", "model.operator.attended_tokens=64", "--set", "operator.steps=0", "-q")
    old, new = tensors(mixers), tensors(place / "flipped")
    assert "operator.many.blocks.0.attention.qkv.weight" in new and "operator.many.blocks.0.attention.qkv.weight" not in old
    for name in (name for name in new if name in old and ".blocks." in name):
        np.testing.assert_array_equal(new[name], old[name], err_msg=name)


@pytest.mark.parametrize("task, dropped, tasks", [
    ("few", "attention.qkv.weight", [FEW]), ("many", "spectral.local.weight", [MANY]), ("few", "attention.output.bias", [FEW | {"name": "new"}])])
def test_what_mixes_tokens_of_a_task_is_not_left_random_in_part(place, mixers, tmp_path, task, dropped, tasks):
    path = tmp_path / "model.safetensors"
    must("export", mixers, "-o", path)
    whole, told_of = load_file(path), safe_open(path, "np").metadata()
    save_file({name: values for name, values in whole.items() if name != f"operator.{task}.blocks.1.{dropped}"}, path, told_of)
    one_sentence(ups("train", configuration(place, "part", tasks, model={"from": str(path)}), "-q"), f"no tensor 'operator.{tasks[0]['name']}.blocks.1.{dropped}'")
    shutil.rmtree(place / "part")


def test_blocks_that_tasks_come_to_share_begin_anew_and_a_warning_says_so(place, mixers):
    said = must("train", mixers, "--fork", place / "sharing", "--set", "model.operator.task_specific=[mixing]", "--set", "operator.steps=2", "-q").stderr
    assert "begin anew" in said and "task_specific" in said
    assert "operator.blocks.0.mlp.up.weight" in tensors(place / "sharing")


def test_modes_of_each_axis_are_others_than_those_of_all(place, tmp_path):
    """A file of before there was the key tells nothing of it; its modes are those of all axes together."""
    old, path = place / "planes", tmp_path / "model.safetensors"
    must("train", configuration(place, "planes", [DARCY], model=SIZES | {"operator": SIZES["operator"] | {"core": "spectral", "modes": [4, 2]}}), "-q")
    must("export", old, "-o", path)
    whole, told_of = load_file(path), safe_open(path, "np").metadata()
    config = json.loads(told_of["ups.config"])
    assert config["model"]["operator"].pop("factorized") is False
    save_file(whole, path, told_of | {"ups.config": json.dumps(config)})
    must("config", "check", configuration(place, "as_before", [DARCY], model={"from": str(path)}))
    said = ups("config", "check", configuration(place, "otherwise", [DARCY], model={"from": str(path), "operator": {"factorized": True}}))
    assert said.returncode == 1 and "true, and false in the model" in said.stdout + said.stderr
    said = must("train", old, "--fork", place / "axes", "--set", "model.operator.factorized=true", "--set", "operator.steps=2", "-q").stderr
    assert "begin anew" in said and "factorized" in said
    names = tensors(place / "axes")
    assert "operator.blocks.1.spectral.2d.padded.axis1.weight" in names and "operator.blocks.1.spectral.2d.padded.weight" not in names
    np.testing.assert_array_equal(names["operator.blocks.1.spectral.2d.padded.axis0.weight"].shape[0], 2)


@pytest.mark.parametrize("damage, parts", [
    (lambda path: path.write_bytes(path.read_bytes()[:-10]), ["safetensors"]),
    (lambda path: path.write_bytes(b"\0" * 100), ["safetensors"]),
    (lambda path: save_file({name: np.where(np.arange(values.size).reshape(values.shape) == 0, np.nan, values).astype("f4") for name, values in load_file(path).items()},
                            path, safe_open(path, "np").metadata()), ["not finite"]),
    (lambda path: save_file(load_file(path), path, {"operator": "{}"}), ["does not tell of which sizes", "ups export"]),
], ids=["cut", "zeros", "nan", "tells nothing"])
def test_a_damaged_model_is_refused_and_leaves_nothing(place, tmp_path, damage, parts):
    must("export", place / "many", "-o", tmp_path / "model.safetensors")
    damage(tmp_path / "model.safetensors")
    path = configuration(place, "damaged", [BURGERS], model={"from": str(tmp_path / "model.safetensors")})
    one_sentence(ups("train", path, "-q"), *parts)
    assert not (place / "damaged/operator.safetensors").exists()
    must("export", place / "many", "-o", tmp_path / "whole.safetensors")
    must("train", path, "--set", f"model.from={tmp_path / 'whole.safetensors'}", "-q")  # the mended one is taken, not what was linked before
    shutil.rmtree(place / "damaged")
