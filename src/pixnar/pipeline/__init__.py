"""pipeline: a corpus and a recipe come in; an index goes out, through all stages in order."""

from pixnar.pipeline.context import Report
from pixnar.pipeline.run import fit

__all__ = ["Report", "fit"]
