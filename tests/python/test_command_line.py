"""The `ups` command line itself: help, mistakes, JSON, completion. Usage: test_command_line.py UPS"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from skipping import main
from tiny_run import PATIENCE

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"


def ups(*arguments):
    return subprocess.run([UPS, *arguments], capture_output=True, text=True, timeout=PATIENCE)


def listed(text):
    return re.findall(r"^  ([a-z0-9-]+)  ", text.partition("Commands:\n")[2].partition("\n\n")[0], re.M)


def all_commands(prefix=()):
    """Every command as a tuple of words, groups included."""
    for name in listed(ups(*prefix, "--help").stdout):
        yield (*prefix, name)
        yield from all_commands((*prefix, name))


class CommandLine(unittest.TestCase):
    def test_every_command_and_group_explains_itself_and_ends_well(self):
        commands = list(all_commands())
        self.assertIn(("doctor",), commands)
        self.assertIn(("config", "show"), commands)
        for command in commands:
            with self.subTest(command):
                shown = ups(*command, "--help")
                self.assertEqual(shown.returncode, 0, shown.stderr)
                self.assertIn("Usage: ups " + " ".join(command), shown.stdout)
                self.assertEqual(shown.stderr, "")
                self.assertEqual(shown.stdout, ups("help", *command).stdout)

    def test_a_mistyped_command_is_answered_with_the_right_one(self):
        for wrong, right in [("docter", "doctor"), ("dat", "data"), ("complet", "completion")]:
            answer = ups(wrong)
            self.assertEqual(answer.returncode, 2)
            self.assertEqual(answer.stdout, "")
            self.assertIn(f"did you mean '{right}'?", answer.stderr)
        self.assertNotIn("did you mean", ups("frobnicate").stderr)

    def test_a_mistyped_option_is_answered_with_the_right_one(self):
        for command in all_commands():
            if listed(ups(*command, "--help").stdout):
                continue
            with self.subTest(command):
                answer = ups(*command, "--jsn")
                self.assertEqual(answer.returncode, 2)
                self.assertIn("did you mean --json?", answer.stderr)
        self.assertIn("takes no value", ups("doctor", "--json=1").stderr)

    def test_a_value_that_is_no_number_or_out_of_range_is_named_with_what_would_be_right(self):
        for value, sentence in [("many", "'many' is not a whole number"), ("1e3", "'1e3' is not a whole number"), ("0", "expected")]:
            answer = ups("datagen", "advection1d", "-o", "/nonexistent/x.h5", "--samples", value)
            self.assertEqual(answer.returncode, 2)
            self.assertIn("--samples: ", answer.stderr)
            self.assertIn(sentence, answer.stderr)
        self.assertIn("needs a value", ups("datagen", "advection1d", "--samples").stderr)

    def test_with_json_a_mistake_is_an_object_on_standard_output(self):
        for arguments in [("doctor", "--json", "--nonsense"), ("nonsense", "--json"), ("completion", "--json", "tcsh")]:
            answer = ups(*arguments)
            self.assertEqual(answer.returncode, 2)
            self.assertEqual(json.loads(answer.stdout)["error"]["code"], "usage")

    def test_with_json_configurations_are_objects_too(self):
        config = os.path.join(os.path.dirname(__file__), "..", "..", "configs", "quickstart.yaml")
        self.assertEqual(json.loads(ups("config", "check", config, "--json").stdout), {"config": config})
        shown = json.loads(ups("config", "show", config, "--json").stdout)
        self.assertEqual(shown["yaml"], re.sub(" # here .*", "", ups("config", "show", config).stdout))

    def test_every_configuration_of_several_is_checked_whatever_is_wrong_with_one(self):
        folder = os.path.join(os.path.dirname(__file__), "..", "..", "configs")
        good = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        self.assertGreater(len(good), 2)
        self.assertEqual(ups("config", "check", *good).stdout.count("no mistakes found"), len(good))
        done = ups("config", "check", "/no/such.yaml", *good, "--json")
        found = json.loads(done.stdout)
        self.assertEqual((done.returncode, [entry["config"] for entry in found[1:]]), (1, good))
        self.assertIn("/no/such.yaml", found[0]["error"])

    def test_every_bench_runs_without_any_input_and_answers_with_figures(self):
        for bench in (["loader", "-n", "2", "-e", "1"], ["loader", "-n", "2", "-e", "1", "--portable"], ["codec", "-n", "1"],
                      ["io", "-s", "1", "-n", "1", "--seconds", "0.02"], ["encode", "--points", "64", "--frames", "2", "--runs", "1"],
                      ["step", "--batch", "1", "--steps", "1"]):
            with self.subTest(bench):
                done = ups("bench", *bench, "--json")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertTrue(json.loads(done.stdout))

    def test_the_loaders_bench_says_how_fast_it_was_or_whether_anything_grew(self):
        found = json.loads(ups("bench", "loader", "-n", "3", "-e", "1", "-w", "2", "--json").stdout)
        self.assertEqual((found["source"], found["samples"], found["residency"]), ("latent", 3, "stream"))
        self.assertIn(found["io"], ("uring", "threads"))
        for figure in ("samples_per_s", "gb_per_s", "first_batch_s", "seconds", "trajectories"):
            self.assertGreater(found[figure], 0, figure)
        for waited in ("seconds_disk", "seconds_decode", "seconds_consumer", "seconds_full"):
            self.assertGreaterEqual(found[waited], 0, waited)
        found = json.loads(ups("bench", "loader", "-n", "3", "-w", "2", "--batches", "30", "--json").stdout)
        self.assertEqual(sorted(found), ["anonymous_growth", "descriptors_constant", "looks", "resident_growth"])
        looks = found["looks"]
        for look in looks:
            self.assertEqual(sorted(look), ["anonymous_bytes", "batch", "descriptors", "resident_bytes", "seconds"])
            self.assertTrue(0 < look["anonymous_bytes"] <= look["resident_bytes"] and look["descriptors"] > 0)
        self.assertEqual(len(looks), 11)
        self.assertEqual(looks[-1]["batch"], 30)
        self.assertEqual(sorted(looks, key=lambda look: (look["batch"], look["seconds"])), looks)
        self.assertIs(found["descriptors_constant"], len({look["descriptors"] for look in looks}) == 1)
        for kind in ("resident", "anonymous"):
            sizes = [look[f"{kind}_bytes"] for look in looks]
            self.assertAlmostEqual(found[f"{kind}_growth"], max(sizes) / sizes[0] - 1, places=4)

    def test_the_version_is_one_line(self):
        self.assertRegex(ups("--version").stdout, r"^ups \d+\.\d+\.\d+\n$")

    def test_no_two_options_of_a_command_share_a_letter(self):
        for command in all_commands():
            letters = re.findall(r"^  -(\w), --", ups(*command, "--help").stdout, re.M)
            self.assertEqual(len(letters), len(set(letters)), command)


class Manual(unittest.TestCase):
    """docs/ups.1 says what the command itself says: neither has what the other lacks."""

    def setUp(self):
        manual = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "ups.1")
        with open(manual, encoding="utf-8") as file:
            text = file.read()
        self.sections = dict(re.findall(r"^\.SH (.*)\n((?:(?!\.SH ).*\n)*)", text, re.M))

    def test_it_has_every_command_with_all_its_options(self):
        entries = dict(re.findall(r"^\.B ups ([a-z]+(?: [a-z]+)*)(.*\n(?:(?!\.B ups |\.SS ).*\n)*)", self.sections["COMMANDS"], re.M))
        commands = [command for command in all_commands() if not listed(ups(*command, "--help").stdout)]
        self.assertEqual(set(entries), {" ".join(command) for command in commands})
        for command in commands:
            help_text = ups(*command, "--help").stdout.partition("Options:\n")[2].partition("\n\n")[0]
            options = set(re.findall(r"^  (?:-(\w), |    )--([a-z-]+)", help_text, re.M))
            options -= {("h", "help"), ("", "json"), ("q", "quiet")}  # of every command
            told = re.findall(r"^\\fB(?:\\-(\w)\\fR, \\fB)?\\-\\-([a-z\\-]+?)\\fR", entries[" ".join(command)], re.M)
            self.assertEqual({(letter, name.replace("\\-", "-")) for letter, name in told}, options, command)

    def test_it_has_every_key_of_a_configuration_with_its_default(self):
        keys = json.loads(ups("config", "keys", "--json").stdout)
        defaults = {key["key"]: "required" if key["required"] else (key["default"] or "none").replace("''", "none")
                    for key in keys if not key["expected"].startswith(("a mapping", "a list of 1 to 256 mappings"))}
        self.assertIn("data.residency", defaults)
        self.assertEqual(dict(re.findall(r'^\.BR (\S+) " \((.*)\)"$', self.sections["CONFIGURATION"], re.M)), defaults)


class Doctor(unittest.TestCase):
    def test_it_reports_every_part_of_the_machine(self):
        report = json.loads(ups("doctor", "--json").stdout)
        topics = {finding["topic"] for finding in report["findings"]}
        wanted = {"cores", "vector units", "memory", "locked memory", "O_DIRECT", "io_uring", "open files", "/dev/shm"}
        self.assertLessEqual(wanted | {"HDF5", "zstd", "liburing", "GPU", "MPI"}, topics)
        for finding in report["findings"]:
            self.assertIn(finding["level"], ("ok", "note", "problem"))
            self.assertTrue(finding["level"] == "ok" or finding["remedy"], finding)

    def test_a_directory_that_is_not_there_is_a_problem(self):
        answer = ups("doctor", "--json", "/nonexistent")
        self.assertEqual(answer.returncode, 1)
        report = json.loads(answer.stdout)
        self.assertEqual(report["problems"], 1)

    def test_few_open_files_are_a_problem_with_a_remedy(self):
        answer = subprocess.run(["bash", "-c", 'ulimit -n 64; exec "$0" doctor --brief', UPS], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(answer.returncode, 1)
        self.assertRegex(answer.stdout, r"PROBLEM +open files")
        self.assertIn("ulimit -n", answer.stdout)

    def test_it_leaves_nothing_behind(self):
        with tempfile.TemporaryDirectory() as directory:
            ups("doctor", directory)
            self.assertEqual(os.listdir(directory), [])


class Completion(unittest.TestCase):
    def complete(self, *words):
        """What bash would offer for the last word."""
        script = (
            'PATH=$(dirname "$1"):$PATH; eval "$(ups completion bash)"; shift\n'
            'COMP_WORDS=(ups "$@"); COMP_CWORD=$#; _ups; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(["bash", "-c", script, "bash", UPS, *words], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_offers_commands_subcommands_and_options(self):
        self.assertEqual(sorted(self.complete("")), sorted(listed(ups("--help").stdout)))
        self.assertEqual(self.complete("doc"), ["doctor"])
        self.assertEqual(sorted(self.complete("config", "")), ["check", "keys", "show"])
        self.assertIn("--brief", self.complete("doctor", "--"))
        self.assertEqual(self.complete("doctor", "--br"), ["--brief"])

    def test_completion_holds_every_command_and_option_of_the_help(self):
        self.assertEqual(self.complete("bench", "step", "--prof"), ["--profile"])
        self.assertEqual(self.complete("cache", "inspect", "somewhere", "--ht"), ["--html"])
        for command in all_commands():
            shown = ups(*command, "--help").stdout
            if not listed(shown):
                options = re.findall(r"^  (?:-., |    )(--[a-z-]+)", shown, re.M)
                self.assertEqual(sorted(self.complete(*command, "--")), sorted(options), command)

    def test_every_shell_reads_its_script(self):
        meanings = {}
        for shell in ("bash", "zsh", "fish"):
            script = ups("completion", shell)
            self.assertEqual((script.returncode, script.stderr), (0, ""))
            meanings[shell] = [line for line in script.stdout.splitlines() if line.startswith("_ups_add 'ups")]
            if shutil.which(shell):
                read = subprocess.run([shell, "-n"], input=script.stdout, capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual((read.returncode, read.stderr), (0, ""), shell)
        self.assertGreater(len(meanings["bash"]), 100)
        self.assertTrue(meanings["bash"] == meanings["zsh"] == meanings["fish"])


if __name__ == "__main__":
    main()
