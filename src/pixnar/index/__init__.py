"""index: the folder a user ships; a query comes in, documents come out."""

from pixnar.index.index import BeamSearch, Index
from pixnar.search import Hit

__all__ = ["BeamSearch", "Hit", "Index"]
