"""Titles and headings: what the author of a document called it and its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pixnar.corpus import Document

_MARKDOWN = re.compile(r" {0,3}#{1,6}[ \t]")
_UNDERLINE = re.compile(r" {0,3}(?:={3,}|-{3,})[ \t]*")
_HTML = re.compile(r"<(/?)h[1-6]\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_SENTENCE_END = (".", "!", ",", ";", "。", "！")
_LONGEST = 12  # words of a line that may be a heading because it stands alone
_WIDEST = 80  # its characters
_MOST = 400  # characters of any heading: what is longer is text whose mark was left open


def titles(document: Document, most: int) -> list[str]:
    r"""The title of a document, and up to `most` headings: those of its text, or of the key `headings` of its row.

    Headings are known by their marks (Markdown, wiki, HTML) or by standing alone between empty lines. A heading
    says little by itself ("History"), so the title goes before it.

    >>> titles(Document("d1", "Tea", "# Plant\nIt is a shrub.\n\n# Drink\nIt is hot.", {}), 5)
    ['Tea', 'Tea: Plant', 'Tea: Drink']
    """
    title = " ".join(document.title.split())
    found = dict.fromkeys(heading for heading in _headings(document) if heading.lower() != title.lower())
    headings = [f"{title}: {heading}" if title else heading for heading in list(found)[:most]]
    return [title, *headings] if title else headings


def _headings(document: Document) -> Iterator[str]:
    told: Any = document.metadata.get("headings")
    rows = told.splitlines() if isinstance(told, str) else told if isinstance(told, list) else []
    yield from filter(None, (" ".join(row.split()) for row in rows if isinstance(row, str)))
    text = document.text.replace("\r\n", "\n")
    for _, heading in sorted([*_marked_lines(text), *_marked_html(text)]):
        told = " ".join(_TAG.sub(" ", heading[:_MOST]).split()) if len(heading) <= _MOST else ""
        if told:
            yield told


def _marked_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are headings by their own marks, by the line below, or by standing alone; and where they begin."""
    lines = text.split("\n")
    blank = [not line.strip() for line in lines]
    last = max((i for i, empty in enumerate(blank) if not empty), default=0)
    place = 0
    for i, line in enumerate(lines):
        heading = _by_marks(line)
        if not heading and i + 1 < len(lines) and _UNDERLINE.fullmatch(lines[i + 1]):
            heading = line.strip()
        alone = (i == 0 or blank[i - 1]) and i < last and blank[i + 1] and len(line) <= _WIDEST
        if not heading and alone and not line.lstrip().startswith(("#", "=")):
            said = line.strip()
            heading = "" if said.endswith(_SENTENCE_END) or len(said.split()) > _LONGEST else said
        if heading:
            yield place, heading
        place += len(line) + 1


def _by_marks(line: str) -> str:
    """What a Markdown or wiki heading says; of other lines nothing."""
    if mark := _MARKDOWN.match(line):
        return line[mark.end() :].strip(" \t").rstrip("#").rstrip(" \t")
    bare = line.rstrip(" \t")
    inner = bare.strip("=")
    before, after = len(bare) - len(bare.lstrip("=")), len(bare) - len(bare.rstrip("="))
    return inner.strip() if 2 <= before <= 6 and 2 <= after <= 6 and "=" not in inner else ""


def _marked_html(text: str) -> Iterator[tuple[int, str]]:
    """What stands between <h1> and </h1>, and where."""
    opened: re.Match[str] | None = None
    for tag in _HTML.finditer(text):
        if tag.group(1):
            if opened:
                yield opened.start(), text[opened.end() : tag.start()]
            opened = None
        else:
            opened = opened or tag
