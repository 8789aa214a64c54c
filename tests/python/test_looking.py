"""Looking into caches: the page, the comparison, the list, the pruning, the portable store; and what each of them says of
caches that are broken. The page is read with html.parser, the store with zarr-python as it comes, without our plug-in."""

import base64
import importlib.util
import json
import os
import re
import shutil
import struct
import xml.etree.ElementTree
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from commands import make_cache, one_sentence, ups
from pages import Page
from sealed import rewrite
from tiny_run import CONFIG, tree

GROUP = "waves/train"


def cache(*arguments):
    return ups("cache", *arguments)


# ---- the page

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


def png_colours(uri):
    """Colours of a PNG in a data URI whose every chunk has its CRC: 8-bit RGB, (rows, columns, 3)."""
    head = "data:image/png;base64,"
    assert uri.startswith(head)
    data, at, packed = base64.b64decode("".join(uri[len(head):].split()), validate=True), 8, b""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    while at < len(data):
        length, = struct.unpack(">I", data[at:at + 4])
        body = data[at + 4:at + 8 + length]
        assert zlib.crc32(body) == struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0]
        if body[:4] == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[4:14])
            assert depth == 8 and colour in (2, 6), (depth, colour)
        packed += body[4:] if body[:4] == b"IDAT" else b""
        at += 12 + length
    samples = 3 if colour == 2 else 4
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + samples * width)
    previous, out = np.zeros(samples * width, int), []
    for line in lines:  # PNG's five filters
        row = line[1:].astype(int)
        if line[0] == 2:
            row = (row + previous) % 256
        elif line[0] in (1, 3, 4):
            for i in range(row.size):
                left = row[i - samples] if i >= samples else 0
                above, corner = previous[i], previous[i - samples] if i >= samples else 0
                guess = left + above - corner
                nearest = min((abs(guess - left), 0, left), (abs(guess - above), 1, above), (abs(guess - corner), 2, corner))[2]
                row[i] = (row[i] + {1: left, 3: (left + above) // 2, 4: nearest}[line[0]]) % 256
        out.append(row)
        previous = row
    return np.array(out).reshape(height, width, samples)[..., :3]


def figures(page):
    """Every SVG of a page, parsed as the XML it has to be, by its description."""
    parsed = [xml.etree.ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page.source, re.S)]
    return [(figure.get("aria-label"), figure) for figure in parsed]


def images_of(figure):
    return [png_colours(image.get(LINK)) for image in figure.iter(SVG + "image")]


def check_page(page, kind):
    assert not page.problems, f"the page's markup is balanced ({kind})"
    assert not page.outside and not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", page.source), \
        f"it asks for nothing outside itself ({kind})"
    assert "script" not in page.tags, f"it holds no script ({kind})"
    assert not re.search(r"\b(nan|-?inf)\b", page.text()), f"no number on it is NaN or infinite ({kind})"
    assert page.tables == page.captions > 0 and page.svgs and all(s.get("role") == "img" and s.get("aria-label") for s in page.svgs), \
        f"every table has a caption, every figure a description ({kind})"
    drawn = figures(page)
    names = [element.get("id") for _, figure in drawn for element in figure.iter() if element.get("id")]
    used = re.findall(r"[\"(]#(f[^\")]*)", page.source)
    assert len(drawn) == len(page.svgs) and len(set(names)) == len(names) and used and set(used) <= set(names), \
        f"every figure is well-formed, its names its own and all there ({kind})"
    assert all(max(image.shape) <= 400 or image.shape[0] <= 220 for _, figure in drawn for image in images_of(figure)), \
        f"every field in a figure is a whole PNG of at most 400 a side, but for the strip over time ({kind})"
    assert page.anchors and set(page.anchors) <= page.ids, f"every link leads somewhere on it ({kind})"
    assert "prefers-color-scheme:dark" in page.source and "width=device-width" in page.source, f"it suits dark screens and narrow ones ({kind})"


def test_the_page_of_a_cache_is_sound_and_text_from_the_cache_stays_text(scratch):
    folder = os.path.join(scratch, "page")
    make_cache(folder, "skip=2,5")
    evil = "<script>alert('1')</script>\"&"

    def change(attributes):
        attributes["source"] = [evil]
        attributes["result"]["skipped"][0]["reason"] = evil

    rewrite(os.path.join(folder, GROUP), change)
    path = os.path.join(scratch, "page.html")
    done = cache("inspect", folder, "--html", path)
    assert done.returncode == 0 and os.path.exists(path), "inspect --html writes a page"
    page = Page(path)
    check_page(page, "synthetic")
    assert page.text().count(evil) == 2, "text from the cache stays text"
    assert "waves / train" in page.text() and "All 2 of them" in page.text(), "samples, ratio and skipped ones are on it"
    assert "--config CONFIG names one" in page.text(), "where there is no run, it says that fields cannot be shown"
    one_sentence(cache("inspect", folder, "--html", os.path.join(scratch, "no/such/folder.html")), "no/such")


@pytest.fixture(scope="module")
def built(runs):
    """A run's configuration and cache."""
    config = runs.config("run")
    runs.must("train", config, "--stage", "autoencoder", "--quiet")
    runs.must("cache", "build", config, "--quiet")
    return config, runs.path("run", "cache")


def test_the_page_of_a_runs_cache_shows_fields_and_looking_changes_nothing(runs, built):
    _, folder = built
    before = tree(runs.path("run"))
    path = runs.path("page.html")
    done = cache("inspect", folder, "--html", path, "--json")
    assert done.returncode == 0, "inspect --html finds the run around a cache"
    page = Page(path)
    check_page(page, "with fields")
    assert all(any(re.match(f"{name} of sample .*: read back, as it was, and the error", s["aria-label"]) for s in page.svgs)
               for name in ("u", "nu")), "fields, what is read back and errors are shown for both tasks"
    wave = next(figure for label, figure in figures(page) if label.startswith("u of sample"))
    back, field, error = (image.astype(int) for image in images_of(wave) if image.shape[1] > 1)  # colour bars have one column
    assert back.shape == field.shape == error.shape == (9, 32, 3) and np.ptp(field) > 100, "they are pictures of the same grid"
    assert np.abs(back - field).mean() < np.abs(field - error).mean(), "what is read back resembles the field, the error does not"
    facts = json.loads(done.stdout)
    fields = [field for group in facts for field in group["decoded"]["fields"]]
    assert len(fields) > 2 and all(0 < f["fp16_error"]["rms"] <= f["fp16_error"]["max"] < 0.05 * f["deviation"] for f in fields), \
        "what FP16 costs in fields is told, and is little beside the fields"
    assert all(group["decoded"]["latent_distance"] < 0.01 for group in facts), \
        "latents in the cache are those of the encoder now, but for rounding and the order of sums"
    assert tree(runs.path("run")) == before, "looking changes nothing in the run"
    os.remove(runs.path("run", "normalisation.json"))
    again = json.loads(cache("inspect", folder, "--fields", "--json").stdout)
    assert all(group["decoded"]["latent_distance"] < 0.01 for group in again) and not os.path.exists(runs.path("run", "normalisation.json")), \
        "fields are read back with the normalisation that the model brings; nothing is measured again"


def test_a_cache_is_named_by_its_directory_its_configuration_or_its_run(runs, built):
    config, folder = built
    run = runs.path("run")
    for command in ("inspect", "verify", "list"):
        told = []
        for operand in (folder, config, run):
            done = cache(command, operand, "--json")
            assert done.returncode == 0, done.stderr
            told.append(re.sub(r'"age_seconds": [^,\n]*', "", done.stdout))
        assert told[0] == told[1] == told[2], command
    done = cache("diff", config, run)
    assert done.returncode == 0 and cache("diff", folder, config).stdout == done.stdout, done.stderr
    shown = cache("inspect", config, "--fields", "--json")
    assert shown.returncode == 0 and all("fields" in group["decoded"] for group in json.loads(shown.stdout)), "a configuration decodes its own cache"
    beside, place = runs.path("beside"), runs.path("beside-cache")
    runs.must("train", runs.config("beside", CONFIG.replace("cache: {{", f"cache: {{{{directory: {place}, ")), "-q")
    assert [len(json.loads(cache("list", operand, "--json").stdout)["caches"]) for operand in (beside, place)] == [6, 6], "a name that begins as the run's is not below it"
    wrong = runs.config("wrong", CONFIG.replace("tokens: 8", "tokens: many"))
    one_sentence(cache("inspect", wrong), "wrong.yaml:.*model.tokens")
    one_sentence(cache("diff", wrong, folder), "wrong.yaml:.*model.tokens", code=2)
    one_sentence(cache("list", wrong), "wrong.yaml:.*model.tokens")


def test_the_data_of_a_run_are_shown_task_by_task(runs, built):
    config, _ = built
    np.save(runs.path("data", "waves.npy"), np.zeros((3, 4, 16), "f4"))
    own = runs.config("own", CONFIG.replace("  - name: darcy", "  - name: waves\n    files: [waves.npy]\n    patch: [4]"
                                            "\n    layout: {{fields: {{h: waves}}, axes: [sample, time, x]}}\n  - name: darcy"))
    told = runs.told("data", "inspect", own)
    assert [facts["task"] for facts in told] == ["advection", "waves", "darcy"] and told[1]["fields"] == ["h"] and told[1]["layout"] == "mapped"
    assert [facts["file"] for facts in runs.told("data", "inspect", config)] == [facts["file"] for facts in runs.told("data", "inspect", runs.path("run"))]
    shown = runs.must("data", "inspect", runs.path("run")).stdout
    assert shown.startswith("task advection: ") and "task darcy: " in shown
    wrong = runs.config("unread", CONFIG.replace("tokens: 8", "tokens: many").replace("advection.h5", "absent.h5"))
    done = ups("data", "inspect", wrong)
    one_sentence(done, "unread.yaml: 2 mistakes")
    assert "absent.h5" in done.stderr


def test_pruning_and_repairing_with_a_mistaken_configuration_tell_all_mistakes(runs, built):
    _, folder = built
    wrong = runs.config("mistaken", CONFIG.replace("tokens: 8", "tokens: many").replace("seed: 3", "seeds: 3"),
                        output=runs.path("run"))
    before = tree(runs.path("run"))
    for command in (["prune", "--config", wrong], ["prune", folder, "--config", wrong, "--yes"], ["verify", "--repair", wrong], ["verify", wrong],
                    ["inspect", wrong]):
        done = cache(*command)
        one_sentence(done, "mistaken.yaml: 2 mistakes")
        assert "model.tokens" in done.stderr and "seeds" in done.stderr
        told = json.loads(cache(*command, "--json").stdout)["error"]
        assert sorted(mistake["key"] for mistake in told["mistakes"]) == ["model.tokens", "seeds"]
    one_sentence(cache("verify", folder, "--repair", "--set", "model.dim=x", "--set", "seed=y"), "2 mistakes")
    assert tree(runs.path("run")) == before


def test_a_stale_group_is_said_to_be_and_pruned_when_that_is_asked_for(runs, built):
    config, folder = built
    done = cache("prune", "--config", config)
    assert done.returncode == 0 and "nothing to remove" in done.stdout, "nothing of a run's own cache is stale"
    metadata = os.path.join(folder, "advection/train/zarr.json")
    rewrite(os.path.dirname(metadata), lambda attributes: attributes["fingerprint"].update(encoder_weights=32 * "0"))
    facts = json.loads(cache("inspect", folder, "--fields", "--json").stdout)
    reasons = {group["split"]: group["decoded"].get("unavailable", "") for group in facts if group["task"] == "advection"}
    assert "encoder weights" in reasons["train"] and not reasons["test"], "inspect says why fields of a stale cache are not decoded"
    done = cache("prune", "--config", config, "--json")
    items = json.loads(done.stdout)["items"]
    assert [os.path.relpath(i["path"], folder) for i in items] == ["advection/train"] and "encoder weights" in items[0]["reason"], \
        "prune --config names the stale group and the part that differs"
    assert os.path.exists(metadata) and not items[0]["removed"], "without --yes it stays"
    done = cache("prune", "--config", config, "--yes")
    assert done.returncode == 0 and not os.path.exists(os.path.dirname(metadata)) and os.path.exists(folder + "/advection/test/zarr.json"), \
        "with --yes it goes, and the others stay"


def test_a_cache_that_more_files_extend_is_kept_by_pruning(runs):
    """Files that arrive later, and files that changed: the first are added by `cache build`, the others are what makes a cache stale."""
    data = runs.path("growing")
    os.mkdir(data)
    generate = ("datagen", "advection1d", "-n", "6", "-r", "32", "--steps", "9", "-t", "1")
    runs.must(*generate, "-o", os.path.join(data, "wave_beta0.1.hdf5"), "--seed", "1")
    text = CONFIG.replace("files: [advection.h5]", "files: [wave_beta*.hdf5]").replace("steps: 60", "steps: 0")
    text = text[:text.index("  - name: darcy")] + text[text.index("model:"):]
    config, folder = runs.config("grows", text, data=data), runs.path("grows", "cache")
    runs.must("train", config, "--stage", "autoencoder", "-q")
    runs.must("cache", "build", config)
    runs.must(*generate, "-o", os.path.join(data, "wave_beta0.2.hdf5"), "--seed", "2")
    before = tree(folder)
    said = json.loads(cache("prune", "--config", config, "--yes", "--json").stdout)
    assert len(said["items"]) == 3 and said["removable_bytes"] == said["freed_bytes"] == 0
    assert all("can be extended by `ups cache build`" in item["reason"] and not item["removable"] for item in said["items"])
    assert tree(folder) == before
    assert "were there" in runs.must("cache", "build", config).stdout
    assert "nothing to remove" in runs.must("cache", "prune", "--config", config).stdout
    runs.must(*generate, "-o", os.path.join(data, "wave_beta0.1.hdf5"), "--seed", "3", "--force")
    said = json.loads(cache("prune", "--config", config, "--yes", "--json").stdout)
    assert len(said["items"]) == 3 and all(item["removed"] and "source data" in item["reason"] for item in said["items"])


# ---- the portable store, and other exports

def test_exports_hold_what_the_cache_holds_or_what_was_chosen_of_it(scratch):
    assert importlib.util.find_spec("ups_zarr") is None, "the plug-in is installed; this part would prove nothing"
    folder = os.path.join(scratch, "exports")
    expected = make_cache(folder, "skip=2,5")
    expected[[2, 5]] = np.nan
    store = os.path.join(scratch, "all.zarr")
    done = cache("export", os.path.join(folder, GROUP), "--format", "zarr", "-o", store)
    assert done.returncode == 0, "export --format zarr writes a store"
    group = zarr.open_group(store, mode="r")
    read, there = group["latent"][:], [0, 1, 3, 4, 6, 7, 8]
    assert read.dtype == "f2" and read[there].tobytes() == expected[there].tobytes(), "zarr-python reads it without a plug-in, bit for bit"
    assert np.isnan(read[[2, 5]]).all(), "skipped samples are NaN in it"
    assert (group["time"].shape == (21,) and group["condition"].shape == (9, 2) and np.array_equal(group["source_sample"][:], np.arange(9))
            and group["statistics"].shape == (9, 6)), "times, conditions, sources and statistics come along"
    assert cache("verify", store).returncode == 0, "it is a cache in itself, and sound"
    assert cache("diff", os.path.join(folder, GROUP), store).returncode == 0, "it holds what the cache holds"
    one_sentence(cache("export", os.path.join(folder, GROUP), "--format", "zarr", "-o", store), "is there already")

    chosen, rows = "6-8,0,3", [6, 7, 8, 0, 3]
    for kind in ("npy", "hdf5", "zarr"):
        path = os.path.join(scratch, "chosen." + kind)
        done = cache("export", os.path.join(folder, GROUP), "--format", kind, "-o", path, "--samples", chosen)
        if kind == "npy":
            read, sources = np.load(path), rows
        elif kind == "hdf5":
            with h5py.File(path) as file:
                read, sources = file["latent"][:], list(file["source_sample"][:])
        else:
            group = zarr.open_group(path, mode="r")
            read, sources = group["latent"][:], list(group["source_sample"][:])
        assert read.tobytes() == expected[rows].tobytes() and sources == rows, f"a selection is written in its order ({kind})"
    part = json.loads(Path(scratch, "chosen.zarr", "zarr.json").read_text())["attributes"]["ups"]
    whole = json.loads(Path(store, "zarr.json").read_text())["attributes"]["ups"]
    part, whole = part["fingerprint"], whole["fingerprint"]
    assert part["source"] != whole["source"] and part["encoder_weights"] == whole["encoder_weights"], \
        "a selection's source has another fingerprint than the whole's"
    for wrong in ("9", "0-99"):
        one_sentence(cache("export", os.path.join(folder, GROUP), "-o", os.path.join(scratch, "wrong.npy"), "--samples", wrong), "the last is 8")
    for wrong in ("", "a", "3-1", "1,,2", "1,", "-1", "1-"):
        done = cache("export", os.path.join(folder, GROUP), "-o", os.path.join(scratch, "wrong.npy"), f"--samples={wrong}")
        assert done.returncode == 2 and "0-9,12" in done.stderr, f"what is no list of samples is refused ('{wrong}')"
    assert not os.path.exists(os.path.join(scratch, "wrong.npy")), "and nothing is left of what was refused"


# ---- comparison

def test_diff_tells_what_differs(scratch):
    a, b, c = (os.path.join(scratch, name) for name in ("a", "b", "c"))
    make_cache(a)
    make_cache(b, "portable")
    make_cache(c, "skip=4")
    done = cache("diff", a, b)
    assert done.returncode == 0 and "does not count" in done.stdout, "diff ends with 0 where only the codec differs, and says so"
    done = cache("diff", a, c, "--json")
    facts = json.loads(done.stdout)
    samples = {"common": 8, "equal": 8, "differing": 0, "only_a": 1, "only_b": 0}
    assert done.returncode == 1 and facts["same"] is False and facts["groups"][0]["samples"] == samples, "and with 1 where a sample is missing"
    os.makedirs(os.path.join(b, "other"))
    shutil.copytree(os.path.join(b, GROUP), os.path.join(b, "other/train"))
    done = cache("diff", a, b)
    assert done.returncode == 1 and "other/train: has no counterpart" in done.stdout, "a group without a counterpart is named, with 1"
    one_sentence(cache("diff", a, os.path.join(scratch, "nowhere")), "nowhere", code=2)


# ---- the list, and pruning

def test_the_list_finds_every_cache_and_pruning_removes_the_unfinished_alone(scratch):
    root = os.path.join(scratch, "many")
    make_cache(os.path.join(root, "good"))
    make_cache(os.path.join(root, "deep/er/one"), "skip=1")
    broken = os.path.join(root, "broken", GROUP, "zarr.json")
    make_cache(os.path.join(root, "broken"))
    open(broken, "r+b").truncate(100)
    gone = os.path.join(root, "gone", GROUP)
    make_cache(os.path.join(root, "gone"))
    os.unlink(os.path.join(gone, "latent/c/1/0/0/0"))
    old = os.path.join(root, "old", GROUP)
    make_cache(os.path.join(root, "old"))
    document = json.loads(Path(old, "zarr.json").read_text())
    document["attributes"]["ups"]["fingerprint"]["format"] = 0
    json.dump(document, open(os.path.join(old, "zarr.json"), "w"))
    done = cache("list", root, "--json")
    facts = json.loads(done.stdout)
    state = {os.path.relpath(c["directory"], root): c["state"] for c in facts["caches"]}
    assert state == {"good/" + GROUP: "complete", "deep/er/one/" + GROUP: "complete", "broken/" + GROUP: "broken",
                    "gone/" + GROUP: "broken", "old/" + GROUP: "other format"}, "list finds every cache, and tells which are not sound"
    size = {os.path.relpath(c["directory"], root): c["bytes"] for c in facts["caches"]}
    real = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(os.path.join(root, "good", GROUP)) for name in names)
    assert size["good/" + GROUP] == real and facts["total"]["bytes"] == sum(size.values()), "sizes are those of the files, and summed"
    done = cache("list", root)
    assert done.returncode == 0 and "1 of 3 shards are missing" in done.stdout, "the list names what is wrong"
    one_sentence(cache("list", os.path.join(root, "good/expected.f16")), "expected.f16")

    unfinished = os.path.join(root, "good", GROUP, "zarr.json")
    rewrite(os.path.dirname(unfinished), lambda attributes: attributes.update(complete=False))
    before = tree(root)
    done = cache("prune", root, "--older-than", "0d")
    assert done.returncode == 0 and "good/" + GROUP in done.stdout and "--yes removes it" in done.stdout and tree(root) == before, \
        "prune says what it would remove, and removes nothing"
    done = cache("prune", root, "--yes")
    assert "nothing to remove" in done.stdout and tree(root) == before, "a young build is not given up"
    done = cache("prune", root, "--older-than", "0d", "--yes")
    after = tree(root)
    assert done.returncode == 0 and set(before) - set(after) == {p for p in before if p == "good/" + GROUP or p.startswith("good/" + GROUP + "/")}, \
        "with --yes only the unfinished one is removed"
    for wrong in (["--older-than", "soon"], ["--yes", "--dry-run", root], [], [root, "--set", "seed=1"]):
        assert cache("prune", *wrong).returncode == 2, f"a wrong line is refused ({wrong})"


# ---- broken caches

def test_every_file_cut_short_is_told_in_a_sentence_or_not_needed(scratch):
    """Every file of a small cache is cut short in turn; each command ends in a sentence, or does not need that file."""
    intact = os.path.join(scratch, "intact")
    make_cache(intact)
    other = os.path.join(scratch, "other")
    shutil.copytree(intact, other)
    out = os.path.join(scratch, "out")
    commands = {"inspect": [], "export": ["-o", out + ".npy"], "diff": [os.path.join(other, GROUP)],
                "export zarr": ["--format", "zarr", "-o", out + ".zarr"], "page": ["--html", out + ".html"]}
    bad, files = [], [p for p, digest in tree(os.path.join(intact, GROUP)).items() if digest]
    needed = {"inspect": ("zarr.json", "latent", "statistics/c"), "page": ("zarr.json", "latent", "statistics/c"),
              "export": ("zarr.json", "latent/c"), "diff": ("zarr.json", "latent/c"),
              "export zarr": ("zarr.json", "latent", "statistics")}
    for file in files:
        path = os.path.join(intact, GROUP, file)
        content = Path(path).read_bytes()
        Path(path).write_bytes(content[:len(content) // 2])
        for name, options in commands.items():
            done = cache({"export zarr": "export", "page": "inspect"}.get(name, name), os.path.join(intact, GROUP), *options)
            lines = [line for line in done.stderr.splitlines() if line.startswith("ups: ")]
            sentence = done.returncode in (1, 2) and len(lines) == 1 and not os.path.exists(options[-1] if "-o" in options else out)
            needs = file.startswith(needed[name]) or file in ("time/c/0", "condition/c/0/0", "source_sample/c/0")
            if done.returncode < 0 or (done.returncode != 0 and not sentence) or (needs and done.returncode == 0):
                bad.append((name, file, done.returncode, done.stderr[-200:]))
            for left in (out + ".npy", out + ".html"):
                if os.path.exists(left):
                    os.unlink(left)
            shutil.rmtree(out + ".zarr", ignore_errors=True)
        Path(path).write_bytes(content)
    assert not bad and len(files) > 8, f"each of {len(files)} files cut short: every command ends in a sentence, none in a crash"
    root = os.path.join(scratch, "half")
    make_cache(root)
    shutil.copytree(os.path.join(root, GROUP), os.path.join(root, "waves/test"))
    open(os.path.join(root, "waves/test/zarr.json"), "w").write("{}")
    done = cache("inspect", root, "--html", os.path.join(scratch, "half.html"))
    assert done.returncode == 1 and "waves" in done.stdout and "broken" in done.stdout, \
        "of two groups the sound one is shown, the broken one named, and the end is 1"
    check_page(Page(os.path.join(scratch, "half.html")), "one broken")
