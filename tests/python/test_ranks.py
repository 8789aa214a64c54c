"""One model trained by several processes, `mpirun -n N ups train`: with ranks.reproducible any number of them ends in the same bytes, stopped and
gone on with or not; whatever goes wrong in one of them ends all, is said once, and can be gone on from."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

import h5py
import numpy as np
import pytest

from commands import TIMEOUT, UPS, must, one_sentence, program, ups
from event_files import assert_shown
from test_token_grid import GRID
from tiny_run import CONFIG, metrics, tree

MPIRUN = shutil.which("mpirun")


def has_module():
    try:
        return bool(program("libups_mpi.so"))
    except FileNotFoundError:
        return False


pytestmark = [pytest.mark.skipif(not MPIRUN, reason="this machine has no mpirun (on Debian openmpi-bin)"),
              pytest.mark.skipif(not has_module(), reason="this build has no libups_mpi.so: it was made without MPI")]

SAMPLES = 14
STEPS = 32


def shared(text):
    """For several processes: four micro-batches a step; shares of tasks follow the validation, and one task enters late."""
    text = re.sub(r"  accumulation: \d\n", "", text)
    text = re.sub(r"steps: (60|200)\n  batch_size: 4", rf"steps: {STEPS}\n  accumulation: 4\n  batch_size: 4", text)
    text = re.sub(r"validate_every: \d+", "validate_every: 4", text)
    text = re.sub(r"checkpoint_every: \d+", "checkpoint_every: 6", text)
    text = re.sub(r"log_every: \d+", "log_every: 5", text)
    text = text.replace("from: 100", "from: 10")
    text = text.replace("[darcy.h5]", "[darcy.h5]\n    from: 3\n    ramp: 10")
    return text.replace("decode_threads: 1", "decode_threads: 1\n  sampling: difficulty")


SUMMED = shared(CONFIG)
SAME = SUMMED.replace("seed: 3", "seed: 3\nranks: {{reproducible: true}}")
# Muon beside AdamW, an average of the weights, two windows of a trajectory; a loss is taken in every second step.
MUON = SAME.replace("kind: adamw, ", "kind: muon, ").replace("ema_decay: 0,", "ema_decay: 0.9,").replace("rollout_steps: 3", "rollout_steps: 3\n  pairs_per_trajectory: 2")
# A set of parameters for each task: what reads and writes the tokens of a grid is its own, and so are blocks. The rate falls in the last steps alone.
CELLS = shared(GRID).replace("  operator: {{", "  operator: {{task_specific: [mixing, mlp], ").replace("seed: 3", "seed: 3\nranks: {{reproducible: true}}").replace("warmup_steps: 4", "warmup_steps: 4, schedule: wsd")
# Losses are scaled, steps whose gradients overflow are skipped, validations end a stage early.
HALF = (SAME.replace("precision: f32", "precision: fp16").replace("warmup_steps: 4", "warmup_steps: 4, schedule: plateau, plateau_patience: 1")
        .replace("rollout_steps: 3", "rollout_steps: 3\n  patience: 2\n  min_delta: 100"))
TEXTS = {"adamw": SAME, "muon": MUON, "grid": CELLS, "fp16": HALF}


# ---- processes ----

class Ranks:
    """Processes that mpirun starts. They are known by what stands in their environment, so that what is left of them is found."""

    def __init__(self, ranks, *arguments, command=None, **environment):
        self.mark = f"UPS_TEST_MARK={uuid.uuid4()}"
        name, value = self.mark.split("=")
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen([MPIRUN, "-n", str(ranks), "--oversubscribe", *map(str, command or [UPS]), *map(str, arguments)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env={**os.environ, **root, name: value, **environment})

    def living(self):
        """{rank: process} of those that live; mpirun's own is rank None."""
        found = {}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    continue
                own = Path("/proc", entry, "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if self.mark.encode() in own:
                rank = [int(word.partition(b"=")[2]) for word in own if word.startswith(b"OMPI_COMM_WORLD_RANK=")]
                found[rank[0] if rank else None] = int(entry)
        return found

    def wait_for(self, words):
        """What is said until a line has these words."""
        said = ""
        for line in self.process.stderr:
            said += line
            if re.search(words, line):
                return said
        return said

    def end(self, within=TIMEOUT):
        """How it ended; nobody is left behind."""
        try:
            out, said = self.process.communicate(timeout=within)
            began = time.monotonic()
            while self.living() and time.monotonic() < began + 10:
                time.sleep(0.05)
            assert self.living() == {}
        finally:
            for left in self.living().values():
                os.kill(left, signal.SIGKILL)
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, said)


def train(ranks, *arguments, **environment):
    """`ups train` in so many processes; 0: without a launcher."""
    if ranks == 0:
        return ups("train", *arguments, env={**os.environ, **environment})
    return Ranks(ranks, "train", *arguments, **environment).end()


def good(done):
    assert done.returncode == 0, done.stderr
    assert "rank " not in done.stderr, done.stderr  # one tells what all do
    return done


def look(folder):
    """A run, but for what clocks and the number of processes change."""
    found = tree(folder)
    for name in found:
        if os.path.basename(name) == "metrics.jsonl":
            found[name] = metrics(os.path.join(folder, os.path.dirname(name)), clock=False)
    return found


def assert_same(found, expected):
    assert sorted(found) == sorted(expected)
    for name, content in expected.items():
        assert found[name] == content, name


class Place:
    """A run that is always made in the same folder, since it names its own path."""

    def __init__(self, runs, name):
        self.runs, self.config, self.folder = runs, runs.config("run", TEXTS[name]), runs.path("run")
        self.clear()
        good(train(0, self.config, "--quiet"))
        self.alone, self.kept = look(self.folder), runs.path("kept-" + name)
        shutil.copytree(self.folder, self.kept, symlinks=True)

    def clear(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def finished(self):
        self.clear()
        shutil.copytree(self.kept, self.folder, symlinks=True)


@pytest.fixture(scope="module")
def place(runs):
    made = {}

    def find(name):
        if name not in made:
            made[name] = Place(runs, name)
        made[name].runs.config("run", TEXTS[name])
        made[name].clear()
        return made[name]
    return find


def arithmetic(folder):
    """FLOP of a step, by line: all processes together compute what one would, and ranks take micro-batches of different tasks."""
    found = [line["flops_per_s"] * line["step_s"] for line in metrics(folder) if "loss" in line]
    assert len(set(map(round, found))) > 1
    return found


# ---- the same bytes ----

@pytest.mark.parametrize("name, ranks", [("adamw", 2), ("adamw", 4), ("muon", 2), ("muon", 4), ("grid", 2), ("grid", 4), ("fp16", 4)])
def test_reproducible_runs_are_the_same_to_the_byte_on_any_number_of_ranks(place, name, ranks):
    at = place(name)
    said = good(train(ranks, at.config)).stderr
    assert f"{ranks} processes train together" in said
    assert_same(look(at.folder), at.alone)
    assert_shown(at.folder)
    assert {line["ranks"] for line in metrics(at.folder) if "loss" in line} == {ranks}
    assert arithmetic(at.folder) == pytest.approx(arithmetic(at.kept), rel=1e-6)


def test_what_the_runs_above_hold_is_what_can_differ(place):
    """Shares of tasks changed, tasks have parameters of their own, losses took turns."""
    lines = [line for line in metrics(place("muon").kept) if line["stage"] == "operator"]
    assert len({json.dumps(line["sampling"]["shares"]) for line in lines if "sampling" in line}) > 4
    assert any({"one_step", "rollout"} <= set(line.get("losses", ())) for line in lines)
    saved = [name for name in os.listdir(os.path.join(place("muon").kept, "checkpoints", "operator")) if name.startswith("step-")]
    assert "step-%08d.safetensors" % STEPS in saved
    assert os.path.exists(os.path.join(place("grid").kept, "checkpoints", "operator", "stable.json"))
    lines = [line for line in metrics(place("fp16").kept) if line["stage"] == "operator" and "loss" in line]
    assert lines[-1]["step"] < STEPS and "loss_scale" in lines[-1]


def test_fields_encoded_on_the_fly_by_several_ranks_train_the_same_weights(place):
    at = place("adamw")
    good(train(2, at.config, "--set", "data.residency=encode", "--set", "stages=[autoencoder, operator]"))
    found = look(at.folder)
    assert not any(name.startswith("cache") for name in found)
    for name, content in found.items():
        if name.startswith(("checkpoints", "operator", "autoencoder")):
            assert content == at.alone[name], name


def test_sums_that_begin_during_backward_are_those_of_whole_gradients(runs):
    """Models of several buckets of a million gradients, and a micro-batch a rank: then the order of ranks is that of micro-batches."""
    text = (SUMMED.replace("hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, drop_path", "hidden: 320, depth: 2, heads: 2, mlp_ratio: 4, drop_path")
            .replace("decoder: {{hidden: 16, depth: 1,", "decoder: {{hidden: 512, depth: 1,").replace("seed: 3", "seed: 3\nstages: [autoencoder, operator]")
            .replace(f"steps: {STEPS}", "steps: 3").replace("from: 10}}", "from: 1}}").replace("from: 3\n    ramp: 10", "from: 1\n    ramp: 2")
            .replace("accumulation: 4", "accumulation: 2").replace("validation_batches: 2", "validation_batches: 1").replace("decode_threads: 1", "decode_threads: 1\n  residency: encode")
            .replace("rollout_steps: 3", "rollout_steps: 3\n  activation_checkpointing: block"))
    left = []
    for ranks, reproducible in ((0, "true"), (2, "false")):
        config, folder = runs.config("large", text), runs.path("large")
        shutil.rmtree(folder, ignore_errors=True)
        good(train(ranks, config, "--set", f"ranks.reproducible={reproducible}"))
        found = look(folder)
        left.append({name: content for name, content in found.items() if name.startswith(("checkpoints", "autoencoder", "operator"))})
        assert min(line["parameters"] for line in metrics(folder) if "parameters" in line) > 1.3e6
    assert_same(left[1], left[0])


def test_ranks_in_the_same_sums_agree_within_rounding(runs):
    folders = {}
    for ranks in (0, 2, 4):
        config = runs.config(f"summed{ranks}", SUMMED)
        good(train(ranks, config))
        folders[ranks] = [line for line in metrics(runs.path(f"summed{ranks}")) if "loss" in line]
    for ranks in (2, 4):
        assert [(line["stage"], line["step"]) for line in folders[ranks]] == [(line["stage"], line["step"]) for line in folders[0]]
        firsts = [(a["loss"], b["loss"]) for a, b in zip(folders[ranks], folders[0]) if a["stage"] == "autoencoder"]
        assert np.allclose(*zip(*firsts), rtol=2e-3)
        assert np.allclose(*firsts[0], rtol=1e-5)


def test_one_rank_by_mpirun_is_a_run_without_a_launcher(runs):
    config, folder = runs.config("single", SUMMED), runs.path("single")
    good(train(0, config))
    alone = look(folder)
    shutil.rmtree(folder)
    good(train(1, config))
    assert_same(look(folder), alone)
    assert not any("ranks" in line for line in metrics(folder))


def test_an_automatic_batch_size_is_rank_0s(runs):
    sets = ("--set", "autoencoder.batch_size=auto", "--set", "autoencoder.memory_limit=0.01", "--set", "operator.batch_size=auto",
            "--set", "operator.memory_limit=0.01", "--set", "autoencoder.steps=4", "--set", "operator.steps=4")
    config, folder = runs.config("auto", SAME), runs.path("auto")
    good(train(2, config, *sets))
    found = metrics(folder, clock=False)
    sizes = [line["batch_size"] for line in found if "batch_size" in line]
    assert len(sizes) == 2 and min(sizes) > 1
    good(train(2, folder, "--resume"))
    shutil.rmtree(folder)
    fixed = [f"--set={stage}.batch_size={size}" for stage, size in zip(("autoencoder", "operator"), sizes)]
    good(train(0, config, *sets, *fixed))
    again = metrics(folder, clock=False)
    for line in (*found, *again):
        line.pop("ranks", None)
    assert again == found


# ---- stopped ----

def stop(at, ranks, words, number, whom, *options):
    """Signals a run on its way, until it was met there; what it said, its exit code, and how long it then took to end."""
    for _ in range(20):
        at.clear()
        running = Ranks(ranks, "train", at.config, *options)
        said = running.wait_for(words)
        living = running.living()
        if whom in living:
            os.kill(living[whom], number)
        began = time.monotonic()
        done = running.end()
        if done.returncode != 0:
            return said + done.stderr, done.returncode, time.monotonic() - began
    pytest.fail("no signal met a running process")


def left_a_checkpoint(at, stage, said):
    sentences = [line for line in said.splitlines() if line.startswith("ups: ") or "error:" in line]
    assert len(sentences) == 1, said
    found = re.search(rf"{stage}: stopped at step (\d+) of \d+; --resume goes on from there", sentences[0])
    assert found, said
    return json.loads(Path(at.folder, "checkpoints", stage, "latest.json").read_text())["step"] == int(found[1])


@pytest.mark.parametrize("whom", [0, 1])
@pytest.mark.parametrize("ranks, then, stage", [(4, 2, "operator"), (2, 0, "autoencoder")])
def test_a_rank_that_is_stopped_stops_all_at_a_checkpoint_and_any_number_of_ranks_goes_on_to_the_same_bytes(place, ranks, then, stage, whom):
    at = place("muon")
    said, code, _ = stop(at, ranks, f"{stage}, step 8 of", signal.SIGTERM, whom)
    assert code == 143, said
    assert left_a_checkpoint(at, stage, said)
    good(train(then, at.folder, "--resume"))
    assert_same(look(at.folder), at.alone)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_mpirun_that_is_stopped_leaves_a_checkpoint(place, number):
    at = place("muon")
    longer = ("--stage", "autoencoder", "--set", "autoencoder.steps=20000", "--set", "autoencoder.validate_every=100")
    said, code, _ = stop(at, 4, "autoencoder, step 100 of", number, None, *longer)
    assert code == 1  # mpirun's own
    assert left_a_checkpoint(at, "autoencoder", said)


@pytest.mark.parametrize("whom", [0, 3, None], ids=["rank 0", "rank 3", "mpirun"])
def test_a_killed_process_ends_all_within_seconds_and_resume_goes_on(place, whom):
    at = place("muon")
    said, code, seconds = stop(at, 4, "operator, step 8 of", signal.SIGKILL, whom)
    assert code not in (0, 130, 143)
    assert seconds < 20
    good(train(2, at.folder, "--resume"))
    assert_same(look(at.folder), at.alone)


def test_a_cache_build_that_is_stopped_ends_all_and_goes_on(place):
    at = place("adamw")
    said, code, _ = stop(at, 2, "cache advection/train", signal.SIGTERM, 1)
    assert code == 143, said
    good(train(4, at.folder, "--resume"))
    assert_same(look(at.folder), at.alone)


MANY = 1500


@pytest.fixture(scope="module")
def many(runs):
    """A run that is about to build a cache of several hundred shards: that takes a while."""
    runs.generate("advection1d", "many.h5", MANY, "-r", "32", "--steps", "9")
    text = re.sub(r"  - name: darcy(\n    .*)*", "", SAME.replace("advection.h5", "many.h5")).replace(f"steps: {STEPS}", "steps: 2", 1)
    config = runs.config("many", text)
    good(train(0, config, "--stage", "autoencoder"))
    return config


def stop_a_cache_build(config, folder, number, whom, *options):
    """Signals a cache build of two ranks on its way; how it ended."""
    cache = Path(folder, "cache", "advection", "train", "latent", "c")
    for _ in range(20):
        shutil.rmtree(Path(folder, "cache"), ignore_errors=True)
        running = Ranks(2, "train", config, "--stage", "cache", *options)
        while running.process.poll() is None and not (cache.exists() and len(os.listdir(cache)) > 8):
            time.sleep(0.005)
        living = running.living()
        for rank in whom:
            if rank in living:
                os.kill(living[rank], number)
        done = running.end()
        if done.returncode != 0 and len(os.listdir(cache)) < MANY * 0.6 / 2:  # its training split, two samples a shard
            return done
    pytest.fail("no signal ended a cache build on its way")


@pytest.mark.parametrize("whom, number", [([0], signal.SIGTERM), ([1], signal.SIGTERM), ([1], signal.SIGINT), ([1, 0], signal.SIGTERM)])
def test_a_signal_while_the_cache_is_built_is_told_of_once(runs, many, whom, number):
    done = stop_a_cache_build(many, runs.path("many"), number, whom)
    told = [line for line in done.stderr.splitlines() if "cache: stopped" in line or "error:" in line]
    assert len(told) == 1 and told[0].startswith("ups: cache: stopped "), done.stderr
    assert done.returncode == 128 + number


@pytest.mark.parametrize("whom", [0, 1])
def test_a_stopped_cache_build_is_one_document_and_is_gone_on_with(runs, many, whom):
    done = stop_a_cache_build(many, runs.path("many"), signal.SIGTERM, [whom], "--json", "--quiet")
    document = json.loads(done.stdout)
    assert document["error"]["code"] == "cancelled" and document["error"]["message"].startswith("cache: stopped ")
    good(train(2, many, "--stage", "cache"))
    must("cache", "verify", runs.path("many", "cache"))


# ---- other ways ----

def compared(at, command, ranks=(0, 2)):
    """What a command on the finished run leaves, in so many processes; it must be the same."""
    left = []
    for count in ranks:
        at.finished()
        other = at.runs.path("other")
        shutil.rmtree(other, ignore_errors=True)
        good(train(count, at.config, *command))
        left.append({name: look(folder) for name, folder in (("run", at.folder), ("other", other)) if os.path.exists(folder)})
    assert left[0].keys() == left[1].keys()
    for name in left[0]:
        assert_same(left[1][name], left[0][name])
    return left[1]


def test_an_extended_run_is_what_one_process_makes_of_it(place):
    at = place("adamw")
    left = compared(at, ["--extend", "--set", f"operator.steps={STEPS + 8}"])
    assert f"checkpoints/operator/step-{STEPS + 8:08d}.safetensors" in left["run"]
    left = compared(at, ["--extend", "--set", f"autoencoder.steps={STEPS + 4}"])
    assert f"checkpoints/autoencoder/step-{STEPS + 4:08d}.safetensors" in left["run"]


def test_an_extended_run_goes_on_from_before_the_decay_of_its_rate(place):
    at = place("grid")
    left = compared(at, ["--extend", "--set", f"operator.steps={STEPS + 8}"], ranks=(0, 4))
    assert f"checkpoints/operator/step-{STEPS + 8:08d}.safetensors" in left["run"]


def test_a_restarted_run_is_the_one_before(place):
    at = place("muon")
    at.finished()
    good(train(4, at.config, "--restart"))
    assert_same(look(at.folder), at.alone)


def test_a_fork_is_what_one_process_makes_of_it(place):
    at = place("adamw")
    left = compared(at, ["--fork", at.runs.path("other"), "--set", "operator.optimizer.learning_rate=0.001"])
    assert_same(left["run"], at.alone)
    assert left["other"]["operator.safetensors"] != at.alone["operator.safetensors"]


def test_a_stage_alone_and_a_finished_run(place):
    at = place("adamw")
    for stage in ("autoencoder", "cache", "operator"):
        good(train(2, at.config, "--stage", stage))
    assert_same(look(at.folder), at.alone)
    said = good(train(2, at.config)).stderr
    assert said.count("finished earlier, skipped") == 2
    assert_same(look(at.folder), at.alone)
    told = good(train(2, at.folder)).stdout
    assert told.count("nothing to do") == 3


def test_one_document_is_printed(place):
    at = place("adamw")
    told = json.loads(good(train(2, at.config, "--json", "--quiet")).stdout)
    assert told["stages"]["operator"]["steps"] == STEPS


def test_a_plan_is_of_each_rank_and_printed_once(place):
    at = place("adamw")
    sums = ("--set", "ranks.reproducible=false")
    plan = good(train(2, at.config, "--plan", *sums)).stdout
    assert plan.count("of each of 2 ranks, for 2 of the 4 micro-batches of a step") == 2
    assert plan.count("sums over processes") == plan.count("  total ") == 2
    assert not Path(at.folder, "config.yaml").exists()
    one, several = (json.loads(good(train(ranks, at.config, "--plan", "--json", *sums)).stdout) for ranks in (0, 4))
    assert one.keys() == several.keys() == {"autoencoder", "cache", "operator"}
    assert one["cache"]["latents"] == several["cache"]["latents"]  # of all ranks
    for stage in ("autoencoder", "operator"):
        alone, each = one[stage], several[stage]
        assert each["ranks"] == 4 and "ranks" not in alone
        assert alone["exchange"] == 0 and each["exchange"] > 4 * each["trainable_parameters"]
        assert each["parameters"] == alone["parameters"] and each["activations"] == alone["activations"]
        assert each["total"] == alone["total"] + each["exchange"]  # device.threads and data.decode_threads are numbers
    free = re.compile(r"[\d.]+ GB are free")  # the room on the disk, which others change
    none, single = (good(train(ranks, at.config, "--plan")).stdout for ranks in (0, 1))
    assert "ranks" not in none
    assert len(free.findall(none)) == 1 and free.sub("", single) == free.sub("", none)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one processor, which nobody can share")
def test_a_plan_of_ranks_has_their_part_of_the_processors(place):
    at = place("adamw")
    free = ("--set", "data.decode_threads=0", "--set", "device.threads=0", "--set", "data.residency=stream")
    alone, each = (json.loads(good(train(ranks, at.config, "--plan", "--json", *free)).stdout)["operator"] for ranks in (0, 4))
    assert each["loader"] < alone["loader"] and each["workspace"] <= alone["workspace"]


def test_paths_are_those_of_rank_0(runs, place):
    """A relative output and data; all ranks find them."""
    at = place("adamw")
    Path(at.config).write_text(SAME.format(output="run", data="data"))
    done = Ranks(2, "train", "run.yaml", command=["sh", "-c", f'cd {runs.folder} && exec {UPS} "$@"', "sh"]).end()
    good(done)
    found = look(at.folder)
    for name, content in at.alone.items():
        if name.startswith(("checkpoints", "autoencoder", "operator", "cache/advection/train/latent/c")):
            assert found[name] == content, name


# ---- refused ----

def test_ranks_that_cannot_share_a_step_are_refused_before_anything_is_written(place):
    at = place("adamw")
    done = train(3, at.config)
    one_sentence(done, "autoencoder: 3 processes cannot share a step of 4 micro-batches; set autoencoder.accumulation to a multiple of 3, or start another number of processes")
    assert not os.path.exists(at.folder)
    done = train(2, at.config, "--set", "operator.accumulation=1")
    one_sentence(done, "operator: 2 processes cannot share a step of 1 micro-batch; set operator.accumulation to a multiple of 2")
    assert not os.path.exists(at.folder)
    done = train(3, at.config, "--plan", "--json")
    assert json.loads(done.stdout)["error"]["message"] == one_sentence(done, "autoencoder: 3 processes cannot share a step of 4 micro-batches").removeprefix("ups: ")
    at.finished()
    one_sentence(train(3, at.config, "--extend", "--set", f"operator.steps={STEPS + 3}"), "operator: 3 processes cannot share")
    assert_same(look(at.folder), at.alone)


def test_a_wrong_configuration_is_said_once(place):
    at = place("adamw")
    for command in (["--set", "operator.steps=many"], ["--set", "data.root=/nowhere", "--json"]):
        done = train(4, at.config, *command)
        one_sentence(done)
        assert not done.stdout or json.loads(done.stdout)["error"]
    assert not os.path.exists(at.folder)


def test_what_every_process_finds_by_itself_is_said_once(place):
    at = place("adamw")
    done = train(3, at.config, UPS_MPI_MODULE="/nowhere.so")
    one_sentence(done, "mpirun started 3 processes, which cannot train one model together", "/nowhere.so")
    done = train(3, at.config, "--sweep", "operator.optimizer.learning_rate=1e-3,3e-3")
    one_sentence(done, "--sweep trains one run after the other in one process", code=2)
    one_sentence(train(3, at.config, "--wrong"), "--wrong", code=2)
    done = train(3, at.config, "--json", "--wrong")
    assert json.loads(done.stdout)["error"]["code"] == "usage"
    assert train(3, "--help").stdout.count("Examples:") == 1
    assert not os.path.exists(at.folder)


def test_ranks_that_round_in_different_ways_are_refused_once(place):
    at = place("adamw")
    alike = Ranks(2, "train", at.config, command=["sh", "-c", f'[ $OMPI_COMM_WORLD_RANK = 0 ] || export UPS_CPU=baseline; exec {UPS} "$@"', "sh"]).end()
    one_sentence(alike, "autoencoder: rank 1 computes on another device than rank 0")
    assert not Path(at.folder, "checkpoints").exists()


@pytest.mark.parametrize("failing", ["0", "1", "123", "0123"])
def test_whichever_ranks_fail_a_script_reads_one_document(place, failing):
    """They cannot read a file of the data, which is seen as each opens it: the others wait for them in a sum or wherever they are."""
    at = place("adamw")
    at.finished()
    faulty = f'case {failing} in *$OMPI_COMM_WORLD_RANK*) export LD_PRELOAD={program("libups_faults.so")} UPS_FAULT=read:1+:EIO:darcy.h5;; esac; exec {UPS} "$@"'
    done = Ranks(4, "train", at.config, "--extend", "--set", "operator.steps=4000", "--json", command=["sh", "-c", faulty, "sh"]).end()
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "io" and re.search("darcy.h5.*Input/output error", error["message"])
    who = re.match(r"rank (\d): ", error["message"])
    assert who[1] in failing if who else "0" in failing
    assert who or one_sentence(done).endswith(error["message"])


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("launcher, names", [("srun", ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")), ("mpiexec", ("PMI_RANK", "PMI_SIZE"))])
def test_processes_that_do_not_find_each_other_say_what_started_them(place, launcher, names, rank):
    at = place("adamw")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = train(0, at.config, **root, **dict(zip(names, (str(rank), "2"))))
    assert ("srun --mpi=pmix" in done.stderr) == (launcher == "srun" and rank == 0)
    one_sentence(done, f"{launcher} started 2 processes, and 1 of them find each other: this ups was built for .*MPI.*, whose own launcher it wants")
    assert not os.path.exists(at.folder)


def test_a_run_that_another_command_has_is_refused_once(place):
    at = place("adamw")
    first = Ranks(2, "train", at.config, "--set", "autoencoder.steps=2000")
    first.wait_for("autoencoder, step 4 of")
    one_sentence(train(2, at.config, "--resume"), "at work|another")
    os.kill(first.living()[0], signal.SIGTERM)
    assert first.end().returncode in (130, 143)


# ---- samples ----

@pytest.fixture
def poisoned(runs, place):
    """A run whose autoencoder is finished, and in whose data one trajectory holds a NaN since: only who draws it for the operator sees that."""
    at, path = place("adamw"), os.path.join(runs.data, "advection.h5")
    good(train(0, at.config, "--stage", "autoencoder"))
    shutil.copytree(at.folder, runs.path("begun"), symlinks=True)
    shutil.copyfile(path, runs.path("sound.h5"))
    chunk = Path(at.kept, "cache", "advection", "train", "source_sample", "c", "0").read_bytes()[:-4]
    at.sample = int(np.frombuffer(chunk, "<i8")[1])
    with h5py.File(path, "r+") as file:
        file["tensor"][at.sample, 3] = np.nan
    yield at
    shutil.copyfile(runs.path("sound.h5"), path)
    shutil.rmtree(runs.path("begun"))


ON_THE_FLY = ("--stage", "operator", "--set", "data.residency=encode")


def test_a_bad_sample_that_some_rank_draws_ends_all_and_is_named(poisoned):
    done = train(4, poisoned.config, *ON_THE_FLY, "--json")
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "numeric" and "NaN" in error["message"]
    said = [line for line in done.stderr.splitlines() if "NaN" in line]
    assert said and all(re.search(rf"tensor\[{poisoned.sample}\]|sample {poisoned.sample}\b", line) and "on_bad_sample" in line for line in said), done.stderr


def test_a_bad_sample_is_skipped_by_whoever_draws_it_to_the_same_bytes(runs, poisoned):
    left = []
    for ranks in (0, 4):
        poisoned.clear()
        shutil.copytree(runs.path("begun"), poisoned.folder, symlinks=True)
        done = train(ranks, poisoned.config, *ON_THE_FLY, "--set", "data.on_bad_sample=skip")
        assert done.returncode == 0, done.stderr
        assert re.search(rf"(tensor\[{poisoned.sample}\]|sample {poisoned.sample}\b).*NaN", done.stderr), done.stderr
        left.append(look(poisoned.folder))
    assert_same(*left)


def test_a_loss_that_is_not_finite_names_the_samples_that_one_process_names(runs, place):
    at = place("adamw")
    sets = ("--set", "autoencoder.optimizer.learning_rate=10", "--set", "autoencoder.optimizer.clip=0", "--set", "autoencoder.optimizer.warmup_steps=0",
            "--set", "autoencoder.optimizer.weight_decay=10", "--set", "autoencoder.steps=4000", "--set", "autoencoder.optimizer.ema_decay=0")
    sentences = []
    for ranks in (0, 2, 4):
        at.clear()
        sentences.append(one_sentence(train(ranks, at.config, *sets), "is not finite; the batch held "))
    assert sentences[1] == sentences[0] and sentences[2] == sentences[0]


def test_a_spike_is_said_once_with_the_samples_that_one_process_names(place):
    at = place("adamw")
    sets = ("--set", "autoencoder.steps=300", "--set", "autoencoder.spike_factor=1.2", "--stage", "autoencoder")
    spikes = []
    for ranks in (0, 4):
        at.clear()
        said = good(train(ranks, at.config, *sets)).stderr
        spikes.append([line.partition("] ")[2] for line in said.splitlines() if "the loss spiked" in line])
    assert len(spikes[0]) > 1
    assert spikes[1] == spikes[0]


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_device_that_works_beside_the_host_sums_to_the_bytes_of_the_cpu(place, ranks):
    at = place("muon")
    late = {"UPS_TEST_DEVICE": "test-async", "UPS_TEST_INPUT_SETS": "2", "UPS_MPI_MODULE": program("libups_mpi.so")}
    good(Ranks(ranks, "train", at.config, command=[program("ups_async")], **late).end())
    assert_same(look(at.folder), at.alone)
