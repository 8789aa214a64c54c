"""`ups.pytorch`: trained models in PyTorch predict what `ups rollout` predicts, have the gradients of `ups train`, and go back to `ups eval`."""

import copy
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from commands import TREE, must
from reference import torch
from tiny_run import CONFIG

PACKAGE = TREE / "tools/python/ups"
sys.path.insert(0, str(PACKAGE))
import ups.pytorch  # noqa: E402

SAMPLES = 10
DATA = {  # one and two axes with and without borders, three; patches that reach beyond the grid, odd numbers of them; parameters that differ
    "burgers": ("burgers1d", "-r", "32", "--steps", "9", "-p", "nu=log:0.001:0.1"),
    "sorption": ("diffsorp1d", "-r", "26", "--steps", "9"),
    "reaction": ("diffreact2d", "-r", "14", "--steps", "7"),
    "gas": ("cfd2d_rand", "-r", "20", "--steps", "6"),
    "cube": ("cfd3d_rand", "-r", "8", "--steps", "6"),
}
HEAD = CONFIG[:CONFIG.index("tasks:")] + "  residency: encode\nstages: [autoencoder, operator]\n"
SHORT = {
    "autoencoder": {"steps": 4, "batch_size": 4, "gate": 0, "validate_every": 0, "checkpoint_every": 0, "optimizer": {"learning_rate": 0.003, "warmup_steps": 1}},
    "operator": {"steps": 24, "batch_size": 4, "validate_every": 0, "checkpoint_every": 0, "optimizer": {"kind": "adamw", "learning_rate": 0.01, "ema_decay": 0, "warmup_steps": 1}},
}


def as_yaml(**sections):
    """As Runs.config takes it."""
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in sections.items()).replace("{", "{{").replace("}", "}}")


def configuration(model, losses=None, of_task=None, names=(*DATA, "darcy")):
    tasks = [{"name": name, "files": [name + ".h5"], "patch": [4], **(of_task or {}).get(name, {})} for name in names]
    return HEAD + as_yaml(tasks=tasks, model=model, autoencoder=SHORT["autoencoder"] | ({"losses": losses} if losses else {}), operator=SHORT["operator"])


def on_grid(of_model=None, losses=None, of_task=None, names=(*DATA, "darcy"), **operator):
    model = {"tokens": "grid", "dim": 16, **(of_model or {}), "operator": {"hidden": 24, "depth": 2, "heads": 2, "mlp_ratio": 2, **operator}}
    return configuration(model, losses, of_task, names)


def fixed(of_model=None, encoder=None, decoder=None, **operator):
    encoder, decoder = {"width": 16, "heads": 2, "frequencies": [1, 2], **(encoder or {})}, {"hidden": 16, "depth": 2, "heads": 2, "frequencies": [1, 2, 4, 8], **(decoder or {})}
    return configuration({"tokens": 6, "dim": 8, **(of_model or {}), "encoder": encoder, "decoder": decoder, "operator": {"hidden": 32, "depth": 2, "heads": 2, "mlp_ratio": 2, **operator}})


CASES = {
    "stack": on_grid(core="stack"),
    "spectral": on_grid(core="spectral", modes=[6, 3, 2], convolution=5, history=3, bundle=2),
    "turns": on_grid(core="stack", depth=3, mixing=["spectral", "attention"], modes=[40, 3, 4], convolution=3, qk_norm=False, boundary=True),
    "auto": on_grid(core="stack", depth=2, mixing=["auto"], attended_tokens=20, modes=[6, 4, 2], convolution=3, attention="window", window=[5, 3, 2]),
    "unet_auto": on_grid(core="unet", depths=[1, 2], mixing=["auto"], attended_tokens=20, merge_above=8, modes=[6, 4, 2]),
    "own_mlps": on_grid(core="stack", mixing=["auto"], attended_tokens=20, modes=[6, 4, 2], convolution=3, task_specific=["mlp"]),
    "own_mixing": on_grid(core="unet", depths=[1, 1], mixing=["attention", "spectral"], modes=[6, 4, 2], task_specific=["mixing"]),
    "own_blocks": on_grid(core="stack", attention="window", window=[3, 2, 2], depth=3, task_specific=["mixing", "mlp"], drop_path=0.1),
    "groups": on_grid(core="stack", attention="channel_separated", hidden=64, heads=4),
    "windows": on_grid(core="stack", depth=3, attention="window", window=[3, 2, 2], drop_path=0.1),
    "windows_longer_than_the_grid": on_grid(core="stack", attention="window", window=[5, 3], positions="none", condition=False, convolution=7),
    "learned": on_grid(core="stack", positions="learned", bundle=3, conserve=False),
    "bundles": on_grid(None, None, {"burgers": {"bundle": 3}, "gas": {"bundle": 1}, "darcy": {"bundle": 4}}, core="stack", bundle=2),
    "borders": on_grid(core="stack", positions="borders", history=2, condition=False),
    "unet": on_grid({"bound": 2}, core="unet", depths=[2, 1]),
    "unet_of_modes": on_grid(core="unet", depths=[1, 1, 1], mixing=["spectral"], modes=[5, 3, 2], convolution=3),
    "factorized": on_grid(core="spectral", modes=[6, 3, 2], factorized=True, convolution=3),
    "unet_of_axes": on_grid(core="unet", depths=[1, 2], mixing=["spectral"], modes=[5, 4, 3], factorized=True),
    "unet_of_windows": on_grid(core="unet", depths=[1, 2], mixing=["attention", "spectral"], attention="window", window=[3, 2, 2], modes=[4]),
    "between": on_grid({"decoder": {"between": 8}}, {"relative": {"weight": 0}, "between": {"weight": 1}}, names=("burgers", "sorption", "gas", "darcy"), core="spectral", modes=[6, 3]),
    "neighbors": on_grid(core="stack", linear="neighbors", history=2, bundle=2, conserve=False),
    "strides": on_grid(None, None, {"burgers": {"strides": [1, 2, 3], "stride": 2}, "darcy": {"strides": [1]}}, core="stack", history=2),
    "fixed": fixed(),
    "fixed_queries": fixed({"bound": 3}, {"pooling": "queries", "depth": 1}, {"qk_norm": True}, update_norm="none", attention="channel_separated", hidden=64),
    "fixed_unet": fixed(None, {"depth": 2}, {"position": False}, core="unet", depths=[1, 1], condition=False),
}


@pytest.fixture(scope="module", autouse=True)
def data(runs):
    for name, (solver, *options) in DATA.items():
        runs.generate(solver, name + ".h5", SAMPLES, *options)


@pytest.fixture(scope="module")
def run(runs):
    """The directory of the run of a case, and the file that it is exported to; each is trained once."""
    made = {}

    def find(case):
        if case not in made:
            runs.must("train", runs.config(case, CASES[case]))
            made[case] = export(runs, runs.path(case), runs.path(case + ".safetensors"))
        return runs.path(case), made[case]

    return find


# ---- the file that `ups export` writes, until there is that command ----

def read(path):
    with safe_open(path, "numpy") as file:
        return load_file(path), dict(file.metadata())


def export(runs, run, path):
    runs.must("export", run, "-o", path)
    return path


# ---- against the command ----

def rollouts(runs, run, task, *options):
    """What `ups rollout` predicts for all test trajectories: (trajectories, frames, *grid, channels) of prediction and truth, parameters of each, times."""
    path = runs.path(runs.fresh() + ".h5")
    runs.must("rollout", run, "--task", task, "-o", path, "-n", "99", *options)
    with h5py.File(path) as file:
        groups = [file] if "tensor" in file else [file[name] for name in sorted(file)]
        found = [[group[name][:][..., None] if "tensor" in file else group[name][:][None] for name in (("tensor", "truth") if "tensor" in file else ("data", "truth")) if name in group] for group in groups]
        parameters = [{name: float(value) for name, value in group.attrs.items() if np.issubdtype(np.asarray(value).dtype, np.floating)} for group in groups for _ in range(len(found[0][0]))]
        return *(np.concatenate(part) for part in zip(*found)), parameters, groups[0]["t"][:]


def by_name(parameters):
    return {name: torch.tensor([each[name] for each in parameters]) for name in parameters[0]}


def predict(model, task, fields, parameters, **options):
    with torch.no_grad():
        return model.predict(fields, task, by_name(parameters), **options).numpy()


def differences(found, expected):
    """Of each frame the largest over channels, in units of the channel's size in a frame."""
    assert found.shape == expected.shape
    assert np.isfinite(expected).all()
    of_frames = lambda x: np.sqrt((x.astype(float) ** 2).sum((0, *range(2, x.ndim - 1))))  # noqa: E731
    return (of_frames(found - expected) / np.sqrt((of_frames(expected) ** 2).mean(0))).max(1)


def agree(found, expected):
    apart = differences(found, expected)
    assert apart[:2].max() < 3e-5 and apart.max() < 1e-4, apart  # 8e-6 with PyTorch 2.15, 1.5e-5 with 1.13: the cube's pressures are small beside their mean


@pytest.mark.parametrize("case", CASES)
def test_predictions_are_those_of_the_command(runs, run, case):
    directory, file = run(case)
    model = ups.pytorch.load(file)
    assert not model.training and set(model.state_dict()) == set(load_file(file))
    for task in model.tasks:
        expected, truth, parameters, _ = rollouts(runs, directory, task)
        found = predict(model, task, truth[:, 0], parameters)
        agree(found, expected)
        moved = np.abs(expected[:, 1:] - expected[:, :1]).max()
        assert moved > 1e-3 * np.abs(expected).max(), "nothing moves, and nothing is tested"


@pytest.mark.parametrize("case, task", [("spectral", "burgers"), ("learned", "gas"), ("fixed", "sorption")])
def test_so_are_those_beyond_the_data_and_from_several_frames(runs, run, case, task):
    directory, file = run(case)
    model = ups.pytorch.load(file)
    expected, truth, parameters, _ = rollouts(runs, directory, task, "--steps", "13", "--set", "evaluation.given=2")
    agree(predict(model, task, truth[:, :2], parameters, steps=13), expected)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_so_are_steps_of_every_stride_that_was_learnt(runs, run, stride):
    directory, file = run("strides")
    model = ups.pytorch.load(file)
    expected, truth, parameters, times = rollouts(runs, directory, "burgers", "--stride", str(stride))
    agree(predict(model, "burgers", truth[:, 0], parameters, stride=stride), expected)
    agree(predict(model, "burgers", truth[:, 0], parameters, stride=stride, dt=np.tile(np.diff(times), (len(truth), 1))), expected)
    assert model.tasks["burgers"].strides == (1, 2, 3) and model.tasks["burgers"].dt == pytest.approx(0.5)
    with pytest.raises(ValueError, match="strides of 1, 2, 3, not of 4"):
        model.predict(truth[:, 0], "burgers", stride=4)


def test_each_step_takes_the_time_that_it_is_told(run):
    """The first of a bundle tells that of all."""
    for case, bundle in (("stack", 1), ("spectral", 2)):
        model, dt = ups.pytorch.load(run(case)[1]), torch.tensor([[0.1, 0.9, 0.4, 0.2], [0.3, 0.2, 0.8, 0.5]])
        fields, nu = torch.rand(2, 32, 1, generator=torch.Generator().manual_seed(3)), [[0.01], [0.02]]
        with torch.no_grad():
            states = model.encode(fields, "burgers")[:, None]
            for step in range(0, 4, bundle):
                states = torch.cat([states, model.advance(states, "burgers", nu, dt[:, step])], 1)
            together = model.predict(fields, "burgers", nu, steps=4, dt=dt)
            assert torch.allclose(together, model.decode(states, "burgers"), rtol=1e-4, atol=1e-5)
            assert not torch.allclose(together, model.predict(fields, "burgers", nu, steps=4, dt=dt[:, 0]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("case, task, resolution", [
    ("between", "sorption", (47,)), ("between", "gas", (20, 33)), ("between", "darcy", (5, 19)), ("fixed", "sorption", (47,)), ("fixed", "cube", (7, 8, 9)), ("unet", "gas", (20, 33)), ("unet", "reaction", (5, 19)),
    ("unet", "cube", (7, 8, 9))])
def test_so_are_values_between_grid_points(runs, run, case, task, resolution):
    directory, file = run(case)
    model = ups.pytorch.load(file)
    _, truth, parameters, _ = rollouts(runs, directory, task)
    expected, _, _ = rollouts(runs, directory, task, "--resolution", "x".join(map(str, resolution)))
    axes = [(np.arange(n) + 0.5) / n for n in resolution]
    coordinates = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes)).astype("f4")
    with torch.no_grad():
        latents = model.encode(truth[:, 0], task)[:, None]
        latents = torch.cat([latents, model.advance(latents, task, by_name(parameters))], 1)
        found = model.decode(latents, task, coordinates).numpy()
    agree(found.reshape(*found.shape[:2], *resolution, found.shape[-1]), expected[:, :found.shape[1]])
    if case == "between":
        model.decoder[task].between.output.weight.data.zero_()
        with torch.no_grad():
            assert np.abs(model.decode(latents, task, coordinates).numpy() - found).max() > 1e-4 * np.abs(found).max()


# ---- gradients ----

BETA = 0.9
ONE_STEP = {"steps": 4, "log_every": 1, "checkpoint_every": 1, "validation_batches": 1, "optimizer": {"kind": "adamw", "clip": 0, "ema_decay": 0, "learning_rate": 0.003, "warmup_steps": 1}}


def taught(train, test, **sections):
    """A configuration with shares of samples, of a training that keeps its last two checkpoints."""
    split = f"data: {{{{root: {{data}}, split: {{{{train: {train}, validation: {test}, test: {test}}}}}}}}}\n"
    return CONFIG[:CONFIG.index("data:")] + split + as_yaml(checkpoint={"keep": 2}, **sections)


def last_step(runs, name, stage, steps=4):
    """A model with the weights before the last step of a training, and that step's gradients, by what AdamW keeps in two checkpoints."""
    first, last = (load_file(f"{runs.path(name)}/checkpoints/{stage}/step-{step:08d}.safetensors") for step in (steps - 1, steps))
    key = "adamw.first_moment."
    gradients = {n[len(key):]: (v.astype(float) - BETA * first[n].astype(float)) / (1 - BETA) for n, v in last.items() if n.startswith(key)}
    model = ups.pytorch.load(export(runs, runs.path(name), runs.path(name + ".safetensors")), dtype=torch.float64)
    weights = {n: torch.from_numpy(v) for n, v in first.items() if n.split(".")[0] in ("operator", "encoder", "decoder")}
    assert not model.load_state_dict(weights, strict=False).unexpected_keys
    return model.train(), gradients


def same_gradients(model, loss, gradients):
    loss.backward()
    of = {name: parameter.grad.numpy() for name, parameter in model.named_parameters() if name in gradients and parameter.grad is not None}
    assert not [name for name in gradients if name not in of and np.any(gradients[name])]
    whole = math.sqrt(sum(np.linalg.norm(g) ** 2 for g in gradients.values()))
    apart = {name: np.linalg.norm(found - gradients[name]) / max(np.linalg.norm(gradients[name]), 1e-3 * whole) for name, found in of.items()}
    assert len(apart) > 10 and max(apart.values()) < 1e-4, max(apart.items(), key=lambda item: item[1])


def test_a_step_of_the_operator_has_the_gradients_of_ups_train(runs):
    """Trajectories are as long as a window, and a batch has all of them."""
    runs.generate("burgers1d", "three.h5", 4, "-r", "32", "--steps", "3", "-p", "nu=log:0.001:0.1")
    core = {"core": "unet", "depths": [1, 1], "mixing": ["attention", "spectral"], "modes": [4], "convolution": 3, "hidden": 16, "heads": 2, "mlp_ratio": 2, "history": 2}
    text = taught(0.5, 0.25, tasks=[{"name": "burgers", "files": ["three.h5"], "patch": [4]}], model={"tokens": "grid", "dim": "auto", "operator": core},
                  autoencoder={"steps": 0, "gate": 0}, operator={**ONE_STEP, "batch_size": 2, "short_history": 0})
    runs.must("train", runs.config("gradients", text))
    model, gradients = last_step(runs, "gradients", "operator")
    path = runs.path("gradients.h5")
    runs.must("cache", "export", runs.path("gradients", "cache", "burgers", "train"), "-o", path, "--format", "hdf5")
    with h5py.File(path) as file:
        latents, nu = torch.from_numpy(file["latent"][:].astype(float)), torch.from_numpy(file["condition"][:])
    predicted = model.advance(latents[:, :2], "burgers", nu)[:, 0]
    loss = ((predicted - latents[:, 2]).flatten(1).norm(dim=1) / latents[:, 2].flatten(1).norm(dim=1)).mean()
    same_gradients(model, loss, gradients)


@pytest.mark.parametrize("encoder", [{}, {"pooling": "queries", "depth": 1}], ids=["mean", "queries"])
def test_a_step_of_the_autoencoder_has_the_gradients_of_ups_train(runs, encoder):
    """Of trajectories with one frame twice, of which a batch has all; query points are all of the grid."""
    with h5py.File(runs.generate("diffreact2d", "still.h5", 3, "-r", "14", "--steps", "2", "--force"), "a") as file:
        trajectories = [file[name]["data"] for name in sorted(file) if name.isdigit()]
        for trajectory in trajectories:
            trajectory[1] = trajectory[0]
        fields = np.stack([trajectory[0] for trajectory in trajectories])
    name = runs.fresh()
    model = {"tokens": 6, "dim": 8, "encoder": {"width": 16, "heads": 2, "mlp_ratio": 2, "frequencies": [1, 2], **encoder},
             "decoder": {"hidden": 16, "depth": 2, "heads": 2, "frequencies": [1, 2]}, "operator": {"hidden": 8, "depth": 1, "heads": 1}}
    text = taught(1, 0, tasks=[{"name": "still", "files": ["still.h5"], "patch": [4]}], model=model, operator={"steps": 1, "batch_size": 1, "validate_every": 0},
                  autoencoder={**ONE_STEP, "batch_size": 3, "gate": 0, "queries": 100000, "losses": {"inverse_decoding": {"weight": 1}, "relative": {"weight": 0}}})
    runs.must("train", runs.config(name, text))
    model, gradients = last_step(runs, name, "autoencoder")
    domain, fields = model.domains["still"], torch.from_numpy(fields.astype(float))
    loss = (domain.normalise(model.decode(model.encode(fields, "still"), "still")) - domain.normalise(fields)).square().mean()
    same_gradients(model, loss, gradients)


def test_gradients_reach_fields_parameters_coordinates_and_the_time_of_a_step(run):
    """Against finite differences in float64."""
    model = ups.pytorch.load(run("turns")[1], dtype=torch.float64)
    random = torch.Generator().manual_seed(1)
    inputs = [torch.rand(shape, generator=random, dtype=torch.float64) * scale + 0.01 for shape, scale in (((2, 32, 1), 1), ((2, 1), 0.05), ((2,), 0.3), ((5, 1), 0.9))]

    def value(fields, nu, dt, coordinates):
        latents = model.encode(fields, "burgers")[:, None]
        return model.decode(model.advance(latents, "burgers", nu, dt), "burgers", coordinates).square().sum()

    assert torch.autograd.gradcheck(value, [each.requires_grad_() for each in inputs], eps=1e-6, atol=1e-5, rtol=1e-4, fast_mode=True)


# ---- training, and back ----

def scores(runs, directory, *options):
    told = runs.told("eval", directory, "-o", runs.path(runs.fresh() + ".json"), "--set", "evaluation.horizons=[1, 0]", *options)
    return {task["task"]: [horizon["model"] for horizon in task["horizons"]] for task in told["tasks"]}


@pytest.mark.parametrize("case", ["spectral", "fixed_queries"])
def test_a_saved_model_is_the_same_model(runs, run, case):
    directory, file = run(case)
    saved = runs.path(case + "-saved.safetensors")
    ups.pytorch.load(file).save(saved)
    (tensors, metadata), (again, told) = read(file), read(saved)
    assert metadata == told and tensors.keys() == again.keys()
    assert all(np.array_equal(tensors[name], again[name]) for name in tensors)
    assert scores(runs, directory, "--checkpoint", saved) == scores(runs, directory)


def test_what_a_run_in_fp8_keeps_of_its_scales_goes_back_with_it(runs):
    """Products are float32 here, so that predictions are those of bf16 but for its eight bits."""
    runs.must("train", runs.config("fp8", on_grid(core="stack", hidden=64, heads=4).replace("precision: f32", "precision: fp8")))
    file, saved = export(runs, runs.path("fp8"), runs.path("fp8.safetensors")), runs.path("fp8-saved.safetensors")
    model = ups.pytorch.load(file)
    model.save(saved)
    (tensors, _), (again, _) = read(file), read(saved)
    assert [name for name in tensors if name.endswith(".fp8")] and tensors.keys() == again.keys()
    assert all(np.array_equal(tensors[name], again[name]) for name in tensors)
    expected, truth, parameters, _ = rollouts(runs, runs.path("fp8"), "burgers", "--checkpoint", saved)
    apart = differences(predict(model, "burgers", truth[:, 0], parameters), expected)
    assert apart[0] < 1e-5 and apart.max() < 5e-3, apart


def test_a_run_can_be_loaded_from_its_directory(runs, run):
    """Once its operator.safetensors tells of configuration and fields, as it does in the exported file."""
    directory, file = run("stack")
    copied = Path(shutil.copytree(directory, runs.path("copied")))
    tensors, told = read(copied / "operator.safetensors")
    exported = read(file)[1]
    save_file(tensors, copied / "operator.safetensors", exported | told)
    one, other = ups.pytorch.load(copied), ups.pytorch.load(file)
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())
    one.save(runs.path("from_directory.safetensors"))
    assert read(runs.path("from_directory.safetensors"))[1] == exported


def test_fine_tuning_lowers_the_loss_and_the_command_sees_it(runs, run):
    directory, file = run("stack")
    model = ups.pytorch.load(file).train()
    measured = [name for name in model.state_dict() if name.endswith((".change", ".kept"))]
    before = {name: model.state_dict()[name].clone() for name in model.state_dict()}
    with h5py.File(runs.path("data", "burgers.h5")) as data:
        fields, nu = torch.from_numpy(data["tensor"][:6])[..., None], torch.from_numpy(data["parameters/nu"][:6])[:, None]
    optimizer, losses = torch.optim.AdamW(model.operator.parameters(), lr=1e-3), []
    for _ in range(20):
        with torch.no_grad():
            latents = model.encode(fields, "burgers")
        next_ones = model.advance(latents[:, :-1].reshape(-1, 1, *latents.shape[2:]), "burgers", nu.repeat_interleave(8, 0))
        loss = (next_ones[:, 0] - latents[:, 1:].flatten(0, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0], losses
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in measured) and measured
    model.save(runs.path("tuned.safetensors"))
    tuned, plain = scores(runs, directory, "--checkpoint", runs.path("tuned.safetensors"), "--split", "train"), scores(runs, directory, "--split", "train")
    assert tuned["burgers"][0]["nrmse"] < 0.9 * plain["burgers"][0]["nrmse"]
    expected, truth, parameters, _ = rollouts(runs, directory, "burgers", "--checkpoint", runs.path("tuned.safetensors"))
    agree(predict(model.eval(), "burgers", truth[:, 0], parameters), expected)


def test_drop_path_leaves_out_branches_of_samples_in_training_alone(run):
    """Each block of a sample has one of four values then, and on average that of all branches."""
    model = ups.pytorch.load(run("windows")[1])
    block = model.operator["blocks"][-1]
    assert [round(each.drop_path, 6) for each in model.operator["blocks"]] == [0, 0.05, 0.1]
    block.drop_path, grid = 0.25, model.domains["gas"].levels[0]
    torch.manual_seed(2)
    x, condition = torch.randn(1, 25, 24).expand(4000, -1, -1), torch.randn(1, 128).expand(4000, -1)
    with torch.no_grad():
        whole, drawn = block(x[:1], grid, condition[:1]), block.train()(x, grid, condition)
    kinds, counts = drawn.flatten(1).round(decimals=3).unique(dim=0, return_counts=True)
    assert sorted(counts.tolist()) == pytest.approx([250, 750, 750, 2250], rel=0.15)
    assert any(torch.allclose(kind, x[0].flatten(), atol=1e-3) for kind in kinds)
    assert not any(torch.allclose(kind, whole.flatten(), atol=1e-3) for kind in kinds)


# ---- what it is ----

def test_it_needs_nothing_of_ups_and_ups_needs_no_pytorch(run, scratch):
    """Copied under another name, away from the package; and the package alone, where importing PyTorch fails."""
    shutil.copy(PACKAGE / "ups/pytorch.py", f"{scratch}/surrogates.py")
    blocked = "import sys; sys.modules.update({name: None for name in ('yaml', 'safetensors', 'h5py', 'ups')}); "
    alone = blocked + f"import surrogates; print(list(surrogates.load({run('fixed')[1]!r}).tasks))"
    assert subprocess.run([sys.executable, "-c", alone], cwd=scratch, capture_output=True, text=True, check=True).stdout.strip() == str([*DATA, "darcy"])
    package = f"import sys; sys.path.insert(0, {str(PACKAGE)!r}); import ups; assert 'torch' not in sys.modules; print(ups.pytorch.load.__module__)"
    assert subprocess.run([sys.executable, "-c", package], cwd=scratch, capture_output=True, text=True, check=True).stdout.strip() == "ups.pytorch"


def test_tasks_tell_what_fields_are(run):
    tasks = ups.pytorch.load(run("spectral")[1]).tasks
    gas, darcy = tasks["gas"], tasks["darcy"]
    assert (gas.channels, gas.grid, gas.axes, gas.periodic, gas.parameters) == (("density", "pressure", "Vx", "Vy"), (20, 20), ("x", "y"), True, ("M", "eta", "zeta"))
    assert gas.low == pytest.approx((0, 0), abs=1e-6) and gas.high == pytest.approx((1, 1)) and gas.dt == pytest.approx(0.2)
    assert (gas.history, gas.bundle, gas.steady, gas.steps) == (3, 2, False, 5)
    assert (darcy.history, darcy.bundle, darcy.steady, darcy.steps, darcy.tokens, darcy.dim) == (1, 1, True, 1, 16, 16)


def test_it_knows_what_a_configuration_of_this_version_can_say(runs):
    """A new key of the section `model`, or a new value, has to be computed here too, and then stands in KNOWN."""
    model = json.loads(runs.must("config", "schema").stdout)["properties"]["model"]["properties"]
    del model["from"]  # what a model began as; no file of a model tells it
    sections = {"": model} | {name: model[name]["properties"] for name in ("encoder", "decoder", "operator")}
    found = {section: {key: set(values_of(told)) for key, told in keys.items()} for section, keys in sections.items()}
    found["operator"]["core"] = set(re.findall(r"(\w+) \(", model["operator"]["properties"]["core"]["description"]))
    known = {section: {key: set(values) for key, values in keys.items()} for section, keys in ups.pytorch.KNOWN.items()}
    assert found == known


def values_of(told):
    return told.get("enum") or told.get("items", {}).get("enum") or next(filter(None, map(values_of, told.get("anyOf", []))), [])


def test_parameters_are_told_by_name_or_by_place_and_mistakes_are_named(run):
    model = ups.pytorch.load(run("stack")[1])
    fields = torch.rand(2, 32, 1)
    with torch.no_grad():
        named, placed = model.predict(fields, "burgers", {"NU": 0.02}, steps=2), model.predict(fields, "burgers", [[0.02], [0.02]], steps=2)
        with pytest.warns(UserWarning, match="task 'burgers'.*parameter 'nu'"):
            unknown = model.predict(fields, "burgers", steps=1)
    assert torch.equal(named, placed) and torch.isfinite(unknown).all() and not torch.equal(named[:, 1], unknown[:, 1])
    for words, call in ((r"no task 'burger'; .*burgers", lambda: model.encode(fields, "burger")), (r"fields of task 'gas' are \(B, 20, 20, 4\).*\(2, 32, 1\)", lambda: model.encode(fields, "gas")),
                        (r"no parameter 'mu'; it has nu", lambda: model.predict(fields, "burgers", {"mu": 1})), (r"parameters .* are \(2, 1\): nu; .*\(2, 2\)", lambda: model.predict(fields, "burgers", torch.ones(2, 2))),
                        (r"8 tokens of 4", lambda: model.decode(torch.ones(2, 7, 4), "burgers")), (r"coordinates .* \(Q, 2\)", lambda: model.decode(torch.ones(1, 25, 16), "gas", torch.ones(3, 1)))):
        with pytest.raises(ValueError, match=words):
            call()


def test_a_model_moves_and_copies_like_any_module(run):
    model = ups.pytorch.load(run("unet_of_windows")[1], dtype=torch.float64)
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float64}
    fields = torch.rand(1, 20, 20, 4)
    with torch.inference_mode():
        exact = model.predict(fields, "gas", [[0.1, 1e-8, 1e-8]])
        assert torch.equal(copy.deepcopy(model)(fields, "gas", [[0.1, 1e-8, 1e-8]]), exact)
        single = model.float().predict(fields, "gas", [[0.1, 1e-8, 1e-8]])
    assert exact.dtype == torch.float64 and single.dtype == torch.float32
    assert (single - exact).norm() < 1e-4 * exact.norm()


@pytest.mark.parametrize("case", CASES)
def test_everything_is_computed_where_the_model_lies(run, case):
    """On a device without numbers, which refuses tensors of the host."""
    model = ups.pytorch.load(run(case)[1], device="meta")
    for name, task in model.tasks.items():
        fields, dims = torch.ones(2, *task.grid, len(task.channels), device="meta"), len(task.grid)
        assert model.predict(fields, name, dict.fromkeys(task.parameters, 0.3), steps=1, dt=0.1).shape == (2, 2, *fields.shape[1:])
        between = model.decode(torch.ones(2, task.tokens, task.dim, device="meta"), name, torch.rand(5, dims))
        assert between.device.type == "meta" and between.shape == (2, 5, len(task.channels))


def test_what_the_readme_shows_runs(runs, run, scratch, monkeypatch):
    shown = re.search(r"^## Models in PyTorch\n.*?^```python\n(.*?)^```", (PACKAGE / "README.md").read_text(), re.M | re.S)[1]
    directory, file = run("stack")
    shutil.copy(file, f"{scratch}/model.safetensors")
    monkeypatch.chdir(scratch)
    exec(shown, {})
    runs.must("eval", directory, "--checkpoint", f"{scratch}/tuned.safetensors", "-o", f"{scratch}/tuned.json")


# ---- files that are broken ----

def broken(runs, file, change):
    """A copy of a file after change(tensors, metadata)."""
    tensors, metadata = read(file)
    change(tensors, metadata)
    path = runs.path(runs.fresh() + ".safetensors")
    save_file(tensors, path, metadata)
    return path


def set_value(key, *path):
    def change(tensors, metadata):
        entry = json.loads(metadata[key])
        inner = entry
        for part in path[:-2]:
            inner = inner[part]
        inner[path[-2]] = path[-1]
        metadata[key] = json.dumps(entry)
    return change


BROKEN = {
    "a tensor is missing": (lambda t, m: t.pop("operator.norm.weight"), "tensor 'operator.norm.weight' is missing; .*ups export RUN -o FILE"),
    "a tensor is too short": (lambda t, m: t.update({"operator.norm.weight": np.ones(7, "f4")}), r"'operator.norm.weight' has the shape \(7,\), .* asks for \(24,\)"),
    "a tensor holds integers": (lambda t, m: t.update({"operator.norm.weight": np.ones(24, "i4")}), "'operator.norm.weight' has the dtype I32"),
    "a tensor of a later version": (lambda t, m: t.update({"operator.blocks.0.experts.weight": np.ones(3, "f4")}), "'operator.blocks.0.experts.weight' is of a part that this version .* does not know"),
    "no configuration": (lambda t, m: m.pop("ups.config"), "lack 'ups.config': .*older version; `ups export RUN -o FILE`"),
    "no fields": (lambda t, m: m.pop("gas.fields"), "lack 'gas.fields': .*older version; `ups export RUN -o FILE`"),
    "fields that are not JSON": (lambda t, m: m.update({"gas.fields": "{"}), "'gas.fields' of its metadata is not JSON"),
    "fields that lack a part": (lambda t, m: m.update({"gas.fields": "{}"}), r"metadata lack what a model .*'grid'.*ups export"),
    "no operator": (lambda t, m: [t.pop(n) for n in list(t) if n.startswith("operator.")], "an operator or an autoencoder, not both; .*ups export RUN -o FILE"),
    "a core of a later version": (set_value("ups.config", "model", "operator", "core", "lattice"), r"trained with model.operator.core: \"lattice\", which is not known here"),
    "a key of a later version": (set_value("ups.config", "model", "operator", "experts", 4), r"trained with model.operator.experts: 4, which is not known here"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_model_that_is_not_whole_is_refused_by_name(runs, run, case):
    change, words = BROKEN[case]
    path = broken(runs, run("stack")[1], change)
    with pytest.raises(ups.pytorch.ModelError, match="^" + path + ": .*" + words) as told:
        ups.pytorch.load(path)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("cut, words", [(0, "would be 0 bytes"), (5, "truncated"), (100, "would be .* in a file of 100.*truncated"), (-4, "truncated or damaged")], ids=str)
def test_a_file_that_was_cut_is_refused_by_name(runs, run, cut, words):
    path = Path(runs.path(runs.fresh() + ".safetensors"))
    path.write_bytes(Path(run("stack")[1]).read_bytes()[:cut])
    with pytest.raises(ups.pytorch.ModelError, match=f"^{path}: .*{words}.*ups export RUN -o FILE"):
        ups.pytorch.load(path)


@pytest.mark.parametrize("header", [b"[]", b"{", b'{"a": 3}', b'{"a": {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 4]}}', b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}'], ids=len)
def test_a_header_that_is_none_is_refused_by_name(scratch, header):
    path = Path(scratch, "model.safetensors")
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ups.pytorch.ModelError, match=f"^{path}: .*ups export RUN -o FILE"):
        ups.pytorch.load(path)


def test_a_directory_without_a_model_is_refused_by_name(scratch):
    with pytest.raises(ups.pytorch.ModelError, match=f"^{scratch}: a directory without autoencoder.safetensors; .*ups export RUN -o FILE"):
        ups.pytorch.load(scratch)


def test_a_task_that_is_called_as_a_method_is_told_apart(runs):
    for name, own in (("train", []), ("to", ["mlp"])):
        text = on_grid(core="stack", depth=1, task_specific=own)
        runs.must("train", runs.config("called-" + name, text.replace('"name": "burgers"', f'"name": "{name}"')), "--set", "operator.steps=2")
        path = export(runs, runs.path("called-" + name), runs.path(f"called-{name}.safetensors"))
        model = ups.pytorch.load(path)
        assert set(model.state_dict()) == set(load_file(path))
        expected, truth, parameters, _ = rollouts(runs, runs.path("called-" + name), name)
        agree(predict(model.train().eval(), name, truth[:, 0], parameters), expected)


def test_a_task_that_is_called_as_a_part_is_refused(runs, tmp_path):
    """`ups` trains no such task, but a file may be from anywhere."""
    runs.must("train", runs.config("renamed", on_grid(core="stack", depth=1)), "--set", "operator.steps=2")
    with safe_open(export(runs, runs.path("renamed"), runs.path("renamed.safetensors")), "np") as file:
        metadata = {name.replace("burgers", "blocks"): text.replace("burgers", "blocks") for name, text in file.metadata().items()}
        tensors = {name.replace("burgers", "blocks"): file.get_tensor(name) for name in file.keys()}
    save_file(tensors, tmp_path / "called.safetensors", metadata)
    with pytest.raises(ups.pytorch.ModelError, match="a task is called 'blocks'"):
        ups.pytorch.load(tmp_path / "called.safetensors")


# ---- points that lie anywhere ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", [
    {"core": "stack", "positions": "rotary"}, {"core": "unet", "depths": [1, 1, 1], "positions": "rotary"}, {"core": "stack", "positions": "borders"},
    {"core": "stack", "attention": "window", "window": [4], "positions": "none"}, {"core": "stack", "positions": "learned"}], ids=str)
def test_fields_on_a_mesh_are_predicted_at_its_points(tmp_path, operator):
    must("datagen", "transport_mesh2d", "-o", tmp_path / "mesh.h5", "-n", SAMPLES, "-r", 16, "--steps", 6, "-q")
    text = on_grid(names=("mesh",), **operator).format(output=tmp_path / "run", data=tmp_path)
    (tmp_path / "mesh.yaml").write_text(text)
    must("train", tmp_path / "mesh.yaml", "-q")
    must("rollout", tmp_path / "run", "-o", tmp_path / "r.h5", "-q")
    must("export", tmp_path / "run", "-o", tmp_path / "model.safetensors", "-q")
    model = ups.pytorch.load(tmp_path / "model.safetensors", dtype=torch.float64)
    with h5py.File(tmp_path / "r.h5") as r, h5py.File(tmp_path / "mesh.h5") as f:
        rows = [int(name.split("[")[1][:-1]) for name in r.attrs["ups.samples"].split(", ")]
        first = np.stack([f["u"][:][rows, 0], f["vx"][:][rows], f["vy"][:][rows]], -1)
        parameters = {name: f.attrs[name] for name in model.tasks["mesh"].parameters}
        with torch.no_grad():
            predicted = model.predict(first, "mesh", parameters)[..., 0].numpy()
        scale = np.abs(r["u"][:]).max()
        assert np.abs(predicted - r["u"][:]).max() < 2e-4 * scale
        assert np.abs(r["u"][:, -1] - r["u"][:, 0]).max() > 0.05 * scale  # it moves
    with pytest.raises(ValueError, match="leave coordinates out"):
        model.decode(model.encode(torch.as_tensor(first), "mesh"), "mesh", coordinates=[[0.5]])


@pytest.mark.parametrize("more", [{}, {"bound": 3}, {"history": 2}], ids=str)
@pytest.mark.parametrize("operator", [
    {"core": "stack", "positions": "rotary"}, {"core": "unet", "depths": [1, 1, 1], "positions": "rotary"}, {"core": "stack", "positions": "borders"},
    {"core": "stack", "attention": "window", "window": [4], "positions": "rotary"}, {"core": "stack", "positions": "none"}], ids=str)
def test_fields_on_points_of_each_sample_are_predicted_at_them(tmp_path, operator, more):
    rng = np.random.default_rng(2)
    t, points = np.linspace(0, 0.5, 7), rng.random((SAMPLES, 90, 2))
    with h5py.File(tmp_path / "mesh.h5", "w") as f:
        f["points"], f["t"] = points, t
        f["u"] = np.cos(6 * (points[:, None] @ [1.0, 0.5] - t[:, None] + rng.random((SAMPLES, 1, 1)))).astype("f4")
    if "bound" not in more:
        operator = operator | more
    (tmp_path / "mesh.yaml").write_text(on_grid({"dim": "auto"}, names=("mesh",), **operator).format(output=tmp_path / "run", data=tmp_path))
    must("train", tmp_path / "mesh.yaml", "-q", "--set", f"model.bound={more.get('bound', 0)}")
    must("rollout", tmp_path / "run", "-o", tmp_path / "r.h5", "-q")
    must("export", tmp_path / "run", "-o", tmp_path / "model.safetensors", "-q")
    model = ups.pytorch.load(tmp_path / "model.safetensors", dtype=torch.float64)
    assert set(model.state_dict()) == set(load_file(tmp_path / "model.safetensors"))
    with h5py.File(tmp_path / "r.h5") as r:
        rows = [int(name.split("[")[1][:-1]) for name in r.attrs["ups.samples"].split(", ")]
        given = r.attrs.get("ups.given", 1)
        with h5py.File(tmp_path / "mesh.h5") as f:
            first = np.concatenate([np.repeat(points[rows, None], 7, 1).astype("f4"), f["u"][:][rows][..., None]], -1)[:, :int(given)]
        with torch.no_grad():
            predicted = model.predict(first, "mesh")[..., 2].numpy()
        scale = np.abs(r["u"][:]).max()
        assert np.abs(predicted - r["u"][:]).max() < 2e-4 * scale
        assert np.abs(r["u"][:, -1] - r["u"][:, 0]).max() > 0.05 * scale  # it moves
    sorted_fields = model.decode(model.encode(torch.as_tensor(first[:, 0]), "mesh"), "mesh").detach()  # in the order of the tree, of which the coordinates tell
    for ours, theirs in zip(sorted_fields.numpy(), first[:, 0]):
        apart = np.abs(ours[:, None] - theirs[None]).max(-1)
        assert apart.min(0).max() < 0.05 and apart.min(1).max() < 0.05


def test_samples_may_have_fewer_points_than_others(tmp_path):
    rng = np.random.default_rng(3)
    t, points, counts = np.linspace(0, 0.5, 7), rng.random((SAMPLES, 90, 2)), rng.integers(40, 91, SAMPLES)
    with h5py.File(tmp_path / "mesh.h5", "w") as f:
        f["points"], f["t"], f["count"] = points, t, counts
        f["u"] = u = np.cos(6 * (points[:, None] @ [1.0, 0.5] - t[:, None] + rng.random((SAMPLES, 1, 1)))).astype("f4")
    operator = {"core": "stack", "positions": "rotary"}
    (tmp_path / "mesh.yaml").write_text(on_grid({"dim": "auto"}, names=("mesh",), **operator).format(output=tmp_path / "run", data=tmp_path))
    must("train", tmp_path / "mesh.yaml", "-q")
    must("rollout", tmp_path / "run", "-o", tmp_path / "r.h5", "-q")
    must("export", tmp_path / "run", "-o", tmp_path / "model.safetensors", "-q")
    model = ups.pytorch.load(tmp_path / "model.safetensors", dtype=torch.float64)
    with h5py.File(tmp_path / "r.h5") as r:
        for i, name in enumerate(r.attrs["ups.samples"].split(", ")):
            sample = int(name.split("[")[1][:-1])
            count = counts[sample]
            first = np.concatenate([points[sample, :count].astype("f4"), u[sample, 0, :count, None]], -1)[None]
            with torch.no_grad():
                predicted = model.predict(first, "mesh")[0, ..., 2].numpy()
            assert np.abs(predicted - r["u"][i, :, :count]).max() < 2e-4 * np.abs(r["u"][i]).max()
    with pytest.raises(ValueError, match="these are"):
        model.encode(np.zeros((1, 91, 3)), "mesh")


@pytest.mark.parametrize("history", [1, 2])
def test_points_that_move_are_followed(tmp_path, history):
    rng = np.random.default_rng(4)
    t, first = np.linspace(0, 0.5, 7), rng.random((SAMPLES, 90, 2))
    points = (first[:, None] + t[:, None, None] * np.stack([np.sin(6 * first[..., 1]), np.cos(5 * first[..., 0])], -1)[:, None]).astype("f4")
    with h5py.File(tmp_path / "mesh.h5", "w") as f:
        f["points"], f["t"], f["u"] = points, t, points.sum(-1)
    operator = {"core": "stack", "positions": "rotary", "history": history}
    (tmp_path / "mesh.yaml").write_text(on_grid({"dim": "auto"}, names=("mesh",), **operator).format(output=tmp_path / "run", data=tmp_path))
    must("train", tmp_path / "mesh.yaml", "-q", "--set", f"evaluation.given={history}")
    must("rollout", tmp_path / "run", "-o", tmp_path / "r.h5", "-q")
    must("export", tmp_path / "run", "-o", tmp_path / "model.safetensors", "-q")
    model = ups.pytorch.load(tmp_path / "model.safetensors", dtype=torch.float64)
    with h5py.File(tmp_path / "r.h5") as r:
        rows = [int(name.split("[")[1][:-1]) for name in r.attrs["ups.samples"].split(", ")]
        given = np.concatenate([points, points.sum(-1)[..., None]], -1)[rows, :history]
        with torch.no_grad():
            predicted = model.predict(given, "mesh").numpy()
        scale = np.abs(r["points"][:]).max()
        assert np.abs(predicted[..., :2] - r["points"][:]).max() < 2e-4 * scale and np.abs(predicted[..., 2] - r["u"][:]).max() < 4e-4 * scale
        assert np.abs(r["points"][:, -1] - r["points"][:, 0]).max() > 0.05 * scale
