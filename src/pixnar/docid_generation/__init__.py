"""docid_generation: documents without docids come in; docids made of their text and of pseudo-queries go out."""

from pixnar.docid_generation.doc2query import Doc2QueryOptions
from pixnar.docid_generation.options import DEFAULT, MODEL, DocidOptions
from pixnar.docid_generation.run import make_docids

__all__ = ["DEFAULT", "MODEL", "Doc2QueryOptions", "DocidOptions", "make_docids"]
