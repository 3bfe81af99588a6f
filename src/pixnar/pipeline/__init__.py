"""pipeline: a corpus and a recipe come in; an index goes out, through all stages in order."""

from pixnar.pipeline.run import Report, fit

__all__ = ["Report", "fit"]
