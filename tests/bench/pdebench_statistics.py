#!/usr/bin/env python3
"""Whether `ups datagen` draws and solves as PDEBench's own simulators do: statistics of both, and the same problems solved by both.

  pdebench_statistics.py UPS OURS THEIRS [--task NAME ...]

OURS is a folder of accuracy.py, THEIRS one of pdebench_data.py; files NAME_test… and NAME_train… of both are read, at most --most trajectories a value of the task's
parameter, all of which are taken together. A figure's standard error is that of the mean over trajectories; a row is marked where the two are more than three of them
apart, which happens by chance too: sizes of random waves are far from normally distributed. Problems are solved anew from the first frames of
THEIRS by `ups datagen --initial`; the nRMSE between both solutions is of all frames, and of the last. Beginnings on another grid than THEIRS were solved on, and schemes of
another order, are in it. Prints a table; exits with 1 where a row is marked.
"""
import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import accuracy
from reconstruction import nrmse, read_fields


def shares(frames):
    """Of each trajectory's energy along the last axis: at wavenumbers 0, 1, 2 to 3, 4 to 7, 8 to 15, above."""
    energy = np.abs(np.fft.rfft(frames.astype(np.float64), axis=-1)) ** 2
    energy[..., 1:] *= 2
    energy = energy.reshape(len(frames), -1, energy.shape[-1]).mean(1)
    energy /= energy.sum(1, keepdims=True)
    edges = [0, 1, 2, 4, 8, 16, energy.shape[1]]
    return {f"share of k {a}" + ("" if b == a + 1 else f"-{b - 1}"): energy[:, a:b].sum(1) for a, b in zip(edges, edges[1:])}


def statistics(name, fields):
    """{what: a value of each trajectory}, means of which are compared."""
    told = {}
    for field, values in fields.items():
        over = tuple(range(1, values[:, 0].ndim))
        first, last = (values[:, i].astype(np.float64) for i in (0, -1))
        means, spread = first.mean(over), first.std(over)
        told |= {f"{field}: mean": means, f"{field}: square of the mean": means**2, f"{field}: deviation over space": spread,
                 f"{field}: mean |difference of neighbours|": np.abs(np.diff(first, axis=-1)).mean(over)}
        told |= {f"{field}: {what}": share for what, share in shares(first).items()} if name not in ("sorption", "darcy") else {}
        if values.shape[1] > 1:
            middle = values[:, values.shape[1] // 2].astype(np.float64)
            told |= {f"{field}: mean square, {when}": (frame**2).mean(over) for when, frame in (("halfway", middle), ("at the end", last))}
            told |= {f"{field}: deviation over space, {when}": frame.std(over) for when, frame in (("halfway", middle), ("at the end", last))}
            told |= {f"{field}: at the end, {what}": share for what, share in shares(last).items()} if name in ("gas1d", "gas2d", "pattern", "water") else {}
    if name == "darcy":
        high = fields["nu"][:, 0] > 0.5
        told["share of high nu"] = high.mean((1, 2))
        told["length of the interface"] = ((high[:, 1:] != high[:, :-1]).sum((1, 2)) + (high[:, :, 1:] != high[:, :, :-1]).sum((1, 2))) / high.shape[1]
        told["u: largest"] = fields["u"].max((1, 2, 3))
    return told


def read(folder, name, ending, most):
    """Files of both splits together, up to `most` trajectories a file."""
    parts = [read_fields(path) for split in ("test", "train") for path in sorted(folder.glob(f"{name}_{split}{ending}.h*5"))]
    return {field: np.concatenate([part[field][:most] for part in parts]) for field in parts[0]} if parts else None


def solved_anew(arguments, name, value, path):
    solver, parameter, _, fixed, sizes = accuracy.TASKS[name]
    options = [f"--param={k}={v}" for k, v in (({parameter: value} if parameter else {}) | fixed).items()]
    options += ["--steps", str(sizes["steps"])] if sizes["steps"] else []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "anew.hdf5"
        subprocess.run([arguments.ups, "datagen", solver, "-o", out, "--initial", path, "-r", str(sizes["resolution"]), "-q", *options], check=True, stdout=subprocess.DEVNULL)
        ours, theirs = read_fields(out), read_fields(path)
    return {field: (nrmse(ours[field] - theirs[field], theirs[field]), nrmse((ours[field] - theirs[field])[:, -1:], theirs[field][:, -1:])) for field in theirs if field != "nu"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ups")
    parser.add_argument("ours", type=Path)
    parser.add_argument("theirs", type=Path)
    parser.add_argument("--task", nargs="+", choices=list(accuracy.TASKS), default=list(accuracy.TASKS))
    parser.add_argument("--most", type=int, default=400, help="trajectories of a value of the parameter")
    arguments = parser.parse_args()
    arguments.ups, marked = os.path.abspath(arguments.ups), 0
    for name in arguments.task:
        _, parameter, values, _, _ = accuracy.TASKS[name]
        endings = ["" if value is None else f"_{parameter}{value}" for value in values]
        both = [[statistics(name, fields) for ending in endings if (fields := read(folder, name, ending, arguments.most))] for folder in (arguments.theirs, arguments.ours)]
        if not all(both):
            print(f"{name}: no files in {arguments.ours if both[0] else arguments.theirs}")
            marked += 1
            continue
        theirs, ours = ({what: np.concatenate([file[what] for file in files]) for what in files[0]} for files in both)
        print(f"{name}: {len(next(iter(theirs.values())))} of PDEBench's, {len(next(iter(ours.values())))} of ups datagen")
        for what, a in theirs.items():
            b = ours[what]
            error = np.sqrt(a.var() / len(a) + b.var() / len(b))
            apart = abs(a.mean() - b.mean()) / error if error > 0 else np.inf if a.mean() != b.mean() else 0.0  # NaN too
            marked += apart > 3
            print(f"  {what:44s} {a.mean():11.4g} {b.mean():11.4g}   apart by {apart:4.1f} standard errors{'  <--' if apart > 3 else ''}")
        for value, ending in zip(values, endings):
            for path in sorted(arguments.theirs.glob(f"{name}_test{ending}.h*5")):
                for field, (all_frames, last) in solved_anew(arguments, name, value, path).items():
                    print(f"  {path.name}, {field}, solved by both from the same beginnings: nRMSE {all_frames:.4f} of all frames, {last:.4f} of the last", flush=True)
    return 1 if marked else 0


if __name__ == "__main__":
    sys.exit(main())
