#!/usr/bin/env python3
"""The loader beside PyTorch's DataLoader, in turn (A B A B …), on the same data, page cache warm; prints the medians and their ratio.

  UPS_PEERS=DIR tests/bench/loader.py --ups build/tools/ups [--latents CACHE] [--h5 FILE] [--rounds 5] [--only ram,cold]

DIR holds torch_loader.py, which makes and reads pickled latents and PDEBench files; the interpreter that runs this script needs torch, numpy
and h5py. The comparisons:
  latents     a cache of FP16 latents (synthetic unless --latents names one: a task and split) against one .pt file a sample with the
              same values; whole trajectories as float32, batches of 4. DataLoader with 0 and with 2 workers; the better one counts.
  ram         the same, ours decoded in memory and handed out where it lies (`touched`: and every cache line of it read).
  zarr        a portable cache (plain Zarr v3, zstd) as ours, and by zarr-python and tensorstore where they are installed.
  fields      a PDEBench seed-group file with LZF chunks against h5py, likewise. --h5 names it, else one is made of smooth fields;
              a file with few groups is widened by repeating them, so that batches are full.
  contiguous  a PDEBench 1D file, one contiguous dataset, against h5py, likewise.
  cold        the same file against fio where it is installed, reads of one trajectory each: both around the page cache, and both
              through it after it was emptied of the file. GB/s.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, time
import numpy as np

BATCH = 4
THREADS = 2  # of ours; DataLoader gets as many workers


def output(*command):
    done = subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def in_turn(rounds, ours, peers):
    """Medians of samples/s: ours, and each of the peers, every round one after the other."""
    rates = {name: [] for name in ["ours", *peers]}
    first = []
    for _ in range(rounds):
        result = output(*ours)
        rates["ours"].append(result["samples_per_s"])
        first.append(result["first_batch_s"])
        for name, command in peers.items():
            rates[name].append(output(*command)["samples_per_s"])
    return {name: statistics.median(values) for name, values in rates.items()}, statistics.median(first)


def report(what, medians, first, wanted):
    best = max(value for name, value in medians.items() if name != "ours")
    facts = {"bench": what, **{name: round(value, 2) for name, value in medians.items()},
             "ratio": round(medians["ours"] / best, 2), "wanted": wanted, "first_batch_s": round(first, 3)}
    print(json.dumps(facts), flush=True)


def read_zarr(which, cache, epochs):
    """A peer: whole trajectories of a portable cache in random order, as float32 batches; prints samples/s."""
    random = np.random.default_rng(0)
    path = os.path.join(cache, "latent")
    if which == "tensorstore":
        import tensorstore
        context = tensorstore.Context({"data_copy_concurrency": {"limit": THREADS}, "file_io_concurrency": {"limit": THREADS}})
        array = tensorstore.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}, read=True, context=context).result()
        read = lambda rows: [part.result() for part in [array[int(row)].read() for row in rows]]
    else:
        import zarr
        zarr.config.set({"threading.max_workers": THREADS})
        array = zarr.open_array(path, mode="r")
        read = lambda rows: [array[int(row)] for row in rows]
    count, start = 0, 0.0
    for epoch in range(-1, epochs):  # the first warms up
        if epoch == 0:
            count, start = 0, time.perf_counter()
        order = random.permutation(array.shape[0])
        for first in range(0, len(order), BATCH):
            count += len(np.stack(read(order[first:first + BATCH])).astype(np.float32))
    print(json.dumps({"peer": which, "samples_per_s": count / (time.perf_counter() - start)}))


def fio_rate(path, block, direct):
    """GB/s of random reads of blocks, from a cold cache where they go through it; the better of two queue depths."""
    rates = []
    for depth in (16, 32):
        done = subprocess.run(["fio", "--name=read", f"--filename={path}", "--rw=randread", f"--bs={block}", f"--direct={direct}", "--invalidate=1",
                               "--ioengine=io_uring", f"--iodepth={depth}", "--readonly", "--output-format=json"],
                              check=True, stdout=subprocess.PIPE, text=True)
        rates.append(json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]["bw_bytes"] / 1e9)
    return max(rates)


def compare_cold(ups, path, block, rounds):
    for direct in (1, 0):
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(output(ups, "bench", "loader", path, "--cold", "--json", "--threads", THREADS, "--batch", BATCH,
                               *(["--direct"] if direct else []))["gb_per_s"])
            theirs.append(fio_rate(path, block, direct))
        ours, theirs = statistics.median(ours), statistics.median(theirs)
        print(json.dumps({"bench": "cold, direct" if direct else "cold, through the page cache", "ours_gb_per_s": round(ours, 2),
                          "fio_gb_per_s": round(theirs, 2), "ratio": round(ours / theirs, 2), "wanted": 0.85}), flush=True)


def write_pickles(ups, cache, directory):
    """One .pt file a sample with the latents of the cache, as torch_loader.py make-pt lays them out."""
    import torch
    array = os.path.join(directory, "latents.npy")
    subprocess.run([ups, "cache", "export", cache, "--format", "npy", "-o", array, "--quiet"], check=True,
                   stdout=subprocess.DEVNULL)
    pickles = os.path.join(directory, "pt")
    os.makedirs(pickles)
    for i, latent in enumerate(np.load(array, mmap_mode="r")):
        torch.save({"latent": torch.from_numpy(np.array(latent)), "params": None, "bc": None},
                   f"{pickles}/sample_{i:05d}.pt")
    os.remove(array)
    return pickles


def make_fields(path, groups):
    """Seed groups of two smooth channels as PDEBench's 2D diffusion-reaction has them: (101, 128, 128, 2), LZF."""
    import h5py
    random = np.random.default_rng(0)
    x = np.arange(128) / 128
    t = np.linspace(0, 5, 101)
    with h5py.File(path, "w") as file:
        for g in range(groups):
            field = np.zeros((101, 128, 128, 2), np.float32)
            for _ in range(4):
                k, phase, rate = random.integers(1, 6, 2), random.uniform(0, 6.28, 3), random.uniform(0.1, 2)
                wave = np.sin(6.2832 * k[0] * x + phase[0])[:, None] * np.sin(6.2832 * k[1] * x + phase[1])[None, :]
                field += (np.cos(rate * t + phase[2])[:, None, None] * wave)[..., None].astype(np.float32)
            field += random.normal(0, 1e-4, field.shape).astype(np.float32)
            group = file.create_group(f"{g:04d}")
            group.create_dataset("data", data=field, compression="lzf")
            group.create_dataset("grid/x", data=x.astype(np.float32))
            group.create_dataset("grid/y", data=x.astype(np.float32))
            group.create_dataset("grid/t", data=t.astype(np.float32))


def make_contiguous(path, samples):
    """As PDEBench's 1D advection: `tensor` (sample, 201, 1024), one contiguous dataset."""
    import h5py
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        tensor = file.create_dataset("tensor", (samples, 201, 1024), np.float32)
        for first in range(0, samples, 50):
            rows = tensor[first:first + 50].shape[0]
            tensor[first:first + 50] = random.normal(size=(rows, 201, 1024)).astype(np.float32)
        file["x-coordinate"] = np.linspace(0, 1, 1024, dtype=np.float32)
        file["t-coordinate"] = np.linspace(0, 2, 202, dtype=np.float32)
    return 201 * 1024 * 4


def widen(source, path, groups):
    """Repeats the groups of a file until there are `groups`; chunks are copied as they are stored."""
    import h5py
    with h5py.File(source) as file, h5py.File(path, "w") as wide:
        names = sorted(file)
        for g in range(max(groups, len(names))):
            file.copy(names[g % len(names)], wide, f"{g:04d}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ups", default="build/tools/ups")
    parser.add_argument("--peers", default=os.environ.get("UPS_PEERS"), help="directory of torch_loader.py ($UPS_PEERS)")
    parser.add_argument("--latents", help="a cache: the directory of one task and split")
    parser.add_argument("--h5", help="a PDEBench seed-group file")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="comparisons, separated by commas (default: all)")
    parser.add_argument("--peer", nargs=2, metavar=("NAME", "CACHE"), help=argparse.SUPPRESS)  # this script as a peer of itself
    args = parser.parse_args()
    if args.peer:
        return read_zarr(*args.peer, args.epochs)
    names = ("latents", "ram", "zarr", "fields", "contiguous", "cold")
    wanted = args.only.split(",") if args.only else names
    if not set(wanted) <= set(names):
        sys.exit(f"loader.py: --only takes some of {', '.join(names)}")
    if not args.peers:
        sys.exit("loader.py: set UPS_PEERS or --peers to the directory that holds torch_loader.py")
    peer = os.path.join(args.peers, "torch_loader.py")

    def ours(data, *more):
        return [args.ups, "bench", "loader", data, "--json", "--batch", BATCH, "--epochs", args.epochs, "--threads", THREADS, *more]

    def theirs(what, data):
        return {f"torch_{workers}_workers": [sys.executable, peer, what, data, "--batch", BATCH, "--epochs", args.epochs,
                                             "--workers", workers] for workers in (0, THREADS)}

    with tempfile.TemporaryDirectory() as directory:
        if {"latents", "ram"} & set(wanted):
            cache = args.latents
            if not cache:
                output(args.ups, "bench", "loader", "--make", f"{directory}/cache", "--samples", args.samples, "--json", "-e", 1)
                cache = f"{directory}/cache/bench/train"
            pickles = write_pickles(args.ups, cache, directory)
        if "latents" in wanted:
            report("latents", *in_turn(args.rounds, ours(cache), theirs("read-pt", pickles)), wanted=4.5)
        if "ram" in wanted:
            kept = ("--residency", "ram", "--in-place")
            report("ram", *in_turn(args.rounds, ours(cache, *kept), theirs("read-pt", pickles)), wanted=15)
            report("ram, touched", *in_turn(args.rounds, ours(cache, *kept, "--touch"), theirs("read-pt", pickles)), wanted=None)
        if "zarr" in wanted:
            output(args.ups, "bench", "loader", "--make", f"{directory}/portable", "--portable", "--samples", args.samples, "--json", "-e", 1)
            portable = f"{directory}/portable/bench/train"
            peers = {}
            for name, module in (("zarr", "zarr"), ("tensorstore", "tensorstore")):
                if subprocess.run([sys.executable, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode == 0:
                    peers[name] = [sys.executable, __file__, "--peer", name, portable, "--epochs", args.epochs]
                else:
                    print(f"loader.py: {module} is not installed; left out", file=sys.stderr)
            if peers:
                report("zarr", *in_turn(args.rounds, ours(portable), peers), wanted=1)

        if "fields" in wanted:
            fields = f"{directory}/fields.h5"
            if args.h5:
                widen(args.h5, fields, 16)
            else:
                make_fields(fields, 16)
            report("fields", *in_turn(args.rounds, ours(fields), theirs("read-h5", fields)), wanted=3)
        if {"contiguous", "cold"} & set(wanted):
            contiguous = f"{directory}/contiguous.h5"
            block = make_contiguous(contiguous, 1000)
            if "contiguous" in wanted:
                report("contiguous", *in_turn(args.rounds, ours(contiguous), theirs("read-h5", contiguous)), wanted=2)
            if "cold" in wanted and shutil.which("fio"):
                compare_cold(args.ups, contiguous, block, args.rounds)
            elif "cold" in wanted:
                print("loader.py: fio is not installed; the cold comparison is left out", file=sys.stderr)


if __name__ == "__main__":
    main()
