"""index: the folder that `fit` wrote comes in; an `Index` that answers queries goes out."""

from pixnar.index.index import BeamSearch, Index
from pixnar.search import Hit

__all__ = ["BeamSearch", "Hit", "Index"]
