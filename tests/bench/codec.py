#!/usr/bin/env python3
"""The cache's codec beside general codecs, on the same latents, in turn: ratio and speeds, one thread.

  codec.py UPS LATENTS.npy... [--peers CODEC_PEERS.py] [--rounds N]

LATENTS.npy is an array (sample, time, token, dim) float16, as `ups cache export` writes it. Without CODEC_PEERS.py, which prints a line
{"codec", "ratio", "encode_gb_s", "decode_gb_s"} each, zstd and Blosc of numcodecs are measured here. Prints a JSON line for each file: our
figures, the best peer's, and the quotients; medians over the rounds, in CPU time; then the mean ratio over those with more than two times. Exit code 1
when a ratio is below the best peer's, a decode below 1.6 GB/s or an encode below 0.5 GB/s of latents (static ones, a few kilobytes each,
apart), or the mean ratio below 3.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

LEAST_OVER_PEER, LEAST_DECODE, LEAST_ENCODE, LEAST_MEAN = 1.0, 1.6, 0.5, 3.0


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"{command[0]} failed")
    return done.stdout


def ours(ups, path):
    return json.loads(run(ups, "bench", "codec", path, "--repeat", "3", "--json"))[0]


def peers_script(script, path):
    return [json.loads(line) for line in run(sys.executable, script, path).splitlines()]


def peers_here(path):
    import numcodecs
    import numpy as np
    from numcodecs import Blosc, Zstd

    numcodecs.blosc.set_nthreads(1)
    latents = np.load(path)
    codecs = {"zstd-1": Zstd(1), "zstd-3": Zstd(3), "blosc-shuffle-zstd": Blosc("zstd", 3, Blosc.SHUFFLE),
              "blosc-bitshuffle-zstd": Blosc("zstd", 3, Blosc.BITSHUFFLE), "blosc-bitshuffle-lz4": Blosc("lz4", 5, Blosc.BITSHUFFLE)}
    rows = []
    for name, codec in codecs.items():
        start = time.process_time()
        packed = [codec.encode(np.ascontiguousarray(sample)) for sample in latents]
        encode = time.process_time() - start
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            for chunk in packed:
                codec.decode(chunk)
            best = min(best, time.process_time() - start)
        rows.append({"codec": name, "ratio": latents.nbytes / sum(map(len, packed)), "encode_gb_s": latents.nbytes / encode / 1e9,
                     "decode_gb_s": latents.nbytes / best / 1e9})
    return rows


def compare(ups, latents, peers, rounds):
    mine, theirs = [], []
    for _ in range(rounds):
        mine.append(ours(ups, latents))
        theirs.append(peers_script(peers, latents) if peers else peers_here(latents))
    best = max(theirs[0], key=lambda row: row["ratio"])
    same = [next(row for row in rows if row["codec"] == best["codec"]) for rows in theirs]

    def middle(rows, key):
        return round(statistics.median(row[key] for row in rows), 3)

    codec = [row["codecs"][0] for row in mine]
    return {
        "latents": latents,
        "shape": mine[0]["shape"],
        "ratio": round(codec[0]["ratio"], 3),
        "best_peer": best["codec"],
        "best_peer_ratio": round(best["ratio"], 3),
        "ratio_over_best_peer": round(codec[0]["ratio"] / best["ratio"], 2),
        "encode_gb_s": middle(codec, "encode_gb_s_per_thread"),
        "best_peer_encode_gb_s": middle(same, "encode_gb_s"),
        "decode_gb_s": middle(codec, "decode_gb_s_per_thread"),
        "best_peer_decode_gb_s": middle(same, "decode_gb_s"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ups")
    parser.add_argument("latents", nargs="+")
    parser.add_argument("--peers")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rows, fine = [], True
    for path in arguments.latents:
        row = compare(arguments.ups, path, arguments.peers, arguments.rounds)
        print(json.dumps(row), flush=True)
        fine &= row["ratio_over_best_peer"] >= LEAST_OVER_PEER
        if row["shape"][1] <= 2:
            continue
        fine &= row["decode_gb_s"] >= LEAST_DECODE and row["encode_gb_s"] >= LEAST_ENCODE
        rows.append(row)
    if rows:
        mean = statistics.mean(row["ratio"] for row in rows)
        print(json.dumps({"mean_ratio": round(mean, 3), "over": len(rows)}))
        fine &= mean >= LEAST_MEAN
    sys.exit(not fine)


main()
