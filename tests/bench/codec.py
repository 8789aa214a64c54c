#!/usr/bin/env python3
"""The cache's codec beside general codecs, on the same latents, in turn: ratio and decode speed, one thread.

  codec.py UPS LATENTS.npy [CODEC_PEERS.py] [--rounds N]

LATENTS.npy is an array (sample, time, token, dim) float16, as `ups cache export` writes it. Without CODEC_PEERS.py, which prints a line
{"codec", "ratio", "decode_gb_s"} each, zstd and Blosc of numcodecs are measured here. Prints one JSON line: our figures, the best peer's
ratio, and the quotients; medians over the rounds. Exit code 1 when the ratio is less than twice the best peer's or decoding is below 1 GB/s.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

LEAST_RATIO, LEAST_DECODE = 2.0, 1.0


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"{command[0]} failed")
    return done.stdout


def ours(ups, path):
    return json.loads(run(ups, "bench", "codec", path, "--repeat", "3", "--json"))["codecs"][0]


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
        packed = [codec.encode(np.ascontiguousarray(sample)) for sample in latents]
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            for chunk in packed:
                codec.decode(chunk)
            best = min(best, time.perf_counter() - start)
        rows.append({"codec": name, "ratio": latents.nbytes / sum(map(len, packed)), "decode_gb_s": latents.nbytes / best / 1e9})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ups")
    parser.add_argument("latents")
    parser.add_argument("peers", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    mine, theirs = [], []
    for _ in range(arguments.rounds):
        mine.append(ours(arguments.ups, arguments.latents))
        theirs.append(peers_script(arguments.peers, arguments.latents) if arguments.peers else peers_here(arguments.latents))
    best = max(theirs[0], key=lambda row: row["ratio"])
    same = [next(row for row in rows if row["codec"] == best["codec"]) for rows in theirs]
    zstd = [next(row for row in rows if row["codec"] == "zstd-1") for rows in theirs]
    decode = statistics.median(row["decode_gb_s_per_thread"] for row in mine)
    result = {
        "latents": arguments.latents,
        "ratio": round(mine[0]["ratio"], 3),
        "best_peer": best["codec"],
        "best_peer_ratio": round(best["ratio"], 3),
        "ratio_over_best_peer": round(mine[0]["ratio"] / best["ratio"], 2),
        "decode_gb_s": round(decode, 3),
        "best_peer_decode_gb_s": round(statistics.median(row["decode_gb_s"] for row in same), 3),
        "decode_over_zstd_1": round(decode / statistics.median(row["decode_gb_s"] for row in zstd), 2),
    }
    print(json.dumps(result))
    sys.exit(result["ratio_over_best_peer"] < LEAST_RATIO or decode < LEAST_DECODE)


main()
