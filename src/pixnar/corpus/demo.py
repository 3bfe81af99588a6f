"""The demo corpus: ICD-10-CM, in which every code has a name and many codes have further terms that mean them.

Besides its description, a code is named by its inclusion terms and, elsewhere in the classification, by notes that
send the reader to it: "diabetes insipidus (E23.2)" under E10 names E23.2. Some of these terms are held out as queries.
"""

from __future__ import annotations

import os
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from pixnar.base.errors import MissingExtraError
from pixnar.base.normalize import normalize
from pixnar.corpus.records import DocidRow, Document, Qrel, Query
from pixnar.corpus.write import check_target, write_corpus

NOTICE = "A demonstration of text search over ICD-10-CM. Not for clinical use, coding or billing."
_TEST, _DEV = 2900, 1450
_LONGEST = 14  # words; what is longer is an instruction rather than a name

_CODE = r"[A-Z]\d[0-9A-Z](?:\.[0-9A-Z]{1,4})?"
_ONE_CODE = re.compile(rf"({_CODE})(?:\.?-)?")  # E23.2, or with a dash the category itself: E08.- O24.4-
_RANGE = re.compile(r"\s*\([A-Z]\d[0-9A-Z](?:-[A-Z]\d[0-9A-Z])?\)$")  # chapters and blocks carry theirs in their name
_NOTE = re.compile(r"(.*\S)\s*\(([^()]*)\)\W*")  # a text that ends in brackets
_INSTRUCTION = re.compile(
    rf"{_CODE}\.?-|\b(?:in|to|from|at) {_CODE}\b|\bcod(?:e|es|ed|ing)\b|\bclassifi(?!ed elsewhere)|\bcategories\b"
    r"|\bconditions? (?:in|listed)\b|\blisted\b|\b(?:this|the following) (?:sub)?category|\bcharacter\b|\bIndex\b"
    r"|\bto (?:identify|specify)\b|^(?:types?|severity|sites?|causes?|organism|joint)\b|:\s*$|^see\b",
    re.IGNORECASE,
)
_FRAGMENT = re.compile(r"(?:with|without|due|in|of|by|to|and|or|as|from|for|on|at|during|the following)\b")
_LEAD = re.compile(
    r"^(?:[\s,;:]+|if (?:applicable|known)(?: and applicable)?\b|code\b(?:\(s\))?|to (?:identify|indicate)\b|for\b"
    r"|any\b|the\b|(?:an? )?associated\b|underlying\b(?: cause| condition| disease)?|causal\b|.*\bsuch as\b)+"
)
_TRAIL = re.compile(r"[\s,;]+(?:if (?:applicable|known)(?: and applicable)?)?[\s,;]*$")


class DemoStats(NamedTuple):
    """What `write_demo` wrote; show `notice` wherever results of it are shown."""

    documents: int
    docids: int
    dev_queries: int
    test_queries: int
    notice: str


def write_demo(folder: str | os.PathLike[str], *, seed: int = 0, overwrite: bool = False) -> DemoStats:
    """Write the demo corpus; `seed` decides which terms become queries.

    A held-out term is gone from the docids of every document in every spelling, is nobody's title, and does not occur
    in the text of its documents, each of which keeps its name and at least one other docid.

    ``write_demo("icd10").test_queries``
    """
    check_target(Path(folder), overwrite)
    try:
        import simple_icd_10_cm
    except ImportError as error:
        raise MissingExtraError("the demo corpus", "demo") from error
    icd: Any = simple_icd_10_cm
    names = {code: words(_name(icd, code)) for code in icd.get_all_codes()}
    terms = _terms(icd, names)
    held_out = _hold_out(icd, terms, set(names.values()), random.Random(seed))
    codes = list(terms)
    docids = [
        DocidRow(code, text)
        for code in codes
        for key, text in chain([("", icd.get_description(code))], terms[code].items())
        if key not in held_out
    ]
    queries, qrels = [], {}
    asked = list(held_out.items())
    for split, those in (("dev", asked[:_DEV]), ("test", asked[_DEV:])):
        queries += [Query(f"{split}{i}", terms[named[0]][key]) for i, (key, named) in enumerate(those)]
        qrels[split] = [Qrel(f"{split}{i}", code, 1) for i, (_, named) in enumerate(those) for code in named]
    dev = min(_DEV, len(held_out))
    stats = DemoStats(len(codes), len(docids), dev, len(held_out) - dev, NOTICE)
    documents = (_document(icd, code) for code in codes)
    write_corpus(folder, documents, docids, queries, qrels, overwrite=overwrite, readme=_readme(stats, seed))
    return stats


def _terms(icd: Any, names: dict[str, str]) -> dict[str, dict[str, str]]:
    """For every code that has any: its terms besides its name, by their words (the first spelling counts)."""
    codes = dict.fromkeys(code for code in names if icd.is_category_or_subcategory(code))
    terms: dict[str, dict[str, str]] = defaultdict(dict)
    own = ((code, text) for code in codes for text in icd.get_inclusion_term(code) + icd.get_includes(code))
    for code, text in chain(own, chain.from_iterable(_notes(icd, code) for code in names)):
        key = words(text)
        if code in codes and key != names[code] and _is_name(text):
            terms[code].setdefault(key, " ".join(text.split()))
    return {code: terms[code] for code in codes if code in terms}


def _is_name(text: str) -> bool:
    count = len(words(text).split())
    return 0 < count <= _LONGEST and not _INSTRUCTION.search(text) and not _FRAGMENT.match(text)


def _notes(icd: Any, at: str) -> Iterator[tuple[str, str]]:
    """(code, text) for each code that a note under the code, block or chapter `at` sends the reader to."""
    lists = icd.get_excludes1(at), icd.get_excludes2(at)
    asides = icd.get_use_additional_code(at), icd.get_code_first(at), icd.get_code_also(at)
    for note in chain.from_iterable(_whole_phrases(notes) for notes in lists):
        yield from _codes_named(note)
    for note in chain.from_iterable(aside.split("\n") for aside in asides):
        for code, text in _codes_named(note):
            yield code, _TRAIL.sub("", _LEAD.sub("", text, count=1))


def _whole_phrases(notes: list[str]) -> Iterator[str]:
    for note in notes:
        heading = note.rstrip().endswith(":")
        if heading and not note.rstrip().endswith("such as:"):
            return  # "myopathy in:": what follows only continues that phrase, and where it stops is not marked
        yield note


def _codes_named(note: str) -> Iterator[tuple[str, str]]:
    if found := _NOTE.fullmatch(note):
        for part in found[2].split(","):
            if code := _ONE_CODE.fullmatch(part.strip()):
                yield code[1], found[1]


def _hold_out(
    icd: Any, terms: dict[str, dict[str, str]], names: set[str], chance: random.Random
) -> dict[str, list[str]]:
    """The terms to hold out and the codes each names, in order: the first are dev, the others test."""
    owners: dict[str, list[str]] = defaultdict(list)
    for code, of_code in terms.items():
        for key in of_code:
            owners[key].append(code)
    left = {code: len(of_code) for code, of_code in terms.items()}
    candidates = sorted(owners)
    chance.shuffle(candidates)
    held_out: dict[str, list[str]] = {}
    for key in candidates:
        if len(held_out) == _DEV + _TEST:
            break
        codes = owners[key]
        if key in names or any(left[code] < 2 or _says(icd, code, key) for code in codes):
            continue
        held_out[key] = codes
        for code in codes:
            left[code] -= 1
    return held_out


def _says(icd: Any, code: str, key: str) -> bool:
    return f" {key} " in f" {words(_path(icd, code))} "


def _document(icd: Any, code: str) -> Document:
    chapter = _name(icd, icd.get_ancestors(code)[-1])
    level = "category" if icd.is_category(code) else "subcategory"
    return Document(code, icd.get_description(code), _path(icd, code), {"chapter": chapter, "level": level})


def _path(icd: Any, code: str) -> str:
    return " > ".join(_name(icd, above) for above in reversed(icd.get_ancestors(code)))


def _name(icd: Any, code: str) -> str:
    return _RANGE.sub("", icd.get_description(code))


def words(text: str) -> str:
    """The words of a normalised text without punctuation: what makes two spellings the same term.

    >>> words("Diabetes (mellitus), NOS")
    'diabetes mellitus nos'
    """
    return " ".join(re.findall(r"\w+", normalize(text)))


def _readme(stats: DemoStats, seed: int) -> str:
    return (
        f"# ICD-10-CM demo corpus\n\n**{NOTICE}**\n\n"
        f"{stats.documents:,} codes with {stats.docids:,} docids: descriptions, inclusion terms, and the notes of\n"
        f"other codes that name them. {stats.dev_queries:,} dev and {stats.test_queries:,} test terms are held out\n"
        f"as queries (seed {seed}). From the package simple-icd-10-cm {version('simple-icd-10-cm')}; ICD-10-CM is\n"
        "published by the US National Center for Health Statistics.\n"
    )
