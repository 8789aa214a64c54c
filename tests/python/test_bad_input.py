"""Bad input: one sentence that names the file and says what to do, a non-zero exit, nothing half-written."""

import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import h5py
import numpy as np
import pytest


from commands import UPS, one_sentence, run, skipped, ups
from tiny_run import CONFIG, metrics, tree

NOBODY = 65534
SEED = 7


def refused(runs, arguments, *parts, unchanged=None, **options):
    """The command fails with one sentence and leaves every file of the scratch folder as it was."""
    folder = unchanged or runs.folder
    before = tree(folder)
    done = runs.run(*arguments, "--quiet", **options)
    message = one_sentence(done, *parts)
    after = tree(folder)
    assert {name for name in {*before, *after} if before.get(name, "") != after.get(name, "")} == set(), message
    return message


# ---- fields ----

def with_field_file(runs, write):
    """A configuration for one task whose file `write(path)` makes; what `ups train` needs to begin with it."""
    name = runs.fresh()
    path = os.path.join(runs.data, name + ".h5")
    write(path)
    text = CONFIG.replace("files: [advection.h5]", f"files: [{name}.h5]")
    return runs.config("fields_" + name, text), path


def refused_fields(runs, write, *parts):
    config, path = with_field_file(runs, write)
    refused(runs, ["train", config], *parts, re.escape(path))
    refused(runs, ["train", config, "--plan"], *parts, re.escape(path))
    refused(runs, ["data", "inspect", path], *parts, re.escape(path))


def original(runs):
    return Path(runs.data, "advection.h5").read_bytes()


def test_an_empty_file_is_refused(runs, trained):
    refused_fields(runs, lambda path: Path(path).touch(), "empty")


def test_a_file_that_is_not_there_is_refused(runs, trained):
    refused_fields(runs, lambda path: None, "No such file|there is no file")


def test_a_truncated_hdf5_file_is_refused_wherever_it_was_cut(runs, trained):
    whole = original(runs)
    for length in (1, 8, 100, len(whole) // 4, len(whole) // 2, len(whole) - 1):
        def write(path, length=length):
            Path(path).write_bytes(whole[:length])
        refused_fields(runs, write, "truncated|cut|damaged|not an HDF5 file|ends|shorter")


def test_a_file_that_is_no_hdf5_is_refused(runs, trained):
    def write(path):
        Path(path).write_bytes(random.Random(SEED).randbytes(5000))
    refused_fields(runs, write, "HDF5")


def test_an_hdf5_file_with_corrupted_metadata_is_refused(runs, trained):
    def write(path):
        with open(path, "wb") as file:
            damaged = bytearray(original(runs))
            start = damaged.find(b"TREE")
            damaged[start:start + 64] = b"\xff" * 64
            file.write(damaged)
    refused_fields(runs, write, "damaged|corrupt|cannot be")


def test_a_damaged_chunk_is_refused_naming_file_and_sample(runs, trained):
    def write(path):
        with h5py.File(os.path.join(runs.data, "advection.h5")) as old, h5py.File(path, "w") as new:
            for name in old:
                packed = {"compression": "gzip", "chunks": (1, *old[name].shape[1:])} if name == "tensor" else {}
                new.create_dataset(name, data=old[name][...], **packed)
            where = [new["tensor"].id.get_chunk_info(i) for i in range(12)]
        with open(path, "r+b") as file:
            for chunk in where:
                file.seek(chunk.byte_offset + chunk.size // 2)
                file.write(b"\xff" * 16)
    config, path = with_field_file(runs, write)
    refused(runs, ["train", config], re.escape(path), r"tensor\[\d+\]|sample \d+")


def write_few_chunks(path, **options):
    """230 400 chunks are declared, few are written."""
    with h5py.File(path, "w") as file:
        tensor = file.create_dataset("tensor", (400, 9, 64), "f4", chunks=(1, 1, 1), **options)
        tensor[0] = np.sin(np.arange(64))
        file["x-coordinate"], file["t-coordinate"] = np.linspace(0, 1, 64), np.linspace(0, 1, 10)


def test_a_file_that_is_yet_to_be_filled_is_read(runs, trained):
    _, path = with_field_file(runs, write_few_chunks)
    assert "400" in runs.must("data", "inspect", path).stdout


def test_a_missing_dataset_is_refused_naming_what_was_looked_for(runs, trained):
    def write(path):
        with h5py.File(path, "w") as file:
            file["something"] = np.zeros((4, 9, 32), "f4")
    refused_fields(runs, write, "tensor|layout")


@pytest.mark.parametrize("shape", [(32,), (2, 2, 2, 9, 32)])
def test_a_dataset_of_the_wrong_rank_is_refused_with_the_right_one(runs, shape):
    def write(path):
        with h5py.File(path, "w") as file:
            file["tensor"] = np.zeros(shape, "f4")
            file["x-coordinate"], file["t-coordinate"] = np.linspace(0, 1, 32), np.linspace(0, 1, 9)
    refused_fields(runs, write, f"rank|{len(shape)} dimensions|shape|axes")


def changed(runs, change, **options):
    """Writes the file of the trained run as `change(file)` leaves it."""
    def write(path):
        shutil.copyfile(os.path.join(runs.data, "advection.h5"), path)
        with h5py.File(path, "r+", **options) as file:
            change(file)
    return write


def poisoned(runs, samples):
    def poison(file):
        for sample in samples:
            file["tensor"][sample, 3, 5] = np.nan
    return changed(runs, poison)


def samples(runs, split):
    """What a split of the advection task holds, as the cache of the trained run says (float64 and int64 arrays end
    with a CRC32C)."""
    chunk = Path(runs.path("trained", "cache", "advection", split, "source_sample", "c", "0")).read_bytes()
    return [sample for sample, in struct.iter_unpack("<q", chunk[:-4])]


def training_sample(runs):
    return samples(runs, "train")[0]


def test_a_nan_in_a_field_stops_the_run_naming_file_sample_and_frame(runs, trained):
    sample = training_sample(runs)
    config, path = with_field_file(runs, poisoned(runs, [sample]))
    refused(runs, ["train", config], re.escape(os.path.basename(path)), rf"tensor\[{sample}\]|sample {sample}\b", "frame 3", "NaN",
            "on_bad_sample: skip")


def test_a_nan_in_a_field_is_skipped_and_recorded_where_the_configuration_says_so(runs, trained):
    sample = training_sample(runs)
    config, path = with_field_file(runs, poisoned(runs, [sample]))
    done = runs.must("train", config, "--set", "data.on_bad_sample=skip")
    assert re.search(rf"(tensor\[{sample}\]|sample {sample}\b).*NaN", done.stderr)
    folder = config.removesuffix(".yaml")
    assert all(line["loss"] is not None for line in metrics(folder) if "loss" in line)
    recorded = json.loads(Path(folder, "cache", "advection", "train", "zarr.json").read_text())["attributes"]["ups"]
    assert [entry["source_sample"] for entry in recorded["result"]["skipped"]] == [sample]
    runs.must("cache", "verify", os.path.join(folder, "cache"))


def test_a_split_of_nothing_but_bad_samples_is_skipped_and_recorded_too(runs, trained):
    config, path = with_field_file(runs, poisoned(runs, samples(runs, "test")))
    runs.must("train", config, "--set", "data.on_bad_sample=skip", "--stage", "autoencoder")
    done = runs.must("cache", "build", config, "--set", "data.on_bad_sample=skip", "--json")
    built = {group["split"]: group["skipped"] for group in json.loads(done.stdout) if group["task"] == "advection"}
    assert built == {"train": 0, "validation": 0, "test": len(samples(runs, "test"))}


def listening(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)


@pytest.mark.parametrize("make, kind", [(os.mkfifo, "a named pipe"), (listening, "a socket"), (os.mkdir, "a directory"),
                                        (lambda path: os.symlink("/dev/zero", path), "a device")])
def test_what_is_no_regular_file_is_refused_at_once(runs, make, kind):
    config, path = with_field_file(runs, make)
    for command in (["data", "inspect", path], ["data", "dump", path, "-o", runs.path("no.npy")], ["train", config, "--plan"],
                    ["config", "check", path], ["train", path]):
        one_sentence(runs.run(*command), re.escape(path), kind)
    shutil.rmtree(path) if kind == "a directory" else os.remove(path)


def test_a_configuration_that_never_comes_is_not_waited_for_beyond_a_signal(runs, trained):
    with open(trained, encoding="utf-8") as file:
        whole = runs.run("config", "check", "/dev/stdin", stdin=file)
    assert whole.returncode == 0, whole.stderr
    with subprocess.Popen([UPS, "config", "check", "/dev/stdin"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as waiting:
        time.sleep(0.5)
        waiting.terminate()
        try:
            assert waiting.wait(timeout=20) == 143
        finally:
            waiting.kill()


@pytest.mark.parametrize("place, value, told", [(5, 0.1, "frame 4 is at .*, frame 5 at 0.1"), (5, None, "frame 4 is at .*, frame 5 at"),
                                                (8, np.nan, "frame 8 at")])
def test_times_that_do_not_increase_are_refused_naming_where(runs, place, value, told):
    def change(file):
        file["t-coordinate"][place] = file["t-coordinate"][place - 1] if value is None else value
    refused_fields(runs, changed(runs, change), "times do not increase", told)


def test_times_of_steps_that_rounding_made_uneven_are_read(runs, trained):
    def change(file):
        steps = np.float32(1000) + np.float32(1e-3) * np.arange(file["t-coordinate"].shape[0], dtype="f4")
        del file["t-coordinate"]
        file["t-coordinate"] = steps
    _, path = with_field_file(runs, changed(runs, change))
    runs.must("data", "inspect", path)


# ---- what a terminal would take for commands ----

TITLE = "\x1b]0;owned\x07"


def nothing_for_the_terminal(done):
    for text in (done.stdout, done.stderr):
        assert [c for c in text if ord(c) < 32 and c not in "\n\t" or 127 <= ord(c) < 160] == [], repr(text)


def test_escape_sequences_in_names_are_shown_and_not_obeyed(runs, trained):
    def strange(path):
        with h5py.File(path, "w") as file:
            file["a" + TITLE + "b"] = np.zeros(3)

    def attributes(file):
        file.attrs["nu" + TITLE + "\u009b31m\u202e"] = 0.5
        file.attrs["config"] = "sim:\n  beta: 0.25"
    for write, code in ((strange, 1), (changed(runs, attributes), 0)):
        config, path = with_field_file(runs, write)
        done = runs.run("data", "inspect", path)
        assert done.returncode == code, done.stderr
        nothing_for_the_terminal(done)
        assert "\\u001b]0;owned\\u0007" in done.stdout + done.stderr
        told = runs.run("data", "inspect", "--json", path)
        nothing_for_the_terminal(told)
        assert "owned" in str(json.loads(told.stdout))
        nothing_for_the_terminal(runs.run("train", config, "--plan"))


def test_escape_sequences_in_names_of_files_are_shown_and_not_obeyed(runs, trained):
    folder = os.fsencode(runs.path(runs.fresh()))
    os.mkdir(folder)
    for name in (TITLE.encode() + b".h5", b"latin-\xe9.h5"):
        path = os.path.join(folder, name)
        gone = runs.run("data", "inspect", path)
        one_sentence(gone, r"owned|latin-\\xe9", "No such file")
        nothing_for_the_terminal(gone)
        shutil.copyfile(os.path.join(runs.data, "advection.h5"), path)
        nothing_for_the_terminal(runs.must("data", "inspect", path))
        for command in (["data", "inspect", "--json", path], ["data", "inspect", "--json", path + b".gone"],
                        ["data", "dump", path, "-o", os.path.join(folder, b"x.npy"), "--json"]):
            done = runs.run(*command)
            nothing_for_the_terminal(done)
            assert json.loads(done.stdout)
    nothing_for_the_terminal(runs.run("data", TITLE))
    nothing_for_the_terminal(runs.run("data", "inspect", "--" + TITLE))


# ---- where nothing can be written ----

def test_standard_output_that_cannot_be_written_is_a_failure(runs, trained):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = run(UPS, "data", "inspect", os.path.join(runs.data, "advection.h5"), capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert re.search("standard output cannot be written: No space left", done.stderr)


def without_rights(runs):
    """How to run as somebody who may not write what root owns; the binary is copied to where anybody can run it."""
    if os.geteuid() != 0:
        return [UPS]
    copy = runs.path("ups")
    if not os.path.exists(copy):
        shutil.copy(UPS, copy)
        os.chmod(copy, 0o755)
    nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if run(*nobody, "true").returncode != 0:
        pytest.skip("root of this container cannot become another user, and may write anywhere")
    return [*nobody, copy]


def test_a_directory_without_rights_is_refused(runs, trained):
    config, folder = runs.copy("trained")
    locked = runs.path("locked")
    os.mkdir(locked, 0o555)
    for arguments in (["train", config, "--set", f"output={locked}/run"],
                      ["train", config, "--set", f"output={locked}"],
                      ["cache", "build", config, "--set", f"cache.directory={locked}/cache"],
                      ["datagen", "advection1d", "-o", f"{locked}/a.h5", "-n", "2"]):
        command = [*without_rights(runs), *arguments, "--quiet"]
        before = tree(runs.folder)
        one_sentence(run(*command), re.escape(locked), "Permission denied")
        assert tree(runs.folder) == before
    os.chmod(locked, 0o755)


def test_a_directory_below_a_file_is_refused(runs, trained):
    config, folder = runs.copy("trained")
    plain = runs.path("plain-file")
    Path(plain).touch()
    refused(runs, ["train", config, "--set", f"output={plain}/run"], re.escape(plain), "not a directory|Not a directory")
    refused(runs, ["cache", "build", config, "--set", f"cache.directory={plain}/cache"], re.escape(plain), "not a directory|Not a directory")


def full(arguments, kib):
    """Runs with files of at most `kib` KiB: what writes more is told that there is no room, as on a full disk."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, kib << 10))
    return ups(*arguments, "--quiet", preexec_fn=limit)


def on_a_full_disk(config, folder, arguments, kib):
    """Runs with `folder` on a file system of `kib` KiB besides what it holds; None where mounting is not allowed.
    What was left of `folder` comes back into its place."""
    script = ('set -e; mkdir -p "$1.disk"; mount -t tmpfs -o size=$2k tmpfs "$1.disk"; cp -a "$1/." "$1.disk"; '
              'mount --move "$1.disk" "$1"; shift 2; save=$1; shift; set +e; "$@"; code=$?; mkdir "$save"; '
              'cp -a "$FOLDER/." "$save"; exit $code')
    held = sum(-(-os.path.getsize(os.path.join(at, name)) // 4096) * 4 for at, _, names in os.walk(folder) for name in names)
    saved = folder + ".saved"
    isolate = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if run(*isolate, "sh", "-c", 'mount -t tmpfs tmpfs "$0"', folder).returncode != 0:
        return None
    done = run(*isolate, "sh", "-c", script, "sh", folder, str(held + kib), saved, UPS, *arguments, "--quiet", env={**os.environ, "FOLDER": folder})
    shutil.rmtree(folder)
    shutil.move(saved, folder)
    return done


def nothing_half_written(folder):
    for name in tree(folder):
        assert "partial" not in name


def no_room(config, folder, arguments, kib, *parts):
    done = on_a_full_disk(config, folder, arguments, kib)
    message = "No space left on device"
    if done is None:
        skipped("a full disk", "no file system of one's own can be mounted here: files were limited in size instead")
        done, message = full(arguments, min(kib, 400)), "the limit on file size"  # a limit on each file: below a checkpoint's size
    one_sentence(done, message, re.escape(folder), *parts)
    nothing_half_written(folder)


def test_a_full_disk_stops_training_and_leaves_the_last_checkpoint_whole(runs, trained):
    config, folder = runs.copy("trained")
    expected = tree(folder)
    shutil.rmtree(os.path.join(folder, "checkpoints", "operator"))
    no_room(config, folder, ["train", config, "--stage", "operator", "--restart"], 200, "checkpoints/operator")
    no_room(config, folder, ["train", config, "--stage", "operator", "--resume"], 600, "checkpoints/operator")
    runs.must("train", config, "--stage", "operator", "--resume")
    found = tree(folder)
    found.pop("metrics.jsonl"), expected.pop("metrics.jsonl")
    assert {name for name in expected if found.get(name) != expected[name]} == {"config.yaml"}


def test_a_full_disk_stops_a_cache_build_which_then_goes_on(runs, trained):
    config, folder = runs.copy("trained")
    expected = tree(os.path.join(folder, "cache"))
    shutil.rmtree(os.path.join(folder, "cache"))
    done = on_a_full_disk(config, folder, ["cache", "build", config], 12)
    if done is None:
        skipped("a full disk", "no file system of one's own can be mounted here: files were limited in size instead")
        done = full(["cache", "build", config], 1)
    else:
        assert re.search(r"its latents are .* before compression, and .* are free .*: they may not fit", done.stderr)
    one_sentence(done, "No space left on device|File too large", re.escape(os.path.join(folder, "cache")))
    nothing_half_written(folder)
    runs.must("cache", "build", config)
    assert tree(os.path.join(folder, "cache")) == expected


# ---- caches ----

def test_a_cache_of_another_encoder_is_refused_naming_what_differs(runs, trained):
    config, folder = runs.copy("trained")
    other = runs.config("another-encoder")
    runs.must("train", other, "--stage", "autoencoder", "--set", "seed=99", "--quiet")
    shutil.copy(runs.path("another-encoder", "autoencoder.safetensors"), folder)
    refused(runs, ["train", config, "--stage", "operator", "--restart"], re.escape(os.path.join(folder, "cache")), "weights", "cache build",
            unchanged=os.path.join(folder, "cache"))
    refused(runs, ["cache", "build", config], re.escape(os.path.join(folder, "cache")), "weights", "--restart")
    runs.must("cache", "build", config, "--restart")
    runs.must("cache", "verify", os.path.join(folder, "cache"))
    done = runs.must("train", config, "--stage", "operator", "--restart")
    assert "(resumed)" not in done.stderr, "the operator went on with weights trained on other latents"


def test_a_cache_of_other_fields_is_refused_naming_them(runs, trained):
    config, folder = runs.copy("trained")
    data = runs.path("other-data")
    shutil.copytree(runs.data, data)
    runs.must("datagen", "advection1d", "-o", os.path.join(data, "advection.h5"), "-n", "12", "-r", "32", "--steps", "9", "--seed", "5", "--force")
    moved = runs.config(os.path.basename(folder), data=data)
    refused(runs, ["cache", "build", moved], re.escape(os.path.join(folder, "cache")), "source", "--restart")


def test_a_field_scale_changed_after_training_is_said_to_wait_for_a_new_one(runs, trained):
    config, folder = runs.copy("trained")
    before = tree(os.path.join(folder, "cache"))
    done = runs.must("cache", "build", config, "--set", "tasks[1].field_scale=[1, 3]")
    assert re.search("darcy: its field_scale was changed since the model was trained.*--restart", done.stderr)
    assert tree(os.path.join(folder, "cache")) == before


def flip(path, at, bits):
    content = bytearray(Path(path).read_bytes())
    content[at] ^= bits
    Path(path).write_bytes(content)


def test_flipped_bytes_in_shards_are_found_with_shard_and_sample(runs, trained):
    config, folder = runs.copy("trained")
    chance = random.Random(SEED)
    shards = sorted(os.path.join(at, name) for at, _, names in os.walk(os.path.join(folder, "cache")) for name in names
                    if os.sep + "latent" + os.sep in at + os.sep and name != "zarr.json")
    assert runs.run("cache", "verify", os.path.join(folder, "cache"), "--quiet").returncode == 0
    for _ in range(12):
        shard = chance.choice(shards)
        at, bits = chance.randrange(os.path.getsize(shard)), chance.randrange(1, 256)
        flip(shard, at, bits)
        done = runs.run("cache", "verify", os.path.join(folder, "cache"), "--json", "--quiet")
        assert done.returncode == 1, (shard, at)
        unsound = [group for group in json.loads(done.stdout) if not group["sound"]]
        assert len(unsound) == 1
        assert shard.startswith(unsound[0]["directory"] + os.sep)
        relative = os.path.relpath(shard, unsound[0]["directory"])
        assert all(relative in finding["message"] and "shard" in finding for finding in unsound[0]["findings"]), unsound
        assert any(re.search("sample|index", finding["message"]) for finding in unsound[0]["findings"]), unsound
        flip(shard, at, bits)
    assert runs.run("cache", "verify", os.path.join(folder, "cache"), "--quiet").returncode == 0


def test_training_on_a_damaged_shard_stops_naming_it(runs, trained):
    config, folder = runs.copy("trained")
    for number in range(3):
        shard = os.path.join(folder, "cache", "advection", "train", "latent", "c", str(number), "0", "0", "0")
        flip(shard, os.path.getsize(shard) // 3, 0x10)
    done = runs.run("train", config, "--stage", "operator", "--restart", "--quiet")
    one_sentence(done, re.escape(os.path.join(folder, "cache")), "checksum|changed|damaged", "verify|build|--restart")
    nothing_half_written(folder)


def test_a_folder_that_holds_no_cache_is_refused(runs, trained):
    for command in ("verify", "inspect"):
        refused(runs, ["cache", command, runs.data], re.escape(runs.data))
    refused(runs, ["cache", "verify", runs.path("nowhere")], re.escape(runs.path("nowhere")))


# ---- models and checkpoints ----

def malformed(runs):
    """Name and bytes of files that are no safetensors."""
    whole = Path(runs.path("trained", "autoencoder.safetensors")).read_bytes()
    length = struct.unpack_from("<Q", whole)[0]
    header = json.loads(whole[8:8 + length])

    def with_header(text):
        return struct.pack("<Q", len(text)) + text + whole[8 + length:]

    def changed(change):
        copy = json.loads(json.dumps(header))
        change(copy, next(name for name in copy if name != "__metadata__"))
        return with_header(json.dumps(copy).encode())

    def overlap(copy, first):
        begin, end = copy[first]["data_offsets"]
        copy[first]["data_offsets"] = [begin + 4, end + 4]

    yield "empty", b""
    yield "three bytes", whole[:3]
    yield "cut in the header", whole[:8 + length // 2]
    yield "cut in the data", whole[:-1]
    yield "longer than it says", whole + b"\0"
    yield "a header longer than the file", struct.pack("<Q", 1 << 62) + whole[8:]
    yield "a header that is no JSON", with_header(b"x" * length)
    yield "a header that is a list", with_header(b"[]")
    yield "an offset moved", changed(overlap)
    yield "another shape", changed(lambda copy, first: copy[first].update(shape=[7, 7]))
    yield "an unknown element type", changed(lambda copy, first: copy[first].update(dtype="Q7"))
    yield "a tensor of another name", changed(lambda copy, first: copy.update({"stranger": copy.pop(first)}))


def test_malformed_safetensors_are_refused_as_the_encoder(runs, trained):
    config, folder = runs.copy("trained")
    model = os.path.join(folder, "autoencoder.safetensors")
    shutil.rmtree(os.path.join(folder, "cache"))
    for what, content in malformed(runs):
        Path(model).write_bytes(content)
        one_sentence(runs.run("cache", "build", config, "--quiet"), re.escape(model))
        nothing_half_written(folder)
        shutil.rmtree(os.path.join(folder, "cache"), ignore_errors=True)
    os.remove(model)
    refused(runs, ["cache", "build", config], re.escape(model), "--stage autoencoder")


def test_malformed_checkpoints_are_refused_on_resume_and_left_alone(runs, trained):
    config, folder = runs.copy("trained")
    unfinish(folder)
    checkpoint = os.path.join(folder, "checkpoints", "autoencoder", "step-00000060.safetensors")
    for what, content in malformed(runs):
        Path(checkpoint).write_bytes(content)
        refused(runs, ["train", config, "--stage", "autoencoder", "--resume"], re.escape(checkpoint), "--restart",
                unchanged=os.path.join(folder, "checkpoints"))
    os.remove(checkpoint)
    refused(runs, ["train", config, "--stage", "autoencoder", "--resume"], re.escape(checkpoint), unchanged=os.path.join(folder, "checkpoints"))


def unfinish(folder):
    os.remove(os.path.join(folder, "state.json"))


def test_a_checkpoint_of_another_model_is_refused(runs, trained):
    config, folder = runs.copy("trained")
    unfinish(folder)
    resume = ["train", config, "--stage", "operator", "--resume"]
    for change, words in (("hidden=24", "shape"), ("depth=3", "blocks.2")):
        own = os.path.join(folder, "config.yaml")
        shown = json.loads(runs.must("config", "show", config, "--set", "model.operator." + change, "--json").stdout)["yaml"]
        Path(own).write_text(shown.replace("precision: auto", "precision: f32"))
        refused(runs, resume, "checkpoints/operator", words, "--restart", unchanged=os.path.join(folder, "checkpoints"))


def test_a_checkpoint_of_another_seed_is_refused(runs, trained):
    config, folder = runs.copy("trained")
    unfinish(folder)
    own = Path(folder, "config.yaml")
    own.write_text(own.read_text().replace("seed: 3", "seed: 4"))
    refused(runs, ["train", config, "--stage", "operator", "--resume"], "checkpoints/operator", "seed", "--restart",
            unchanged=os.path.join(folder, "checkpoints"))


def test_a_checkpoint_is_neither_continued_nor_overwritten_unasked(runs, trained):
    config, folder = runs.copy("trained")
    unfinish(folder)
    refused(runs, ["train", config, "--stage", "operator"], "checkpoints/operator", "--resume", "--restart",
            unchanged=os.path.join(folder, "checkpoints"))


def test_malformed_state_files_are_refused_and_left_alone(runs, trained):
    config, folder = runs.copy("trained")
    for name in ("state.json", "normalisation.json", "checkpoints/operator/latest.json"):
        path = os.path.join(folder, name)
        whole = Path(path).read_bytes()
        for what, content in (("empty", b""), ("cut", whole[:len(whole) // 2]), ("a list", b"[]\n"), ("other", b'{"operator": 3}\n')):
            if name == "normalisation.json" and what == "other":
                continue  # says nothing of the tasks, which are then measured anew
            Path(path).write_bytes(content)
            if "latest" in name:
                unfinish(folder)
            refused(runs, ["train", config, "--stage", "operator", "--resume"], re.escape(path), unchanged=os.path.join(folder, "checkpoints"))
            assert Path(path).read_bytes() == content
            Path(path).write_bytes(whole)
            if "latest" in name:
                shutil.copy(runs.path("trained", "state.json"), folder)


# ---- configurations ----

@pytest.mark.parametrize("override, key, told", [
    ("model.tokns=8", "model.tokns", "tokens"), ("model.tokens=many", "model.tokens", "number"), ("model.tokens=0", "model.tokens", "between|least"),
    ("model.operator.heads=3", r"model.operator.hidden: hidden \(16\)", r"heads \(3\)"), ("data.split.test=0.5", "data.split", "1 was expected"),
    ("tasks[1].name=advection", r"tasks\[1\].name", "already"), ("autoencoder.pairs_per_trajectory=3", "autoencoder.batch_size", "multiple"),
    ("precision=f16", "precision", "f32, tf32, bf16, fp16 or fp8"), ("tasks[0].patch=[4, 4]", "advection", "patch"),
    ("operator.losses.one_step.from=10", "operator.losses", "from"), ("tasks[0].field_scale=[1, 2]", "advection", "field_scale"),
    ("tasks[0].stride=100", "advection", "stride")])
def test_mistakes_in_a_configuration_are_told_with_file_and_key_and_a_script_gets_an_object(runs, override, key, told):
    refused(runs, ["train", runs.config("mistaken"), "--set", override], key, told)
    done = runs.run("train", runs.config("mistaken"), "--set", override, "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)["error"]
    assert answer["code"] == "config"
    assert re.search(key, answer["message"]) and re.search(told, answer["message"])
    assert not os.path.exists(runs.path("mistaken"))


def test_a_mistake_in_the_file_is_told_with_its_line(runs, trained):
    config = runs.config("misspelt", CONFIG.replace("  dim: 8", "  dimension: 8"))
    with open(config, encoding="utf-8") as file:
        line = next(i for i, text in enumerate(file, 1) if "dimension" in text)
    refused(runs, ["train", config], re.escape(f"{config}:{line}"), "model.dimension", "dim")
    refused(runs, ["train", runs.path("absent.yaml")], "absent.yaml", "No such file")


def test_what_is_nested_too_deep_is_refused_at_once(runs, trained):
    deep = 40000
    for content in ("a: " + "[" * deep + "]" * deep, "? " * deep, "".join("{a: " for _ in range(deep)),
                    "\n".join(" " * i + "a:" for i in range(200))):
        path = runs.path("deep.yaml")
        Path(path).write_text(content)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        refused(runs, ["config", "check", path], rf"{re.escape(path)}:\d+: nested more than 64 deep")
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 2
    refused(runs, ["config", "check", trained, "--set", ".".join(["a"] * deep) + "=1"], "more than 64 keys, one below the other")

    write = changed(runs, lambda file: file.attrs.__setitem__("config", "[" * deep), libver="latest")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    runs.must("data", "inspect", with_field_file(runs, write)[1])
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 2


def test_latents_larger_than_any_memory_are_refused(runs, trained):
    path = runs.path("latents.npy")
    header = "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 4294967296, 4294967296, 1), }\n".encode()
    Path(path).write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + bytes(64))
    refused(runs, ["bench", "codec", path], "latents.npy", "larger than")
