"""Grids of which every n-th point is taken (`tasks[].thin`): fields, places and trained models are those of files that have no other points,
which h5py makes here."""

import os

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import one_sentence, ups

CONFIG = """\
output: {output}
seed: 3
precision: f32
device: {{threads: 1}}
data: {{root: {data}, split: {{train: 0.6, validation: 0.2, test: 0.2}}, decode_threads: 1}}
tasks:
  - {{name: it, files: [{file}], patch: [2]{thin}}}
model: {{tokens: grid, dim: auto, operator: {{core: stack, hidden: 16, depth: 1, heads: 1}}}}
autoencoder: {{steps: 0, gate: 0}}
operator: {{steps: 4, batch_size: 2}}
evaluation: {{horizons: [1, 0]}}
"""

# solver, its options, what is thinned by, axes of the grid in what order of a dataset: how much is before them
KINDS = {
    "tensor": ("burgers1d", ("-r", "32", "--steps", "5"), (4,), {"tensor": 2}, ("x-coordinate",)),
    "darcy": ("darcy2d", ("-r", "16"), (2, 4), {"tensor": 2, "nu": 1}, ("x-coordinate", "y-coordinate")),
    "seed groups": ("diffreact2d", ("-r", "16", "--steps", "5"), (4, 2), {"data": 1}, ("grid/x", "grid/y")),
    "plane": ("cfd2d_rand", ("-r", "16", "--steps", "4"), (2,), {"density": 2, "pressure": 2, "Vx": 2, "Vy": 2}, ("x-coordinate", "y-coordinate")),
    "volume": ("cfd3d_rand", ("-r", "8", "--steps", "3"), (1, 2, 4), {"density": 2, "pressure": 2, "Vx": 2, "Vy": 2, "Vz": 2},
               ("x-coordinate", "y-coordinate", "z-coordinate")),
}


def thinned(path, to, steps, arrays, places):
    """A copy of a file that has every n-th point alone."""
    steps = steps * len(places) if len(steps) == 1 else steps
    with h5py.File(path) as source, h5py.File(to, "w") as made:
        def copy(name, item):
            if isinstance(item, h5py.Group):
                made.require_group(name).attrs.update(item.attrs)
                return
            kept, base = item[()], name.rsplit("/", 1)[-1]
            if base in arrays:
                kept = kept[(slice(None),) * arrays[base] + tuple(slice(None, None, step) for step in steps)]
            for place, step in zip(places, steps):
                if name == place or name.endswith("/" + place):
                    kept = kept[:len(kept) // step * step:step]  # beside a last edge, which some files have
            made.create_dataset(name, data=kept).attrs.update(item.attrs)
        source.visititems(copy)
        made.attrs.update(source.attrs)


@pytest.fixture(scope="module", params=KINDS)
def pair(runs, request):
    """A run on a file of which points are left out, and one on a file that lacks them, both trained."""
    solver, options, steps, arrays, places = KINDS[request.param]
    name = request.param.replace(" ", "-")
    path = runs.generate(solver, f"{name}.hdf5", 6, *options)
    thinned(path, runs.path("data", f"{name}-thin.hdf5"), steps, arrays, places)
    written = f", thin: {list(steps)}"
    pair = [runs.config(f"{name}-{kind}", CONFIG, file=file, thin=thin) for kind, file, thin in (("by-key", f"{name}.hdf5", written), ("by-file", f"{name}-thin.hdf5", ""))]
    for config in pair:
        runs.must("train", config, "--quiet")
    return name, pair


def test_models_are_those_of_files_without_the_other_points(runs, pair):
    name, _ = pair
    for stage in ("autoencoder", "operator"):
        ours, expected = (load_file(runs.path(f"{name}-{kind}", f"{stage}.safetensors")) for kind in ("by-key", "by-file"))
        assert ours.keys() == expected.keys() and ours
        assert all(np.array_equal(ours[key], expected[key]) for key in expected)


def test_rollouts_have_their_fields_and_places(runs, pair):
    name, configs = pair
    files = []
    for config, kind in zip(configs, ("key", "file")):
        files.append(runs.path(f"{name}-{kind}.h5"))
        runs.must("rollout", config, "-o", files[-1])
    with h5py.File(files[0]) as ours, h5py.File(files[1]) as expected:
        names = [[], []]
        for file, found in zip((ours, expected), names):
            file.visititems(lambda key, item, found=found: found.append(key) if isinstance(item, h5py.Dataset) else None)
        assert names[0] == names[1] and len(names[0]) > 3
        for key in names[0]:
            assert ours[key].shape == expected[key].shape, key
            if ours[key].dtype.kind == "f":
                assert np.array_equal(ours[key][()], expected[key][()]), key


def test_errors_are_those_of_the_points_that_are_taken(runs, pair):
    _, configs = pair
    told = [runs.told("eval", config)["tasks"][0]["horizons"] for config in configs]
    for ours, expected in zip(*told, strict=True):
        assert ours["model"]["nrmse"] == expected["model"]["nrmse"] and ours["persistence"]["rmse"] == expected["persistence"]["rmse"]


def test_a_model_of_other_points_is_another_run_and_its_cache_stale(runs, pair):
    name, (config, _) = pair
    other = ("--set", "tasks[0].thin=[1]")
    assert "tasks[0].thin" in ups("train", config, *other, "--quiet").stderr
    one_sentence(ups("cache", "build", config, *other, "--quiet"), "the cache is stale|the cache there is another one")
    said = runs.run("eval", config, *other).stderr
    assert "other points of its grid are taken since the model was trained" in said


@pytest.mark.parametrize("given, words", [("[5]", "wraps around after 32 points, which 5 does not divide"), ("[4, 4]", "`thin` has 2 numbers, but its fields have 1 grid axes"),
                                          ("[32]", "a `thin` of 32 leaves one point of a grid axis of 32"), ("[0]", "tasks.0..thin"), ("[1, 1, 1, 1]", "tasks.0..thin")])
def test_what_cannot_be_taken_is_said(runs, given, words):
    config = runs.config("wrong", CONFIG, file="advection.h5", thin=f", thin: {given}")
    one_sentence(runs.run("config", "check", config), "thin", words)
    assert not os.path.exists(runs.path("wrong"))


def test_an_open_grid_need_not_be_divided(runs):
    runs.generate("diffsorp1d", "open.hdf5", 6, "-r", "33", "--steps", "4")
    config = runs.config("open", CONFIG, file="open.hdf5", thin=", thin: [5]")
    facts = runs.told("data", "inspect", config)
    facts = (facts[0] if isinstance(facts, list) else facts["files"][0])
    assert [axis["points"] for axis in facts["grid"]] == [7]
    runs.must("train", config, "--quiet")


@pytest.mark.parametrize("order", [("coarse.hdf5", "fine.hdf5"), ("fine.hdf5", "coarse.hdf5")])
@pytest.mark.parametrize("key", ["files", "test_files"])
def test_grids_that_are_alike_when_thinned_alone_are_no_task(runs, order, key):
    for name, points in (("coarse.hdf5", 33), ("fine.hdf5", 60)):
        runs.generate("diffsorp1d", name, 4, "-r", str(points), "--steps", "4", "--force")
    text = CONFIG.replace("files: [{file}]", f"files: [{order[0]}, {order[1]}]" if key == "files" else f"files: [{order[0]}], test_files: [{order[1]}]")
    config = runs.config("mixed", text, thin=", thin: [32]")
    for command in (["config", "check", config], ["train", config, "--quiet"]):
        one_sentence(runs.run(*command), "put files of different resolution into tasks of their own")


def test_grids_of_one_file_have_to_be_alike_too(runs):
    parts = [runs.generate("diffreact2d", f"{points}.hdf5", 3, "-r", str(points), "--steps", "4") for points in (16, 30)]
    with h5py.File(runs.path("data", "groups.hdf5"), "w") as made:
        for i, part in enumerate(parts):
            with h5py.File(part) as source:
                for seed in source:
                    source.copy(seed, made, name=f"{int(seed) + 3 * i:04d}")
    config = runs.config("groups", CONFIG, file="groups.hdf5", thin=", thin: [15]")
    one_sentence(runs.run("train", config, "--quiet"), "put files of different resolution into tasks of their own")


def test_what_takes_all_points_is_as_if_it_was_not_there_and_a_number_counts_for_all_axes(runs, pair):
    name, configs = pair
    _, _, steps, _, places = KINDS[name.replace("-", " ")]
    of_each = list(steps) * (len(places) if len(steps) == 1 else 1)
    runs.must("cache", "build", configs[0], "--quiet", "--set", f"tasks[0].thin={of_each}")
    runs.must("cache", "build", configs[1], "--quiet", "--set", "tasks[0].thin=[1]")


def test_points_that_lie_anywhere_are_not_thinned(runs):
    runs.generate("transport_mesh2d", "mesh.h5", 4, "-r", "16", "--steps", "3")
    config = runs.config("mesh", CONFIG, file="mesh.h5", thin=", thin: [2]")
    one_sentence(runs.run("config", "check", config), "thin", "its points lie anywhere")


def test_chunks_of_another_type_are_thinned_as_plain_numbers_are(runs):
    path = runs.generate("burgers1d", "plain.hdf5", 6, "-r", "32", "--steps", "5")
    with h5py.File(path) as source, h5py.File(runs.path("data", "chunked.hdf5"), "w") as made:
        for key in source:
            if key != "tensor":
                source.copy(key, made)
        made.attrs.update(source.attrs)
        made.create_dataset("tensor", data=source["tensor"][()].astype(">f8"), chunks=(1, 2, 24), compression="gzip", shuffle=True)
    models = []
    for kind, file in (("plain", "plain.hdf5"), ("chunked", "chunked.hdf5")):
        runs.must("train", runs.config(f"read-{kind}", CONFIG, file=file, thin=", thin: [2]"), "--quiet")
        models.append(load_file(runs.path(f"read-{kind}", "operator.safetensors")))
    assert all(np.allclose(models[0][key], models[1][key], rtol=1e-4, atol=1e-6) for key in models[0])
