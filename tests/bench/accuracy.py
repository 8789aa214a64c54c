#!/usr/bin/env python3
"""Errors at equal time: our surrogate and baselines, the same files, seconds and threads, one after the other.

  accuracy.py UPS FOLDER [--task NAME ...] [--together] [--model fno ...] [--peers DIR] [--python PYTHON] [--seconds 300] [--threads 2] [--share 1] [--seed 0]
              [--train-data DIR] [--test-data DIR]

For each task `ups datagen` makes training and test files of different seeds in FOLDER, once; that no initial condition stands in both is checked. Ours: encoder,
cache and operator in the given seconds (twice as many in 2D and 3D); how many steps that is, is measured on a short run first. --together: one model of
ours for all these tasks, in the sum of their seconds. Baselines by DIR/accuracy_peers.py (default:
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

# Of the data, then of the model: attention where tokens are few, Fourier modes where there are a thousand; small batches, so that there are many steps.
# The spectral loss pays but on diffusion-reaction and on shallow water in 2D.
# Weight: of a task's draws beside others'; a step in 1D costs a tenth of one in 2D.
LINE = dict(resolution=256, steps=41, train=1000, test=100, weight=4, patch=4, core="stack", hidden=64, modes=33, factorized="false", convolution=5, batch=8, bundle=1, spectral=0.1, mixing="[]", merge_above=0, task_specific="[]", augment="none", symmetries="false")
PLANE = dict(resolution=64, steps=21, train=500, test=50, weight=1, patch=2, core="spectral", hidden=48, modes=12, factorized="true", convolution=3, batch=2, bundle=1, spectral=0.1, mixing="[]", merge_above=0, task_specific="[]", augment="symmetries", symmetries="true")
BOX = dict(resolution=32, steps=21, train=100, test=10, weight=1, patch=4, core="unet", hidden=64, modes=4, factorized="false", convolution=3, batch=4, bundle=1, spectral=0, mixing="[]", merge_above=0, task_specific="[]", augment="symmetries", symmetries="true")
TOGETHER = dict(core="stack", hidden=64, modes="33, 12", factorized="false", convolution=3, batch=4, bundle=1, spectral=0.1, mixing="[auto]", merge_above=0, task_specific="[mixing, mlp]", augment="symmetries")
# name: solver, values of its parameter (a file each), fixed parameters, sizes
TASKS = {
    "advection": ("advection1d", "beta", (0.1, 0.4, 1, 2, 4), {}, dict(LINE, bundle=4)),  # waves that travel unchanged: fewer, longer steps
    "burgers": ("burgers1d", "nu", (0.001, 0.01, 0.1), {}, LINE),
    "reaction": ("reacdiff1d", None, (None,), {}, LINE),
    "sorption": ("diffsorp1d", None, (None,), {}, LINE),
    "gas1d": ("cfd1d_rand", None, (None,), {}, LINE),
    "darcy": ("darcy2d", None, (None,), {}, dict(PLANE, steps=None, weight=2, patch=4, core="unet")),
    "pattern": ("diffreact2d", None, (None,), {}, dict(PLANE, spectral=0)),
    "water": ("swe2d", None, (None,), {"initial": "averaged"}, dict(PLANE, bundle=4, spectral=0)),
    "gas2d": ("cfd2d_rand", None, (None,), {}, PLANE),
    "incompressible": ("ns_incom2d", None, (None,), {"t_end": 2}, PLANE),
    "gas3d": ("cfd3d_rand", None, (None,), {}, BOX),
}
CONFIG = """\
output: {output}
precision: {precision}
device: {{threads: {threads}}}
data: {{root: {folder}, split: {{train: 0.9, validation: 0.1, test: 0}}}}
seed: {seed}
tasks:
{tasks}model:
  tokens: grid
  dim: auto
  operator: {{core: {core}, mixing: {mixing}, merge_above: {merge_above}, task_specific: {task_specific}, hidden: {hidden}, depth: 4, depths: [1, 1, 1], heads: 2, mlp_ratio: 2, modes: [{modes}], factorized: {factorized}, convolution: {convolution}, bundle: {bundle}}}
autoencoder: {{steps: 0, gate: 0, target: 0.0005}}
operator:
  steps: {steps}
  batch_size: {batch}
  validate_every: {every}
  augment: {augment}
  optimizer: {{learning_rate: {rate}, warmup_steps: 200, ema_decay: 0.999}}
  losses:
    relative: {{weight: 0}}
    decoded: {{weight: 1}}
    spectral: {{weight: {spectral}}}
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
            samples = max(2, int(sizes[split] * arguments.share / len(values)))
            if path.exists():
                if sum(1 for _ in first_frames(path)) != samples:
                    sys.exit(f"{path} has not {samples} samples, as another --share made it; remove it, or name another FOLDER")
                continue
            options = [f"--param={k}={v}" for k, v in (({parameter: value} if parameter else {}) | fixed).items()]
            options += ["--steps", sizes["steps"]] if sizes["steps"] else []
            subprocess.run(list(map(str, [arguments.ups, "datagen", solver, "-o", path, "-n", samples, "-r", sizes["resolution"], "--seed", seed + i, "-q", *options])), check=True)
        made.append(files)
    beginnings = [{bytes(first) for file in files for first in first_frames(arguments.folder / file)} for files in made]
    alike = len(beginnings[0] & beginnings[1])
    if alike and not arguments.train_data:
        sys.exit(f"{name}: {alike} test samples begin as one that is trained on")
    if alike:  # given files may: PDEBench's dams differ in a radius alone, and on few cells some look alike
        print(f"{name}: {alike} of the {len(beginnings[1])} different beginnings of test samples are those of samples that are trained on", file=sys.stderr, flush=True)
    return made


def first_frames(path):
    with h5py.File(path) as file:
        if "nu" in file and "tensor" in file:
            yield from file["nu"][:]
        elif "tensor" in file:
            yield from file["tensor"][:, 0]
        elif "density" in file:
            yield from file["density"][:, 0]
        elif "velocity" in file:
            yield from file["velocity"][:, 0]
        else:
            yield from (file[seed]["data"][0] for seed in file if seed.isdigit())


def ours(arguments, names, files, seconds):
    """Rows of one model for the tasks of these names, `files` of each."""
    sizes = dict(TASKS[names[0]][4], **(TOGETHER if len(names) > 1 else {}), **dict(pair.split("=") for pair in arguments.size))
    label = names[0] if len(names) == 1 else "together"
    config, run = arguments.folder / f"{label}.yaml", arguments.folder / f"run-{label}"
    tasks = "".join(f"  - {{name: {name}, files: [{', '.join(train)}], test_files: [{', '.join(test)}], patch: [{TASKS[name][4]['patch']}], weight: {TASKS[name][4]['weight']}, symmetries: {TASKS[name][4]['symmetries']}, bundle: {sizes['bundle'] if len(names) == 1 else TASKS[name][4]['bundle']}}}\n"
                    for name, (train, test) in zip(names, files))

    def configure(output, steps):
        config.write_text(CONFIG.format(**dict(
            sizes, output=output, precision=arguments.precision, threads=arguments.threads, folder=arguments.folder, tasks=tasks, seed=arguments.seed, steps=steps,
            every=max(1, steps // 6), rate=arguments.rate)))

    def train(run, *more):
        subprocess.run(["rm", "-rf", run], check=True)
        began = time.perf_counter()
        subprocess.run([arguments.ups, "train", *more, "-q", *(f"--set={pair}" for pair in arguments.set)], check=True, stderr=subprocess.DEVNULL)
        return time.perf_counter() - began

    def fork(steps):  # of the run that has encoder and cache
        return train(trial, prepared, "--fork", trial, f"--set=operator.steps={steps}", f"--set=operator.validate_every={steps}")

    def step_time():  # what starts and ends a run is the same in a short and in a longer one
        few, short = 20 * len(names), 0
        for share in (0.01, 0.05):  # of the time: a guess, then the measure
            began = fork(few)
            many = few + max(5 * few, int(share * seconds / short) if short else 0)
            short = max(2e-3, (fork(many) - began) / (many - few))
        return short

    prepared, trial = f"{run}-prepared", f"{run}-trial"
    configure(prepared, 0)
    base = train(prepared, config)
    if base > 0.9 * seconds:
        sys.exit(f"{label}: encoder and cache alone took {base:.0f} s of {seconds:.0f}; give more --seconds")
    step = 1.03 * step_time()  # a long run is a little slower than a short one
    for _ in range(2):
        steps = int((seconds - base) / step)
        configure(run, steps)
        took = train(run, config)
        if took <= 1.03 * seconds:
            break
        step *= took / seconds  # slower than it was: once more, with fewer steps
    subprocess.run([arguments.ups, "eval", run, "-q"], check=True, stdout=subprocess.DEVNULL)
    rows = []
    for task in json.loads((run / "evaluation.json").read_text())["tasks"]:
        errors = [h["model"]["nrmse"] if h["windows"] else None for h in task["horizons"]]
        rows.append(dict(task=task["task"], model="ups" if len(names) == 1 else "ups-together", errors=errors, seconds=took, steps=steps,
                         reconstruction=task["horizons"][-1]["reconstruction"]["nrmse"]))
    return rows


def baseline(arguments, name, model, files, seconds):
    paths = [[str(arguments.folder / file) for file in split] for split in files]
    command = [arguments.python, os.path.join(arguments.peers, "accuracy_peers.py"), "--model", model, "--train", *paths[0], "--test", *paths[1],
               "--seconds", str(seconds), "--threads", str(arguments.threads), "--given", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    told = json.loads(done.stdout.strip().splitlines()[-1])
    errors = [told["horizons"].get(h, {}).get("nrmse") for h in ("1", "10", "0")]
    return [dict(task=name, model=model, errors=errors, seconds=told["seconds"], steps=told["steps"])]


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
    parser.add_argument("--size", nargs="*", default=[], help="NAME=VALUE for ours: core, hidden, modes, factorized, convolution, batch, bundle, mixing, merge_above, task_specific, augment or spectral (the weight of that loss) of every task")
    parser.add_argument("--seed", type=int, default=0, help="of ours; baselines draw another one every time")
    parser.add_argument("--together", action="store_true", help="one model of ours for all tasks, in the sum of their seconds")
    arguments = parser.parse_args()
    if arguments.model and not arguments.peers:
        parser.error("where accuracy_peers.py lies is not known; give --peers DIR or set UPS_PEERS, or --model without names")
    arguments.folder = arguments.folder.absolute()
    arguments.ups = arguments.ups and os.path.abspath(arguments.ups)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    files = {name: make_data(arguments, name) for name in arguments.task}
    seconds = {name: arguments.seconds * (1 if TASKS[name][4]["resolution"] == 256 else 2) for name in arguments.task}
    if arguments.ups and arguments.together:
        report(arguments, ours(arguments, arguments.task, list(files.values()), sum(seconds.values())))
    for name in arguments.task:
        if arguments.ups and not arguments.together:
            report(arguments, ours(arguments, [name], [files[name]], seconds[name]))
        for model in arguments.model:
            report(arguments, baseline(arguments, name, model, files[name], seconds[name]))


def report(arguments, rows):
    for row in rows:
        errors = "  ".join("      -" if e is None else f"{e:7.4f}" for e in row["errors"])
        print(f"{row['task']:10s} {row['model']:13s} {errors}  {row['seconds']:6.0f} s  {row['steps']:7d} steps", flush=True)
        with open(arguments.folder / "results.jsonl", "a") as file:
            file.write(json.dumps(dict(row, threads=arguments.threads, share=arguments.share, seed=arguments.seed,
                                       train_data=str(arguments.train_data or ""), test_data=str(arguments.test_data or ""))) + "\n")


if __name__ == "__main__":
    main()
