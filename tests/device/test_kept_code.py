"""Machine code of operators on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pycollectives.device import linking

CODE = bytes(range(256)) * 9


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    path = tmp_path / "operators" / "one.code"
    assert linking._read(path) is None
    linking._keep(path, CODE)
    assert linking._read(path) == CODE


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-1], lambda text: text[:700] + b"!" + text[701:], lambda _: b""]
)
def test_what_is_damaged_is_absent(tmp_path: Path, damage: object) -> None:
    """A driver might load it nevertheless."""
    path = tmp_path / "one.code"
    linking._keep(path, CODE)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    assert linking._read(path) is None
    linking._keep(path, CODE)
    assert linking._read(path) == CODE


def test_nothing_is_left_of_what_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    linking._keep(tmp_path / "one.code", CODE)
    assert list(tmp_path.iterdir()) == []
