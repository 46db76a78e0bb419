from __future__ import annotations

import json
from typing import Any


def test_explains_without_ranks(command: Any) -> None:
    text = command("explain", "all_reduce", "-b", "64K", "-n", "4", "--policy", "mpich").stdout
    assert text.startswith("all_reduce of 65536 bytes on 4 ranks: ") and "mpich would take" in text
    assert "path of rank 0" in text and "this machine has not been tuned" in text


def test_json(command: Any) -> None:
    how = "explain", "broadcast", "-n", "6", "--root", "5", "--json"
    found = json.loads(command(*how, PYCOLLECTIVES_ALGORITHM="broadcast=chain").stdout)
    assert (found["chosen"], found["size"], found["nbytes"]) == ("chain", 6, 1 << 20)
    assert found["reason"] == "asked for by PYCOLLECTIVES_ALGORITHM"
    assert {"binomial", "flat", "chain"} <= {each["name"] for each in found["candidates"]}


def test_wrong_arguments(command: Any) -> None:
    assert "did you mean 'all_reduce'" in command("explain", "all_redcue", code=2).stderr
    assert "root 4 is not in 0..3" in command("explain", "reduce", "-n", "4", "--root", "4", code=2).stderr
