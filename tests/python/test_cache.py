"""Latent caches against zarr-python: what it reads is what was put in and what `ups cache export` writes, bit for bit."""

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from commands import CACHE_SHAPE, TREE, make_cache, run, same, ups


def read_group(cache):
    return zarr.open_group(cache, mode="r")["waves/train"]


def test_without_the_plug_in_a_portable_cache_is_read_and_another_one_says_what_it_needs(scratch):
    assert importlib.util.find_spec("ups_zarr") is None, "the plug-in is installed already; this part would prove nothing"
    cache = os.path.join(scratch, "portable")
    expected = make_cache(cache, "portable")
    group = read_group(cache)
    assert same(group["latent"][:], expected), "a portable cache reads in zarr-python without the plug-in"
    assert same(group["latent"][4], expected[4]) and same(group["latent"][8, 20], expected[8, 20]), "so does one trajectory, and one frame of it"
    latents = os.path.join(scratch, "latents")
    make_cache(latents)
    with pytest.raises(Exception, match="ups.latent"):
        read_group(latents)["latent"][0]
    check_small_arrays(read_group(latents))


def check_small_arrays(group):
    assert same(group["time"][:], 0.05 * np.arange(CACHE_SHAPE[1])), "times read as float64"
    condition = group["condition"][:]
    assert np.array_equal(condition[:, 0], 0.1 * np.arange(9)) and np.array_equal(np.isnan(condition[:, 1]), np.arange(9) % 3 == 0), \
        "conditions read as float64, unknown ones NaN"
    assert same(group["source_sample"][:], np.arange(9)), "source samples read as int64"
    statistics = group["statistics"]
    columns = statistics.attrs["columns"]
    values = statistics[:]
    assert values.shape == (9, len(columns)), "statistics have a row a sample and a column a name"
    assert not values[:, columns.index("non_finite")].any() and not values[:, columns.index("overflowing")].any(), "every value was finite and fitted"


def test_all_holds_with_the_installed_plug_in(scratch):
    """Installed into a folder of its own, as a user would into an environment; zarr-python finds it where it starts."""
    source, target = os.path.join(scratch, "plugin"), os.path.join(scratch, "site")
    shutil.copytree(TREE / "tools/python", source)
    done = run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check",
               "--target", target, source)
    assert done.returncode == 0, done.stderr
    done = run(sys.executable, "-m", "pytest", os.path.join(os.path.dirname(__file__), "zarr_plugin.py"), env=dict(os.environ, PYTHONPATH=target))
    assert done.returncode == 0, done.stdout


def test_the_commands_find_a_sound_cache_sound_and_name_what_is_not(scratch):
    cache = os.path.join(scratch, "commands")
    make_cache(cache, "skip=2")
    facts = json.loads(ups("cache", "inspect", cache, "--json").stdout)
    assert facts[0]["present"] == 8 and facts[0]["shape"]["dim"] == 32 and facts[0]["ratio"] > 1, "inspect --json tells samples, shape and ratio"
    png = os.path.join(scratch, "latent.png")
    done = ups("cache", "inspect", cache, "--sample", 1, "--png", png)
    assert done.returncode == 0 and open(png, "rb").read(8) == b"\x89PNG\r\n\x1a\n", "inspect --png draws a trajectory"
    done = ups("cache", "inspect", cache, "--sample", 9)
    assert done.returncode == 1 and "the last is 8" in done.stderr, "a sample that is not there is a sentence"
    done = ups("cache", "verify", cache, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)[0]["sound"] is True, "verify finds a sound cache sound"
    path = os.path.join(cache, "waves/train/latent/c/1/0/0/0")
    damaged = bytearray(Path(path).read_bytes())
    damaged[100] ^= 1
    Path(path).write_bytes(damaged)
    done = ups("cache", "verify", cache)
    assert done.returncode == 1 and path in done.stdout and "sample 4" in done.stdout, \
        "verify names shard and sample of a flipped bit, and ends with 1"
    done = ups("cache", "verify", os.path.join(scratch, "nothing"))
    assert done.returncode == 1 and "nothing" in done.stderr, "a directory that is not there is a sentence"
    done = ups("cache", "export", cache + "/waves/train", "-o", os.path.join(scratch, "damaged.npy"))
    assert done.returncode == 1 and not os.path.exists(os.path.join(scratch, "damaged.npy")), "export of a damaged cache fails and leaves no file"
