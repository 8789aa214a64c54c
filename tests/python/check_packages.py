#!/usr/bin/env python3
"""What the README says of packages, held against those that tools/wheel and tools/deb made.

  check_packages.py WHEEL DEB

The wheel is installed into a new virtual environment, and used from there as its readers would: the command and Python, with nothing else in the
environment. Whatever libraries this machine has, the wheel's are taken: all that its files are linked to lies in it, or belongs to the C library or
to what NumPy's own wheels need too. The Debian package is unpacked into a folder, and runs from there. Both are to hold the CUDA device. Prints a line
for each promise, and ends with exit code 1 when one is not kept.
"""
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import venv
import zipfile

OF_THE_SYSTEM = {"linux-vdso.so.1", "ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1",
                 "libstdc++.so.6", "libz.so.1"}
MOST_BYTES = 64 << 20
CONFIG = """\
output: runs/advection
data: {root: data}
tasks:
  - {name: advection, files: [advection.hdf5], patch: [8]}
model:
  tokens: grid
  operator: {core: stack, hidden: 32, depth: 2, heads: 2}
autoencoder: {steps: 0}
operator: {steps: 50}
"""
PYTHON = """\
import sys
import ups
data = ups.open("data/advection.hdf5")
beta = {"beta": data.parameters["beta"][0]}
fields = [ups.Model.load(path, threads=1).predict(data[0][None, 0], "advection", beta) for path in ("runs/advection", "model.safetensors")]
assert fields[0].shape == (1, *data.shape) and (fields[0] == fields[1]).all()
assert next(iter(data.loader(batch_size=4, frames=2))).values.shape == (4, 2, *data.shape[1:])
with open("/proc/self/maps") as maps:
    print(*sorted({line.split()[-1] for line in maps if ".so" in line}), sep="\\n")
"""

kept = True


def promise(what, holds, found=""):
    global kept
    kept = kept and bool(holds)
    print(f"{'ok   ' if holds else 'FAILS'} {what}{'' if holds else f': {found}'}", flush=True)


def run(*command, **options):
    return subprocess.run(list(map(str, command)), **{"capture_output": True, "text": True, "timeout": 300, **options})


def must(*command, **options):
    done = run(*command, **options)
    promise(" ".join(os.path.basename(part) if part.startswith("/") else part for part in map(str, command)) + ": exit code 0",
            done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}")
    return done


def linked(path):
    """{name: where it is found} of all that a file needs, also through others."""
    return {os.path.basename(name): place for name, place in re.findall(r"^\s*(\S+)(?: => (.+?))?(?: \(0x\w+\))?$", run("ldd", path).stdout, re.M)}


def interrupted(program, words, **options):
    """Exit code of a training that gets what Ctrl-C sends once it has said these words."""
    with subprocess.Popen([program, "train", "long.yaml"], stderr=subprocess.PIPE, text=True, **options) as process:
        for line in process.stderr:
            if words in line:
                process.send_signal(signal.SIGINT)
                break
        process.stderr.read()
    return process.returncode


def check_wheel(wheel, folder):
    promise(f"the wheel has at most {MOST_BYTES >> 20} MiB", os.path.getsize(wheel) <= MOST_BYTES)
    if platform.libc_ver() == ("glibc", "2.36"):
        promise("made on Debian 12 it wants glibc 2.34 and no later one", "-manylinux_2_34_" in wheel, wheel)
    place = os.path.join(folder, "environment")
    venv.create(place, with_pip=True)
    environment = {"PATH": f"{place}/bin:/usr/bin:/bin", "HOME": folder, "LANG": "C.UTF-8"}
    options = {"cwd": folder, "env": environment}
    done = run(f"{place}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "5", wheel, cwd=folder)
    promise("one `pip install` is enough", done.returncode == 0, done.stderr)

    site = run(f"{place}/bin/python", "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", **options).stdout.strip()
    program = f"{place}/bin/ups"
    inside = (os.path.join(site, "ups.libs", ""), os.path.join(site, "ups", ""))
    files = [os.path.join(site, name) for name in zipfile.ZipFile(wheel).namelist() if re.search(r"\.so|/bin/ups$|/test_ops$", name)]
    strange = {f"{os.path.basename(path)} takes {name} from {found}" for path in files for name, found in linked(path).items()
               if name not in OF_THE_SYSTEM and not os.path.realpath(found or "").startswith(inside)}
    promise(f"all that {len(files)} files need is in the wheel, or the system's", len(files) > 10 and not strange, strange)
    names = [re.sub(r"-[0-9a-f]{8}", "", os.path.basename(path)) for path in files]
    promise("no library is in it twice", len(set(names)) == len(names), names)
    promise("the CUDA device is in it", "libups_cuda.so" in names)

    promise("the command tells the project's version", must(program, "--version", **options).stdout.split()[1] == os.path.basename(wheel).split("-")[1])
    times = []
    for _ in range(9):
        begun = time.perf_counter()
        run(program, "--version", **options)
        run_through = time.perf_counter() - begun
        begun = time.perf_counter()
        run(f"{site}/ups/bin/ups", "--version", **options)
        times.append(run_through - (time.perf_counter() - begun))
    promise("the command begins at most 0.1 s after the program would", min(times) < 0.1, times)
    must(f"{place}/bin/python", "-m", "ups", "--version", **options)
    promise("exit codes are the program's", run(program, "nonsense", **options).returncode == 2)
    with subprocess.Popen([program, "--help"], stdout=subprocess.PIPE, **options) as process:
        process.stdout.close()  # as `| head` does
    promise("and so is how it ends where nobody reads", process.returncode == -signal.SIGPIPE, process.returncode)

    must(program, "doctor", **options)
    os.mkdir(os.path.join(folder, "data"))
    must(program, "datagen", "advection1d", "-o", "data/advection.hdf5", "--samples", "20", "--resolution", "64", "--steps", "11", **options)
    for name, text in (("short.yaml", CONFIG), ("long.yaml", CONFIG.replace("steps: 50", "steps: 1000000").replace("runs/", "runs/long-"))):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    must(program, "train", "short.yaml", **options)
    must(program, "rollout", "short.yaml", "-o", "rollout.h5", "--png", "pictures", **options)
    must(program, "export", "runs/advection", "-o", "model.safetensors", **options)
    with open(os.path.join(folder, "predict.py"), "w", encoding="utf-8") as file:
        file.write(PYTHON)
    loaded = must(f"{place}/bin/python", "predict.py", **options).stdout.split()
    ours = {os.path.basename(path).split("-")[0].split(".")[0] for path in files}
    strange = [path for path in loaded if re.split("[-.]", os.path.basename(path))[0] in ours and not path.startswith(site)]
    promise("Python reads, loads batches and predicts with the wheel's libraries", len(loaded) > 10 and not strange, loaded)
    must(program, "test-ops", "--device", "cpu", "--ops", "gelu", **options)
    must(program, "train", "long.yaml", "--plan", "--device", "cuda", "--memory", "80", **options)
    code = interrupted(program, "operator: ", **options)
    promise("Ctrl-C during a training ends it with exit code 130", code == 130, code)


def check_deb(deb, folder):
    place = os.path.join(folder, "debian")
    must("dpkg-deb", "-x", deb, place)
    control = must("dpkg-deb", "-f", deb, "Package", "Version", "Depends", "Maintainer").stdout
    promise("it needs what its files are linked to", all(name in control for name in ("libhdf5", "libcairo2", "libzstd1", "libgomp1")), control)
    for name in ("bin/ups", "lib/libups.so.0", "lib/libups.so", "include/ups.h", "lib/pkgconfig/ups.pc", "lib/cmake/ups/upsConfig.cmake",
                 "lib/ups/libups_cuda.so", "libexec/ups/test_ops", "share/man/man1/ups.1.gz", "share/bash-completion/completions/ups", "share/zsh/vendor-completions/_ups",
                 "share/fish/vendor_completions.d/ups.fish", "share/doc/ups/copyright", "share/doc/ups/library.md"):
        promise(f"/usr/{name} is in it", os.path.exists(f"{place}/usr/{name}"))
    for name in ("bin/ups", "lib/libups.so.0"):
        promise(f"{name} has no symbols to be stripped", not run("nm", f"{place}/usr/{name}").stdout)
    options = {"cwd": folder, "env": {"PATH": "/usr/bin:/bin", "HOME": folder, "LANG": "C.UTF-8"}}
    findings = json.loads(must(f"{place}/usr/bin/ups", "doctor", "--json", **options).stdout)["findings"]
    mpi = next(finding["text"] for finding in findings if finding["topic"] == "MPI")
    promise("it trains over MPI", "mpirun" in mpi, mpi)
    must(f"{place}/usr/bin/ups", "train", "short.yaml", "--set", "output=runs/deb", **options)
    must(f"{place}/usr/bin/ups", "test-ops", "--device", "cpu", "--ops", "gelu", **options)


def main():
    wheel, deb = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="ups-packages-") as folder:
        check_wheel(wheel, folder)
        check_deb(deb, folder)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
