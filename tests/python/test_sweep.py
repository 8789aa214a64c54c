"""`ups train --sweep`: each combination of values is a run of its own, with the bytes of one that was trained alone; stages that no swept key
concerns are trained once; what was stopped goes on; nothing begins before all values are checked."""

import json
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from commands import TIMEOUT, UPS, limit, one_sentence
from tiny_run import metrics, tree

RATES = "operator.optimizer.learning_rate=1e-3,3e-3"


def weights(folder):
    """Of each stage that has finished."""
    state = json.loads(Path(folder, "state.json").read_text())
    return {stage: entry["weights"] for stage, entry in state.items()}


def alone(runs, *options):
    """The weights of a run that was trained with these options and nothing else."""
    name = runs.fresh()
    runs.must("train", runs.config(name), *(word for option in options for word in ("--set", option)), "--quiet")
    return weights(runs.path(name))


def test_a_grid_trains_each_combination_and_tells_it_in_a_table(runs):
    config = runs.config("grid")
    done = runs.must("train", config, "--sweep", RATES, "--sweep", "model.operator.depth=1,2")
    folders = [runs.path("grid", f"learning_rate={rate}_depth={depth}") for rate in ("1e-3", "3e-3") for depth in (1, 2)]
    header, *rows = [line.split() for line in done.stdout.splitlines()]
    assert header == ["learning_rate", "depth", "validation", "seconds", "directory"]
    assert [row[4] for row in rows] == folders and [row[:2] for row in rows] == [["1e-3", "1"], ["1e-3", "2"], ["3e-3", "1"], ["3e-3", "2"]]
    one_sentence(runs.run("eval", runs.path("grid")), rf"holds no run.*such as {folders[0]}, {folders[1]}.*, or a configuration")
    scores = [[line["score"] for line in metrics(folder) if line["stage"] == "operator" and "score" in line][-1] for folder in folders]
    assert [row[2] for row in rows] == [f"{score:.4g}" for score in scores] and len(set(scores)) == 4
    assert [row[5:] for row in rows].index(["(lowest)"]) == scores.index(min(scores))

    before = tree(runs.path("grid"))
    listed = json.loads(runs.must("train", config, "--sweep", RATES, "--sweep", "model.operator.depth=1,2", "--json").stdout)
    assert tree(runs.path("grid")) == before, "finished runs are skipped"
    assert [run["directory"] for run in listed] == folders and [run["validation"] for run in listed] == pytest.approx(scores)
    assert listed[1]["values"] == {"operator.optimizer.learning_rate": "1e-3", "model.operator.depth": "2"}
    assert all(run["state"] == "finished" and run["seconds"] > 0 and run["comparable"] for run in listed)


def test_runs_of_a_sweep_are_those_that_would_be_trained_alone_and_share_what_no_key_concerns(runs):
    said = runs.must("train", runs.config("shared"), "--sweep", RATES, "--sweep", "autoencoder.queries=8,16").stderr
    for rate in ("1e-3", "3e-3"):
        for queries in (8, 16):
            folder = runs.path("shared", f"learning_rate={rate}_queries={queries}")
            assert weights(folder) == alone(runs, f"operator.optimizer.learning_rate={rate}", f"autoencoder.queries={queries}")
            assert not os.path.exists(os.path.join(folder, "initial"))
    assert said.count("autoencoder: finished earlier, skipped") == 2, "an autoencoder for each number of queries"


@pytest.mark.parametrize("key, reason", [("operator.losses.rollout.weight=1,0.1", "operator.losses.rollout.weight differs, on which the loss itself may depend"),
                                         ("autoencoder.optimizer.learning_rate=1e-3,3e-3", "they are of latents of different autoencoders")])
def test_none_is_the_lowest_of_validations_of_different_kinds(runs, key, reason):
    name = runs.fresh()
    said = runs.must("train", runs.config(name), "--sweep", key, "-q").stdout
    assert f"validations are not of one kind: {reason}" in said and "(lowest)" not in said
    listed = json.loads(runs.must("train", runs.config(name), "--sweep", key, "--json", "-q").stdout)
    assert [run["comparable"] for run in listed] == [False, False]


def test_a_run_in_the_output_itself_gives_what_it_has(runs, trained):
    _, folder = runs.copy("trained")
    before = tree(folder)
    said = runs.must("train", folder, "--sweep", RATES).stderr
    assert said.count("autoencoder: finished earlier, skipped") == 2
    assert {name: of for name, of in tree(folder).items() if not name.startswith("learning_rate=")} == before
    assert weights(os.path.join(folder, "learning_rate=1e-3")) == alone(runs, "operator.optimizer.learning_rate=1e-3")


def test_caches_in_a_directory_of_their_own_stay_apart(runs):
    caches = runs.path("caches")
    runs.must("train", runs.config("apart"), "--set", f"cache.directory={caches}", "--sweep", "autoencoder.queries=8,16")
    assert sorted(os.listdir(caches)) == ["queries=16", "queries=8"]
    for name in os.listdir(caches):
        assert not os.path.exists(runs.path("apart", name, "cache"))
        runs.must("cache", "verify", runs.path("apart", name))


def test_a_cache_of_the_same_encoder_is_taken_into_the_directory_of_the_next_run(runs):
    """By links. Where something is there already, the cache is built, and not said to be taken along."""
    caches, name = runs.path("linked-caches"), runs.fresh()
    said = runs.must("train", runs.config(name), "--set", f"cache.directory={caches}", "--sweep", RATES, "-q").stderr
    assert f"taken along from {runs.path(name, 'learning_rate=1e-3')}: the autoencoder and the cache" in said
    shards = [[os.stat(path).st_ino for path in sorted(Path(caches, rate).rglob("latent/c/*/*/*/*"))] for rate in ("learning_rate=1e-3", "learning_rate=3e-3")]
    assert shards[0] and shards[0] == shards[1]
    runs.must("cache", "verify", runs.path(name, "learning_rate=3e-3"))
    other = runs.path(runs.fresh())
    os.mkdir(other)
    said = runs.must("train", runs.path(name, "learning_rate=1e-3"), "--fork", other + "-run", "--set", f"cache.directory={other}", "--set", "operator.steps=0", "-q").stderr
    assert "the operator starts with the weights" in said
    runs.must("cache", "verify", other + "-run")
    os.mkdir(os.path.join(caches, "learning_rate=7e-3"))
    said = runs.must("train", runs.config(name), "--set", f"cache.directory={caches}", "--sweep", "operator.optimizer.learning_rate=5e-3,7e-3", "-q").stderr
    assert re.search(r"taken along from .*: the autoencoder$", said, re.M), said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_whole_sweep_and_resume_goes_on_with_it(runs, number):
    name = runs.fresh()
    command = ["train", runs.config(name), "--sweep", RATES, "--set", "operator.steps=500"]
    process = subprocess.Popen([UPS, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    latest, began = Path(runs.path(name, "learning_rate=1e-3", "checkpoints", "operator", "latest.json")), time.monotonic()
    while not latest.exists() and process.poll() is None and time.monotonic() < began + TIMEOUT:
        time.sleep(0.002)
    process.send_signal(number)
    out, said = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + number and out == "", said
    assert not os.path.exists(runs.path(name, "learning_rate=3e-3"))

    before = tree(runs.path(name))
    one_sentence(runs.run(*command), "holds a run of this sweep that was stopped; --resume goes on with it")
    assert tree(runs.path(name)) == before
    done = runs.must(*command, "--resume")
    assert "(resumed)" in done.stderr and len(done.stdout.splitlines()) == 3
    for rate in ("1e-3", "3e-3"):
        assert weights(runs.path(name, f"learning_rate={rate}")) == alone(runs, f"operator.optimizer.learning_rate={rate}", "operator.steps=500")


def test_all_values_are_checked_before_the_first_run_begins(runs):
    config = runs.config("checked")
    done = runs.run("train", config, "--sweep", "operator.optimizer.learning_rate=1e-3,fast", "--sweep", "model.operator.heads=2,3")
    one_sentence(done, "2 mistakes")
    assert "'fast' is not a number" in done.stderr and "must be a multiple of heads (3)" in done.stderr
    one_sentence(runs.run("train", config, "--sweep", "operator.optimiser.learning_rate=1e-3"), "did you mean|unknown")
    one_sentence(runs.run("train", config, "--sweep", "operator.optimizer.learning_rate=1e-3,0.001"), "would be the same run")
    one_sentence(runs.run("train", config, "--sweep", "device.threads=1,2"), "would be the same run: no result depends on what differs")
    one_sentence(runs.run("train", config, "--sweep", "tasks[0].strides=[],[1, 9]"), "--sweep: strides=1,9: task advection: a stride of 9 leaves no step")
    one_sentence(runs.run("train", config, "--sweep", "seed=1,,2"), "a value is missing")
    one_sentence(runs.run("train", config, "--sweep", "seed"), "of the form KEY=VALUE,VALUE", code=2)
    one_sentence(runs.run("train", config, "--sweep", "seed=1,2", "--sweep", "seed=3"), "seed is given twice")
    one_sentence(runs.run("train", config, "--sweep", "seed=" + ",".join(map(str, range(1001)))), "more than 1000 runs")
    for way in (["--extend"], ["--restart"], ["--fork", "x"], ["--plan"], ["--stage", "operator"]):
        one_sentence(runs.run("train", config, "--sweep", "seed=1,2", *way), "--resume alone goes with it", code=2)
    with open(config) as pipe:
        done = runs.run("train", "/dev/stdin", "--sweep", "seed=1,2", stdin=subprocess.Popen(["cat", config], stdout=subprocess.PIPE).stdout)
    one_sentence(done, "which only a file permits")
    assert not os.path.exists(runs.path("checked"))


def test_runs_of_another_configuration_are_refused_before_the_first_run_begins(runs):
    config = runs.config("other")
    runs.must("train", config, "--sweep", "operator.steps=20")
    before = tree(runs.path("other"))
    for more in ([], ["--resume"]):
        done = runs.run("train", config, "--set", "seed=9", "--sweep", "operator.steps=10,20", *more)
        one_sentence(done, "holds a run of another configuration")
        assert "  seed   3     9" in done.stderr
        assert tree(runs.path("other")) == before
    told = json.loads(runs.run("train", config, "--set", "seed=9", "--sweep", "operator.steps=20", "--json").stdout)["error"]
    assert told["differences"] == [{"key": "seed", "run": "3", "now": "9"}]


def test_a_run_that_fails_is_told_of_and_the_others_are_trained(runs):
    config = runs.config("fails")
    sweep = ["--sweep", "operator.batch_size=1048576,4"]
    done = runs.run("train", config, *sweep, "--json", preexec_fn=limit(resource.RLIMIT_AS, 8 << 30))
    one_sentence(done, "1 of 2 runs failed; the first, batch_size=1048576: ", "GiB are free")
    failed, trained = json.loads(done.stdout)
    assert (failed["state"], trained["state"]) == ("failed", "finished") and failed["validation"] is None and "GiB are free" in failed["error"]
    assert trained["validation"] > 0
    done = runs.run("train", config, *sweep, "--resume", preexec_fn=limit(resource.RLIMIT_AS, 8 << 30))
    assert done.returncode == 1 and done.stdout.splitlines()[1].split()[:2] == ["1048576", "failed"]
    assert "batch_size=4: finished earlier, skipped" in done.stderr


def test_values_of_any_form_make_names_that_file_systems_take(runs):
    config = runs.config("names")
    runs.must("train", config, "--set", "stages=[autoencoder]", "--set", "autoencoder.steps=2", "--sweep", "tasks[0].patch=[4],[8]",
              "--sweep", "data.split.test=20%,'last 20%'", "--sweep", "autoencoder.optimizer.learning_rate=1e-3,2e-3",
              "--sweep", "operator.optimizer.learning_rate=1e-3")
    names = os.listdir(runs.path("names"))
    assert len(names) == 8 and all(name.isprintable() and not set(name) & set(" /'\"[]\\:*?") for name in names), names
    assert {name.partition("_test")[0] for name in names} == {"patch=4", "patch=8"}
    assert all("_autoencoder.optimizer.learning_rate=" in name and name.endswith("_operator.optimizer.learning_rate=1e-3") for name in names)
