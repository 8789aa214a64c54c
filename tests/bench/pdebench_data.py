#!/usr/bin/env python3
"""Small data sets made by PDEBench's own simulators, for accuracy.py --test-data and --train-data.

  pdebench_data.py FOLDER --pdebench DIR [--task NAME ...] [--test 60] [--train 300]

DIR is a checkout of github.com/pdebench/PDEBench. Nothing of it is copied or changed: its scripts are read from there and run with its own configurations, of which
NAMES below are overridden: number of samples, seed, stored times, and cells where its 1,024 would take hours. Its licence is for research that is not commercial; read it.
What keeps its current text from running is put right on the way, in memory: `.loc[` is `.at[` and `cond is True` is `cond` (else fields are not normalised); an argument
`plot` of its dam break and a key `n` of its sorption, which their code no longer has, are dropped. Its merging script is left out: arrays are written here, in the layout
that it means.

Files are named as accuracy.py names them, FOLDER/NAME_test…, FOLDER/NAME_train…, of seeds apart. 1D fields come out at 256 points and 41 frames, 2D at 64 x 64 and 21;
what was solved on more cells is thinned out, as PDEBench's loaders do. --train 0 makes test files alone. A file that exists is left as it is.
Needs jax, hydra-core, python-dotenv, h5py, scipy; for `water` clawpack and torch as well.
"""
import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np

NLE = "pdebench/data_gen/data_gen_NLE"
ADVECTION = dict(folder="AdvectionEq", script="advection_multi_solution_Hydra.py", section="multi", save="save/", dt_save=0.05, show_steps=20)
BURGERS = dict(folder="BurgersEq", script="burgers_multi_solution_Hydra.py", section="multi", save="save/", dt_save=0.05)
# name: a list of files, each (name in the file's name, configuration, script and keys, cells, share of the samples)
SCRIPTS = {
    "advection": [(f"_beta{value}", config, ADVECTION, 1024) for value, config in ((0.1, "beta1e-1"), (0.4, "beta4e-1"), (1, "beta1e0"), (2, "beta2e0"), (4, "beta4e0"))],
    # an explicit scheme's step falls with the square of the cell: 1,024 cells at nu = 0.1 need 535,000 steps
    "burgers": [("_nu0.001", "1e-3", BURGERS, 1024), ("_nu0.01", "1e-2", BURGERS, 512), ("_nu0.1", "1e-1", BURGERS, 256)],
    "reaction": [("", "Rho1e0_Nu5e-1", dict(folder="ReactionDiffusionEq", script="reaction_diffusion_multi_solution_Hydra.py", section="multi", save="save/", dt_save=0.025), 256)],
    "gas1d": [("", "1D_Multi", dict(folder="CompressibleFluid", script="CFD_multi_Hydra.py", section="args", save="save/", dt_save=0.025, show_steps=10), 256)],
    "darcy": [("", "config_2D", dict(folder="ReactionDiffusionEq", script="reaction_diffusion_2D_multi_solution_Hydra.py", section="multi", save="save/"), 64)],
    "gas2d": [("", "2D_Multi_Rand", dict(folder="CompressibleFluid", script="CFD_multi_Hydra.py", section="args", save="save/", dt_save=0.05, show_steps=10), 128)],
}
# name: module of generator, its configuration, keys of the simulation
GROUPS = {
    "sorption": ("gen_diff_sorp", "diff-sorp", dict(xdim=256, tdim=41)),
    "pattern": ("gen_diff_react", "diff-react", dict(xdim=64, ydim=64, tdim=21)),
    "water": ("gen_radial_dam_break", "radial_dam_break", dict(xdim=64, ydim=64, n_time_steps=20)),
}
KEYS = {"train": 2022, "test": 4022}  # PDEBench's, and another; 10 more for each further file, since the gas's three fields take keys in a row
SEEDS = {"train": 0, "test": 5000}


def text_of(path):
    return path.read_text().replace(".loc[", ".at[").replace("cond is True", "cond")


def run_script(pdebench, recipe, config, cells, samples, key):
    """Arrays that one of PDEBench's scripts saves, by their file's name; run where its relative paths lie, in an empty folder."""
    folder = pdebench / NLE / recipe["folder"]
    keys = {k: v for k, v in recipe.items() if k not in ("folder", "script", "section")}
    keys |= dict(nx=cells, numbers=samples, init_key=key) | (dict(ny=cells) if config in ("config_2D", "2D_Multi_Rand") else {})
    utils = types.ModuleType("utils")
    sys.modules["utils"] = utils
    exec(compile(text_of(pdebench / NLE / "utils.py"), str(pdebench / NLE / "utils.py"), "exec"), utils.__dict__)
    script, before = folder / recipe["script"], sys.argv
    Path("save").mkdir()
    sys.argv = [str(script), f"+{recipe['section']}={config}.yaml", *(f"++{recipe['section']}.{k}={v}" for k, v in keys.items()), "hydra.run.dir=.", "hydra.output_subdir=null"]
    try:
        exec(compile(text_of(script), str(script), "exec"), {"__name__": "__main__", "__file__": str(script)})
    finally:
        sys.argv = before
    return {path.stem: np.load(path) for path in Path("save").glob("*.npy")}


def thinned(array, points, axes):
    """Every nth point of the last `axes` axes."""
    step = max(1, array.shape[-1] // points)
    return array[(..., *[slice(None, None, step)] * axes)]


def write_arrays(path, name, config, arrays):
    """In the layout that Data_Merge.py means."""
    import h5py

    one = lambda end: next(array for stem, array in sorted(arrays.items()) if stem.endswith(end))
    with h5py.File(path, "w") as file:
        line = lambda array: thinned(array.reshape(-1, *array.shape[-2:]), 256, 1).astype(np.float32)
        if name in ("advection", "burgers", "reaction"):
            (stem, fields), = [(stem, array) for stem, array in arrays.items() if "coordinate" not in stem]
            file["tensor"] = line(fields)
            if name == "reaction":
                file.attrs["Nu"], file.attrs["rho"] = (float(part.lstrip("NuRho")) for part in stem.split("_")[-2:])
            else:
                file.attrs[{"advection": "beta", "burgers": "Nu"}[name]] = float(stem.split("_")[-1].lstrip("betaNu"))
        elif name == "darcy":
            file["nu"] = next(array for stem, array in arrays.items() if stem.startswith("nu")).astype(np.float32)
            file["tensor"] = next(array for stem, array in arrays.items() if stem.startswith("2D"))[:, -2:-1].astype(np.float32)
            file.attrs["beta"] = 1.0
        else:
            dims = 1 if name == "gas1d" else 2
            for field, end in [("density", "_D"), ("pressure", "_P"), ("Vx", "_Vx"), *([("Vy", "_Vy")] if dims == 2 else [])]:
                array = one(end)
                file[field] = thinned(array.reshape(array.shape[:2 + dims]), 256 if dims == 1 else 64, dims).astype(np.float32)
            file.attrs["eta"] = file.attrs["zeta"] = 0.01 if dims == 1 else 1e-8
            if dims == 2:
                file.attrs["M"] = 0.1
        points = file["tensor"].shape[-1] if "tensor" in file else file["density"].shape[-1]
        for axis in "xy"[:1 if name not in ("darcy", "gas2d") else 2]:
            file[f"{axis}-coordinate"] = thinned(arrays[f"{axis}_coordinate"], points, 1).astype(np.float32)
        if name != "darcy":
            file["t-coordinate"] = arrays["t_coordinate"].astype(np.float32)


def make_arrays(arguments, name, number, end, config, recipe, cells, split, samples):
    """One file, in a process of its own: each script wants the whole of JAX and Hydra."""
    cells = arguments.cells or cells
    path = arguments.folder / f"{name}_{split}{end}.hdf5"
    if path.exists() or not samples:
        return
    scratch = arguments.folder / f".{path.stem}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    began, child = time.perf_counter(), os.fork()
    if child == 0:
        try:
            os.chdir(scratch)
            with open("log", "w") as log, contextlib.redirect_stdout(log):
                arrays = run_script(arguments.pdebench, recipe, config, cells, samples, KEYS[split] + 10 * number)
            write_arrays("made", name, config, arrays)
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(f"{path.name}: PDEBench's script failed")
    os.replace(scratch / "made", path)
    shutil.rmtree(scratch)
    print(f"{path.name}: {samples} trajectories on {cells} cells, {time.perf_counter() - began:.0f} s", flush=True)


def make_groups(arguments, name, split, samples):
    """A file of groups, one trajectory after the other by PDEBench's own `simulator`, which writes them."""
    path = arguments.folder / f"{name}_{split}.hdf5"
    if path.exists() or not samples:
        return
    from omegaconf import OmegaConf

    module, config, keys = GROUPS[name]
    sys.path.insert(0, str(arguments.pdebench))
    generator = __import__(f"pdebench.data_gen.{module}", fromlist=["simulator"])
    if name == "water":
        run = generator.RadialDamBreak2D.run
        if run.__name__ == "run":
            generator.RadialDamBreak2D.run = lambda self, T, tsteps, plot=None: run(self, T, tsteps)
    settings = OmegaConf.load(arguments.pdebench / "pdebench/data_gen/configs" / f"{config}.yaml")
    settings.pop("dataverse")  # whom to cite, with numbers that accuracy_peers.py would take for parameters
    settings.sim.update(keys)
    if name == "sorption":
        settings.sim.pop("n")
    working = path.with_suffix(".making")
    working.unlink(missing_ok=True)
    settings.output_path = str(working)
    began = time.perf_counter()
    for seed in range(SEEDS[split], SEEDS[split] + samples):
        generator.simulator(settings, seed)
    os.replace(working, path)
    print(f"{path.name}: {samples} trajectories, {time.perf_counter() - began:.0f} s", flush=True)


def main():
    names = [*SCRIPTS, *GROUPS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pdebench", type=Path, required=True, metavar="DIR", help="a checkout of PDEBench")
    parser.add_argument("--task", nargs="+", choices=names, default=names)
    parser.add_argument("--test", type=int, default=60, help="trajectories a task, over all of its files")
    parser.add_argument("--train", type=int, default=300)
    parser.add_argument("--cells", type=int, help="along an axis that scripts of arrays solve on, in place of their own")
    arguments = parser.parse_args()
    arguments.folder, arguments.pdebench = arguments.folder.absolute(), arguments.pdebench.absolute()
    if not (arguments.pdebench / NLE / "utils.py").exists():
        parser.error(f"{arguments.pdebench} is no checkout of PDEBench: it has no {NLE}/utils.py")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.task:
        for split, count in (("test", arguments.test), ("train", arguments.train)):
            if name in GROUPS:
                make_groups(arguments, name, split, count)
            for number, (end, config, recipe, cells) in enumerate(SCRIPTS.get(name, [])):
                make_arrays(arguments, name, number, end, config, recipe, cells, split, -(-count // len(SCRIPTS[name])))


if __name__ == "__main__":
    main()
