"""What README.md and docs/*.md tell a user to type. Blocks that begin with ```sh recipe run as written, one after the other in one empty
folder for each document. Of every other `ups` line, command and options exist; and so do the files that are named."""

import os
import re

import pytest

from commands import TREE, UPS, run, ups

PATHS = [TREE / "README.md", TREE / "CONTRIBUTING.md", TREE / "tests/fuzz/README.md", *sorted((TREE / "docs").glob("**/*.md"))]
DOCUMENTS = {str(path.relative_to(TREE)): path.read_text() for path in PATHS}
RECIPES = {name: re.findall(r"^```sh recipe\n((?:.*\n)*?)```$", text, re.M) for name, text in DOCUMENTS.items()}
LINES = sorted({(name, line) for name, text in DOCUMENTS.items() for line in re.findall(r"`(ups [a-z][^`\n]*)`|^(ups .*)$", text, re.M)
                for line in line if line})


def test_the_readme_has_its_recipes():
    assert len(RECIPES["README.md"]) == 4


@pytest.mark.parametrize("document", [name for name in RECIPES if RECIPES[name]])
def test_recipes_run_as_written(scratch, document):
    for recipe in RECIPES[document]:
        done = run("bash", "-euc", recipe, cwd=scratch, env={**os.environ, "PATH": f"{os.path.dirname(UPS)}:{os.environ['PATH']}"})
        assert done.returncode == 0, f"{recipe}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def helps():
    return {}


@pytest.mark.parametrize("document, line", LINES)
def test_commands_and_options_that_are_named_exist(helps, document, line):
    words, command, text = line.partition(" #")[0].split()[1:], (), ""
    for word in words:
        if not re.fullmatch("[a-z]+", word):
            break
        command += (word,)
        if command not in helps:
            helps[command] = ups(*command, "--help")
        if helps[command].returncode != 0:  # no command: what the one before it is given
            command = command[:-1]
            break
        text = helps[command].stdout
    assert text, "no such command"
    for option in re.findall(r"--[a-z-]+", " ".join(words)):
        assert re.search(rf"{option}\b", text), f"{option} of ups {' '.join(command)}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_are_named_exist(document):
    text = DOCUMENTS[document]
    top = {path.name for path in TREE.iterdir()} - {"build"}
    named = {path for path in re.findall(r"`(\.?[\w-]+/[\w./-]*)`", text) if path.split("/")[0] in top and not re.search(r"\bX\b|_X\b|LAYER", path)}
    linked = {os.path.relpath(os.path.normpath(os.path.join(TREE, document, "..", link)), TREE)
              for link in re.findall(r"\]\(([^)#:\s]+)\)", text)}
    assert [path for path in sorted(named | linked) if not (TREE / path).exists()] == []
