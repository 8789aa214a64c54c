"""`ups report`: a run's page, held against metrics.jsonl and evaluation.json; of runs that have just begun, and of files that are damaged."""

import base64
import io
import json
import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from commands import one_sentence
from pages import Page

CHARTS = ["loss", "loss", "loss, without weights", "learning rate", "norm", "windows a second", "GFLOP/s", "MB"]


def lines_of(run):
    return [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]


def sound(path):
    page = Page(path)
    assert (page.problems, page.outside) == ([], []) and set(page.anchors) <= page.ids
    return page


def of_stage(page, stage):
    return [svg["aria-label"].removeprefix(f"{stage}: ").removesuffix(" by step") for svg in page.svgs if svg["aria-label"].startswith(f"{stage}: ")]


@pytest.fixture
def changed(runs, trained, scratch):
    """A copy of the run, for what is done to its files, and where its page goes."""
    return runs.copy("trained")[1], os.path.join(scratch, "page.html")


def test_the_page_shows_each_stage_and_what_the_operator_does(runs, trained):
    run = runs.path("trained")
    found = runs.told("report", trained)
    assert found == {"file": os.path.join(run, "report.html"), "evaluated": True}
    page = sound(found["file"])
    assert of_stage(page, "autoencoder") == CHARTS and of_stage(page, "operator") == CHARTS
    assert len({svg["aria-label"] for svg in page.svgs}) >= 2 * (len(CHARTS) - 1)
    text = " ".join(page.text().split())
    for stage in ("autoencoder", "operator"):
        own = [line for line in lines_of(run) if line["stage"] == stage]
        trained_last = [line for line in own if "task_loss" in line][-1]
        validated = [line for line in own if "validation" in line][-1]
        for task, loss in validated["validation"].items():
            assert f"{task} {trained_last['task_loss'][task]:.4g} {loss:.4g}" in text
        assert f"best validation {validated['best']:.4g} of step {validated['best_step']}" in text
        assert f"steps {trained_last['step']} " in text and own[0]["precision"] in text
    evaluation = json.loads(Path(run, "evaluation.json").read_text())
    for task in evaluation["tasks"]:
        for horizon in task["horizons"]:
            if horizon["windows"]:
                assert f"{horizon['model']['nrmse']:.3g}" in text
    assert "samples_per_shard: 2" in page.text()  # the configuration
    fields = [svg["aria-label"] for svg in page.svgs if re.search(r", tensor\[\d+\]: u$", svg["aria-label"])]
    assert [label.partition(",")[0] for label in fields] == ["advection", "darcy"] and "fields" in page.ids


def test_fields_are_those_of_rollouts(runs, trained, scratch):
    """A field is a picture of one pixel a value, whose colours are the lighter the larger it is; time rises."""
    path = os.path.join(scratch, "page.html")
    runs.must("report", trained, "-o", path)
    runs.must("rollout", trained, "--task", "advection", "--sample", "0", "-o", os.path.join(scratch, "r.h5"))
    page = Path(path).read_text()
    picture = page[page.index('aria-label="advection, tensor['):]
    panels = [Image.open(io.BytesIO(base64.b64decode(data))).convert("L") for data in re.findall('data:image/png;base64,([^"]+)"', picture)[:2]]
    with h5py.File(os.path.join(scratch, "r.h5")) as file:
        for panel, name in zip(panels, ("tensor", "truth")):
            values = file[name][0]
            assert panel.size == values.shape[::-1]
            shown = np.asarray(panel, float)[::-1]
            same, reversed_, moved = (np.corrcoef(shown.ravel(), other.ravel())[0, 1] for other in (values, values[::-1], np.roll(values, 1, axis=1)))
            assert same > 0.98 and same > max(reversed_, moved) + 0.01


def test_it_is_evaluated_once(runs, trained, scratch):
    run, path = runs.path("trained"), os.path.join(scratch, "page.html")
    runs.must("report", run, "-o", path)
    before = os.stat(os.path.join(run, "evaluation.json")).st_mtime_ns
    done = runs.must("report", run, "-o", path)
    assert "is evaluated now" not in done.stderr and os.stat(os.path.join(run, "evaluation.json")).st_mtime_ns == before
    assert done.stdout.strip() == path


def test_a_run_that_is_training_shows_its_losses_so_far(runs, scratch):
    config, path = runs.config("begun"), os.path.join(scratch, "page.html")
    runs.train_until("operator, step 30", config)
    with open(runs.path("begun", "metrics.jsonl"), "a") as file:
        file.write('{"stage":"operator","step":40,"lo')  # a line that is being written
    assert runs.told("report", runs.path("begun"), "-o", path) == {"file": path, "evaluated": False}
    page = sound(path)
    assert "The operator is not trained yet." in page.text() and of_stage(page, "autoencoder") == CHARTS
    assert of_stage(page, "operator")


def test_without_its_data_a_run_keeps_its_curves(runs, changed):
    run, path = changed
    os.rename(runs.data, runs.data + "-away")
    try:
        done = runs.run("report", run, "-o", path, "--json")
    finally:
        os.rename(runs.data + "-away", runs.data)
    assert done.returncode == 0 and json.loads(done.stdout)["evaluated"] is False
    page = sound(path)
    assert of_stage(page, "operator") == CHARTS
    assert runs.data in page.text() and "the page has no evaluation" in done.stderr


def test_a_run_on_a_known_card_shows_its_utilisation(changed, runs):
    run, path = changed
    lines = lines_of(run)
    for number, line in enumerate(line for line in lines if line["stage"] == "operator" and "flops_per_s" in line):
        line["mfu"] = 0.25 + 0.01 * number
    Path(run, "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs.must("report", run, "-o", path)
    page = sound(path)
    assert "MFU, %" in of_stage(page, "operator") and of_stage(page, "autoencoder") == CHARTS
    shown = float(re.search(r"MFU, % ([\d.]+)", " ".join(page.text().split()))[1])
    assert shown == pytest.approx(np.median([100 * line["mfu"] for line in lines if "mfu" in line][1:]), abs=0.051)


def test_long_runs_and_odd_names_stay_a_small_page(runs, changed):
    run, path = changed
    with open(os.path.join(run, "metrics.jsonl"), "a") as file:
        for step in range(61, 60061):
            loss = {"advection": None if step % 3 else 0.5 / step, "<script>alert(1)</script>": 1.0}
            stage = "<script>alert(2)</script>" if step == 99 else "operator"
            file.write(json.dumps({"stage": stage, "step": step, "loss": 1, "task_loss": loss, "learning_rate": 1e-3}) + "\n")
    runs.must("report", run, "-o", path, "--set", "evaluation.horizons=[1]")
    page = sound(path)
    assert os.path.getsize(path) < 2_000_000 and "<script>" not in page.source and "script" not in page.tags
    assert "steps 60060" in " ".join(page.text().split())


def test_a_run_of_no_steps_says_so(runs, scratch):
    config, path = runs.config("still"), os.path.join(scratch, "page.html")
    runs.must("train", config, "--stage", "autoencoder", "--set", "autoencoder.steps=0")
    runs.must("report", runs.path("still"), "-o", path)
    assert "Nothing over steps" in sound(path).text()


def test_what_cannot_be_is_refused_and_leaves_nothing(runs, trained, changed, scratch):
    run, path = changed
    one_sentence(runs.run("report", trained, "-o", os.path.join(scratch, "no/such/page.html")), "no/such")
    one_sentence(runs.run("report", runs.config("nobody")), "nobody", "there is no run yet")
    one_sentence(runs.run("report", os.path.join(scratch, "nowhere.yaml")), "nowhere")
    assert runs.run("report").returncode == 2
    os.remove(os.path.join(run, "metrics.jsonl"))
    os.mkdir(os.path.join(run, "metrics.jsonl"))
    one_sentence(runs.run("report", run, "-o", path), re.escape(os.path.join(run, "metrics.jsonl")))
    assert not os.path.exists(path)
