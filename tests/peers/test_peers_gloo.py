"""The lines that are timed of PyTorch name functions that it has."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.torch


def test_every_function_exists() -> None:
    dist = pytest.importorskip("torch.distributed", reason="optional: PyTorch is not installed")
    from bench.peers.ranks.gloo import LINES

    for line in LINES.values():
        found = re.match(r"dist\.(\w+)\(", line)
        assert found is not None and callable(getattr(dist, found[1], None)), line
