"""fit: all stages in order, from a corpus to an index; a leaf that nothing imports but the command line."""

from pixnar.pipeline.run import Report, fit

__all__ = ["Report", "fit"]
