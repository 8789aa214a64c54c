"""The scripts of tests/bench that train: a small benchmark from data to a row, and configurations of all ablations."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from commands import TIMEOUT, TREE, UPS, ups

BENCH = TREE / "tests/bench"
sys.path.insert(0, str(BENCH))
import ablation  # noqa: E402


def script(name, *arguments):
    done = subprocess.run([sys.executable, BENCH / f"{name}.py", UPS, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_small_benchmark_makes_data_trains_and_scores(tmp_path):
    arguments = ("--task", "advection", "--model", "--share", 0.1, "--threads", 1)
    script("accuracy", tmp_path, *arguments, "--seconds", 8)
    row, = rows_of(tmp_path / "results.jsonl")
    assert row["task"] == "advection" and row["steps"] > 20
    assert 0 < row["errors"][0] < 0.5 and row["reconstruction"] < 2e-3  # persistence: 0.59
    again = subprocess.run([sys.executable, BENCH / "accuracy.py", UPS, tmp_path, "--task", "advection", "--model"], capture_output=True, text=True)
    assert again.returncode == 1 and "another --share" in again.stderr


def test_ablations_train_operators_and_autoencoders(tmp_path):
    names = "latents' losses alone, `bound: 8`", "autoencoder of patches, fewer numbers, as it begins", "autoencoder of patches, fewer numbers, `rounded` in the last fifth"
    script("ablation", tmp_path, "--task", "reaction", "--share", 0.02, "--seconds", 1, "--jobs", 2, "--only", *names)
    rows = {row["variant"]: row for row in rows_of(tmp_path / "ablation.jsonl")}
    assert set(rows) == set(names)
    for name, row in rows.items():
        assert (row["steps"] == 0) == name.endswith("as it begins") and 0 < row["errors"][2] < 1.5 and (row["errors"][0] is None) == name.startswith("autoencoder")


@pytest.mark.parametrize("task", ["gas1d", "darcy", "water"])
def test_a_configuration_of_every_ablation_is_without_mistakes(tmp_path, task):
    variants = ablation.Variants(SimpleNamespace(ups=UPS, folder=tmp_path, share=0.01, train_data=None, test_data=None), task)
    for name, (keys, tasks) in ablation.VARIANTS.items():
        if tasks is None or task in tasks:
            values = {"operator.rollout_steps": 8} | {key: 5 if value == ablation.LAST else value for key, value in keys.items()}
            done = ups("config", "check", variants.config, *(f"--set={key}={value}" for key, value in values.items()))
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
