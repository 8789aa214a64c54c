#!/usr/bin/env python3
"""The loader beside PyTorch's DataLoader, in turn (A B A B …), on the same data, page cache warm; prints the medians and their ratio.

  UPS_PEERS=DIR tests/bench/loader.py --ups build/tools/ups [--latents CACHE] [--h5 FILE] [--rounds 5]

DIR holds torch_loader.py, which makes and reads pickled latents and PDEBench files; the interpreter that runs this script needs torch, numpy
and h5py. Two comparisons:
  latents   a cache of FP16 latents (synthetic unless --latents names one: a task and split) against one .pt file a sample with the
            same values; whole trajectories as float32, batches of 4. DataLoader with 0 and with 2 workers; the better one counts.
  fields    a PDEBench seed-group file with LZF chunks against h5py, likewise. --h5 names it, else one is made of smooth fields;
            a file with few groups is widened by repeating them, so that batches are full.
"""
import argparse, glob, json, os, statistics, subprocess, sys, tempfile
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
    args = parser.parse_args()
    if not args.peers:
        sys.exit("loader.py: set UPS_PEERS or --peers to the directory that holds torch_loader.py")
    peer = os.path.join(args.peers, "torch_loader.py")

    def ours(data):
        return [args.ups, "bench", "loader", data, "--json", "--batch", BATCH, "--epochs", args.epochs, "--threads", THREADS]

    def theirs(what, data):
        return {f"torch_{workers}_workers": [sys.executable, peer, what, data, "--batch", BATCH, "--epochs", args.epochs,
                                             "--workers", workers] for workers in (0, THREADS)}

    with tempfile.TemporaryDirectory() as directory:
        cache = args.latents
        if not cache:
            output(args.ups, "bench", "loader", "--make", f"{directory}/cache", "--samples", args.samples, "--json", "-e", 1)
            cache = f"{directory}/cache/bench/train"
        pickles = write_pickles(args.ups, cache, directory)
        report("latents", *in_turn(args.rounds, ours(cache), theirs("read-pt", pickles)), wanted=4.0)

        fields = f"{directory}/fields.h5"
        if args.h5:
            widen(args.h5, fields, 16)
        else:
            make_fields(fields, 16)
        report("fields", *in_turn(args.rounds, ours(fields), theirs("read-h5", fields)), wanted=2.5)


if __name__ == "__main__":
    main()
