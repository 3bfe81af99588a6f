"""naming: documents without docids come in; docids, made of what they say and of what one might ask, come out."""

from pixnar.naming.doc2query import Asking
from pixnar.naming.run import make_docids
from pixnar.naming.wish import DEFAULT, MODEL, PHRASES, SENTENCES, TITLES, Wish

__all__ = ["DEFAULT", "MODEL", "PHRASES", "SENTENCES", "TITLES", "Asking", "Wish", "make_docids"]
