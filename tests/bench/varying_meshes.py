#!/usr/bin/env python3
"""One file of samples of which each lies on points of its own, out of many that `ups datagen transport_mesh2d` writes: a tracer around other obstacles for every seed.

  varying_meshes.py UPS FILE --seeds FIRST:BEHIND [--each 4] [--points 600] [--resolution 26]

UPS is the program. Of each mesh and sample as many points are drawn as --points says, so that peers which want equal numbers can read the file, too (mesh_peers.py);
samples of a seed share its obstacles and flow. Written are `points` (sample, point, 2), `u` (sample, time, point), `vx` and `vy` (sample, point) and `t`, in float32.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ups", metavar="UPS")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--seeds", required=True, metavar="FIRST:BEHIND")
    parser.add_argument("--each", type=int, default=4, metavar="N", help="samples of a seed")
    parser.add_argument("--points", type=int, default=600)
    parser.add_argument("--resolution", type=int, default=26, help="of the solver; its meshes have to have more points than --points")
    told = parser.parse_args()
    first, behind = map(int, told.seeds.split(":"))
    parts = {name: [] for name in ("points", "u", "vx", "vy")}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, behind):
            path = Path(folder) / f"{seed}.h5"
            subprocess.run([told.ups, "datagen", "transport_mesh2d", "-o", path, "-n", str(told.each), "-r", str(told.resolution), "--seed", str(seed), "-q"],
                           check=True, stdout=subprocess.DEVNULL)
            with h5py.File(path) as f:
                t, points, fields = f["t"][:], f["points"][:], {name: f[name][:] for name in ("u", "vx", "vy")}
            if len(points) < told.points:
                sys.exit(f"the mesh of seed {seed} has {len(points)} points, fewer than {told.points}; take a higher --resolution")
            for i in range(told.each):
                kept = np.sort(np.random.default_rng((seed, i)).permutation(len(points))[:told.points])
                parts["points"].append(points[kept])
                parts["u"].append(fields["u"][i][:, kept])
                for name in ("vx", "vy"):
                    parts[name].append(fields[name][i][kept])
            path.unlink()
    with h5py.File(told.file, "w") as f:
        f["t"] = t
        for name, values in parts.items():
            f[name] = np.asarray(values, np.float32)


if __name__ == "__main__":
    main()
