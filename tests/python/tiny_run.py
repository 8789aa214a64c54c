"""A run small enough to be trained in a second: data from `ups datagen`, a configuration of 8 tokens of 8 features, and
what the tests of runs do with it. Kernels run on one thread, so that a busy machine does not slow them down."""

import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import commands

CONFIG = """\
output: {output}
seed: 3
precision: f32
device: {{threads: 1}}
data:
  root: {data}
  split: {{train: 0.6, validation: 0.2, test: 0.2}}
  decode_threads: 1
tasks:
  - name: advection
    files: [advection.h5]
    patch: [4]
  - name: darcy
    files: [darcy.h5]
    patch: [4]
model:
  tokens: 8
  dim: 8
  encoder: {{width: 16, frequencies: [1, 2]}}
  decoder: {{hidden: 16, depth: 1, heads: 2, mlp_ratio: 2, frequencies: [1, 2]}}
  operator: {{hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, drop_path: 0.1, update_norm: none}}
autoencoder:
  gate: 0
  steps: 60
  batch_size: 4
  accumulation: 2
  queries: 16
  validate_every: 30
  checkpoint_every: 10
  log_every: 10
  validation_batches: 2
  optimizer: {{learning_rate: 0.005, warmup_steps: 4, ema_decay: 0.9}}
  losses: {{inverse_decoding: {{weight: 1}}, relative: {{weight: 0}}}}
operator:
  steps: 60
  batch_size: 4
  validate_every: 30
  checkpoint_every: 10
  log_every: 10
  validation_batches: 2
  rollout_steps: 3
  optimizer: {{kind: adamw, learning_rate: 0.005, weight_decay: 0.01, ema_decay: 0, warmup_steps: 4}}
  losses:
    one_step: {{weight: 1}}
    relative: {{weight: 0}}
    rollout: {{weight: 1, every: 2, from: 10}}
cache: {{samples_per_shard: 2}}
"""


class Runs:
    """A scratch folder with data, where each run gets a configuration of its own."""

    def __init__(self, samples=12):
        self.folder = tempfile.mkdtemp(prefix="ups-runs-")
        os.chmod(self.folder, 0o755)
        self.copies = itertools.count()
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.data)
        self.generate("advection1d", "advection.h5", samples, "-r", "32", "--steps", "9")
        self.generate("darcy2d", "darcy.h5", samples, "-r", "16")

    def generate(self, solver, name, samples, *options):
        path = os.path.join(self.data, name)
        self.must("datagen", solver, "-o", path, "-n", str(samples), "-t", "1", *options)
        return path

    def close(self):
        shutil.rmtree(self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def train_until(self, words, config, *options):
        """Stops a training by SIGTERM at the first line of its log that has these words."""
        with subprocess.Popen([commands.program("ups"), "train", config, "-q", *options], stderr=subprocess.PIPE, text=True) as process:
            for line in process.stderr:
                if words in line:
                    process.send_signal(signal.SIGTERM)
                    break
            process.stderr.read()
        assert process.returncode != 0

    def goes_on_exactly(self, stage, make):
        """A run, and the same stopped on its way and resumed on another number of threads, end with the same weights. `make`: a name to its configuration."""
        whole, stopped = make("whole"), make("stopped")
        self.must("train", whole, "--set", "device.threads=2")
        self.train_until(f"{stage}, step 20", stopped, "--set", f"{stage}.validate_every=10")
        self.must("train", Path(stopped), "--resume", "--set", f"{stage}.validate_every=10")
        models = [load_file(self.path(Path(path).stem, f"{stage}.safetensors")) for path in (whole, stopped)]
        assert models[0].keys() == models[1].keys()
        assert all(np.array_equal(models[0][name], models[1][name]) for name in models[0])

    def config(self, name, text=CONFIG, **replaced):
        """Writes NAME.yaml for a run in NAME/; `replaced` fills {output} and {data} with something else."""
        path = self.path(name + ".yaml")
        Path(path).write_text(text.format(**{"output": self.path(name), "data": self.data, **replaced}))
        return path

    run, must, told = map(staticmethod, (commands.ups, commands.must, commands.told))

    def fresh(self):
        """A name that no other run has."""
        return f"run{next(self.copies)}"

    def copy(self, of):
        """A run with what another one has got so far: its configuration and its folder."""
        name = self.fresh()
        shutil.copytree(self.path(of), self.path(name), symlinks=True)
        return self.config(name), self.path(name)


def tree(folder):
    """Every file below a folder with the hash of its bytes, links with what they name; folders with None. TensorBoard's are left out: their
    names are the clock's, and they say what metrics.jsonl says (test_tensorboard.py)."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in folders:
            found[os.path.relpath(os.path.join(at, name), folder)] = None
        for name in files:
            if "tfevents" in name:
                continue
            path = os.path.join(at, name)
            if os.path.islink(path):  # a claim, whose holder may be gone
                found[os.path.relpath(path, folder)] = os.readlink(path)
                continue
            found[os.path.relpath(path, folder)] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return found


def metrics(folder, clock=True):
    """The lines of metrics.jsonl; without the clock: only what another run of the same steps has to repeat, on any machine."""
    lines = list(map(json.loads, Path(folder, "metrics.jsonl").read_text().splitlines()))
    if not clock:
        for line in lines:
            for field in ("samples_per_s", "step_s", "time", "data_wait_share", "flops_per_s", "mfu", "memory", "loader", "ranks", "machine"):
                line.pop(field, None)
    return lines


class Sandbox:
    """A folder where commands run one after the other, since files name their paths; and its states, to begin from."""

    def __init__(self, runs):
        self.runs, self.folder = runs, runs.path("sandbox")
        os.mkdir(self.folder)
        self.keep("empty")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def keep(self, state):
        shutil.copytree(self.folder, self.runs.path("state-" + state), symlinks=True)

    def begin(self, state):
        shutil.rmtree(self.folder)
        shutil.copytree(self.runs.path("state-" + state), self.folder, symlinks=True)

    def look(self):
        """What lies there, but for what the clock says."""
        found = tree(self.folder)
        for name in found:
            path = Path(self.folder, name)
            if path.name == "metrics.jsonl":
                found[name] = metrics(path.parent, clock=False)
            elif path.name == "evaluation.json":
                found[name] = [line for line in path.read_text().splitlines() if "seconds" not in line]
            elif path.suffix == ".html":
                found[name] = re.sub(r"\d\d:\d\d", "", path.read_text())
        return found
