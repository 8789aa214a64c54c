"""A run owns its configuration. Another one is refused with a table, and no file changes; what was stopped goes on with the run's own; stages
that get more steps, or are done again, take the place of the old ones once they have finished; a fork starts from weights."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import h5py
import pytest
from safetensors.numpy import load_file

from commands import TIMEOUT, UPS, one_sentence, ups
from event_files import assert_shown
from injection import ALL, with_fault
from tiny_run import CONFIG, Sandbox, metrics, tree

# Learning rates that do not depend on how many steps there will be: more steps are then as if there had been more from the start.
CONSTANT = CONFIG.replace("warmup_steps: 4", "warmup_steps: 4, schedule: constant")
CHANGED = [
    ("seed", "4"), ("precision", "bf16"), ("data.split.train", "0.5", "data.split.validation=0.3"),
    ("data.sampling", "proportional"), ("data.temperature", "3"), ("tasks[0].stride", "2"), ("tasks[0].max_samples", "10"),
    ("tasks[1].weight", "2"), ("tasks[0].patch", "[8]"), ("tasks[1].field_scale", "[1, 2]"), ("tasks[1].name", "flow"), ("tasks[0].from", "5"),
    ("model.tokens", "4"), ("model.dim", "4"), ("model.decoder.position", "false"), ("model.operator.depth", "1"),
    ("model.operator.drop_path", "0"), ("autoencoder.steps", "70"), ("autoencoder.steps", "50"), ("autoencoder.queries", "8"),
    ("autoencoder.accumulation", "1"), ("autoencoder.optimizer.learning_rate", "0.001"), ("autoencoder.validate_every", "20"),
    ("cache.max_abs_error", "0.01"), ("cache.codec", "portable"), ("cache.samples_per_shard", "3"), ("operator.steps", "61"),
    ("operator.batch_size", "2"), ("operator.losses.rollout.weight", "0.5"), ("operator.optimizer.schedule", "constant")]
NEUTRAL = ["device.threads=2", "device.name=cpu", "device.memory=40", "data.io=threads", "data.decode_threads=2", "data.queue_depth=9", "data.slots=3", "data.residency=stream",
           "data.residency_memory=1", "data.on_bad_sample=skip", "autoencoder.log_every=7", "autoencoder.checkpoint_every=20", "operator.memory_limit=2",
           "operator.activation_checkpointing=block", "operator.optimizer.offload=true", "operator.spike_factor=5", "cache.memory_limit=1", "evaluation.horizons=[1]",
           "evaluation.max_samples=2", "evaluation.given=2", "evaluation.gates.boundary=0.5", "stages=[autoencoder, operator]"]


def models(folder):
    """What training leaves, but for clocks and settings, and for what is being made beside it."""
    return {name: content for name, content in tree(folder).items()
            if (name.startswith(("cache", "checkpoints", "autoencoder.", "operator.")) or name == "state.json")
            and not name.startswith("cache/.next") and "ups-partial" not in name}


def rows(done):
    """The table of a refusal: {key: (run, now)}."""
    table = [re.split(r" {3,}", line.strip()) for line in done.stderr.splitlines() if line.startswith("  ")]
    assert table[0] == ["key", "run", "now"], done.stderr
    return {key: (run, now) for key, run, now in table[1:]}


# ---- another configuration

@pytest.mark.parametrize("change", CHANGED, ids=lambda change: "=".join(change[:2]))
def test_a_changed_option_is_refused_with_the_table_and_no_file_of_the_run_changes(runs, trained, change):
    key, value, *more = change
    folder = runs.path("trained")
    before = tree(folder)
    for command in (["train", trained], ["train", folder], ["train", folder, "--resume"], ["train", trained, "--stage", "operator"]):
        sets = [word for item in (f"{key}={value}", *more) for word in ("--set", item)]
        done = runs.run(*command, *sets)
        one_sentence(done, "holds a run of another configuration", "--extend", "--fork DIR", re.escape(f"ups train {folder} --resume"))
        assert rows(done)[key][1] == value
        assert tree(folder) == before
    told = json.loads(runs.run("train", trained, *sets, "--json").stdout)["error"]
    assert told["code"] == "argument"
    assert {"key": key, "run": rows(done)[key][0], "now": value} in told["differences"]


def test_a_task_more_or_fewer_is_refused_with_its_name(runs, trained):
    fewer = CONFIG[:CONFIG.index("  - name: darcy")] + CONFIG[CONFIG.index("model:"):]
    done = runs.run("train", runs.config("fewer", fewer, output=runs.path("trained")))
    assert rows(done) == {"tasks[1]": ("name: darcy", "absent")}


def test_what_no_result_depends_on_is_taken(runs, trained):
    config, folder = runs.copy("trained")
    before = models(folder)
    for option in NEUTRAL:
        runs.must("train", config, "--set", option, "--quiet")
        assert models(folder) == before, option
    keys = {key["key"]: key["neutral"] for key in json.loads(runs.must("config", "keys", "--json").stdout)}
    assert [option for option in NEUTRAL if not keys[option.partition("=")[0]]] == []
    assert [key for key, *_ in CHANGED if keys[re.sub(r"\[\d\]", "[]", key)]] == []


def test_automatic_choices_are_what_the_run_has(runs, trained):
    before = tree(runs.path("trained"))
    runs.must("train", trained, "--set", "precision=auto", "--set", "operator.batch_size=auto")
    assert tree(runs.path("trained")) == before


def test_a_stage_that_has_not_begun_takes_what_is_given(runs):
    config = runs.config("early")
    runs.must("train", config, "--stage", "autoencoder")
    done = runs.must("train", config, "--set", "operator.steps=20", "--set", "model.operator.depth=1")
    assert "operator.steps: 20 instead of 60, taken" in done.stderr
    assert json.loads(Path(runs.path("early", "state.json")).read_text())["operator"]["steps"] == 20
    one_sentence(runs.run("train", config), "another configuration")


def test_how_the_operator_learns_a_task_can_be_changed_until_it_has_begun(runs):
    """Autoencoder and cache do not depend on it: they are the same bytes by either way, and so is the operator."""
    text = CONFIG.replace("  tokens: 8\n  dim: 8\n", "  tokens: grid\n  dim: auto\n").replace(
        "hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, drop_path: 0.1, update_norm: none", "core: stack, hidden: 16, depth: 1, heads: 1")
    changed = ["--set", "tasks[0].bundle=2", "--set", "tasks[0].strides=[1, 2]", "--set", "tasks[1].symmetries=false", "--set", "operator.augment=symmetries"]
    late, whole = runs.config("learnt-late", text), runs.config("learnt-whole", text)
    assert text != CONFIG
    for stage in ("autoencoder", "cache"):
        runs.must("train", late, "--stage", stage)
    runs.must("train", whole, *changed)
    without = [{name: at for name, at in models(runs.path(run)).items() if name.startswith(("autoencoder.", "cache"))} for run in ("learnt-late", "learnt-whole")]
    assert without[0] == without[1] and len(without[0]) > 4
    runs.must("train", runs.path("learnt-late"), "--resume", *changed)
    weights = [Path(runs.path(run, "operator.safetensors")).read_bytes() for run in ("learnt-late", "learnt-whole")]
    assert weights[0] == weights[1]
    before = tree(runs.path("learnt-late"))
    for change in ("tasks[0].bundle=1", "tasks[0].strides=[1, 3]", "tasks[1].symmetries=true"):
        assert rows(runs.run("train", runs.path("learnt-late"), "--resume", "--set", change)).keys() == {change.partition("=")[0]}
    assert tree(runs.path("learnt-late")) == before


def test_data_that_moved_are_found_and_other_data_are_refused(runs, trained):
    config, folder = runs.copy("trained")
    moved, other = runs.path("moved"), runs.path("other")
    shutil.copytree(runs.data, moved)
    shutil.copytree(runs.data, other)
    runs.must("datagen", "advection1d", "-o", os.path.join(other, "advection.h5"), "-n", "12", "-r", "32", "--steps", "9", "--seed", "5", "--force")
    before = tree(folder)
    one_sentence(runs.run("train", folder, "--resume", "--set", "data.root=" + other), "advection: its files have other contents", "data.root")
    assert tree(folder) == before
    runs.must("train", folder, "--resume", "--set", "data.root=" + moved)
    left = [name for name, of in models(folder).items() if of != before[name]]
    assert [name for name in left if not name.endswith("zarr.json")] == []  # they name the files


def test_what_stays_was_trained_on_the_same_data(runs):
    """Also where nothing is cached, and where files were replaced; a run that begins anew takes what is there."""
    data, other = runs.path("mine"), runs.path("others")
    shutil.copytree(runs.data, data)
    shutil.copytree(runs.data, other)
    runs.must("datagen", "advection1d", "-o", os.path.join(other, "advection.h5"), "-n", "12", "-r", "32", "--steps", "9", "--seed", "5", "--force")
    config, folder = runs.config("encoding", data=data), runs.path("encoding")
    runs.must("train", config, "--set", "data.residency=encode", "-q")
    before = tree(folder)
    elsewhere = ["--set", "data.root=" + other]
    for way in (["--extend", "--set", "operator.steps=70"], ["--restart", "--stage", "operator"]):
        one_sentence(runs.run("train", folder, *way, *elsewhere), "advection: its files have other contents since the run began")
        assert tree(folder) == before
    shutil.copy(os.path.join(other, "advection.h5"), os.path.join(data, "advection.h5"))
    runs.must("train", config, "--set", "data.residency=encode", "-q")  # nothing to be done, and so nothing trained on these
    assert tree(folder)["normalisation.json"] == before["normalisation.json"]
    said = runs.must("train", folder, "--extend", "--set", "operator.steps=70", "-q").stderr
    assert "task advection: its files have other contents since the run began; what was trained then stays" in said
    said = runs.must("train", folder, "--resume", "-q").stderr
    assert "since the run began" not in said, "told once"
    said = runs.must("train", folder, "--restart", "-q").stderr
    assert "its files have other contents since its normalisation was measured; it is measured anew" in said


def test_a_run_without_its_configuration_is_not_taken_for_a_new_one(runs, trained):
    config, folder = runs.copy("trained")
    os.remove(os.path.join(folder, "config.yaml"))
    before = tree(folder)
    one_sentence(runs.run("train", config), "config.yaml is missing", "restore")
    assert tree(folder) == before
    Path(folder, "config.yaml").write_text("tasks: 3\n")
    one_sentence(runs.run("train", config), re.escape(os.path.join(folder, "config.yaml")))


# ---- going on

def stopped(runs, name, *options, text=CONFIG):
    """A run that was stopped by SIGTERM once it had a checkpoint."""
    config = runs.config(name, text)
    process = subprocess.Popen([UPS, "train", config, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    latest, began = Path(runs.path(name, "checkpoints", "autoencoder", "latest.json")), time.monotonic()
    while not latest.exists() and process.poll() is None and time.monotonic() < began + TIMEOUT:
        time.sleep(0.002)
    process.terminate()
    assert process.wait(TIMEOUT) == 143, "it was done before the signal came"
    return config


def test_an_option_that_is_forgotten_on_resume_is_the_runs_own(runs):
    options = ("--set", "autoencoder.steps=500", "--set", "operator.optimizer.learning_rate=0.001")
    runs.must("train", runs.config("undisturbed"), *options)
    config = stopped(runs, "forgotten", *options)
    one_sentence(runs.run("train", config, *options), "--resume goes on from it")
    said = runs.must("train", config, "--resume").stderr
    assert "differs from the run's own configuration in autoencoder.steps (500 in the run, 60 there) and 1 other key; the run's own is used" in said
    assert "(resumed)" in said
    assert models(runs.path("forgotten")) == models(runs.path("undisturbed"))


def test_a_directory_is_all_that_commands_need_wherever_it_lies(runs, trained, scratch):
    _, folder = runs.copy("trained")
    moved = os.path.join(scratch, "it's here")
    os.rename(folder, moved)
    before = tree(moved)
    for command in (["train", moved, "--resume"], ["cache", "verify", moved], ["config", "show", moved], ["cache", "build", moved]):
        runs.must(*command)
    assert models(moved) == {name: before[name] for name in models(moved)}
    told = json.loads(runs.run("eval", "it's here/", "--json", cwd=scratch).stdout)
    assert told["operator"]["file"].startswith("it's here/")
    done = runs.run("rollout", ".", "-o", "../out.h5", cwd=moved)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(scratch)) == ["it's here", "out-advection.h5", "out-darcy.h5"]
    os.mkdir(os.path.join(scratch, "empty"))
    one_sentence(runs.run("eval", os.path.join(scratch, "empty")), "holds no run .there is no config.yaml in it")


def test_a_directory_alone_is_told_of_and_nothing_happens(runs, trained):
    folder = runs.path("trained")
    before = tree(folder)
    told = runs.must("train", folder).stdout
    assert "All stages are finished" in told and "finished, 60 steps; nothing to do" in told
    stopped(runs, "told", "--set", "autoencoder.steps=2000")
    told = runs.must("train", runs.path("told")).stdout
    assert re.search(r"autoencoder +stopped at step \d+ of 2000; would be trained\n +cache +not begun; would be trained", told), told
    assert tree(folder) == before


# ---- where outputs come from

def test_outputs_tell_the_run_that_trained_beside_the_command(runs, trained, scratch):
    folder = runs.path("trained")
    own, state = Path(folder, "config.yaml").read_text(), json.loads(Path(folder, "state.json").read_text())
    option = ("--set", "evaluation.max_samples=1")
    told = json.loads(runs.must("eval", trained, *option, "--json", "-o", os.path.join(scratch, "e.json")).stdout)
    assert told["training"] == {"run": folder, "config": own, "stages": state}
    assert "max_samples: 1\n" in told["command"]["config"] and "max_samples: 64\n" in own
    assert "autoencoder_training" not in told
    runs.must("rollout", trained, *option, "--task", "darcy", "-o", os.path.join(scratch, "r.h5"))
    with h5py.File(os.path.join(scratch, "r.h5")) as file:
        assert (file.attrs["ups.training_run"], file.attrs["ups.training_config"]) == (folder, own)
        assert "max_samples: 1\n" in file.attrs["ups.config"]
    # Models of other places: a checkpoint of the run, and a file that lies in none.
    told = json.loads(runs.must("eval", folder, "-c", os.path.join(folder, "checkpoints/operator"), "--json", "-o",
                                os.path.join(scratch, "e.json")).stdout)
    assert told["training"]["run"] == folder
    shutil.copy(os.path.join(folder, "operator.safetensors"), scratch)
    told = json.loads(runs.must("eval", folder, "-c", scratch, "--json", "-o", os.path.join(scratch, "e.json")).stdout)
    assert told["training"] is None and told["autoencoder_training"]["run"] == folder


# ---- more steps

def test_more_steps_of_the_last_stage_are_as_if_it_had_had_them(runs):
    config, whole = runs.config("short", CONSTANT), runs.config("long", CONSTANT)
    runs.must("train", config)
    runs.must("train", whole, "--set", "operator.steps=80")
    said = runs.must("train", config, "--extend", "--set", "operator.steps=80").stderr
    assert "operator: has 60 steps, goes on to 80" in said
    assert models(runs.path("short")) == models(runs.path("long"))
    assert metrics(runs.path("short"), clock=False) == metrics(runs.path("long"), clock=False)
    assert not os.path.exists(runs.path("short", "next"))
    runs.must("train", runs.path("short"), "--resume")


WSD = CONFIG.replace("warmup_steps: 4", "warmup_steps: 4, schedule: wsd, decay_fraction: 0.3")


def test_more_steps_of_wsd_go_on_from_before_the_decay_as_if_the_stage_had_had_them(runs):
    config, whole = runs.config("decayed", WSD), runs.config("longer", WSD)
    runs.must("train", config)
    kept = json.loads(Path(runs.path("decayed", "checkpoints", "operator", "stable.json")).read_text())
    assert kept["step"] == 42
    runs.must("train", whole, "--set", "operator.steps=80")
    said = runs.must("train", config, "--extend", "--set", "operator.steps=80").stderr
    assert "operator: has 60 steps, goes back to step 42, before the decay of its learning rate, and from there on to 80" in said
    assert models(runs.path("decayed")) == models(runs.path("longer"))
    assert metrics(runs.path("decayed"), clock=False) == metrics(runs.path("longer"), clock=False)
    checkpoints = [tree(runs.path(name, "checkpoints", "operator")) for name in ("decayed", "longer")]
    assert checkpoints[0] == checkpoints[1]


def test_without_the_checkpoint_before_the_decay_more_steps_go_on_from_its_end_and_say_so(runs):
    config = runs.config("unstable", WSD)
    runs.must("train", config)
    os.unlink(runs.path("unstable", "checkpoints", "operator", "stable.json"))
    said = runs.must("train", config, "--extend", "--set", "operator.steps=100").stderr
    assert "goes on to 100 from weights whose learning rate has decayed" in said and "stable.json" in said
    rates = {line["step"]: line["learning_rate"] for line in metrics(runs.path("unstable")) if line["stage"] == "operator" and "loss" in line}
    assert rates[60] < 0.001 and rates[70] == pytest.approx(0.005) and rates[100] < 0.001


def test_more_steps_of_an_earlier_stage_name_what_is_done_again_and_do_it(runs):
    runs.must("train", runs.config("sooner", CONSTANT))
    runs.must("train", runs.config("later", CONSTANT), "--set", "autoencoder.steps=75")
    folder = runs.path("sooner")
    said = runs.must("train", folder, "--extend", "--set", "autoencoder.steps=75").stderr
    assert "the cache and the operator, built on the autoencoder, are done again; until then the run stays as it is" in said
    assert models(folder) == models(runs.path("later"))
    runs.must("cache", "verify", folder)
    runs.must("eval", folder)


def test_a_cache_that_lies_elsewhere_is_replaced_there(runs):
    elsewhere = runs.path("elsewhere")
    runs.must("train", runs.config("apart", CONSTANT), "--set", "cache.directory=" + elsewhere)
    before = tree(elsewhere)
    runs.must("train", runs.path("apart"), "--extend", "--set", "autoencoder.steps=65")
    after = tree(elsewhere)
    assert sorted(after) == sorted(before) and after != before
    assert not os.path.exists(runs.path("apart", "cache"))
    runs.must("cache", "verify", runs.path("apart.yaml"), "--set", "cache.directory=" + elsewhere)


@pytest.mark.parametrize("options, parts", [
    ([], ["which stage is to have more steps", "operator.steps"]),
    (["--set", "operator.steps=50"], ["another configuration"]),
    (["--set", "operator.steps=70", "--set", "seed=4"], ["another configuration"]),
    (["--set", "autoencoder.steps=70", "--stage", "autoencoder"], ["the cache and the operator are built on the autoencoder", "--stage"]),
    (["--set", "autoencoder.steps=70", "--stage", "operator"], ["more steps are given for the autoencoder"])])
def test_what_is_no_extension_is_refused(runs, trained, options, parts):
    before = tree(runs.path("trained"))
    one_sentence(runs.run("train", trained, "--extend", *options), *parts)
    assert tree(runs.path("trained")) == before


def test_a_stage_whose_checkpoint_is_gone_cannot_be_extended(runs, trained):
    _, folder = runs.copy("trained")
    shutil.rmtree(os.path.join(folder, "checkpoints", "operator"))
    one_sentence(runs.run("train", folder, "--extend", "--set", "operator.steps=70"), "checkpoint to go on from is gone")


@pytest.mark.parametrize("ways", [("--resume", "--extend"), ("--fork", "x", "--restart"), ("--resume", "--restart")])
def test_the_ways_on_exclude_each_other(runs, trained, ways):
    assert "exclude each other" in one_sentence(runs.run("train", trained, *ways), code=2)


# ---- killed in between

@pytest.fixture(scope="module")
def sandbox(runs):
    """A run, and what it is once its autoencoder got more steps."""
    made = Sandbox(runs)
    made.run = made.path("run")
    runs.must("train", runs.config("sandboxed", CONSTANT, output=made.run))
    runs.must("eval", made.run)
    made.keep("trained")
    made.old = models(made.run)
    made.command = ["train", made.run, "--extend", "--set", "autoencoder.steps=70"]
    began = time.monotonic()
    runs.must(*made.command)
    made.seconds, made.new = time.monotonic() - began, models(made.run)
    assert made.new != made.old
    return made


def usable_or_resumable(sandbox):
    """After a kill: the old run stands, or the new one; and the same command, or --resume, leads to the new one."""
    settled = not os.path.exists(os.path.join(sandbox.run, "replacing"))
    if settled and os.path.exists(os.path.join(sandbox.run, "state.json")):
        assert models(sandbox.run) in (sandbox.old, sandbox.new)
    done = ups("eval", sandbox.run, "--quiet")
    assert done.returncode == 0, done.stderr
    begun = os.path.exists(os.path.join(sandbox.run, "next")) or json.loads(
        Path(sandbox.run, "state.json").read_text())["autoencoder"]["steps"] == 70
    done = ups(*(["train", sandbox.run, "--resume"] if begun else sandbox.command), "--quiet")
    assert done.returncode == 0, done.stderr
    assert models(sandbox.run) == sandbox.new
    assert_shown(sandbox.run)
    assert [name for name in tree(sandbox.folder) if "next" in name or "replacing" in name or "ups-partial" in name] == []


def test_an_extension_killed_at_any_moment_leaves_the_old_run_usable_or_the_new_one_resumable(sandbox):
    moments, hit, seconds, tries = random.Random(7), 0, sandbox.seconds, 0
    while hit < 8:
        tries += 1
        assert tries < 200, "no kill met the command"
        sandbox.begin("trained")
        process = subprocess.Popen([UPS, *sandbox.command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait((hit + moments.random()) / 8 * seconds)
            seconds *= 0.8
        except subprocess.TimeoutExpired:
            process.kill()
            hit += process.wait(TIMEOUT) == -signal.SIGKILL
        usable_or_resumable(sandbox)


def test_a_replacement_killed_at_any_of_its_steps_is_ended_by_the_next_command(sandbox):
    calls = "rename,unlink,mkdir,sync"
    sandbox.begin("trained")
    done, struck = with_fault(sandbox, sandbox.command, f"{calls}:1+:none")
    assert done.returncode == 0, done.stderr
    first = next(i for i, line in enumerate(struck, 1) if "redo.json" in line and i > len(struck) // 2)
    chosen = range(first, len(struck) + 1) if ALL else sorted(random.Random(3).sample(range(first, len(struck) + 1), 10))
    for n in chosen:
        sandbox.begin("trained")
        done, struck = with_fault(sandbox, sandbox.command, f"{calls}:{n}:kill")
        assert done.returncode == -signal.SIGKILL, struck
        usable_or_resumable(sandbox)


@pytest.fixture(scope="module")
def other_disk(runs):
    """A folder on another file system than the runs."""
    for place in ("/dev/shm", "/tmp", os.path.dirname(UPS)):
        if os.access(place, os.W_OK) and os.stat(place).st_dev != os.stat(runs.folder).st_dev:
            with tempfile.TemporaryDirectory(prefix="ups-disk-", dir=place) as folder:
                yield folder
            return
    pytest.skip("/dev/shm, /tmp and the build folder are one file system")


@pytest.mark.parametrize("linked", ["checkpoints", "checkpoints/operator"])
def test_checkpoints_on_another_disk_are_replaced_there_also_when_killed_at_any_step(sandbox, other_disk, linked):
    """A user moved them there, and left a link. What is killed in between is ended by the next command, and leaves nothing on either disk."""
    link, disk, calls = os.path.join(sandbox.run, linked), os.path.join(other_disk, "disk"), "rename,unlink,mkdir,sync"
    command = ["train", sandbox.run, "--extend", "--set", "operator.steps=70"]

    def begin():
        sandbox.begin("trained")
        shutil.rmtree(disk, ignore_errors=True)
        shutil.copytree(link, disk)
        shutil.rmtree(link)
        os.symlink(disk, link)

    begin()
    done, struck = with_fault(sandbox, command, f"{calls}:1+:none")
    assert done.returncode == 0, done.stderr
    expected, there = models(sandbox.run), tree(disk)
    assert os.path.islink(link) and json.loads(Path(sandbox.run, "checkpoints", "operator", "latest.json").read_text())["step"] == 70
    first = max(i for i, line in enumerate(struck, 1) if "redo.json" in line)
    steps = range(first, len(struck) + 1)
    for n in steps if ALL else sorted(random.Random(5).sample(steps, 8)):
        begin()
        done, struck = with_fault(sandbox, command, f"{calls}:{n}:kill")
        assert done.returncode == -signal.SIGKILL, struck
        done = ups("eval", sandbox.run, "--quiet")
        assert done.returncode == 0, done.stderr
        if os.path.exists(os.path.join(sandbox.run, "next")):
            done = ups("train", sandbox.run, "--resume", "--quiet")
            assert done.returncode == 0, done.stderr
        assert os.path.islink(link) and models(sandbox.run) == expected and tree(disk) == there
        left = [name for folder in (sandbox.folder, other_disk) for name in tree(folder)]
        assert [name for name in left if "next" in name or "replacing" in name or "ups-partial" in name] == []


def test_what_was_stopped_is_gone_on_with_or_given_up_and_nothing_else(sandbox):
    sandbox.begin("trained")
    done = with_fault(sandbox, sandbox.command, "rename:30:kill")[0]
    assert done.returncode == -signal.SIGKILL
    before = tree(sandbox.folder)
    for command in (sandbox.command, ["train", sandbox.run, "--restart"], ["train", sandbox.runs.path("sandboxed.yaml")]):
        one_sentence(ups(*command), "next holds stages that are being done again", "--resume", "remove")
        assert tree(sandbox.folder) == before
    assert "is being done again in next/" in ups("train", sandbox.run).stdout
    shutil.rmtree(os.path.join(sandbox.run, "next"))
    ups("train", sandbox.run, "--resume")
    assert models(sandbox.run) == sandbox.old


@pytest.mark.parametrize("text", ["", "[]", "{", '{"stages": []}', '{"stages": ["operators"]}', '{"stages": [3]}', '{"stages": 3}'])
def test_a_damaged_list_of_what_is_done_again_is_named(runs, trained, text):
    _, folder = runs.copy("trained")
    os.mkdir(os.path.join(folder, "next"))
    shutil.copy(os.path.join(folder, "config.yaml"), os.path.join(folder, "next"))
    Path(folder, "next", "redo.json").write_text(text)
    before = tree(folder)
    one_sentence(runs.run("train", folder, "--resume"), re.escape(os.path.join(folder, "next", "redo.json")))
    assert tree(folder) == before
    os.rename(os.path.join(folder, "next"), os.path.join(folder, "replacing"))
    one_sentence(runs.run("eval", folder), re.escape(os.path.join(folder, "replacing", "redo.json")))
    assert models(folder) == {name: of for name, of in before.items() if name in models(folder)}


# ---- anew, and forks

def test_restarting_with_another_configuration_keeps_the_old_run_until_it_has_finished(runs, trained):
    _, folder = runs.copy("trained")
    old = models(folder)
    config = runs.config("reseeded")
    runs.must("train", config, "--set", "seed=4")
    process = subprocess.Popen([UPS, "train", folder, "--restart", "--set", "seed=4", "--quiet"], stderr=subprocess.DEVNULL)
    while not os.path.exists(os.path.join(folder, "next", "autoencoder.safetensors")) and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    process.wait(TIMEOUT)
    if os.path.exists(os.path.join(folder, "next")):
        assert models(folder) == old
        runs.must("train", folder, "--resume")
    assert models(folder) == models(runs.path("reseeded"))


def test_a_stage_others_are_built_on_is_not_restarted_alone(runs, trained):
    before = tree(runs.path("trained"))
    one_sentence(runs.run("train", trained, "--stage", "autoencoder", "--restart"), "the cache and the operator are built on the autoencoder")
    done = runs.run("train", trained, "--stage", "operator", "--restart", "--set", "seed=4")
    assert rows(done) == {"seed": ("3", "4")}
    assert tree(runs.path("trained")) == before


def test_a_fork_takes_what_is_the_same_and_starts_the_rest_from_its_weights(runs, trained):
    folder, fork = runs.path("trained"), runs.path("fork")
    before = tree(folder)
    said = runs.must("train", trained, "--fork", fork, "--set", "operator.optimizer.learning_rate=0", "--set", "operator.steps=10").stderr
    assert f"the operator starts with the weights of {folder}" in said
    assert tree(folder) == before
    after = tree(fork)
    for name in before:
        if name.startswith(("cache/", "checkpoints/autoencoder/", "autoencoder.")):
            assert after[name] == before[name], name
    old, new = (load_file(os.path.join(at, "operator.safetensors")) for at in (folder, fork))
    assert all((old[name] == new[name]).all() for name in old)  # a learning rate of 0 leaves what it started from
    told = runs.must("config", "show", fork).stdout
    assert "learning_rate: 0\n" in told and f"output: {fork}\n" in told
    runs.must("eval", fork)
    one_sentence(runs.run("train", trained, "--fork", fork), "is there already")


def test_a_fork_of_all_stages_keeps_the_normalisation_of_its_weights_and_resumes(runs, trained):
    forks = [runs.path("fork-whole"), runs.path("fork-killed")]
    change = ("--set", "autoencoder.steps=500")
    runs.must("train", trained, "--fork", forks[0], *change)
    process = subprocess.Popen([UPS, "train", trained, "--fork", forks[1], *change], stderr=subprocess.DEVNULL)
    while not os.path.exists(os.path.join(forks[1], "checkpoints", "autoencoder", "latest.json")) and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    process.wait(TIMEOUT)
    runs.must("train", forks[1], "--resume")
    found, expected = models(forks[1]), models(forks[0])
    assert found == expected
    assert any(name.startswith("initial/") for name in tree(forks[0]))


def test_weights_that_do_not_fit_are_not_started_from(runs, trained):
    done = runs.run("train", trained, "--fork", runs.path("unfit"), "--set", "model.operator.hidden=8")
    one_sentence(done, "the operator was to begin with weights that do not fit", "shape")
    assert not os.path.exists(runs.path("unfit"))


def test_there_has_to_be_a_run_to_extend_or_fork(runs):
    config = runs.config("nothing")
    one_sentence(runs.run("train", config, "--extend"), "holds no run that could be extended")
    one_sentence(runs.run("train", config, "--fork", runs.path("nowhere")), "holds no run that could be forked")
    assert not os.path.exists(runs.path("nothing"))
