"""Latent caches and zarr-python with the plug-in of tools/python: test_cache.py installs it and runs this in a process that has it."""

import json
import os
from pathlib import Path

import google_crc32c
import h5py
import numpy as np
import pytest
import zarr
from ups_zarr import latent

from commands import CACHE_SHAPE, make_cache, same, ups
from sealed import check_of, xxh3


def read_group(cache):
    return zarr.open_group(cache, mode="r")["waves/train"]


def test_zarr_python_reads_and_writes_with_the_installed_plug_in(scratch):
    cache = os.path.join(scratch, "latents")
    expected = make_cache(cache)
    group = read_group(cache)
    array = group["latent"]
    assert same(array[:], expected), "a cache with ups.latent reads through the installed plug-in"
    assert same(array[5], expected[5]) and same(array[2:7, 3:9, 1, ::2], expected[2:7, 3:9, 1, ::2]), "one trajectory and runs of frames read too"
    assert array.metadata.dimension_names == ("sample", "time", "token", "dim"), "the array names its axes"
    attributes = group.attrs["ups"]
    assert attributes["complete"] is True and len(attributes["fingerprint"]["encoder_weights"]) == 32, \
        "attributes.ups says complete, and what made the cache"

    for options in ((), ("portable",), ("skip=0,3,7",)):
        cache = os.path.join(scratch, "cache" + "".join(options))
        make_cache(cache, *options)
        read = read_group(cache)["latent"][:]
        npy, hdf5 = os.path.join(scratch, "out.npy"), os.path.join(scratch, "out.h5")
        done = [ups("cache", "export", cache + "/waves/train", "--format", kind, "--force", "-o", path) for kind, path in (("npy", npy), ("hdf5", hdf5))]
        kind = options[0] if options else "ups.latent"
        assert all(d.returncode == 0 for d in done), f"export succeeds ({kind})"
        assert same(np.load(npy), read), f"zarr-python reads what `ups cache export --format npy` writes ({kind})"
        with h5py.File(hdf5) as f:
            assert same(f["latent"][:], read), f"and what --format hdf5 writes ({kind})"
            assert f["time"].shape == (21,) and f["condition"].shape == (9, 2), f"with times and conditions beside it ({kind})"
            assert json.loads(f["ups"][0])["complete"] is True, f"and attributes.ups ({kind})"
    assert np.isnan(read[[0, 3, 7]]).all() and np.isfinite(read[[1, 2, 4, 5, 6, 8]]).all(), "skipped samples are NaN"
    rewritten = zarr.create_array(os.path.join(scratch, "rewritten"), shape=CACHE_SHAPE, chunks=(1, *CACHE_SHAPE[1:]), shards=(4, *CACHE_SHAPE[1:]),
                                  dtype="float16", serializer={"name": "ups.latent"})
    rewritten[:] = expected
    assert same(rewritten[:], expected), "zarr-python writes with the plug-in what it then reads"


def test_any_bits_survive_the_codec_in_numpy():
    bits = np.random.default_rng(0).integers(0, 65536, (19, 3, 50), dtype=np.uint16)
    assert all(same(latent.decode(latent.encode(bits.view("f2"), order), bits.shape), bits.view("f2")) for order in range(3)), \
        "any bits survive the codec in NumPy, in every order"
    steps, noise = np.arange(300)[:, None, None] * (np.arange(30)[:, None] % 5), bits[:1].repeat(300, 0)[:, :1].repeat(30, 1) % 9
    long = (0x3c00 + steps + noise).astype("<u2").view("f2")
    assert same(latent.decode(latent.encode(long), long.shape), long) and len(latent.encode(long)) < long.nbytes / 8, \
        "trajectories of several blocks survive it, and are as small as their frequencies promise"
    grid = (np.round(np.sin(np.arange(40)[:, None, None] / 9 + np.arange(20)) * 700).repeat(3, 1) / 256).astype(np.float16)
    assert same(latent.decode(latent.encode(grid), grid.shape), grid), "so do multiples of a power of two, in less"
    static = np.random.default_rng(2).integers(0, 65536, (2, 4096), dtype=np.uint16)
    lanes = [latent.encode((static >> 16 - n).astype("<u2").view("f2"))[13] for n in (5, 9, 13)]
    assert lanes == [16, 64, 64], "lanes are chosen by what a block promises"
    wide = ((np.random.default_rng(1).integers(0, 4095, (40, 1, 64)) - 2047) / 1024).astype(np.float16)
    for place, byte in ((14, 40), (12, 1)):  # a coarser grid, another order
        damaged = bytearray(latent.encode(wide))
        damaged[place] = byte
        with pytest.raises(ValueError, match="FP16"):
            latent.decode(damaged, wide.shape)


def test_both_codecs_make_and_read_the_same_bytes(scratch):
    """Takes a shard apart by hand, from docs/cache-format.md; then puts one of the NumPy encoder's chunks in its place."""
    cache = os.path.join(scratch, "latents")
    expected = make_cache(cache)
    path = os.path.join(cache, "waves/train/latent/c/1/0/0/0")
    shard = Path(path).read_bytes()
    index = np.frombuffer(shard[-(16 * 4 + 4):-4], "<u8").reshape(4, 2)
    chunks = [shard[offset:offset + length] for offset, length in index.tolist()]
    seal = shard[-(16 * 4 + 4 + 4 * 4 + 96):-(16 * 4 + 4)]
    assert sum(map(len, chunks)) + len(seal) + 16 * 4 + 4 == len(shard), "chunks, seal and index tile the shard"
    attributes = json.loads(Path(os.path.join(cache, "waves/train/zarr.json")).read_text())["attributes"]["ups"]
    statistics = Path(os.path.join(cache, "waves/train/statistics/c/1/0")).read_bytes()
    assert (seal[:-4] == b"".join(c[-4:] for c in chunks) + b"waves/train".ljust(64, b"\0") + bytes.fromhex(attributes["group"])
          + (1).to_bytes(8, "little") + statistics[-4:]), "the seal names chunks, group, shard and statistics"
    listed = np.frombuffer(Path(os.path.join(cache, "waves/train/shards/c/0/0")).read_bytes()[:-4], "<u8").reshape(3, 2)
    digest = f"{listed[1, 1]:016x}{listed[1, 0]:016x}"
    assert digest == xxh3(shard[-(16 * 4 + 4 + 4 * 4 + 96):]), "the digest in `shards` is that of seal and index"
    assert attributes["result"]["shards"] == xxh3(listed.tobytes()), "`shards` has the hash that the group says"
    for name, found in attributes["documents"].items():
        assert xxh3(Path(os.path.join(cache, "waves/train", name, "zarr.json")).read_bytes()) == found, \
            f"the document of {name} has the hash that the group says"
    assert check_of(Path(os.path.join(cache, "waves/train/zarr.json")).read_bytes()) == attributes["check"], "so has the group's own"
    assert all(same(latent.decode(c[:-4], e.shape), e) for c, e in zip(chunks, expected[4:8])), "NumPy decodes what C encoded"
    assert all(c[:-4] == latent.encode(e) for c, e in zip(chunks, expected[4:8])), "both make the same bytes"

    def checked(data):
        return data + google_crc32c.value(data).to_bytes(4, "little")

    chunks = [checked(latent.encode(e)) for e in expected[4:8]]
    lengths = np.array([len(c) for c in chunks], "<u8")
    index = np.stack([np.cumsum(lengths) - lengths, lengths], axis=1).astype("<u8")
    Path(path).write_bytes(b"".join(chunks) + checked(b"".join(c[-4:] for c in chunks) + seal[16:-4]) + checked(index.tobytes()))
    exported = os.path.join(cache, "numpy.npy")
    done = ups("cache", "export", cache + "/waves/train", "--format", "npy", "--force", "-o", exported)
    assert done.returncode == 0 and same(np.load(exported), expected), "C decodes what NumPy encoded"
    Path(path).write_bytes(shard)
