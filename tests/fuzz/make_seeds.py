"""make_seeds.py MAKE_CACHE OUT [MODEL...]: inputs to begin with, one folder a target, made by h5py, netCDF4 and our own cache writer
(MAKE_CACHE: the program of tests/cache/make_cache.c), and of small models that `ups export` wrote, such as those of tests/python/test_model.py
and test_cores.py. What libFuzzer then finds goes through -merge=1 into corpus/."""
import io
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

import h5py
import netCDF4
import numpy as np

make_cache, out, models = sys.argv[1], pathlib.Path(sys.argv[2]), map(pathlib.Path, sys.argv[3:])
random = np.random.default_rng(1)
OLDEST = ("earliest", "v110")  # as most files are: without checksums, which keep a fuzzer out


def put(target, name, data):
    folder = out / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


# ---- caches: make_cache has 9 samples of 21 × 5 × 32 in shards of 4; fuzz_zarr_json 5 samples of 6 × 2 × 4 in shards of 2

def shape(document, was, now):
    if isinstance(document, dict):
        return {k: shape(v, was, now) for k, v in document.items()}
    if isinstance(document, list) and document in was:
        return now[was.index(document)]
    if isinstance(document, list):
        return [shape(v, was, now) for v in document]
    return document


def seed_caches():
    for kind in ([], ["portable"], ["skip=1"]):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([make_cache, folder, *kind], check=True)
            group = pathlib.Path(folder) / "waves/train"
            name = kind[0].replace("=", "-") if kind else "latent"
            shard = (group / "latent/c/2/0/0/0").read_bytes()
            portable = int(kind == ["portable"])
            for repaired in (0, 6):
                put("shard", f"{name}-{repaired}", bytes([portable | repaired, 3, 20, 4, 31]) + shard)
            offset, length = struct.unpack("<QQ", shard[-68:-52])
            put("codec", f"chunk-{name}", bytes([16 | 32 | portable * 4, 20, 4, 31, 0, 20]) + shard[offset:offset + length - 4])
            put("codec", f"chunk-{name}-window", bytes([8 | 16 | 32 | portable * 4, 20, 4, 31, 3, 4]) + shard[offset:offset + length - 4])
            if kind:
                continue
            was = [[9, 21, 5, 32], [4, 21, 5, 32], [1, 21, 5, 32], [21], [9, 2], [9], [9, 6], [4, 6]]
            now = [[5, 6, 2, 4], [2, 6, 2, 4], [1, 6, 2, 4], [6], [5, 2], [5], [5, 6], [2, 6]]
            for i, part in enumerate(("", "latent/", "time/", "condition/", "source_sample/", "statistics/", "shards/")):
                document = shape(json.loads((group / part / "zarr.json").read_text()), was, now)
                if part == "":
                    document["attributes"]["ups"].update(samples=5, times=6, tokens=2, dim=4, samples_per_shard=2)
                put("zarr_json", part.strip("/") or "group", bytes([i]) + json.dumps(document).encode())
                if part == "":
                    put("zarr_json", "group-mended", bytes([0x80]) + json.dumps(document, indent=2).encode())
    for way in (1, 2, 6, 10, 18):
        put("codec", f"way-{way}", bytes([way, 7, 2, 5, 1, 3]) + random.integers(0, 60, 200, dtype="u1").tobytes())
    smooth = np.sin(np.arange(240) / 20).astype("<f2").tobytes()
    put("codec", "smooth", bytes([2, 11, 1, 9, 0, 11]) + smooth)
    put("codec", "planes", bytes([1, 7, 2, 5, 0, 7, 255]) + bytes([1, 0]) * 150)


# ---- filters

def lzf(data):
    return b"".join(bytes([len(data[i:i + 32]) - 1]) + data[i:i + 32] for i in range(0, len(data), 32))


def seed_filters():
    data = np.arange(64, dtype="<f4").tobytes()
    shuffled = np.frombuffer(data, "u1").reshape(-1, 4).T.tobytes()
    size = struct.pack("<H", len(data))
    put("filters", "plain", bytes([0]) + size + data)
    put("filters", "gzip", bytes([2]) + size + zlib.compress(data))
    put("filters", "lzf", bytes([4]) + size + lzf(data))
    put("filters", "shuffle-gzip", bytes([3, 3]) + size + zlib.compress(shuffled))
    put("filters", "shuffle-lzf-fletcher", bytes([13, 3]) + size + lzf(shuffled))
    put("filters", "fletcher", bytes([8]) + size + data)
    put("filters", "lzf-reference", bytes([4]) + size + bytes([3]) + b"abcd" + bytes([0xE0, 0xF3, 3]))
    put("filters", "masked", bytes([3 | 32, 3]) + size + shuffled)


# ---- safetensors: the small model of the target is weight (3, 4), bias (3)

def seed_safetensors():
    def make(name, header, data, pad=0):
        text = json.dumps(header, separators=(",", ":")).encode() + b" " * pad
        put("safetensors", name, struct.pack("<Q", len(text)) + text + data)

    weight = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
    bias = {"dtype": "F32", "shape": [3], "data_offsets": [48, 60]}
    make("model", {"weight": weight, "bias": bias}, bytes(60))
    make("model-odd", {"weight": weight, "bias": bias}, bytes(60), 1)
    make("metadata", {"__metadata__": {"origin": "x", "a.normalisation": "[[0.5,2.0]]"}, "weight": weight, "bias": bias}, bytes(60))
    make("empty", {}, b"")
    types = ["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL", "F8_E4M3", "U16"]
    sizes, at, header = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}, 0, {}
    for t in types:
        header[t] = {"dtype": t, "shape": [2], "data_offsets": [at, at + 2 * sizes.get(t, 1)]}
        at += 2 * sizes.get(t, 1)
    make("types", header, bytes(at))
    make("scalar", {"s": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}, "z": {"dtype": "F32", "shape": [0, 3], "data_offsets": [4, 4]}}, bytes(4))


# ---- configurations, and the text of a seed group

SMALL = """output: runs/x
tasks:
  - {name: a, files: [a.h5], patch: [4]}
  - name: b
    files: [b*.h5, "c d.h5"]
    patch: [8, 8]
    field_scale: [1, 4]
    weight: 0.5
model: {tokens: 64, dim: 32}
operator:
  steps: 10
  losses: {one_step: {weight: 1}, rollout: {weight: 1, from: 5}}
"""


# all types of tests/base/sample_config.h
SAMPLE = """output: o
label: l
note: "x: y"
core: stack
tasks: [{name: burgers, files: [a.hdf5, 'b'], weight: 2, crops: [1, 2]}]
train: {learning_rate: 1e-3, steps: 10, batch_size: auto, clip: .5, betas: [0.9, 0.99], ema: yes, seed: 10, shift: -4, stages: [cache]}
diffusion: {steps: 8, schedule: cosine}
"""


def seed_texts():
    configs = pathlib.Path(__file__).parents[2] / "configs"
    for path in configs.glob("*.yaml"):
        text = "\n".join(line.split(" #")[0] for line in path.read_text().split("\n") if not line.startswith("#"))
        put("run_config", path.stem, text.encode())
    put("run_config", "small", SMALL.encode())
    put("run_config", "overrides", (SMALL + "\0model.dim=64\0tasks[0].name=q\0operator.optimizer.learning_rate=1e-3\0seed=7").encode())
    put("run_config", "more-overrides", (SMALL + "\0tasks[2]={name: z, files: [z.h5], patch: [2]}\0stages=[cache]\0precision=fp32").encode())
    put("config", "small", SAMPLE.encode())
    put("config", "overrides", (SAMPLE + "\0train.steps=5\0tasks[0].crops=[1,2]\0note=text\0core=unet").encode())
    put("config", "grow", (SAMPLE + "\0tasks[1]={name: z, files: [z]}\0train.betas[2]=0.5\0diffusion={schedule: s}").encode())
    put("config", "anchors", b"a: &x [1, 2]\nb: *x\n? k\n: v\n--- \n!!str 5: |\n  t\n  u\n")
    for name, text in (("config", "sim:\n  Du: 1.0e-3\n  Dv: 5e-3\n  k: [1, 2]\nplot: {xdim: 4, t: 5}\nname: '3'\n"),
                       ("advection", "1D_Advection_Sols_beta0.4.hdf5"), ("cfd", "1D_CFD_Rand_Eta1.e-8_Zeta1.e-8_M0.1_periodic.hdf5"),
                       ("kh", "data/KH_M01_dk2_Re1e3.hdf5"), ("nested", "{a: {b: {c: {d: 0x1f}}}, e: -.inf, f: !!float 1}")):
        put("parameters", name, text.encode())


# ---- files of a run

def seed_run_files():
    weights = "0123456789abcdef" * 2
    put("run_files", "state", b"\0" + json.dumps({"autoencoder": {"steps": 5, "weights": weights}, "cache": {"steps": 0, "weights": ""}}).encode())
    sampling = {"strategy": "proportional", "draws_per_step": 4, "tasks": ["one", "two"], "average_losses": [None, 0.5],
                "phases": [{"draw": 0, "shares": [4096, 0]}, {"draw": 300, "shares": [3000, 1096]}]}
    latest = {"format": 1, "step": 100, "seed": 42, "batch_size": 8, "running_loss": 0.5, "precision": "fp16", "loss_scale": {"scale": 65536.0, "good_steps": 7, "skipped": 1}, "interval": {"one": {"sum": 1.5, "windows": 8}}, "file": "step-00000100.safetensors", "sampling": sampling}
    put("run_files", "latest", b"\1" + json.dumps(latest).encode())
    best = {"step": 2, "score": 0.25, "stale": 1, "tasks": {"one": 0.5, "two": 0.0}}
    put("run_files", "latest_best", b"\1" + json.dumps({**latest, "best": best}).encode())
    put("run_files", "redo", b"\5" + json.dumps({"stages": ["cache", "operator"], "groups": ["advection/train"]}).encode())
    evaluation = {"tasks": [{"task": "one", "given": 1, "by_trajectory": {"truth_xxh3": ["b", "a"], "nrmse": [0.3, None]}}, {"task": "two", "given": 1}]}
    put("run_files", "evaluation", b"\6" + json.dumps(evaluation).encode())
    put("run_files", "sampling", b"\2" + json.dumps(sampling).encode())
    lines = [{"stage": "operator", "step": s, "loss": 0.1 * s} for s in (5, 10, 15)]
    put("run_files", "metrics", b"\3" + "".join(json.dumps(line) + "\n" for line in lines).encode() + b'{"stage": "oper')


# ---- simulation files

def small(group, name, values, **form):
    return group.create_dataset(name, data=np.asarray(values), **form)


FORMS = {
    "plain": {},
    "gzip": {"chunks": True, "compression": "gzip", "shuffle": True},
    "lzf": {"chunks": True, "compression": "lzf", "shuffle": True, "fletcher32": True},
    "odd": {"chunks": "odd"},
    "swapped": {"dtype": ">f8"},
}


def shaped(form, values):
    form, values = dict(form), np.asarray(values, form.get("dtype", "f4"))
    form.pop("dtype", None)
    if form.get("chunks") == "odd":
        form["chunks"] = tuple(max(1, (n + 1) // 2) for n in values.shape)
    return dict(data=values, **form)


def tensor(f, form):
    f.create_dataset("tensor", **shaped(form, random.random((2, 3, 5))))
    small(f, "x-coordinate", np.linspace(0, 1, 5, dtype="f4"))
    small(f, "t-coordinate", np.linspace(0, 1, 4, dtype="f4"))


def darcy(f, form):
    f.create_dataset("nu", **shaped(form, random.random((2, 3, 4))))
    f.create_dataset("tensor", **shaped(form, random.random((2, 1, 3, 4))))
    small(f, "x-coordinate", np.linspace(0, 1, 3, dtype="f4"))
    small(f, "y-coordinate", np.linspace(0, 1, 4, dtype="f4"))
    f.attrs["beta"] = 0.1


def seeds(f, form):
    for i in range(2):
        g = f.create_group(f"{i:04d}")
        g.create_dataset("data", **shaped(form, random.random((3, 4, 2))))
        small(g, "grid/x", np.linspace(0, 1, 4, dtype="f4"))
        small(g, "grid/t", np.linspace(0, 1, 3, dtype="f4"))
        g.attrs["config"] = "sim: {Du: 0.1}\nplot: {t: 1}"


def compressible(f, form):
    for name in ("density", "pressure", "Vx"):
        f.create_dataset(name, **shaped(form, random.random((2, 3, 4))))
    small(f, "x-coordinate", np.linspace(0, 1, 4, dtype="f4"))
    small(f, "t-coordinate", np.linspace(0, 1, 4, dtype="f4"))
    f.attrs["eta"] = 0.01


def incompressible(f, form):
    f.create_dataset("velocity", **shaped(form, random.random((1, 2, 3, 3, 2))))
    f.create_dataset("particles", **shaped(form, random.random((1, 2, 3, 3, 1))))
    f.create_dataset("force", **shaped(form, random.random((1, 3, 3, 2))))
    small(f, "t", np.linspace(0, 1, 2, dtype="f4")[None])
    f.attrs["config"] = "sim_dt: 0.1\nNU: 0.01"


def well(f, form):
    f.attrs.update(grid_type="cartesian", n_spatial_dims=1, n_trajectories=2, nu=0.5)
    f.attrs["simulation_parameters"] = ["nu"]
    d = f.create_group("dimensions")
    d.attrs["spatial_dims"] = ["x"]
    small(d, "time", np.linspace(0, 1, 3, dtype="f4")).attrs["sample_varying"] = False
    small(d, "x", np.linspace(0, 1, 4, dtype="f4")).attrs["sample_varying"] = False
    b = f.create_group("boundary_conditions/x_periodic")
    b.attrs.update(bc_type="PERIODIC", sample_varying=False, time_varying=False)
    b.attrs["associated_dims"] = ["x"]
    f.create_group("scalars").attrs["field_names"] = ["nu"]
    s = small(f["scalars"], "nu", np.float32(0.5))
    s.attrs.update(sample_varying=False, time_varying=False)
    for order in range(3):
        g = f.create_group(f"t{order}_fields")
        g.attrs["field_names"] = ["u"] if order == 0 else []
        if order == 0:
            u = g.create_dataset("u", **shaped(form, random.random((2, 3, 4))))
            u.attrs.update(dim_varying=[True], sample_varying=True, time_varying=True)


def points(f, form):
    f.create_dataset("points", **shaped(form, random.random((7, 2))))
    small(f, "cells", np.array([[0, 1, 2], [4, 5, 6]], "i4"))
    small(f, "t", np.linspace(0, 1, 3, dtype="f4"))
    f.create_dataset("u", **shaped(form, random.random((2, 3, 7))))
    small(f, "inflow", random.random((2, 7)).astype("f4"))
    small(f, "parameters/nu", np.array([0.1, 0.2]))


def own_points(f, form):
    f.create_dataset("points", **shaped(form, random.random((2, 7, 3))))
    small(f, "t", np.linspace(0, 1, 6, dtype="f4").reshape(2, 3))
    f.create_dataset("u", **shaped(form, random.random((2, 3, 7, 2))))


def seed_hdf5():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.h5"
        for write in (tensor, darcy, seeds, compressible, incompressible, well, points, own_points):
            forms = FORMS if write in (tensor, compressible) else {"plain": {}, "lzf": FORMS["lzf"]}
            for name, form in forms.items():
                with h5py.File(path, "w", libver=OLDEST) as f:
                    write(f, form)
                put("hdf5", f"{write.__name__}-{name}", path.read_bytes())
        for write in (tensor, seeds):
            with h5py.File(path, "w", libver=("v110", "v110")) as f:
                write(f, FORMS["gzip"])
            put("hdf5", f"{write.__name__}-latest", path.read_bytes())
        for name, source, dataset in (("own", ".", "other"), ("itself", ".", "tensor"), ("missing", "part.h5", "tensor")):
            with h5py.File(path, "w", libver=OLDEST) as f:
                tensor(f, {})
                f.move("tensor", "other")
                layout = h5py.VirtualLayout(f["other"].shape, "f4")
                layout[...] = h5py.VirtualSource(source, dataset, layout.shape)
                f.create_virtual_dataset("tensor", layout)
            put("hdf5", f"virtual-{name}", path.read_bytes())
        with h5py.File(path, "w", libver=OLDEST) as f:
            tensor(f, {})
            f.move("tensor", "other")
            f.create_dataset("tensor", f["other"].shape, "f4", external=[("x.raw", 0, h5py.h5f.UNLIMITED)])
            f["nu"] = h5py.ExternalLink("y.h5", "nu")
        put("hdf5", "external", path.read_bytes())
        with h5py.File(path, "w", libver=OLDEST) as f:
            tensor(f, {})
            small(f, "parameters/nu", np.linspace(0.1, 0.2, f["tensor"].shape[0]))
        put("hdf5", "tensor-parameters", path.read_bytes())


def damaged(name, write, damage):
    """A small sound file, damaged by hand: what made HDF5 1.10 crash."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.h5"
        with h5py.File(path, "w", libver=OLDEST) as f:
            write(f)
        data = bytearray(path.read_bytes())
    damage(data)
    put("hdf5", name, bytes(data))


def seed_damaged_hdf5():
    # version 1: 8 bytes of sizes, the name padded to 8, the datatype, the dataspace (in 8 bytes), the value
    def space_size(data):
        at = data.index(b"eta\0")
        data[at - 2:at] = struct.pack("<H", 40)

    def heap_size(data):
        at = data.index(b"HEAP") + 8
        data[at:at + 8] = struct.pack("<Q", 1 << 31)

    def name_offset(data):
        at = data.index(b"SNOD") + 8
        data[at:at + 8] = struct.pack("<Q", 1 << 40)

    damaged("damaged-attribute-value", lambda f: compressible(f, {}), space_size)
    damaged("damaged-heap-size", lambda f: tensor(f, {}), heap_size)
    damaged("damaged-name-offset", lambda f: tensor(f, {}), name_offset)


def classic(f, unlimited=True):
    f.createDimension("time", None if unlimited else 3)
    f.createDimension("x", 4)
    t = f.createVariable("time", "f8", ("time",))
    t.units = "hours since 2000-01-01"
    t[:] = np.arange(3)
    x = f.createVariable("x", "f4", ("x",))
    x.axis = "X"
    x[:] = np.arange(4)
    u = f.createVariable("u", "i2", ("time", "x"), fill_value=-9)
    u.scale_factor, u.add_offset, u.valid_range = np.float32(0.5), np.float32(1), np.array([-100, 100], "i2")
    u[:] = np.arange(12).reshape(3, 4)
    v = f.createVariable("v", "f4", ("time", "x"))
    v.missing_value = np.float32(-1)
    v[:] = random.random((3, 4))
    f.createVariable("h", "f4", ("x",))[:] = 1
    f.createVariable("g", "f8", ())[...] = 9.81
    f.nu, f.title = 0.25, "waves"


def seed_netcdf():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.nc"
        for fmt in ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4", "NETCDF4_CLASSIC"):
            for unlimited in (True, False):
                with netCDF4.Dataset(path, "w", format=fmt) as f:
                    classic(f, unlimited)
                put("netcdf4" if "4" in fmt.replace("64", "") else "netcdf", f"{fmt.lower()}-{'records' if unlimited else 'fixed'}", path.read_bytes())
        for name, form in FORMS.items():
            if name == "swapped":
                continue
            with h5py.File(path, "w", libver=OLDEST) as f:
                u = f.create_dataset("u", **shaped(form, random.random((3, 4))))
                for axis, (label, length) in enumerate((("time", 3), ("x", 4))):
                    small(f, label, np.arange(length, dtype="f4")).make_scale(label)
                    u.dims[axis].attach_scale(f[label])
                f["time"].attrs["units"] = "s"
            put("netcdf4", f"scales-{name}", path.read_bytes())


def seed_numpy():
    u = random.random((3, 4, 5)).astype("f4")
    arrays = {"c": u, "fortran": np.asfortranarray(u), "big": u.astype(">f8"), "half": u.astype("f2"), "scalar": np.float64(3),
              "channels": np.arange(2 * 3 * 4 * 2, dtype="<i2").reshape(2, 3, 4, 2), "complex": u.astype("c8"),
              "structured": np.zeros(3, [("a", "f4"), ("b", "i2", 2)])}
    for name, array in arrays.items():
        for version in ((1, 0), (2, 0), (3, 0)) if name == "c" else ((1, 0),):
            file = io.BytesIO()
            np.lib.format.write_array(file, array, version=version)
            put("numpy", f"{name}-{version[0]}", file.getvalue())
    for name, save in (("stored", np.savez), ("deflated", np.savez_compressed)):
        file = io.BytesIO()
        save(file, u=u[:2, :3, :4], t=np.arange(3.0), nu=np.array([0.1, 0.2]))
        put("numpy", name, file.getvalue())
        put("numpy", f"{name}-cut", file.getvalue()[:-30])


def seed_zarr_store():
    """Behind the byte that chooses: 0 the document of version 3, 1 its shard, 2 that of version 2, 3 its chunk (fuzz_zarr_store.c)."""
    source = (pathlib.Path(__file__).parent / "fuzz_zarr_store.c").read_text()
    documents = {name: "".join(map(json.loads, re.findall(r'"(?:[^"\\]|\\.)*"', body)))  # a text of C is one of JSON
                 for name, body in re.findall(r"static const char (\w+)\[\] =\s*(.*?);\n", source, re.S)}
    put("zarr_store", "version-3", b"\0" + documents["array_3"].encode())
    put("zarr_store", "version-2", b"\2" + documents["array_2"].encode())
    codecs = [{"name": "transpose", "configuration": {"order": [2, 0, 1]}}, {"name": "bytes", "configuration": {"endian": "big"}},
              *({"name": name} for name in ("zstd", "crc32c"))]
    plain = json.loads(documents["array_3"].replace("NaN", '"0x7fc00000"'))
    put("zarr_store", "plain-3", b"\0" + json.dumps({**plain, "codecs": codecs}).encode())
    put("zarr_store", "other-codec", b"\0" + json.dumps({**plain, "codecs": [*codecs[1:], {"name": "bz2"}]}).encode())
    old = json.loads(documents["array_2"])
    for name, compressor in (("zlib", {"id": "zlib"}), ("blosc", {"id": "blosc", "cname": "lz4"}), ("lz4", {"id": "lz4"})):
        put("zarr_store", f"{name}-2", b"\2" + json.dumps({**old, "compressor": compressor, "filters": [{"id": "shuffle", "elementsize": 2}]}).encode())
    entries = [(0, 96), (96, 96), (2**64 - 1, 2**64 - 1), (192, 96)]
    put("zarr_store", "shard", b"\x81" + bytes(384) + b"".join(struct.pack("<QQ", *entry) for entry in entries) + bytes(4))
    put("zarr_store", "chunk", b"\3" + bytes(72))


def seed_models():
    """Behind two bytes (fuzz_model.c) the header: as it is; without what must agree with the configuration, so that changes of that get
    further; and with the second task on a grid of three axes."""
    for model in models:
        whole = model.read_bytes()
        texts = json.loads(whole[8:8 + struct.unpack("<Q", whole[:8])[0]])["__metadata__"]
        bare = {key: text for key, text in texts.items() if not key.endswith((".encoder", ".decoder", "operator"))}
        lines = lambda texts: "".join(f"{key} {text}\n" for key, text in texts.items()).encode()  # noqa: E731
        put("model", model.stem, bytes([0, 1]) + lines(texts))
        put("model", f"{model.stem}-bare", bytes([0, 13]) + lines(bare))
        key = [key for key in bare if key.endswith(".fields")][-1]
        solid = json.loads(bare[key]) | {"grid": [8, 4, 8], "axes": ["x", "y", "z"], "low": [0.0] * 3, "high": [1.0] * 3}
        put("model", f"{model.stem}-3d", bytes([0, 13]) + lines(bare | {key: json.dumps(solid)}))


for seed in (seed_numpy, seed_zarr_store, seed_caches, seed_filters, seed_safetensors, seed_texts, seed_run_files, seed_hdf5, seed_damaged_hdf5, seed_netcdf, seed_models):
    seed()
