"""Where the machine has no more to give (ulimit -f, -n, -v): a command does its work or ends with one sentence that says
which limit it met, never by a signal, and leaves nothing half-written."""

import os
import re
import resource
import shutil

import h5py
import numpy as np

from commands import limit, one_sentence, ups
from tiny_run import tree

KIB, MIB = 1 << 10, 1 << 20


def limited(which, value, *arguments):
    return ups(*arguments, "--quiet", preexec_fn=limit(which, value))


def all_commands(runs, config, folder):
    """What reads and what writes; the last two begin with nothing but a model, or nothing."""
    field, group = os.path.join(runs.data, "advection.h5"), os.path.join(folder, "cache", "advection", "train")
    yield ["data", "dump", field, "-o", os.path.join(folder, "dump.npy")]
    yield ["datagen", "advection1d", "-o", os.path.join(folder, "made.h5"), "-n", "8", "-r", "64", "--steps", "20"]
    yield ["cache", "inspect", os.path.join(folder, "cache"), "--html", os.path.join(folder, "page.html")]
    yield ["cache", "export", group, "-o", os.path.join(folder, "latents.npy")]
    yield ["cache", "export", group, "--format", "hdf5", "-o", os.path.join(folder, "latents.h5")]
    yield ["eval", config]
    yield ["rollout", config, "-o", os.path.join(folder, "rollout.h5")]
    if "ups rollout" not in ups("doctor").stdout:  # which says there that NetCDF-C is missing
        yield ["rollout", config, "-o", os.path.join(folder, "rollout.nc")]
    shutil.rmtree(os.path.join(folder, "cache"))
    yield ["cache", "build", config]
    shutil.rmtree(folder)
    yield ["train", config]


def nothing_half_written(runs, before):
    after = tree(runs.folder)
    assert [name for name in after if "partial" in name] == []
    for name in after.keys() - before.keys():
        assert not name.endswith((".npy", ".h5", ".nc", ".html", ".safetensors")), name


def test_a_limit_on_file_size_is_told_and_leaves_nothing_half_written(runs, trained):
    for kib in (0, 1):
        config, folder = runs.copy("trained")
        for command in all_commands(runs, config, folder):
            before = tree(runs.folder)
            one_sentence(limited(resource.RLIMIT_FSIZE, kib * KIB, *command), re.escape(folder), r"the limit on file size \(ulimit -f\) was reached")
            nothing_half_written(runs, before)
        shutil.rmtree(folder, ignore_errors=True)


def test_little_address_space_is_no_reason_to_crash(runs, trained):
    field = os.path.join(runs.data, "advection.h5")
    for mib in (110, 125, 150, 200, 400, 1000, 2000):
        config, folder = runs.copy("trained")
        few = [["cache", "build", config], ["train", config]]
        for command in [["data", "inspect", field], *all_commands(runs, config, folder)] if mib < 200 else few:
            done = limited(resource.RLIMIT_AS, mib * MIB, *command)
            assert done.returncode in (0, 1, 127), done.stderr  # 127: not even the libraries find room
            assert not re.search("damaged|copy or generate", done.stderr)
            if done.returncode == 1:
                assert re.search("ups: |libgomp: ", done.stderr)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_coordinate_larger_than_the_address_space_is_told(runs):
    path, points = runs.path("long.h5"), 1 << 24
    with h5py.File(path, "w") as file:
        file.create_dataset("tensor", (1, 2, points), "f4", chunks=(1, 1, points))
        file.create_dataset("x-coordinate", (points,), "f8", chunks=(1 << 20,))
        file["t-coordinate"] = [0.0, 1.0]
    runs.must("data", "inspect", path)
    for mib in (150, 180):
        done = limited(resource.RLIMIT_AS, mib * MIB, "data", "inspect", path)
        one_sentence(done, "memory")
        assert not re.search("damaged|copy or generate", done.stderr)


def test_files_are_not_called_damaged_where_descriptors_run_out(runs):
    field = os.path.join(runs.data, "advection.h5")
    met = 0
    for count in range(3, 12):
        for command in (["data", "inspect", field], ["data", "dump", field, "--force", "-o", runs.path("dump.npy")],
                        ["train", runs.config("few"), "--plan"]):
            done = limited(resource.RLIMIT_NOFILE, count, *command)
            assert done.returncode in (0, 1, 127), done.stderr
            if done.returncode == 1:
                met += 1
                one_sentence(done, "ulimit -n")
            assert not re.search("damaged|copy or generate", done.stderr)
    assert met > 0


def test_sources_of_a_virtual_dataset_are_not_called_missing_where_descriptors_run_out(runs):
    folder = runs.path("virtual")
    os.mkdir(folder)
    layout, parts = h5py.VirtualLayout((12, 9, 32), "f4"), 12
    for i in range(parts):
        with h5py.File(os.path.join(folder, f"part{i}.h5"), "w") as file:
            file["data"] = np.full((9, 32), i + 1, "f4")
        layout[i] = h5py.VirtualSource(f"part{i}.h5", "data", (9, 32))
    path = os.path.join(folder, "whole.h5")
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        file.create_virtual_dataset("tensor", layout)
        file["x-coordinate"], file["t-coordinate"] = np.linspace(0, 1, 32), np.linspace(0, 1, 9)
    out, met = runs.path("virtual.npy"), 0
    for count in range(4, 12):
        done = limited(resource.RLIMIT_NOFILE, count, "data", "dump", path, "--sample", "11", "--force", "-o", out)
        if done.returncode == 0:
            assert (np.load(out) == parts).all(), count
            continue
        met += 1
        one_sentence(done, "ulimit -n")
    assert met > 0
