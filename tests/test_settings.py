"""The environment variables: each is in docs/settings.md, and each value is checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pycollectives import settings
from pycollectives.cost.hardware import Cache, Hardware
from pycollectives.errors import InvalidArgumentError

ROOT = Path(__file__).parents[1]
VARIABLE = re.compile(r"PYCOLLECTIVES_[A-Z_]+[A-Z]")


def named(*paths: Path) -> set[str]:
    return {found for path in paths for found in VARIABLE.findall(path.read_text())}


def test_the_list_is_complete_and_true() -> None:
    code = named(*(ROOT / "pycollectives").rglob("*.py"), ROOT / "setup.py", ROOT / "cuda_build.py")
    assert named(ROOT / "docs" / "settings.md") == code


def test_every_variable_is_known() -> None:
    documented = named(ROOT / "docs" / "settings.md")
    assert {settings.PREFIX + each for each in settings.VARIABLES} - {"PYCOLLECTIVES_SIMD"} == documented


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("ALGORTIHM", "ALGORITHM"), ("ALGO", "ALGORITHM"), ("POOL_BYTE", "POOL_BYTES"), ("STORE", "STORES")],
)
def test_a_misspelt_variable(wrong: str, right: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVES_OF_MY_OWN", "1")  # not near to any
    settings.decide(2, nested=False)
    monkeypatch.setenv(f"PYCOLLECTIVES_{wrong}", "ring")
    with pytest.raises(
        InvalidArgumentError, match=f"_{wrong} is no setting; did you mean PYCOLLECTIVES_{right}"
    ):
        settings.decide(2, nested=False)


@pytest.mark.parametrize(
    ("variable", "wrong", "right"),
    [
        ("PYCOLLECTIVES_POOL_BYTES", "65535", "65536"),
        ("PYCOLLECTIVES_SEGMENT_BYTES", "4095", "4096"),
        ("PYCOLLECTIVES_RING_BYTES", "-1", "0"),
        ("PYCOLLECTIVES_STREAM_OUTPUT_BYTES", "-1", "0"),
        ("PYCOLLECTIVES_FUSION_BYTES", "9223372036854775808", "0"),
        ("PYCOLLECTIVES_FUSION_BYTES", "64K", "65536"),
        ("PYCOLLECTIVES_STORES", "fast", "stream"),
    ],
)
def test_values(variable: str, wrong: str, right: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, wrong)
    with pytest.raises(InvalidArgumentError, match=f"{variable}='{wrong}'"):
        settings.decide(2, nested=False)
    monkeypatch.setenv(variable, right)
    field = variable.removeprefix("PYCOLLECTIVES_").lower()
    assert str(getattr(settings.decide(2, nested=False), field)) == right


def test_segments_between_hosts_are_what_mpi_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVES_SEGMENT_BYTES", str(1 << 40))
    assert settings.decide(2, nested=False).segment_bytes == 1 << 40
    assert settings.decide(2, nested=False, hosts=(0, 1)).longest_message <= 1 << 30


@pytest.mark.parametrize("variable", ["PYCOLLECTIVES_SPINS", "PYCOLLECTIVES_YIELDS"])
def test_turns_of_a_waiting_rank(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("-1", "many", str(settings.MOST_TURNS + 1)):
        monkeypatch.setenv(variable, wrong)
        with pytest.raises(InvalidArgumentError, match=variable):
            settings.patience(2)
    monkeypatch.setenv(variable, "7")
    assert 7 in settings.patience(2)[:2]


@pytest.mark.parametrize(
    ("ranks", "last", "ring"),
    [(2, 32 << 20, 4 << 20), (4, 32 << 20, 2 << 20), (2, 300 << 20, 8 << 20), (4, 320 << 20, 5 << 20)],
)
def test_rings_use_a_large_last_level_and_leave_a_small_one_alone(
    monkeypatch: pytest.MonkeyPatch, ranks: int, last: int, ring: int
) -> None:
    """Two cores with 2 MiB each; a sixteenth of what they share for the rings of all, no ring longer than the pool."""
    machine = Hardware("some", 2, (Cache(2, 2 << 20, 2), Cache(3, last, 1)))
    monkeypatch.setattr(settings, "hardware", lambda: machine)
    found = settings.decide(ranks, nested=False, cores=2)
    assert found.ring_bytes == ring and found.cache_bytes == (2 << 20) // (ranks // 2)
    monkeypatch.setenv("PYCOLLECTIVES_RING_BYTES", str(1 << 20))
    assert settings.decide(ranks, nested=False, cores=2).cache_bytes == 512 << 10  # half of it at most
