"""Every layout, written by h5py as PDEBench's and The Well's own writers do, at odd shapes and in odd storage: `ups data dump`
equals the array that h5py and NumPy put together, bit for bit, and `ups data inspect` names what is in the file."""

import itertools
import json
import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from commands import dump, inspect, must, one_sentence, same, ups
from hdf5_files import create, made, native, smooth, write_darcy, write_seeds, write_tensor


# How a dataset is stored, as hdf5_files.create has it.
FORMS = {
    "as written": {},
    "float64": {"_dtype": "<f8"},
    "big-endian": {"_dtype": ">f4"},
    "big-endian float64, contiguous": {"_dtype": ">f8"},
    "odd chunks": {"chunks": "odd"},
    "odd chunks, big-endian float64, gzip": {"_dtype": ">f8", "chunks": "odd", "compression": "gzip"},
    "odd chunks, shuffle + LZF": {"chunks": "odd", "shuffle": True, "compression": "lzf"},
    "odd chunks, shuffle + gzip + Fletcher-32": {"chunks": "odd", "shuffle": True, "compression": "gzip", "fletcher32": True},
    "chunks of many samples, LZF": {"chunks": "whole", "compression": "lzf"},
    "scale-offset, through the library": {"chunks": "odd", "scaleoffset": 3},
}


# ---- PDEBench -------------------------------------------------------------------------------------------------------

FIELDS = ["density", "pressure", "Vx", "Vy", "Vz"]


def write_compressible(f, shape, form=None, attributes=True):
    """As data_gen_NLE/Data_Merge.py does; shape (sample, t, x[, y[, z]])."""
    dims = len(shape) - 2
    for i, name in enumerate(FIELDS[:2 + dims]):
        create(f, name, smooth(shape, i), form or {})
    f["t-coordinate"] = np.linspace(0, 1, shape[1] + 1, dtype="f4")
    for axis, points in zip("xyz", shape[2:]):
        f[f"{axis}-coordinate"] = np.linspace(-1, 1, points, dtype="f4")
    if attributes:
        f.attrs["eta"] = 0.01
        f.attrs["zeta"] = 0.02
        if dims > 1:
            f.attrs["M"] = 0.5


def expect_compressible(f, sample):
    names = [name for name in FIELDS if name in f]
    return np.stack([native(f[name][sample]) for name in names], axis=1)


NS_CONFIG = """sim_name: ns_sim_2d
NU: 0.01
scale: 0.4
seed: 3
n_steps: 1000
DT: 0.00005
frame_int: 100
n_batch: 2
backend: jax
grid_size: [256, 256]
dataverse: {dataset_id: none, channel: 3}
"""


def write_incompressible(f, shape, form=None, force=True):
    """As data_gen/src/data_io.py does: a chunk a frame, shuffle + LZF; shape (sample, t, x, y)."""
    samples, times, *grid = shape
    spec = {"velocity": (samples, times, *grid, 2), "particles": (samples, times, *grid, 1), "t": (samples, times)}
    if force:
        spec["force"] = (samples, *grid, 2)
    for i, (name, full) in enumerate(spec.items()):
        values = smooth(full, 10 + i) if name != "t" else (np.arange(times) * 0.5 + np.arange(samples)[:, None]).astype("f4")
        usual = {"chunks": (1, 1, *full[2:]), "compression": "lzf", "shuffle": True}
        create(f, name, values, form if form and name != "t" else usual)
    f.attrs["config"] = NS_CONFIG
    f.attrs["latestIndex"] = times - 1


def expect_incompressible(f, sample):
    parts = [native(f["velocity"][sample]), native(f["particles"][sample])]
    if "force" in f:
        parts.append(np.broadcast_to(native(f["force"][sample]), parts[0].shape))
    return np.ascontiguousarray(np.concatenate(parts, axis=-1))


DAM_CONFIG = """work_dir: here
name: 2d_rdb
sim: {T_end: 1.0, n_time_steps: 100, xdim: 128, ydim: 128, gravity: 1.0, dam_radius: 0.4, inner_height: 2.0,
      x_left: -2.5, x_right: 2.5, y_bottom: -2.5, y_top: 2.5, seed: 1}
plot: {t_idx: 1.0, dim: 2, channel_idx: 0}
"""
SORPTION_CONFIG = """sim: {D: 5E-4, por: 0.29, rho_s: 2880, k_f: 3.5E-4, n_f: 0.874, sol: 1.0, t: 500, tdim: 501,
      x_left: 0.0, x_right: 1.0, xdim: 1024, n: 1, seed: 0}
plot: {t_idx: 1.0, dim: 1, channel_idx: 0}
"""


# ---- The Well -------------------------------------------------------------------------------------------------------

def write_well(f, trajectories, times, grid, form=None, *, by_sample=False, periodic=(True, True, True), names="xyz"):
    """As the_well/utils/dummy_data.py does, with every kind of field that docs/data_format.md knows."""
    dims = len(grid)
    axes = list(names)[:dims]
    f.attrs["dataset_name"] = "made"
    f.attrs["grid_type"] = "cartesian"
    f.attrs["n_spatial_dims"] = dims
    f.attrs["n_trajectories"] = trajectories
    f.attrs["simulation_parameters"] = ["Rayleigh", "Prandtl"]
    f.attrs["Rayleigh"] = 1e6
    f.attrs["Prandtl"] = 0.5
    dimensions = f.create_group("dimensions")
    dimensions.attrs["spatial_dims"] = axes
    time = np.linspace(0, 3, times, dtype="f4")
    dimensions["time"] = time + np.arange(trajectories, dtype="f4")[:, None] if by_sample else time
    dimensions["time"].attrs["sample_varying"] = by_sample
    for axis, points in zip(axes, grid):
        dimensions[axis] = np.linspace(0, 1, points, dtype="f4")
        dimensions[axis].attrs["sample_varying"] = False
    conditions = f.create_group("boundary_conditions")
    for axis, wraps, points in zip(axes, periodic, grid):
        kind = "PERIODIC" if wraps else "WALL"
        condition = conditions.create_group(f"{axis}_{kind.lower()}")
        condition.attrs["associated_dims"] = [axis]
        condition.attrs["associated_fields"] = []
        condition.attrs["bc_type"] = kind
        condition.attrs["sample_varying"] = False
        condition.attrs["time_varying"] = False
        condition["mask"] = np.isin(np.arange(points), (0, points - 1))
    scalars = f.create_group("scalars")
    scalars.attrs["field_names"] = ["Prandtl", "forcing", "inlet"] if by_sample else ["Prandtl", "inlet"]
    scalars["Prandtl"] = np.array(0.5)
    scalars["inlet"] = np.random.default_rng(0).random(times)
    scalars["inlet"].attrs["time_varying"] = True
    if by_sample:
        scalars["forcing"] = np.arange(trajectories, dtype="f4") + 0.25
    for name in scalars:
        scalars[name].attrs["sample_varying"] = name == "forcing"
        if name != "inlet":
            scalars[name].attrs["time_varying"] = False
    written = {0: {"pressure": (True, True, [True] * dims), "height": (True, False, [True] * dims),
                   "mask": (False, False, [True] * dims), "profile": (False, True, [False] * (dims - 1) + [True]),
                   "strip": (True, True, [True] + [False] * (dims - 1))},
               1: {"velocity": (True, True, [True] * dims), "gravity": (False, False, [True] * dims)},
               2: {"stress": (True, True, [True] * dims)}}
    for order, fields in written.items():
        group = f.create_group(f"t{order}_fields")
        group.attrs["field_names"] = list(fields)
        for i, (name, (samples, frames, along)) in enumerate(fields.items()):
            shape = (trajectories,) * samples + (times,) * frames + tuple(n for n, v in zip(grid, along) if v) + (dims,) * order
            create(group, name, smooth(shape, 40 + 10 * order + i), form or {})
            dataset = group[name]
            dataset.attrs["dim_varying"] = along
            dataset.attrs["sample_varying"] = samples
            dataset.attrs["time_varying"] = frames


def expect_well(f, sample):
    """(t, channel, grid…), by NumPy's own broadcasting."""
    axes = list(f["dimensions"].attrs["spatial_dims"])
    grid = tuple(f["dimensions"][axis].shape[-1] for axis in axes)
    times = f["dimensions/time"].shape[-1]
    channels = []
    for order in range(3):
        for name in f[f"t{order}_fields"].attrs["field_names"]:
            dataset = f[f"t{order}_fields"][name]
            values = native(dataset[sample] if dataset.attrs["sample_varying"] else dataset[...])
            if not dataset.attrs["time_varying"]:
                values = values[None]
            for axis, varies in enumerate(dataset.attrs["dim_varying"]):
                if not varies:
                    values = np.expand_dims(values, 1 + axis)
            values = np.broadcast_to(values, (times, *grid) + (len(axes),) * order)
            values = values.reshape(times, *grid, len(axes) ** order)
            channels += [values[..., c] for c in range(values.shape[-1])]
    return np.ascontiguousarray(np.stack(channels, axis=1))


# ---- bit for bit ----------------------------------------------------------------------------------------------------

LAYOUTS = {
    "compressible 1D": (lambda f, form: write_compressible(f, (3, 7, 33), form), expect_compressible, 3),
    "compressible 2D": (lambda f, form: write_compressible(f, (3, 5, 13, 18), form), expect_compressible, 3),
    "compressible 3D": (lambda f, form: write_compressible(f, (2, 3, 6, 9, 5), form), expect_compressible, 2),
    "incompressible": (lambda f, form: write_incompressible(f, (3, 6, 11, 14), form), expect_incompressible, 3),
    "incompressible without force": (lambda f, form: write_incompressible(f, (2, 3, 8, 5), form, force=False), expect_incompressible, 2),
    "seed groups 3D": (lambda f, form: write_seeds(f, smooth((2, 3, 5, 7, 4, 3), 20), form or {}, "{}"), lambda f, i: native(f[f"{i:04d}/data"][...]), 2),
    "The Well 1D": (lambda f, form: write_well(f, 2, 5, (17,), form), expect_well, 2),
    "The Well 2D": (lambda f, form: write_well(f, 3, 4, (9, 6), form), expect_well, 3),
    "The Well 3D, varying by sample": (lambda f, form: write_well(f, 2, 3, (5, 4, 6), form, by_sample=True), expect_well, 2),
}


# How arrays are put together does not depend on how they are stored: not every product is tried.
ALL_FORMS = ("compressible 2D", "incompressible", "The Well 2D")
FEW_FORMS = ("as written", "odd chunks, big-endian float64, gzip", "odd chunks, shuffle + LZF", "scale-offset, through the library")


@pytest.mark.parametrize("layout, name", [(layout, name) for layout, name in itertools.product(LAYOUTS, FORMS)
                                          if name in FEW_FORMS or layout in ALL_FORMS])
def test_every_layout_equals_h5py_bit_for_bit(scratch, layout, name):
    (write_file, expect, samples), form = LAYOUTS[layout], FORMS[name]
    path = made(scratch, "layout.h5", lambda f: write_file(f, form))
    with h5py.File(path) as f:
        expected = [expect(f, i) for i in range(samples)]
    for i in range(samples) if not form else [samples - 1]:
        assert same(dump(path, i), expected[i])
    if not form:
        assert same(dump(path, 0, way="library"), expected[0])


# ---- what inspect says ----------------------------------------------------------------------------------------------
one = lambda **values: {name: [value, value] for name, value in values.items()}
bare = lambda shape: lambda f: write_compressible(f, shape, attributes=False)
said = lambda bc: lambda f: (write_compressible(f, (2, 3, 8, 6), attributes=False), f.attrs.__setitem__("bc", bc))
wraps = lambda f: (write_incompressible(f, (1, 3, 8, 6)), f.attrs.__setitem__("config", "NU: 0.5\nvelocity_extrapolation: PERIODIC\n"))


@pytest.mark.parametrize("name, write_file, parameters, boundary", [
    ("said_trans_periodic.hdf5", said("trans"), {}, "outgoing"),
    ("said_periodic.hdf5", said("periodic"), {}, "periodic"),
    ("said_KHI.hdf5", said("KHI"), {}, "periodic in x, outgoing in y"),
    ("said_wall.hdf5", said("wall"), {}, "wall"),
    ("ns_periodic.h5", wraps, one(nu=0.5), "periodic"),
    ("1D_CFD_Rand_Eta0.1_Zeta0.1_periodic_Train.hdf5", bare((2, 3, 8)), one(eta=0.1, zeta=0.1), "periodic"),
    ("1D_CFD_Rand_Eta1.e-8_Zeta1.e-8_trans_Train.hdf5", bare((2, 3, 8)), one(eta=1e-8, zeta=1e-8), "outgoing"),
    ("1D_CFD_Shock_Eta1.e-8_Zeta1.e-8_trans_Train.hdf5", bare((2, 3, 8)), one(eta=1e-8, zeta=1e-8), "outgoing"),
    ("Sod3.hdf5", bare((1, 3, 8)), {}, "outgoing"),
    ("2D_CFD_Rand_M0.1_Eta0.01_Zeta0.01_periodic_128_Train.hdf5", bare((2, 3, 8, 6)), one(M=0.1, eta=0.01, zeta=0.01), "periodic"),
    ("2D_CFD_Turb_M1.0_Eta1e-08_Zeta1e-08_periodic_512_Train.hdf5", bare((2, 3, 8, 6)), one(M=1.0, eta=1e-8, zeta=1e-8), "periodic"),
    ("2D_shock.hdf5", bare((1, 3, 8, 6)), {}, "outgoing"),
    ("KH_M01_dk10_Re1e3.hdf5", bare((1, 3, 8, 6)), one(M=0.1, dk=10, Re=1000), "periodic in x, outgoing in y"),
    ("KH_M1_dk1_Re1e3.hdf5", bare((1, 3, 8, 6)), one(M=1, dk=1, Re=1000), "periodic in x, outgoing in y"),
    ("OTVortex.hdf5", bare((1, 3, 8, 6)), {}, "periodic"),
    ("3D_CFD_Turb_M1.0_Eta1e-08_Zeta1e-08_periodic_Train.hdf5", bare((1, 2, 4, 5, 6)), one(M=1.0, eta=1e-8, zeta=1e-8), "periodic"),
    ("mine.hdf5", bare((1, 3, 8)), {}, "not said"),
    ("2D_CFD_Rand_M0.1_Eta0.3_Zeta0.4_periodic_128_Train.hdf5", lambda f: write_compressible(f, (2, 3, 8, 6)),
     one(M=0.5, eta=0.01, zeta=0.02), "periodic"),
    ("ReacDiff_Nu0.5_Rho1.0.hdf5", lambda f: write_tensor(f, smooth((2, 3, 8), 30)), one(nu=0.5, rho=1.0), "periodic"),
    ("ReacDiff_react_Nu10.0_Rho5.0.hdf5", lambda f: write_tensor(f, smooth((2, 3, 8), 30)), one(nu=10.0, rho=5.0), "periodic"),
    ("1D_Advection_Sols_beta0.4.hdf5", lambda f: write_tensor(f, smooth((2, 3, 8), 30)), one(beta=0.4), "periodic"),
    ("1D_Burgers_Sols_Nu0.001.hdf5", lambda f: write_tensor(f, smooth((2, 3, 8), 30)), one(nu=0.001), "periodic"),
    ("2D_DarcyFlow_beta100.0_Train.hdf5", lambda f: write_darcy(f, smooth((2, 8, 8), 31)), one(beta=100.0), "not periodic: u is zero there")])
def test_parameters_and_boundary_come_from_attributes_and_from_pdebenchs_file_names(scratch, name, write_file, parameters, boundary):
    facts = inspect(made(scratch, name, write_file))
    assert (facts["parameters"], facts["boundary"], facts["periodic"]) == (parameters, boundary, boundary == "periodic")


@pytest.mark.parametrize("name, write_file, expected", [
    ("2D_CFD_periodic.hdf5", lambda f: write_compressible(f, (3, 5, 13, 18)), dict(layout="pdebench.compressible", samples=3,
     fields=["density", "pressure", "Vx", "Vy"], grid=[13, 18], time={"frames": 5, "range": [0.0, 0.800000011920929]},
     parameters={"M": [0.5, 0.5], "eta": [0.01, 0.01], "zeta": [0.02, 0.02]}, boundary="periodic")),
    ("ns_incom_inhom_2d_512-0.h5", lambda f: write_incompressible(f, (2, 6, 11, 14)), dict(layout="pdebench.incompressible",
     samples=2, fields=["Vx", "Vy", "particles", "force_x", "force_y"], grid=[11, 14], time={"frames": 6, "range": [0.0, 2.5]},
     parameters={"nu": [0.01, 0.01], "scale": [0.4, 0.4]}, boundary="not periodic: velocity is zero there")),
    ("2D_rdb_NA_NA.h5", lambda f: write_seeds(f, smooth((2, 5, 15, 22, 1), 20), config=DAM_CONFIG), dict(layout="pdebench.seedgroup", samples=2,
     fields=["h"], grid=[15, 22], time={"frames": 5, "range": [0.0, 5.0]}, boundary="not periodic",
     parameters={"gravity": [1.0, 1.0], "dam_radius": [0.4, 0.4], "inner_height": [2.0, 2.0]})),
    ("1D_diff-sorp_NA_NA.h5", lambda f: write_seeds(f, smooth((2, 11, 37, 1), 20), config=SORPTION_CONFIG), dict(
     layout="pdebench.seedgroup", samples=2, fields=["u"], grid=[37], time={"frames": 11, "range": [0.0, 5.0]},
     parameters={"D": [5e-4, 5e-4], "por": [0.29, 0.29], "rho_s": [2880, 2880], "k_f": [3.5e-4, 3.5e-4],
                 "n_f": [0.874, 0.874], "sol": [1.0, 1.0]}, boundary="not periodic")),
    ("well.hdf5", lambda f: write_well(f, 3, 4, (9, 6), by_sample=True, periodic=(True, False)), dict(layout="the_well", samples=3,
     fields=["pressure", "height", "mask", "profile", "strip", "velocity_x", "velocity_y", "gravity_x", "gravity_y",
             "stress_xx", "stress_xy", "stress_yx", "stress_yy"],
     grid=[9, 6], time={"frames": 4, "range": [0.0, 3.0]},
     parameters={"forcing": [0.25, 2.25], "Prandtl": [0.5, 0.5], "Rayleigh": [1e6, 1e6]},
     boundary="periodic in x, wall in y", left_out="scalars/inlet (changes in time)")),
    ("well_periodic.hdf5", lambda f: write_well(f, 2, 4, (9,)), dict(layout="the_well", samples=2,
     fields=["pressure", "height", "mask", "profile", "strip", "velocity_x", "gravity_x", "stress_xx"],
     grid=[9], time={"frames": 4, "range": [0.0, 3.0]}, parameters={"Prandtl": [0.5, 0.5], "Rayleigh": [1e6, 1e6]},
     boundary="periodic", left_out="scalars/inlet (changes in time)"))])
def test_inspect_names_layout_fields_grid_time_parameters_and_boundary(scratch, name, write_file, expected):
    path = made(scratch, name, write_file)
    facts = inspect(path)
    found = {key: facts.get(key) for key in [*expected, "left_out"]}
    assert {**found, "grid": [axis["points"] for axis in facts["grid"]]} == {"left_out": None, **expected}
    text = ups("data", "inspect", path).stdout
    for word in (expected["layout"], ", ".join(expected["fields"]), *(f"{n} points" for n in expected["grid"]),
                 f"{expected['time']['frames']} frames", *expected["parameters"], expected["boundary"], "stored"):
        assert word in text


def test_axes_and_components_are_called_what_the_file_calls_them(scratch):
    facts = inspect(made(scratch, "sphere.hdf5", lambda f: write_well(f, 2, 3, (5, 4), names=["theta", "phi"], periodic=(False, True))))
    assert ([g["axis"] for g in facts["grid"]] == ["theta", "phi"] and "velocity_phi" in facts["fields"] and "stress_thetaphi" in facts["fields"]
            and facts["boundary"] == "wall in theta, periodic in phi")


# ---- attributes of every kind -----------------------------------------------------------------------------------------

def nested(depth):
    dtype = np.dtype("f4")
    for _ in range(depth):
        dtype = np.dtype([("part", dtype)])
    return np.zeros(1, dtype)


def add_attributes(o):
    """What h5py can write, beside what UPS looks for."""
    o.attrs["flag"] = True
    o.attrs["flags"] = np.array([True, False])
    o.attrs["record"] = np.zeros(3, dtype=[("a", "i4"), ("s", "S5"), ("grid", "f4", (2, 3)), ("within", [("q", ">i2"), ("z", "?")])])
    o.attrs["deep"] = nested(20)
    o.attrs["deeper"] = nested(300)
    o.attrs["complex"] = 1 + 2j
    o.attrs["names"] = ["a", "", "ccc"]
    o.attrs["empty"] = h5py.Empty("S10")
    o.attrs["nothing"] = np.zeros((0, 3))
    o.attrs["raw"] = np.void(b"abcdefghijk")
    o.attrs["root"] = o.file.ref
    o.attrs.create("colour", 2, dtype=h5py.enum_dtype({"RED": 1, "GREENISH": 2}, "i4"))
    o.attrs.create("ragged", np.array([np.arange(3), np.arange(2)], dtype=object), dtype=h5py.vlen_dtype("i4"))
    for i in range(20):  # beyond 8, newer formats keep attributes elsewhere
        o.attrs[f"list {i}"] = np.full(3, i)


def low_level_file(path, sizes, libver):
    """Addresses and lengths of other widths than 8 bytes."""
    bounds = {"earliest": (h5py.h5f.LIBVER_EARLIEST, h5py.h5f.LIBVER_LATEST), "v110": (h5py.h5f.LIBVER_V110,) * 2}[libver]
    creation, access = h5py.h5p.create(h5py.h5p.FILE_CREATE), h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    creation.set_sizes(*sizes)
    access.set_libver_bounds(*bounds)
    return h5py.File(h5py.h5f.create(path.encode(), h5py.h5f.ACC_TRUNC, creation, access))


def test_whatever_else_a_valid_file_says_about_itself_its_data_are_read(scratch):
    """Whatever else a valid file says about itself, its data are read; and what UPS looks for is found, or missed aloud."""
    path = os.path.join(scratch, "attributes.hdf5")

    def check(text, may_be_later=False):
        with h5py.File(path) as f:
            expected = expect_compressible(f, 1)
        done = ups("data", "inspect", "--json", path)
        facts = json.loads(done.stdout)[0] if done.returncode == 0 else {}
        found = dump(path, 1)
        told = "attributes.hdf5" in done.stderr and "left out" in done.stderr and "a later HDF5 wrote it" in done.stderr
        knows = facts.get("boundary") == "outgoing" and facts.get("parameters") == {"M": [0.5] * 2, "eta": [0.01] * 2, "zeta": [0.02] * 2}
        assert same(found, expected) and (knows and not done.stderr or may_be_later and told), text

    def write_file(f, add=None):
        write_compressible(f, (2, 3, 8, 6))
        f.attrs["bc"] = "trans"
        for o in (f, f["density"], f["x-coordinate"]) if add else ():
            add(o)

    for libver in ("earliest", "v108", "v110", "v112", "v114", "latest"):
        for block in (0, 512):
            try:
                f = h5py.File(path, "w", libver=(libver, "latest" if libver in ("earliest", "latest") else libver), userblock_size=block)
            except (KeyError, ValueError):  # a format that this h5py does not know
                continue
            with f:
                write_file(f, add_attributes)
            check(f"attributes of every kind, file format {libver}, user block of {block}", may_be_later=libver > "v110" or libver == "latest")
    for sizes, libver in itertools.product([(4, 4), (8, 4), (4, 8)], ["earliest", "v110"]):
        with low_level_file(path, sizes, libver) as f:
            write_file(f, add_attributes)
        check(f"attributes of every kind, addresses of {sizes[0]} bytes and lengths of {sizes[1]}, file format {libver}")
    with h5py.File(path, "w") as f:
        write_file(f)
        for i in range(300):  # each in a part of the header of its own
            f.attrs[f"note {i}"] = f"text {i}"
            f.flush()
    check("300 attributes added one by one")
    with h5py.File(path, "w", libver="v110") as f:
        write_file(f)
        f.attrs["long"] = "x" * (17 << 20)
    done = ups("data", "inspect", path)
    assert done.returncode == 0 and "'long'" in done.stderr and "boundary   outgoing" in done.stdout, "a text of 17 MiB is left out, and said to be"


def test_the_well_is_read_in_every_file_format_and_behind_links(scratch):
    """The Well's truth values are enumerations, which newer formats write in newer ways."""
    path, links = os.path.join(scratch, "well_format.hdf5"), os.path.join(scratch, "well_links.hdf5")
    for libver in ("v108", "v110", "latest"):
        with h5py.File(path, "w", libver=libver) as f:
            write_well(f, 2, 4, (9, 6), by_sample=True)
        with h5py.File(path) as f:
            expected = expect_well(f, 1)
        found = dump(path, 1)
        later = libver == "latest" and isinstance(found, str) and "a later HDF5 wrote it" in found and "well_format.hdf5" in found
        assert same(found, expected) or later, f"The Well, file format {libver}: equals h5py, or the sentence says what to do"
    with h5py.File(path, "w") as f, h5py.File(links, "w") as g:
        write_well(f, 2, 4, (9, 6), by_sample=True, periodic=(True, False))
        g.attrs.update(f.attrs)
        for name in f:
            g[name] = f[name] if isinstance(f[name], h5py.Dataset) else h5py.ExternalLink(path, name)
    with h5py.File(path) as f:
        expected = expect_well(f, 1)
    facts, found = inspect(links), dump(links, 1)
    assert isinstance(facts, dict) and facts["boundary"] == "periodic in x, wall in y" and facts["fields"][0] == "pressure", \
        "The Well behind external links: texts are those of the other file"
    assert same(found, expected), "The Well behind external links: fields are those of the other file"


def test_several_files_are_one_task_where_they_fit_together(scratch):
    names = []
    for nu in (0.01, 0.1, 1.0):
        names.append(made(scratch, f"1D_Burgers_Task_Nu{nu}.hdf5", lambda f: write_tensor(f, smooth((2, 3, 8), 30))))
    facts = inspect(os.path.join(scratch, "1D_Burgers_Task_Nu*.hdf5"), together=True)
    assert isinstance(facts, dict) and facts["samples"] == 6 and facts["parameters"] == {"nu": [0.01, 1.0]} and len(facts["files"]) == 3, \
        "three files are one task whose parameter ranges over the files"
    attributed = made(scratch, "attributed.hdf5", lambda f: (write_tensor(f, smooth((2, 3, 8), 30)), f.attrs.__setitem__("Nu", 7.0)))
    facts = inspect(names[0], attributed, together=True)
    assert isinstance(facts, dict) and facts["parameters"] == {"nu": [0.01, 7.0]}, "a parameter of another file's spelling is the same one"
    finer = made(scratch, "finer_Nu2.hdf5", lambda f: write_tensor(f, smooth((2, 3, 16), 30)))
    sentence = inspect(names[0], names[1], names[0], together=True)
    assert isinstance(sentence, str) and "Nu0.01.hdf5 is named twice" in sentence, "a file named twice is refused"
    sentence = inspect(names[0], finer, together=True)
    assert isinstance(sentence, str) and "finer_Nu2.hdf5 has grid (16)" in sentence and "Nu0.01.hdf5 has grid (8)" in sentence, \
        "files of different grids are refused, with both grids"
    flow = made(scratch, "flow1.hdf5", lambda f: write_compressible(f, (2, 3, 8)))
    sentence = inspect(names[0], flow, together=True)
    assert isinstance(sentence, str) and "one layout" in sentence, "files of different layouts are refused"
    plane = made(scratch, "flow2.hdf5", lambda f: write_compressible(f, (2, 3, 8, 8)))
    sentence = inspect(flow, plane, together=True)
    assert isinstance(sentence, str) and "4 channels (density, pressure, Vx, Vy)" in sentence and "3 (density, pressure, Vx)" in sentence, \
        "files of different channels are refused, with both lists"


def test_files_whose_samples_begin_alike_are_warned_of(scratch):
    alike = [made(scratch, f"alike_Nu{nu}.hdf5", lambda f: write_tensor(f, smooth((4, 3, 8), 30))) for nu in (0.1, 1.0)]
    other = made(scratch, "other_Nu2.0.hdf5", lambda f: write_tensor(f, smooth((4, 3, 8), 31)))
    longer = made(scratch, "longer_Nu3.0.hdf5", lambda f: write_tensor(f, smooth((5, 3, 8), 30)))
    told = {}
    for names in (alike, [alike[0], other], [alike[0], longer], alike[:1]):
        done = ups("data", "inspect", "--json", "--together", *names)
        assert done.returncode == 0, done.stderr
        told[tuple(names)] = json.loads(done.stdout)[0].get("files_begin_alike"), "begin with the same field" in done.stderr
    assert list(told.values()) == [(True, True), (False, False), (False, False), (None, False)]
    assert "same field" not in ups("data", "inspect", *alike).stderr, "of files by themselves it means nothing"


# ---- broken files ---------------------------------------------------------------------------------------------------

def without(name, write_file):
    return lambda f: (write_file(f), f.__delitem__(name))


def replaced(name, values, write_file):
    return lambda f: (write_file(f), f.__delitem__(name), f.create_dataset(name, data=values))


flow = lambda f: write_compressible(f, (2, 3, 8, 6))
ns = lambda f: write_incompressible(f, (2, 3, 8, 6))
well = lambda f: write_well(f, 2, 3, (6, 5))
line = lambda f: write_tensor(f, smooth((2, 3, 8), 30))


def drawn(values, write_file, name="nu"):
    return lambda f: (write_file(f), f.create_dataset(f"parameters/{name}", data=values))


@pytest.mark.parametrize("text, write_file, words", [
    ("density and pressure alone", without("Vx", lambda f: write_compressible(f, (2, 3, 8))),
     ["compressible flow", "it has 'density', 'pressure' and 't-coordinate' but no 'Vx'"]),
    ("a 2D flow without Vy", without("Vy", flow), ["rank 4", "no 'Vy'"]),
    ("a flow without its times", without("t-coordinate", flow), ["'t-coordinate'", "missing"]),
    ("a flow without y", without("y-coordinate", flow), ["'y-coordinate'", "missing"]),
    ("a flow of two grids", replaced("pressure", np.zeros((2, 3, 8, 7), "f4"), flow), ["(2, 3, 8, 7)", "(2, 3, 8, 6)"]),
    ("a flow of two types", replaced("Vx", np.zeros((2, 3, 8, 6), "f8"), flow), ["float32", "float64"]),
    ("a flow whose x is too short", replaced("x-coordinate", np.zeros(5), flow), ["5 entries", "8"]),
    ("a flow with two times too many", replaced("t-coordinate", np.zeros(5), flow), ["5 entries", "3"]),
    ("a flow of rank 1", lambda f: [f.create_dataset(n, data=np.zeros(4, "f4")) for n in ("density", "pressure", "Vx")],
     ["rank 1", "(sample, t, x)"]),
    ("velocity alone", lambda f: f.create_dataset("velocity", data=np.zeros((1, 2, 3, 4, 2), "f4")),
     ["incompressible flow", "it has 'velocity' but no 'particles' and 't'"]),
    ("incompressible flow without times", without("t", ns), ["'t'", "missing"]),
    ("incompressible flow with times of another length", replaced("t", np.zeros((2, 5), "f4"), ns), ["(2, 5)", "3 frames"]),
    ("particles of another grid", replaced("particles", np.zeros((2, 3, 8, 7, 1), "f4"), ns), ["(2, 3, 8, 7, 1)", "(2, 3, 8, 6, 1)"]),
    ("a force of another grid", replaced("force", np.zeros((2, 8, 8, 2), "f4"), ns), ["'force'", "(2, 8, 6, 2)"]),
    ("velocity of rank 4", replaced("velocity", np.zeros((2, 3, 8, 2), "f4"), ns), ["rank 4", "(sample, t, x, y"]),
    ("a Well without dimensions", without("dimensions", well), ["The Well", "no 'dimensions'"]),
    ("a Well without its times", without("dimensions/time", well), ["dimensions/time", "missing"]),
    ("a Well without a field that it lists", without("t1_fields/velocity", well), ["t1_fields/velocity", "missing"]),
    ("a Well without a scalar that it lists", without("scalars/Prandtl", well), ["scalars/Prandtl", "missing"]),
    ("a Well that does not count its trajectories", lambda f: (well(f), f.attrs.__delitem__("n_trajectories")), ["n_trajectories"]),
    ("a Well with fewer rows than trajectories", lambda f: (well(f), f.attrs.__setitem__("n_trajectories", 3)), ["(2, 3, 6, 5)", "(3, 3, 6, 5)"]),
    ("a Well whose field has another grid", lambda f: (well(f), f.__delitem__("dimensions/x"), f.create_dataset("dimensions/x", data=np.zeros(7))),
     ["(2, 3, 6, 5)", "(2, 3, 7, 5)"]),
    ("a Well that does not name its axes", lambda f: (well(f), f["dimensions"].attrs.__delitem__("spatial_dims")), ["spatial_dims"]),
    ("a Well with no field", lambda f: (well(f), [f.__delitem__(f"t{i}_fields") for i in range(3)], f.create_group("t0_fields")), ["no field"]),
    ("parameters of more samples than there are", drawn([1.0, 2.0, 3.0], line), ["parameters/nu", "(3)", "2 samples", "one number"]),
    ("parameters of several numbers a sample", drawn(np.ones((2, 1)), flow), ["parameters/nu", "(2, 1)", "one number"]),
    ("a parameter that is no number", drawn([1.0, np.nan], ns), ["parameters/nu", "no number for sample 1"]),
    ("parameters that are words", drawn([b"a", b"b"], line), ["parameters/nu"]),
    ("a folder among the parameters", lambda f: (line(f), f.create_group("parameters/nu")), ["parameters/nu"]),
    ("Darcy's nu alone", lambda f: f.create_dataset("nu", data=np.zeros((2, 3, 4), "f4")), ["Darcy flow", "it has 'nu' but no 'tensor'"])])
def test_a_broken_file_is_told_in_a_sentence(scratch, text, write_file, words):
    one_sentence(ups("data", "inspect", made(scratch, "broken.h5", write_file)), "broken.h5", *map(re.escape, words))


def test_a_thousand_frames_in_a_chunk_each_equal_h5py(scratch):
    """Few samples of many frames: what is kept of the file stays small, and its opening quick."""
    path = made(scratch, "long.h5", lambda f: write_incompressible(f, (2, 1000, 16, 12)))
    with h5py.File(path) as f:
        expected = expect_incompressible(f, 1)
    assert same(dump(path, 1), expected)


CONFIG = """\
output: {scratch}/run
precision: f32
device: {{threads: 1}}
data: {{root: {scratch}, decode_threads: 1, split: {{train: 0.5, validation: 0.25, test: 0.25}}}}
tasks:
  - {{name: burgers, files: ["Task_Nu*.hdf5"], patch: [4]}}
model:
  tokens: 4
  dim: 8
  encoder: {{width: 8, frequencies: [1]}}
  decoder: {{hidden: 8, depth: 1, heads: 2, mlp_ratio: 2, frequencies: [1]}}
  operator: {{hidden: 16, depth: 1, heads: 2, mlp_ratio: 2}}
autoencoder: {{steps: 4, batch_size: 2, queries: 8, gate: 0}}
"""


def test_each_trajectory_keeps_its_own_parameter_where_a_file_draws_them(scratch):
    """`parameters/nu` of a file, and the attribute of another, reach the operator as one parameter."""
    own = [0.3, 0.1, 0.9, 0.7, 0.2, 0.5, 0.4, 0.8]
    made(scratch, "Task_a.hdf5", drawn(own, lambda f: write_tensor(f, smooth((8, 5, 16), 30))))
    made(scratch, "Task_b.hdf5", lambda f: (write_tensor(f, smooth((4, 5, 16), 31)), f.attrs.__setitem__("Nu", 0.6)))
    config = Path(scratch, "run.yaml")
    config.write_text(CONFIG.format(scratch=scratch).replace("Task_Nu*", "Task_*"))
    must("train", config, "--stage", "autoencoder")
    must("cache", "build", config)
    found = {}
    for split in ("train", "validation", "test"):
        out = os.path.join(scratch, split + ".h5")
        must("cache", "export", os.path.join(scratch, "run/cache/burgers", split), "--format", "hdf5", "-o", out)
        with h5py.File(out) as f:
            found.update(zip(f["source_sample"][...].ravel().tolist(), f["condition"][:, 0].tolist()))
    assert found == dict(enumerate(own + [0.6] * 4))


def test_each_trajectory_of_a_task_of_several_files_keeps_its_own_files_parameter(scratch):
    """From files to the cache that the operator is trained on: every trajectory keeps its own file's parameter."""
    values = [0.01, 0.1, 0.5]
    for nu in values:
        made(scratch, f"Task_Nu{nu}.hdf5", lambda f: write_tensor(f, smooth((4, 5, 16), 30)))
    config = Path(scratch, "run.yaml")
    config.write_text(CONFIG.format(scratch=scratch))
    must("train", config, "--stage", "autoencoder")
    must("cache", "build", config)
    found = {}
    for split in ("train", "validation", "test"):
        out = os.path.join(scratch, split + ".h5")
        must("cache", "export", os.path.join(scratch, "run/cache/burgers", split), "--format", "hdf5", "-o", out)
        with h5py.File(out) as f:
            found.update(zip(f["source_sample"][...].ravel().tolist(), f["condition"][:, 0].tolist()))
    assert found == {i: values[i // 4] for i in range(12)}
