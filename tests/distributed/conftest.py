"""One Ray for all tests of this folder: starting one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pixnar.distributed.cluster import RayExecutor, connected


@pytest.fixture(scope="session")
def ray_executor() -> Iterator[RayExecutor]:
    with connected(4) as executor:
        yield executor
