#!/usr/bin/env python3
"""The reference operator beside PyTorch: state, loss and every gradient of ours in float32 against pytorch_operator.py in float64, with our parameters as ours exports them.

  pytorch_parity.py BUILD/tests/model/operator_gradients [--depth 12] [--batch 2]

Runs in an interpreter that has PyTorch, NumPy and safetensors. Prints the largest relative error of each
kind; exit code 1 above 1e-5. The test suite holds every core against a reference of its own in the same way (tests/python/test_operator.py)."""
import argparse
import subprocess
import sys
import tempfile

import numpy as np
import torch
from pytorch_operator import Operator
from safetensors.numpy import load_file

TOLERANCE = 1e-5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--batch", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/ours.safetensors"
        sizes = dict(tokens=128, dim=128, hidden=384, heads=8, steps=1, depth=arguments.depth, batch=arguments.batch)
        subprocess.run([arguments.program, path, *(f"{k}={v}" for k, v in sizes.items())], check=True)
        ours = load_file(path)
    group = lambda prefix: {n.removeprefix(prefix): torch.from_numpy(v.astype(np.float64)) for n, v in ours.items() if n.startswith(prefix)}
    parameters, inputs, gradients, outputs = map(group, ("parameters.operator.", "inputs.", "gradients.operator.", "outputs."))
    model = Operator(depth=arguments.depth).double()
    model.load_state_dict(parameters)
    state = model(inputs["z"], inputs["dt"])
    loss = ((state - inputs["target0"]) ** 2).mean()
    loss.backward()
    theirs = {n: p.grad for n, p in model.named_parameters()}
    error = lambda found, expected: float((found - expected.detach()).norm() / expected.detach().norm())
    worst = max((error(g, theirs[n]), n) for n, g in gradients.items())
    errors = {"state": error(outputs["state0"], state), "loss": error(outputs["loss"][0], loss), f"gradients, of {len(gradients)} ({worst[1]})": worst[0]}
    for name, value in errors.items():
        print(f"{name}: {value:.1e}")
    return 0 if len(theirs) == len(gradients) and max(errors.values()) <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
