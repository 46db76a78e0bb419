"""The lines that are timed of PyTorch name functions that it has."""

from __future__ import annotations

import re

import pytest

from bench.peers.catalogue import PEERS

pytestmark = pytest.mark.torch


def test_every_function_exists() -> None:
    torch = pytest.importorskip("torch", reason="optional: PyTorch is not installed")
    environment = PEERS["gloo"].environment
    assert environment is not None
    if not any(f"torch=={torch.__version__.partition('+')[0]}" in each for each in environment.packages):
        pytest.skip(f"optional: PyTorch {torch.__version__} is not the one that is measured")
    from bench.peers.ranks.gloo import LINES

    for line in LINES.values():
        found = re.match(r"dist\.(\w+)\(", line)
        assert found is not None and callable(getattr(torch.distributed, found[1], None)), line
