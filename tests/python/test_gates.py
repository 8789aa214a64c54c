"""The physics gates of `ups eval`, recomputed with NumPy from what `ups rollout` writes; and what `--gates` ends with."""

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from commands import one_sentence
from pages import Page

CONFIG = """\
output: {output}
seed: 3
precision: f32
device: {{threads: 1}}
data: {{root: {data}, split: {{train: 0.6, validation: 0.2, test: 0.2}}, decode_threads: 1}}
tasks:
  - {{name: advection, files: [waves.h5], patch: [4], strides: [1, 2]}}
  - {{name: darcy, files: [darcy.h5], patch: [4]}}
  - {{name: sorption, files: [sorption.h5], patch: [4], strides: [1, 2]}}
  - {{name: gas, files: [1D_CFD_Rand_Eta0.1_Zeta0.1_periodic_Train.hdf5], patch: [4], strides: [1, 2]}}
  - {{name: water, files: [water.h5], patch: [4], strides: [1, 2]}}
  - {{name: flow, files: [flow.h5], patch: [8], strides: [1, 2]}}
model:
  tokens: grid
  dim: auto
  operator: {{core: stack, hidden: 16, depth: 2, heads: 2, mlp_ratio: 2}}
autoencoder: {{steps: 0, gate: 0}}
operator: {{steps: 120, batch_size: 4, accumulation: 6, rollout_steps: 2, validate_every: 0, optimizer: {{learning_rate: 0.003, warmup_steps: 4}}}}
evaluation: {{max_samples: 0}}
"""
GATES = ["bounded", "conservation", "positivity", "negative_share", "boundary", "divergence"]
PERIODIC = {"advection", "gas"}
FIELDS = {"darcy": ["nu", "u"], "gas": ["density", "pressure", "Vx"], "flow": ["Vx", "Vy", "particles", "force_x", "force_y"]}  # in their order; one else
CONSERVED, INCOMPRESSIBLE = 3e-4, 0.03  # as docs/evaluation.md says
SAMPLES = 15


@pytest.fixture(scope="module")
def config(runs):
    for solver, name, options in [("advection1d", "waves.h5", ("-r", "32", "--steps", "9", "-p", "p_window=0", "-p", "p_absolute=0")), ("diffsorp1d", "sorption.h5", ("-r", "32", "--steps", "9")), ("swe2d", "water.h5", ("-r", "16", "--steps", "7")),
                                  ("cfd1d_rand", "1D_CFD_Rand_Eta0.1_Zeta0.1_periodic_Train.hdf5", ("-r", "32", "--steps", "7")),
                                  ("ns_incom2d", "flow.h5", ("-r", "64", "--steps", "7"))]:
        runs.generate(solver, name, 10, *options)
    config = runs.config("run", CONFIG)
    runs.must("train", config, "--quiet")
    return config


def trajectories(path):
    """Prediction and truth of a file of rollouts, (trajectory, frame, grid…, channel)."""
    with h5py.File(path) as file:
        if "tensor" in file:
            return [file[name][:][..., None].astype(float) for name in ("tensor", "truth")]
        return [np.stack([file[seed][name][:].astype(float) for seed in file]) for name in ("data", "truth")]


def gradient(fields, periodic):
    """Derivatives (axis, …) by central differences along each axis of a unit domain of (trajectory, frame, grid…): of inner points where it ends."""
    dims = fields.ndim - 2
    slopes = np.stack([(np.roll(fields, -1, axis) - np.roll(fields, 1, axis)) / (2 / fields.shape[axis]) for axis in range(2, 2 + dims)])
    return slopes if periodic else slopes[(slice(None),) * 3 + (slice(1, -1),) * dims]


def recompute(prediction, truth, given, periodic, velocity):
    """{gate: (trajectory, channel)} by docs/evaluation.md; a gate that is of no field has none, of some NaN for the others."""
    grid = tuple(range(2, truth.ndim - 1))
    known, p, u = truth[:, given - 1:], prediction[:, given:], truth[:, given:]
    scale = np.sqrt((known**2).mean((1,) + grid))
    low, high = known.min((0, 1) + grid), known.max((0, 1) + grid)
    means, true_means = p.mean(grid), u.mean(grid)
    conserved = (np.sqrt((((true_means - known[:, :1].mean(grid)) / scale[:, None]) ** 2).mean(0)) <= CONSERVED).all(0)
    border = np.ones(truth.shape[2:-1], bool)
    border[(slice(1, -1),) * border.ndim] = False
    found = {
        "bounded": np.maximum(np.maximum(p.max((1,) + grid) - high, low - p.min((1,) + grid)), 0) / (high - low),
        "conservation": np.where(conserved, np.abs(means - true_means).max(1) / scale, np.nan),
        "positivity": np.where(low >= 0, np.maximum(-p.min((1,) + grid), 0) / scale, np.nan),
        "negative_share": np.where(low >= 0, (p < 0).mean((1,) + grid), np.nan),
        "boundary": np.full_like(scale, np.nan) if periodic else np.sqrt(((p - u)[:, :, border] ** 2).mean((1, 2))) / scale,
        "divergence": np.full_like(scale, np.nan),
    }
    if velocity:
        both = [np.stack([gradient(fields[..., channel], periodic) for channel in velocity]) for fields in (p, u)]
        axes = tuple(range(1, both[1].ndim - 2))
        size = np.sqrt((both[1] ** 2).sum((0, 1)).mean(axes))
        divergence, true_divergence = (slopes[0, 0] + slopes[1, 1] for slopes in both)
        if (np.sqrt((true_divergence**2).mean(axes)) / size <= INCOMPRESSIBLE).all():
            found["divergence"][:] = (np.sqrt(((divergence - true_divergence) ** 2).mean(axes)) / size)[:, None]
    return found


def check(told, path, task):
    prediction, truth = trajectories(path)
    names = FIELDS.get(task, told["solution_fields"])
    assert sorted(names) == sorted(told["solution_fields"] + told["constant_fields"])
    assert truth.shape == prediction.shape == (told["trajectories"], told["given"] + told["steps"], *told["grid"], len(names))
    found = recompute(prediction, truth, told["given"], task in PERIODIC, [0, 1] if task == "flow" else None)
    solution = [names.index(name) for name in told["solution_fields"]]
    assert list(told["gates"]) == GATES
    for gate in GATES:
        result, values = told["gates"][gate], found[gate][:, solution]
        if np.isnan(values).all():
            assert (result["state"], result["value"]) == ("does not apply", None) and result["reason"], (task, gate)
            continue
        close = {"rel": 2e-3, "abs": 3e-6}
        assert result["value"] == pytest.approx(np.nanmax(values), **close), (task, gate)
        assert result["state"] == ("fails" if result["value"] > result["limit"] else "passes")
        worst = result["worst"]
        if result["value"] > 1e-4:
            trajectory, field = np.unravel_index(np.nanargmax(values), values.shape)
            assert worst["index"] == trajectory, (task, gate)
            assert worst["field"] == (None if gate == "divergence" else told["solution_fields"][field])
        if gate != "divergence":
            for field, name in enumerate(told["solution_fields"]):
                own = None if np.isnan(values[:, field]).all() else pytest.approx(np.nanmax(values[:, field]), **close)
                assert result["fields"][name] == own, (task, gate, name)
        if worst["step"] and result["value"] > 1e-4:
            frame = told["given"] + worst["step"] - 1
            of_frame = recompute(prediction[:, [*range(told["given"]), frame]], truth[:, [*range(told["given"]), frame]], told["given"], True, None)
            depths = {"positivity": lambda: prediction[worst["index"], frame].min((0,) if truth.ndim == 4 else (0, 1)) < 0,
                      "bounded": lambda: of_frame["bounded"][worst["index"]] > 0, "conservation": lambda: [True]}
            assert np.any(depths[gate]())
    return {gate: told["gates"][gate]["state"] for gate in GATES}


@pytest.mark.parametrize("stride, given", [(1, 1), (2, 1), (1, 3)])
def test_every_gate_is_what_numpy_makes_of_the_rollouts(runs, config, stride, given):
    options = ["--stride", str(stride), "--set", f"evaluation.given={given}"]
    runs.must("rollout", config, "-n", "100", "-o", runs.path("out.h5"), *options)
    tasks = runs.told("eval", config, "-o", runs.path("e.json"), *options)["tasks"]
    states = {told["task"]: check(told, runs.path(f"out-{told['task']}.h5"), told["task"]) for told in tasks}
    judged = {task: {gate for gate in GATES if states[task][gate] in ("passes", "fails")} for task in states}
    positive = {"bounded", "positivity", "negative_share"}
    assert judged["advection"] == {"bounded", "conservation"}
    assert judged["darcy"] == judged["sorption"] == positive | {"boundary"}
    assert judged["gas"] == positive | {"conservation"}  # density and its mean
    assert judged["water"] == positive | {"conservation", "boundary"}
    assert {"bounded", "boundary", "divergence"} <= judged["flow"]


def evaluated(runs, config, *options):
    return runs.run("eval", config, "-o", runs.path("e.json"), *options)


def limits(**given):
    return [word for gate in GATES for word in ("--set", f"evaluation.gates.{gate}={given.get(gate, 0)}")]


def test_the_exit_code_is_1_where_a_limit_is_passed_and_only_with_gates(runs, config):
    passes, fails = limits(bounded=100), limits(bounded=100, boundary=1e-6)
    assert evaluated(runs, config, "--gates", *passes).returncode == 0
    assert evaluated(runs, config, *fails).returncode == 0
    done = evaluated(runs, config, "--gates", *fails)
    one_sentence(done, r"task darcy: its rollouts fail the gate 'boundary' \(\S+, limit 1e-06\), and 3 other gates; ", "evaluation.gates")
    assert "GATES FAIL" in done.stdout and len(re.findall(r", boundary: \S+, limit 1e-06; to see it: ups rollout .* --sample \d+ --png pictures\n", done.stdout)) == 4
    for task in ("darcy", "sorption", "water", "flow"):
        assert f"  {task}, boundary: " in done.stdout


def test_with_json_the_document_is_all_that_standard_output_has(runs, config):
    done = evaluated(runs, config, "--gates", "--json", *limits(boundary=1e-6))
    document = json.loads(done.stdout)
    one_sentence(done, "task darcy")
    assert document == json.loads(Path(runs.path("e.json")).read_text())
    assert [(entry["task"], entry["gate"]) for entry in document["failed_gates"]] == [(task, "boundary") for task in ("darcy", "sorption", "water", "flow")]
    for entry in document["failed_gates"]:
        told = next(task for task in document["tasks"] if task["task"] == entry["task"])["gates"]["boundary"]
        assert told["state"] == "fails" and {name: told[name] for name in ("value", "limit", "worst")} == {name: entry[name] for name in ("value", "limit", "worst")}
        assert told["worst"]["sample"] and told["worst"]["file"].startswith(runs.data)
    assert document["tasks"][0]["gates"]["bounded"] == {"state": "off", "value": None, "limit": 0.0}


def test_the_worst_trajectory_is_the_one_that_rollout_shows_by_its_index(runs, config):
    told = runs.told("eval", config, "-o", runs.path("e.json"))["tasks"][1]["gates"]["boundary"]
    rolled = runs.told("rollout", config, "--task", "darcy", "--sample", str(told["worst"]["index"]), "-o", runs.path("worst.h5"))
    (entry,) = rolled["tasks"][0]["trajectories"] if "tasks" in rolled else rolled[0]["trajectories"]
    assert entry["sample"] == told["worst"]["sample"]


def test_the_page_has_a_table_of_gates_for_each_task(runs, config, scratch):
    path = Path(scratch, "page.html")
    evaluated(runs, config, "--html", path, *limits(bounded=100, boundary=1e-6))
    page = Page(path)
    assert (page.problems, page.outside) == ([], []) and page.tables == page.captions == 14  # two tasks of several fields have one by field, too
    text = page.text()
    for gate in GATES:
        assert gate in text
    assert "gates that fail" in text and "the domain is periodic and has no border" in text


def test_an_operator_that_was_not_trained_fails(runs, config):
    untrained = runs.config("untrained", CONFIG.replace("steps: 120", "steps: 1"))
    runs.must("train", untrained, "--quiet")
    one_sentence(evaluated(runs, untrained, "--gates"), "its rollouts fail the gate 'boundary'")
    failed = json.loads(Path(runs.path("e.json")).read_text())["failed_gates"]
    assert ("sorption", "boundary") in [(entry["task"], entry["gate"]) for entry in failed]


def test_a_prediction_that_is_not_finite_fails_whatever_the_limits(runs, config):
    with safe_open(runs.path("run", "operator.safetensors"), "np") as file:
        weights, told = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()
    weights = {name: np.full_like(value, 1e38) if "output" in name and "advection" in name else value for name, value in weights.items()}
    save_file(weights, runs.path("broken.safetensors"), told)
    done = evaluated(runs, config, "--gates", "--checkpoint", runs.path("broken.safetensors"), *limits(bounded=1e9))
    one_sentence(done, "task advection: its rollouts fail the gate 'bounded' \\(not finite, limit 1e\\+09\\)")
    result = json.loads(Path(runs.path("e.json")).read_text())["tasks"][0]["gates"]["bounded"]
    assert (result["state"], result["value"], result["reason"]) == ("fails", None, "the prediction is not finite")
    assert result["worst"]["step"] and "is not finite" in done.stdout


def test_gates_that_cannot_be_judged_are_refused_before_anything_is_evaluated(runs, config):
    one_sentence(evaluated(runs, config, "--gates", "--set", "evaluation.horizons=[1]"), "--gates judges whole rollouts", "horizons=\\[1,0\\]")
    one_sentence(evaluated(runs, config, "--gates", *limits()), "every limit of evaluation.gates is 0")
    told = runs.told("eval", config, "-o", runs.path("e.json"), "--set", "evaluation.horizons=[1]")
    assert "gates" not in told["tasks"][0] and told["failed_gates"] == []
    one_sentence(evaluated(runs, config, "--set", "evaluation.gates.bounded=-1"), "evaluation.gates.bounded", "between 0 and")
    one_sentence(evaluated(runs, config, "--set", "evaluation.gates.positive=1"), "positivity")
