"""The few texts out of many that say most, each something that those before it do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet


def most_telling(candidates: Sequence[AbstractSet[str]], worth: Mapping[str, float], most: int) -> list[int]:
    """The places of up to `most` candidates, given as the words of each; the best first.

    A candidate is as good as the worth of its words that none before it had, over the root of how many it has that
    are worth anything: so the long do not always win, and no two say the same. What adds nothing is not taken; among
    equals the first is.

    >>> worth = {"tea": 2.0, "green": 1.5, "cup": 1.0, "hot": 0.5}
    >>> most_telling([{"hot", "cup"}, {"green", "tea"}, {"tea"}, {"hot"}], worth, 3)
    [1, 0]
    """
    # Sorted, because the order of a set changes from run to run, and with it the last bits of a sum.
    left = [(place, sorted(words & worth.keys())) for place, words in enumerate(candidates)]
    sizes = [max(len(words), 1) ** 0.5 for _, words in left]
    chosen: list[int] = []
    while left and len(chosen) < most:
        gains = [sum(map(worth.__getitem__, words)) / sizes[place] for place, words in left]
        best = max(range(len(left)), key=gains.__getitem__)
        if gains[best] <= 0:
            break
        place, row = left.pop(best)
        taken = set(row)
        chosen.append(place)
        left = [(other, [word for word in words if word not in taken]) for other, words in left]
    return chosen
