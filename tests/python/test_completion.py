"""What Tab offers: the answers of `ups completion --words`, and what each shell makes of them."""

import json
import os
import re
import shutil

import pytest

from commands import TREE, UPS, must, run, told, ups

QUICKSTART = str(TREE / "configs/quickstart.yaml")


def answers(*words):
    """What can stand at the last word, and what it means."""
    done = must("completion", "--words", "--", *words)
    assert done.stderr == ""
    return dict(line.partition("\t")[::2] for line in done.stdout.splitlines())


def commands(*prefix):
    return re.findall(r"^  ([a-z0-9-]+)  +", must(*prefix, "--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0], re.M)


def leaves():
    for name in commands():
        yield from [(name, below) for below in commands(name)] or [(name,)]


# ---- the answers

def test_commands_and_subcommands_are_offered_with_their_meaning():
    assert list(answers("")) == [*commands(), "help"]
    assert list(answers("cache", "")) == commands("cache")
    assert list(answers("help", "cache", "ver")) == ["verify"]
    assert answers("doc") == {"doctor": "what this machine can do, and what to change"}
    assert answers("doct", "") == answers("cache", "nothing", "") == {}


def test_every_option_of_every_command_is_offered():
    for command in leaves():
        options = re.findall(r"^  (?:-., |    )(--[a-z-]+)", must(*command, "--help").stdout.partition("Options:\n")[2].partition("\n\n")[0], re.M)
        assert list(answers(*command, "--")) == options, command
    assert list(answers("cache", "inspect", "somewhere", "--ht")) == ["--html"]
    assert answers("cache", "inspect", "--", "--ht") == {":*.yaml": ""}  # behind --, no option


def test_every_choice_that_help_shows_is_offered():
    seen = 0
    for command in leaves():
        for option, argument in re.findall(r"^  (?:-., |    )(--[a-z-]+) (\S+\|\S+)", must(*command, "--help").stdout, re.M):
            words = [word for word in argument.split("|") if not word[0].isupper()]
            assert [word for word in answers(*command, option, "") if word[0] != ":"] == words, (command, option)
            assert [word for word in answers(*command, option + "=") if word[0] != ":"] == [f"{option}={word}" for word in words]
            seen += len(words)
    assert seen > 30
    assert list(answers("train", "x", "--stage", "o")) == ["operator"]
    assert list(answers("eval", "x", "--split", "")) == ["train", "validation", "test"]
    assert list(answers("eval", "x", "-c", "")) == ["best", "latest", ":*"]
    assert list(answers("completion", "")) == ["bash", "zsh", "fish"]
    assert list(answers("test-ops", "--ops", "layer")) == ["layer_norm"]
    assert list(answers("test-ops", "--ops=gelu,linear_")) == ["--ops=gelu,linear_gelu"]


def test_keys_of_a_configuration_are_offered_step_by_step_and_then_their_choices():
    keys = [entry["key"].replace("[]", "[0]") for entry in told("config", "keys") if "mapping" not in entry["expected"].split(" of ")[0]
            and not entry["expected"].endswith("mappings")]
    assert len(keys) > 80
    for key in keys:
        assert key + "=" in answers("eval", "x", "--set", key), key
    assert {"data.", "tasks[0].", "seed="} <= set(answers("eval", "x", "--set", ""))
    assert "model.operator." in answers("train", "x", "-s", "model.")
    assert "-smodel.operator.depth=" in answers("train", "x", "-smodel.operator.")
    assert answers("train", "x", "-s", "model.operator.drop") == {"model.operator.drop_path=": "drop-path of the last block, rising linearly from 0"}
    assert list(answers("train", "x", "-s", "tasks[7].n")) == ["tasks[7].name="]
    assert list(answers("train", "x", "--set=data.residency=r")) == ["--set=data.residency=ram_compressed", "--set=data.residency=ram"]
    assert list(answers("train", "x", "--set", "model.operator.qk_norm=")) == ["model.operator.qk_norm=true", "model.operator.qk_norm=false"]
    assert answers("train", "x", "--set", "seed=") == answers("train", "x", "--set", "nothing.") == {}
    assert list(answers("config", "keys", "model.o")) == ["model.operator"]


def test_tasks_are_those_of_the_configuration_on_the_line():
    assert list(answers("rollout", QUICKSTART, "--task", "")) == ["advection1d", "darcy2d"]
    assert list(answers("bench", "encode", "--runs", "3", QUICKSTART, "--task=d")) == ["--task=darcy2d"]
    assert answers("rollout", "/no/such.yaml", "--task", "") == answers("rollout", "--task", "") == {}


def test_solvers_and_the_parameters_of_one_are_offered():
    solvers = {solver["name"]: solver for solver in json.loads(must("datagen", "--list", "--json").stdout)}
    assert list(answers("datagen", "-o", "x.h5", "")) == list(solvers)
    assert answers("datagen", "burgers1d", "") == {}  # one is enough
    for name, solver in solvers.items():
        assert list(answers("datagen", name, "-n", "3", "-p", "")) == [parameter["name"] + "=" for parameter in solver["parameters"]]


def test_files_are_offered_with_the_suffix_that_fits():
    for line, pattern in (("train ", ":*.yaml"), ("cache inspect ", ":*.yaml"), ("cache inspect x --png ", ":*.png"), ("cache inspect x --html=", ":*.html"),
                          ("data inspect a b ", ":*"), ("cache diff a ", ":*.yaml"), ("config check a b ", ":*.yaml"), ("rollout x -o ", ":*"),
                          ("bench codec ", ":*.npy"), ("data dump x -o ", ":*.npy"), ("data dump x -oy", ":*.npy"), ("cache prune --config ", ":*.yaml")):
        assert list(answers(*line.split(" "))) == [pattern], line
    assert list(answers("compare", "")) == list(answers("compare", "a", "")) == [":*.yaml", ":*.json"]
    for line in ("cache diff a b ", "compare a b ", "datagen burgers1d -n ", "cache export x --samples ", "config schema "):
        assert answers(*line.split(" ")) == {}, line


# ---- the shells

def in_bash(*words, cwd=None):
    """What bash offers for the last word, with the line cut into words as it does."""
    cut = [part for word in words for part in (re.findall(r"[^=:]+|[=:]+", word) or [""])]
    script = (
        'PATH=$(dirname "$1"):$PATH; eval "$(ups completion bash)"; shift\n'
        'COMP_WORDS=(ups "$@"); COMP_CWORD=$#; _ups; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = run("bash", "-c", script, "bash", UPS, *cut, cwd=cwd)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def folder(scratch):
    for name in ("run.yaml", "other.yaml", "data.h5", "picture.png", "scores.json"):
        open(os.path.join(scratch, name), "w").close()
    os.mkdir(os.path.join(scratch, "runs"))
    return scratch


def test_bash_completes_words_values_and_files(folder):
    assert in_bash("doc") == ["doctor"]
    assert in_bash("cache", "ex") == ["export"]
    assert in_bash("doctor", "--br") == ["--brief"]
    assert in_bash("train", "x", "--stage", "op") == ["operator"]
    assert in_bash("train", "x", "--stage=op") == ["operator"]
    assert in_bash("train", "x", "--stage=") == ["autoencoder", "cache", "operator"]
    assert in_bash("train", "x", "--set", "data.reside") == ["data.residency=", "data.residency_memory="]
    assert in_bash("train", "x", "--set", "data.residency=") == [
        "auto", "stream", "ram_compressed", "ram", "encode", "device"]
    assert in_bash("train", "x", "--set", "data.residency=st") == ["stream"]
    assert in_bash("train", "x", "--set", "seed=7", "--set", "data.residency=st") == ["stream"]
    assert sorted(in_bash("train", "", cwd=folder)) == ["other.yaml", "run.yaml", "runs"]
    assert sorted(in_bash("train", "ru", cwd=folder)) == ["run.yaml", "runs"]
    assert sorted(in_bash("cache", "inspect", "x", "--png=p", cwd=folder)) == ["picture.png"]
    assert set(in_bash("compare", "ru", "", cwd=folder)) == {"other.yaml", "run.yaml", "runs", "scores.json"}
    assert sorted(in_bash("cache", "inspect", "", cwd=folder)) == ["other.yaml", "run.yaml", "runs"]
    assert sorted(in_bash("data", "inspect", "", cwd=folder)) == ["data.h5", "other.yaml", "picture.png", "run.yaml", "runs", "scores.json"]


def installed(shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed; its script was only written")
    environment = {**os.environ, "PATH": os.path.dirname(UPS) + ":" + os.environ["PATH"]}
    read = run(shell, "-n", input=must("completion", shell).stdout)
    assert (read.returncode, read.stderr) == (0, "")
    return environment


def test_every_shell_has_a_script():
    for shell in ("bash", "zsh", "fish"):
        assert f"completion for {shell}" in must("completion", shell).stdout
    assert run("bash", "-n", input=must("completion", "bash").stdout).returncode == 0


def test_zsh_completes_words_values_and_files(folder):
    environment = installed("zsh")

    def in_zsh(*words):
        script = ("compdef() {}; compset() {}; _describe() { print -rl -- \"${(@P)2}\" }; _files() { print -r -- \"files $*\" }\n"
                  "source <(ups completion zsh); words=(ups \"$@\"); CURRENT=${#words}; _ups; true")
        done = run("zsh", "-f", "-c", script, "zsh", *words, cwd=folder, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    assert in_zsh("doc") == ["doctor:what this machine can do, and what to change"]
    assert in_zsh("train", "x", "--stage", "") == ["autoencoder:", "cache:", "operator:"]
    assert in_zsh("train", "x", "--set", "data.residency=st") == ["data.residency=stream:"]
    assert in_zsh("train", "") == ["files -g *.yaml"]
    assert in_zsh("compare", "") == ["files -g (*.yaml|*.json)"]
    assert in_zsh("cache", "inspect", "") == ["files -/"]


def test_fish_completes_words_values_and_files(folder):
    environment = installed("fish")

    def in_fish(line):
        done = run("fish", "--no-config", "-c", f"ups completion fish | source; complete -C '{line}'", cwd=folder, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return [answer.partition("\t")[0] for answer in done.stdout.splitlines()]

    assert in_fish("ups doc") == ["doctor"]
    assert sorted(in_fish("ups train x --stage ")) == ["autoencoder", "cache", "operator"]
    assert in_fish("ups train x --set data.residency=st") == ["data.residency=stream"]
    assert sorted(in_fish("ups train ru")) == ["run.yaml", "runs/"]
    assert set(in_fish("ups compare ")) == {"other.yaml", "run.yaml", "runs/", "scores.json"}
    assert in_fish("ups cache inspect x --png=p") == ["--png=picture.png"]


def test_an_unknown_shell_is_refused():
    assert ups("completion", "tcsh").returncode == 2
