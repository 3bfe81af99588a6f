"""Titles and headings: what the author of a document called it and its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pixnar.corpus import Document

_HEADING = re.compile(
    r"^[ ]{0,3}\#{1,6}[ \t]+(?P<markdown>[^\n]+?)[ \t]*\#*[ \t]*$"
    r"|^={2,6}[ \t]*(?P<wiki>[^\n=]+?)[ \t]*={2,6}[ \t]*$"
    r"|^(?P<underlined>[^\n]+)\n[ ]{0,3}(?:={3,}|-{3,})[ \t]*$"
    r"|<h[1-6]\b[^>]*>(?P<html>.*?)</h[1-6]\s*>"
    r"|(?:\A|\n[ \t]*\n)(?P<alone>[^\n]{1,80})(?=\n[ \t]*\n\s*\S)",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(r"<[^>]*>")
_SENTENCE_END = (".", "!", ",", ";", "。", "！")
_LONGEST = 12  # words of a line that may be a heading because it stands alone


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
    for found in _HEADING.finditer(document.text.replace("\r\n", "\n")):
        heading = " ".join(_TAG.sub(" ", found.group(found.lastgroup or 0)).split())
        if found.lastgroup == "alone" and (
            heading.endswith(_SENTENCE_END) or heading.startswith(("#", "=")) or len(heading.split()) > _LONGEST
        ):
            continue
        if heading:
            yield heading
