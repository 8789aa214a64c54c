"""Commands that work on one cache together: builds side by side, some of them killed; more files; damage repaired. The
result is always that of one undisturbed build."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from commands import TIMEOUT, UPS, one_sentence, ups
from sealed import rewrite
from tiny_run import CONFIG, tree

PROCESSES = 4
KILLS = int(os.environ.get("UPS_TEST_KILLS", "8"))
LONGER = CONFIG.replace("files: [advection.h5]", "files: [advection.h5, more.h5]")


SAMPLES = 30


@pytest.fixture(scope="module")
def config(runs):
    config = runs.config("run")
    runs.must("train", config, "--stage", "autoencoder")
    return config


@pytest.fixture(scope="module")
def cache(runs, config):
    return runs.path("run", "cache")


@pytest.fixture(scope="module")
def seconds(runs, config):
    """How long one undisturbed build takes."""
    began = time.monotonic()
    runs.must("cache", "build", config)
    return time.monotonic() - began


@pytest.fixture(scope="module")
def alone(cache, seconds):
    """What one undisturbed build makes."""
    return tree(cache)


@pytest.fixture(autouse=True)
def no_cache(cache, alone):
    shutil.rmtree(cache, ignore_errors=True)


def start(config, **environment):
    return subprocess.Popen([UPS, "cache", "build", config, "--json"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})


def test_four_commands_build_one_cache_and_share_the_work(alone, cache, config):
    builders = [start(config, OMPI_COMM_WORLD_RANK=str(r), OMPI_COMM_WORLD_SIZE=str(PROCESSES)) for r in range(PROCESSES)]
    encoded = 0
    for builder in builders:
        out, message = builder.communicate(timeout=TIMEOUT)
        assert builder.returncode == 0, message
        groups = json.loads(out)
        assert len(groups) == 6  # each reports on the whole
        assert sum(g["samples"] for g in groups) == 60
        encoded += sum(g["encoded"] for g in groups)
    assert encoded == 60
    assert tree(cache) == alone


def test_commands_killed_at_random_leave_their_work_to_the_others(runs, alone, cache, config, seconds):
    moments = random.Random(time.time_ns())
    killed = 0
    while killed < KILLS:
        shutil.rmtree(cache, ignore_errors=True)
        builders = [start(config) for _ in range(PROCESSES)]
        for victim in moments.sample(builders, 2):
            time.sleep(moments.random() * seconds)
            victim.send_signal(signal.SIGKILL)
        for builder in builders:
            message = builder.communicate(timeout=TIMEOUT)[1]
            assert builder.returncode in (0, -signal.SIGKILL), message
            killed += builder.returncode != 0
        runs.must("cache", "build", config)  # one killed when all was done leaves its record to the next
        assert tree(cache) == alone


def test_what_a_builder_killed_at_the_very_end_left_goes_when_the_cache_is_verified(runs, alone, cache, config):
    runs.must("cache", "build", config)
    left = os.path.join(cache, "advection", "train", ".building")
    os.mkdir(left)
    dead = subprocess.Popen(["true"])
    dead.wait()
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    with open(os.path.join(left, "builder-dead"), "w", encoding="utf-8") as file:
        json.dump({"host": "here", "pid": dead.pid, "boot": boot, "pid_space": os.readlink("/proc/self/ns/pid"), "started": 1, "purpose": "x"}, file)
    os.symlink("builder-dead", os.path.join(left, "shard-0"))
    runs.must("cache", "verify", cache)
    assert tree(cache) == alone


def test_a_build_of_what_is_there_writes_nothing_anew(runs, alone, cache, config):
    runs.must("cache", "build", config)
    before = {name: os.stat(os.path.join(cache, name)).st_ino for name in alone}
    runs.must("cache", "build", config)
    assert {name: os.stat(os.path.join(cache, name)).st_ino for name in alone} == before


def test_a_cache_under_construction_is_not_removed(runs, alone, cache, config):
    runs.must("cache", "build", config)
    group = os.path.join(cache, "advection", "train", ".building")
    os.mkdir(group)
    with open(os.path.join(group, "builder-elsewhere"), "w", encoding="utf-8") as file:
        json.dump({"host": "node3", "pid": 7, "boot": "b", "pid_space": "p", "started": 1, "purpose": "x"}, file)
    one_sentence(runs.run("cache", "build", config, "--restart"), "process 7 on node3 is at work in it")
    last = os.path.join(cache, "darcy", "validation", ".building")
    shutil.move(group, last)
    one_sentence(runs.run("cache", "build", config, "--restart"), "process 7 on node3 is at work in it")
    shutil.rmtree(last)
    done = ups("cache", "build", config, "--restart", env={**os.environ, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"})
    assert "removed by one process alone" in done.stderr
    assert tree(cache) == alone


def test_more_files_extend_a_cache_to_the_bytes_of_a_build_from_nothing(runs, cache, config):
    runs.generate("advection1d", "more.h5", 9, "-r", "32", "--steps", "9", "--seed", "5")
    longer = runs.config("longer", text=LONGER, output=runs.path("run"))
    runs.must("cache", "build", config)
    shards = {name: os.stat(os.path.join(cache, name)).st_mtime_ns for name, of in tree(cache).items()
              if of and name.startswith("advection") and "latent/c" in name}
    extended = runs.told("cache", "build", longer)
    assert sum(g["encoded"] for g in extended) < 20  # 9 new ones, and those of last shards
    assert [g["extended_from"] > 0 for g in extended] == [True] * 3 + [False] * 3
    kept = sum(os.stat(os.path.join(cache, name)).st_mtime_ns == then for name, then in shards.items())
    assert kept >= len(shards) - 3
    found = tree(cache)
    runs.must("cache", "build", longer, "--restart")
    assert found == tree(cache)
    refused = runs.run("cache", "build", config)
    assert refused.returncode == 1
    assert "was made of 2 files, now there are 1" in refused.stderr
    shutil.rmtree(cache)


def damage(cache):
    shard = os.path.join(cache, "advection", "train", "latent", "c", "2", "0", "0", "0")
    with open(shard, "r+b") as file:
        file.seek(20)
        file.write(b"\x55\xaa\x55")
    os.remove(os.path.join(cache, "darcy", "test", "latent", "c", "1", "0", "0", "0"))
    Path(cache, "darcy", "train", "statistics", "zarr.json").write_text("{")


def test_what_is_broken_is_repaired_and_nothing_else(runs, alone, cache, config):
    runs.must("cache", "build", config)
    for operand in (config, cache):
        damage(cache)
        shutil.copy(config, runs.path("run", "config.yaml"))
        assert runs.run("cache", "verify", cache).returncode == 1
        answer = runs.told("cache", "verify", "--repair", operand)
        repaired = {os.path.relpath(g["directory"], cache): g["repaired"] for g in answer if "repaired" in g}
        assert repaired == {"advection/train": {"shards": 1, "encoded": 2, "sound": True},
                            "darcy/test": {"shards": 1, "encoded": 2, "sound": True},
                            "darcy/train": {"shards": 0, "encoded": 0, "sound": True}}
        assert tree(cache) == alone


def test_damaged_documents_are_written_again(runs, alone, cache, config):
    """From the copy that the latents' document keeps; without it the shards are built again as well."""
    runs.must("cache", "build", config)
    own, latents, root = (os.path.join(cache, *names, "zarr.json") for names in (("darcy", "test"), ("darcy", "test", "latent"), ()))
    for files, encoded in (((own,), 0), ((latents,), 0), ((root,), 0), ((own, latents), 6)):
        for file in files:
            Path(file).write_text("{")
        assert runs.run("cache", "verify", cache).returncode == 1
        answer = runs.told("cache", "verify", "--repair", config)
        repaired = [g["repaired"] for g in answer if "repaired" in g]  # the root's by the first group below it
        assert [(r["encoded"], r["sound"]) for r in repaired] == [(encoded, True)]
        assert tree(cache) == alone


def test_a_cache_of_another_encoder_is_not_repaired(runs, cache, config):
    runs.must("cache", "build", config)
    group = os.path.join(cache, "darcy", "test")
    rewrite(group, lambda attributes: attributes["fingerprint"].update(encoder_weights="0" * 32))
    os.remove(os.path.join(group, "latent", "zarr.json"))
    before = tree(cache)
    one_sentence(runs.run("cache", "verify", "--repair", config), "another encoder weights")
    assert tree(cache) == before
    shutil.rmtree(group)
