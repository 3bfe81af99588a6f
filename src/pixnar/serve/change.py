"""Live changes: what an HTTP request asks to add or remove, checked and handed to the docid table."""

from __future__ import annotations

from collections.abc import Sequence

from pixnar.corpus.records import Document
from pixnar.docids import DocidTable
from pixnar.serve.asked import Addition, Named
from pixnar.serve.limits import Limits, RefusedError


def add(table: DocidTable, wish: Addition, limits: Limits) -> None:
    """Add all of it, or nothing."""
    pairs = [(one.doc_id, docid) for one in wish.documents for docid in one.docids]
    if len(pairs) > limits.ids:
        raise RefusedError(422, f"documents: {len(pairs)} docids; send at most {limits.ids} in one request")
    table.change(
        add=[(doc_id, table.encode(docid)) for doc_id, docid in pairs],
        spellings=[docid for _, docid in pairs],
        documents=[
            _described(table, one) for one in wish.documents if one.title is not None or one.metadata is not None
        ],
    )


def remove(table: DocidTable, doc_ids: Sequence[str], docids: Sequence[str], limits: Limits) -> None:
    """Remove documents, or docids, or pairs of both."""
    if not doc_ids and not docids:
        raise RefusedError(422, "nothing to remove: send doc_id, docid or both")
    if len(doc_ids) * max(1, len(docids)) > limits.ids:
        raise RefusedError(422, f"too much at once: send at most {limits.ids} pairs of doc_id and docid")
    tokens = [table.encode(docid) for docid in docids]
    if not docids:
        table.change(remove_documents=doc_ids)
    elif not doc_ids:
        table.change(remove_docids=tokens)
    else:
        table.change(remove_pairs=[(doc_id, one) for doc_id in doc_ids for one in tokens])


def _described(table: DocidTable, one: Named) -> Document:
    """The document as it is to be; what is not said of a known one stays."""
    known = table.described([one.doc_id])[0] or Document(one.doc_id, "", "", {})
    return Document(
        one.doc_id,
        known.title if one.title is None else one.title,
        "",
        known.metadata if one.metadata is None else one.metadata,
    )
