"""Looking into caches: the page, the comparison, the list, the pruning, the portable store; and what each of them says of
caches that are broken. The page is read with html.parser, the store with zarr-python as it comes, without our plug-in.

    test_looking.py UPS MAKE_CACHE
"""

import html.parser
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
import zlib

import h5py
import numpy as np
import zarr

from sealed import rewrite
from tiny_run import PATIENCE, runs, tree

UPS, MAKE_CACHE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SHAPE = (9, 21, 5, 32)
GROUP = "waves/train"
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
failures = 0


def claim(text, held, detail=""):
    global failures
    failures += not held
    print(("ok    " if held else "FAILS ") + text + (f": {detail}" if detail and not held else ""), flush=True)


def ups(*arguments):
    return subprocess.run([UPS, "cache", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)


def make(directory, *options):
    subprocess.run([MAKE_CACHE, directory, *options], check=True, timeout=PATIENCE)
    return np.fromfile(os.path.join(directory, "expected.f16"), "<f2").reshape(SHAPE)


def is_sentence(done, *mentioned, code=1):
    return (done.returncode == code and done.stderr.startswith("ups: ") and done.stderr.count("\n") == 1
            and all(word in done.stderr for word in mentioned))


# ---- the page


class Page(html.parser.HTMLParser):
    """Refuses what is not balanced; collects what could reach outside, pictures, numbers and headings."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.open, self.problems, self.outside, self.images, self.tags = [], [], [], [], []
        self.words, self.tables, self.captions, self.svgs, self.ids, self.anchors = [], 0, 0, [], set(), []
        with open(path, encoding="utf-8", errors="strict") as file:
            self.source = file.read()
        self.feed(self.source)
        self.close()
        if self.open:
            self.problems.append(f"never closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "data", "action", "xlink:href") and not (value or "").startswith(("data:", "#")):
                self.outside.append(value)
            if name.startswith("on"):
                self.problems.append(f"a handler: {name}")
            if name in ("d", "x", "y", "cx", "cy", "r", "width", "height", "viewBox") and re.search("nan|inf", value or "", re.I):
                self.problems.append(f"{name}={value[:60]}")
        if "id" in values:
            self.ids.add(values["id"])
        if values.get("href", "").startswith("#"):
            self.anchors.append(values["href"][1:])
        if tag == "img":
            self.images.append(values)
        if tag == "svg":
            self.svgs.append(values)
        self.tables += tag == "table"
        self.captions += tag == "caption"

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.problems.append(f"</{tag}> where {self.open[-1:]} was open")
        else:
            self.open.pop()

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    def text(self):
        return " ".join(self.words)


SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


def png_colours(uri):
    """Colours of a PNG in a data URI whose every chunk has its CRC: 8-bit RGB, (rows, columns, 3)."""
    import base64

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
    claim(f"the page's markup is balanced ({kind})", not page.problems, page.problems[:3])
    claim(f"it asks for nothing outside itself ({kind})",
          not page.outside and not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", page.source), page.outside[:3])
    claim(f"it holds no script ({kind})", "script" not in page.tags)
    claim(f"no number on it is NaN or infinite ({kind})", not re.search(r"\b(nan|-?inf)\b", page.text()))
    claim(f"every table has a caption, every figure a description ({kind})",
          page.tables == page.captions > 0 and page.svgs and all(s.get("role") == "img" and s.get("aria-label") for s in page.svgs))
    drawn = figures(page)
    names = [element.get("id") for _, figure in drawn for element in figure.iter() if element.get("id")]
    used = re.findall(r"[\"(]#(f[^\")]*)", page.source)
    claim(f"every figure is well-formed, its names its own and all there ({kind})",
          len(drawn) == len(page.svgs) and len(set(names)) == len(names) and used and set(used) <= set(names))
    claim(f"every field in a figure is a whole PNG of at most 400 a side, but for the strip over time ({kind})",
          all(max(image.shape) <= 400 or image.shape[0] <= 220 for _, figure in drawn for image in images_of(figure)))
    claim(f"every link leads somewhere on it ({kind})", page.anchors and set(page.anchors) <= page.ids)
    claim(f"it suits dark screens and narrow ones ({kind})", "prefers-color-scheme:dark" in page.source and "width=device-width" in page.source)


def check_pages(scratch):
    cache = os.path.join(scratch, "page")
    make(cache, "skip=2,5")
    evil = "<script>alert('1')</script>\"&"

    def change(attributes):
        attributes["source"] = [evil]
        attributes["result"]["skipped"][0]["reason"] = evil

    rewrite(os.path.join(cache, GROUP), change)
    path = os.path.join(scratch, "page.html")
    done = ups("inspect", cache, "--html", path)
    claim("inspect --html writes a page", done.returncode == 0 and os.path.exists(path), done.stderr)
    page = Page(path)
    check_page(page, "synthetic")
    claim("text from the cache stays text", page.text().count(evil) == 2, page.text().count(evil))
    claim("samples, ratio and skipped ones are on it", "waves / train" in page.text() and "All 2 of them" in page.text())
    claim("where there is no run, it says that fields cannot be shown", "--config CONFIG names one" in page.text())
    done = ups("inspect", cache, "--html", os.path.join(scratch, "no/such/folder.html"))
    claim("a page that cannot be written is a sentence", is_sentence(done, "no/such"), done.stderr)


def check_pages_with_fields():
    with runs(UPS) as made:
        config = made.config("run")
        made.must("train", config, "--stage", "autoencoder", "--quiet")
        made.must("cache", "build", config, "--quiet")
        cache = made.path("run", "cache")
        before = tree(made.path("run"))
        path = made.path("page.html")
        done = ups("inspect", cache, "--html", path, "--json")
        claim("inspect --html finds the run around a cache", done.returncode == 0, done.stderr)
        page = Page(path)
        check_page(page, "with fields")
        claim("fields, what is read back and errors are shown for both tasks",
              all(any(re.match(f"{name} of sample .*: read back, as it was, and the error", s["aria-label"]) for s in page.svgs)
                  for name in ("u", "nu")), sorted({s["aria-label"][:40] for s in page.svgs}))
        wave = next(figure for label, figure in figures(page) if label.startswith("u of sample"))
        back, field, error = (image.astype(int) for image in images_of(wave) if image.shape[1] > 1)  # colour bars have one column
        claim("the field and what is read back are pictures of the same grid that differ less than either from the error's",
              back.shape == field.shape == error.shape == (9, 32, 3) and np.ptp(field) > 100
              and np.abs(back - field).mean() < np.abs(field - error).mean(), (back.shape, np.abs(back - field).mean()))
        facts = json.loads(done.stdout)
        fields = [field for group in facts for field in group["decoded"]["fields"]]
        claim("what FP16 costs in fields is told, and is little beside the fields",
              len(fields) > 2 and all(0 < f["fp16_error"]["rms"] <= f["fp16_error"]["max"] < 0.05 * f["deviation"] for f in fields), fields[:2])
        claim("latents in the cache are those of the encoder now, but for rounding and the order of sums",
              all(group["decoded"]["latent_distance"] < 0.01 for group in facts))
        claim("looking changes nothing in the run", tree(made.path("run")) == before)
        os.remove(made.path("run", "normalisation.json"))
        again = json.loads(ups("inspect", cache, "--fields", "--json").stdout)
        claim("fields are read back with the normalisation that the model brings; nothing is measured again",
              all(group["decoded"]["latent_distance"] < 0.01 for group in again) and not os.path.exists(made.path("run", "normalisation.json")))
        check_stale(made, config, cache)


def check_stale(made, config, cache):
    done = ups("prune", "--config", config)
    claim("nothing of a run's own cache is stale", done.returncode == 0 and "nothing to remove" in done.stdout, done.stdout + done.stderr)
    metadata = os.path.join(cache, "advection/train/zarr.json")
    rewrite(os.path.dirname(metadata), lambda attributes: attributes["fingerprint"].update(encoder_weights=32 * "0"))
    facts = json.loads(ups("inspect", cache, "--fields", "--json").stdout)
    reasons = {group["split"]: group["decoded"].get("unavailable", "") for group in facts if group["task"] == "advection"}
    claim("inspect says why fields of a stale cache are not decoded", "encoder weights" in reasons["train"] and not reasons["test"], reasons)
    done = ups("prune", "--config", config, "--json")
    items = json.loads(done.stdout)["items"]
    claim("prune --config names the stale group and the part that differs",
          [os.path.relpath(i["path"], cache) for i in items] == ["advection/train"] and "encoder weights" in items[0]["reason"], items)
    claim("without --yes it stays", os.path.exists(metadata) and not items[0]["removed"])
    done = ups("prune", "--config", config, "--yes")
    claim("with --yes it goes, and the others stay",
          done.returncode == 0 and not os.path.exists(os.path.dirname(metadata)) and os.path.exists(os.path.join(cache, "advection/test/zarr.json")))


# ---- the portable store, and other exports


def check_exports(scratch):
    assert importlib.util.find_spec("ups_zarr") is None, "the plug-in is installed; this part would prove nothing"
    cache = os.path.join(scratch, "exports")
    expected = make(cache, "skip=2,5")
    expected[[2, 5]] = np.nan
    store = os.path.join(scratch, "all.zarr")
    done = ups("export", os.path.join(cache, GROUP), "--format", "zarr", "-o", store)
    claim("export --format zarr writes a store", done.returncode == 0, done.stderr)
    group = zarr.open_group(store, mode="r")
    read, there = group["latent"][:], [0, 1, 3, 4, 6, 7, 8]
    claim("zarr-python reads it without a plug-in, bit for bit", read.dtype == "f2" and read[there].tobytes() == expected[there].tobytes())
    claim("skipped samples are NaN in it", np.isnan(read[[2, 5]]).all())
    claim("times, conditions, sources and statistics come along",
          group["time"].shape == (21,) and group["condition"].shape == (9, 2) and np.array_equal(group["source_sample"][:], np.arange(9))
          and group["statistics"].shape == (9, 6))
    claim("it is a cache in itself, and sound", ups("verify", store).returncode == 0)
    claim("it holds what the cache holds", ups("diff", os.path.join(cache, GROUP), store).returncode == 0)
    done = ups("export", os.path.join(cache, GROUP), "--format", "zarr", "-o", store)
    claim("a store that is there already is not touched", is_sentence(done, "is there already"), done.stderr)

    chosen, rows = "6-8,0,3", [6, 7, 8, 0, 3]
    for kind in ("npy", "hdf5", "zarr"):
        path = os.path.join(scratch, "chosen." + kind)
        done = ups("export", os.path.join(cache, GROUP), "-f", kind, "-o", path, "--samples", chosen)
        if kind == "npy":
            read, sources = np.load(path), rows
        elif kind == "hdf5":
            with h5py.File(path) as file:
                read, sources = file["latent"][:], list(file["source_sample"][:])
        else:
            group = zarr.open_group(path, mode="r")
            read, sources = group["latent"][:], list(group["source_sample"][:])
        claim(f"a selection is written in its order ({kind})", read.tobytes() == expected[rows].tobytes() and sources == rows, done.stderr)
    part = json.load(open(os.path.join(scratch, "chosen.zarr", "zarr.json")))["attributes"]["ups"]
    whole = json.load(open(os.path.join(store, "zarr.json")))["attributes"]["ups"]
    claim("a selection's source has another fingerprint than the whole's",
          part["fingerprint"]["source"] != whole["fingerprint"]["source"] and part["fingerprint"]["encoder_weights"] == whole["fingerprint"]["encoder_weights"])
    for wrong in ("9", "0-99"):
        done = ups("export", os.path.join(cache, GROUP), "-o", os.path.join(scratch, "wrong.npy"), "--samples", wrong)
        claim(f"a sample that is not there is a sentence ({wrong})", is_sentence(done, "the last is 8"), done.stderr)
    for wrong in ("", "a", "3-1", "1,,2", "1,", "-1", "1-"):
        done = ups("export", os.path.join(cache, GROUP), "-o", os.path.join(scratch, "wrong.npy"), f"--samples={wrong}")
        claim(f"what is no list of samples is refused ('{wrong}')", done.returncode == 2 and "0-9,12" in done.stderr, done.stderr)
    claim("and nothing is left of what was refused", not os.path.exists(os.path.join(scratch, "wrong.npy")))


# ---- comparison


def check_diff(scratch):
    a, b, c = (os.path.join(scratch, name) for name in ("a", "b", "c"))
    make(a)
    make(b, "portable")
    make(c, "skip=4")
    done = ups("diff", a, b)
    claim("diff ends with 0 where only the codec differs, and says so", done.returncode == 0 and "does not count" in done.stdout, done.stdout)
    done = ups("diff", a, c, "--json")
    facts = json.loads(done.stdout)
    claim("and with 1 where a sample is missing",
          done.returncode == 1 and facts["same"] is False and facts["groups"][0]["samples"] == {"common": 8, "equal": 8, "differing": 0, "only_a": 1, "only_b": 0})
    os.makedirs(os.path.join(b, "other"))
    shutil.copytree(os.path.join(b, GROUP), os.path.join(b, "other/train"))
    done = ups("diff", a, b)
    claim("a group without a counterpart is named, with 1", done.returncode == 1 and "other/train: has no counterpart" in done.stdout, done.stdout)
    done = ups("diff", a, os.path.join(scratch, "nowhere"))
    claim("trouble ends with 2 and a sentence", is_sentence(done, "nowhere", code=2), done.stderr)


# ---- the list, and pruning


def check_list_and_prune(scratch):
    root = os.path.join(scratch, "many")
    make(os.path.join(root, "good"))
    make(os.path.join(root, "deep/er/one"), "skip=1")
    broken = os.path.join(root, "broken", GROUP, "zarr.json")
    make(os.path.join(root, "broken"))
    open(broken, "r+b").truncate(100)
    gone = os.path.join(root, "gone", GROUP)
    make(os.path.join(root, "gone"))
    os.unlink(os.path.join(gone, "latent/c/1/0/0/0"))
    old = os.path.join(root, "old", GROUP)
    make(os.path.join(root, "old"))
    document = json.load(open(os.path.join(old, "zarr.json")))
    document["attributes"]["ups"]["fingerprint"]["format"] = 0
    json.dump(document, open(os.path.join(old, "zarr.json"), "w"))
    done = ups("list", root, "--json")
    facts = json.loads(done.stdout)
    state = {os.path.relpath(c["directory"], root): c["state"] for c in facts["caches"]}
    claim("list finds every cache, and tells which are not sound",
          state == {"good/" + GROUP: "complete", "deep/er/one/" + GROUP: "complete", "broken/" + GROUP: "broken",
                    "gone/" + GROUP: "broken", "old/" + GROUP: "other format"}, state)
    size = {os.path.relpath(c["directory"], root): c["bytes"] for c in facts["caches"]}
    real = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(os.path.join(root, "good", GROUP)) for name in names)
    claim("sizes are those of the files, and summed", size["good/" + GROUP] == real and facts["total"]["bytes"] == sum(size.values()))
    done = ups("list", root)
    claim("the list names what is wrong", done.returncode == 0 and "1 of 3 shards are missing" in done.stdout, done.stdout)
    done = ups("list", os.path.join(root, "good/expected.f16"))
    claim("a file instead of a directory is a sentence", is_sentence(done, "expected.f16"), done.stderr)

    unfinished = os.path.join(root, "good", GROUP, "zarr.json")
    rewrite(os.path.dirname(unfinished), lambda attributes: attributes.update(complete=False))
    before = tree(root)
    done = ups("prune", root, "--older-than", "0d")
    claim("prune says what it would remove, and removes nothing",
          done.returncode == 0 and "good/" + GROUP in done.stdout and "--yes removes it" in done.stdout and tree(root) == before, done.stdout)
    done = ups("prune", root, "--yes")
    claim("a young build is not given up", "nothing to remove" in done.stdout and tree(root) == before, done.stdout)
    done = ups("prune", root, "--older-than", "0d", "--yes")
    after = tree(root)
    claim("with --yes only the unfinished one is removed",
          done.returncode == 0 and set(before) - set(after) == {p for p in before if p == "good/" + GROUP or p.startswith("good/" + GROUP + "/")}, done.stdout)
    for wrong in (["--older-than", "soon"], ["--yes", "--dry-run", root], []):
        claim(f"a wrong line is refused ({wrong})", ups("prune", *wrong).returncode == 2)


# ---- broken caches


def check_broken(scratch):
    """Every file of a small cache is cut short in turn; each command ends in a sentence, or does not need that file."""
    intact = os.path.join(scratch, "intact")
    make(intact)
    other = os.path.join(scratch, "other")
    shutil.copytree(intact, other)
    out = os.path.join(scratch, "out")
    commands = {"inspect": [], "export": ["-o", out + ".npy"], "diff": [os.path.join(other, GROUP)],
                "export zarr": ["-f", "zarr", "-o", out + ".zarr"], "page": ["--html", out + ".html"]}
    bad, files = [], [p for p, digest in tree(os.path.join(intact, GROUP)).items() if digest]
    needed = {"inspect": ("zarr.json", "latent", "statistics/c"), "page": ("zarr.json", "latent", "statistics/c"),
              "export": ("zarr.json", "latent/c"), "diff": ("zarr.json", "latent/c"),
              "export zarr": ("zarr.json", "latent", "statistics")}
    for file in files:
        path = os.path.join(intact, GROUP, file)
        content = open(path, "rb").read()
        open(path, "wb").write(content[:len(content) // 2])
        for name, options in commands.items():
            done = ups({"export zarr": "export", "page": "inspect"}.get(name, name), os.path.join(intact, GROUP), *options)
            lines = [line for line in done.stderr.splitlines() if line.startswith("ups: ")]
            sentence = done.returncode in (1, 2) and len(lines) == 1 and not os.path.exists(options[-1] if "-o" in options else out)
            must = file.startswith(needed[name]) or file in ("time/c/0", "condition/c/0/0", "source_sample/c/0")
            if done.returncode < 0 or (done.returncode != 0 and not sentence) or (must and done.returncode == 0):
                bad.append((name, file, done.returncode, done.stderr[-200:]))
            for left in (out + ".npy", out + ".html"):
                if os.path.exists(left):
                    os.unlink(left)
            shutil.rmtree(out + ".zarr", ignore_errors=True)
        open(path, "wb").write(content)
    claim(f"each of {len(files)} files cut short: every command ends in a sentence, none in a crash", not bad and len(files) > 8, bad[:3])
    root = os.path.join(scratch, "half")
    make(root)
    shutil.copytree(os.path.join(root, GROUP), os.path.join(root, "waves/test"))
    open(os.path.join(root, "waves/test/zarr.json"), "w").write("{}")
    done = ups("inspect", root, "--html", os.path.join(scratch, "half.html"))
    claim("of two groups the sound one is shown, the broken one named, and the end is 1",
          done.returncode == 1 and "waves" in done.stdout and "broken" in done.stdout, done.stdout + done.stderr)
    check_page(Page(os.path.join(scratch, "half.html")), "one broken")


def main():
    began = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        for check in (check_pages, check_exports, check_diff, check_list_and_prune, check_broken):
            check(scratch)
    check_pages_with_fields()
    print(f"{time.time() - began:.1f} s")


main()
sys.exit(failures > 0)
