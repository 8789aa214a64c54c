"""The `ups` command line itself: help, options, mistakes, signals, JSON."""

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import time

import pytest

from commands import TIMEOUT, TREE, UPS, limit, must, one_sentence, ups


def listed(text):
    return re.findall(r"^  ([a-z0-9-]+)  ", text.partition("Commands:\n")[2].partition("\n\n")[0], re.M)


@pytest.fixture(scope="module")
def helps():
    """The help of every command and group, by its words."""
    found, groups = {}, [()]
    for prefix in groups:
        for name in listed(must(*prefix, "--help").stdout):
            command = (*prefix, name)
            done = must(*command, "--help")
            assert done.stderr == ""
            found[command] = done.stdout
            groups += [command] if listed(done.stdout) else []
    return found


def test_every_command_and_group_explains_itself_and_ends_well(helps):
    assert ("doctor",) in helps
    assert ("config", "show") in helps
    for command, text in helps.items():
        assert "Usage: ups " + " ".join(command) in text
        assert text == must("help", *command).stdout


def test_a_mistyped_command_is_answered_with_the_right_one():
    for wrong, right in [("docter", "doctor"), ("dat", "data"), ("complet", "completion")]:
        answer = ups(wrong)
        assert answer.returncode == 2
        assert answer.stdout == ""
        assert f"did you mean '{right}'?" in answer.stderr
    assert "did you mean" not in ups("frobnicate").stderr


def test_a_mistyped_option_is_answered_with_the_right_one(helps):
    for command in (command for command, text in helps.items() if not listed(text)):
        answer = ups(*command, "--jsn")
        assert answer.returncode == 2
        assert "did you mean --json?" in answer.stderr
    assert "takes no value" in ups("doctor", "--json=1").stderr


def test_a_value_that_is_no_number_or_out_of_range_is_named_with_what_would_be_right():
    for value, sentence in [("many", "'many' is not a whole number"), ("1e3", "'1e3' is not a whole number"), ("0", "expected")]:
        answer = ups("datagen", "advection1d", "-o", "/nonexistent/x.h5", "--samples", value)
        assert answer.returncode == 2
        assert "--samples: " in answer.stderr
        assert sentence in answer.stderr
    assert "needs a value" in ups("datagen", "advection1d", "--samples").stderr


def test_with_json_a_mistake_is_an_object_on_standard_output():
    for arguments in [("doctor", "--json", "--nonsense"), ("nonsense", "--json"), ("completion", "--json", "tcsh")]:
        answer = ups(*arguments)
        assert answer.returncode == 2
        assert json.loads(answer.stdout)["error"]["code"] == "usage"


def test_with_json_configurations_are_objects_too():
    config = str(TREE / "configs/quickstart.yaml")
    assert json.loads(ups("config", "check", config, "--without-paths", "--json").stdout) == {"config": config}
    shown = json.loads(ups("config", "show", config, "--json").stdout)
    assert shown["yaml"] == re.sub(" # here .*", "", ups("config", "show", config).stdout)


def test_every_configuration_of_several_is_checked_whatever_is_wrong_with_one():
    good = sorted(map(str, (TREE / "configs").iterdir()))
    assert len(good) > 2
    assert ups("config", "check", "--without-paths", *good).stdout.count("no mistakes found") == len(good)
    done = ups("config", "check", "/no/such.yaml", *good, "--without-paths", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, [entry["config"] for entry in found[1:]]) == (1, good)
    assert "/no/such.yaml" in found[0]["error"]


def test_paths_begin_at_the_configurations_folder_and_are_all_checked(scratch):
    folder, config = os.path.join(scratch, "a", "configs"), os.path.join(scratch, "a", "configs", "run.yaml")
    os.makedirs(folder)
    os.makedirs(os.path.join(scratch, "a", "data"))
    made = os.path.join(scratch, "a", "data", "one.h5")
    must("datagen", "advection1d", "-o", made, "-n", "4", "-r", "32", "--steps", "4")
    text = f"output: {scratch}/run\ndata: {{root: ../data}}\ntasks:\n  - {{name: wave, files: [one.h5]}}\n"

    def check(text, *options, **where):
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        return ups("config", "check", config, *options, **where)

    for where in (scratch, folder, "/"):
        assert check(text, cwd=where).returncode == 0
        shown = json.loads(ups("config", "show", os.path.relpath(config, where), "--json", cwd=where).stdout)["yaml"]
        assert f"root: {os.path.realpath(scratch)}/a/data\n" in shown
    assert check(text, "--set", "data.root=a/data", cwd=scratch).returncode == 0  # those of --set begin at the working directory
    assert check(text.replace("../data", os.path.dirname(made))).returncode == 0
    for wrong, parts in (
            (("../data", "../date"), [r"data\.root: .*/a/date is not there"]), (("../data", "run.yaml"), ["data.root: .* is no folder"]),
            (("one.h5", "two.h5"), [r"tasks\[0\]\.files\[0\]: there is no file .*/a/data/two.h5; files are looked for below the key data.root"]),
            (("[one.h5]", '[one.h5, "t*.h5"]'), [r"tasks\[0\]\.files\[1\]: no file matches .*/a/data/t\*.h5"]),
            (("[one.h5]", "[.]"), ["is a directory, and no store of Zarr; a file was expected"]),
            ((f"output: {scratch}/run", f"output: {made}/run"), ["output: .* cannot be a folder: .*one.h5 is a file"]),
            (("tasks:", f"cache: {{directory: {made}}}\ntasks:"), ["cache.directory: .* cannot be a folder"])):
        one_sentence(check(text.replace(*wrong)), re.escape(config), *parts)
        assert check(text.replace(*wrong), "--without-paths").returncode == 0
    assert os.listdir(scratch) == ["a"]


@pytest.mark.parametrize("bench", ["loader -n 2 -e 1", "loader -n 2 -e 1 --portable", "codec --repeat 1", "io --size 1 --rounds 1 --seconds 0.02",
                                   "encode --points 64 --frames 2 --runs 1", "step --batch 1 --steps 1"])
def test_every_bench_runs_without_any_input_and_answers_with_figures(bench):
    assert json.loads(must("bench", *bench.split(), "--json").stdout)


def test_the_loaders_bench_says_how_fast_it_was_or_whether_anything_grew():
    found = json.loads(ups("bench", "loader", "-n", "3", "-e", "1", "-w", "2", "--json").stdout)
    assert (found["source"], found["samples"], found["residency"]) == ("latent", 3, "stream")
    assert found["io"] in ("uring", "threads")
    for figure in ("samples_per_s", "gb_per_s", "first_batch_s", "seconds", "trajectories"):
        assert found[figure] > 0, figure
    for waited in ("seconds_disk", "seconds_decode", "seconds_consumer", "seconds_full"):
        assert found[waited] >= 0, waited
    found = json.loads(ups("bench", "loader", "-n", "3", "-w", "2", "--batches", "30", "--json").stdout)
    assert sorted(found) == ["anonymous_growth", "descriptors_constant", "looks", "resident_growth"]
    looks = found["looks"]
    for look in looks:
        assert sorted(look) == ["anonymous_bytes", "batch", "descriptors", "resident_bytes", "seconds"]
        assert 0 < look["anonymous_bytes"] <= look["resident_bytes"] and look["descriptors"] > 0
    assert len(looks) == 11
    assert looks[-1]["batch"] == 30
    assert sorted(looks, key=lambda look: (look["batch"], look["seconds"])) == looks
    assert found["descriptors_constant"] is (len({look["descriptors"] for look in looks}) == 1)
    for kind in ("resident", "anonymous"):
        sizes = [look[f"{kind}_bytes"] for look in looks]
        assert found[f"{kind}_growth"] == pytest.approx(max(sizes) / sizes[0] - 1, abs=0.5e-4)


def test_the_version_is_one_line():
    assert re.search(r"^ups \d+\.\d+\.\d+\n$", ups("--version").stdout)


# ---- options

def options_of(text):
    """Letter, name and argument of every option in a help."""
    return re.findall(r"^  (?:-(\w), |    )--([a-z-]+)(?: (\S+))?", text.partition("Options:\n")[2].partition("\n\n")[0], re.M)


def test_a_letter_is_the_same_option_in_all_commands_and_once_in_each(helps):
    meaning = {}
    for command, text in helps.items():
        letters = [(letter, name) for letter, name, _ in options_of(text) if letter]
        assert len(dict(letters)) == len(letters), command
        for letter, name in letters:
            assert meaning.setdefault(letter, name) == name, (command, letter)
    assert {"o": "output", "s": "set", "t": "threads", "n": "samples", "f": "force", "q": "quiet"}.items() <= meaning.items()
    for letter, name in meaning.items():  # where the long one means the same
        without = [command for command, text in helps.items() for other, long, argument in options_of(text) if long == name and not other]
        assert without == ([("cache", "diff")] if name == "list" else []), letter


# ---- mistakes of the line end with 2, and name what was meant

def leaves(helps):
    return [command for command, text in helps.items() if not listed(text)]


def test_unknown_commands_options_and_missing_values_end_with_2_in_every_command(helps):
    for command in leaves(helps):
        for line in (["--no-such-option"], ["-Z"], ["--json=1"], ["--qiet"]):
            one_sentence(ups(*command, *line), "^ups " + " ".join(command) + ": ", code=2)
        for letter, name, argument in options_of(helps[command]):
            if argument:
                one_sentence(ups(*command, "--" + name), f"option --{name} needs a value", code=2)
            if argument and letter:
                one_sentence(ups(*command, "-" + letter), f"option -{letter} needs a value", code=2)
    for group in [()] + [command for command, text in helps.items() if listed(text)]:
        one_sentence(ups(*group, "no-such-command"), "unknown command 'no-such-command'", code=2)
        one_sentence(ups(*group, "--hepl"), "did you mean '--help'", code=2)
        assert ups(*group).returncode == 2


def test_values_of_another_form_end_with_2_in_every_command(helps):
    for command in leaves(helps):
        for _, name, argument in options_of(helps[command]):
            if argument in ("N", "I", "MIB", "KIB", "S", "N[,N...]", "N[xN]", "LIST", "AGE"):
                done = ups(*command, "/nonexistent", *["-o", "/nonexistent/x"] * ("--output" in helps[command]), "--" + name, "many")
                one_sentence(done, f"--{name}.*many", code=2)
            elif argument == "KEY=VALUE":
                one_sentence(ups(*command, "/nonexistent", "--set", "seed"), "KEY=VALUE", code=2)
            elif "|" in argument and not re.search("[A-Z]", argument):
                one_sentence(ups(*command, "/nonexistent", "--" + name, "nonesuch"), f"--{name}: 'nonesuch' is not", code=2)


WITHOUT_OPERANDS = {("bench", "io"), ("bench", "codec"), ("bench", "loader"), ("bench", "encode"), ("bench", "step"), ("doctor",), ("test-ops",),
                    ("cache", "list"), ("config", "keys"), ("config", "schema")}
ANY_NUMBER = {("data", "inspect"), ("config", "check"), ("config", "init"), ("cache", "list"), ("cache", "prune"), ("bench", "codec"),
              ("bench", "loader"), ("config", "keys")}


def test_missing_operands_and_too_many_end_with_2_in_every_command(helps):
    for command in leaves(helps):
        output = ["-o", "/nonexistent/x"] if "--output" in helps[command] else []
        if command not in WITHOUT_OPERANDS:
            one_sentence(ups(*command, *output), "expected", code=2)
        if command not in ANY_NUMBER:
            one_sentence(ups(*command, *output, *["/nonexistent"] * 3), "expected", code=2)
    one_sentence(ups("rollout", "x"), "-o", code=2)
    for command in ("train", "eval", "config show", "cache build", "rollout"):
        one_sentence(ups(*command.split(" "), "x.yaml", "++seed=7"), r"'\+\+seed=7' is not the name of a file; .* --set seed=7$", code=2)
    one_sentence(ups("rollout", "x.yaml", "-o", "out.zarr"), "'out.zarr': rollouts are written as HDF5, or as CF NetCDF-4", code=2)
    one_sentence(ups("cache", "export", "x"), "-o", code=2)


def test_what_is_not_there_or_not_sound_ends_with_1():
    for line in (["train", "/nonexistent.yaml"], ["cache", "inspect", "/nonexistent"], ["data", "inspect", "/nonexistent.h5"],
                 ["config", "show", str(TREE / "README.md")], ["eval", "/nonexistent"], ["bench", "codec", "/nonexistent"],
                 ["config", "show", str(TREE / "configs/quickstart.yaml"), "--set", "sede=7"]):
        one_sentence(ups(*line), code=1)


def test_every_misspelt_name_is_answered_with_the_one_that_was_meant(scratch):
    made = os.path.join(scratch, "wave.h5")
    must("datagen", "advection1d", "-o", made, "-n", "4", "-r", "32", "--steps", "4")
    config = os.path.join(scratch, "wave.yaml")
    with open(config, "w", encoding="utf-8") as file:
        file.write("output: run\ndata: {root: .}\ntasks:\n  - {name: advection, files: [wave.h5]}\n")
    for line, meant, code in (
            ("tarin", "'train'", 2), ("cache inspetc", "'inspect'", 2), ("config chekc", "'check'", 2), ("help dotcor", "'doctor'", 2),
            ("train x --resmue", "--resume", 2), ("train x -r", "--resume", 2), ("--verison", "'--version'", 2),
            ("train x --stage opreator", "'operator'", 2), ("eval x --split tets", "'test'", 2), ("rollout x -o y --split vaildation", "'validation'", 2),
            ("cache export x -o y --format hdf", "'hdf5'", 2), ("cache list --sort agee", "'age'", 2), ("bench step --dtype bfloat61", "'bfloat16'", 2),
            ("bench loader --residency steam", "'stream'", 2), ("data dump x -o y --io urign", "'uring'", 2),
            ("datagen advektion1d -o x.h5", "'advection1d'", 2), ("datagen burgers -o x.h5", "'burgers1d'", 2),
            ("datagen advection1d -o x.h5 -p bteta=1", "'beta'", 2), ("completion bsh", "'bash'", 2),
            ("config keys evalution", "'evaluation'", 2), ("config keys model.oprator", "'model.operator'", 2),
            (f"rollout {config} -o x.h5 --task advektion", "'advection'", 2), (f"bench encode {config} --task advektion", "'advection'", 2),
            (f"config show {config} --set sede=7", "'seed'", 1), (f"eval {config} --checkpoint latset", "'latest'", 1),
            (f"config show {config} --set model.operator.core=spectrl", "'spectral'", 1), (f"config show {config} --set data.residency=steam", "'stream'", 1),
            (f"data inspect {made} --layout '{{feilds: 1}}'", "'fields'", 1)):
        one_sentence(ups(*shlex.split(line), cwd=scratch), "did you mean " + meant, code=code)
    for line in ("frobnicate", "train x --stage frobnicate", "datagen frobnicate -o x.h5", f"rollout {config} -o x.h5 --task frobnicate"):
        assert "did you mean" not in one_sentence(ups(*line.split(" "), cwd=scratch), code=2)
    assert sorted(os.listdir(scratch)) == ["wave.h5", "wave.yaml"]


# ---- signals

def catches(process, number):
    """Whether it has come so far that it takes the signal."""
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as status:
        return int(re.search(r"SigCgt:\s*(\w+)", status.read())[1], 16) >> number - 1 & 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("line", ["bench loader -n 2 --epochs 1000000", "bench io --size 1 --seconds 600", "bench encode --axes 3 --runs 101",
                                  "bench step --batch 1 --steps 1000000"])
def test_what_a_signal_stopped_ends_with_128_and_its_number_and_leaves_nothing(scratch, line, number):
    with subprocess.Popen([UPS, *line.split()], env={**os.environ, "TMPDIR": scratch}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while running.poll() is None and not catches(running, number):
            time.sleep(0.01)
        time.sleep(0.5)
        running.send_signal(number)
        output, message = running.communicate(timeout=TIMEOUT)
    assert (running.returncode, output) == (128 + number, ""), message
    assert re.fullmatch("ups: .*\n", message)
    assert os.listdir(scratch) == []


# ---- what needs no device

def test_a_predicted_step_is_the_sum_of_its_ops_and_faster_on_the_faster_card():
    told = {card: json.loads(ups("bench", "step", "--batch", "64", "--dtype", "bfloat16", "--predict", card, "--json").stdout) for card in ("a100", "h100", "h200")}
    for facts in told.values():
        assert facts["claim"] == "predicted"
        assert sum(op["forward_ms"] + op["backward_ms"] + op["recompute_ms"] for op in facts["ops"]) == pytest.approx(facts["ms_per_step"], rel=1e-4)
        assert 0 < facts["mfu"] < 1
    assert told["a100"]["ms_per_step"] > told["h100"]["ms_per_step"] > told["h200"]["ms_per_step"]
    linear, norm = ({op["op"]: op for op in told["a100"]["ops"]}[name] for name in ("linear", "layer_norm"))
    assert linear["memory_bound_share"] < 0.5 and norm["memory_bound_share"] == 1
    blocks = json.loads(ups("bench", "step", "--batch", "64", "--predict", "a100", "--activation-checkpointing", "block", "--json").stdout)
    assert sum(op["recompute_ms"] for op in blocks["ops"]) > 0


def test_a_measured_step_is_held_against_the_data_sheet_that_was_named():
    step = ["bench", "step", "--batch", "1", "--dtype", "float32", "--json"]
    predicted = json.loads(ups(*step, "--predict", "a100").stdout)
    run = [*step, "--device", "cpu", "--steps", "1", "--profile"]
    measured, plain = json.loads(ups(*run, "--card", "a100").stdout), json.loads(ups(*run).stdout)
    assert measured["best_ms"] == pytest.approx(predicted["ms_per_step"], rel=1e-4)
    assert measured["mfu"] == pytest.approx(predicted["mfu"] * predicted["ms_per_step"] / measured["ms_per_step"], rel=1e-3)
    best = {op["op"]: op["forward_ms"] + op["backward_ms"] for op in predicted["ops"]}
    times = [op["forward_ms"] + op["backward_ms"] + op["recompute_ms"] for op in measured["profile"]]
    assert all(before >= 0.9999 * after for before, after in zip(times, times[1:]))  # longest first, as rounded
    assert {op["op"]: op["best_ms"] for op in measured["profile"] if "best_ms" in op} == pytest.approx(best, rel=1e-4)
    assert "mfu" not in plain and not any("best_ms" in op for op in plain["profile"])


# ---- docs/ups.1 says what the command itself says: neither has what the other lacks

@pytest.fixture(scope="module")
def sections():
    """Of the manual page, by their names."""
    return dict(re.findall(r"^\.SH (.*)\n((?:(?!\.SH ).*\n)*)", (TREE / "docs/ups.1").read_text(), re.M))


def test_the_manual_has_every_command_with_all_its_options(sections, helps):
    entries = dict(re.findall(r"^\.B ups ([a-z\\-]+(?: [a-z]+)*)(.*\n(?:(?!\.B ups |\.SS ).*\n)*)", sections["COMMANDS"], re.M))
    commands = [command for command, text in helps.items() if not listed(text)]
    entries = {name.replace("\\-", "-"): entry for name, entry in entries.items()}
    assert set(entries) == {" ".join(command) for command in commands}
    for command in commands:
        help_text = helps[command].partition("Options:\n")[2].partition("\n\n")[0]
        options = set(re.findall(r"^  (?:-(\w), |    )--([a-z-]+)", help_text, re.M))
        options -= {("h", "help"), ("", "json"), ("q", "quiet")}  # of every command
        told = re.findall(r"^\\fB(?:\\-(\w)\\fR, \\fB)?\\-\\-([a-z\\-]+?)\\fR", entries[" ".join(command)], re.M)
        assert {(letter, name.replace("\\-", "-")) for letter, name in told} == options, command


def test_the_manual_has_every_key_of_a_configuration_with_its_default(sections):
    keys = json.loads(ups("config", "keys", "--json").stdout)
    defaults = {key["key"]: "required" if key["required"] else (key["default"] or "none").replace("''", "none")
                for key in keys if not key["expected"].startswith(("a mapping", "a list of 1 to 256 mappings"))}
    assert "data.residency" in defaults
    assert dict(re.findall(r'^\.BR (\S+) " \((.*)\)"$', sections["CONFIGURATION"], re.M)) == defaults


# ---- doctor

def test_doctor_reports_every_part_of_the_machine():
    report = json.loads(ups("doctor", "--json").stdout)
    topics = {finding["topic"] for finding in report["findings"]}
    wanted = {"cores", "vector units", "memory", "locked memory", "O_DIRECT", "io_uring", "open files", "/dev/shm"}
    assert wanted | {"HDF5", "zstd", "liburing", "GPU", "MPI"} <= topics
    for finding in report["findings"]:
        assert finding["level"] in ("ok", "note", "problem")
        assert finding["level"] == "ok" or finding["remedy"], finding


def test_to_doctor_a_directory_that_is_not_there_is_a_problem():
    answer = ups("doctor", "--json", "/nonexistent")
    assert answer.returncode == 1
    report = json.loads(answer.stdout)
    assert report["problems"] == 1


def test_to_doctor_few_open_files_are_a_problem_with_a_remedy():
    answer = ups("doctor", "--brief", preexec_fn=limit(resource.RLIMIT_NOFILE, 64))
    assert answer.returncode == 1
    assert re.search(r"PROBLEM +open files", answer.stdout)
    assert "ulimit -n" in answer.stdout


def test_doctor_leaves_nothing_behind(scratch):
    ups("doctor", scratch)
    assert os.listdir(scratch) == []


# ---- as a process

def test_a_process_is_called_by_its_name(scratch):
    """In `top`, and for `pkill ups`, although it starts itself once more. It waits for its configuration meanwhile."""
    fifo, free = os.path.join(scratch, "fifo"), {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    os.mkfifo(fifo)
    with subprocess.Popen([UPS, "config", "check", fifo], env=free, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        with open(fifo, "w"):  # opens once it reads there
            with open(f"/proc/{process.pid}/comm") as name:
                assert name.read() == "ups\n"
        assert process.wait(TIMEOUT) == 1
