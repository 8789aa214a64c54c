"""The operator's losses on decoded fields, noise and shifts: each loss's value against NumPy in float64, from the
exported models and latents alone; runs in which a loss lowers what it is for; exact resume; what is refused."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import one_sentence
from tiny_run import metrics

CONFIG = """\
output: {output}
seed: 3
precision: f32
device: {{threads: 1}}
data:
  root: {data}
  split: {{train: 0.34, validation: 0.33, test: 0.33}}
tasks:
  - {{name: {task}, files: [{task}.h5], patch: [{patch}]}}
model:
  tokens: grid
  dim: auto
  operator: {{core: spectral, hidden: 16, depth: 2, mlp_ratio: 2, drop_path: 0, modes: [8, 4]}}
autoencoder: {{steps: 0, target: 0.01, gate: 0}}
operator:
  steps: {steps}
  batch_size: 4
  log_every: {log_every}
  validation_batches: 1
  checkpoint_every: 10
  rollout_steps: {rollout_steps}
  initial: persistence
  optimizer: {{kind: adamw, ema_decay: 0, learning_rate: 0.003, warmup_steps: 4}}
  losses:
    relative: {{weight: 1}}
{losses}
"""
FRAMES = 5
TASKS = {  # patch, whether the domain is periodic; a patch of 5 reaches beyond the grid of 16
    "line": ("advection1d", 4, True, ["-r", "32"]),
    "diffreact": ("diffreact2d", 5, False, ["-r", "16"]),
    "flow": ("cfd2d_rand", 4, True, ["-r", "16"]),
}
FIELDS = {"line": ["u"], "diffreact": ["activator", "inhibitor"], "flow": ["density", "pressure", "Vx", "Vy"]}
SIGNED = {"line": "u", "diffreact": "activator", "flow": "Vx"}  # fields that are negative in places
LOSSES = """\
    decoded: {weight: 0.5}
    rollout_decoded: {weight: 0.25}
    rollout: {weight: 0.7}
    rollout_relative: {weight: 0.6}
    spectral: {weight: 0.1}
    conservation: {weight: 2}
    positivity: {weight: 3, fields: [%s]}
"""


@pytest.fixture(scope="module", autouse=True)
def data(runs):
    for task, (solver, _, _, options) in TASKS.items():
        runs.generate(solver, task + ".h5", 3, "--steps", str(FRAMES), *options)


def config(runs, name, task, losses, steps=1, log_every=1, rollout_steps=FRAMES - 1, patch=None):
    return runs.config(name, CONFIG, task=task, patch=patch or TASKS[task][1], losses=losses.rstrip(), steps=steps,
                       log_every=log_every, rollout_steps=rollout_steps)


def lines_of(runs, name):
    return [line for line in metrics(runs.path(name)) if line["stage"] == "operator" and "losses" in line]


class Trajectory:
    """The training trajectory of a run: normalised fields that its latents decode to, (frames, grid…, channels)."""

    def __init__(self, runs, name, task):
        dump = runs.path(name + ".npy")
        runs.must("cache", "export", runs.path(name, "cache", task, "train"), "--force", "-o", dump)
        self.latents = np.load(dump)[0].astype(float)
        decode = load_file(runs.path(name, "autoencoder.safetensors"))[f"decoder.{task}.patch.weight"].astype(float)
        self.statistics = np.array(json.loads(Path(runs.path(name, "normalisation.json")).read_text())[task]["statistics"]).reshape(-1, 2)
        _, patch, self.periodic, _ = TASKS[task]
        channels = len(FIELDS[task])
        dims, n = (1, 32) if task == "line" else (2, 16)
        cells = -(-n // patch)
        patches = self.latents @ decode.T
        frames = len(patches)
        if dims == 1:
            self.fields = patches.reshape(frames, cells * patch, channels)[:, :n]
        else:
            whole = patches.reshape(frames, cells, cells, patch, patch, channels).transpose(0, 1, 3, 2, 4, 5)
            self.fields = whole.reshape(frames, cells * patch, cells * patch, channels)[:, :n, :n]
        self.dims, self.n = dims, n

    def modes(self, field):
        """Orthonormal modes of (grid…, channels), and each one's wavenumber."""
        n = self.n
        k = np.abs(np.fft.fftfreq(n, 1 / n)) if self.periodic else np.arange(n) / 2
        for axis in range(self.dims):
            if self.periodic:
                field = np.fft.fft(field, axis=axis, norm="ortho")
            else:
                r, i = np.arange(n)[:, None], np.arange(n)[None]
                cosine = np.sqrt(np.where(r == 0, 1, 2) / n) * np.cos(np.pi * r * (2 * i + 1) / (2 * n))
                field = np.moveaxis(np.tensordot(cosine, field, (1, axis)), 0, axis)
        return field, np.sqrt(k**2 if self.dims == 1 else k[:, None] ** 2 + k[None] ** 2)


def decoded(t, p, truth):
    offset = t.statistics[:, 0] * t.statistics[:, 1]
    axes = tuple(range(t.dims))
    return np.mean(np.sqrt(((p - truth) ** 2).sum(axes) / ((truth + offset) ** 2).sum(axes)))


def spectral(t, p, truth):
    error, k = t.modes(p - truth)
    whole, _ = t.modes(truth)
    octave = np.where(k < 1, 0, 1 + np.floor(np.log2(np.maximum(k, 1)) + 1e-9)).astype(int)
    least = 1e-2 * np.sqrt(t.n**t.dims)
    ratios = [np.sqrt((np.abs(error[octave == o]) ** 2).sum(0)) / np.maximum(np.sqrt((np.abs(whole[octave == o]) ** 2).sum(0)), least)
              for o in np.unique(octave)]
    return np.mean(ratios)


def conservation(t, p, truth):
    axes = tuple(range(t.dims))
    return np.mean((p.mean(axes) - truth.mean(axes)) ** 2)


def positivity(t, p, truth, channel):
    offset = t.statistics[channel, 0] * t.statistics[channel, 1]
    return np.mean(np.minimum(p[..., channel] + offset, 0) ** 2)


def divergence(t, p, truth, channels, spacing):
    deviation = 1 / t.statistics[:, 1]
    scale = np.sqrt(np.mean([deviation[c] ** 2 for c in channels]))

    def of(field):
        slopes = [(np.roll(field[..., c], -1, a) - np.roll(field[..., c], 1, a)) * deviation[c] / (2 * spacing[a]) for a, c in enumerate(channels)]
        return sum(slopes) * min(spacing) / scale
    return np.mean((of(p) - of(truth)) ** 2)


def boundary(t, p, truth):
    outside = np.ones((t.n,) * t.dims, bool)
    outside[(slice(1, -1),) * t.dims] = False
    return np.mean((p - truth)[outside] ** 2)


@pytest.mark.parametrize("task", list(TASKS))
def test_every_loss_has_the_value_that_numpy_finds(runs, task):
    """At step 0 the operator is persistence, whatever its weights: predictions are the window's first frame."""
    losses = LOSSES % SIGNED[task]
    if task == "flow":
        losses += "    divergence: {weight: 0.3, fields: [Vx, Vy]}\n"
    if task == "diffreact":
        losses += "    boundary: {weight: 0.7}\n"
    runs.must("train", config(runs, task, task, losses))
    found = lines_of(runs, task)[0]["losses"]
    t = Trajectory(runs, task, task)
    p, truths = t.fields[0], t.fields[1:]
    changed = t.latents[1:] - t.latents[0]
    relative = np.linalg.norm(changed, axis=(1, 2)) / np.linalg.norm(t.latents[1:], axis=(1, 2))
    expected = {
        "relative": relative[0],
        "rollout": np.mean(changed[1:] ** 2),
        "rollout_relative": np.mean(relative[1:]),
        "decoded": decoded(t, p, truths[0]),
        "rollout_decoded": np.mean([decoded(t, p, truth) for truth in truths[1:]]),
        "spectral": np.mean([spectral(t, p, truth) for truth in truths]),
        "conservation": np.mean([conservation(t, p, truth) for truth in truths]),
        "positivity": positivity(t, p, None, FIELDS[task].index(SIGNED[task])),
    }
    assert expected["positivity"] > 1e-4
    if task == "flow":
        expected["divergence"] = np.mean([divergence(t, p, truth, [2, 3], [1, 1]) for truth in truths])
    if task == "diffreact":
        expected["boundary"] = np.mean([boundary(t, p, truth) for truth in truths])
    assert set(found) == set(expected)
    for loss, value in expected.items():
        assert found[loss] == pytest.approx(value, rel=2e-5, abs=1e-9), loss


def test_a_shift_by_whole_tokens_is_a_shift_of_the_field_by_whole_patches(runs):
    """The encoder looks at each patch alone: latents of a field that was moved are the moved latents, bit for bit."""
    _, patch, _, _ = TASKS["line"]
    with h5py.File(runs.path("data", "line.h5")) as file, h5py.File(runs.path("data", "moved.h5"), "w") as moved:
        for name in file:
            if name != "tensor":
                file.copy(name, moved)
        moved.attrs.update(file.attrs)
        moved["tensor"] = np.concatenate([np.roll(file["tensor"][:1], s * patch, -1) for s in (0, 3, 7)])
    text = CONFIG.replace("train: 0.34, validation: 0.33, test: 0.33", "train: 1, validation: 0, test: 0")
    runs.must("train", runs.config("moved", text, task="moved", patch=patch, losses="", steps=1, log_every=1, rollout_steps=2), "--set", "operator.augment=shift")
    dump = runs.path("moved.npy")
    runs.must("cache", "export", runs.path("moved", "cache", "moved", "train"), "-o", dump)
    first, third, seventh = np.load(dump)
    assert np.array_equal(np.roll(first, 3, 1), third) and np.array_equal(np.roll(first, 7, 1), seventh)


def test_what_a_loss_weighs_nothing_costs_nothing(runs):
    """Not in the plan, not in the graph: the same memory, and the same model to the byte."""
    zero = "    decoded: {weight: 0}\n    spectral: {weight: 0, every: 7, from: 3}\n    divergence: {weight: 0, fields: [nothing]}\n"
    plans, models = [], []
    for name, losses in (("plain", ""), ("nothing", zero), ("decoded", "    decoded: {weight: 1}\n")):
        path = config(runs, name, "line", losses, steps=20)
        runs.must("train", path)
        plans.append(json.loads(runs.must("train", path, "--plan", "--json", "--stage", "operator").stdout))
        models.append(Path(runs.path(name, "operator.safetensors")).read_bytes())
    assert models[0] == models[1] != models[2]
    assert plans[0] == plans[1] != plans[2]


RANDOM = "    decoded: {weight: 1}\n    spectral: {weight: 0.2, every: 2}\n"
@pytest.mark.parametrize("augment", ["shift", "symmetries"])
def test_a_run_with_noise_and_moved_windows_goes_on_to_the_same_bytes_and_lines_on_any_number_of_threads(runs, augment):
    changed = ("--set", "operator.noise=0.3", "--set", f"operator.augment={augment}", "--set", "operator.accumulation=2")
    names = [f"{name}-{augment}" for name in ("whole", "stopped")]
    whole, stopped = (config(runs, name, "flow", RANDOM, steps=60, log_every=15) for name in names)
    runs.must("train", whole, *changed, "--set", "device.threads=2")
    runs.train_until("operator, step 20", stopped, *changed, "--set", "operator.validate_every=10")
    runs.must("train", runs.path(names[1]), "--resume")
    models = [load_file(runs.path(run, "operator.safetensors")) for run in names]
    assert all(np.array_equal(models[0][name], models[1][name]) for name in models[0])
    lines = [[(line["step"], line["losses"]) for line in lines_of(runs, run)] for run in names]
    assert lines[0] == lines[1] and len(lines[0]) == 4


@pytest.mark.parametrize("task, losses", [
    ("line", "    semigroup: {weight: 0.1}\n"), ("flow", "    divergence: {weight: 0.1, fields: [Vx, Vy]}\n"),
    ("diffreact", "    boundary: {weight: 1}\n  pushforward: true\n")])
def test_a_run_with_every_loss_that_its_task_can_have_goes_on_exactly(runs, task, losses):
    runs.goes_on_exactly("operator", lambda name: config(runs, f"every-{task}-{name}", task, LOSSES % SIGNED[task] + losses, steps=60, log_every=15, rollout_steps=2))


def test_an_autoencoder_with_every_loss_goes_on_exactly(runs):
    weights = ("inverse_decoding=1", "relative=1", "inverse_encoding=0.1", "latent_norm=0.1", "latent_diversity=0.1", "rounded=0.1")
    losses = "".join(f"    {name}: {{weight: {weight}}}\n" for name, weight in (pair.split("=") for pair in weights))

    def make(name):
        path = runs.config(f"every-encoder-{name}", FIXED, task="line", patch=4, steps=60, log_every=15, queries="uniform")
        text = Path(path).read_text()
        assert text.count("autoencoder:\n") == 1
        Path(path).write_text(text.replace("autoencoder:\n", "stages: [autoencoder]\nautoencoder:\n  checkpoint_every: 10\n  losses:\n" + losses))
        return path

    runs.goes_on_exactly("autoencoder", make)


def test_noise_and_shifts_change_training_and_leave_validation_as_it_is(runs):
    """An untrained operator is persistence: with noise its loss against the next frame is larger by what was added."""
    values = {}
    for name, options in (("still", ()), ("noisy", ("--set", "operator.noise=1")), ("shifted", ("--set", "operator.augment=shift")), ("reflected", ("--set", "operator.augment=symmetries"))):
        path = config(runs, name, "line", "    decoded: {weight: 1}\n", rollout_steps=2)
        runs.must("train", path, "--set", "operator.optimizer.learning_rate=0", "--set", "operator.batch_size=64", *options)
        validation = [line["validation"] for line in metrics(runs.path(name)) if line["stage"] == "operator" and "validation" in line]
        values[name] = lines_of(runs, name)[0]["losses"]["relative"], validation
    assert values["noisy"][0] == pytest.approx(np.sqrt(2) * values["still"][0], rel=0.1)
    assert values["shifted"][0] == pytest.approx(values["still"][0], rel=1e-5)  # another window would be another loss
    assert values["reflected"][0] == pytest.approx(values["still"][0], rel=1e-5)
    assert values["noisy"][1] == values["still"][1] == values["shifted"][1] == values["reflected"][1]


@pytest.mark.parametrize("task, loss, heavy, options", [
    ("line", "rollout", 0.3, ""), ("line", "rollout_relative", 0.3, ""), ("line", "decoded", 30, ""), ("line", "rollout_decoded", 0.3, ""),
    ("flow", "spectral", 0.1, ""), ("flow", "conservation", 30, ""), ("diffreact", "positivity", 30, ", fields: [activator, inhibitor]"),
    ("flow", "divergence", 30, ", fields: [Vx, Vy]"), ("diffreact", "boundary", 30, ""), ("line", "semigroup", 0.3, "")])
def test_a_loss_lowers_what_it_is_for(runs, task, loss, heavy, options):
    """Beside the same run in which it is measured and weighs next to nothing."""
    last = []
    for weight in (1e-9, heavy):
        name = f"{loss}{weight}"
        steps = 300 if loss == "spectral" else 150
        path = config(runs, name, task, f"    {loss}: {{weight: {weight}{options}}}\n", steps=steps, log_every=25,
                      rollout_steps=4 if loss.startswith("rollout") else 2)
        if loss == "decoded":  # against the error of squares, not the relative one
            text = Path(path).read_text().replace("    relative: {weight: 1}\n", "    one_step: {weight: 1}\n    relative: {weight: 0}\n")
            Path(path).write_text(text)
        kept = ["--set", "model.operator.conserve=false"] if loss == "conservation" else []  # or there is nothing to lower
        runs.must("train", path, *kept)
        lines = lines_of(runs, name)
        last.append(lines[-1]["losses"][loss])
    clearly = {"spectral": 0.97, "rollout": 0.5, "rollout_relative": 0.5}.get(loss, 0.9)
    assert last[1] < clearly * last[0] and last[1] < lines[0]["losses"][loss]


@pytest.mark.parametrize("task, options, words", [
    ("line", ["operator.losses.decoded.weight=1", "model.tokens=8", "model.dim=8", "model.operator.core=stack"], ["operator.losses.decoded", "tokens: grid"]),
    ("line", ["operator.losses.decoded.weight=1", "model.tokens=8", "model.dim=8", "model.operator.core=stack", "model.bound=8"], ["operator.losses.decoded", "tokens: grid"]),
    ("line", ["operator.noise=0.1", "model.tokens=8", "model.dim=8", "model.operator.core=stack"], ["operator.noise", "tokens: grid"]),
    ("line", ["operator.augment=shift", "model.tokens=8", "model.dim=8", "model.operator.core=stack"], ["operator.augment", "tokens: grid"]),
    ("diffreact", ["operator.augment=shift"], ["operator.augment", "diffreact", "not periodic"]),
    ("line", ["operator.augment=turn"], ["operator.augment", "shift"]),
    ("line", ["operator.augment=symmetries", "model.tokens=8", "model.dim=8", "model.operator.core=stack"], ["operator.augment", "tokens: grid"]),
    ("line", ["operator.augment=symmetries", "model.bound=3"], ["operator.augment", "model.bound: 0"]),
    ("flow", ["operator.augment=symmetries", "operator.vectors=[Vx]"], ["operator.augment", "flow", "operator.vectors"]),
    ("flow", ["operator.augment=symmetries", "operator.vectors=[vx, vy]"], ["operator.vectors: no task has a field 'vx'; did you mean 'Vx'?"]),
    ("flow", ["operator.augment=symmetries", "operator.vectors=[Vx, Vy, Vz]"], ["operator.vectors: no task has a field 'Vz'"]),
    ("line", ["operator.losses.semigroup.weight=1", "model.operator.condition=false"], ["operator.losses.semigroup", "condition: true"]),
    ("line", ["operator.losses.relative.weight=0", "operator.losses.semigroup.weight=1"], ["operator.losses", "against the data"]),
    ("line", ["operator.losses.positivity.weight=1"], ["operator.losses.positivity", "fields"]),
    ("flow", ["operator.losses.positivity.weight=1", "operator.losses.positivity.fields=[presure]"], ["presure", "did you mean 'pressure'"]),
    ("flow", ["operator.losses.divergence.weight=1", "operator.losses.divergence.fields=[Vx]"], ["divergence", "grid axes"]),
    ("line", ["operator.losses.boundary.weight=1"], ["boundary", "periodic"]),
    ("line", ["operator.losses.relative.weight=0", "operator.losses.conservation.weight=1"], ["operator.losses", "against the data"]),
    ("line", [f"operator.losses.{loss}.{key}" for every, loss in ((2, "rollout"), (3, "decoded"), (5, "rollout_decoded"), (7, "spectral"), (11, "conservation"))
              for key in ("weight=1", f"every={every}")], ["operator.losses", "16 sets"]),
    ("line", ["tasks[0].bundle=20"], ["task line: trajectories of 5 frames", "lower tasks\\[\\].bundle"]),
    ("line", ["model.operator.history=4", "model.operator.bundle=2"], ["task line: trajectories of 5 frames", "a window of 4 \\+ 2"]),
    ("line", ["evaluation.given=5"], ["task line: evaluation.given is 5", "at most 4 can be given"]),
    ("flow", ["operator.losses.conservation.weight=1", "operator.losses.conservation.fields=[vx]"], ["conservation.fields", "did you mean 'Vx'"]),
    ("flow", ["operator.augment=symmetries", "tasks[0].symmetries=false"], ["operator.augment: symmetries", "flow: its `symmetries` are false"]),
])
def test_what_cannot_be_is_refused_before_anything_runs(runs, task, options, words):
    """By the first of all stages, by a plan, and by who looks for mistakes."""
    name = runs.fresh()
    path = config(runs, name, task, "", steps=1000)
    for command in (["train", path], ["train", path, "--stage", "operator"], ["train", path, "--plan"], ["train", path, "--for", "1h"], ["config", "check", path]):
        one_sentence(runs.run(*command, *(word for option in options for word in ("--set", option))), *words)
        assert not Path(runs.path(name)).exists()


def test_a_mistake_that_tasks_show_stands_where_its_key_does(runs):
    def said(path, *sets):
        return json.loads(runs.run("config", "check", path, "--json", *(word for item in sets for word in ("--set", item))).stdout)["error"]["mistakes"]

    path = config(runs, runs.fresh(), "flow", "    conservation: {weight: 1, fields: [vx]}\n", steps=1000)
    line = Path(path).read_text().splitlines().index("    conservation: {weight: 1, fields: [vx]}") + 1
    (mistake,) = said(path)
    assert (mistake["key"], mistake["line"]) == ("operator.losses.conservation.fields", line)
    assert mistake["message"] == f"{path}:{line}: operator.losses.conservation.fields: no task has a field 'vx'; did you mean 'Vx'?"
    right = "operator.losses.conservation.fields=[Vx]"
    for key, value in (("tasks[0].bundle", 20), ("model.operator.history", 16), ("evaluation.given", 400), ("tasks[0].strides", "[1, 50]")):
        (mistake,) = said(path, right, f"{key}={value}")
        assert mistake["key"] == key and mistake["message"].startswith(f"--set {key}={value}: {key}: task flow: ")


def test_a_fork_that_cannot_train_on_its_data_leaves_nothing(runs):
    run, fork = runs.fresh(), runs.fresh()
    path = config(runs, run, "line", "", steps=2, log_every=1)
    runs.must("train", path)
    wrong = ("train", path, "--fork", runs.path(fork), "--set")
    one_sentence(runs.run(*wrong, "tasks[0].bundle=20"), "lower tasks\\[\\].bundle")
    assert not Path(runs.path(fork)).exists()
    runs.must(*wrong, "operator.steps=3")


def test_tasks_whose_windows_cannot_be_shifted_are_told_of(runs):
    text = CONFIG.replace("tasks:\n", "tasks:\n  - {{name: diffreact, files: [diffreact.h5], patch: [4]}}\n")
    path = runs.config("mixed", text, task="line", patch=4, losses="", steps=2, log_every=1, rollout_steps=2)
    told = runs.must("train", path, "--set", "operator.augment=shift", "--set", "operator.accumulation=2").stderr
    assert "windows of diffreact are not shifted: its domain is not periodic" in told and "windows of line" not in told


def test_what_symmetries_take_fields_for_is_told(runs):
    text = CONFIG.replace("tasks:\n", "tasks:\n  - {{name: diffreact, files: [diffreact.h5], patch: [5]}}\n")  # a patch beyond the grid
    path = runs.config("seen", text, task="flow", patch=4, losses="", steps=2, log_every=1, rollout_steps=2)
    told = runs.must("train", path, "--set", "operator.augment=symmetries", "--set", "operator.accumulation=2").stderr
    assert "windows of flow are seen by 8 symmetries of their grid: scalars density, pressure; vector (Vx, Vy)" in told
    assert "windows of diffreact are seen as they are, not by symmetries: its last patch reaches beyond the grid" in told
    own = runs.must("train", runs.path("seen"), "--restart", "--set", "operator.vectors=[Vx, Vy]").stderr
    assert "seen by 8 symmetries of their grid: scalars density, pressure; vector (Vx, Vy)" in own
    runs.must("train", runs.path("seen"), "--fork", runs.path("unseen"), "--set", "operator.augment=none")
    seen, unseen = (load_file(runs.path(run, "operator.safetensors")) for run in ("seen", "unseen"))
    assert any(not np.array_equal(seen[name], unseen[name]) for name in seen)


FIXED = CONFIG[:CONFIG.index("model:")] + """\
model:
  tokens: 8
  dim: 8
  encoder: {{width: 16, frequencies: [1, 2]}}
  decoder: {{hidden: 16, depth: 1, heads: 2, mlp_ratio: 2, frequencies: [1, 2]}}
  operator: {{hidden: 16, depth: 1, heads: 2, mlp_ratio: 2}}
autoencoder:
  gate: 0
  steps: {steps}
  batch_size: 8
  queries: 16
  log_every: {log_every}
  query_sampling: {queries}
  optimizer: {{learning_rate: 0.005, warmup_steps: 4}}
"""


def autoencoder(runs, name, queries, *options, steps=60):
    path = runs.config(name, FIXED, task="line", patch=4, steps=steps, log_every=15, queries=queries)
    runs.must("train", path, "--stage", "autoencoder", *options)
    return [line["losses"] for line in metrics(runs.path(name)) if line["stage"] == "autoencoder" and "losses" in line]


@pytest.mark.parametrize("queries", ["stratified", "curriculum"])
def test_query_points_can_be_drawn_otherwise_and_are_the_same_in_every_run(runs, queries):
    whole = autoencoder(runs, queries, queries)
    assert whole != autoencoder(runs, "uniform" + queries, "uniform")
    assert whole == autoencoder(runs, queries + "2", queries, "--set", "device.threads=2")
    models = [load_file(runs.path(run, "autoencoder.safetensors")) for run in (queries, queries + "2")]
    assert all(np.array_equal(models[0][name], models[1][name]) for name in models[0])


def latents_of(runs, name):
    runs.must("cache", "build", runs.path(name))
    dump = runs.path(name + ".npy")
    runs.must("cache", "export", runs.path(name, "cache", "line", "train"), "--format", "npy", "--force", "-o", dump)
    return np.load(dump).astype(float)


def test_the_relative_loss_of_fields_read_back_falls_by_itself(runs):
    losses = [line["relative"] for line in autoencoder(runs, "by-itself", "uniform", "--set", "autoencoder.log_every=5", steps=150)]
    assert np.mean(losses[-3:]) < 0.6 * losses[0], losses


def test_latents_are_brought_to_variances_of_one_and_no_covariances(runs):
    """And in the cached latents, by NumPy: nearer to it than without the two losses."""
    far = {}
    for name, weight in (("free", 1e-9), ("normal", 1)):
        losses = [f"autoencoder.losses.{loss}.weight={weight}" for loss in ("latent_norm", "latent_diversity")]
        last = autoencoder(runs, name, "uniform", *(word for loss in losses for word in ("--set", loss)))[-1]
        latents = latents_of(runs, name)
        covariance = np.cov(latents.reshape(-1, latents.shape[-1]).T)
        off = covariance[~np.eye(len(covariance), dtype=bool)]
        far[name] = np.array([np.mean((np.diag(covariance) - 1) ** 2), np.mean(off**2), last["latent_norm"], last["latent_diversity"]])
    assert (far["normal"] < 0.7 * far["free"]).all(), far


def test_fields_decoded_from_latents_are_encoded_to_these_latents_again(runs):
    """Against the variance of the latents, which would lower the loss by being small; and fields are decoded as well as without."""
    errors = []
    for weight in (1e-9, 30):
        name = f"inverse{weight}"
        last = autoencoder(runs, name, "uniform", "--set", f"autoencoder.losses.inverse_encoding={{weight: {weight}, from: 80}}", steps=150)[-1]
        variance = latents_of(runs, name).var((0, 1, 2)).mean()
        errors.append([last["inverse_encoding"], last["inverse_encoding"] / variance, last["relative"]])
    free, held = errors
    assert held[0] < 0.7 * free[0] and held[1] < 0.7 * free[1] and held[2] < 1.5 * free[2], errors


def test_losses_of_latents_alone_train_nothing_and_are_refused(runs):
    path = runs.config("alone", FIXED, task="line", patch=4, steps=60, log_every=15, queries="uniform")
    answer = runs.run("train", path, "--set", "autoencoder.losses.relative.weight=0", "--set", "autoencoder.losses.latent_norm.weight=1")
    one_sentence(answer, "autoencoder.losses", "against the data")
