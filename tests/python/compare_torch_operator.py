"""The reference operator against a PyTorch module, by hand: needs torch, which the tests do not.

    python compare_torch_operator.py OPERATOR_GRADIENTS TORCH_OPERATOR.py

TORCH_OPERATOR.py defines Operator(dim, hidden, depth, heads), the module a user would write. Its parameters are set to ours by name and the
loss and all gradients compared, in float64 on PyTorch's side.
"""
import importlib.util
import subprocess
import sys
import tempfile

import torch
from safetensors.numpy import load_file

NAMES = {"inp": "input", "out": "output", "t1": "time.0", "t2": "time.1", "t3": "time.2", "norm": "norm", "onorm": "update_norm"}
BLOCK = {"n1": "attention.norm", "n2": "mlp.norm", "qkv": "attention.qkv", "proj": "attention.output", "qn.g": "attention.query_norm.weight",
         "kn.g": "attention.key_norm.weight", "up": "mlp.up", "down": "mlp.down"}


def ours(name):
    if name.startswith("blocks."):
        _, index, rest = name.split(".", 2)
        module, _, leaf = rest.partition(".")
        inner = BLOCK.get(rest) or f"{BLOCK[module]}.{leaf}"
        return f"operator.blocks.{index}.{inner}"
    module, leaf = name.split(".")
    return f"operator.{NAMES[module]}.{leaf}"


def main():
    program, peer = sys.argv[1:3]
    spec = importlib.util.spec_from_file_location("torch_operator", peer)
    torch_operator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(torch_operator)
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([program, directory + "/out.safetensors"], check=True)
        tensors = {n: torch.from_numpy(v).double() for n, v in load_file(directory + "/out.safetensors").items()}
    module = torch_operator.Operator().double()
    names = {name: ours(name) for name, _ in module.named_parameters()}
    assert len(names) == sum(n.startswith("parameters.") for n in tensors)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(tensors["parameters." + names[name]])
    state = module(tensors["inputs.z"], tensors["inputs.dt"])
    loss = torch.nn.functional.mse_loss(state, tensors["inputs.target0"])
    loss.backward()
    errors = {"loss": abs(float(tensors["outputs.loss"]) / loss.item() - 1)}
    errors["state"] = float((tensors["outputs.state0"] - state).norm() / state.norm())
    for name, parameter in module.named_parameters():
        errors[name] = float((tensors["gradients." + names[name]] - parameter.grad).norm() / parameter.grad.norm())
    worst = max(errors, key=errors.get)
    print(f"torch {torch.__version__}: {len(errors)} tensors; loss {errors['loss']:.1e}, state {errors['state']:.1e}; "
          f"worst {errors[worst]:.2e}: {worst}")
    sys.exit(errors[worst] > 1e-5)


if __name__ == "__main__":
    main()
