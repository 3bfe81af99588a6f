"""recipe: a TOML file comes in; every setting of a run, checked, goes out."""

from pixnar.recipe.presets import CLOVER, PAPER
from pixnar.recipe.sections import (
    Fuse,
    Lexical,
    Model,
    Naming,
    Recipe,
    Scoring,
    Serve,
    ShortlistSettings,
    Train,
    Vocab,
)
from pixnar.recipe.toml import dumps, find, from_dict, load, override, to_dict

__all__ = [
    "CLOVER",
    "PAPER",
    "Fuse",
    "Lexical",
    "Model",
    "Naming",
    "Recipe",
    "Scoring",
    "Serve",
    "ShortlistSettings",
    "Train",
    "Vocab",
    "dumps",
    "find",
    "from_dict",
    "load",
    "override",
    "to_dict",
]
