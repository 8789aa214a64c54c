#!/usr/bin/env python3
"""The reference operator beside PyTorch: state, loss and every gradient of ours in float32 against the peer's module in float64, with our parameters as ours exports them.

  pytorch_parity.py BUILD/tests/model/operator_gradients [--peers DIR] [--depth 12] [--batch 2]

DIR holds torch_operator.py (default: the environment's UPS_PEERS). Runs in an interpreter that has PyTorch, NumPy and safetensors. Prints the largest relative error of each
kind; exit code 1 above 1e-5. The test suite holds every core against JAX in the same way (tests/python/test_operator.py): PyTorch is 0.9 GB of packages."""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file

TOLERANCE = 1e-5
# ours, and the peer's name
NAMES = {r"time\.(\d)": lambda m: f"t{int(m[1]) + 1}", r"input": "inp", r"output": "out", r"norm": "norm", r"update_norm": "onorm",
         r"blocks\.(\d+)\.attention\.norm": r"blocks.\1.n1", r"blocks\.(\d+)\.mlp\.norm": r"blocks.\1.n2", r"blocks\.(\d+)\.attention\.qkv": r"blocks.\1.qkv",
         r"blocks\.(\d+)\.attention\.output": r"blocks.\1.proj", r"blocks\.(\d+)\.mlp\.(up|down)": r"blocks.\1.\2"}
GAINS = {"query_norm": "qn", "key_norm": "kn"}


def peer_name(name):
    module, kind = name.removeprefix("operator.").rsplit(".", 1)
    gain = re.fullmatch(r"blocks\.(\d+)\.attention\.(query_norm|key_norm)", module)
    if gain:
        return f"blocks.{gain[1]}.{GAINS[gain[2]]}.g"
    for pattern, to in NAMES.items():
        if re.fullmatch(pattern, module):
            return f"{re.sub(pattern, to, module)}.{kind}"
    sys.exit(f"the peer has nothing for {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--peers", default=os.environ.get("UPS_PEERS"))
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--batch", type=int, default=2)
    arguments = parser.parse_args()
    if not arguments.peers:
        parser.error("where torch_operator.py lies is not known; give --peers DIR or set UPS_PEERS")
    sys.path.insert(0, arguments.peers)
    from torch_operator import Operator

    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/ours.safetensors"
        sizes = dict(tokens=128, dim=128, hidden=384, heads=8, steps=1, depth=arguments.depth, batch=arguments.batch)
        subprocess.run([arguments.program, path, *(f"{k}={v}" for k, v in sizes.items())], check=True)
        ours = load_file(path)
    group = lambda prefix: {n.removeprefix(prefix): torch.from_numpy(v.astype(np.float64)) for n, v in ours.items() if n.startswith(prefix)}
    parameters, inputs, gradients, outputs = map(group, ("parameters.", "inputs.", "gradients.", "outputs."))
    model = Operator(depth=arguments.depth).double()
    model.load_state_dict({peer_name(n): v for n, v in parameters.items()})
    state = model(inputs["z"], inputs["dt"])
    loss = ((state - inputs["target0"]) ** 2).mean()
    loss.backward()
    theirs = {n: p.grad for n, p in model.named_parameters()}
    error = lambda found, expected: float((found - expected.detach()).norm() / expected.detach().norm())
    worst = max((error(g, theirs[peer_name(n)]), n) for n, g in gradients.items())
    errors = {"state": error(outputs["state0"], state), "loss": error(outputs["loss"][0], loss), f"gradients, of {len(gradients)} ({worst[1]})": worst[0]}
    for name, value in errors.items():
        print(f"{name}: {value:.1e}")
    return 0 if len(theirs) == len(gradients) and max(errors.values()) <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
