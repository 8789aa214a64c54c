#!/usr/bin/env python3
"""Latent caches against zarr-python: what it reads is what was put in and what `ups cache export` writes, bit for bit.

  test_cache.py UPS MAKE_CACHE    UPS is the `ups` binary, MAKE_CACHE the test program that builds a small synthetic cache
Prints one line a claim; exit code 1 when one fails.
"""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import zarr

from sealed import check_of, xxh3
from tiny_run import PATIENCE

UPS, MAKE_CACHE = sys.argv[1], sys.argv[2]
PLUGIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "python")
SHAPE = (9, 21, 5, 32)
failures = 0


def claim(text, held, detail=""):
    global failures
    failures += not held
    print(("ok    " if held else "FAILS ") + text + (f": {detail}" if detail and not held else ""), flush=True)


def ups(*arguments):
    return subprocess.run([UPS, "cache", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)


def make(directory, *options):
    subprocess.run([MAKE_CACHE, directory, *options], check=True, timeout=PATIENCE)
    return np.fromfile(os.path.join(directory, "expected.f16"), "<f2").reshape(SHAPE)


def same(found, expected):
    return found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


def read_group(cache):
    return zarr.open_group(cache, mode="r")["waves/train"]


def check_plain(scratch):
    """Without the plug-in: a portable cache opens, one with ups.latent says which codec it wants."""
    assert importlib.util.find_spec("ups_zarr") is None, "the plug-in is installed already; this part would prove nothing"
    cache = os.path.join(scratch, "portable")
    expected = make(cache, "portable")
    group = read_group(cache)
    claim("a portable cache reads in zarr-python without the plug-in", same(group["latent"][:], expected))
    claim("so does one trajectory, and one frame of it", same(group["latent"][4], expected[4]) and same(group["latent"][8, 20], expected[8, 20]))
    latents = os.path.join(scratch, "latents")
    make(latents)
    try:
        read_group(latents)["latent"][0]
        claim("a cache with ups.latent is refused without the plug-in", False, "it was read")
    except Exception as problem:
        claim("a cache with ups.latent is refused without the plug-in", "ups.latent" in str(problem), repr(problem))
    check_small_arrays(read_group(latents))


def check_small_arrays(group):
    claim("times read as float64", same(group["time"][:], 0.05 * np.arange(SHAPE[1])))
    condition = group["condition"][:]
    claim("conditions read as float64, unknown ones NaN",
          np.array_equal(condition[:, 0], 0.1 * np.arange(9)) and np.array_equal(np.isnan(condition[:, 1]), np.arange(9) % 3 == 0))
    claim("source samples read as int64", same(group["source_sample"][:], np.arange(9)))
    statistics = group["statistics"]
    columns = statistics.attrs["columns"]
    values = statistics[:]
    claim("statistics have a row a sample and a column a name", values.shape == (9, len(columns)))
    claim("every value was finite and fitted", not values[:, columns.index("non_finite")].any() and not values[:, columns.index("overflowing")].any())


def install(scratch):
    """Installs the plug-in into a folder of its own, as a user would into an environment."""
    source, target = os.path.join(scratch, "plugin"), os.path.join(scratch, "site")
    shutil.copytree(PLUGIN, source)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation",
                    "--disable-pip-version-check", "--target", target, source], check=True, timeout=PATIENCE)
    return target


def check_with_plugin(scratch):
    from ups_zarr import latent

    cache = os.path.join(scratch, "latents")
    expected = make(cache)
    group = read_group(cache)
    array = group["latent"]
    claim("a cache with ups.latent reads through the installed plug-in", same(array[:], expected))
    claim("one trajectory and runs of frames read too", same(array[5], expected[5]) and same(array[2:7, 3:9, 1, ::2], expected[2:7, 3:9, 1, ::2]))
    claim("the array names its axes", array.metadata.dimension_names == ("sample", "time", "token", "dim"))
    attributes = group.attrs["ups"]
    claim("attributes.ups says complete, and what made the cache", attributes["complete"] is True and len(attributes["fingerprint"]["encoder_weights"]) == 32)

    for options in ((), ("portable",), ("skip=0,3,7",)):
        cache = os.path.join(scratch, "cache" + "".join(options))
        make(cache, *options)
        read = read_group(cache)["latent"][:]
        npy, hdf5 = os.path.join(scratch, "out.npy"), os.path.join(scratch, "out.h5")
        done = [ups("export", cache + "/waves/train", "--format", kind, "-o", path) for kind, path in (("npy", npy), ("hdf5", hdf5))]
        kind = options[0] if options else "ups.latent"
        claim(f"export succeeds ({kind})", all(d.returncode == 0 for d in done), done[0].stderr + done[1].stderr)
        claim(f"zarr-python reads what `ups cache export --format npy` writes ({kind})", same(np.load(npy), read))
        with h5py.File(hdf5) as f:
            claim(f"and what --format hdf5 writes ({kind})", same(f["latent"][:], read))
            claim(f"with times and conditions beside it ({kind})", f["time"].shape == (21,) and f["condition"].shape == (9, 2))
            claim(f"and attributes.ups ({kind})", json.loads(f["ups"][0])["complete"] is True)
    claim("skipped samples are NaN", np.isnan(read[[0, 3, 7]]).all() and np.isfinite(read[[1, 2, 4, 5, 6, 8]]).all())

    bits = np.random.default_rng(0).integers(0, 65536, (19, 3, 50), dtype=np.uint16)
    claim("any bits survive the codec in NumPy, in every order",
          all(same(latent.decode(latent.encode(bits.view("f2"), order), bits.shape), bits.view("f2")) for order in range(3)))
    long = (0x3c00 + np.arange(300)[:, None, None] * (np.arange(30)[:, None] % 5) + bits[:1].repeat(300, 0)[:, :1].repeat(30, 1) % 9).astype("<u2").view("f2")
    claim("trajectories of several blocks survive it, and are as small as their frequencies promise",
          same(latent.decode(latent.encode(long), long.shape), long) and len(latent.encode(long)) < long.nbytes / 8)
    grid = (np.round(np.sin(np.arange(40)[:, None, None] / 9 + np.arange(20)) * 700).repeat(3, 1) / 256).astype(np.float16)
    claim("so do multiples of a power of two, in less", same(latent.decode(latent.encode(grid), grid.shape), grid))
    static = np.random.default_rng(2).integers(0, 65536, (2, 4096), dtype=np.uint16)
    lanes = [latent.encode((static >> 16 - n).astype("<u2").view("f2"))[13] for n in (5, 9, 13)]
    claim("lanes are chosen by what a block promises", lanes == [16, 64, 64], str(lanes))
    wide = ((np.random.default_rng(1).integers(0, 4095, (40, 1, 64)) - 2047) / 1024).astype(np.float16)
    for what, place, byte in (("a coarser grid", 14, 40), ("another order", 12, 1)):
        damaged = bytearray(latent.encode(wide))
        damaged[place] = byte
        try:
            latent.decode(damaged, wide.shape)
            claim(f"numbers that FP16 does not have, by {what}, are refused", False, "they were read")
        except ValueError as problem:
            claim(f"numbers that FP16 does not have, by {what}, are refused", "FP16" in str(problem), str(problem))
    check_both_codecs(expected, cache=os.path.join(scratch, "latents"))
    rewritten = zarr.create_array(os.path.join(scratch, "rewritten"), shape=SHAPE, chunks=(1, *SHAPE[1:]), shards=(4, *SHAPE[1:]),
                                  dtype="float16", serializer={"name": "ups.latent"})
    rewritten[:] = expected
    claim("zarr-python writes with the plug-in what it then reads", same(rewritten[:], expected))


def check_both_codecs(expected, cache):
    """Takes a shard apart by hand, from docs/cache-format.md; then puts one of the NumPy encoder's chunks in its place."""
    import google_crc32c
    from ups_zarr import latent

    path = os.path.join(cache, "waves/train/latent/c/1/0/0/0")
    shard = open(path, "rb").read()
    index = np.frombuffer(shard[-(16 * 4 + 4):-4], "<u8").reshape(4, 2)
    chunks = [shard[offset:offset + length] for offset, length in index.tolist()]
    seal = shard[-(16 * 4 + 4 + 4 * 4 + 96):-(16 * 4 + 4)]
    claim("chunks, seal and index tile the shard", sum(map(len, chunks)) + len(seal) + 16 * 4 + 4 == len(shard))
    attributes = json.load(open(os.path.join(cache, "waves/train/zarr.json")))["attributes"]["ups"]
    statistics = open(os.path.join(cache, "waves/train/statistics/c/1/0"), "rb").read()
    claim("the seal names chunks, group, shard and statistics",
          seal[:-4] == b"".join(c[-4:] for c in chunks) + b"waves/train".ljust(64, b"\0") + bytes.fromhex(attributes["group"])
          + (1).to_bytes(8, "little") + statistics[-4:])
    listed = np.frombuffer(open(os.path.join(cache, "waves/train/shards/c/0/0"), "rb").read()[:-4], "<u8").reshape(3, 2)
    digest = f"{listed[1, 1]:016x}{listed[1, 0]:016x}"
    claim("the digest in `shards` is that of seal and index", digest == xxh3(shard[-(16 * 4 + 4 + 4 * 4 + 96):]))
    claim("`shards` has the hash that the group says", attributes["result"]["shards"] == xxh3(listed.tobytes()))
    for name, found in attributes["documents"].items():
        claim(f"the document of {name} has the hash that the group says", xxh3(open(os.path.join(cache, "waves/train", name, "zarr.json"), "rb").read()) == found)
    claim("so has the group's own", check_of(open(os.path.join(cache, "waves/train/zarr.json"), "rb").read()) == attributes["check"])
    claim("NumPy decodes what C encoded", all(same(latent.decode(c[:-4], e.shape), e) for c, e in zip(chunks, expected[4:8])))
    claim("both make the same bytes", all(c[:-4] == latent.encode(e) for c, e in zip(chunks, expected[4:8])))

    def checked(data):
        return data + google_crc32c.value(data).to_bytes(4, "little")

    chunks = [checked(latent.encode(e)) for e in expected[4:8]]
    lengths = np.array([len(c) for c in chunks], "<u8")
    index = np.stack([np.cumsum(lengths) - lengths, lengths], axis=1).astype("<u8")
    open(path, "wb").write(b"".join(chunks) + checked(b"".join(c[-4:] for c in chunks) + seal[16:-4]) + checked(index.tobytes()))
    exported = os.path.join(cache, "numpy.npy")
    done = ups("export", cache + "/waves/train", "--format", "npy", "-o", exported)
    claim("C decodes what NumPy encoded", done.returncode == 0 and same(np.load(exported), expected), done.stderr)
    open(path, "wb").write(shard)


def check_commands(scratch):
    cache = os.path.join(scratch, "commands")
    make(cache, "skip=2")
    facts = json.loads(ups("inspect", cache, "--json").stdout)
    claim("inspect --json tells samples, shape and ratio", facts[0]["present"] == 8 and facts[0]["shape"]["dim"] == 32 and facts[0]["ratio"] > 1)
    png = os.path.join(scratch, "latent.png")
    done = ups("inspect", cache, "--sample", 1, "--png", png)
    claim("inspect --png draws a trajectory", done.returncode == 0 and open(png, "rb").read(8) == b"\x89PNG\r\n\x1a\n", done.stderr)
    done = ups("inspect", cache, "--sample", 9)
    claim("a sample that is not there is a sentence", done.returncode == 1 and "the last is 8" in done.stderr, done.stderr)
    done = ups("verify", cache, "--json")
    claim("verify finds a sound cache sound", done.returncode == 0 and json.loads(done.stdout)[0]["sound"] is True)
    path = os.path.join(cache, "waves/train/latent/c/1/0/0/0")
    damaged = bytearray(open(path, "rb").read())
    damaged[100] ^= 1
    open(path, "wb").write(damaged)
    done = ups("verify", cache)
    claim("verify names shard and sample of a flipped bit, and ends with 1", done.returncode == 1 and path in done.stdout and "sample 4" in done.stdout, done.stdout)
    done = ups("verify", os.path.join(scratch, "nothing"))
    claim("a directory that is not there is a sentence", done.returncode == 1 and "nothing" in done.stderr, done.stderr)
    done = ups("export", cache + "/waves/train", "-o", os.path.join(scratch, "damaged.npy"))
    claim("export of a damaged cache fails and leaves no file", done.returncode == 1 and not os.path.exists(os.path.join(scratch, "damaged.npy")), done.stderr)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        if "--with-plugin" in sys.argv:
            check_with_plugin(scratch)
            check_commands(scratch)
            return
        check_plain(scratch)
        site = install(scratch)
        environment = dict(os.environ, PYTHONPATH=site)
        again = subprocess.run([sys.executable, __file__, UPS, MAKE_CACHE, "--with-plugin"], env=environment, timeout=PATIENCE)
        claim("all holds with the plug-in", again.returncode == 0)


main()
sys.exit(failures > 0)
