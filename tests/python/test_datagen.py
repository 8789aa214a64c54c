"""`ups datagen`, seen by h5py and NumPy: layouts, types and attributes as PDEBench's files have them; the numbers by
NumPy's own means."""

import json
import os
import resource
import signal
import subprocess
import time

import h5py
import numpy as np
import pytest

from commands import TIMEOUT, UPS, limit, ups


def datagen(*arguments, **options):
    return ups("datagen", *arguments, **options)


def path(scratch, name="x.h5"):
    return os.path.join(scratch, name)


def make(scratch, *arguments, name="x.h5"):
    done = datagen(*arguments, "-o", path(scratch, name), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---- layouts ----

def check_tensor_file(scratch, solver, attribute, value, *arguments):
    result = make(scratch, solver, "-n", 5, "-r", 64, "--steps", 21, *arguments)
    assert result["samples"] == 5
    assert result["bytes"] == os.path.getsize(path(scratch))
    with h5py.File(path(scratch), "r") as file:
        assert set(file) == {"tensor", "x-coordinate", "t-coordinate"}
        assert file["tensor"].shape == (5, 21, 64)
        assert file["x-coordinate"].shape == (64,)
        assert file["t-coordinate"].shape == (22,)  # one more than the data, as PDEBench's
        for name in file:
            assert file[name].dtype == np.float32
            assert file[name].chunks is None
        np.testing.assert_array_equal(file["x-coordinate"][:], ((np.arange(64) + 0.5) / 64).astype(np.float32))
        np.testing.assert_array_equal(file["t-coordinate"][:], (2 * np.arange(22) / 20).astype(np.float32))
        assert file.attrs[attribute] == value
        assert file.attrs[attribute].dtype == np.float64
        made_by = json.loads(file.attrs["ups_datagen"])
        assert made_by["solver"] == solver
        assert made_by["parameters"] == result["parameters"]
        tensor = file["tensor"][:]
    assert np.isfinite(tensor).all()
    assert len(np.unique(tensor[:, 0, 0])) == 5  # samples differ
    return tensor


def test_advection_is_a_tensor_file_with_beta(scratch):
    check_tensor_file(scratch, "advection1d", "beta", 0.4)


def test_burgers_is_a_tensor_file_with_nu(scratch):
    tensor = check_tensor_file(scratch, "burgers1d", "Nu", 0.02, "-p", "nu=0.02")
    np.testing.assert_allclose(tensor.mean(2), tensor.mean(2)[:, :1].repeat(21, 1), atol=1e-6)
    assert (np.abs(tensor).max(2)[:, 1:] <= np.abs(tensor).max(2)[:, :-1] + 1e-6).all()


def test_darcy_is_nu_and_tensor_with_beta(scratch):
    make(scratch, "darcy2d", "-n", 6, "-r", 48, "-p", "beta=10", "-p", "scheme=conservative")
    with h5py.File(path(scratch), "r") as file:
        assert set(file) == {"nu", "tensor", "x-coordinate", "y-coordinate"}
        assert file["nu"].shape == (6, 48, 48)
        assert file["tensor"].shape == (6, 1, 48, 48)
        for name in file:
            assert file[name].dtype == np.float32
        assert file.attrs["beta"] == 10.0
        nu, u = file["nu"][:].astype(np.float64), file["tensor"][:, 0].astype(np.float64)
        np.testing.assert_array_equal(file["y-coordinate"][:], ((np.arange(48) + 0.5) / 48).astype(np.float32))
    np.testing.assert_array_equal(np.unique(nu), np.unique(np.float32([0.1, 1.0])))
    # what flows out through the four walls, half a cell away, is what is fed in
    rims = [(nu[:, 0] * u[:, 0]), (nu[:, -1] * u[:, -1]), (nu[:, :, 0] * u[:, :, 0]), (nu[:, :, -1] * u[:, :, -1])]
    np.testing.assert_allclose(sum(2 * rim.sum(1) for rim in rims), 10.0, rtol=1e-5)
    # and so for every cell: by harmonic means of nu between cells
    flux_x = 2 / (1 / nu[:, 1:] + 1 / nu[:, :-1]) * (u[:, :-1] - u[:, 1:])
    flux_y = 2 / (1 / nu[:, :, 1:] + 1 / nu[:, :, :-1]) * (u[:, :, :-1] - u[:, :, 1:])
    inside = flux_x[:, 1:, 1:-1] - flux_x[:, :-1, 1:-1] + flux_y[:, 1:-1, 1:] - flux_y[:, 1:-1, :-1]
    np.testing.assert_allclose(inside, 10.0 / 48**2, atol=4e-7 * u.max() * 4)


def test_reaction_diffusion_is_a_tensor_file_with_nu_and_rho(scratch):
    result = make(scratch, "reacdiff1d", "-n", 3, "-r", 64, "--steps", 21, "-p", "rho=5")
    assert result["continued"] == 0
    with h5py.File(path(scratch), "r") as file:
        assert set(file) == {"tensor", "x-coordinate", "t-coordinate"}
        assert file["t-coordinate"].shape == (22,)
        assert (file.attrs["Nu"], file.attrs["rho"]) == (0.5, 5.0)
        tensor = file["tensor"][:].astype(np.float64)
    assert (tensor[:, 0].min(), tensor[:, 0].max()) == (0.0, 1.0)
    assert (np.diff(tensor.mean(2), axis=1) > 0).all()  # it only grows
    # where it has become uniform it follows the logistic curve
    last, before, growth = tensor[:, -1].mean(1), tensor[:, -11].mean(1), np.exp(5 * 0.5)
    np.testing.assert_allclose(last, before * growth / (1 + before * (growth - 1)), rtol=1e-5)


def check_seed_groups(scratch, solver, shape, edge, t_end, *arguments):
    """Groups as PDEBench's generators write them; returns the data and the YAML of each."""
    make(scratch, solver, "-n", 3, "-r", shape[1], "--steps", shape[0], *arguments)
    data, configs = [], []
    with h5py.File(path(scratch), "r") as file:
        assert set(file) == {"0000", "0001", "0002"}
        for group in file.values():
            axes = ["t", "x", "y"][: len(shape) - 1]
            assert set(group) == {"data", "grid"}
            assert set(group["grid"]) == set(axes)
            assert group["data"].shape == shape
            assert group["data"].dtype == np.float32
            np.testing.assert_allclose(group["grid/t"][:], np.linspace(0, t_end, shape[0]), rtol=1e-6)
            width = (edge[1] - edge[0]) / shape[1]
            for axis in axes[1:]:
                centres = np.linspace(edge[0] + width / 2, edge[1] - width / 2, shape[1])
                np.testing.assert_allclose(group["grid/" + axis][:], centres, rtol=1e-5, atol=1e-6)
            assert isinstance(group.attrs["config"], str)
            configs.append(dict(line.strip().split(": ") for line in group.attrs["config"].splitlines() if line.startswith("  ")))
            data.append(group["data"][:].astype(np.float64))
    assert [config["seed"] for config in configs] == ["0", "1", "2"]
    return np.array(data), configs


def test_diffusion_sorption_is_groups_of_one_field(scratch):
    data, configs = check_seed_groups(scratch, "diffsorp1d", (11, 64, 1), (0, 1), 500)
    assert configs[0]["por"] == "0.29"
    assert (data[:, 0].max((1, 2)) == data[:, 0].min((1, 2))).all() and (data[:, 0] < 0.2).all()
    assert (data[:, 1:, 0] > 0.8).all() and (data <= 1).all()


def test_diffusion_reaction_is_groups_of_two_fields(scratch):
    data, configs = check_seed_groups(scratch, "diffreact2d", (6, 32, 32, 2), (-1, 1), 5)
    assert (configs[1]["Du"], configs[1]["Dv"], configs[1]["k"]) == ("0.001", "0.005", "0.005")
    np.testing.assert_allclose(data[:, 0].std((1, 2)), 1.0, atol=0.1)
    # summed over the square diffusion is nothing: the mean of v follows the means of u and v
    u, v = data[..., 0].mean((2, 3)), data[..., 1].mean((2, 3))
    rise = np.trapezoid(u - v, dx=1.0, axis=1) if hasattr(np, "trapezoid") else np.trapz(u - v, dx=1.0, axis=1)
    np.testing.assert_allclose(v[:, -1] - v[:, 0], rise, atol=0.1)


def test_a_radial_dam_is_groups_of_depths(scratch):
    data, configs = check_seed_groups(scratch, "swe2d", (6, 40, 40, 1), (-2.5, 2.5), 1, "-p", "inner_height=3", "-p", "initial=averaged")
    area = (5 / 40) ** 2
    for depth, config in zip(data[..., 0], configs):
        radius = float(config["dam_radius"])
        assert 0.3 <= radius < 0.7
        volume = (depth - 1).sum((1, 2)) * area
        np.testing.assert_allclose(volume[0], 2 * np.pi * radius**2, rtol=0.02)
        np.testing.assert_allclose(volume, volume[0], rtol=1e-5)  # nothing has reached the edge


def test_files_of_compressible_flow_say_what_happens_at_their_boundary(scratch):
    across = "periodic in x, outgoing in y"
    for solver, said, boundary in [("cfd1d_rand", "periodic", "periodic"), ("cfd1d_shock", "trans", "outgoing"),
                                   ("cfd1d_shock -p outgoing=0", "periodic", "periodic"), ("cfd1d_sod", "trans", "outgoing"),
                                   ("cfd2d_rand", "periodic", "periodic"), ("cfd2d_rand -p outgoing=1", "trans", "outgoing"),
                                   ("cfd2d_turb", "periodic", "periodic"), ("cfd2d_kh", "KHI", across),
                                   ("cfd2d_otvortex", "periodic", "periodic"), ("cfd3d_rand", "periodic", "periodic"),
                                   ("cfd3d_turb", "periodic", "periodic")]:
        make(scratch, *solver.split(), "-n", 1, "-r", 16, "--steps", 2, "--force", name="of_any_name.h5")
        with h5py.File(path(scratch, "of_any_name.h5"), "r") as file:
            assert file.attrs["bc"] == said
        shown = ups("data", "inspect", "--json", path(scratch, "of_any_name.h5"))
        facts = json.loads(shown.stdout)[0]
        assert (facts["boundary"], facts["periodic"]) == (boundary, boundary == "periodic")


def test_data_inspect_knows_the_files(scratch):
    listed = json.loads(datagen("--list", "--json").stdout)
    assert len(listed) >= 7
    for solver in listed:
        name = solver["name"]
        steps = ["--steps", 3] if solver["steps"] else []
        make(scratch, name, "-n", 2, "-r", 16, *steps, name=name + ".h5")
        done = ups("data", "inspect", path(scratch, name + ".h5"))
        assert done.returncode == 0, name + done.stderr


# ---- advection ----

def test_rows_are_the_first_row_shifted_by_numpy(scratch):
    # 0.4 · 2 over 40 intervals of 250 cells: 5 cells an interval
    make(scratch, "advection1d", "-n", 200, "-r", 250, "--steps", 41)
    with h5py.File(path(scratch), "r") as file:
        tensor = file["tensor"][:]
    for step in range(41):
        np.testing.assert_allclose(tensor[:, step], np.roll(tensor[:, 0], 5 * step, axis=1), atol=3e-7)


def test_smooth_rows_are_shifted_by_any_fraction_of_a_cell_as_fourier_says(scratch):
    make(scratch, "advection1d", "-n", 50, "-r", 96, "--steps", 17, "-p", "p_window=0", "-p", "p_absolute=0", "-p", "beta=-0.77")
    with h5py.File(path(scratch), "r") as file:
        tensor = file["tensor"][:].astype(np.float64)
    wavenumber = np.fft.rfftfreq(96, 1 / 96)
    first = np.fft.rfft(tensor[:, 0])
    assert np.abs(first[:, 9:]).max() < 1e-4  # no wave above twice k_max = 4
    for step, now in enumerate(np.linspace(0, 2, 17)):
        shifted = np.fft.irfft(first * np.exp(-2j * np.pi * wavenumber * -0.77 * now), 96)
        np.testing.assert_allclose(tensor[:, step], shifted, atol=1e-6)


def test_a_larger_file_begins_with_the_smaller_one(scratch):
    make(scratch, "advection1d", "-n", 3, "-r", 32, "--steps", 5, name="few.h5")
    make(scratch, "advection1d", "-n", 30, "-r", 32, "--steps", 5, name="many.h5")
    with h5py.File(path(scratch, "few.h5")) as few, h5py.File(path(scratch, "many.h5")) as many:
        np.testing.assert_array_equal(few["tensor"][:], many["tensor"][:3])


# ---- parameters of each sample ----

def values_of(scratch, name="x.h5"):
    with h5py.File(path(scratch, name)) as file:
        return {key: file["parameters"][key][:] for key in file["parameters"]}


def inspected(scratch, name="x.h5"):
    shown = ups("data", "inspect", "--json", path(scratch, name))
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)[0]["parameters"]


def test_a_drawn_parameter_is_each_samples_own_in_the_file_and_in_its_solution(scratch):
    make(scratch, "advection1d", "-n", 300, "-r", 64, "--steps", 3, "-p", "beta=0.1:4", "-p", "p_window=0", "-p", "p_absolute=0", "-p", "t_end=0.1")
    (beta,) = values_of(scratch).values()
    assert beta.dtype == np.float64 and beta.min() >= 0.1 and beta.max() <= 4
    assert abs(beta.mean() - 2.05) < 0.25 and abs(beta.std() - 3.9 / np.sqrt(12)) < 0.12
    with h5py.File(path(scratch)) as file:
        assert "beta" not in file.attrs  # one value would be untrue
        assert json.loads(file.attrs["ups_datagen"])["parameters"]["beta"] == "0.1:4"
        tensor = file["tensor"][:].astype(np.float64)
    moved = np.fft.irfft(np.fft.rfft(tensor[:, 0]) * np.exp(-2j * np.pi * np.arange(33) * beta[:, None] * 0.1), 64)
    np.testing.assert_allclose(tensor[:, 2], moved, atol=1e-5)
    found = inspected(scratch)["beta"]
    np.testing.assert_allclose(found, [beta.min(), beta.max()])


def test_a_logarithmic_range_is_even_in_the_logarithm(scratch):
    make(scratch, "burgers1d", "-n", 400, "-r", 16, "--steps", 2, "-p", "nu=log:0.001:0.1")
    logarithm = np.log10(values_of(scratch)["nu"])
    assert logarithm.min() >= -3 and logarithm.max() <= -1
    assert abs(logarithm.mean() + 2) < 0.12 and abs(logarithm.std() - 2 / np.sqrt(12)) < 0.06


def test_each_value_gives_the_sample_that_it_gives_alone(scratch):
    for solver, drawn in [("burgers1d", "nu=0.01:0.1"), ("darcy2d", "beta=1:9"), ("cfd1d_rand", "eta=0.001:0.1"), ("advection1d", "k_max=2:9"),
                          ("ns_incom2d", "nu=0.01:0.1")]:
        steps = [] if solver == "darcy2d" else ["--steps", 3]
        make(scratch, solver, "-n", 3, "-r", 16, *steps, "-p", drawn, "--force")
        (name,), (values,) = zip(*values_of(scratch).items())
        field = {"darcy2d": "tensor", "cfd1d_rand": "Vx", "ns_incom2d": "velocity"}.get(solver, "tensor")
        with h5py.File(path(scratch)) as file:
            together = file[field][:]
        for sample, value in enumerate(values):
            make(scratch, solver, "-n", 3, "-r", 16, *steps, "-p", f"{name}={float(value)!r}", "--force", name="alone.h5")
            with h5py.File(path(scratch, "alone.h5")) as file:
                np.testing.assert_array_equal(file[field][sample], together[sample])


def test_files_of_every_layout_keep_what_was_drawn_where_readers_find_it(scratch):
    for solver, drawn, name in [("burgers1d", "nu=0.01:0.1", "nu"), ("reacdiff1d", "rho=1:5", "rho"), ("darcy2d", "beta=1:9", "beta"),
                                ("cfd2d_rand", "M=0.1:1", "M"), ("ns_incom2d", "nu=0.01:0.1", "nu"), ("diffsorp1d", "por=0.2:0.4", "por"),
                                ("diffreact2d", "Du=0.001:0.002", "Du"), ("swe2d", "gravity=0.5:2", "gravity")]:
        steps = [] if solver == "darcy2d" else ["--steps", 2]
        make(scratch, solver, "-n", 6, "-r", 16, *steps, "-p", drawn, "--force")
        low, high = map(float, drawn.split("=")[1].split(":"))
        found = inspected(scratch)
        least, greatest = found[name]
        assert low <= least < greatest <= high, solver
        assert len({word.lower() for word in found}) == len(found)


def test_names_are_spelt_as_the_solvers_spell_them(scratch):
    """`ups data inspect` and `ups datagen` say the same name of the same thing."""
    for solver in json.loads(datagen("--list", "--json").stdout):
        steps = ["--steps", 2] if solver["steps"] else []
        make(scratch, solver["name"], "-n", 1, "-r", 16, *steps, "--force")
        known = {parameter["name"] for parameter in solver["parameters"]} | {"dam_radius"}
        assert set(inspected(scratch)) <= known, solver["name"]


def test_ranges_that_cannot_be_drawn_are_answered(scratch):
    out = path(scratch)
    for solver, wrong, *parts in [("burgers1d", "nu=0.1:0.01", "begins above its end"), ("burgers1d", "nu=0.1:100", "out of range"),
                                  ("burgers1d", "nu=log:0:1", "logarithm"), ("burgers1d", "nu=log:1", "log:LOW:HIGH"),
                                  ("burgers1d", "nu=1:", "not a number"), ("burgers1d", "nu=1:2:3", "not a number"),
                                  ("burgers1d", "t_end=1:2", "same for a whole file"), ("burgers1d", "k_max=1.5:3", "whole"),
                                  ("burgers1d", "initial=1:2", "pdebench|waves"), ("darcy2d", "medium=sand", "blobs|field"),
                                  ("swe2d", "radius_low=0.8:1", "radius_low = 0.8 exceeds")]:
        assert_refused(scratch, datagen(solver, "-o", out, "-r", "16", "-p", wrong), 2, *parts)


# ---- given fields ----

def test_samples_begin_as_the_given_fields(scratch, tmp_path):
    rng = np.random.default_rng(4)
    line = rng.random((3, 32)).astype(np.float32)
    plane = rng.standard_normal((2, 16, 16, 2)).astype(np.float32)
    gas = {name: 1 + rng.random((2, 16, 16)) for name in ("density", "pressure", "Vx", "Vy")}
    np.save(tmp_path / "line.npy", line)
    np.save(tmp_path / "plane.npy", plane)
    np.savez(tmp_path / "gas.npz", **gas)
    for solver in ("burgers1d", "reacdiff1d", "diffsorp1d", "advection1d"):
        result = make(scratch, solver, "-i", tmp_path / "line.npy", "-r", 32, "--steps", 3, name=solver)
        assert result["samples"] == 3
        with h5py.File(path(scratch, solver)) as file:
            first = np.array([file[f"000{i}/data"][0, :, 0] for i in range(3)]) if solver == "diffsorp1d" else file["tensor"][:, 0]
        np.testing.assert_array_equal(first, line)
    make(scratch, "diffreact2d", "-i", tmp_path / "plane.npy", "-r", 16, "--steps", 2, name="plane")
    with h5py.File(path(scratch, "plane")) as file:
        np.testing.assert_array_equal(file["0001/data"][0], plane[1])
    make(scratch, "cfd2d_rand", "-i", tmp_path / "gas.npz", "-r", 16, "--steps", 2, name="gas")
    with h5py.File(path(scratch, "gas")) as file:
        for name, given in gas.items():
            np.testing.assert_allclose(file[name][:, 0], given, rtol=1e-6)
    np.save(tmp_path / "nu.npy", 1 + rng.random((2, 16, 16)))
    make(scratch, "darcy2d", "-i", tmp_path / "nu.npy", "-r", 16, name="darcy")
    with h5py.File(path(scratch, "darcy")) as file:
        np.testing.assert_allclose(file["nu"][:], np.load(tmp_path / "nu.npy"), rtol=1e-6)


def test_given_waves_are_carried_as_the_formula_says(scratch, tmp_path):
    x = (np.arange(64) + 0.5) / 64
    wave = lambda x: 0.3 + np.sin(2 * np.pi * 3 * x + 1) - 0.5 * np.cos(2 * np.pi * 7 * x)
    for points in (64, 63):  # with and without a wave of two cells
        x = (np.arange(points) + 0.5) / points
        np.save(tmp_path / "wave.npy", wave(x)[None])
        make(scratch, "advection1d", "-i", tmp_path / "wave.npy", "-r", points, "--steps", 6, "-p", "beta=-0.37", "--force")
        with h5py.File(path(scratch)) as file:
            for step in range(6):
                np.testing.assert_allclose(file["tensor"][0, step], wave(x + 0.37 * 2 * step / 5), atol=3e-7)


def test_a_file_of_pdebenchs_layout_gives_its_first_frames(scratch):
    for solver, steps in [("burgers1d", 3), ("diffreact2d", 3), ("swe2d", 3), ("cfd1d_rand", 3), ("darcy2d", 0)]:
        more = ["-r", 16, *(["--steps", steps] if steps else [])]
        make(scratch, solver, "-n", 2, *more, name="drawn.h5")
        make(scratch, solver, "-i", path(scratch, "drawn.h5"), *more, name="given.h5")
        drawn, given = [], []
        for name, values in (("drawn.h5", drawn), ("given.h5", given)):
            with h5py.File(path(scratch, name)) as file:
                file.visititems(lambda key, item: values.append(item[:]) if isinstance(item, h5py.Dataset) else None)
        for a, b in zip(drawn, given, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)  # the given fields have float32's rounding
        os.remove(path(scratch, "drawn.h5"))
        os.remove(path(scratch, "given.h5"))


def test_given_fields_that_do_not_fit_are_answered(scratch, tmp_path):
    out = path(scratch)

    def refused(solver, values, *parts, resolution=16, more=()):
        np.save(tmp_path / "given.npy", values)
        assert_refused(scratch, datagen(solver, "-o", out, "-r", str(resolution), "-i", tmp_path / "given.npy", *more), 1, "given.npy", *parts)

    line = np.ones((3, 16))
    refused("burgers1d", line, "16 points", "32 cells", "--resolution 16", resolution=32)
    refused("burgers1d", line, "3 samples", "7", more=["-n", "7"])
    refused("burgers1d", np.ones((3, 16, 16, 2)), "(sample, x)", "field u")
    refused("diffreact2d", line, "activator, inhibitor", "(sample, x, y, channel)")
    refused("diffreact2d", np.ones((1, 16, 16, 3)), "3 entries", "2 fields")
    refused("burgers1d", np.where(np.arange(16) == 4, np.nan, line), "NaN")
    refused("darcy2d", -np.ones((1, 16, 16)), "nu is -1", "positive")
    refused("swe2d", np.zeros((1, 16, 16)), "h is 0", "positive")
    refused("burgers1d", np.ones((3, 16), dtype=np.complex128))
    assert_refused(scratch, datagen("ns_incom2d", "-o", out, "-i", tmp_path / "given.npy"), 1, "cannot begin from given fields")
    assert_refused(scratch, datagen("burgers1d", "-o", out, "-i", tmp_path / "none.npy"), 1, "none.npy")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "given.npy").read_bytes()[:90])
    assert_refused(scratch, datagen("burgers1d", "-o", out, "-i", tmp_path / "cut.npy"), 1, "cut.npy")
    (tmp_path / "text.h5").write_text("no HDF5")
    assert_refused(scratch, datagen("burgers1d", "-o", out, "-i", tmp_path / "text.h5"), 1, "text.h5")


# ---- failures ----

def assert_refused(scratch, done, code, *parts):
    assert done.returncode == code, done.stderr
    for part in parts:
        assert part in done.stderr
    assert os.listdir(scratch) == []


def test_mistakes_on_the_command_line_are_answered(scratch):
    out = path(scratch)
    assert_refused(scratch, datagen("-o", out), 2, "advection1d")
    assert_refused(scratch, datagen("burger1d", "-o", out), 2, "did you mean 'burgers1d'?")
    assert_refused(scratch, datagen("burgers1d"), 2, "-o FILE")
    assert_refused(scratch, datagen("burgers1d", "-o", out, "--samples", "0"), 2, "--samples")
    assert_refused(scratch, datagen("burgers1d", "-o", out, "-p", "beta=1"), 2, "no parameter 'beta'", "nu")
    assert_refused(scratch, datagen("darcy2d", "-o", out, "--steps", "4"), 2, "steady")
    answer = datagen("darcy2d", "-o", out, "-p", "nu_low=-1", "--json")
    assert_refused(scratch, answer, 2)
    assert json.loads(answer.stdout)["error"]["code"] == "usage"


def test_a_full_disk_is_told_before_the_work(scratch):
    # Python ignores SIGXFSZ; left so, the child gets an error instead of a signal
    done = datagen("advection1d", "-n", 100, "-o", path(scratch), preexec_fn=limit(resource.RLIMIT_FSIZE, 1 << 20), restore_signals=False)
    assert_refused(scratch, done, 1, "no room", path(scratch))


def test_a_link_stays_and_what_it_leads_to_is_made_and_replaced(scratch, tmp_path):
    target = str(tmp_path / "large.h5")
    os.symlink(target, path(scratch))
    for more in ([], ["--force"]):
        make(scratch, "darcy2d", "-n", 1, "-r", 16, *more)
        assert os.readlink(path(scratch)) == target
        assert (os.listdir(scratch), os.listdir(tmp_path)) == (["x.h5"], ["large.h5"])
    os.unlink(target)
    os.symlink(path(scratch), target)
    refused = datagen("darcy2d", "-n", 1, "-r", 16, "-o", path(scratch))
    assert refused.returncode == 1
    assert f"{path(scratch)}: cannot be created: its symbolic links lead round in a circle" in refused.stderr


def start(scratch, samples):
    """A run of its own, under way: it has noted samples beyond those that it found."""
    journal = os.path.join(scratch, ".x.h5.ups-journal")
    noted = os.path.getsize(journal) if os.path.exists(journal) else 0
    run = subprocess.Popen([UPS, "datagen", "burgers1d", "-n", str(samples), "-r", "512", "--steps", "11", "-t", "2", "-o", path(scratch)],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while run.poll() is None and not (os.path.exists(journal) and os.path.getsize(journal) > noted + 1000):
        time.sleep(0.01)
    return run


def kill_a_run(scratch):
    """Of how many samples the run was that could be killed before it was done."""
    for samples in (600, 3000, 12000, 48000):
        run = start(scratch, samples)
        run.kill()
        run.communicate()
        if run.returncode == -signal.SIGKILL and not os.path.exists(path(scratch)):
            return samples
        os.remove(path(scratch))
    pytest.fail("every run was done before it could be killed")


def test_interrupted_work_is_kept_and_says_how_to_go_on(scratch):
    for sent in (signal.SIGINT, signal.SIGTERM):
        run = start(scratch, 100000)
        run.send_signal(sent)
        _, stderr = run.communicate(timeout=TIMEOUT)
        assert run.returncode == 128 + sent, stderr
        assert "of 100000 samples" in stderr
        assert "the same command continues" in stderr
        assert sorted(os.listdir(scratch)) == [".x.h5.ups-journal", ".x.h5.ups-unfinished"]


def test_a_killed_run_goes_on_where_it_was(scratch):
    samples = kill_a_run(scratch)
    assert sorted(os.listdir(scratch)) == [".x.h5.ups-journal", ".x.h5.ups-unfinished"]
    result = make(scratch, "burgers1d", "-n", samples, "-r", 512, "--steps", 11)
    assert result["continued"] > 0
    assert os.listdir(scratch) == ["x.h5"]


def test_what_a_killed_run_left_is_not_taken_for_another_and_restart_discards_it(scratch):
    samples = kill_a_run(scratch)
    other = ["burgers1d", "-n", 2, "-r", 32, "--steps", 3]
    refused = datagen(*other, "-o", path(scratch))
    assert refused.returncode == 1
    assert f"samples is {samples} there and 2 here" in refused.stderr
    make(scratch, *other, "--restart")
    assert os.listdir(scratch) == ["x.h5"]


def test_help_lists_every_solver_and_teaches_the_parameters_of_one():
    text = datagen("--help").stdout
    for solver in json.loads(datagen("--list", "--json").stdout):
        assert solver["name"] in text
        one = datagen(solver["name"], "--help").stdout
        assert solver["equation"].splitlines()[0] in one
        for parameter in solver["parameters"]:
            default = parameter["default"]
            assert f"--param {parameter['name']}={default if 'choices' in parameter else format(default, 'g')}" in one
            assert "choices" not in parameter or "|".join(parameter["choices"]) in one
    assert "length^2/time" in datagen("burgers1d", "--help").stdout
