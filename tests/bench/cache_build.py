#!/usr/bin/env python3
"""A cache build beside its encoder alone, in turn (A B A B …): how much of the encoder's rate is left once fields are read and latents compressed
and written, and where the rest went.

  tests/bench/cache_build.py --ups build/tools/ups CONFIG [--set KEY=VALUE]... [--rounds 3]

CONFIG is a run with a trained autoencoder and one task, best all of it in the training split; its cache is built anew each round. Prints one JSON
line of medians: frames/s of both and their ratio, CPU time a frame in microseconds of both and of each stage, how much of the processors the
build used, and its rate in each tenth of the trajectories relative to the mean (whether a long build slows down).

`ratio` is to the faster way of encoding: as many encoders beside each other as there are processors (`apart`), or one on all of them (`fused`);
`fused_ratio` is to the latter. Both fall when the machine is shared, for the build has more threads to wait with; `processor_ratio` is what an idle
machine would give: the encoder's CPU time over all that the build takes.
"""
import argparse, json, statistics, subprocess


def output(*command):
    return json.loads(subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--ups", default="build/tools/ups")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    overrides = [part for each in args.set for part in ("--set", each)]
    alone, builds = [], []
    for _ in range(args.rounds):
        alone.append(output(args.ups, "bench", "encode", args.config, *overrides, "--runs", 1, "--seconds", 2, "--json", "--quiet"))
        groups = output(args.ups, "cache", "build", args.config, *overrides, "--restart", "--json", "--quiet")
        builds.append(max(groups, key=lambda group: group["encoded"]))
    rate = statistics.median(run["frames_per_s"] for run in alone)
    fused = statistics.median(run["fused"]["frames_per_s"] for run in alone)
    cost = statistics.median(min(run[way]["cpu_us_per_frame"] for way in ("apart", "fused")) for run in alone)
    middle = sorted(builds, key=lambda build: build["frames_per_s"])[len(builds) // 2]
    frames = middle["frames_per_s"] * middle["seconds"]
    stages = {name: round(1e6 * statistics.median(build["stages"][name]["processor_seconds"] for build in builds) / frames, 2)
              for name in middle["stages"]}
    used = 1e6 * statistics.median(build["processor_seconds"] for build in builds) / frames
    tenths = [statistics.median(part) for part in zip(*(build["trajectories_per_s_by_tenth"] for build in builds))]
    mean = statistics.mean(tenths) if tenths else 1
    print(json.dumps({"bench": "cache build", "trajectories": middle["encoded"], "frames": round(frames), "alone_frames_per_s": round(rate, 1),
                      "build_frames_per_s": round(middle["frames_per_s"], 1), "ratio": round(middle["frames_per_s"] / rate, 3),
                      "fused_frames_per_s": round(fused, 1), "fused_ratio": round(middle["frames_per_s"] / fused, 3), "wanted": 0.9,
                      "alone_us_per_frame": round(cost, 2), "build_us_per_frame": round(used, 2), "processor_ratio": round(cost / used, 3),
                      "stages_us_per_frame": stages, "processor_use": round(middle["processor_use"], 3),
                      "rate_by_tenth": [round(part / mean, 2) for part in tenths]}))


if __name__ == "__main__":
    main()
