"""The prose of README and docs: lines that fit a screen, paragraphs one can read, plain English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md")),
]
MOST_CHARACTERS, MOST_WORDS = 120, 120
LONG_LINES = (  # whose lines are not measured; their words are
    "docs/results-probability.md",  # lines that tools/make_results.py writes
)
ODD = {
    r"\b(go|goes|going|went) on (from )?(where|there)\b": "resumes",
    r"\bpast one (machine|device)\b": "distributed; on several machines",
    r"\brivals?\b": "baselines",
    r"\bwhat (one|you|a user) would use instead\b": "baselines",
    r"\bdials?\b": "settings",
    r"(?<!there )(?<!here )\b(is|are) no (?!(longer|more|less|better|worse|faster|slower|help)\b)": "is not a",
    r"\bdev (split )?(says|wants)\b": "the dev split selects",
    r"\bperhaps luck\b": "not significant (p = …)",
    r"\bgenerates\W+the names\b": "predicts the docids of matching documents",
    r"\bsay what is wrong with them\b": "versioned, checksummed files",
    r"\blevelled\b": "lower-cased, collapsed",
    r"\b(is|are|was|were) told (once|at once|in one line|so)\b": "is logged, is reported",
    r"\bthe answers? of (parts|the whole)\b": "shard results",
}
"""Phrases that read as translated, and what to write instead."""

_FENCE = re.compile(r"^\s*(```|~~~)")
_LINK_ONLY = re.compile(r"^\s*(?:[-*]\s+)?!?\[[^\]]*\](?:\([^)]*\)|: \S+)[.,;:]?\s*$")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines that are neither code nor table; an empty line wherever one of those was."""
    fenced, blank = False, True
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
            yield number, ""
        elif fenced or line.lstrip().startswith("|"):
            yield number, ""
        elif blank and line.startswith("    ") and not _ITEM.match(line):  # an indented block of code
            yield number, ""
            continue  # so is the line after it
        else:
            yield number, line.rstrip()
        blank = not line.strip() or fenced


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Each paragraph, heading and list item as one line, with the number of its first line."""
    first, lines = 0, list[str]()
    for number, line in [*prose(text), (0, "")]:
        if lines and (not line or _ITEM.match(line) or line.startswith("#")):
            yield first, " ".join(" ".join(lines).split())
            lines = []
        if line:
            first = first if lines else number
            lines.append(line)
            if line.startswith("#"):
                yield first, line
                lines = []


def words(paragraph: str) -> int:
    """The words of a paragraph; the target of a link is none."""
    return len(re.sub(r"\]\([^)]*\)", "]", paragraph).split())


def faults(text: str, most_characters: int = MOST_CHARACTERS) -> list[str]:
    """What is wrong with a page, each with the number of its line."""
    found = [
        f"{number}: {len(line)} characters, at most {most_characters}: wrap the line"
        for number, line in prose(text)
        if len(line) > most_characters and not _LINK_ONLY.match(line)
    ]
    for number, paragraph in paragraphs(text):
        if words(paragraph) > MOST_WORDS:
            found.append(f"{number}: {words(paragraph)} words, at most {MOST_WORDS}: split the paragraph")
        quoted = re.sub(r"`[^`]*`", "``", paragraph)  # names of options and what programs print
        for pattern, better in ODD.items():
            if match := re.search(pattern, quoted, re.IGNORECASE):
                found.append(f"{number}: {match.group()!r}: write {better!r}")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_prose_is_plain(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    wrong = faults(text, len(text) if page in LONG_LINES else MOST_CHARACTERS)
    assert not wrong, f"{page}\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A short line.\n", []),
        ("x" * 121, ["1: 121 characters"]),
        ("| " + "x" * 200 + " |\n", []),
        ("```\n" + "x" * 200 + "\n```\n", []),
        ("A command:\n\n    " + "x" * 200 + "\n    " + "x" * 200 + "\n", []),
        ("[a page](" + "x" * 200 + ")\n", []),
        ("word " * 20 + "\n" + "word " * 20, []),
        ("\n".join(["word " * 20] * 7), ["1: 140 words"]),
        ("\n".join(["- " + "word " * 20] * 7), []),
        ("The fit\ngoes on where it stopped.", ["1: 'goes on where'"]),
        ("There is no file. `it is no file`", []),
        ("That is no file.", ["1: 'is no '"]),
        ("It is no longer there.", []),
        ("Several dials.", ["1: 'dials'"]),
    ],
)
def test_what_is_found(text: str, expected: list[str]) -> None:
    wrong = faults(text)
    assert len(wrong) == len(expected)
    assert all(line.startswith(start) for line, start in zip(wrong, expected, strict=True)), wrong
