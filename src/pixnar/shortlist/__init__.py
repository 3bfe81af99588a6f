"""shortlist: a query's x_0 comes in; the few tokens worth scoring for it come out.

`lists` and `sweep` need numpy only; `learn` and `cells` need torch. `cells` makes the lists of the composed score,
`learn` the vectors of the paper's.
"""

from pixnar.shortlist.lists import Shortlist, defaults, token_lists

__all__ = ["Shortlist", "defaults", "token_lists"]
