"""demo: the first five minutes, everything there is, run on the demo corpus; a leaf that only the command line uses."""

from pixnar.research.demo.run import run_demo

__all__ = ["run_demo"]
