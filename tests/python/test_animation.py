"""`ups rollout --animate`: animated PNGs, read by Pillow, whose every frame shows what the rollout's file holds of that time."""

import struct
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from commands import one_sentence

SAMPLES = 8
CONFIG = """\
output: {output}
seed: 3
precision: f32
device: {{threads: 1}}
data: {{root: {data}, split: {{train: 0.5, validation: 0.25, test: 0.25}}}}
tasks:
  - {{name: line, files: [line.h5], patch: [4]}}
  - {{name: plane, files: [plane.h5], patch: [5]}}
  - {{name: cube, files: [cube.h5], patch: [4]}}
  - {{name: darcy, files: [darcy.h5], patch: [4]}}
model:
  tokens: grid
  dim: auto
  operator: {{core: stack, hidden: 16, depth: 1, heads: 2}}
autoencoder: {{steps: 0, target: 0.02, gate: 0}}
operator: {{steps: 80, accumulation: 4, batch_size: 2, optimizer: {{learning_rate: 0.003}}}}
"""

# Where a figure's plots are (plot.h, pictures.h), in its pixels.
LEFT, TOP, SIDE, GAP, BAR_GAP, BAR, BAR_LABELS = 68, 60, 200, 24, 10, 13, 58


@pytest.fixture(scope="module")
def shown(runs):
    """The folder with the animations of a run, one trajectory a task, and pictures beside them."""
    runs.generate("advection1d", "line.h5", SAMPLES, "-r", "64", "--steps", "21")
    runs.generate("swe2d", "plane.h5", SAMPLES, "-r", "20", "--steps", "61")
    runs.generate("cfd3d_rand", "cube.h5", SAMPLES, "-r", "8", "--steps", "6")
    runs.must("train", runs.config("run", CONFIG), "-q")
    told = runs.told("rollout", runs.path("run"), "-n", "1", "-o", runs.path("out.h5"), "--png", runs.path("shown"), "--animate", runs.path("shown"))
    assert {task["task"]: task["animations"] for task in told} == {"line": 1, "plane": 1, "cube": 5, "darcy": 0}
    return runs.path("shown")


def read(path):
    """All frames as arrays of RGB, and for how long each is shown, in milliseconds."""
    frames, durations = [], []
    with Image.open(path) as image:
        assert image.is_animated and image.info["loop"] == 0 and image.mode == "RGB"
        for i in range(image.n_frames):
            image.seek(i)
            frames.append(np.array(image.convert("RGB")).astype(int))
            durations.append(image.info["duration"])
    return np.array(frames), durations


def chunks(path):
    data = Path(path).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, found = 8, []
    while at < len(data):
        length, = struct.unpack(">I", data[at:at + 4])
        body = data[at + 4:at + 8 + length]
        assert zlib.crc32(body) == struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0]
        found.append((body[:4].decode(), body[4:]))
        at += 12 + length
    return found


def rollout(runs, task):
    """(frame, …, field) of prediction and truth."""
    with h5py.File(runs.path(f"out-{task}.h5")) as file:
        if "tensor" in file:
            return file["tensor"][0][..., None].astype(float), file["truth"][0][..., None].astype(float)
        group = next(group for name, group in file.items() if "data" in group)
        return group["data"][:].astype(float), group["truth"][:].astype(float)


def values_of(frame, left, bar, low, high, cells):
    """What the colours in a plot say by the colour bar at `bar`; (x, y), a value for each cell, whose pixels are alike."""
    ramp = frame[TOP:TOP + SIDE, bar + BAR // 2]  # from `high` down to `low`
    width, plot = SIDE // cells, frame[TOP:TOP + SIDE, left:left + SIDE]
    assert width * cells == SIDE
    colours = plot[::width, ::width]
    assert np.array_equal(np.repeat(np.repeat(colours, width, axis=0), width, axis=1), plot)
    colours = colours[::-1].transpose(1, 0, 2)  # y points up
    nearest = np.abs(colours[:, :, None] - ramp).sum(-1)
    assert nearest.min(-1).max() < 16, "a colour that the bar does not have"
    return high - (nearest.argmin(-1) + 0.5) / SIDE * (high - low)


def check_fields(path, prediction, truth):
    """Every frame of an animation of (frame, x, y) fields, and that nothing else moves."""
    frames, durations = read(path)
    assert len(frames) == len(prediction) == len(durations)
    error, cells = prediction - truth, prediction.shape[1]
    low, high, most = min(prediction.min(), truth.min()), max(prediction.max(), truth.max()), np.abs(error).max()
    second = LEFT + SIDE + GAP
    third = second + SIDE + BAR_GAP + BAR + BAR_LABELS
    for i, frame in enumerate(frames):
        for left, field in ((LEFT, prediction), (second, truth)):
            found = values_of(frame, left, second + SIDE + BAR_GAP, low, high, cells)
            assert np.abs(found - field[i]).max() < 0.015 * (high - low), (i, left)
        found = values_of(frame, third, third + SIDE + BAR_GAP, -most, most, cells)
        assert np.abs(found - error[i]).max() < 0.015 * 2 * most, i
    still = (frames == frames[0]).all(axis=(0, 3))
    for left in (LEFT, second, third):
        still[TOP:TOP + SIDE, left:left + SIDE] = True
    moved = np.argwhere(~still)
    assert moved.size and moved[:, 0].max() < TOP - 4, "the time, and the error's nRMSE"
    return frames, durations


def test_fields_in_2d_are_those_of_the_file_on_scales_that_stay(runs, shown):
    prediction, truth = rollout(runs, "plane")
    _, durations = check_fields(f"{shown}/plane-0-h-animation.png", prediction[..., 0], truth[..., 0])
    assert durations == pytest.approx([1000 / 13] * 60 + [1000])  # 61 frames: about five seconds


def test_fields_in_3d_are_the_middle_plane(runs, shown):
    prediction, truth = rollout(runs, "cube")
    assert prediction.shape[1:] == (8, 8, 8, 5)
    names = {path.name for path in Path(shown).glob("cube-*")}
    assert names == {f"cube-0-{field}{kind}.png" for field in ("density", "pressure", "Vx", "Vy", "Vz") for kind in ("", "-animation")}
    path = f"{shown}/cube-0-density-animation.png"
    best = [c for c in range(5) if plane_fits(path, prediction[:, :, :, 4, c], truth[:, :, :, 4, c])]
    assert len(best) == 1, "one field of the five, in one plane"
    assert not any(plane_fits(path, prediction[:, :, :, k, best[0]], truth[:, :, :, k, best[0]]) for k in (0, 3, 5))


def plane_fits(path, prediction, truth):
    try:
        check_fields(path, prediction, truth)
    except AssertionError:
        return False
    return True


def has_line(frame, x, y, blue):
    """Whether a curve's colour is near a place; the prediction's may lie over the truth's."""
    around = frame[int(y) - 3:int(y) + 4, int(x) - 2:int(x) + 3].reshape(-1, 3)
    orange = (around[:, 0] - around[:, 2] > 90).any()
    return orange or (blue and (around[:, 2] - around[:, 0] > 90).any())


def test_curves_in_1d_are_those_of_the_file_on_axes_that_stay(runs, shown):
    width, height = 340, 230
    prediction, truth = (of[..., 0] for of in rollout(runs, "line"))
    frames, durations = read(f"{shown}/line-0-u-animation.png")
    assert len(frames) == len(prediction) == 21 and durations == pytest.approx([100] * 20 + [1000])
    error = prediction - truth
    low, high, most = min(prediction.min(), truth.min()), max(prediction.max(), truth.max()), np.abs(error).max()
    low, high, most = low - 0.08 * (high - low), high + 0.08 * (high - low), 1.16 * most
    second = LEFT + width + LEFT + GAP
    for i, frame in enumerate(frames):
        for k in range(2, 62):
            x = k / 63 * width
            assert has_line(frame, LEFT + x, TOP + (high - truth[i, k]) / (high - low) * height, blue=True), (i, k)
            assert has_line(frame, second + x, TOP + (most - error[i, k]) / (2 * most) * height, blue=False), (i, k)
    still = (frames == frames[0]).all(axis=(0, 3))
    assert still[TOP + height + 2:].all() and still[TOP:, :LEFT - 4].all() and still[TOP:, LEFT + width + 4:second - 4].all()


def test_files_are_sound_and_show_the_first_frame_to_whom_knows_png_alone(shown):
    for path in Path(shown).glob("*-animation.png"):
        found = chunks(path)
        names = [name for name, _ in found]
        assert names[0] == "IHDR" and names[-1] == "IEND" and names.count("acTL") == 1 and names.index("acTL") < names.index("IDAT")
        count, plays = struct.unpack(">II", dict(found)["acTL"])
        assert plays == 0 and count == names.count("fcTL")
        assert [struct.unpack(">I", body[:4])[0] for name, body in found if name in ("fcTL", "fdAT")] == list(range(count + names.count("fdAT")))
        still = b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(body)) + name.encode() + body + struct.pack(">I", zlib.crc32(name.encode() + body))
                                                for name, body in found if name not in ("acTL", "fcTL", "fdAT"))
        plain = path.with_name("plain.png")
        plain.write_bytes(still)
        with Image.open(plain) as image:
            assert not getattr(image, "is_animated", False)
            assert np.array_equal(np.array(image.convert("RGB")), read(path)[0][0])
        plain.unlink()


def test_without_a_truth_the_prediction_moves_alone_and_long_rollouts_take_about_five_seconds(runs, shown):
    rollout, folder = ["rollout", runs.path("run"), "--task", "line", "-r", "48", "--steps", "400", "-o", runs.path("alone.h5")], runs.path("alone")
    runs.must(*rollout, "-n", "2", "--animate", folder)
    for index in (0, 1):
        some, durations = read(f"{folder}/line-{index}-u-animation.png")
        assert some.shape[2] == LEFT + 340 + GAP
        assert len(some) == 134 and sum(durations[:-1]) == pytest.approx(5000, rel=0.05)
    runs.must(*rollout, "--sample", "1", "--rate", "50", "--animate", folder)
    frames, durations = read(f"{folder}/line-1-u-animation.png")
    assert len(frames) == 401 and durations == pytest.approx([20] * 400 + [1000])
    assert len({frame.tobytes() for frame in frames}) == 401
    times = np.s_[:, :TOP - 20, LEFT + 100:]
    assert np.array_equal(frames[1::3][times], some[times]), "a frame is whole, whatever it was stored as a difference from"


def test_a_single_step_is_no_animation_and_is_said_to_be_none(runs, shown):
    said = runs.must("rollout", runs.path("run"), "--task", "darcy", "-o", runs.path("darcy.h5"), "--animate", runs.path("single")).stdout
    assert "no animation: there is a single step" in said
    assert list(Path(runs.path("single")).iterdir()) == []


def test_rates_that_cannot_be_are_refused(runs, shown):
    output = ("-o", runs.path("refused.h5"))
    one_sentence(runs.run("rollout", runs.path("run"), *output, "--rate", "10"), "--animate DIR", code=2)
    for rate in ("0", "61", "fast"):
        one_sentence(runs.run("rollout", runs.path("run"), *output, "--animate", runs.path("refused"), "--rate", rate), "--rate", code=2)
    assert not Path(runs.path("refused")).exists()


def test_beyond_the_datas_last_frame_the_prediction_moves_alone_where_it_was(runs, shown):
    folder, steps = runs.path("beyond"), ["--steps", "70", "-n", "1", "--rate", "20", "--png", runs.path("beyond"), "--animate", runs.path("beyond")]
    runs.must("rollout", runs.path("run"), "--task", "line", "-o", runs.path("beyond-line.h5"), *steps)
    runs.must("rollout", runs.path("run"), "--task", "plane", "-o", runs.path("beyond-plane.h5"), *steps)
    curves, _ = read(f"{folder}/line-0-u-animation.png")
    assert len(curves) == 71
    plots = curves[:, TOP:TOP + 230, LEFT:LEFT + 340]
    blue = (plots[..., 2] - plots[..., 0] > 90).any(axis=(1, 2))
    orange = (plots[..., 0] - plots[..., 2] > 90).any(axis=(1, 2))
    assert blue[:21].all() and not blue[21:].any() and orange.all()
    errors = curves[:, TOP:TOP + 230, LEFT + 340 + LEFT + GAP:][:, :, :340]
    assert (errors[..., 0] - errors[..., 2] > 90).any(axis=(1, 2)).tolist() == [True] * 21 + [False] * 50

    fields, _ = read(f"{folder}/plane-0-h-animation.png")
    assert len(fields) == 71
    second = LEFT + SIDE + GAP
    third = second + SIDE + BAR_GAP + BAR + BAR_LABELS
    for left, blank in ((LEFT, False), (second, True), (third, True)):
        plot = fields[61:, TOP:TOP + SIDE, left:left + SIDE]
        white = (plot == 255).all(-1)
        assert white.mean() > 0.95 if blank else not white.any()
        assert len({frame.tobytes() for frame in plot}) == (1 if blank else 10)
    bar = np.s_[:, TOP:TOP + SIDE, third + SIDE + BAR_GAP:]
    assert (fields[bar] == fields[0][bar[1:]]).all()
