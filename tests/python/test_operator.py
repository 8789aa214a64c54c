"""The operator's states, loss and gradients against JAX in float64, on the same safetensors.

    python test_operator.py OPERATOR_GRADIENTS

OPERATOR_GRADIENTS is tests/model/operator_gradients.c, built. What it computed in float32 must agree to 1e-5, relative, tensor by tensor.
"""
import functools
import os
import subprocess
import sys
import tempfile

os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # compiling takes longer than running

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")

TOLERANCE = 1e-5


def linear(p, name, x):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def layer_norm(x, weight=1.0, bias=0.0, eps=1e-5):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


def norm(p, name, x):
    return layer_norm(x, p[name + ".weight"], p[name + ".bias"])


def rms_norm(x, weight, eps=1e-6):
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def block(p, x, heads):
    batch, tokens, dim = x.shape
    qkv = linear(p, "attention.qkv", norm(p, "attention.norm", x))
    q, k, v = jnp.moveaxis(qkv.reshape(batch, tokens, 3, heads, dim // heads), (2, 3), (0, 2))
    if "attention.query_norm.weight" in p:
        q = rms_norm(q, p["attention.query_norm.weight"])
        k = rms_norm(k, p["attention.key_norm.weight"])
    weights = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / (dim // heads) ** 0.5, axis=-1)
    attended = jnp.swapaxes(weights @ v, 1, 2).reshape(batch, tokens, dim)
    x = x + linear(p, "attention.output", attended)
    hidden = jax.nn.gelu(linear(p, "mlp.up", norm(p, "mlp.norm", x)), approximate=False)
    return x + linear(p, "mlp.down", hidden)


def blocks(p, x, depth, heads):
    """All blocks by a scan over their stacked parameters, which JAX compiles once."""
    first = "operator.blocks.0."
    names = [n[len(first):] for n in p if n.startswith(first)]
    stacked = {n: jnp.stack([p[f"operator.blocks.{i}.{n}"] for i in range(depth)]) for n in names}
    return jax.lax.scan(lambda x, layer: (block(layer, x, heads), None), x, stacked)[0]


def operator(p, z, inputs, depth, heads):
    features = jax.nn.silu(linear(p, "operator.time.0", inputs["dt"]))
    x = z + linear(p, "operator.time.2", linear(p, "operator.time.1", features))[:, None]
    if "operator.condition.output.weight" in p:
        condition = linear(p, "operator.condition.time", features)
        if "parameters" in inputs:
            condition = condition + linear(p, "operator.condition.parameters", inputs["parameters"])
        if "task" in inputs:
            condition = condition + linear(p, "operator.condition.task", inputs["task"])
        condition = linear(p, "operator.condition.hidden", jax.nn.silu(condition))
        condition = linear(p, "operator.condition.output", jax.nn.silu(condition))
        scale, shift, gate = jnp.split(condition[:, None], 3, axis=-1)
        x = x + jax.nn.sigmoid(gate + 2) * (layer_norm(x) * (1 + scale) + shift)
    x = linear(p, "operator.input", x)
    update = linear(p, "operator.output", norm(p, "operator.norm", blocks(p, x, depth, heads)))
    if "operator.update_norm.weight" in p:
        update = norm(p, "operator.update_norm", update)
    return z + update


@functools.partial(jax.jit, static_argnums=(2, 3))
@functools.partial(jax.value_and_grad, has_aux=True)
def rollout(p, inputs, depth, heads):
    steps = sum(name.startswith("target") for name in inputs)
    z, states, loss = inputs["z"], [], 0.0
    for k in range(steps):
        z = operator(p, z, inputs, depth, heads)
        states.append(z)
        loss = loss + ((z - inputs[f"target{k}"]) ** 2).mean() / steps
    return loss, states


def part(tensors, prefix):
    return {n[len(prefix):]: v.astype(np.float64) for n, v in tensors.items() if n.startswith(prefix)}


def difference(ours, reference):
    return float(np.linalg.norm(ours - reference) / np.linalg.norm(reference))


def compare(program, tolerance=TOLERANCE, **options):
    with tempfile.TemporaryDirectory() as directory:
        path = directory + "/out.safetensors"
        subprocess.run([program, path] + [f"{k}={v}" for k, v in options.items()], check=True)
        tensors = load_file(path)
    parameters, inputs = part(tensors, "parameters."), part(tensors, "inputs.")
    gradients, outputs = part(tensors, "gradients."), part(tensors, "outputs.")
    (loss, states), reference = rollout(parameters, inputs, options["depth"], options["heads"])
    errors = {"loss": difference(outputs["loss"], np.array([loss]))}
    errors |= {f"state {k}": difference(outputs[f"state{k}"], np.array(s)) for k, s in enumerate(states)}
    errors |= {f"gradient of {n}": difference(gradients[n], np.array(g)) for n, g in reference.items()}
    worst = max(errors, key=errors.get)
    count = sum(v.size for v in parameters.values())
    print(f"{options}: {count} parameters, {len(errors)} tensors; worst {errors[worst]:.2e}: {worst}")
    assert set(gradients) == set(reference)
    assert errors[worst] <= tolerance, (worst, errors[worst])


def written_by_python_is_read_as_it_is(program, **options):
    """Parameters that the safetensors library wrote give the same bits as those they were read from."""
    arguments = [f"{k}={v}" for k, v in options.items()]
    with tempfile.TemporaryDirectory() as directory:
        first, parameters, second = (directory + name for name in ("/first", "/parameters", "/second"))
        subprocess.run([program, first] + arguments, check=True)
        drawn = load_file(first)
        save_file({n[len("parameters."):]: v for n, v in drawn.items() if n.startswith("parameters.")}, parameters)
        subprocess.run([program, second, "load=" + parameters] + arguments, check=True)
        loaded = load_file(second)
    assert set(drawn) == set(loaded)
    assert all(np.array_equal(drawn[n], loaded[n]) for n in drawn)


def main():
    program = sys.argv[1]
    reference = dict(tokens=128, dim=128, hidden=384, depth=12, heads=8)
    small = dict(tokens=24, dim=32, hidden=48, depth=3, heads=4)
    compare(program, **reference, batch=2)
    conditioned = dict(**small, batch=3, parameters=5, tasks=3, steps=2)
    compare(program, **conditioned)
    compare(program, tolerance=5e-2, bf16=1, **conditioned)
    written_by_python_is_read_as_it_is(program, **conditioned)
    compare(program, tokens=7, dim=5, hidden=21, depth=2, heads=3, batch=1, qk_norm=0, plain_update=1)


if __name__ == "__main__":
    main()
