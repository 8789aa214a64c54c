"""Files that commands write: only what UPS wrote before as the same kind is replaced, and never what is read; names of fields that no file can have."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from commands import one_sentence
from tiny_run import tree

SHORT = ["--set", "autoencoder.steps=2", "--set", "operator.steps=2"]
CACHE = "trained/cache/advection/train"

# What is written, by a command that ends in the name of the file; and the word for it, or --force.
WRITERS = {
    "rollout": (["rollout", "trained", "--task", "advection", "-n", "1", "-o"], "rollout"),
    "netcdf": (["rollout", "trained", "--task", "advection", "-n", "1", "-o"], "rollout"),
    "evaluation": (["eval", "trained", "-o"], "evaluation"),
    "page": (["eval", "trained", "--html"], "page"),
    "report": (["report", "trained", "-o"], "page"),
    "cache": (["cache", "inspect", "trained", "--html"], "page"),
    "picture": (["cache", "inspect", CACHE, "--png"], "picture"),
    "latents": (["cache", "export", CACHE, "-o"], "--force"),
    "hdf5": (["cache", "export", CACHE, "--format", "hdf5", "-o"], "--force"),
    "dump": (["data", "dump", "data/advection.h5", "-o"], "--force"),
}


@pytest.fixture(scope="module", autouse=True)
def trained(runs):
    runs.must("train", runs.config("trained"), "--quiet", *SHORT)


def command(runs, kind, path):
    words, _ = WRITERS[kind]
    return [runs.path(word) if word.startswith(("trained", "data/")) else word for word in words] + [path]


def name_of(kind):
    return "again.nc" if kind == "netcdf" else f"{kind}.out"


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_of_the_users_stays_as_it_is(runs, scratch, kind):
    path = os.path.join(scratch, name_of(kind))
    for there in (b"", b"mine", Path(runs.data, "darcy.h5").read_bytes()):
        Path(path).write_bytes(there)
        one_sentence(runs.run(*command(runs, kind, path)), path, "name another file|exists already", WRITERS[kind][1])
        assert Path(path).read_bytes() == there and os.listdir(scratch) == [os.path.basename(path)]


def test_two_outputs_are_two_files(runs, scratch):
    path = os.path.join(scratch, "one")
    one_sentence(runs.run("eval", runs.path("trained"), "-o", path, "--html", path), path, "name one file")
    assert os.listdir(scratch) == []


@pytest.mark.parametrize("kind", WRITERS)
def test_a_command_can_be_repeated(runs, scratch, kind):
    path = os.path.join(scratch, name_of(kind))
    again = ["--force"] if WRITERS[kind][1] == "--force" else []
    done = runs.run(*command(runs, kind, path))
    if "without the NetCDF-C library" in done.stderr:
        pytest.skip("this build has no NetCDF-C")
    assert done.returncode == 0, done.stderr
    first = os.stat(path)
    runs.must(*command(runs, kind, path), *again)
    assert os.stat(path).st_ino != first.st_ino and os.path.getsize(path) > 0


@pytest.mark.parametrize("kind", WRITERS)
def test_a_folder_that_is_not_there_or_a_directory_is_told_of_before_the_work(runs, scratch, kind):
    absent = os.path.join(scratch, "absent", name_of(kind))
    one_sentence(runs.run(*command(runs, kind, absent)), absent, "absent")
    one_sentence(runs.run(*command(runs, kind, scratch)), scratch, "is a directory")


@pytest.mark.parametrize("link", [os.symlink, os.link, None])
def test_the_data_are_never_replaced_even_where_they_are_a_rollout(runs, link):
    """A rollout is data as well: what tells the two apart is that this run was trained on it."""
    folder = Path(runs.path(runs.fresh()))
    folder.mkdir()
    data = str(folder / "advection.h5")
    runs.must("rollout", runs.path("trained"), "--task", "advection", "-n", "12", "--split", "train", "-o", data)
    run = runs.config("on_rollouts" + folder.name, data=str(folder))
    text = Path(run).read_text()
    Path(run).write_text(text.replace("  - name: darcy\n    files: [darcy.h5]\n    patch: [4]\n", ""))
    runs.must("train", run, "--quiet", *SHORT)
    path, before = data, Path(data).read_bytes()
    if link:
        path = str(folder / "other.h5")
        link(data, path)
    one_sentence(runs.run("rollout", run, "-o", path, *SHORT), path, "which the command reads")
    one_sentence(runs.run("data", "dump", data, "-o", path, "--force"), path, "which the command reads")
    one_sentence(runs.run("config", "init", data, "-o", path, "--force"), path, "which the command reads")
    one_sentence(runs.run("datagen", "advection1d", "--initial", data, "-o", path, "--force"), path, "which the command reads")
    assert Path(data).read_bytes() == before


@pytest.mark.parametrize("option, kind", [("--png", ""), ("--png", "-profiles"), ("--animate", "-animation")])
def test_pictures_of_a_rollout_replace_pictures_of_rollouts_alone(runs, scratch, option, kind):
    rollout = ["rollout", runs.path("trained"), "--task", "advection", "--sample", "0", "-o", scratch + "/out.h5", option, scratch + "/pictures"]
    runs.must(*rollout)
    runs.must(*rollout)
    picture = os.path.join(scratch, "pictures", f"advection-0-u{kind}.png")
    os.remove(picture)
    os.symlink(os.path.join(runs.data, "darcy.h5"), picture)
    os.remove(scratch + "/out.h5")
    before = tree(runs.data)
    one_sentence(runs.run(*rollout), picture, "name another file|which the command reads")
    assert tree(runs.data) == before and not os.path.exists(scratch + "/out.h5")


FIELDS = ["a/b", "a%2Fb", "u", "u_truth", "u truth", "v/"]


@pytest.fixture(scope="module")
def named(runs):
    """A run on fields whose names are hard to write."""
    with h5py.File(runs.path("data", "named.h5"), "w") as file:
        values = np.random.default_rng(1).standard_normal((12, 5, 16, len(FIELDS)))
        file["all"] = np.cumsum(values, axis=1).astype(np.float32)
    fields = ", ".join(f'"{name}": {{array: all, channel: {c}}}' for c, name in enumerate(FIELDS))
    config = runs.config("named")
    text = Path(config).read_text()
    begin, end = text.index("  - name: advection"), text.index("model:")
    layout = f"{{fields: {{{fields}}}, axes: [sample, time, x, channel]}}"
    Path(config).write_text(f"{text[:begin]}  - name: hard\n    files: [named.h5]\n    patch: [4]\n    layout: {layout}\n{text[end:]}")
    runs.must("train", config, "--quiet", *SHORT)
    return config


def test_each_field_has_a_picture_of_its_own_whatever_it_is_called(runs, named, scratch):
    runs.must("rollout", named, *SHORT, "--sample", "0", "-o", scratch + "/out.h5", "--png", scratch + "/pictures", "--animate", scratch + "/films")
    names = ["a%2Fb", "a%252Fb", "u", "u_truth", "u truth", "v%2F"]
    assert sorted(os.listdir(scratch + "/pictures")) == sorted(f"hard-0-{name}{kind}.png" for name in names for kind in ("", "-profiles"))
    assert sorted(os.listdir(scratch + "/films")) == sorted(f"hard-0-{name}-animation.png" for name in names)


def test_each_field_and_its_truth_have_a_variable_in_netcdf(runs, named, scratch):
    done = runs.run("rollout", named, *SHORT, "--sample", "0", "-o", scratch + "/out.nc")
    if "without the NetCDF-C library" in done.stderr:
        pytest.skip("this build has no NetCDF-C")
    assert done.returncode == 0, done.stderr
    runs.must("rollout", named, *SHORT, "--sample", "0", "-o", scratch + "/out.h5")
    with h5py.File(scratch + "/out.nc") as file, h5py.File(scratch + "/out.h5") as other:
        told = {item.attrs["long_name"].decode() if isinstance(item.attrs["long_name"], bytes) else item.attrs["long_name"]: item[0]
                for item in file.values() if item.ndim == 3}
        for c, name in enumerate(FIELDS):
            assert np.array_equal(told[f"{name}, predicted"], other["0000/data"][..., c])
            assert np.array_equal(told[f"{name}, as the data have it"], other["0000/truth"][..., c])
    assert len(told) == 2 * len(FIELDS)
