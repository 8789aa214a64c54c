"""Every core of the operator, and what its blocks may do: training lowers the loss, on any number of threads to the same
bytes, and a run that was stopped goes on to them too."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from commands import one_sentence
from test_token_grid import GRID
from tiny_run import metrics

SHORT = GRID.replace("steps: 200", "steps: 80").replace("every: 50", "every: 40").replace("every: 20", "every: 10").replace("log_every: 10", "log_every: 5")
ON_GRIDS = {
    "convolution": "{core: spectral, hidden: 16, depth: 2, mlp_ratio: 2, drop_path: 0.1, modes: [8, 4], convolution: 5}",
    "turns": "{core: stack, mixing: [spectral, attention], hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, drop_path: 0.1, modes: [8, 4], convolution: 3}",
    "auto": "{core: stack, mixing: [auto], attended_tokens: 16, hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, drop_path: 0.1, modes: [8, 4]}",
    "own": "{core: stack, mixing: [auto], task_specific: [mlp], attended_tokens: 16, hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, drop_path: 0.1, modes: [8, 4]}",
    "own_unet": "{core: unet, task_specific: [mixing, mlp], depths: [1, 1], hidden: 16, heads: 2, mlp_ratio: 2, drop_path: 0.1, convolution: 3}",
    "groups": "{core: stack, attention: channel_separated, positions: rotary, hidden: 64, depth: 1, heads: 4, mlp_ratio: 1, drop_path: 0}",
    "windows": "{core: stack, attention: window, window: [4, 2], hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, drop_path: 0.1}",
    "places": "{core: stack, positions: learned, hidden: 16, depth: 1, heads: 2, mlp_ratio: 2, drop_path: 0}",
    "nowhere": "{core: spectral, positions: none, boundary: true, hidden: 16, depth: 1, mlp_ratio: 2, drop_path: 0, modes: [8, 4]}",
    "unet": "{core: unet, depths: [1, 1], hidden: 16, heads: 2, mlp_ratio: 2, drop_path: 0.1}",
    "axes": "{core: spectral, factorized: true, hidden: 16, depth: 2, mlp_ratio: 2, drop_path: 0.1, modes: [8, 4], convolution: 3}",
    "modes": "{core: unet, mixing: [spectral], depths: [1, 1, 1], modes: [8, 4], convolution: 3, hidden: 16, mlp_ratio: 2, drop_path: 0.1}",
}


def core(text):
    lines = [line for line in SHORT.splitlines() if not line.startswith("  operator: {{")]
    at = lines.index("  dim: auto") + 1
    return "\n".join(lines[:at] + ["  operator: " + text.replace("{", "{{").replace("}", "}}")] + lines[at:]) + "\n"


@pytest.mark.parametrize("name", ON_GRIDS)
def test_training_lowers_the_loss_and_neither_threads_nor_a_stop_change_a_byte(runs, name):
    text = core(ON_GRIDS[name])
    runs.must("train", runs.config(name, text))
    lines = [line for line in metrics(runs.path(name)) if line["stage"] == "operator" and "task_loss" in line]
    for task in ("advection", "darcy"):
        losses = [line["task_loss"][task] for line in lines if task in line["task_loss"]]
        assert np.mean(losses[-3:]) < 0.7 * losses[0], losses
    stopped = runs.config(name + "-stopped", text)
    runs.train_until("operator, step 40", stopped, "--set", "device.threads=3")
    runs.must("train", stopped, "--resume", "--set", "device.threads=2")
    one, other = (Path(runs.path(run, "operator.safetensors")).read_bytes() for run in (name, name + "-stopped"))
    assert one == other


def test_a_model_is_not_run_with_other_levels_than_it_learnt(runs):
    config = runs.config("levels", core("{core: unet, depths: [1, 1], merge_above: 8, hidden: 16, heads: 2, mlp_ratio: 2}"))
    runs.must("train", config, "--set", "operator.steps=2")
    runs.must("eval", config)
    for other in (0, 4):
        one_sentence(runs.run("eval", config, "--set", f"model.operator.merge_above={other}"), "'merge_above' is 8, here it is")


def test_a_model_is_not_run_with_other_blocks_of_its_tasks_own(runs):
    config = runs.config("owners", core(ON_GRIDS["own"]))
    runs.must("train", config, "--set", "operator.steps=2")
    one_sentence(runs.run("eval", config, "--set", "model.operator.task_specific=[]"), "'task_specific' is \"mlp\", here it is \"none\"")
    shared = runs.config("sharers", core(ON_GRIDS["auto"]))
    runs.must("train", shared, "--set", "operator.steps=2")
    one_sentence(runs.run("eval", shared, "--set", "model.operator.task_specific=[mixing]"), "'task_specific' is \"none\", here it is \"mixing\"")


def test_where_nothing_attends_rotary_places_are_borders(runs):
    for text, told in ((ON_GRIDS["unet"], "rotary"), (ON_GRIDS["modes"], "borders"), (ON_GRIDS["modes"].replace("core: unet", "core: unet, positions: rotary"), "borders")):
        shown = runs.must("config", "show", runs.config("shown", core(text))).stdout
        assert re.search(r"^ *positions: (\w+)", shown[shown.index("operator:"):], re.M)[1] == told


def test_a_model_from_before_places_were_rotary_has_borders(runs):
    config = runs.config("older", core("{core: stack, positions: borders, hidden: 16, depth: 1, heads: 2, mlp_ratio: 2, drop_path: 0}"))
    runs.must("train", config, "--set", "operator.steps=2")
    parts = [runs.path("older", stage + ".safetensors") for stage in ("autoencoder", "operator")]
    tensors, told = {}, {}
    for part in parts:
        tensors |= load_file(part)
        with safe_open(part, "numpy") as file:
            told |= file.metadata()
    del told["autoencoder"]  # the hash of a file
    operator = json.loads(told["operator"])
    assert operator.pop("positions") == "borders"
    save_file(tensors, runs.path("untold.safetensors"), metadata=told | {"operator": json.dumps(operator)})
    use = ("eval", config, "--checkpoint", runs.path("untold.safetensors"))
    runs.must(*use)
    one_sentence(runs.run(*use, "--set", "model.operator.positions=rotary"), "another operator", 'its \'positions\' is "borders", here it is "rotary"')


def test_a_unet_works_on_a_fixed_number_of_tokens(runs):
    changes = ["model.operator.core=unet", "model.operator.depths=[1, 1]", "model.operator.drop_path=0"]
    config = runs.config("fixed")
    runs.must("train", config, *(f"--set={each}" for each in changes))
    lines = [line["task_loss"] for line in metrics(runs.path("fixed")) if line["stage"] == "operator" and "task_loss" in line]
    first, last = ([line[task] for line in part for task in line] for part in (lines[:2], lines[-2:]))
    assert np.mean(last) < 0.9 * np.mean(first)


@pytest.mark.parametrize("change, words", [
    (["model.operator.mixing=[spectral]"], ("mixing", "tokens: grid")),
    (["model.operator.convolution=3"], ("convolution", "tokens: grid")),
    (["model.operator.convolution=4"], ("convolution", "0, 3, 5 or 7")),
    (["model.operator.attention=window"], ("attention", "tokens: grid")),
    (["model.operator.positions=learned"], ("positions", "tokens: grid")),
    (["model.operator.task_specific=[mlp]"], ("task_specific", "tokens: grid")),
    (["model.tokens=grid", "model.operator.task_specific=[norms]"], ("task_specific", "mixing or mlp")),
    (["model.operator.attention=channel_separated"], ("channel_separated", "multiple of 32")),
    (["model.tokens=grid", "model.operator.core=spectral", "model.operator.attention=window"], ("attention", "[spectral, attention]")),
    (["model.tokens=grid", "model.operator.positions=rotary", "model.operator.heads=16"], ("positions", "even")),
    (["model.tokens=grid", "model.operator.positions=rotary", "model.operator.heads=8"], ("positions", "task darcy has 2 axes")),
    (["model.operator.window=[1]"], ("window", "2")),
    (["model.operator.core=unet", "model.operator.depths=[2, 0]"], ("depths", "1")),
    (["model.operator.mixing=[modes]"], ("mixing", "attention, spectral or auto")),
])
def test_what_does_not_go_together_is_refused(runs, change, words):
    one_sentence(runs.run("train", runs.config("refused"), *(f"--set={each}" for each in change)), *words)
