#!/usr/bin/env python3
"""A training step of the reference operator, ours and PyTorch's in turn (A B A B ...), on the same threads.

  step.py UPS [--peer FILE] [--python PYTHON] [--dtype bfloat16] [--batch 8] [--threads 2] [--rounds 3] [--steps 10]

FILE is the operator as a user of PyTorch would write it (default: pytorch_operator.py beside this); PYTHON is an interpreter with PyTorch 2.5 or
later. PyTorch runs eager and compiled; the faster of both counts. Prints one JSON line: medians over the rounds, and our pairs a second over the best peer's.
Exit code 1 when that ratio is below --least (default 1.2 in bfloat16, 1.0 in float32).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys


def last_line(command):
    environment = {**os.environ}
    environment.pop("OMP_NUM_THREADS", None)
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return json.loads(out.strip().splitlines()[-1])["pairs_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ups")
    parser.add_argument("--peer", metavar="FILE", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch_operator.py"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", nargs="*", default=["default", "max-autotune"], help="modes of torch.compile beside eager")
    parser.add_argument("--least", type=float)
    arguments = parser.parse_args()
    least = arguments.least if arguments.least is not None else {"bfloat16": 1.2, "float32": 1.0}[arguments.dtype]
    common = ["--batch", str(arguments.batch), "--dtype", arguments.dtype, "--threads", str(arguments.threads), "--steps", str(arguments.steps)]
    torch = [arguments.python, arguments.peer, *common]
    contestants = {"ups": [arguments.ups, "bench", "step", *common, "--device", "cpu", "--json"], "eager": torch}
    contestants.update({"compile " + mode: [*torch, "--compile", mode] for mode in arguments.compile})
    speeds = {name: [] for name in contestants}
    for _ in range(arguments.rounds):
        for name, command in contestants.items():
            speeds[name].append(last_line(command))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    best = max((name for name in medians if name != "ups"), key=medians.get)
    ratio = medians["ups"] / medians[best]
    print(json.dumps({"dtype": arguments.dtype, "batch": arguments.batch, "threads": arguments.threads, "rounds": arguments.rounds,
                      "pairs_per_s": medians, "best_peer": best, "ratio": round(ratio, 3), "least": least}))
    return 0 if ratio >= least else 1


if __name__ == "__main__":
    sys.exit(main())
