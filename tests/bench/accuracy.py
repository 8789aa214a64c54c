#!/usr/bin/env python3
"""Errors at equal time: our surrogate and baselines, the same files, seconds and threads, one after the other.

  accuracy.py UPS FOLDER [--task NAME ...] [--model fno ...] [--peers DIR] [--python PYTHON] [--seconds 300] [--threads 2] [--share 1] [--history 1] [--bundle 1]
              [--train-data DIR] [--test-data DIR]

For each task `ups datagen` makes training and test files of different seeds in FOLDER, once; that no initial condition stands in both is checked. Ours: encoder,
cache and operator in the given seconds (twice as many in 2D); how many steps that is, is measured on a short run first. Baselines by DIR/accuracy_peers.py (default:
the environment's UPS_PEERS), which trains one for a given time. PYTHON has PyTorch, h5py and neuraloperator. --share S makes a part of the trajectories alone.
--train-data and --test-data name folders whose files NAME_train… or NAME_test… take the place of made ones, such as those of pdebench_data.py.
Prints a row a model: nRMSE after one step, after ten, and of whole rollouts over the test files; seconds; steps. As JSON lines in FOLDER/results.jsonl.
Nothing else should run on the machine.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import h5py

LINE = dict(resolution=256, steps=41, train=1000, test=100, patch=4, hidden=64, modes=33)
PLANE = dict(resolution=64, steps=21, train=500, test=50, patch=2, hidden=48, modes=12)
# name: solver, values of its parameter (a file each), fixed parameters, sizes
TASKS = {
    "advection": ("advection1d", "beta", (0.1, 0.4, 1, 2, 4), {}, LINE),
    "burgers": ("burgers1d", "nu", (0.001, 0.01, 0.1), {}, LINE),
    "reaction": ("reacdiff1d", None, (None,), {}, LINE),
    "sorption": ("diffsorp1d", None, (None,), {}, LINE),
    "gas1d": ("cfd1d_rand", None, (None,), {}, LINE),
    "darcy": ("darcy2d", None, (None,), {}, dict(PLANE, steps=None, patch=4)),
    "pattern": ("diffreact2d", None, (None,), {}, dict(PLANE, patch=1, hidden=32)),
    "water": ("swe2d", None, (None,), {}, PLANE),
    "gas2d": ("cfd2d_rand", None, (None,), {}, PLANE),
}
ROLLING = 0.35  # of the time, at the end: losses of rollouts
CONFIG = """\
output: {output}
precision: {precision}
device: {{threads: {threads}}}
data: {{root: {folder}, split: {{train: 0.9, validation: 0.1, test: 0}}}}
tasks:
  - name: task
    files: [{train}]
    test_files: [{test}]
    patch: [{patch}]
model:
  tokens: grid
  dim: {dim}
  operator: {{core: spectral, hidden: {hidden}, depth: 4, mlp_ratio: 2, drop_path: 0, modes: [{modes}], history: {history}, bundle: {bundle}}}
autoencoder: {{steps: 0, gate: 0, target: 0.0005}}
operator:
  steps: {steps}
  batch_size: 16
  validate_every: {every}
  rollout_steps: {rollout}
  optimizer: {{learning_rate: {rate}, weight_decay: 0.0001, warmup_steps: 200, ema_decay: 0.999}}
  losses: {{one_step: {{weight: 0}}, relative: {{weight: 1}}, rollout_relative: {{weight: 1, from: {start}}}}}
evaluation: {{horizons: [1, 10, 0], max_samples: 0}}
"""


def make_data(arguments, name):
    """Files of a task, (train, test), made once."""
    solver, parameter, values, fixed, sizes = TASKS[name]
    made = []
    for split, seed, given in (("train", 1, arguments.train_data), ("test", 1001, arguments.test_data)):
        if given:
            made.append(sorted(str(path.absolute()) for ending in ("h5", "hdf5") for path in given.glob(f"{name}_{split}*.{ending}")))
            if not made[-1]:
                sys.exit(f"{given} has no file {name}_{split}*.hdf5")
            continue
        files = []
        for i, value in enumerate(values):
            path = arguments.folder / f"{name}_{split}{'' if value is None else f'_{parameter}{value}'}.hdf5"
            files.append(path.name)
            if path.exists():
                continue
            options = [f"--param={k}={v}" for k, v in (({parameter: value} if parameter else {}) | fixed).items()]
            options += ["--steps", sizes["steps"]] if sizes["steps"] else []
            samples = max(2, int(sizes[split] * arguments.share / len(values)))
            subprocess.run(list(map(str, [arguments.ups, "datagen", solver, "-o", path, "-n", samples, "-r", sizes["resolution"], "--seed", seed + i, "-q", *options])), check=True)
        made.append(files)
    beginnings = [{bytes(first) for file in files for first in first_frames(arguments.folder / file)} for files in made]
    if beginnings[0] & beginnings[1] and name != "water":  # whose dams differ in a radius alone: on a grid some look alike
        sys.exit(f"{name}: a test sample begins as one that is trained on")
    return made


def first_frames(path):
    with h5py.File(path) as file:
        if "nu" in file and "tensor" in file:
            yield from file["nu"][:]
        elif "tensor" in file:
            yield from file["tensor"][:, 0]
        elif "density" in file:
            yield from file["density"][:, 0]
        else:
            yield from (file[seed]["data"][0] for seed in file if seed.isdigit())


def ours(arguments, name, files, seconds):
    sizes = TASKS[name][4]
    config, run = arguments.folder / f"{name}.yaml", arguments.folder / f"run-{name}"
    steady = sizes["steps"] is None

    def train(steps, start, **more):
        subprocess.run(["rm", "-rf", run], check=True)
        config.write_text(CONFIG.format(**dict(
            output=run, precision=arguments.precision, threads=arguments.threads, folder=arguments.folder, train=", ".join(files[0]), test=", ".join(files[1]),
            patch=sizes["patch"], dim="auto", hidden=sizes["hidden"], modes=sizes["modes"], steps=steps, every=max(1, steps // 6), rollout=max(2, 8 // arguments.bundle), rate=arguments.rate, start=start,
            history=arguments.history, bundle=arguments.bundle)))
        began = time.perf_counter()
        subprocess.run([arguments.ups, "train", config, "-q", *(f"--set={pair}" for pair in arguments.set)], check=True, stderr=subprocess.DEVNULL)
        return time.perf_counter() - began

    def step_time(few, many, start):  # what starts and ends a run is the same in both
        return max(1e-4, (train(many, min(start, many)) - train(few, min(start, few))) / (many - few))

    base = train(0, 0)  # encoder and cache
    one = step_time(30, 150, 150)
    eight = one if steady else step_time(10, 40, 0)
    rolling = 0 if steady else int(ROLLING * (seconds - base) / eight)
    steps = rolling + int((seconds - base - rolling * eight) / one)
    took = train(steps, steps - rolling if rolling else steps)
    subprocess.run([arguments.ups, "eval", run, "-q"], check=True, stdout=subprocess.DEVNULL)
    horizons = json.loads((run / "evaluation.json").read_text())["tasks"][0]["horizons"]
    errors = [h["model"]["nrmse"] if h["windows"] else None for h in horizons]
    return dict(model="ups", errors=errors, reconstruction=horizons[-1]["reconstruction"]["nrmse"], seconds=took, steps=steps)


def baseline(arguments, model, files, seconds):
    paths = [[str(arguments.folder / file) for file in split] for split in files]
    command = [arguments.python, os.path.join(arguments.peers, "accuracy_peers.py"), "--model", model, "--train", *paths[0], "--test", *paths[1],
               "--seconds", str(seconds), "--threads", str(arguments.threads), "--given", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    told = json.loads(done.stdout.strip().splitlines()[-1])
    errors = [told["horizons"].get(h, {}).get("nrmse") for h in ("1", "10", "0")]
    return dict(model=model, errors=errors, seconds=told["seconds"], steps=told["steps"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ups")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--model", nargs="*", default=["persistence", "fno-pdebench", "fno", "unet"])
    parser.add_argument("--peers", default=os.environ.get("UPS_PEERS"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1)
    parser.add_argument("--train-data", type=Path, metavar="DIR", help="train on files of this folder")
    parser.add_argument("--test-data", type=Path, metavar="DIR", help="score on files of this folder")
    parser.add_argument("--rate", type=float, default=0.003)
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--set", nargs="*", default=[], help="KEY=VALUE for ours")
    parser.add_argument("--history", type=int, default=1, help="frames that our operator reads")
    parser.add_argument("--bundle", type=int, default=1, help="frames that an application of it gives")
    arguments = parser.parse_args()
    if arguments.model and not arguments.peers:
        parser.error("where accuracy_peers.py lies is not known; give --peers DIR or set UPS_PEERS, or --model without names")
    arguments.folder = arguments.folder.absolute()
    arguments.ups = arguments.ups and os.path.abspath(arguments.ups)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.task:
        files = make_data(arguments, name)
        seconds = arguments.seconds * (2 if TASKS[name][4]["resolution"] == 64 else 1)
        for model in [*(["ups"] if arguments.ups else []), *arguments.model]:
            row = ours(arguments, name, files, seconds) if model == "ups" else baseline(arguments, model, files, seconds)
            errors = "  ".join("      -" if e is None else f"{e:7.4f}" for e in row["errors"])
            print(f"{name:10s} {row['model']:13s} {errors}  {row['seconds']:6.0f} s  {row['steps']:7d} steps", flush=True)
            with open(arguments.folder / "results.jsonl", "a") as file:
                file.write(json.dumps(dict(row, task=name, threads=arguments.threads, share=arguments.share, history=arguments.history, bundle=arguments.bundle,
                                           train_data=str(arguments.train_data or ""), test_data=str(arguments.test_data or ""))) + "\n")


if __name__ == "__main__":
    main()
