"""Row parsers: from one parsed row to a record. Every format ends here, so that each check is written once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pixnar.base.normalize import normalize
from pixnar.corpus.lines import LineBatch
from pixnar.corpus.records import BadRow, BadValueError, Batch, DocidRow, Document, Qrel, Query, Row, shown

_raw_decode = json.JSONDecoder().raw_decode
_has_visible = re.compile(r"[!-~]").search  # a visible ASCII character survives normalisation, which is slower to ask
_is_integer = re.compile(r"[+-]?[0-9]{1,18}").fullmatch
_TYPE_NAMES = {"NoneType": "null", "bool": "true or false", "int": "a number", "float": "a number", "str": "text"}
_HEADER_NAMES = {"query-id", "query_id", "queryid", "qid", "query"}


def read_rows(
    file: str,
    batches: Iterable[LineBatch],
    parse: Callable[[str], Row | None],
    parse_all: Callable[[list[str]], list[Row] | None] | None = None,
) -> Iterator[Batch[Row]]:
    """Parse lines into records, one by one with `parse` (None: no row, as in a header line).

    `parse_all` may do a whole batch at once; it answers None when anything in it is out of the ordinary.
    """
    for numbers, lines, bad in batches:
        rows = parse_all(lines) if parse_all else None
        if rows is not None:
            yield Batch(file, numbers, rows, bad)
            continue
        good, found = [], []
        for number, line in zip(numbers, lines, strict=True):
            try:
                row = parse(line)
            except BadValueError as error:
                bad.append(BadRow(number, error.reason, error.detail))
            else:
                if row is not None:
                    good.append(number)
                    found.append(row)
        yield Batch(file, good, found, bad)


def json_object(line: str) -> dict[str, Any]:
    """The JSON object on a line."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadValueError("not valid JSON", f"not valid JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise BadValueError("not valid JSON", f"not valid JSON: {str(error).splitlines()[0]}") from error
    if not isinstance(value, dict):
        raise BadValueError("not a JSON object", f"expected a JSON object, found {_kind(value)}")
    return value


def document_from_json(line: str) -> Document:
    """A row of corpus.jsonl; keys other than _id, title and text become metadata."""
    row = json_object(line)
    doc_id, text = _take(row, "_id"), _take(row, "text")
    return document(doc_id, row.pop("title", None), text, row)


def docid_from_json(line: str) -> DocidRow:
    """A row of docids.jsonl."""
    row = json_object(line)
    return docid_row(_take(row, "_id"), _take(row, "docid"))


def query_from_json(line: str) -> Query:
    """A row of queries.jsonl."""
    row = json_object(line)
    return query(_take(row, "_id"), _take(row, "text"))


def docids_from_json(lines: list[str]) -> list[DocidRow] | None:
    """What `docid_from_json` makes of many lines, faster; None if any of them is irregular."""
    try:
        pairs = list(map(_raw_decode, lines))
        doc_ids = [row["_id"] for row, _ in pairs]
        docids = [row["docid"] for row, _ in pairs]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        return None
    if [end for _, end in pairs] != list(map(len, lines)):
        return None
    if set(map(type, doc_ids)) != {str}:
        if not set(map(type, doc_ids)) <= {str, int}:
            return None
        doc_ids = list(map(str, doc_ids))
    if set(map(type, docids)) != {str} or not all(doc_ids) or not all(map(_has_visible, docids)):
        return None
    return list(map(DocidRow, doc_ids, docids))


def columns(line: str, *counts: int) -> list[str]:
    """The tab-separated columns of a line, of which there must be one of `counts`."""
    found = line.split("\t")
    if len(found) not in counts:
        wanted = " or ".join(map(str, counts))
        detail = f"expected {wanted} tab-separated columns, found {len(found)}"
        raise BadValueError("wrong number of columns", detail)
    return found


def qrel_parser() -> Callable[[str], Qrel | None]:
    """A parser for one file: `query 0 document score`, `query document score` or `query document`, tabs or blanks."""
    at_start = True

    def parse(line: str) -> Qrel | None:
        nonlocal at_start
        fields = line.split("\t") if "\t" in line else line.split()
        header = at_start and fields[0].lower() in _HEADER_NAMES and not _is_integer(fields[-1].strip())
        at_start = False
        if header:
            return None
        if len(fields) == 4:
            return qrel(fields[0], fields[2], fields[3])
        if len(fields) not in (2, 3):
            raise BadValueError("wrong number of columns", f"expected 2, 3 or 4 columns, found {len(fields)}")
        return qrel(fields[0], fields[1], fields[2] if len(fields) == 3 else 1)

    return parse


def document(doc_id: Any, title: Any, text: Any, metadata: dict[str, Any]) -> Document:
    """Check the values of a document; a missing title is an empty one."""
    return Document(an_id(doc_id, "_id"), "" if title is None else a_text(title, "title"), a_text(text), metadata)


def docid_row(doc_id: Any, docid: Any) -> DocidRow:
    """Check the values of a docid row."""
    doc_id, docid = an_id(doc_id, "_id"), a_text(docid, "docid")
    if not names_something(docid):
        raise BadValueError("empty docid", f"docid {shown(docid)} is empty after normalisation")
    return DocidRow(doc_id, docid)


def query(query_id: Any, text: Any) -> Query:
    """Check the values of a query."""
    return Query(an_id(query_id, "_id"), a_text(text))


def qrel(query_id: Any, doc_id: Any, score: Any) -> Qrel:
    """Check the values of a judgement."""
    ids = an_id(query_id, "query id"), an_id(doc_id, "document id")
    if type(score) is int and abs(score) < 10**18:
        return Qrel(*ids, score)
    if not isinstance(score, str) or not _is_integer(score.strip()):
        raise BadValueError("score is not an integer", f"score {shown(score)} is not an integer")
    return Qrel(*ids, int(score))


def an_id(value: Any, key: str) -> str:
    """An id as text; integers are taken as their digits."""
    if type(value) is int:
        return str(value)
    text = a_text(value, key)
    if not text:
        raise BadValueError("empty id", f'"{key}" is empty')
    return text


def a_text(value: Any, key: str = "text") -> str:
    """A value that must be text."""
    if not isinstance(value, str):
        raise BadValueError("wrong type", f'"{key}" is {_kind(value)}, expected text')
    return value


def names_something(docid: str) -> bool:
    """Whether anything is left of a docid after normalisation."""
    return bool(_has_visible(docid) or normalize(docid))


def _take(row: dict[str, Any], key: str) -> Any:
    if key not in row:
        raise BadValueError("missing key", f'no key "{key}"')
    return row.pop(key)


def _kind(value: object) -> str:
    name = type(value).__name__
    return _TYPE_NAMES.get(name) or {"list": "a list", "dict": "an object"}.get(name, name)
