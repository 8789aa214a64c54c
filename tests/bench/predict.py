#!/usr/bin/env python3
"""Times predictions of a trained model by libups and by PyTorch: predict.py MODEL.safetensors [--threads N] [--runs N]

By an interpreter with PyTorch and NumPy, where UPS_LIBRARY names libups.so.0. Both predict the same random fields, and how far they are apart is printed: rounding, where the model
computes in float32. Medians, without the first prediction of a kind, which builds graphs."""
import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/python/ups"))
import ups  # noqa: E402
import ups.pytorch  # noqa: E402


def milliseconds(call, runs):
    call()
    taken = []
    for _ in range(runs):
        begun = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(taken)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ours, theirs = ups.Model.load(options.model, device="cpu", threads=options.threads), ups.pytorch.load(options.model)
    print("| task | grid | steps | trajectories | libups, ms | PyTorch, ms | ratio | apart |")
    print("|---|---|---|---|---|---|---|---|")
    rng = np.random.default_rng(1)
    for name, task in ours.tasks.items():
        for count in (1, 16):
            fields, known = rng.random((count, *task.grid, len(task.channels)), np.float32), dict.fromkeys(task.parameters, 0.4)

            def by_libups():
                return ours.predict(fields, name, known)

            @torch.inference_mode()
            def by_pytorch():
                return theirs.predict(fields, name, known).numpy()

            found, expected = by_libups(), by_pytorch()
            apart = np.abs(found - expected).max() / np.abs(expected).max()
            times = milliseconds(by_libups, options.runs), milliseconds(by_pytorch, options.runs)
            print(f"| {name} | {' x '.join(map(str, task.grid))} | {task.steps} | {count} | {times[0]:.2f} | {times[1]:.2f} | {times[1] / times[0]:.1f} | {apart:.0e} |")


if __name__ == "__main__":
    main()
