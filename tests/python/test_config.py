"""`ups config` and what other commands say of configurations: all mistakes at once, each with file, line and key."""

import json
import re

import pytest

from commands import must, ups

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
    done = ups("config", "check", "--no-data", path, "--set", "seed=7", "--set", "data.slots=0", "--set", "stages[7]=cache", "--json")
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
    must("config", "check", "--no-data", path)


def test_a_mistake_hides_none_that_has_nothing_to_do_with_it_and_brings_none_along(scratch):
    path = f"{scratch}/few.yaml"
    with open(path, "w") as file:
        file.write("taks: []\nmodel: [1]\noperator: {steps: 1e99, losses: {one_step: {weight: 0}}}\n")
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
