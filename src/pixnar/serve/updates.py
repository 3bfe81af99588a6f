"""Live updates: check what a request adds or removes and change the docid table."""

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
    """A valid change that could not be made: the table is busy or its disk has a problem."""


def add(table: DocidTable, addition: Addition, limits: Limits) -> None:
    """Add documents and docids, all or none."""
    pairs = [(named.doc_id, docid) for named in addition.documents for docid in named.docids]
    if len(pairs) > limits.ids:
        raise RefusedError(422, f"documents: {len(pairs)} docids; send at most {limits.ids} in one request")
    encoded = [(doc_id, table.encode(docid)) for doc_id, docid in pairs]
    with _changing(table):
        table.refresh()
        documents = _documents(table, addition.documents)
        table.change(add=encoded, spellings=[docid for _, docid in pairs], documents=documents)


def remove(table: DocidTable, doc_ids: Sequence[str], docids: Sequence[str], limits: Limits) -> None:
    """Remove documents, docids, or pairs of both."""
    if not doc_ids and not docids:
        raise RefusedError(422, "nothing to remove: send doc_id, docid or both")
    if len(doc_ids) * max(1, len(docids)) > limits.ids:
        raise RefusedError(422, f"too much at once: send at most {limits.ids} pairs of doc_id and docid")
    encoded = [table.encode(docid) for docid in docids]
    with _changing(table):
        if not docids:
            table.change(remove_documents=doc_ids)
        elif not doc_ids:
            table.change(remove_docids=encoded)
        else:
            table.change(remove_pairs=[(doc_id, docid) for doc_id in doc_ids for docid in encoded])


@contextlib.contextmanager
def _changing(table: DocidTable) -> Iterator[None]:
    """Exclusive access to the table; files it reads again are not mapped. Errors become `ChangeError`."""
    try:
        with in_memory(), table.alone():
            yield
    except (PixnarError, OSError) as error:
        raise ChangeError(str(error)) from error


def _documents(table: DocidTable, additions: Sequence[Named]) -> list[Document]:
    """Documents with their new title and metadata; a known document keeps whatever is not given."""
    described = [new for new in additions if new.title is not None or new.metadata is not None]
    ids = [new.doc_id for new in described]
    known = dict(zip(ids, table.described(ids), strict=True))
    documents: dict[str, Document] = {}
    for new in described:
        old = documents.get(new.doc_id) or known[new.doc_id] or Document(new.doc_id, "", "", {})
        title = old.title if new.title is None else new.title
        metadata = old.metadata if new.metadata is None else new.metadata
        documents[new.doc_id] = Document(new.doc_id, title, "", metadata)
    return list(documents.values())
