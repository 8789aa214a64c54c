#!/usr/bin/env python3
"""What the quickstart promises, held against the run that it left.

  check_quickstart.py RUN

RUN is runs/quickstart. Prints a line for each promise, and ends with exit code 1 when one is not kept.
"""
import glob
import json
import os
import sys


def promises(tasks):
    """(what, figure, at most)"""
    for name, task in tasks.items():
        one_step = task["horizons"][0]
        yield f"{name}: reconstruction, nRMSE", one_step["reconstruction"]["nrmse"], 0.002
    for steps, most in ((1, 0.001), (10, 0.004), (0, 0.01)):
        horizons = tasks["advection1d"]["horizons"]
        found = next(h for h in horizons if h["steps"] == steps) if steps else horizons[-1]
        yield f"advection1d: {f'{steps} steps ahead' if steps else 'whole rollout'}, nRMSE", found["model"]["nrmse"], most
    yield "darcy2d: solution, nRMSE", tasks["darcy2d"]["horizons"][0]["model"]["nrmse"], 0.022


def main():
    run = sys.argv[1]
    with open(os.path.join(run, "evaluation.json")) as file:
        tasks = {task["task"]: task for task in json.load(file)["tasks"]}
    kept = True
    for what, figure, most in promises(tasks):
        kept = kept and figure <= most
        print(f"{what:60s} {figure:8.4f}  {'at most' if figure <= most else 'NOT at most'} {most}")
    pictures = glob.glob(os.path.join(run, "pictures", "*.png"))
    kept = kept and len(pictures) >= 4
    print(f"{len(pictures)} pictures")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
