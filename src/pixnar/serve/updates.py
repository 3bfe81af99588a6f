"""Live changes: what an HTTP request asks to add or remove, checked and handed to the docid table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from pixnar.base.errors import PixnarError
from pixnar.base.storage import in_memory
from pixnar.corpus.records import Document
from pixnar.serve.limits import Limits, RefusedError
from pixnar.serve.schemas import Addition, Named
from pixnar.table import DocidTable


class ChangeError(PixnarError):
    """A change that was right could not be made: the table is busy, or its disk has a problem."""


def add(table: DocidTable, wish: Addition, limits: Limits) -> None:
    """Add all of it, or nothing."""
    pairs = [(one.doc_id, docid) for one in wish.documents for docid in one.docids]
    if len(pairs) > limits.ids:
        raise RefusedError(422, f"documents: {len(pairs)} docids; send at most {limits.ids} in one request")
    encoded = [(doc_id, table.encode(docid)) for doc_id, docid in pairs]
    with _changing(table):
        table.refresh()
        table.change(add=encoded, spellings=[docid for _, docid in pairs], documents=_described(table, wish.documents))


def remove(table: DocidTable, doc_ids: Sequence[str], docids: Sequence[str], limits: Limits) -> None:
    """Remove documents, or docids, or pairs of both."""
    if not doc_ids and not docids:
        raise RefusedError(422, "nothing to remove: send doc_id, docid or both")
    if len(doc_ids) * max(1, len(docids)) > limits.ids:
        raise RefusedError(422, f"too much at once: send at most {limits.ids} pairs of doc_id and docid")
    tokens = [table.encode(docid) for docid in docids]
    with _changing(table):
        if not docids:
            table.change(remove_documents=doc_ids)
        elif not doc_ids:
            table.change(remove_docids=tokens)
        else:
            table.change(remove_pairs=[(doc_id, one) for doc_id in doc_ids for one in tokens])


@contextlib.contextmanager
def _changing(table: DocidTable) -> Iterator[None]:
    """Nobody else of this process changes the table; files it may read anew are not mapped. What fails is our fault."""
    try:
        with in_memory(), table.alone():
            yield
    except (PixnarError, OSError) as error:
        raise ChangeError(str(error)) from error


def _described(table: DocidTable, wishes: Sequence[Named]) -> list[Document]:
    """The documents as they are to be; what is not said of a known one stays."""
    told = [one for one in wishes if one.title is not None or one.metadata is not None]
    known = dict(zip([one.doc_id for one in told], table.described([one.doc_id for one in told]), strict=True))
    made: dict[str, Document] = {}
    for one in told:
        old = made.get(one.doc_id) or known[one.doc_id] or Document(one.doc_id, "", "", {})
        title = old.title if one.title is None else one.title
        made[one.doc_id] = Document(one.doc_id, title, "", old.metadata if one.metadata is None else one.metadata)
    return list(made.values())
