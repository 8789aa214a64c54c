"""Predicts with models that UPS trained, reads UPS latent caches and PDE simulation files, and loads shuffled batches of them,
through libups.

    import ups

    model = ups.Model.load("runs/many")                      # a run, or a file that `ups export` wrote
    u = model.predict(u0, "advection", {"beta": 0.4})        # (trajectories, x, field) -> (trajectories, frames, x, field)

    data = ups.open("cache/advection1d/train")       # or an HDF5 or NetCDF file, or a list of files
    first = data[0]                                          # a trajectory: (time, token, channel) float16
    for batch in data.loader(batch_size=64, frames=2, seed=1):
        step(batch.values, batch.parameters)                 # (64, 2, token, channel) float32, not copied

`ups.pytorch` loads trained models; it needs PyTorch, and no libups.
"""

from .data import Data, Sample, open
from .library import UpsError, version
from .loader import Batch, Loader, load
from .model import Model, Task
from .torch_dataset import torch_dataset

__all__ = ["Batch", "Data", "Loader", "Model", "Sample", "Task", "UpsError", "load", "open", "torch_dataset", "version"]


def __getattr__(name):
    if name == "pytorch":  # only who asks for it has to have PyTorch
        import importlib

        return importlib.import_module(".pytorch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
