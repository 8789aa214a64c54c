"""Pages that commands write, read with html.parser."""

import html.parser
import re
from pathlib import Path

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(html.parser.HTMLParser):
    """Refuses what is not balanced; collects what could reach outside, pictures, numbers and headings."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.open, self.problems, self.outside, self.images, self.tags = [], [], [], [], []
        self.words, self.tables, self.captions, self.svgs, self.ids, self.anchors = [], 0, 0, [], set(), []
        self.source = Path(path).read_text(encoding="utf-8")
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
