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


def attention(p, x, o):
    batch, tokens, dim = x.shape
    heads, width = o["heads"], dim // o["heads"]
    qkv = linear(p, "attention.qkv", x).reshape(batch, tokens, 3, heads, width)
    q, k, v = (jnp.swapaxes(qkv[:, :, i], 1, 2) for i in range(3))
    if "attention.query_norm.weight" in p:
        q = rms_norm(q, p["attention.query_norm.weight"])
        k = rms_norm(k, p["attention.key_norm.weight"])
    weights = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / width**0.5, axis=-1)
    return linear(p, "attention.output", jnp.swapaxes(weights @ v, 1, 2).reshape(batch, tokens, dim))


def convolution(weight, x, cells, periodic):
    dims, dim = len(cells), x.shape[-1]
    size = round(len(weight) ** (1 / dims))
    bordered = jnp.pad(x.reshape(len(x), *cells, dim), [(0, 0)] + dims * [(size // 2,) * 2] + [(0, 0)], mode="wrap" if periodic else "constant")
    letters = ("NWC", "WIO", "NWC") if dims == 1 else ("NHWC", "HWIO", "NHWC")
    kernel = weight.reshape(*dims * [size], 1, dim)
    return jax.lax.conv_general_dilated(bordered, kernel, (1,) * dims, "VALID", dimension_numbers=letters, feature_group_count=dim).reshape(x.shape)


def block(p, x, condition, o, cells):
    """Which one it is its parameters tell."""
    kind = "spectral" if "spectral.norm.weight" in p else "attention"
    normed = conditioned_norm(p, kind + ".norm", x, condition)
    if kind == "spectral":
        border = "periodic" if o.get("periodic") else "padded"
        mixed = spectral(p[f"spectral.1d.{border}.weight"], normed, o.get("periodic")) + linear(p, "spectral.local", normed)
    else:
        mixed = attention(p, normed, o)
    kernel = f"convolution.{len(cells)}d.weight"
    x = x + mixed + (convolution(p[kernel], normed, cells, o.get("periodic")) if kernel in p else 0)
    hidden = jax.nn.gelu(linear(p, "mlp.up", conditioned_norm(p, "mlp.norm", x, condition)), approximate=False)
    return x + linear(p, "mlp.down", hidden)


def blocks(p, x, condition, o, cells):
    """Where all are alike, by a scan over their stacked parameters, which JAX compiles once."""
    each = [part(p, f"operator.blocks.{i}.") for i in range(o["depth"])]
    if any(one.keys() != each[0].keys() for one in each):
        for one in each:
            x = block(one, x, condition, o, cells)
        return x
    stacked = {n: jnp.stack([one[n] for one in each]) for n in each[0]}
    return jax.lax.scan(lambda x, layer: (block(layer, x, condition, o, cells), None), x, stacked)[0]


def operator(p, z, inputs, o):
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
    update = linear(p, "operator.output", norm(p, "operator.norm", blocks(p, x, None, o, (z.shape[1],))))
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


def grid_operator(p, z, inputs, o):
    cells = (o["tokens"] // o["columns"], o["columns"]) if "columns" in o else (o["tokens"],)
    features = jax.nn.silu(linear(p, "operator.time.0", inputs["dt"]))
    condition = None
    if "operator.condition.hidden.weight" in p:
        condition = linear(p, "operator.condition.time", features) + linear(p, "operator.condition.parameters", inputs["parameters"])
        condition = condition + linear(p, "operator.condition.task", inputs["task"])
        condition = jax.nn.silu(linear(p, "operator.condition.hidden", jax.nn.silu(condition)))
    x = linear(p, "operator.wave.input", z)
    borders = f"operator.position{len(cells)}d"
    if borders + ".weight" in p:
        axes = jnp.meshgrid(*((jnp.arange(n) + 0.5) / n for n in cells), indexing="ij")
        places = jnp.stack(axes, -1).reshape(-1, len(cells))
        waves = [2 * jnp.pi * f * places for f in (1, 2, 4, 8, 16)]
        x = x + linear(p, borders, jnp.concatenate([places] + [g(w) for w in waves for g in (jnp.sin, jnp.cos)], 1))
    x = blocks(p, x, condition, o, cells)
    update = linear(p, "operator.wave.output", norm(p, "operator.norm", x)) + linear(p, "operator.wave.skip", z)
    return z + jax.lax.stop_gradient(p["operator.wave.change"]) * update


@functools.partial(jax.jit, static_argnums=2)
@functools.partial(jax.value_and_grad, has_aux=True)
def rollout(p, inputs, options):
    steps = sum(name.startswith("target") for name in inputs)
    z, states, loss = inputs["z"], [], 0.0
    advance = grid_operator if "operator.wave.change" in p else operator
    for k in range(steps):
        z = advance(p, z, inputs, dict(options))
        states.append(z)
        loss = loss + ((z - inputs[f"target{k}"]) ** 2).mean() / steps
    return loss, states


def part(tensors, prefix):
    return {n[len(prefix):]: v.astype(jnp.float64) for n, v in tensors.items() if n.startswith(prefix)}


def difference(ours, reference):
    size = np.linalg.norm(reference)
    return float(np.linalg.norm(ours - reference) / (size if size > 0 else 1))


SPECTRAL = dict(grid=1, spectral=1, tokens=16, dim=6, hidden=32, depth=2, heads=1, batch=3, parameters=2, tasks=2, modes=9, steps=2)
PLANE = dict(grid=1, tokens=30, columns=6, dim=6, hidden=32, depth=2, heads=2, batch=2, parameters=2, tasks=2)
SMALL = dict(tokens=24, dim=32, hidden=48, depth=3, heads=4, batch=3, parameters=5, tasks=3, steps=2)


def compute(path, *arguments, **options):
    subprocess.run([program("operator_gradients"), path, *arguments, *(f"{k}={v}" for k, v in options.items())], check=True, timeout=TIMEOUT)
    return load_file(path)


@pytest.mark.parametrize("tolerance, options", [
    (1e-5, dict(tokens=128, dim=128, hidden=384, depth=12, heads=8, batch=2)), (1e-5, SMALL), (5e-2, dict(SMALL, bf16=1)),
    (1e-5, dict(tokens=7, dim=5, hidden=21, depth=2, heads=3, batch=1, qk_norm=0, plain_update=1)),
    (1e-5, dict(SPECTRAL, periodic=1)), (1e-5, dict(SPECTRAL, periodic=0, modes=25)), (5e-2, dict(SPECTRAL, periodic=1, bf16=1)),
    (1e-5, dict(SPECTRAL, periodic=0, tokens=11, hidden=19, modes=5)),
    (1e-5, dict(SPECTRAL, periodic=1, turns=1, heads=4, depth=3, convolution=5)), (1e-5, dict(SPECTRAL, periodic=0, convolution=7)),
    (1e-5, dict(PLANE, periodic=1, convolution=3)), (1e-5, dict(PLANE, periodic=0, convolution=7)),
    (5e-2, dict(PLANE, periodic=0, convolution=5, bf16=1))])
def test_states_loss_and_gradients_are_those_of_jax(scratch, tolerance, options):
    tensors = compute(scratch + "/out.safetensors", **options)
    parameters, inputs = part(tensors, "parameters."), part(tensors, "inputs.")
    gradients, outputs = part(tensors, "gradients."), part(tensors, "outputs.")
    (loss, states), reference = rollout(parameters, inputs, tuple(options.items()))
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
