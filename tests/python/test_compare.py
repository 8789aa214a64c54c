"""`ups compare`: two evaluations, trajectory by trajectory, against NumPy and SciPy; what is evaluated anew; and files that are none."""

import copy
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import scipy.stats

from commands import one_sentence, told, ups

RESAMPLES = 10000


def document(**tasks):
    """An evaluation with what a comparison reads of it: {task: errors}; None is no finite error."""
    return {"operator": {"file": "operator.safetensors", "xxh3": "0"},
            "tasks": [{"task": name, "given": 1, "by_trajectory": {"truth_xxh3": [f"{name}{i:04d}" for i in range(len(errors))], "nrmse": list(errors)}}
                      for name, errors in tasks.items()]}


@pytest.fixture
def compare(scratch):
    """Writes two evaluations and compares them."""
    def run(a, b, *options):
        for name, content in (("a", a), ("b", b)):
            Path(scratch, name + ".json").write_text(content if isinstance(content, str) else json.dumps(content))
        return ups("compare", os.path.join(scratch, "a.json"), os.path.join(scratch, "b.json"), *options)
    return run


def errors(seed, count, scale=1.0):
    return (scale * np.random.default_rng(seed).lognormal(-3, 0.5, count)).tolist()


def numpys_resamples(difference, seed=5):
    draw = np.random.default_rng(seed).integers(0, len(difference), (RESAMPLES, len(difference)))
    return difference[draw].mean(1)


def assert_interval(found, low, high):
    """Within what another 10,000 resamples would move it by: about 2 % of its width at a percentile of 2.5 %."""
    assert found == pytest.approx([low, high], abs=0.05 * (high - low))


def test_differences_intervals_and_probabilities_are_numpys_and_scipys(compare):
    a, b = np.array(errors(1, 50)), np.array(errors(1, 50, 1.02)) * np.random.default_rng(2).lognormal(0, 0.1, 50)
    c, d = np.array(errors(3, 12)), np.array(errors(4, 12))
    found = json.loads(compare(document(waves=a, flow=c), document(flow=d, waves=b), "--json").stdout)
    assert (found["resamples"], found["confidence"]) == (RESAMPLES, 0.95)
    assert [task["task"] for task in found["tasks"]] == ["waves", "flow"]
    resamples = []
    for task, x, y in zip(found["tasks"], (a, c), (b, d)):
        assert (task["a"], task["b"], task["difference"]) == pytest.approx((x.mean(), y.mean(), (x - y).mean()), rel=1e-12)
        assert task["trajectories"] == len(x)
        scipys = scipy.stats.bootstrap((x - y,), np.mean, n_resamples=RESAMPLES, method="percentile").confidence_interval
        assert_interval(task["interval"], scipys.low, scipys.high)
        resamples.append(numpys_resamples(x - y))
        assert_interval(task["interval"], *np.quantile(resamples[-1], [0.025, 0.975]))
        assert task["probability_a_better"] == pytest.approx(np.mean(resamples[-1] < 0), abs=0.02)
    assert 0.01 < found["tasks"][0]["probability_a_better"] < 0.9999
    both = (resamples[0] + numpys_resamples(c - d, 6)) / 2
    assert found["all"]["trajectories"] == 62
    assert found["all"]["difference"] == pytest.approx(((a - b).mean() + (c - d).mean()) / 2, rel=1e-12)
    assert_interval(found["all"]["interval"], *np.quantile(both, [0.025, 0.975]))
    assert found["all"]["probability_a_better"] == pytest.approx(np.mean(both < 0), abs=0.02)


def test_the_result_repeats_is_mirrored_and_does_not_depend_on_the_order_of_trajectories(compare):
    a, b = document(waves=errors(1, 30), flow=errors(2, 9)), document(waves=errors(3, 30), flow=errors(4, 9))
    first = compare(a, b, "--json").stdout
    assert first == compare(a, b, "--json").stdout
    shuffled = copy.deepcopy(b)
    for task in shuffled["tasks"]:
        for values in task["by_trajectory"].values():
            values.reverse()
    assert first == compare(a, shuffled, "--json").stdout
    forth, back = json.loads(first), json.loads(compare(b, a, "--json").stdout)
    for x, y in zip([*forth["tasks"], forth["all"]], [*back["tasks"], back["all"]]):
        assert x["difference"] == pytest.approx(-y["difference"], rel=1e-12)
        assert x["interval"] == pytest.approx([-y["interval"][1], -y["interval"][0]], rel=1e-9)
        assert x["probability_a_better"] == pytest.approx(1 - y["probability_a_better"], abs=1e-12)


def test_the_table_says_who_is_better_and_where_that_is_not_shown(compare):
    worse = [2 * value for value in errors(1, 20)]
    text = compare(document(waves=errors(1, 20), flow=worse, same=errors(5, 20)), document(waves=worse, flow=errors(1, 20), same=errors(5, 20)[::-1])).stdout
    assert re.search(r"^waves +20 .* 100\.00 %  A is better$", text, re.M) and re.search(r"^flow +20 .* 0\.00 %  B is better$", text, re.M)
    assert re.search(r"^same .*  no difference shown$", text, re.M) and re.search(r"^mean over tasks +60 ", text, re.M)
    equal = json.loads(compare(document(waves=worse), document(waves=worse), "--json").stdout)["tasks"][0]
    assert (equal["difference"], equal["interval"], equal["probability_a_better"]) == (0, [0, 0], 0.5)


def test_trajectories_without_a_finite_error_are_left_out_and_counted(compare):
    a, b = errors(1, 12), errors(2, 12)
    x, y = copy.copy(a), copy.copy(b)
    x[3] = x[4] = x[5] = y[5] = y[6] = None
    found = json.loads(compare(document(waves=x), document(waves=y), "--json").stdout)["tasks"][0]
    kept = [i for i in range(12) if i not in (3, 4, 5, 6)]
    assert (found["trajectories"], found["not_finite"], found["undefined"]) == (8, {"a": 2, "b": 1}, 1)
    assert found["difference"] == pytest.approx(np.mean([a[i] - b[i] for i in kept]), rel=1e-12)
    text = compare(document(waves=x), document(waves=y)).stdout
    assert "waves: A alone is not finite on 2 trajectories, left out\nwaves: B alone is not finite on 1 trajectory, left out\n" in text
    assert "fewer than 10 trajectories" in text
    one_sentence(compare(document(waves=[None] * 3), document(waves=errors(1, 3))), "task waves: on none of the 3 trajectories", r"3 fail in .*a\.json")


def test_a_single_trajectory_has_no_interval_and_tasks_of_one_alone_are_named(compare):
    found = compare(document(waves=[0.1], flow=errors(1, 4)), document(waves=[0.2], rain=errors(1, 4)))
    assert re.search(r"^waves +1 .*one trajectory: no interval$", found.stdout, re.M)
    assert "flow: only A has this task\n" in found.stdout and "rain: only B has this task\n" in found.stdout
    found = json.loads(compare(document(waves=[0.1], flow=errors(1, 4)), document(waves=[0.2]), "--json").stdout)
    assert found["tasks"][0]["interval"] == found["all"]["interval"] == [None, None] and found["only_in"] == {"a": ["flow"], "b": []}
    one_sentence(compare(document(flow=errors(1, 4)), document(waves=[0.2])), "have no task in common")


def test_other_test_trajectories_are_refused(compare):
    a = document(waves=errors(1, 6))
    b = copy.deepcopy(a)
    b["tasks"][0]["by_trajectory"]["truth_xxh3"][1] = "other"
    one_sentence(compare(a, b), "task waves: the test trajectories differ: 1 of the 6 of .*a.json are not among those of .*b.json, and 1 of its 6")
    one_sentence(compare(a, document(waves=errors(1, 8))), "0 of the 6 of .* and 2 of its 8 not among these; evaluate both on the same files")
    twice = copy.deepcopy(a)
    twice["tasks"][0]["by_trajectory"]["truth_xxh3"][1] = "waves0000"
    one_sentence(compare(a, twice), "the test trajectories differ: 1 of the 6")
    b = copy.deepcopy(a)
    b["tasks"][0]["given"] = 10
    one_sentence(compare(a, b), "task waves: 1 frames are given in .*a.json and 10 in .*b.json", "evaluation.given")


def without(key):
    broken = document(waves=errors(1, 4))
    del broken["tasks"][0][key]
    return broken


def with_trajectories(**changed):
    broken = document(waves=errors(1, 4))
    broken["tasks"][0]["by_trajectory"].update(changed)
    return broken


@pytest.mark.parametrize("broken, part", [
    (json.dumps(document(waves=errors(1, 4)))[:-30], r"b\.json"), ("", r"b\.json"), ("[]", r"b\.json.*tasks"), ("{}", r"b\.json.*tasks"),
    ({"tasks": {}}, r"b\.json.*tasks"), ({"tasks": [1]}, r"b\.json"), (without("given"), r"b\.json.*given"),
    (without("by_trajectory"), r"b\.json: task waves has no errors of trajectories; evaluate with 0 among evaluation\.horizons"),
    (with_trajectories(nrmse=[0.1]), r"b\.json: task waves: 4 trajectories have 1 errors"), (with_trajectories(nrmse="x"), r"b\.json.*nrmse"),
    (with_trajectories(truth_xxh3=[]), r"b\.json: task waves: 0 trajectories"), (with_trajectories(truth_xxh3=[1, 2, 3, 4]), r"trajectory 0 has no hash"),
    (with_trajectories(nrmse=[0.1, True, 0.1, 0.1]), r"trajectory 1 has no hash or no number")])
def test_files_that_are_no_evaluation_are_refused_with_a_sentence(compare, broken, part):
    one_sentence(compare(document(waves=errors(1, 4)), broken), part)


def test_operands_that_are_nothing_are_told(scratch, compare):
    one_sentence(ups("compare", os.path.join(scratch, "none.json"), os.path.join(scratch, "none.json")), r"none\.json")
    one_sentence(ups("compare", os.path.join(scratch, "none"), os.path.join(scratch, "none")), "none")
    assert ups("compare", "one.json").returncode == 2


def weaken(path):
    """The same operator with smaller steps: every tensor a little smaller."""
    with safetensors.safe_open(path, "numpy") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
    safetensors.numpy.save_file({name: 0.97 * values for name, values in tensors.items()}, path, metadata)


def test_runs_are_evaluated_once_and_again_only_when_something_changed(runs, trained):
    config, folder = runs.copy("trained")
    weaken(os.path.join(folder, "operator.safetensors"))
    kept = [Path(runs.path("trained"), "evaluation.json"), Path(folder, "evaluation.json")]

    def compared(*options):
        done = ups("compare", trained, config, "--json", *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), re.findall(r"evaluated now: of its evaluation.json, (.*)", done.stderr), [path.stat().st_mtime_ns for path in kept]

    first, reasons, times = compared()
    assert reasons == ["there is none"] * 2
    assert [task["task"] for task in first["tasks"]] == ["advection", "darcy"]
    read = [json.loads(path.read_text()) for path in kept]
    for i, task in enumerate(first["tasks"]):
        x, y = (np.array(evaluation["tasks"][i]["by_trajectory"]["nrmse"]) for evaluation in read)
        assert task["difference"] == pytest.approx(np.mean(x - y), rel=1e-12) and task["difference"] != 0
        assert read[0]["tasks"][i]["by_trajectory"]["truth_xxh3"] == read[1]["tasks"][i]["by_trajectory"]["truth_xxh3"]
    again, reasons, later = compared()
    assert (again, reasons, later) == (first, [], times)
    assert told("compare", *kept)["tasks"] == first["tasks"]
    weaken(os.path.join(folder, "operator.safetensors"))
    third, reasons, later = compared()
    assert reasons == ["it is of other models"] and later[0] == times[0] and later[1] != times[1]
    assert third["tasks"] != first["tasks"]
    for key, value in (("device.threads", 2), ("data.decode_threads", 2), ("data.residency", "stream")):  # no number depends on them
        assert compared("--set", f"{key}={value}")[1:] == ([], later)
    assert compared("--set", "evaluation.given=1", "--set", "evaluation.horizons=[0]")[1] == ["it was made with other settings"] * 2
    runs.must("eval", config, "--split", "train", "--set", "evaluation.max_samples=3")
    one_sentence(ups("compare", kept[0], kept[1]), "the test trajectories differ")
    kept[1].write_bytes(kept[1].read_bytes()[:1000])
    one_sentence(ups("compare", trained, config), r"evaluation\.json", "remove the file, or let `ups eval` write it again")
