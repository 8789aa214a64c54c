"""What `ups eval` says of whole rollouts over time, recomputed with NumPy from what `ups rollout` writes; and its page."""

import os
import re

import h5py
import numpy as np
import pytest

from commands import one_sentence
from pages import Page

SAMPLES = 25
THRESHOLD = 0.97  # of the correlation, which a run as small as this one's keeps high


@pytest.fixture(scope="module")
def told(runs, trained):
    runs.must("rollout", trained, "-n", "100", "-o", runs.path("out.h5"))
    return runs.told("eval", trained, "--set", f"evaluation.correlation={THRESHOLD}", "--set", "evaluation.max_samples=0", "-o", runs.path("e.json"))


@pytest.fixture(scope="module")
def fields(runs, told):
    """Prediction and truth of advection, (trajectory, frame, x), the given frame first; its times."""
    with h5py.File(runs.path("out.h5").replace(".h5", "-advection.h5")) as file:
        return file["tensor"][:].astype(float), file["truth"][:].astype(float), file["t-coordinate"][:].astype(float)


def rms(values, axis=-1):
    return np.sqrt(np.mean(np.square(values), axis))


def correlation(p, u):
    p, u = p - p.mean(-1, keepdims=True), u - u.mean(-1, keepdims=True)
    return np.mean(p * u, -1) / (rms(p) * rms(u))


def first_below(values, threshold):
    """1-based step of the first value below; None: there is none."""
    below = np.flatnonzero(np.asarray(values) < threshold)
    return int(below[0]) + 1 if len(below) else None


def energy(u):
    """By wave number, of (..., x): the sum over both directions."""
    power = np.abs(np.fft.fft(u) / u.shape[-1]) ** 2
    waves = np.abs(np.rint(np.fft.fftfreq(u.shape[-1]) * u.shape[-1])).astype(int)
    return np.stack([power[..., waves == k].sum(-1) for k in range(u.shape[-1] // 2 + 1)], -1)


def energy2d(u):
    waves = np.hypot(*np.meshgrid(*(np.fft.fftfreq(n) * n for n in u.shape[-2:]), indexing="ij"))
    power = np.abs(np.fft.fft2(u) / u[0].size) ** 2
    return np.stack([power[..., np.floor(waves + 0.5) == k].sum(-1) for k in range(min(u.shape[-2:]) // 2 + 1)], -1)


def test_quantiles_over_trajectories_are_numpys(told, fields):
    prediction, truth, time = fields
    over_time, by_trajectory = told["tasks"][0]["over_time"], told["tasks"][0]["by_trajectory"]
    nrmse = (rms(prediction - truth) / rms(truth))[:, 1:]
    assert len(nrmse) == told["tasks"][0]["trajectories"] == 5
    np.testing.assert_allclose(over_time["time"], time[1:] - time[0], rtol=1e-6)
    assert list(over_time["nrmse_quantiles"]) == ["0.05", "0.25", "0.5", "0.75", "0.95"]
    for share, values in over_time["nrmse_quantiles"].items():
        np.testing.assert_allclose(values, np.quantile(nrmse, float(share), axis=0), rtol=1e-3)
    np.testing.assert_allclose(by_trajectory["nrmse"], nrmse.mean(1), rtol=1e-4)
    whole = told["tasks"][0]["horizons"][-1]
    assert np.mean(by_trajectory["nrmse"]) == pytest.approx(whole["model"]["nrmse"], rel=1e-6)
    assert np.mean(whole["nrmse_by_frame"]["model"]) == pytest.approx(whole["model"]["nrmse"], rel=1e-6)


def test_correlation_and_the_time_it_is_lost_at_are_numpys(runs, told, fields):
    prediction, truth, time = fields
    over_time, by_trajectory = told["tasks"][0]["over_time"], told["tasks"][0]["by_trajectory"]
    of_model, of_still = correlation(prediction, truth)[:, 1:], correlation(truth[:, :1], truth)[:, 1:]
    np.testing.assert_allclose(over_time["correlation"]["model"], of_model.mean(0), atol=2e-5)
    np.testing.assert_allclose(over_time["correlation"]["persistence"], of_still.mean(0), atol=1e-7)
    found = over_time["correlation_time"]
    assert found["threshold"] == THRESHOLD
    for name, values in (("model", of_model), ("persistence", of_still)):
        steps = first_below(values.mean(0), THRESHOLD)
        assert found[name]["steps"] == steps
        assert found[name]["time"] == (pytest.approx(time[steps] - time[0], rel=1e-6) if steps else None)
    own = [first_below(values, THRESHOLD) for values in of_model]
    assert by_trajectory["correlation_steps"] == own and found["never"] == own.count(None)
    median = np.median([np.inf if steps is None else steps for steps in own])
    assert found["median"]["steps"] == (median if np.isfinite(median) else None)
    assert found["fields"] == {"u": found["model"]}
    said = runs.must("eval", runs.path("trained.yaml"), "-o", runs.path("e.json")).stdout
    lost = {name: first_below(values.mean(0), 0.8) for name, values in (("model", of_model), ("persistence", of_still))}
    assert lost["persistence"]
    assert re.search(rf"correlation with the truth: .*; persistence below 0.8 from step {lost['persistence']} on \(time {time[lost['persistence']]:.4g}\)\n", said)


def test_changes_of_the_mean_are_numpys(told, fields):
    prediction, truth, _ = fields
    first, scale = truth[:, :1].mean(-1), rms(truth.reshape(len(truth), -1))[:, None]
    model, true = (prediction.mean(-1) - first) / scale, (truth.mean(-1) - first) / scale
    found = told["tasks"][0]["over_time"]["mean_change"]["u"]
    np.testing.assert_allclose(found["model"], rms(model, 0)[1:], rtol=1e-3)
    np.testing.assert_allclose(found["difference"], rms(model - true, 0)[1:], rtol=1e-3)
    np.testing.assert_allclose(found["truth"], rms(true, 0)[1:], rtol=1e-6, atol=1e-12)


def test_spectra_are_numpys_in_1d_and_2d(runs, told, fields):
    prediction, truth, time = fields
    spectra = told["tasks"][0]["over_time"]["spectra"]
    assert [entry["step"] for entry in spectra] == [1, 4, 8]
    for entry in spectra:
        assert entry["time"] == pytest.approx(time[entry["step"]] - time[0], rel=1e-6)
        expected = energy(truth[:, entry["step"]]).mean(0)
        np.testing.assert_allclose(entry["fields"]["u"]["truth"], expected, rtol=1e-5, atol=1e-9 * expected.max())
        expected = energy(prediction[:, entry["step"]]).mean(0)
        np.testing.assert_allclose(entry["fields"]["u"]["model"], expected, rtol=1e-3, atol=1e-6 * expected.max())
        np.testing.assert_allclose(entry["fields"]["u"]["persistence"], energy(truth[:, 0]).mean(0), rtol=1e-5, atol=1e-9)
    with h5py.File(runs.path("out-darcy.h5")) as file:
        expected = energy2d(np.stack([file[seed]["truth"][1, :, :, 1].astype(float) for seed in file])).mean(0)
    entry, = told["tasks"][1]["over_time"]["spectra"]
    assert (entry["step"], list(entry["fields"])) == (1, ["u"])  # the coefficient is no solution
    np.testing.assert_allclose(entry["fields"]["u"]["truth"], expected, rtol=1e-5, atol=1e-9 * expected.max())


def test_without_the_whole_rollout_nothing_is_said_of_it(runs, trained):
    found = runs.told("eval", trained, "--set", "evaluation.horizons=[1,2]", "-o", runs.path("short.json"))["tasks"][0]
    assert "over_time" not in found and "by_trajectory" not in found


def test_the_page_shows_each_task_and_needs_nothing_from_outside(runs, trained, scratch):
    path = os.path.join(scratch, "page.html")
    told = runs.told("eval", trained, "--html", path, "-o", runs.path("e.json"))
    page, text = Page(path), ""
    assert (page.problems, page.outside) == ([], [])
    assert set(page.anchors) <= page.ids and page.tables == page.captions == 4  # metrics and gates
    charts = [svg["aria-label"] for svg in page.svgs]
    assert len(set(charts)) == len(charts)
    assert charts == ["advection: nRMSE over time, with quantiles over trajectories", "advection: correlation with the truth over time",
                      "advection: change of the mean of u over time", *(f"advection: energy of u by wave number at step {step}" for step in (1, 4, 8)),
                      "advection: nRMSE of each trajectory's whole rollout",
                      "darcy: energy of u by wave number at step 1", "darcy: nRMSE of each trajectory's whole rollout"]
    text = page.text()
    for task in told["tasks"]:
        for horizon in task["horizons"]:
            if horizon["windows"]:
                assert f"{horizon['model']['vrmse']:.3g}" in text
    runs.must("eval", trained, "--html", path, "-o", runs.path("e.json"), "--set", "evaluation.horizons=[1]")
    page = Page(path)
    assert (page.problems, page.svgs) == ([], []) and "no horizon of evaluation.horizons is 0" in page.text()
    one_sentence(runs.run("eval", trained, "--html", os.path.join(scratch, "no/such/page.html"), "-o", runs.path("e.json")), "no/such")
