"""`ranks.shard: optimizer`: each of several processes keeps moments and averages of its share of the parameters alone. What a run leaves is what it leaves
without, to the byte where that was promised; it is gone on with by any number of processes, sharing or not."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import one_sentence, program
from test_ranks import SAME, STEPS, SUMMED, TEXTS, Ranks, assert_same, good, left_a_checkpoint, look, place, pytestmark, stop, train  # noqa: F401
from tiny_run import metrics

SHARED = ("--set", "ranks.shard=optimizer")
UNCLIPPED = ("--set", "autoencoder.optimizer.clip=0", "--set", "operator.optimizer.clip=0")


def found(at):
    """A run, but for the key that says how it was shared."""
    left = look(at.folder)
    own, alone = (Path(folder, "config.yaml").read_text() for folder in (at.folder, at.kept))
    assert own.replace("shard: optimizer", "shard: none") == alone
    left["config.yaml"] = at.alone["config.yaml"]
    return left


def models(folder):
    return {name: content for name, content in look(folder).items() if name.startswith(("checkpoints", "autoencoder", "operator"))}


def shares_told(said):
    """[(kept here, all)] in MiB, of each stage."""
    return [(float(own), float(all_)) for own, all_ in re.findall(r"a share of the optimizer's state, here ([\d.]+) of ([\d.]+) MiB", said)]


# ---- the same bytes ----

@pytest.mark.parametrize("name, ranks", [("adamw", 2), ("adamw", 4), ("muon", 2), ("muon", 4), ("grid", 4), ("fp16", 4)])
def test_reproducible_runs_that_share_the_optimizer_are_the_same_to_the_byte(place, name, ranks):
    """With averages that validations take, sets of parameters that steps leave out, steps that are skipped for their loss scale."""
    at = place(name)
    said = good(train(ranks, at.config, *SHARED)).stderr
    assert_same(found(at), at.alone)
    assert len(shares_told(said)) == 2 and all(own < all_ for own, all_ in shares_told(said)), said


@pytest.mark.parametrize("ranks", [0, 1])
def test_one_process_shares_nothing(place, ranks):
    at = place("adamw")
    said = good(train(ranks, at.config, *SHARED)).stderr
    assert_same(found(at), at.alone)
    assert shares_told(said) == []


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_device_that_works_beside_the_host_shares_to_the_bytes_of_the_cpu(place, ranks):
    at = place("muon")
    late = {"UPS_TEST_DEVICE": "test-async", "UPS_TEST_INPUT_SETS": "2", "UPS_MPI_MODULE": program("libups_mpi.so")}
    good(Ranks(ranks, "train", at.config, *SHARED, command=[program("ups_async")], **late).end())
    assert_same(found(at), at.alone)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_sums_of_shares_that_begin_during_backward_are_those_of_whole_gradients(runs, kind):
    """Models of several buckets of a million gradients, and a micro-batch a rank: then the order of ranks is that of micro-batches, and without clipping no
    other sum depends on who has what."""
    text = (SUMMED.replace("hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, drop_path", "hidden: 320, depth: 2, heads: 2, mlp_ratio: 4, drop_path")
            .replace("decoder: {{hidden: 16, depth: 1,", "decoder: {{hidden: 512, depth: 1,").replace("seed: 3", "seed: 3\nstages: [autoencoder, operator]")
            .replace(f"steps: {STEPS}", "steps: 3").replace("from: 10}}", "from: 1}}").replace("from: 3\n    ramp: 10", "from: 1\n    ramp: 2")
            .replace("accumulation: 4", "accumulation: 2").replace("validation_batches: 2", "validation_batches: 1").replace("decode_threads: 1", "decode_threads: 1\n  residency: encode")
            .replace("kind: adamw, ", f"kind: {kind}, ").replace("ema_decay: 0,", "ema_decay: 0.9,"))
    left, config, folder = [], runs.config("large", text), runs.path("large")
    for ranks, options in ((0, ("--set", "ranks.reproducible=true")), (2, SHARED)):
        shutil.rmtree(folder, ignore_errors=True)
        said = good(train(ranks, config, *options, *UNCLIPPED)).stderr
        left.append(models(folder))
    assert_same(left[1], left[0])
    for own, all_ in shares_told(said):
        assert all_ > 10 and 0.4 < own / all_ < (0.6 if kind == "adamw" else 0.7)  # with Muon each has a workspace


@pytest.mark.parametrize("text", [SUMMED, SUMMED.replace("kind: adamw, ", "kind: muon, ").replace("precision: f32", "precision: bf16")], ids=["adamw", "muon"])
def test_runs_that_share_in_the_same_sums_agree_within_rounding(runs, text):
    """Each adds up the norm of its own share, in other groups than one that has all."""
    losses, norms, weights = [], [], []
    for options in ((), SHARED):
        config, folder = runs.config("near", text), runs.path("near")
        shutil.rmtree(folder, ignore_errors=True)
        good(train(4, config, *options))
        lines = metrics(folder)
        losses.append([line["loss"] for line in lines if "loss" in line])
        norms.append([line["gradient_norm"] for line in lines if "gradient_norm" in line])
        weights.append(load_file(os.path.join(folder, "autoencoder.safetensors")))
    assert np.allclose(*losses, rtol=2e-3) and np.allclose(*norms, rtol=2e-2)
    assert np.allclose(losses[0][0], losses[1][0], rtol=1e-5) and np.allclose(norms[0][0], norms[1][0], rtol=1e-4)
    for name, values in weights[0].items():
        assert np.allclose(values, weights[1][name], rtol=1e-2, atol=1e-3), name


def test_all_who_share_skip_the_steps_that_those_skip_who_do_not(runs):
    """A gradient that overflows fp16 is seen by who has it in its share, and by nobody else."""
    scales = []
    for options in ((), SHARED):
        config, folder = runs.config("half", TEXTS["fp16"].replace("log_every: 5", "log_every: 1")), runs.path("half")
        shutil.rmtree(folder, ignore_errors=True)
        good(train(4, config, *options, "--set", "ranks.reproducible=false", "--set", "operator.patience=0", "--set", "operator.losses.one_step.weight=100000"))
        scales.append([(line["step"], line["loss_scale"], line["skipped"]) for line in metrics(folder) if "loss_scale" in line])
    assert scales[0] == scales[1] and scales[0][-1][2] > 0


def test_a_gradient_that_is_not_finite_ends_all_who_share(place):
    at = place("adamw")
    sets = ("--set", "ranks.reproducible=false", "--set", "autoencoder.optimizer.learning_rate=10", "--set", "autoencoder.optimizer.clip=0",
            "--set", "autoencoder.optimizer.warmup_steps=0", "--set", "autoencoder.optimizer.weight_decay=10", "--set", "autoencoder.steps=4000")
    sentences = []
    for options in ((), SHARED):
        at.clear()
        sentences.append(one_sentence(train(4, at.config, *sets, *options), "is not finite; the batch held "))
    assert sentences[0] == sentences[1]


# ---- stopped, and gone on with by others ----

@pytest.mark.parametrize("ranks, then, stage, shares", [(4, 0, "operator", (True, False)), (4, 2, "operator", (True, True)), (4, 2, "operator", (True, False)),
                                                        (2, 4, "autoencoder", (False, True)), (2, 4, "autoencoder", (True, True))])
def test_whoever_stops_a_run_any_number_goes_on_sharing_or_not(place, ranks, then, stage, shares):
    at = place("muon")
    first, second = (SHARED if shared else ("--set", "ranks.shard=none") for shared in shares)
    said, code, _ = stop(at, ranks, f"{stage}, step 8 of", signal.SIGTERM, 1, *first)
    assert code == 143, said
    assert left_a_checkpoint(at, stage, said)
    good(train(then, at.folder, "--resume", *second))
    assert_same(found(at), at.alone)


def test_what_one_process_began_many_end_sharing(place):
    at = place("muon")
    at.runs.train_until("operator, step 8 of", at.config)
    assert not Path(at.folder, "operator.safetensors").exists()
    good(train(4, at.folder, "--resume", *SHARED))
    assert_same(found(at), at.alone)


@pytest.mark.parametrize("whom", [0, 3])
def test_a_killed_process_ends_all_and_others_go_on(place, whom):
    at = place("grid")
    said, code, seconds = stop(at, 4, "operator, step 8 of", signal.SIGKILL, whom, *SHARED)
    assert code not in (0, 130, 143)
    assert seconds < 20
    good(train(2, at.folder, "--resume", *SHARED))
    assert_same(found(at), at.alone)


def test_a_disk_that_is_full_ends_all_who_share_with_one_sentence_and_the_run_goes_on(place):
    """Rank 0 fails in the middle of tensors that the others bring."""
    at = place("muon")
    faulty = f'[ $OMPI_COMM_WORLD_RANK = 0 ] && export LD_PRELOAD={program("libups_faults.so")} UPS_FAULT=write:9+:ENOSPC:checkpoints/operator; exec {program("ups")} "$@"'
    done = Ranks(4, "train", at.config, *SHARED, command=["sh", "-c", faulty, "sh"]).end()
    assert done.returncode == 1, done.stderr
    assert len([line for line in done.stderr.splitlines() if "No space left on device" in line]) == 1, done.stderr
    assert not [name for name in os.listdir(Path(at.folder, "checkpoints", "operator")) if name.startswith("step-") and not Path(
        at.folder, "checkpoints", "operator", "latest.json").exists()]
    good(train(2, at.folder, "--resume", *SHARED))
    assert_same(found(at), at.alone)


# ---- plans, refusals ----

def planned(ranks, config, *options):
    """A plan but for the room on the disk, which others change."""
    plan = json.loads(good(train(ranks, config, "--plan", "--json", *options)).stdout)
    assert plan["cache"].pop("free") > 0
    return plan


WIDE = (SAME.replace("hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, drop_path", "hidden: 256, depth: 6, heads: 2, mlp_ratio: 4, drop_path")
        .replace("decoder: {{hidden: 16, depth: 1,", "decoder: {{hidden: 256, depth: 2,"))


@pytest.mark.parametrize("kind, ema", [("adamw", 0), ("adamw", 0.99), ("muon", 0.99)])
def test_a_plan_counts_a_share(runs, kind, ema):
    """To the byte: test_shards.c. With Muon each rank has a workspace for products of its matrices."""
    config = runs.config("wide", WIDE)
    sets = ("--set", f"operator.optimizer.kind={kind}", "--set", f"operator.optimizer.ema_decay={ema}")
    for ranks in (2, 4):
        whole, share = (planned(ranks, config, *sets, *options)["operator"] for options in ((), SHARED))
        assert share["ranks"] == ranks and share["trainable_parameters"] > 4e6
        assert 1 / ranks <= share["optimizer"] / whole["optimizer"] < (1.02 if kind == "adamw" else 1.35) / ranks
        assert share["parameters"] == whole["parameters"] and share["activations"] == whole["activations"]
        assert share["total"] - whole["total"] == share["optimizer"] - whole["optimizer"] + share["exchange"] - whole["exchange"]
        assert whole["exchange"] < share["exchange"] <= whole["exchange"] + 4 * 2**20  # a bucket that is packed


def test_a_plan_is_told_of_a_share(place):
    at = place("adamw")
    assert good(train(2, at.config, "--plan", *SHARED)).stdout.count("a rank's share of optimizer state") == 2
    assert "share of" not in good(train(2, at.config, "--plan")).stdout
    assert planned(0, at.config, *SHARED) == planned(0, at.config)


def test_only_what_there_is_can_be_shared(place):
    at = place("adamw")
    done = train(2, at.config, "--set", "ranks.shard=weights")
    one_sentence(done, "ranks.shard", "none.*optimizer")
