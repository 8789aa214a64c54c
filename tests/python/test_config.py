"""`ups config` and what other commands say of configurations: all mistakes at once, each with file, line and key."""

import itertools
import json
import os
import re
import shutil
import sys
from pathlib import Path

import h5py
import jsonschema
import numpy as np
import pytest
import yaml
import zarr

from commands import TREE, UPS, must, run, ups

# A mistake a line that has a key behind its "#!"; all of them are to be found.
MISTAKES = """\
output: runs/wrong
seed: many                                   #! seed
data:
  root: {root}
  splt: {{train: 1}}                         #! data.splt
  slots: 1                                   #! data.slots
  direct: perhaps                            #! data.direct
tasks:
  - name: wave
    files: [here.h5, absent.h5]              #! tasks[0].files[1]
    patch: [4, 4, 4, 4]                      #! tasks[0].patch
  - name: wave                               #! tasks[1].name
    files: [here.h5, none_*.h5]              #! tasks[1].files[1]
model:
  decoder: {{hidden: 100, heads: 8}}         #! model.decoder.heads
  operator:
    hidden: 100                              #! model.operator.hidden
stages: [operator, autoencoder]              #! stages
operator:
  pairs_per_trajectory: 3
  batch_size: 16                             #! operator.batch_size
  optimizer: {{schedule: cosinus}}           #! operator.optimizer.schedule
"""


@pytest.fixture
def mistaken(scratch):
    """A configuration, and {key: line} of its mistakes."""
    path = f"{scratch}/wrong.yaml"
    open(f"{scratch}/here.h5", "wb").close()
    text = MISTAKES.format(root=scratch)
    with open(path, "w") as file:
        file.write(text)
    lines = enumerate(text.splitlines(), 1)
    found = {match[1]: number for number, line in lines if (match := re.search(r"#! (\S+)", line))}
    assert len(found) > 10
    return path, found


@pytest.mark.parametrize("command", [("config", "check"), ("train",), ("train", "--plan"), ("cache", "build"), ("config", "show")])
def test_every_mistake_is_told_with_file_line_and_key(mistaken, command):
    path, expected = mistaken
    done = ups(*command, path)
    assert (done.returncode, done.stdout) == (1, "")
    heading, *told = done.stderr.splitlines()
    assert heading == f"ups: {path}: {len(expected)} mistakes"
    places = [re.match(re.escape(path) + r":(\d+): ([\w.\[\]]+): .", line) for line in told]
    assert all(places), told
    assert [(place[2], int(place[1])) for place in places] == list(expected.items())


def test_with_json_mistakes_are_a_list(mistaken):
    path, expected = mistaken
    error = json.loads(ups("config", "check", "--json", path).stdout)["error"]
    assert error["code"] == "config"
    assert {entry["key"]: entry["line"] for entry in error["mistakes"]} == expected
    assert {entry["file"] for entry in error["mistakes"]} == {path}
    both = json.loads(ups("config", "check", "--json", path, path).stdout)
    assert [entry["mistakes"] for entry in both] == 2 * [error["mistakes"]]


def test_overrides_have_mistakes_of_their_own_and_mend_those_of_the_file(mistaken):
    path, expected = mistaken
    done = ups("config", "check", "--without-paths", path, "--set", "seed=7", "--set", "data.slots=0", "--set", "stages[7]=cache", "--json")
    mistakes = json.loads(done.stdout)["error"]["mistakes"]
    keys = {entry["key"] for entry in mistakes}
    files = {key for key in expected if ".files" in key}
    assert keys == set(expected) - {"seed", "stages"} - files | {"stages[7]"}
    assert {entry["key"] for entry in mistakes if "line" not in entry} == {"data.slots", "stages[7]"}


def test_a_single_mistake_is_one_sentence(mistaken, scratch):
    path = f"{scratch}/one.yaml"
    with open(path, "w") as file:
        file.write(f"data: {{root: {scratch}}}\ntasks:\n  - name: a\n    files: [gone.h5]\n")
    for command in (["config", "check"], ["train"]):
        done = ups(*command, path)
        assert done.returncode == 1
        assert done.stderr == (f"ups: {path}:4: tasks[0].files[0]: there is no file {scratch}/gone.h5; "
                               "files are looked for below the key data.root\n")
    must("config", "check", "--without-paths", path)


def test_a_mistake_hides_none_that_has_nothing_to_do_with_it_and_brings_none_along(scratch):
    path = f"{scratch}/few.yaml"
    with open(path, "w") as file:
        file.write("taks: []\nmodel: [1]\noperator: {steps: 1e99, losses: {relative: {weight: 0}}}\n")
    mistakes = json.loads(ups("config", "check", "--json", path).stdout)["error"]["mistakes"]
    assert [(entry["key"], entry["line"]) for entry in mistakes] == [
        ("taks", 1), ("model", 2), ("operator.steps", 3), ("operator.losses", 3)]


def test_of_a_document_full_of_mistakes_the_first_hundreds_are_told(scratch):
    path = f"{scratch}/many.yaml"
    with open(path, "w") as file:
        file.writelines(f"key{number}: 1\n" for number in range(30000))
    done = ups("config", "check", path)
    heading, *told = done.stderr.splitlines()
    assert "200 or more mistakes" in heading
    assert len(told) == 200


def test_paths_are_among_the_mistakes_and_files_are_not_looked_for_below_a_root_that_is_not_there(scratch):
    path, file = f"{scratch}/paths.yaml", f"{scratch}/here.h5"
    open(file, "wb").close()
    with open(path, "w") as config:
        config.write(f"output: {file}/run\ndata: {{root: gone}}\nmodel: {{tokens: none}}\ncache: {{directory: {file}}}\n"
                     "tasks:\n  - {name: a, files: [here.h5, gone.h5], test_files: [none_*.h5]}\n")
    for command in (["config", "check"], ["train"], ["cache", "build"]):
        for sets, keys in (([], ["output", "data.root", "model.tokens", "cache.directory"]),
                           (["--set", f"data.root={scratch}"], ["output", "model.tokens", "cache.directory", "tasks[0].files[1]", "tasks[0].test_files[0]"])):
            mistakes = json.loads(ups(*command, path, "--json", *sets).stdout)["error"]["mistakes"]
            assert [entry["key"] for entry in mistakes] == keys
    assert ups("config", "check", path, "--without-paths").stderr.count("\n") == 1


def test_mistakes_of_a_runs_own_configuration_are_told_with_its_file(mistaken, scratch):
    path, expected = mistaken
    own = f"{scratch}/run/config.yaml"
    os.mkdir(f"{scratch}/run")
    shutil.copy(path, own)
    for command in (["config", "check"], ["config", "show"], ["train"], ["train", "--resume"], ["eval"]):
        heading, *told = ups(*command, f"{scratch}/run").stderr.splitlines()
        assert heading == f"ups: {own}: {len(expected)} mistakes"
        assert all(line.startswith(f"{own}:") for line in told)


# ---- JSON Schema

@pytest.fixture(scope="module")
def validator():
    schema = json.loads(must("config", "schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def parsed(text):
    return yaml.safe_load(text)


def as_python(path, *overrides):
    """A configuration's values as the loader understands them."""
    sets = itertools.chain.from_iterable(("--set", override) for override in overrides)
    return json.loads(must("config", "show", "--json", path, *sets).stdout)["values"]


CONFIGS = sorted((TREE / "configs").iterdir())


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_schema_accepts_every_configuration_that_comes_with_the_project(validator, path):
    validator.validate(as_python(path))  # with all default values in place
    written = parsed(path.read_text())
    validator.validate(written)
    assert set(written) <= set(as_python(path))


def test_the_schema_refuses_what_tables_refuse_where_it_stands(validator, mistaken):
    """Of all mistakes those of single keys: that keys must agree, or files be there, no schema says."""
    path, expected = mistaken
    agree = {"tasks[0].files[1]", "tasks[0].patch", "tasks[1].name", "tasks[1].files[1]", "model.decoder.heads", "model.operator.hidden",
             "stages", "operator.batch_size"}
    found = set()
    for error in validator.iter_errors(parsed(open(path).read())):
        key = re.sub(r"\.\[", "[", ".".join(f"[{part}]" if isinstance(part, int) else part for part in error.absolute_path))
        for name in ([name for name in error.instance if name not in error.schema["properties"]] if error.validator == "additionalProperties" else [""]):
            found.add(".".join(filter(None, (key, name))))
    assert found == set(expected) - agree
    assert len(found) > 4


REFUSED = [
    ("tokns", "modle: {}"), ("type", "seed: many"), ("minimum", "data: {slots: 1}"), ("maximum", "operator: {rollout_steps: 64}"),
    ("choice", "precision: f16"), ("item", "stages: [distil]"), ("truth", "data: {direct: perhaps}"), ("list", "tasks: []"),
    ("mapping", "model: 5"), ("required", "tasks: [{name: a}]"), ("word", "operator: {batch_size: some}"), ("removed", "cache: {fill: true}"),
    ("fraction", "model: {dim: 1.5}"), ("length", "tasks: [{name: '', files: [a.h5]}]"),
]
ACCEPTED = ["cache: {fill: false}", "model:", "operator: {batch_size: auto}", "tasks: [{name: 5, files: a.h5, patch: 4}]", "seed: 1.0e+3"]
MINIMAL = {"tasks": [{"name": "a", "files": ["a.h5"]}]}


@pytest.mark.parametrize("text, good", [(text, False) for _, text in REFUSED] + [(text, True) for text in ACCEPTED],
                         ids=lambda value: value if isinstance(value, str) else "")
def test_schema_and_loader_agree(validator, scratch, text, good):
    document = {**MINIMAL, **parsed(text)}
    path = f"{scratch}/c.yaml"
    with open(path, "w") as file:
        file.write(text + "\n" + ("" if "tasks" in parsed(text) else "tasks: [{name: a, files: [a.h5]}]\n"))
    assert validator.is_valid(document) == good
    assert (ups("config", "check", "--without-paths", path).returncode == 0) == good


def test_the_schema_has_every_key_with_its_help_and_default(validator):
    told = {}

    def walk(schema, path):
        schema = next((choice for choice in schema.get("anyOf", []) if "items" in choice), schema)
        if "items" in schema:
            walk(schema["items"], path + "[]")
        for name, below in schema.get("properties", {}).items():
            key = f"{path}.{name}" if path else name
            if not below.get("deprecated"):
                told[key] = below
            walk(below, key)

    walk(validator.schema, "")
    keys = json.loads(must("config", "keys", "--json").stdout)
    assert set(told) == {key["key"] for key in keys}
    for key in keys:
        assert told[key["key"]].get("description", "") == key["help"]
        assert ("default" in told[key["key"]]) == (key["default"] is not None)
    assert told["operator.batch_size"]["default"] == 16
    assert told["stages"]["default"] == ["autoencoder", "cache", "operator"]


# ---- keys, values

def test_keys_of_a_section_are_its_own():
    every = [key["key"] for key in json.loads(must("config", "keys", "--json").stdout)]
    for section in ("tasks", "tasks[]", "model.operator", "operator", "seed"):
        listed = [key["key"] for key in json.loads(must("config", "keys", section, "--json").stdout)]
        assert listed == [key for key in every if re.match(re.escape(section) + r"(\.|\[|$)", key)]
    assert must("config", "keys", "data.split", "cache").stdout.startswith("data.split.train ")
    done = ups("config", "keys", "keel")
    assert done.returncode == 2
    assert "there is no section or key 'keel'; the sections are device, ranks, data, tasks, model" in done.stderr


def test_shown_as_json_a_configuration_has_its_values_by_key():
    values = as_python(TREE / "configs/quickstart.yaml", "seed=18446744073709551615", "operator.batch_size=auto")
    assert values["seed"] == "18446744073709551615"  # JSON's readers would round it
    assert values["tasks"][1]["patch"] == [8]
    assert values["operator"]["batch_size"] == "auto"
    assert values["operator"]["losses"]["spectral"] == {"weight": 0.1, "every": 1, "from": 0, "warmup": 0}
    assert (values["model"]["tokens"], values["model"]["dim"]) == ("grid", "auto")
    assert values["model"]["operator"]["qk_norm"] is True
    assert values["stages"] == ["autoencoder", "cache", "operator"]


# ---- spellings

def test_a_scalar_stands_for_a_list_of_one_and_whole_numbers_have_several_spellings(scratch):
    path = f"{scratch}/c.yaml"
    with open(path, "w") as file:
        file.write("tasks:\n  - {name: a, files: a.h5, patch: 4}\nstages: cache\noperator: {steps: 1e3, log_every: 2.5e1}\n")
    values = as_python(path)
    assert (values["tasks"][0]["files"], values["tasks"][0]["patch"], values["stages"]) == (["a.h5"], [4], ["cache"])
    assert (values["operator"]["steps"], values["operator"]["log_every"]) == (1000, 25)
    for wrong in ("operator.steps=1.5e0", "operator.steps=1e400", "operator.steps=-1e3", "data.slots=1e10", "tasks=a", "stages=", "tasks[0].patch=[[4]]"):
        assert ups("config", "check", "--without-paths", path, "--set", wrong).returncode == 1, wrong


def test_overrides_take_lists_with_and_without_brackets(scratch):
    path = f"{scratch}/c.yaml"
    with open(path, "w") as file:
        file.write("tasks: [{name: a, files: [a.h5]}]\n")
    sets = ["stages=autoencoder, cache", "tasks[0].patch=4,8", "tasks[0].files[1]=b.h5", "evaluation.horizons=[1, 5]", "model.encoder.frequencies=1,2.5"]
    values = as_python(path, *sets)
    assert values["stages"] == ["autoencoder", "cache"]
    assert (values["tasks"][0]["patch"], values["tasks"][0]["files"]) == ([4, 8], ["a.h5", "b.h5"])
    assert (values["evaluation"]["horizons"], values["model"]["encoder"]["frequencies"]) == ([1, 5], [1, 2.5])
    assert as_python(path, "tasks[0].files='a,b.h5'")["tasks"][0]["files"] == ["a,b.h5"]
    assert "'x' is not a whole number" in ups("config", "check", "--without-paths", path, "--set", "tasks[0].patch=4,x").stderr


# ---- init

@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("init")
    small = ("--samples", 6, "--steps", 5, "--quiet")
    for name, *arguments in (("1D_Advection_Sols_beta0.4", "advection1d", "--resolution", 64),
                             ("1D_Burgers_Sols_Nu0.01", "burgers1d", "--resolution", 64, "--param", "nu=0.01"),
                             ("1D_Burgers_Sols_Nu0.1", "burgers1d", "--resolution", 64, "--param", "nu=0.1"),
                             ("1D_Burgers_Sols_Nu1.0", "burgers1d", "--resolution", 128, "--param", "nu=1"),
                             ("2D_DarcyFlow_beta1.0_Train", "darcy2d", "--resolution", 32),
                             ('it\'s, a "diff"', "diffreact2d", "--resolution", 20)):
        steps = small if arguments[0] != "darcy2d" else small[:2] + small[4:]
        must("datagen", *arguments, "-o", folder / f"{name}.h5", *steps)
    return folder


STEPS = list(itertools.chain.from_iterable(("--set", f"{stage}.{key}") for stage in ("autoencoder", "operator")
                                           for key in ("steps=2", "batch_size=2", "validation_batches=1"))) + ["--set", "autoencoder.gate=0"]


def test_a_configuration_for_data_files_has_a_task_a_family_and_trains_as_written(data, scratch):
    files = sorted(map(str, data.iterdir()))
    path = f"{scratch}/new.yaml"
    made = json.loads(must("config", "init", *files, "-o", path, "--json").stdout)
    tasks = {task["name"]: ([name.rpartition("/")[2] for name in task["files"]], task["patch"]) for task in made["tasks"]}
    assert tasks == {
        "advection": (["1D_Advection_Sols_beta0.4.h5"], [4]),
        "burgers": (["1D_Burgers_Sols_Nu0.01.h5", "1D_Burgers_Sols_Nu0.1.h5"], [4]),
        "burgers_2": (["1D_Burgers_Sols_Nu1.0.h5"], [4]),
        "darcyflow": (["2D_DarcyFlow_beta1.0_Train.h5"], [4, 4]),
        "it-s_a_diff": (['it\'s, a "diff".h5'], [2, 2]),
    }
    must("config", "check", path)
    values = as_python(path)
    core = {"core": "stack", "hidden": 48, "depth": 4, "heads": 2, "mlp_ratio": 2, "convolution": 3}
    assert values["model"]["tokens"] == "grid" and core.items() <= values["model"]["operator"].items()
    assert values["data"]["root"] == str(data)
    assert values["output"] == "runs/new"
    must("train", path, "--set", f"output={scratch}/run", "--quiet", *STEPS)
    assert json.loads(must("cache", "verify", f"{scratch}/run/cache", "--json").stdout)


NAMES_BY_PURPOSE = {
    "pdebench": (["1D/Test/ReacDiff_react_Nu0.5_Rho1.0.h5", "1D/Train/ReacDiff_Nu0.5_Rho1.0.h5", "1D/Train/ReacDiff_Nu1.0_Rho1.0.h5",
                  "1D_Burgers_Sols_Nu0.01_Test.h5", "1D_Burgers_Sols_Nu0.01_Train.h5", "1D_Burgers_Sols_Nu1.e-8_Train.h5"],
                 {"reacdiff": ([1, 2], [0]), "burgers": ([4, 5], [3])}),
    "the well": (["wave/test/wave_0.1.h5", "wave/train/wave_0.1.h5", "wave/train/wave_0.2.h5", "wave/valid/wave_0.1.h5"], {"wave": ([1, 2, 3], [0])}),
    "in a folder": (["test/a.h5", "test/a_test.h5"], {"a": ([0], [1])}),
    "said by the name first": (["train/a_test.h5", "test/a_train.h5"], {"a": ([1], [0])}),
    "numbered": (["a.h5", "aTest.h5", "a_test2.h5", "a_test1.h5"], {"a": ([0], [1, 2, 3])}),
    "of several": (["far_wave.h5", "wave.h5", "far_wave_test.h5", "wave_tests.h5"], {"far_wave": ([0], [2]), "wave": ([1], [3])}),
    "tests alone": (["a_test.h5"], {"a": ([0], [])}),
    "tests of nothing": (["a_train.h5", "b_test.h5", "contest.h5"], {"a": ([0], []), "b": ([1], []), "contest": ([2], [])}),
}


@pytest.mark.parametrize("case", NAMES_BY_PURPOSE)
def test_test_data_are_known_by_name_or_folder_and_not_trained_on(data, scratch, case):
    names, expected = NAMES_BY_PURPOSE[case]
    root = Path(scratch, "purposes", case)
    files = [str(root / name) for name in names]
    for file in files:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        shutil.copy(data / "1D_Burgers_Sols_Nu0.01.h5", file)
    done = must("config", "init", *files, "-o", f"{root}/run.yaml", "--json")
    tasks = {task["name"]: (task["files"], task.get("test_files", [])) for task in json.loads(done.stdout)["tasks"]}
    assert tasks == {name: ([files[i] for i in trained], [files[i] for i in tests]) for name, (trained, tests) in expected.items()}
    assert ("test data by its name" in done.stderr) == case.startswith("tests")
    written = as_python(f"{root}/run.yaml")["tasks"]
    assert [len(task["test_files"]) for task in written] == [len(tests) for _, tests in expected.values()]
    said = must("config", "init", *files, "-o", f"{root}/run.yaml", "--force").stdout
    assert ("kept for evaluation" in said) == any(tests for _, tests in expected.values())


@pytest.mark.parametrize("frames, tests, own", [((40, 40, 40, 40), 20, True), ((40, 50, 40, 50), 20, False), ((40, 50, 40, 50), 12, True), ((200,), 20, False), ((200,), 15, True)])
def test_test_data_are_as_long_as_their_task_wants_them(scratch, frames, tests, own):
    root = Path(scratch, "lengths", f"{len(frames)}-{frames[-1]}-{tests}")
    os.makedirs(root)
    files = [str(root / f"wave_{i}.h5") for i in range(len(frames))] + [str(root / "wave_test.h5")]
    for file, count in zip(files, (*frames, tests)):
        must("datagen", "burgers1d", "-o", file, "-n", "1", "-r", "32", "--steps", str(count), "-q")
    made = json.loads(must("config", "init", *files, "-o", f"{root}/run.yaml", "--json").stdout)
    assert [len(task.get("test_files", [])) for task in made["tasks"]] == ([0, 0] if own else [1])


@pytest.mark.parametrize("solver, resolution, patch, core", [
    ("advection1d", 256, 4, "stack"), ("advection1d", 2048, 16, "stack"), ("advection1d", 2064, 16, "spectral"),  # 64, 128 and 129 tokens
    ("darcy2d", 64, 4, "unet"), ("diffreact2d", 32, 2, "unet"), ("diffreact2d", 64, 2, "spectral"), ("diffreact2d", 128, 4, "spectral")])
def test_a_core_is_chosen_by_how_many_tokens_there_are(scratch, solver, resolution, patch, core):
    data, path, run = f"{scratch}/data.h5", f"{scratch}/new.yaml", f"{scratch}/run"
    must("datagen", solver, "-o", data, "--samples", 8, "--resolution", resolution, *(() if solver == "darcy2d" else ("--steps", 3)))
    must("config", "init", data, "-o", path)
    values = as_python(path)
    assert set(values["tasks"][0]["patch"]) == {patch}
    operator = values["model"]["operator"]
    assert operator["core"] == core and operator["convolution"] == 3
    assert operator.get("depths") == [1, 1, 1] if core == "unet" else operator["depth"] == 4
    assert operator.get("factorized", False) == (core == "spectral" and "2d" in solver)
    assert (values["operator"]["batch_size"], values["operator"]["steps"]) == ((2, 48000) if "2d" in solver else (8, 24000))
    assert values["operator"]["optimizer"]["learning_rate"] == 0.003
    assert values["operator"].get("augment", "none") == ("symmetries" if "2d" in solver else "none")
    must("train", path, "--set", f"output={run}", "--quiet", *STEPS)
    must("eval", run, "--quiet")


def test_tasks_with_few_tokens_are_attended_to_beside_others_with_many(scratch):
    few, many, path = f"{scratch}/1D_Advection_Sols_beta0.4.h5", f"{scratch}/2D_diff-react.h5", f"{scratch}/both.yaml"
    must("datagen", "advection1d", "-o", few, "--samples", 8, "--resolution", 256, "--steps", 3)
    must("datagen", "diffreact2d", "-o", many, "--samples", 8, "--resolution", 64, "--steps", 3)
    must("config", "init", few, many, "-o", path)
    values = as_python(path)
    operator = values["model"]["operator"]
    assert (values["operator"]["batch_size"], values["operator"]["accumulation"]) == (2, 2)
    assert (operator["core"], operator["mixing"], operator["task_specific"], operator["heads"]) == ("stack", ["auto"], ["mixing", "mlp"], 2)
    assert operator["factorized"]
    assert values["operator"]["augment"] == "symmetries" and [task.get("symmetries", True) for task in values["tasks"]] == [False, True]
    must("train", path, "--set", f"output={scratch}/both", "--quiet", *STEPS)
    with open(f"{scratch}/both/operator.safetensors", "rb") as file:
        names = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    assert any(re.fullmatch(r"operator\.\w+\.blocks\.0\.attention\.qkv\.weight", name) for name in names) and any(name.endswith(".blocks.0.spectral.2d.padded.axis1.weight") for name in names)
    assert not any("spectral.1d" in name for name in names)


def test_what_a_configuration_for_data_files_says_of_keys_is_what_their_table_says(data, scratch, validator):
    path = f"{scratch}/new.yaml"
    must("config", "init", *data.iterdir(), "-o", path)
    text = open(path).read()
    validator.validate(parsed(text))
    keys = {key["key"]: key for key in json.loads(must("config", "keys", "--json").stdout)}
    comments = re.sub(r"\n *# ", " ", text)  # each on one line, however it was broken
    for key in ("tasks[].patch", "model.tokens", "operator.batch_size", "operator.losses.spectral.weight"):
        told = keys[key]
        assert f"{told['help']} ({told['expected']}; default {told['default']})" in comments
    assert text.count(keys["tasks[].name"]["help"]) == 1
    assert text.count("- name:") == 5
    assert max(len(line) for line in text.splitlines() if path not in line) <= 120


def test_a_configuration_in_another_folder_finds_the_data(data, scratch):
    os.mkdir(f"{scratch}/configs")
    os.symlink(data, f"{scratch}/data")
    for path, root in (("configs/new.yaml", str(data)), ("new.yaml", "data")):
        files = [f"data/{file.name}" for file in data.glob("1D*")]
        assert ups("config", "init", *files, "-o", path, cwd=scratch).returncode == 0
        assert parsed(open(f"{scratch}/{path}").read())["data"]["root"] == root
        assert ups("config", "check", f"{scratch}/{path}", cwd="/").returncode == 0


def test_a_single_pair_of_frames_is_enough_to_begin_with(data, scratch):
    path = f"{scratch}/darcy.yaml"
    must("config", "init", data / "2D_DarcyFlow_beta1.0_Train.h5", "-o", path)
    must("train", path, "--set", f"output={scratch}/run", "--quiet", *STEPS)


def test_a_configuration_that_is_there_is_not_overwritten_without_being_told(data, scratch):
    path, file = f"{scratch}/mine.yaml", next(data.glob("*Advection*"))
    with open(path, "w") as mine:
        mine.write("# mine\n")
    done = ups("config", "init", file, "-o", path)
    assert done.returncode == 1
    assert "mine.yaml is there already; --force overwrites it" in done.stderr
    assert open(path).read() == "# mine\n"
    must("config", "init", file, "-o", path, "--force")
    must("config", "check", path)


def test_what_is_no_data_is_refused_and_nothing_is_written(data, scratch):
    single, file = f"{scratch}/single.h5", str(next(data.glob("*Advection*")))
    shutil.copy(file, single)
    with h5py.File(single, "r+") as changed:
        for name, part in (("tensor", changed["tensor"][:, :1]), ("t-coordinate", changed["t-coordinate"][:1])):
            del changed[name]
            changed[name] = part
    for files, told, code in (((file, "/no/such.h5"), "/no/such.h5", 1), ((file, __file__), "test_config.py", 1), ((file, file), "named twice", 1),
                              ((single,), "single frame", 1), ((), "at least one FILE", 2)):
        done = ups("config", "init", *files, "-o", f"{scratch}/new.yaml")
        assert done.returncode == code
        assert told in done.stderr
    assert "-o CONFIG" in ups("config", "init", file).stderr
    assert os.listdir(scratch) == ["single.h5"]


def test_the_fuzzers_dictionaries_have_every_key():
    """tests/fuzz/make_dictionary.py writes that of a run anew; what a key is called comes from `ups config keys`."""
    made = run(sys.executable, str(TREE / "tests/fuzz/make_dictionary.py"), UPS)
    assert made.returncode == 0, made.stderr
    assert (TREE / "tests/fuzz/run_config.dict").read_text() == made.stdout
    sample = (TREE / "tests/base/sample_config.h").read_text()
    names = set(re.findall(r'KEY\([A-Z0-9]+, "(\w+)"|SUBSECTION\(\s*"(\w+)"', sample))
    words = re.findall(r'^"(\w+)[".:=\[]', (TREE / "tests/fuzz/config.dict").read_text(), re.M)
    assert {name for pair in names for name in pair if name} <= set(words)


def test_data_are_opened_where_all_else_is_right(tmp_path):
    """As `ups train` would: what files hold is held against layout, patch and stride, and a store of Zarr is a folder."""
    store = zarr.open_group(tmp_path / "waves.zarr", mode="w")
    store["u"], store["t"] = np.zeros((12, 6, 32), "f4"), np.arange(6.0)
    text = """output: runs/zarr
tasks:
  - name: waves
    files: [waves.zarr]
    patch: [4]
    layout: {fields: {u: u}, axes: [sample, time, x], time: t}
model: {tokens: grid, dim: auto}
"""
    config = tmp_path / "c.yaml"
    config.write_text(text)
    must("config", "check", config)
    shutil.copytree(tmp_path / "waves.zarr", tmp_path / "waves_2.zarr")
    (tmp_path / "waves_3.zarr").mkdir()
    for old, new, line, key, sentence in (
            ("time: t", "time: tt", 6, "layout", "holds no array 'tt'"), ("[4]", "[64]", 5, "patch", "patches of 64 points on a grid axis of 32"),
            ("[4]", "[4]\n    segment: 7", 6, "segment", "6 frames, too few for a segment of 7"), ("[4]", "[4]\n    stride: 6", 6, "stride", "a stride of 6"),
            ("waves.zarr", ".", 4, "files[0]", "is a directory, and no store of Zarr"),
            ("[waves.zarr]", "[waves.zarr, 'w*_2.zarr', 'waves_[34].zarr']", 4, "files[2]", "waves_3.zarr")):
        config.write_text(text.replace(old, new, 1))
        done = ups("config", "check", config)
        assert done.returncode == 1 and f":{line}: tasks[0].{key}: " in done.stderr and sentence in done.stderr, done.stderr
    config.write_text(text.replace("name: waves", "name: segment_of_stride").replace("[4]", "[64]"))
    assert "tasks[0].patch: " in ups("config", "check", config).stderr  # whatever the task is called
    config.write_text(text.replace("time: t", "time: tt"))
    must("config", "check", "--without-paths", config)
    with h5py.File(tmp_path / "points.h5", "w") as f:
        f["points"], f["t"], f["u"] = np.random.default_rng(0).random((40, 2)), np.arange(3.0), np.zeros((12, 3, 40), "f4")
    config.write_text("tasks:\n  - {name: mesh, files: [points.h5], patch: [4]}\nmodel: {tokens: 8, dim: 4}\n")
    assert "set model.tokens: grid" in ups("config", "check", config).stderr
