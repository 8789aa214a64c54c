"""The operator's states, loss and gradients against JAX in float64, on the same safetensors. What
tests/model/operator_gradients.c computes in float32 must agree to 1e-5, relative, tensor by tensor."""

import functools
import os
import subprocess

os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # compiling takes longer than running

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from commands import TIMEOUT, program

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


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


def conditioned_norm(p, name, x, condition):
    x = norm(p, name, x)
    if name + ".condition.weight" not in p:
        return x
    scale, shift = jnp.split(linear(p, name + ".condition", condition)[:, None], 2, axis=-1)
    return x * (1 + scale) + shift


def spectral(weight, x, periodic):
    """By the FFT: of an axis that is not periodic over twice its length, the second half zeros. The mode's matrix is
    that of its cosines less i times that of its sines; modes beyond the weight's do not pass."""
    tokens, dim = x.shape[1:]
    period = tokens if periodic else 2 * tokens
    matrices = weight[:, :dim] - 1j * weight[:, dim:]
    modes = min(len(weight), period // 2 + 1)
    transformed = jnp.fft.rfft(x, n=period, axis=1)[:, :modes]
    return jnp.fft.irfft(jnp.einsum("bmi,mio->bmo", transformed, matrices[:modes]), n=period, axis=1)[:, :tokens]


def grid_operator(p, frames, inputs, depth, heads):
    """The next frames from those that there are, tokens on a line: of the core `spectral`."""
    history = 1 + sum(name.startswith("operator.wave.earlier") for name in p)
    z = frames[-1]
    changes = [jax.lax.stop_gradient(p["operator.wave.rate"]) * (frames[-j] - frames[-j - 1]) for j in range(1, history)]
    features = jax.nn.silu(linear(p, "operator.time.0", inputs["dt"]))
    condition = None
    if "operator.condition.hidden.weight" in p:
        condition = linear(p, "operator.condition.time", features) + linear(p, "operator.condition.parameters", inputs["parameters"])
        condition = condition + linear(p, "operator.condition.task", inputs["task"])
        condition = jax.nn.silu(linear(p, "operator.condition.hidden", jax.nn.silu(condition)))
    x = linear(p, "operator.wave.input", z)
    x = x + sum(linear(p, f"operator.wave.earlier{j}", change) for j, change in enumerate(changes, 1))
    if "operator.position1d.weight" in p:
        places = (jnp.arange(z.shape[1]) + 0.5)[:, None] / z.shape[1]
        waves = [2 * jnp.pi * f * places for f in (1, 2, 4, 8, 16)]
        x = x + linear(p, "operator.position1d", jnp.concatenate([places] + [g(w) for w in waves for g in (jnp.sin, jnp.cos)], 1))
    for i in range(depth):
        q = part(p, f"operator.blocks.{i}.")
        kind = "periodic" if "spectral.1d.periodic.weight" in q else "padded"
        normed = conditioned_norm(q, "spectral.norm", x, condition)
        x = x + spectral(q[f"spectral.1d.{kind}.weight"], normed, kind == "periodic") + linear(q, "spectral.local", normed)
        hidden = jax.nn.gelu(linear(q, "mlp.up", conditioned_norm(q, "mlp.norm", x, condition)), approximate=False)
        x = x + linear(q, "mlp.down", hidden)
    update = linear(p, "operator.wave.output", norm(p, "operator.norm", x)) + linear(p, "operator.wave.skip", z)
    update = update + sum(linear(p, f"operator.wave.trend{j}", change) for j, change in enumerate(changes, 1))
    update = jax.lax.stop_gradient(p["operator.wave.change"]) * update
    updates = jnp.split(update, update.shape[-1] // z.shape[-1], axis=-1)
    if "operator.wave.kept" in p:
        kept = jax.lax.stop_gradient(p["operator.wave.kept"])
        updates = [change + change.mean(1, keepdims=True) @ kept.T for change in updates]
    return [z + change for change in updates]


@functools.partial(jax.jit, static_argnums=(2, 3))
@functools.partial(jax.value_and_grad, has_aux=True)
def rollout(p, inputs, depth, heads):
    steps = sum(name.startswith("target") for name in inputs)
    frames = [inputs[name] for name in sorted(inputs) if name[0] == "z"]
    states = []
    while len(states) < steps:
        states += grid_operator(p, frames + states, inputs, depth, heads) if "operator.wave.change" in p else [operator(p, (frames + states)[-1], inputs, depth, heads)]
    return sum(((z - inputs[f"target{k}"]) ** 2).mean() / steps for k, z in enumerate(states)), states


def part(tensors, prefix):
    return {n[len(prefix):]: v.astype(jnp.float64) for n, v in tensors.items() if n.startswith(prefix)}


def difference(ours, reference):
    size = np.linalg.norm(reference)
    return float(np.linalg.norm(ours - reference) / (size if size > 0 else 1))


SPECTRAL = dict(grid=1, spectral=1, tokens=16, dim=6, hidden=32, depth=2, heads=1, batch=3, parameters=2, tasks=2, modes=9, steps=2)
SMALL = dict(tokens=24, dim=32, hidden=48, depth=3, heads=4, batch=3, parameters=5, tasks=3, steps=2)


def compute(path, *arguments, **options):
    subprocess.run([program("operator_gradients"), path, *arguments, *(f"{k}={v}" for k, v in options.items())], check=True, timeout=TIMEOUT)
    return load_file(path)


@pytest.mark.parametrize("tolerance, options", [
    (1e-5, dict(tokens=128, dim=128, hidden=384, depth=12, heads=8, batch=2)), (1e-5, SMALL), (5e-2, dict(SMALL, bf16=1)),
    (1e-5, dict(tokens=7, dim=5, hidden=21, depth=2, heads=3, batch=1, qk_norm=0, plain_update=1)),
    (1e-5, dict(SPECTRAL, periodic=1, conserve=1)), (1e-5, dict(SPECTRAL, periodic=0, modes=25)), (5e-2, dict(SPECTRAL, periodic=1, bf16=1)),
    (1e-5, dict(SPECTRAL, periodic=0, tokens=11, hidden=19, modes=5)), (1e-5, dict(SPECTRAL, periodic=1, history=2)),
    (1e-5, dict(SPECTRAL, periodic=1, bundle=3)), (1e-5, dict(SPECTRAL, periodic=0, history=3, bundle=2, steps=3, conserve=1)),
    (1e-5, dict(SPECTRAL, periodic=1, history=2, bundle=5)), (1e-5, dict(SPECTRAL, periodic=1, history=4, bundle=1, steps=4)),
    (5e-2, dict(SPECTRAL, periodic=1, history=2, bundle=2, bf16=1))])
def test_states_loss_and_gradients_are_those_of_jax(scratch, tolerance, options):
    tensors = compute(scratch + "/out.safetensors", **options)
    parameters, inputs = part(tensors, "parameters."), part(tensors, "inputs.")
    gradients, outputs = part(tensors, "gradients."), part(tensors, "outputs.")
    (loss, states), reference = rollout(parameters, inputs, options["depth"], options["heads"])
    errors = {"loss": difference(outputs["loss"], np.array([loss]))}
    errors |= {f"state {k}": difference(outputs[f"state{k}"], np.array(s)) for k, s in enumerate(states)}
    errors |= {f"gradient of {n}": difference(gradients[n], np.array(g)) for n, g in reference.items()}
    assert set(gradients) == set(reference)
    assert max(errors.values()) <= tolerance, max(errors, key=errors.get)


def test_parameters_that_python_wrote_give_the_same_bits_as_those_they_were_read_from(scratch):
    drawn = compute(scratch + "/first", **SMALL)
    save_file({n[len("parameters."):]: v for n, v in drawn.items() if n.startswith("parameters.")}, scratch + "/parameters")
    loaded = compute(scratch + "/second", f"load={scratch}/parameters", **SMALL)
    assert set(drawn) == set(loaded)
    assert all(np.array_equal(drawn[n], loaded[n]) for n in drawn)
