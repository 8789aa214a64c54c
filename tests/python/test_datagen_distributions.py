"""What `ups datagen` draws by default, held against figures of PDEBench's own generator.

The figures were measured on PDEBench's published scripts (pdebench/data_gen/data_gen_NLE), run as they are but for two words
that keep its current text from running or from normalising (`.loc[` for JAX's `.at[`; `cond is True` on traced values), with
JAX 0.10 on a CPU:
  1D, beginnings        init_multi, 10,000 samples of 256 cells, k_tot=4, init_key=2022
  1D, Burgers           burgers_multi_solution_Hydra.py, epsilon 0.01, 1,000 samples of 256 cells
  1D, reaction          reaction_diffusion_multi_solution_Hydra.py, nu 0.5, rho 1, 1,000 samples of 128 cells
  1D, gas               init_multi_HD and init_multi_HD_shock, 4,000 samples of 256 cells, keys 2022 to 2024
  2D, gas               init_multi_HD_2DRand, 200 samples of 64 x 64 cells
  2D, Darcy's media     its five blobs and its threshold in NumPy, 2,000 of 64 x 64 cells; its script's 200 of 32 x 32 agree
  2D, Darcy's solution  its difference scheme solved at rest (SciPy) in 600 of these media
A tolerance is about four standard deviations of the difference of both estimates."""

import h5py
import numpy as np
import pytest

from commands import must


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributions")

    def make(name, solver, *arguments):
        path = folder / f"{name}.hdf5"
        if not path.exists():
            must("datagen", solver, "-o", path, *arguments)
        with h5py.File(path) as file:
            return {key: file[key][:].astype(np.float64) for key in file if isinstance(file[key], h5py.Dataset)}

    return make


def spectrum(rows):
    """Shares of the energy at wavenumbers 0, 1, …."""
    energy = np.abs(np.fft.rfft(rows, axis=-1)) ** 2
    energy[:, 1:] *= 2
    return energy.mean(0) / energy.mean(0).sum()


def near(found, figure, tolerance):
    assert abs(found - figure) <= tolerance, f"{found:.4f} where PDEBench has {figure} +- {tolerance}"


def rms(values):
    return np.sqrt((values**2).mean())


# ---- lines ----

def first_rows(files):
    return files("advection", "advection1d", "-n", 4000, "-r", 256, "--steps", 2)["tensor"][:, 0]


def test_lines_have_pdebenchs_mean_size_and_roughness(files):
    rows = first_rows(files)
    near(rows.mean(1).std(), 0.599, 0.03)
    near(rms(rows), 0.791, 0.03)
    near(np.abs(rows).max(1).mean(), 1.290, 0.05)
    near(np.abs(np.diff(rows)).sum(1).mean(), 7.78, 0.4)


def test_lines_have_pdebenchs_spectrum(files):
    shares = spectrum(first_rows(files))
    for k, figure, tolerance in [(0, 0.574, 0.03), (1, 0.099, 0.02), (2, 0.102, 0.02), (3, 0.087, 0.02), (4, 0.103, 0.02), (5, 0.002, 0.0015),
                                 (6, 0.016, 0.008), (7, 0.001, 0.0009), (8, 0.014, 0.008)]:
        near(shares[k], figure, tolerance)
    near(shares[9:].sum(), 0.0012, 0.001)


def test_the_papers_lines_are_others_on_request(files):
    rows = files("paper", "advection1d", "-n", 2000, "-r", 256, "--steps", 2, "-p", "initial=waves", "-p", "k_max=8")["tensor"][:, 0]
    assert rows.mean(1).std() < 0.2
    shares = spectrum(rows)
    assert shares[0] < 0.1 and shares[5] > 0.06 and shares[7] > 0.06


def test_burgers_loses_its_energy_as_pdebenchs_does(files):
    u = files("burgers", "burgers1d", "-n", 600, "-r", 256, "--steps", 5)["tensor"]
    energy = (u**2).mean((0, 2))
    variance = ((u - u.mean(2, keepdims=True)) ** 2).mean((0, 2))
    for step, figure in [(1, 0.649), (2, 0.599), (3, 0.584), (4, 0.577)]:  # t = 0.5, 1, 1.5, 2
        near(energy[step] / energy[0], figure, 0.06)
    for step, figure, tolerance in [(1, 0.189, 0.02), (2, 0.0734, 0.01), (4, 0.0229, 0.004)]:
        near(variance[step] / variance[0], figure, tolerance)


def test_reactions_begin_and_grow_as_pdebenchs(files):
    u = files("reaction", "reacdiff1d", "-n", 600, "-r", 128, "--steps", 5)["tensor"]
    for step, figure in [(0, 0.500), (1, 0.560), (2, 0.619), (4, 0.727)]:  # t = 0, 0.25, 0.5, 1
        near(u[:, step].mean(), figure, 0.015)
    for step, figure, tolerance in [(0, 0.0691, 0.012), (2, 0.0658, 0.012), (4, 0.0570, 0.010)]:
        near(u[:, step].mean(1).std(), figure, tolerance)
    near(u[:, 0].std(1).mean(), 0.310, 0.01)


# ---- gas ----

def test_lines_of_gas_are_pdebenchs(files):
    gas = files("gas", "cfd1d_rand", "-n", 4000, "-r", 256, "--steps", 2, "-p", "t_end=1e-6")
    for name, mean, deviation, inside in [("density", 5.86, 2.95, 1.116), ("pressure", 58.2, 29.8, 11.17)]:
        rows = gas[name][:, 0]
        near(rows.mean(), mean, 0.05 * mean)
        near(rows.mean(1).std(), deviation, 0.06 * deviation)
        near(rows.std(1).mean(), inside, 0.08 * inside)
    speed = gas["Vx"][:, 0]
    near(rms(speed), 0.548, 0.04)
    near(speed.mean(1).std(), 0.350, 0.03)
    near(rms(speed[:, :128]), 0.494, 0.04)  # at rest outside the window, which is in the right half


def test_jumps_of_gas_are_pdebenchs(files):
    gas = files("jumps", "cfd1d_shock", "-n", 2000, "-r", 256, "--steps", 2, "-p", "t_end=1e-6")
    density, speed = gas["density"][:, 0], gas["Vx"][:, 0]
    near(speed.mean(), 0.991, 0.03)
    near(speed.mean(1).std(), 0.213, 0.02)
    near(density.mean(), 3.50, 0.2)
    place = (density != density[:, :1]).argmax(1)
    assert np.corrcoef(place, np.log(density[:, -1]))[0, 1] > 0.999


def test_waves_of_gas_in_2d_are_pdebenchs(files):
    gas = files("waves", "cfd2d_rand", "-n", 300, "-r", 64, "--steps", 2, "-p", "t_end=1e-6")
    density, pressure = gas["density"][:, 0], gas["pressure"][:, 0]
    speed = np.hypot(gas["Vx"][:, 0], gas["Vy"][:, 0])
    near(density.mean(), 4.97, 1.0)
    near(density.mean((1, 2)).std(), 2.84, 0.4)
    near((density.std((1, 2)) / density.mean((1, 2))).mean(), 0.0937, 0.02)
    near((pressure.std((1, 2)) / pressure.mean((1, 2))).mean(), 0.0993, 0.02)
    near((speed.mean((1, 2)) / np.sqrt(5 / 3 * pressure.mean((1, 2)) / density.mean((1, 2)))).mean(), 0.0649, 0.013)
    near((speed < 1e-6 * speed.max((1, 2), keepdims=True)).mean(), 0.297, 0.12)


# ---- Darcy ----

def interface(nu):
    high = nu > 0.5
    faces = (high[:, 1:] != high[:, :-1]).sum((1, 2)) + (high[:, :, 1:] != high[:, :, :-1]).sum((1, 2))
    return faces.mean() / nu.shape[-1]


def test_darcys_media_have_pdebenchs_share_and_interface(files):
    nu = files("darcy", "darcy2d", "-n", 1500, "-r", 64)["nu"]
    share = (nu > 0.5).mean((1, 2))
    near(share.mean(), 0.491, 0.03)
    near(share.std(), 0.209, 0.02)
    near(interface(nu), 2.21, 0.08)
    near(((share < 0.001) | (share > 0.999)).mean(), 0.0075, 0.0065)


def test_darcys_solutions_have_pdebenchs_size(files):
    u = files("darcy", "darcy2d", "-n", 1500, "-r", 64)["tensor"][:, 0]
    near(u.mean(), 0.155, 0.016)
    near(u.mean((1, 2)).std(), 0.0749, 0.012)
    near(u.max((1, 2)).mean(), 0.309, 0.03)


def test_darcys_scheme_is_pdebenchs_by_elimination(files):
    """Arithmetic means at faces, and 0 a cell outside: solved anew by NumPy."""
    size = 16
    darcy = files("small", "darcy2d", "-n", 5, "-r", size, "-p", "beta=3")
    for nu, u in zip(darcy["nu"], darcy["tensor"][:, 0]):
        padded = np.pad(nu, 1, mode="edge")
        matrix = np.zeros((size, size, size, size))
        for x in range(size):
            for y in range(size):
                for dx, dy in [(1, 0), (-1, 0), (0, 1), (0, -1)]:
                    face = 0.5 * (nu[x, y] + padded[x + 1 + dx, y + 1 + dy])
                    matrix[x, y, x, y] += face
                    if 0 <= x + dx < size and 0 <= y + dy < size:
                        matrix[x, y, x + dx, y + dy] -= face
        at_rest = np.linalg.solve(matrix.reshape(size**2, size**2), np.full(size**2, 3 / size**2))
        np.testing.assert_allclose(u.ravel(), at_rest, rtol=1e-5)


def test_the_other_medium_and_scheme_are_there_on_request(files):
    field = files("field", "darcy2d", "-n", 300, "-r", 64, "-p", "medium=field", "-p", "scheme=conservative")
    assert interface(field["nu"]) > 3.0
    near(field["tensor"].mean(), 0.11, 0.02)


# ---- what the others draw: distributions that PDEBench's scripts name outright ----

def test_noise_sorption_and_dams_are_drawn_as_pdebench_draws_them(tmp_path):
    must("datagen", "diffreact2d", "-o", tmp_path / "noise.h5", "-n", 20, "-r", 64, "--steps", 2)
    must("datagen", "diffsorp1d", "-o", tmp_path / "sorption.h5", "-n", 400, "-r", 8, "--steps", 2)
    must("datagen", "swe2d", "-o", tmp_path / "dam.h5", "-n", 200, "-r", 64, "--steps", 2, "-p", "t_end=1e-6")
    with h5py.File(tmp_path / "noise.h5") as file:
        noise = np.array([group["data"][0] for group in file.values()])
    near(noise.mean(), 0, 0.01)
    near(noise.std(), 1, 0.01)
    near((noise**4).mean(), 3, 0.1)
    near((noise[:, 1:] * noise[:, :-1]).mean(), 0, 0.02)
    with h5py.File(tmp_path / "sorption.h5") as file:
        start = np.array([group["data"][0, :, 0] for group in file.values()])
    assert (start == start[:, :1]).all() and start.min() >= 0 and start.max() < 0.2
    near(start.mean(), 0.1, 0.012)
    near(start[:, 0].std(), 0.2 / np.sqrt(12), 0.008)
    with h5py.File(tmp_path / "dam.h5") as file:
        depth = np.array([group["data"][0, :, :, 0] for group in file.values()])
    assert set(np.unique(depth)) == {1.0, 2.0}  # cells are within the dam or not
    radius = np.sqrt((depth > 1.5).mean((1, 2)) * 25 / np.pi)
    assert radius.min() > 0.25 and radius.max() < 0.75
    near(radius.mean(), 0.5, 0.04)
