"""Caches that lie in a directory of their own, which runs may share: a run that builds a new cache there leaves those of other runs alone, and what
was given up is found and removed."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from commands import one_sentence, ups
from tiny_run import CONFIG, tree

CONSTANT = CONFIG.replace("warmup_steps: 4", "warmup_steps: 4, schedule: constant").replace("steps: 60", "steps: 30")
CONSTANT = CONSTANT.replace("operator:\n  steps: 30", "operator:\n  steps: 400")  # enough of them to be stopped among


@pytest.fixture
def pair(runs):
    """Two runs of the same encoder, and the cache that they share."""
    names = runs.fresh(), runs.fresh()
    shared = runs.path(names[0] + "-shared")
    for name in names:
        runs.must("train", runs.config(name, CONSTANT), "--set", "cache.directory=" + shared, "-q")
    return *map(runs.path, names), shared


def stopped(runs, folder, steps=40):
    """More steps of the autoencoder, stopped when the new cache has been built beside the old one."""
    runs.train_until("operator, step 30", folder, "--extend", "--set", f"autoencoder.steps={steps}")
    assert os.path.exists(os.path.join(folder, "next"))


def test_two_runs_do_not_build_their_new_caches_in_one_place(runs, pair):
    one, other, shared = pair
    stopped(runs, one)
    assert json.loads(Path(shared, ".next", "owner.json").read_text()) == {"run": one}
    before = [tree(folder) for folder in pair]
    more = ("--extend", "--set", "autoencoder.steps=45")
    said = one_sentence(runs.run("train", other, *more), re.escape(f"{shared}/.next: the run {one} is building its new cache there"))
    assert f"ups train {one} --resume" in said and f"remove {one}/next" in said
    assert [tree(folder) for folder in pair] == before
    runs.must("train", one, "--resume", "-q")
    runs.must("cache", "verify", one)
    assert not os.path.exists(os.path.join(shared, ".next"))


def test_what_another_run_gave_up_is_built_over(runs, pair):
    one, other, shared = pair
    stopped(runs, one)
    shutil.rmtree(os.path.join(one, "next"))
    runs.must("train", other, "--extend", "--set", "autoencoder.steps=45", "-q")
    runs.must("cache", "verify", other)
    assert not os.path.exists(os.path.join(shared, ".next"))


def test_the_finished_cache_of_another_encoder_is_not_replaced(runs, pair):
    one, other, shared = pair
    runs.must("train", other, "--extend", "--set", "autoencoder.steps=45", "-q")
    before = [tree(folder) for folder in pair]
    done = runs.run("train", one, "--extend", "--set", "autoencoder.steps=40")
    one_sentence(done, re.escape(shared + "/advection/train: was made by another encoder than that of the run " + one), "cache.directory")
    assert [tree(folder) for folder in pair] == before


def test_a_cache_that_came_in_between_is_not_replaced_either(runs, pair):
    """As another run's would, whose training ended meanwhile: the run stays whole, and what it has trained goes on once that cache has been moved."""
    one, _, shared = pair
    stopped(runs, one)
    runs.must("train", runs.config("stranger", CONSTANT), "--set", "autoencoder.steps=20", "-q")
    shutil.rmtree(os.path.join(shared, "darcy"))
    shutil.copytree(runs.path("stranger", "cache", "darcy"), os.path.join(shared, "darcy"))
    one_sentence(runs.run("train", one, "--resume", "-q"), re.escape(shared + "/darcy/train: was made by another encoder"))
    assert os.path.exists(os.path.join(one, "next", "operator.safetensors")) and not os.path.exists(os.path.join(one, "replacing"))
    shutil.move(os.path.join(shared, "darcy"), runs.path("stranger", "moved"))
    runs.must("train", one, "--resume", "-q")
    runs.must("cache", "verify", one)


def test_what_was_built_for_a_replacement_and_is_gone_is_missed(runs, pair):
    one, _, shared = pair
    stopped(runs, one)
    before = tree(one)
    shutil.rmtree(os.path.join(shared, ".next"))
    one_sentence(runs.run("train", one, "--resume"), "the cache that was built there for .*/next is gone")
    assert tree(one) == before


@pytest.mark.parametrize("apart", [False, True])
def test_a_cache_that_was_to_replace_another_and_was_given_up_is_pruned_or_removed_by_the_next_training(runs, pair, apart):
    folder, cache = pair[0], pair[2]
    if not apart:
        folder = runs.path(runs.fresh())
        runs.must("train", runs.config(os.path.basename(folder), CONSTANT), "-q")
        cache = os.path.join(folder, "cache")
    staged = os.path.join(cache, ".next")
    stopped(runs, folder)
    assert "nothing to remove" in runs.must("cache", "prune", cache, "--yes").stdout
    runs.train_until("operator, step 60", folder, "--resume")
    shutil.rmtree(os.path.join(folder, "next"))
    shutil.copytree(staged, staged + "-kept")
    items = json.loads(runs.must("cache", "prune", cache, "--yes", "--json").stdout)["items"]
    assert [(item["path"], item["kind"], item["removed"]) for item in items] == [(staged, "given up", True)] and folder in items[0]["reason"]
    assert not os.path.exists(staged)
    runs.must("cache", "verify", folder)
    shutil.move(staged + "-kept", staged)
    runs.must("train", folder, "--resume", "-q")
    assert not os.path.exists(staged)


def test_a_run_is_not_pointed_at_a_place_where_no_cache_is_or_will_be(runs, pair):
    """Of an extended operator the cache stays: it can be moved, and then be told of; what was stopped goes on where its cache is."""
    one, _, shared = pair
    moved, before = runs.path(os.path.basename(shared) + "-moved"), [tree(folder) for folder in pair]
    there = ("--set", "cache.directory=" + moved)
    for way in (["--extend", "--set", "operator.steps=410"], ["--restart", "--stage", "operator"]):
        said = one_sentence(runs.run("train", one, *way, *there), f"cache.directory: the run's cache lies in {shared}, and the operator alone is done again")
        assert f"none would be built in {moved}" in said and "move the directory" in said and f"ups cache build {one} --set cache.directory={moved}" in said
    assert [tree(folder) for folder in pair] == before and not os.path.exists(moved)
    os.rename(shared, moved)
    runs.must("train", one, "--extend", "--set", "operator.steps=410", *there, "-q")
    runs.must("cache", "verify", one)
    runs.train_until("operator, step 30", one, "--extend", "--set", "autoencoder.steps=40")
    before = tree(one)
    one_sentence(runs.run("train", one, "--resume", "--set", "cache.directory=" + shared), f"goes on with the cache in {moved}, not in {shared}")
    assert tree(one) == before


def test_a_place_is_the_same_however_it_is_written(runs, tmp_path):
    """Relative, with a slash at the end, behind a link: what was stopped goes on, and a fork takes the cache along."""
    place, text = tmp_path / "place", CONSTANT.replace("cache: {{", "cache: {{directory: shared, ")
    os.mkdir(place)
    config = runs.config("relative", text)
    run = lambda *arguments: ups(*arguments, cwd=place)
    assert run("train", config, "-q").returncode == 0
    runs.train_until("operator, step 30", runs.path("relative"), "--extend", "--set", "autoencoder.steps=40")
    os.symlink(place / "shared", tmp_path / "link")
    one_sentence(run("train", config, "--resume", "--set", f"cache.directory={tmp_path}/other"), "cache.directory: what was stopped")
    done = run("train", config, "--resume", "-q", "--set", f"cache.directory={tmp_path / 'link'}")
    assert done.returncode == 0, done.stderr
    os.symlink(runs.data, tmp_path / "data")
    done = run("train", config, "--fork", runs.path("relative-fork"), "--set", f"data.root={tmp_path / 'data'}/", "--set", "autoencoder.steps=40", "-q")
    assert done.returncode == 0, done.stderr
    groups = [path for path in Path(runs.path("relative-fork", "cache")).rglob("*") if path.is_file() and path.stat().st_nlink > 1]
    assert len(groups) > 10, "the cache came along by links"


def test_a_cache_that_is_a_link_may_be_anothers(runs, tmp_path):
    """A run that has nothing to do leaves what another one builds there."""
    folders = [runs.path(name) for name in ("linked-one", "linked-other")]
    for folder in folders:
        os.mkdir(folder)
        os.symlink(tmp_path, os.path.join(folder, "cache"))
        runs.must("train", runs.config(os.path.basename(folder), CONSTANT), "-q")
    stopped(runs, folders[0])
    runs.must("train", runs.config("linked-other", CONSTANT), "-q")
    assert json.loads((tmp_path / ".next" / "owner.json").read_text()) == {"run": folders[0]}
    runs.must("train", folders[0], "--resume", "-q")
    runs.must("cache", "verify", folders[0])


def test_a_fork_that_came_to_nothing_leaves_no_cache(runs, pair, tmp_path):
    done = runs.run("train", pair[0], "--fork", tmp_path / "fork", "--set", f"cache.directory={tmp_path / 'forked'}", "--set", "evaluation.given=20",
                    "--set", "operator.batch_size=2")
    one_sentence(done, "evaluation.given")
    assert os.listdir(tmp_path) == []
