#!/usr/bin/env python3
"""What docs/container.md says of images, held against one that tools/container made.

  check_container.py BUILDER IMAGE

BUILDER is docker or podman, as root. Everything runs as a user that the image does not know, in a mounted folder of that user's, without a network. Prints a
line for each promise, and ends with exit code 1 when one is not kept.
"""
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time

from check_packages import CONFIG, promise
import check_packages

USER = 1234  # nobody's
NO_RING = {"defaultAction": "SCMP_ACT_ALLOW",
           "syscalls": [{"names": ["io_uring_setup", "io_uring_enter", "io_uring_register"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}
MOST_BYTES = 160_000_000  # on top of the base


def main():
    builder, image = sys.argv[1:]

    def call(*arguments, **options):
        return subprocess.run([builder, *map(str, arguments)], **{"capture_output": True, "text": True, "timeout": 300, **options})

    with tempfile.TemporaryDirectory(prefix="ups-container-") as folder:
        def inside(*command, options=(), program=None):
            entry = ("--entrypoint", program) if program else ()
            return call("run", "--rm", "--network", "none", "--user", f"{USER}:{USER}", "-v", f"{folder}:/work", *options, *entry, image, *command)

        def must(*command, **options):
            done = inside(*command, **options)
            promise(f"{options.get('program') or 'ups'} {' '.join(command)}: exit code 0", done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}")
            return done

        os.chmod(folder, 0o755)
        with open(os.path.join(folder, "no-ring.json"), "w", encoding="utf-8") as file:
            json.dump(NO_RING, file)
        for name, text in (("run.yaml", CONFIG.replace("steps: 50", "steps: 50, accumulation: 4")),
                           ("long.yaml", CONFIG.replace("steps: 50", "steps: 10000000").replace("runs/", "runs/long-"))):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        os.mkdir(os.path.join(folder, "data"))
        for path in (folder, *(os.path.join(folder, name) for name in os.listdir(folder))):
            os.chown(path, USER, USER)

        config = json.loads(call("image", "inspect", image, "--format", "{{json .Config}}").stdout)
        version = inside("--version").stdout.split()[-1]
        promise("its labels tell the version of the command", config["Labels"]["org.opencontainers.image.version"] == version, config)
        promise("it is not root's", config.get("User") not in (None, "", "0", "root"), config)
        manual = call("run", "--rm", "--entrypoint", "cat", image, "/usr/share/man/man1/ups.1.gz", text=False).stdout
        promise("the manual is in it", manual and b".TH UPS" in gzip.decompress(manual), manual)
        layers = [line.split(" ", 1) for line in call("history", "--no-trunc", "--human=false", image, "--format", "{{.Size}} {{.CreatedBy}}").stdout.splitlines()]
        sizes = [int(size) for size, by in layers if "apt-get" in by]
        promise(f"its packages take at most {MOST_BYTES // 1000000} MB", len(sizes) == 1 and sizes[0] <= MOST_BYTES, layers)

        profile = ("--security-opt", f"seccomp={folder}/no-ring.json")
        ring = next(finding for finding in json.loads(must("doctor", "--json", options=profile).stdout)["findings"] if finding["topic"] == "io_uring")
        promise("where io_uring is refused, doctor says so", "threads read instead" in ring["text"] and "seccomp" in json.dumps(ring), ring)
        must("datagen", "advection1d", "-o", "data/advection.hdf5", "--samples", "20", "--resolution", "64", "--steps", "11")
        must("train", "run.yaml", options=profile)
        must("eval", "run.yaml")
        must("rollout", "run.yaml", "-o", "rollout.h5", "--png", "pictures", options=("--read-only", "--tmpfs", "/tmp"))
        must("train", "run.yaml", "--plan", "--device", "cuda", "--memory", "80", "--set", "output=runs/planned")
        ranks = must("-n", "4", "--oversubscribe", "--bind-to", "none", "ups", "train", "run.yaml", "--set", "output=runs/ranks", program="mpirun",
                     options=("--shm-size", "64k"))
        promise("four processes need no /dev/shm, and complain of nothing", "4 processes train together" in ranks.stderr and "Read -1" not in ranks.stderr
                and "WARNING" not in ranks.stderr, ranks.stderr)

        name = f"ups-check-{os.getpid()}"
        call("run", "--detach", "--name", name, "--network", "none", "--user", f"{USER}:{USER}", "-v", f"{folder}:/work", image, "train", "long.yaml")
        begun = time.monotonic()
        while "operator, step" not in call("logs", name).stderr and time.monotonic() - begun < 120:
            time.sleep(0.2)
        call("stop", "-t", "60", name)
        code = call("wait", name).stdout.strip()
        words = call("logs", name).stderr
        call("rm", name)
        promise("a training that is stopped writes a checkpoint and ends with 143", code == "143" and "--resume goes on from there" in words, f"{code}\n{words}")

        owners = {os.path.join(place, file): os.stat(os.path.join(place, file)).st_uid for place, folders, files in os.walk(folder) for file in folders + files}
        strange = [path for path, owner in owners.items() if owner != USER]
        promise(f"{len(owners)} files are the user's", len(owners) > 30 and not strange, strange)
    return 0 if check_packages.kept else 1


if __name__ == "__main__":
    sys.exit(main())
