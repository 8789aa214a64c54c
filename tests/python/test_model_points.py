"""Fields on points in Python: `ups.open` reads them in the order of the file, and a model in one file predicts what `ups rollout` does."""

import os
import shutil
import sys

import h5py
import numpy as np
import pytest

from commands import TREE, must, program
from test_points import SAMPLES, channels_of, configuration, run, write  # noqa: F401  (run is a fixture)

PACKAGE = str(TREE / "tools/python/ups")
os.environ["UPS_LIBRARY"] = program("libups.so")
sys.path.insert(0, PACKAGE)
import ups as package  # noqa: E402


@pytest.mark.parametrize("own", [False, True])
def test_fields_are_those_of_h5py_in_the_order_of_the_file(tmp_path, own):
    path = write(tmp_path / "data.h5", own)
    with h5py.File(path) as f:
        for i in (0, SAMPLES - 1):
            np.testing.assert_array_equal(package.open(path)[i], channels_of(f, i))


@pytest.mark.parametrize("origin", [0, 4.5e6])
def test_a_model_in_one_file_predicts_without_its_data(run, tmp_path, origin):
    """`ups rollout` of the run, bit for bit, from what the exported file tells; also where coordinates are large, as those of maps."""
    if origin:
        shutil.copytree(run, tmp_path / "far")
        run = tmp_path / "far"
        with h5py.File(run / "data.h5", "r+") as f:
            f["points"][...] += origin
        shutil.rmtree(run / "run")
        must("train", configuration(run, "data.h5"), "-q")
    must("export", run / "run", "-o", tmp_path / "model.safetensors", "-q")
    must("rollout", run / "run", "-o", tmp_path / "r.h5", "-q")
    model = package.Model.load(tmp_path / "model.safetensors")
    with h5py.File(tmp_path / "r.h5") as r, h5py.File(run / "data.h5") as f:
        rows = [int(name.split("[")[1][:-1]) for name in r.attrs["ups.samples"].split(", ")]
        first = np.stack([channels_of(f, i)[0].T for i in rows]).astype("f4")
        predicted = model.predict(first, "mesh", {"nu": f["parameters/nu"][:][rows]})
        channel = model.tasks["mesh"].channels.index("u")
        np.testing.assert_array_equal(predicted[..., channel], r["u"])
        with pytest.raises(package.UpsError, match="203 points that lie anywhere"):
            model.predict(np.concatenate([first, first[:, :1]], 1), "mesh", {"nu": f["parameters/nu"][:][rows]})
