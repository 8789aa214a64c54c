"""`ups cache verify --repair` where it may not do what it would like to: without descriptors, without the right to read or to
write. What is sound stays, what is broken is replaced only by what is whole."""

import os
import resource
import shutil

import pytest

from commands import UPS, limit, run, ups
from tiny_run import tree

NOBODY = 65534


@pytest.fixture(scope="module")
def copied(runs):
    """The command where others may run it: a build may lie in root's home."""
    return shutil.copy(UPS, runs.path("ups"))


@pytest.fixture(scope="module")
def built(runs):
    """A configuration, its cache, and what a sound cache holds."""
    config, cache = runs.config("run"), runs.path("run", "cache")
    runs.must("train", config, "--stage", "autoencoder")
    runs.must("cache", "build", config)
    shutil.copytree(cache, runs.path("kept"))
    return config, cache, tree(cache)


@pytest.fixture(autouse=True)
def place(runs, built):
    """The sound cache lies there again."""
    shutil.rmtree(built[1])
    shutil.copytree(runs.path("kept"), built[1])


def shard(cache, number=0):
    return os.path.join(cache, "advection", "train", "latent", "c", str(number), "0", "0", "0")


def damage(cache, number=0):
    with open(shard(cache, number), "r+b") as file:
        file.seek(20)
        file.write(b"\x55\xaa\x55")


@pytest.fixture
def repair(copied, built):
    return lambda before=None: run(copied, "cache", "verify", "--repair", built[0], "--quiet", "--threads", "2", preexec_fn=before)


def as_nobody(runs):
    """The run belongs to a user without rights, who runs the command; where the tests are not run by root, to us."""
    if os.getuid() != 0:
        return None
    os.chmod(runs.folder, 0o755)
    for at, folders, files in os.walk(runs.folder):
        for name in folders + files:
            os.chown(os.path.join(at, name), NOBODY, NOBODY, follow_symlinks=False)

    def become():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    return become


def test_without_descriptors_nothing_sound_is_given_up(repair, built):
    _, cache, sound = built
    for count in range(3, 16):
        done = repair(limit(resource.RLIMIT_NOFILE, count))
        assert tree(cache) == sound, (count, done.stdout, done.stderr)


def test_without_descriptors_a_damaged_shard_is_replaced_or_stays(repair, built):
    _, cache, sound = built
    damage(cache, 1)
    damaged = tree(cache)
    for count in range(4, 40, 3):
        done = repair(limit(resource.RLIMIT_NOFILE, count))
        found = tree(cache)
        if found == sound:
            damage(cache, 1)
            continue
        assert done.returncode in (1, 127)  # 127: its libraries could not be opened
        found = {name: content for name, content in found.items() if ".building" not in name}
        assert found == damaged, (count, done.stderr)
        shutil.rmtree(os.path.join(cache, "advection", "train", ".building"), ignore_errors=True)
    assert repair().returncode == 0
    assert tree(cache) == sound


def test_without_descriptors_no_data_file_is_called_damaged(runs):
    for count in range(3, 12):
        done = ups("data", "inspect", os.path.join(runs.data, "darcy.h5"), preexec_fn=limit(resource.RLIMIT_NOFILE, count))
        assert "generate it again" not in done.stderr, count
        if done.returncode == 1:
            assert "raise `ulimit -n`" in done.stderr, count


def test_what_may_not_be_read_is_not_taken_for_broken(runs, repair, built):
    _, cache, sound = built
    damage(cache, 1)
    become = as_nobody(runs)
    before = tree(cache)
    for path in (shard(cache, 0), os.path.join(cache, "advection", "train", "zarr.json"),
                 os.path.join(cache, "advection", "train", "statistics", "c", "0", "0"),
                 os.path.dirname(shard(cache, 0)), os.path.join(cache, "darcy", "test")):
        mode = os.stat(path).st_mode
        os.chmod(path, 0)
        done = repair(become)
        os.chmod(path, mode)
        assert done.returncode == 1, (path, done.stdout, done.stderr)
        assert "Permission denied" in done.stdout + done.stderr, path
        if path == shard(cache, 0):
            assert "Make it readable, or remove that file to have it built again" in done.stderr
        if "darcy" not in path:
            assert tree(cache) == before, path
    assert repair(become).returncode == 0
    assert tree(cache) == sound


def test_where_nothing_may_be_written_everything_stays(runs, repair, built):
    _, cache, sound = built
    damage(cache, 0)
    os.remove(shard(cache, 1))
    become = as_nobody(runs)
    before = tree(cache)
    for at in (os.path.dirname(shard(cache, 0)), os.path.join(cache, "advection", "train")):
        os.chmod(at, 0o555)
        done = repair(become)
        os.chmod(at, 0o755)
        assert done.returncode == 1, (at, done.stdout, done.stderr)
        found = tree(cache)
        assert found[os.path.relpath(shard(cache, 0), cache)] == before[os.path.relpath(shard(cache, 0), cache)], at
        for name, content in sound.items():
            assert found.get(name) in (content, before.get(name)), (at, name)
    assert repair(become).returncode == 0
    assert tree(cache) == sound


@pytest.mark.parametrize("above", ["zarr.json", "advection/zarr.json"])
def test_a_groups_document_above_the_groups_hides_none_and_is_repaired(repair, built, above):
    config, cache, sound = built
    shutil.copy(os.path.join(cache, "advection", "train", "zarr.json"), os.path.join(cache, above))
    assert ups("cache", "verify", config).returncode == 1
    done = repair()
    assert done.returncode == 0, done.stderr
    assert tree(cache) == sound
