"""index: the folder a user ships; a query comes in, documents come out."""

from pixnar.index.index import Hit, Index

__all__ = ["Hit", "Index"]
