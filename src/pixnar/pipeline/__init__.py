"""pipeline: a corpus and a recipe come in; an index goes out, through all stages in order."""

from pixnar.pipeline.context import FitReport
from pixnar.pipeline.run import fit

__all__ = ["FitReport", "fit"]
