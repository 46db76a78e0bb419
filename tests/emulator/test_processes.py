"""Ranks in processes of one host that share memory: kernels run while nobody of the others has come, and the host ends them."""

from __future__ import annotations

import os
from typing import Any

import process_ranks
import pytest
import ranks

ENVIRONMENT = {name: os.environ[name] for name in ("PYCOLLECTIVES_EMULATED",) if name in os.environ}
by_kernels = pytest.mark.parametrize("protocol", ["simple", "native"])


@by_kernels
def test_a_missing_rank(fresh: Any, protocol: str) -> None:
    """The call ends with its timeout, and a new communicator of the same processes works."""
    assert fresh(2, ENVIRONMENT).run(process_ranks.missing, protocol) == [
        ("CollectiveTimeoutError", True),
        ("", True),
    ]


def test_abort(fresh: Any) -> None:
    assert fresh(2, ENVIRONMENT).run(process_ranks.aborted, "simple") == ["AbortedError", "AbortedError"]


def test_a_peer_that_leaves(fresh: Any) -> None:
    assert fresh(2, ENVIRONMENT).run(process_ranks.left, "simple") == ["PeerError", ""]


def test_kernels_that_do_not_ask_the_host(fresh: Any) -> None:
    """A test of the tests: they would not end."""
    with pytest.raises(ranks.RankFailed, match="rank 0 of 2 is not done in time"):
        fresh(2, ENVIRONMENT).run(process_ranks.missing, "simple", "host_abort_ignored", timeout=2)
