#!/usr/bin/env python3
"""What `tokens: grid` loses of fields that it was not made from, and what its cache weighs beside SZ3 and ZFP at the same error.

  reconstruction.py UPS FOLDER [--task NAME ...] [--target 0.0005 ...] [--real FILE ...] [--threads 2]

Tasks and patches are those of accuracy.py, whose data is made in FOLDER where it is not there. No operator is trained: principal components are found on the training
files, and the test files are encoded into the cache. What is read back from the cache, decoded here by NumPy from the run's weights, is held against the files: nRMSE as
in PDEBench, over all frames of all test trajectories, the first one too. --target sets `autoencoder.target`; several make a row each.
--real names files of PDEBench's groups: half of the trajectories of each, the later ones, are held out.

SZ3 (pysz) and ZFP (zfpy) compress each field of each trajectory by itself, as the cache can be read. The bound is a share of the field's root mean square in the
trajectory; bisection finds the share that gives the cache's nRMSE. Bytes are those of their streams alone; ours are all files of the test group, and the files' are
those of the test files. Prints a table, and a line of JSON a row into FOLDER/reconstruction.jsonl.
Needs h5py, numpy, safetensors, pysz and zfpy.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
from safetensors.numpy import load_file

import accuracy

TARGETS = {"reaction": [1e-4], "sorption": [1e-4]}  # else DEFAULT_TARGET, the benchmark's
DEFAULT_TARGET = 5e-4
REAL_PATCH = {1: [4], 2: [1, 1]}
CONFIG = """\
output: {run}
stages: [autoencoder, cache]
precision: f32
device: {{threads: {threads}}}
data: {{root: {root}, split: {{train: {share}, validation: 0, test: {held_out}}}}}
tasks: [{{name: task, files: [{train}], {test} patch: {patch}}}]
model: {{tokens: grid, dim: auto, operator: {{core: spectral}}}}
autoencoder: {{steps: 0, gate: 0, target: {target}}}
cache: {{max_abs_error: {bound}}}
"""


def read_fields(path):
    """({name: (sample, time, grid…)}, trajectories) of a file in one of PDEBench's layouts."""
    with h5py.File(path) as file:
        if "tensor" in file and "nu" in file:
            return {"nu": file["nu"][:][:, None], "u": file["tensor"][:]}
        if "tensor" in file:
            return {"u": file["tensor"][:]}
        if "density" in file:
            return {name: file[name][:] for name in ("density", "pressure", "Vx", "Vy") if name in file}
        data = np.stack([file[seed]["data"][:] for seed in sorted(file) if seed.isdigit()])
        return {f"u{i}": data[..., i] for i in range(data.shape[-1])}


def nrmse(error, truth):
    """PDEBench's, of one field (sample, time, grid…): frames that are zero everywhere are left out."""
    over = tuple(range(2, truth.ndim))
    size = np.sqrt((truth.astype(np.float64) ** 2).mean(over))
    lost = np.sqrt((error.astype(np.float64) ** 2).mean(over))
    return (lost[size > 0] / size[size > 0]).mean()


def unpatched(patches, grid, patch, channels):
    """(sample, time, grid…, channel) of (sample, time, token, numbers of a patch): the inverse of the encoder's cut."""
    cells = [-(-points // side) for points, side in zip(grid, patch)]
    lead, dims = patches.shape[:2], len(grid)
    array = patches.reshape(*lead, *cells, *patch, channels)
    order = [0, 1, *(2 + axis + dims * half for axis in range(dims) for half in (0, 1)), 2 + 2 * dims]
    array = array.transpose(order).reshape(*lead, *(c * p for c, p in zip(cells, patch)), channels)
    return array[(slice(None), slice(None), *(slice(points) for points in grid))]


def decoded(arguments, run, grid, patch):
    """Fields (sample, time, grid…, channel) that the test group's latents stand for, latents (sample, time, token, dim), names."""
    exported = run / "test.npy"
    subprocess.run([arguments.ups, "cache", "export", run / "cache/task/test", "-o", exported, "-q"], check=True, stdout=subprocess.DEVNULL)
    latents = np.load(exported)
    exported.unlink()
    weights = load_file(run / "autoencoder.safetensors")["decoder.task.patch.weight"].astype(np.float32)
    statistics = np.array(json.loads((run / "normalisation.json").read_text())["task"]["statistics"], np.float32).reshape(-1, 2)
    fields = unpatched(latents.astype(np.float32) @ weights.T, grid, patch, len(statistics))
    return fields / statistics[:, 1] + statistics[:, 0], latents


def sz3(field, bound):
    from pysz import sz, szConfig, szErrorBoundMode

    config = szConfig(field.shape)
    config.errorBoundMode, config.absErrorBound = szErrorBoundMode.ABS, bound
    stream, _ = sz.compress(field, config)
    return len(stream), sz.decompress(stream, field.dtype, field.shape)[0]


def zfp(field, bound):
    import zfpy

    stream = zfpy.compress_numpy(field, tolerance=bound)
    return len(stream), zfpy.decompress_numpy(stream)


def bytes_at(coder, fields, wanted, samples):
    """Bytes a trajectory at which the coder loses what `wanted` says, and what it lost: within 2 % of it, from below."""
    chosen = {name: np.ascontiguousarray(field[samples]) for name, field in fields.items()}
    sizes = {name: np.sqrt((field.astype(np.float64) ** 2).mean(tuple(range(1, field.ndim)))) for name, field in chosen.items()}

    def tried(share):
        total, errors = 0, []
        for name, field in chosen.items():
            back = np.empty_like(field)
            for i, trajectory in enumerate(field):
                squeezed = np.ascontiguousarray(trajectory.squeeze())
                count, array = coder(squeezed, max(share * sizes[name][i], 1e-30))
                total, back[i] = total + count, array.reshape(trajectory.shape)
            errors.append(nrmse(back - field, field))
        return total / len(samples), float(np.mean(errors))

    low, high, best = wanted / 100, wanted * 100, None
    for _ in range(24):
        middle = np.sqrt(low * high)
        size, error = tried(middle)
        if error <= wanted:
            low, best = middle, (size, error)
            if error > 0.98 * wanted:
                break
        else:
            high = middle
        if high / low < 1.01:  # streams change in steps
            break
    return best or (float("nan"), float("nan"))


def bytes_of(path):
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def measure(arguments, name, root, train, test, patch, target, held_out):
    """A row: test names files of their own, or held_out the share of the end of the train files."""
    run = arguments.folder / f"reconstruction-{name}"
    config = arguments.folder / f"reconstruction-{name}.yaml"
    subprocess.run(["rm", "-rf", run], check=True)
    config.write_text(CONFIG.format(run=run, threads=arguments.threads, root=root, share=1 - held_out, train=", ".join(train), patch=patch, target=target, bound=arguments.max_abs_error,
                                    held_out=f"last {held_out:.0%}" if held_out else 0, test=f"test_files: [{', '.join(test)}]," if test else ""))
    done = subprocess.run([arguments.ups, "train", config, "-q"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    parts = [read_fields(root / file) for file in test or train]
    fields = {field: np.concatenate([part[field] for part in parts]) for field in parts[0]}
    source = sum((root / file).stat().st_size for file in (test or train)) / len(next(iter(fields.values())))
    if held_out:
        of = json.loads((run / "cache/task/test/zarr.json").read_text())["attributes"]
        count = of["samples"] if "samples" in of else round(held_out * len(next(iter(fields.values()))))
        fields = {field: values[-count:] for field, values in fields.items()}
    shape = next(iter(fields.values())).shape
    back, latents = decoded(arguments, run, shape[2:], patch)
    if "nu" in fields:  # a steady problem: the first of two frames is given, the second is the solution
        back = np.stack([back[:, :1, ..., 0], back[:, 1:, ..., 1]], -1)
    if back.shape[:2] != shape[:2]:
        sys.exit(f"{name}: the cache has {back.shape[:2]} samples and frames, the files {shape[:2]}")
    errors = {field: nrmse(back[..., i] - values, values) for i, (field, values) in enumerate(fields.items())}
    first = {field: nrmse(back[:, :1, ..., i] - values[:, :1], values[:, :1]) for i, (field, values) in enumerate(fields.items())}
    error = float(np.mean(list(errors.values())))
    samples = np.linspace(0, shape[0] - 1, min(shape[0], arguments.coded)).astype(int)
    row = dict(task=name, patch=patch, target=target, max_abs_error=arguments.max_abs_error, dim=latents.shape[-1], trajectories=shape[0], nrmse=error, worst_field=max(errors.values()), first_frame=float(np.mean(list(first.values()))),
               fields=errors, latent_values=int(np.prod(latents.shape[1:])), field_values=len(fields) * int(np.prod(shape[1:])),
               bytes=dict(source=source, cache=bytes_of(run / "cache/task/test") / shape[0]))
    for coder in (sz3, zfp):
        row["bytes"][coder.__name__], row[f"{coder.__name__}_nrmse"] = bytes_at(coder, fields, error, samples)
    if not arguments.keep:
        subprocess.run(["rm", "-rf", run], check=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ups")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", nargs="*", choices=list(accuracy.TASKS), default=list(accuracy.TASKS))
    parser.add_argument("--target", type=float, nargs="+")
    parser.add_argument("--max-abs-error", type=float, default=0, help="of latents in the cache; 0: as FP16 has them")
    parser.add_argument("--real", type=Path, nargs="*", default=[], help="files of PDEBench's groups")
    parser.add_argument("--coded", type=int, default=20, help="trajectories that SZ3 and ZFP compress, evenly chosen")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1, help="of the trajectories, where data is made")
    parser.add_argument("--train-data", type=Path, metavar="DIR", help="as accuracy.py has it")
    parser.add_argument("--test-data", type=Path, metavar="DIR")
    parser.add_argument("--keep", action="store_true", help="keep the runs")
    arguments = parser.parse_args()
    arguments.folder, arguments.ups = arguments.folder.absolute(), os.path.abspath(arguments.ups)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    jobs = []
    for name in arguments.task:
        sizes = accuracy.TASKS[name][4]
        patch = [sizes["patch"]] * (2 if sizes["resolution"] == 64 else 1)
        jobs += [(name, arguments.folder, accuracy.make_data(arguments, name), patch, 0, target) for target in arguments.target or TARGETS.get(name, [DEFAULT_TARGET])]
    for path in arguments.real:
        dims = next(iter(read_fields(path).values())).ndim - 2
        jobs += [(path.stem, path.absolute().parent, ([path.name], []), REAL_PATCH[dims], 0.5, target) for target in arguments.target or [1e-4]]
    print(f"{'task':22s} {'nRMSE':>8s} {'first':>8s} {'dim':>4s} {'latents : fields':>19s}   bytes: {'file':>9s} {'cache':>9s} {'SZ3':>9s} {'ZFP':>9s}")
    for name, root, (train, test), patch, held_out, target in jobs:
        row = measure(arguments, name, root, train, test, patch, target, held_out)
        size = row["bytes"]
        print(f"{name:22s} {row['nrmse']:8.2e} {row['first_frame']:8.2e} {row['dim']:4d} {row['latent_values']:9d} : {row['field_values']:7d}          "
              f"{size['source']:9.0f} {size['cache']:9.0f} {size['sz3']:9.0f} {size['zfp']:9.0f}", flush=True)
        with open(arguments.folder / "reconstruction.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
