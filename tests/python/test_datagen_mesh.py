"""`ups datagen transport_mesh2d`, seen by h5py and SciPy: the file's layout, Delaunay triangles, the potential flow and
the transport of its tracer, computed anew from the file's mesh."""

import json
import os

import h5py
import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import spsolve, splu
from scipy.spatial import Delaunay

from commands import ups


def make(scratch, *arguments, name="x.h5"):
    done = ups("datagen", "transport_mesh2d", *arguments, "-o", os.path.join(scratch, name), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def read(scratch, name="x.h5"):
    with h5py.File(os.path.join(scratch, name)) as file:
        found = {}
        file.visititems(lambda key, item: found.update({key: item[:]}) if isinstance(item, h5py.Dataset) else None)
        return found, dict(file.attrs)


def gradients(points, cells):
    """Areas of cells, and the gradients (cell, corner, axis) of the functions that are 1 at a corner."""
    corners = points[cells]
    across = np.roll(corners, -1, axis=1) - np.roll(corners, -2, axis=1)
    (ax, ay), (bx, by) = ((corners[:, i] - corners[:, 0]).T for i in (1, 2))
    twice = ax * by - ay * bx
    return twice / 2, np.stack([across[..., 1], -across[..., 0]], axis=-1) / twice[:, None, None]


def assemble(cells, blocks):
    """The matrix with the sum of all cells' blocks (cell, corner, corner)."""
    row = np.repeat(cells, 3, axis=1).ravel()
    column = np.tile(cells, (1, 3)).ravel()
    return coo_matrix((blocks.ravel(), (row, column))).tocsr()


def fix(matrix, rows):
    keep = np.ones(matrix.shape[0])
    keep[rows] = 0
    return coo_matrix((keep, (range(len(keep)), range(len(keep))))) @ matrix + coo_matrix((1 - keep, (range(len(keep)), range(len(keep)))))


# ---- the file ----

def test_the_file_holds_mesh_times_and_fields(scratch):
    result = make(scratch, "-n", 3, "-r", 20, "--steps", 5, "-p", "t_end=0.25", "-p", "obstacles=1")
    found, attributes = read(scratch)
    assert set(found) == {"points", "cells", "t", "u", "vx", "vy"}
    points, cells = len(found["points"]), len(found["cells"])
    assert {key: array.shape for key, array in found.items()} == {
        "points": (points, 2), "cells": (cells, 3), "t": (5,), "u": (3, 5, points), "vx": (3, points), "vy": (3, points)}
    assert {key for key, array in found.items() if array.dtype == np.float32} == set(found) - {"cells"}
    assert found["cells"].dtype == np.int32
    np.testing.assert_array_equal(found["t"], np.float32([0, 0.0625, 0.125, 0.1875, 0.25]))
    assert attributes["nu"] == 0.002 and attributes["speed"] == 1 and set(attributes) == {"nu", "speed", "ups_datagen"}
    assert json.loads(attributes["ups_datagen"])["parameters"] == result["parameters"]
    assert 400 < points < 520  # 20² hexagons and the borders
    assert len(np.unique(found["u"][:, 0].std(axis=1))) == 3  # samples differ
    assert (found["u"][:, :, found["points"][:, 0] == 0] == 0).all()


def test_drawn_parameters_stand_in_the_file_and_speed_in_the_flow(scratch):
    make(scratch, "-n", 4, "-r", 16, "--steps", 2, "-p", "nu=log:0.001:0.01", "-p", "speed=0.5:2")
    found, attributes = read(scratch)
    assert set(attributes) == {"ups_datagen"}
    speed = found["parameters/speed"]
    assert len(np.unique(speed)) == 4 and len(np.unique(found["parameters/nu"])) == 4
    np.testing.assert_allclose(found["vx"] / speed[:, None], np.tile(found["vx"][:1] / speed[0], (4, 1)), rtol=1e-5, atol=1e-6)
    area, _ = gradients(found["points"].astype(float), found["cells"])
    mean = (area[:, None] * np.hypot(found["vx"], found["vy"])[:, found["cells"]] / 3).sum(axis=(1, 2)) / area.sum()
    np.testing.assert_allclose(mean, speed, rtol=1e-6)


def test_a_larger_file_begins_with_the_smaller_one_and_a_seed_is_a_mesh(scratch):
    make(scratch, "-n", 2, "-r", 16, "--steps", 3, name="few.h5")
    make(scratch, "-n", 5, "-r", 16, "--steps", 3, name="many.h5")
    make(scratch, "-n", 2, "-r", 16, "--steps", 3, "--seed", 1, name="other.h5")
    few, many, other = (read(scratch, name)[0] for name in ("few.h5", "many.h5", "other.h5"))
    np.testing.assert_array_equal(few["u"], many["u"][:2])
    np.testing.assert_array_equal(few["points"], many["points"])
    assert other["points"].shape != few["points"].shape or (other["points"] != few["points"]).any()


# ---- the mesh ----

def test_cells_are_scipys_delaunay_triangles_but_for_those_in_holes(scratch):
    for holes, seed in (0, 3), (2, 4), (4, 5):
        make(scratch, "-n", 1, "-r", 40, "--steps", 2, "-p", f"obstacles={holes}", "--seed", seed, "--force")
        found, _ = read(scratch)
        points, cells = found["points"].astype(float), found["cells"]
        area, _ = gradients(points, cells)
        assert area.min() > 0  # counter-clockwise
        ours, theirs = ({tuple(cell) for cell in np.sort(all, axis=1)} for all in (cells, Delaunay(points).simplices))
        assert ours <= theirs
        missing = np.array(sorted(theirs - ours), dtype=int).reshape(-1, 3)
        assert (len(missing) > 10) == (holes > 0)
        edges = np.unique(np.sort(np.concatenate([cells[:, [0, 1]], cells[:, [1, 2]], cells[:, [2, 0]]]), axis=1), axis=0)
        assert len(points) - len(edges) + len(cells) == 1 - holes
        on_holes = np.unique(missing)
        inner = ~((points == 0) | (points == 1)).any(axis=1)
        assert inner[on_holes].all()  # what is missing touches no wall


# ---- flow and tracer ----

def velocity_of(points, cells):
    """Potential flow from left to right of mean speed 1."""
    area, slopes = gradients(points, cells)
    ends = np.flatnonzero((points[:, 0] == 0) | (points[:, 0] == 1))
    right = np.zeros(len(points))
    right[ends] = points[ends, 0]
    stiffness = assemble(cells, area[:, None, None] * np.einsum("cia,cja->cij", slopes, slopes))
    potential = spsolve(fix(stiffness, ends).tocsc(), right)
    slope = np.einsum("cia,ci->ca", slopes, potential[cells])
    around = np.bincount(cells.ravel(), np.repeat(area, 3))
    return np.stack([np.bincount(cells.ravel(), np.repeat(area * slope[:, axis], 3)) / around for axis in (0, 1)], axis=1)


def test_the_flow_is_scipys_potential_flow(scratch):
    make(scratch, "-n", 1, "-r", 32, "--steps", 2, "-p", "obstacles=3")
    found, _ = read(scratch)
    points, cells = found["points"].astype(float), found["cells"]
    flow = np.stack([found["vx"][0], found["vy"][0]], axis=1)
    expected = velocity_of(points, cells)
    edges = np.sort(np.concatenate([cells[:, [0, 1]], cells[:, [1, 2]], cells[:, [2, 0]]]), axis=1)
    edges, uses = np.unique(edges, axis=0, return_counts=True)
    border = np.unique(edges[uses == 1])
    inner = np.setdiff1d(np.arange(len(points)), border)
    scale = (flow[inner] * expected[inner]).sum() / (expected[inner] ** 2).sum()
    np.testing.assert_allclose(flow[inner], scale * expected[inner], atol=1e-6)
    on_wall = (points[:, 1] == 0) | (points[:, 1] == 1)
    np.testing.assert_allclose(flow[on_wall, 0], scale * expected[on_wall, 0], atol=1e-6)
    assert (flow[on_wall, 1] == 0).all() and (flow[:, 0].min() > -0.1) and flow[:, 0].max() > 1.3


def test_the_tracer_is_that_of_galerkins_method(scratch):
    """Without stabilisation, in small steps: on a mesh as fine as this and with so much diffusion it needs none."""
    steps, nu, end = 4, 0.01, 0.3
    make(scratch, "-n", 2, "-r", 64, "--steps", steps, "-p", f"nu={nu}", "-p", f"t_end={end}", "--seed", 2)
    found, _ = read(scratch)
    points, cells = found["points"].astype(float), found["cells"]
    area, slopes = gradients(points, cells)
    flow = np.stack([found["vx"][0], found["vy"][0]], axis=1).astype(float)[cells]
    weighted = area[:, None, None] / 12 * (flow.sum(axis=1, keepdims=True) + flow)  # the velocity by each corner's function
    mass = assemble(cells, area[:, None, None] / 12 * (1 + np.eye(3)))
    change = assemble(cells, np.einsum("cia,cja->cij", weighted, slopes) + nu * area[:, None, None] * np.einsum("cia,cja->cij", slopes, slopes))
    inlet = np.flatnonzero(points[:, 0] == 0)
    dt, inner = end / (steps - 1) / 60, 60
    solve = splu(fix(mass + dt / 2 * change, inlet).tocsc())
    other = (mass - dt / 2 * change).tocsr()
    for sample in range(2):
        u = found["u"][sample, 0].astype(float)
        for stored in range(1, steps):
            for _ in range(inner):
                right = other @ u
                right[inlet] = 0
                u = solve.solve(right)
            ours = found["u"][sample, stored]
            difference = np.linalg.norm(ours - u) / np.linalg.norm(u)
            assert difference < 0.006, (sample, stored, difference)
            assert np.linalg.norm(u - found["u"][sample, 0]) > 0.3 * np.linalg.norm(u)
