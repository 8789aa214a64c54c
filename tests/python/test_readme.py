"""What README.md and docs/*.md tell a user to type. Blocks that begin with ```sh recipe run as written, one after the other in one empty
folder for each document, with these tests' own Python. Every other `ups` line runs as well, with names of files in the places of words such as
FILE, and measurements made short by further options; a line that cannot run here stands in NOT_RUN, with the reason. Of every line, command and
options exist; and so do the files that are named."""

import os
import re
import sys

import h5py
import numpy as np
import pytest

from commands import TREE, UPS, run, ups

PATHS = [TREE / "README.md", TREE / "CONTRIBUTING.md", TREE / "tests/fuzz/README.md", *sorted((TREE / "docs").glob("**/*.md"))]
DOCUMENTS = {str(path.relative_to(TREE)): path.read_text() for path in PATHS}
RECIPES = {name: re.findall(r"^```sh recipe\n((?:.*\n)*?)```$", text, re.M) for name, text in DOCUMENTS.items()}
LINES = sorted({(name, line) for name, text in DOCUMENTS.items() for line in re.findall(r"`(ups [a-z][^`\n]*)`|^(ups .*)$", text, re.M)
                for line in line if line})


def test_the_readme_has_its_recipes():
    assert len(RECIPES["README.md"]) == 5


@pytest.mark.parametrize("document", [name for name in RECIPES if RECIPES[name]])
def test_recipes_run_as_written(scratch, document):
    for recipe in RECIPES[document]:
        path = f"{os.path.dirname(UPS)}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        done = run("bash", "-euc", recipe, cwd=scratch, env={**os.environ, "PATH": path})
        assert done.returncode == 0, f"{recipe}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def helps():
    return {}


@pytest.mark.parametrize("document, line", LINES)
def test_commands_and_options_that_are_named_exist(helps, document, line):
    words, command, text = line.partition(" #")[0].split()[1:], (), ""
    for word in words:
        if not re.fullmatch("[a-z][a-z-]*", word):
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


# ---- commands beside the recipes

OWN = "'{fields: {u: /u}, axes: [sample, time, x]}'"
# What stands for what, the first that fits. A word that is none of these is taken as it stands.
FILLED = [("RUN -o FILE", "trained -o made.safetensors"), ("RUN --task TASK --sample INDEX", "trained --task advection --sample 0 -o shown.h5"), ("RUN --gates", "trained --gates --set evaluation.gates.boundary=100"), ("--html FILE", "--html page.html"), ("--suggest FILE", "--suggest own.h5"), ("--layout '{fields: …}' FILE", f"--layout {OWN} own.h5"),
          ("FILE --layout '…'", f"own.h5 --layout {OWN}"), ("FILE", "data/advection.h5"), ("DIR", "trained/cache"), ("CONFIG", "trained.yaml"), ("RUN", "trained"), ("A B", "trained trained"),
          ("many.yaml", "trained.yaml"), ("KEY=V,V", "operator.steps=20,30"), ("MODE", "block"), ("CARD", "h100")]
# Of two values of an option the later one counts: measurements are as short as they can be.
SHORTER = {"bench io": "--size 8 --seconds 0.01 --rounds 1", "bench step": "--steps 1 --batch 1", "bench loader": "--batches 8 --epochs 1 -n 4",
           "bench codec": "--repeat 1", "bench encode": "--runs 1 --frames 1", "test-ops": "--ops gelu"}
NOT_RUN = {
    "./tools/quickstart": "installs packages and trains for minutes; tests/python/check_quickstart.py looks at what it leaves",
    "./tools/check": "runs these tests",
    "cmake --preset release && cmake --build --preset release": "builds the tree that is tested",
    "cmake --install build/release --prefix ~/.local": "installs; tests/libups does so into a folder of its own",
    "tools/install_dependencies cuda": "installs 1.4 GB",
    "ups train CONFIG --plan --device cuda --memory 80": "needs the CUDA module, which not every build has; test_cuda.py runs it",
    "tests/run build/release -R '^cuda'": "runs tests, of which this is one",
    "tests/bench/varying_meshes.py UPS meshes.h5 --seeds 1000:1100": "solves on a hundred meshes, for a benchmark",
    "tools/package FOLDER": "builds the tree once more; .ci/run packs it and runs what was packed",
    "tools/wheel FOLDER": "builds the tree once more; .ci/run makes one and installs it",
    "tools/deb FOLDER": "packs the tree that is tested; .ci/run makes one and unpacks it",
    "pip install FILE.whl": "installs; .ci/run does so into an environment of its own",
    "ups test-ops --device cuda": "needs a card; test_cuda.py runs it on the emulated one",
    "mpirun -n 4 --bind-to none ups train first.yaml --set operator.accumulation=4": "names a configuration of one's own; test_ranks.py trains in several processes",
    "mpirun -n 4 ups train CONFIG": "wants as many micro-batches a step; test_ranks.py trains in several processes",
    "mpirun --bind-to none": "is an option of mpirun",
    "mpirun -n 4 ups train CONFIG --plan": "wants as many micro-batches a step; test_ranks.py plans for several processes",
    "mpirun --mca odls_base_sigkill_timeout 10": "is an option of mpirun",
    "mpirun -n 2 -H node1,node2 -x PATH ups train first.yaml --set operator.accumulation=4": "needs two machines",
    "srun --mpi=pmix -K -n 4 ups train runs/first --resume": "needs Slurm",
    "pip install ./tools/python/ups": "installs; test_reader.py has the package from the tree",
    "cc program.c $(pkg-config --cflags --libs ups)": "tests/libups builds programs against an installed tree",
    "build/release/tests/model/test_ops perf spectral 1": "measures; test_ops runs the same op",
    "build/release/tests/model/test_ops perf depthwise 1": "measures; test_ops runs the same op",
    "build/release/tests/model/test_ops perf small 1": "measures; test_ops runs the same ops",
    "ups eval CONFIG --predictions FILE": "the file is another model's; a recipe, and test_predictions.py, make some",
    "ups eval runs/quickstart": "evaluates what the quickstart leaves; check_quickstart.py reads what it says",
    "ups datagen SOLVER -o FILE": "names every solver; test_datagen.py runs each",
    "ups bench io|codec|loader|encode|step": "names five commands",
    "tests/bench/step.py build/release/tools/ups --dtype bfloat16 --threads 2": "measures PyTorch beside it, which the tests do without",
    "tests/bench/loader.py --ups build/release/tools/ups --latents CACHE --h5 2D_diff-react_NA_NA.h5": "reads a downloaded file, for minutes",
    "tests/bench/accuracy.py --size bundle=B --set model.operator.history=K": "trains for minutes, beside PyTorch",
    "tests/bench/accuracy.py build/release/tools/ups FOLDER --peers DIR": "trains for minutes, beside PyTorch",
    "tests/bench/reconstruction.py build/release/tools/ups FOLDER --real FILE…": "measures compressors that the tests do without",
    "tests/bench/ablation.py build/release/tools/ups FOLDER --task burgers advection --seconds 30": "trains for half an hour",
    "tests/bench/predict.py MODEL.safetensors": "computes with PyTorch, which the tests do without",
    "tests/bench/cache_build.py CONFIG": "measures a build of minutes",
    "python tests/cuda/mutations.py FOLDER": "builds the tree anew for half an hour",
    "tests/bench/pytorch_parity.py build/release/tests/model/operator_gradients": "computes with PyTorch, which the tests do without",
    "tests/bench/codec.py build/release/tools/ups LATENTS.npy…": "measures codecs that the tests do without",
    "man docs/ups.1": "shows a page; test_command_line.py compares it with the commands",
}
NOT_RUN |= dict.fromkeys(("tools/container NAME", "tools/container ups", "tools/container --cuda /usr/local/cuda/lib64 ups", "tools/container --output ups.tar ups",
                          "tools/container --cuda /usr/local/cuda/lib64 --output ups.tar ups", "tools/container --deb build/packages/ups_0.1.0_amd64.deb ups",
                          'docker run --rm -v "$PWD":/ups -w /ups debian:12 sh -c "apt-get update && tools/deb build/packages"'),
                         "needs a builder of images and a network; .ci/container makes one by hand")
AS_USER = '-v "$PWD":/work --user "$(id -u):$(id -g)"'
AS_USER_PODMAN = 'podman run --rm --userns keep-id --user "$(id -u):$(id -g)"'
NOT_RUN |= dict.fromkeys((f"docker run --rm {AS_USER} ups train first.yaml", f"docker run --rm --gpus all {AS_USER} ups train first.yaml",
                          f"docker run --rm {AS_USER} --entrypoint mpirun ups -n 4 --bind-to none ups train first.yaml --set operator.accumulation=4",
                          "docker run --rm --entrypoint cat ups /usr/share/man/man1/ups.1.gz | man -l -",
                          f'{AS_USER_PODMAN} -v "$PWD":/work ups train first.yaml',
                          f'{AS_USER_PODMAN} --device nvidia.com/gpu=all -v "$PWD":/work ups train first.yaml',
                          "apptainer build ups.sif docker-archive://ups.tar", "apptainer run --nv ups.sif train first.yaml",
                          "srun --mpi=pmix -n 16 apptainer exec --nv ups.sif ups train first.yaml --resume", "mpirun -n 16 apptainer exec ups.sif ups train first.yaml",
                          "srun --mpi=list", "srun --mpi=pmix"),
                         "needs an image, and what runs it; tests/python/check_container.py runs one by hand")
BLOCKS = [line.partition(" #")[0].strip() for name, text in DOCUMENTS.items() if name == "README.md" or name.startswith("docs/")
          for block in re.findall(r"^```sh\n((?:.*\n)*?)```$", text, re.M) for line in block.splitlines() if line.partition(" #")[0].strip()]


def beside_recipes():
    """Every command of README.md and docs/ that no recipe runs."""
    named = set(BLOCKS)
    for name, text in DOCUMENTS.items():
        if name == "README.md" or name.startswith("docs/"):
            text = re.sub(r"^```sh recipe\n(?:.*\n)*?```$", "", text, flags=re.M)
            named |= set(re.findall(r"`((?:ups [a-z]|(?:build|tests|tools|\.ci)/[^\s`]+ |(?:man|python|cmake|pip|mpirun|srun|curl|wget) )[^`\n]*)`", text))
    return sorted(named)


@pytest.fixture(scope="module")
def workplace(runs, trained):
    """A folder with what the words in capitals stand for."""
    with h5py.File(runs.path("own.h5"), "w") as file:
        file["u"] = np.random.default_rng(1).normal(size=(4, 5, 16)).astype("f4")
    return runs.folder


@pytest.mark.parametrize("line", [line for line in beside_recipes() if line not in NOT_RUN])
def test_commands_that_are_shown_run(workplace, line):
    assert re.match("ups |build/release/tools/ups ", line), "a command that is not run here is listed in NOT_RUN, with the reason"
    command = line.removeprefix("build/release/tools/")
    for word, value in FILLED:
        if re.search(rf"(?<![\w'{{]){re.escape(word)}(?!\w)", command) and value not in command:
            command = command.replace(word, value)
    command += "".join(" " + options for name, options in SHORTER.items() if line.startswith("ups " + name))
    path = f"{os.path.dirname(UPS)}:{os.environ['PATH']}"
    done = run("bash", "-c", command, cwd=workplace, env={**os.environ, "PATH": path})
    name_alone = done.returncode == 2 and "was expected" in done.stderr and line not in BLOCKS
    assert done.returncode == 0 or name_alone and not re.search("[A-Z]{2}|\\.", line), f"{command}\n{done.stdout}\n{done.stderr}"


def test_what_is_not_run_is_still_shown():
    assert set(NOT_RUN) - set(beside_recipes()) == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_are_named_exist(document):
    text = DOCUMENTS[document]
    top = {path.name for path in TREE.iterdir()} - {"build"}
    named = {path for path in re.findall(r"`(\.?[\w-]+/[\w./-]*)`", text) if path.split("/")[0] in top and not re.search(r"\bX\b|_X\b|LAYER", path)}
    linked = {os.path.relpath(os.path.normpath(os.path.join(TREE, document, "..", link)), TREE)
              for link in re.findall(r"\]\(([^)#:\s]+)\)", text)}
    assert [path for path in sorted(named | linked) if not (TREE / path).exists()] == []
