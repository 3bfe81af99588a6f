"""docid_generation: documents without docids come in; docids made of their text go out."""

from pixnar.docid_generation.doc2query import Asking
from pixnar.docid_generation.options import DEFAULT, MODEL, PHRASES, SENTENCES, TITLES, Wish
from pixnar.docid_generation.run import make_docids

__all__ = ["DEFAULT", "MODEL", "PHRASES", "SENTENCES", "TITLES", "Asking", "Wish", "make_docids"]
