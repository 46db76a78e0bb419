"""Domains: the ranks of one host that are near each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks

from pycollectives import InvalidArgumentError
from pycollectives.cost import Machine, predict
from pycollectives.cost.crossing import crossing
from pycollectives.dispatch import Query, Tuning, choose, explain, notes
from pycollectives.schedule import find
from pycollectives.topology.domains import VARIABLE, asked, domains


@pytest.fixture
def cpus(tmp_path: Path) -> Path:
    """Two sockets of two last-level caches of four cores: 0-3, 4-7 | 8-11, 12-15. Every core has an L2 of its own."""
    for core in range(16):
        first = core // 4 * 4
        for index, (level, shared) in enumerate(
            [(1, core), (1, core), (2, core), (3, f"{first}-{first + 3}")]
        ):
            folder = tmp_path / f"cpu{core}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            (folder / "level").write_text(f"{level}\n")
            (folder / "shared_cpu_list").write_text(f"{shared}\n")
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir()
        (folder / "physical_package_id").write_text(f"{core // 8}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("cores", "found"),
    [
        ([{0}, {1}, {4}, {5}], (0, 0, 1, 1)),
        ([{0, 1}, {4}, {2, 3}, {6, 7}], (0, 1, 0, 1)),
        ([{12}, {0}, {13}, {1}], (0, 1, 0, 1)),
        ([{0}, {1}, {2}, {9}], (0, 0, 0, 1)),
        ([{0}, {4}, {8}, {12}], (0, 0, 1, 1)),  # each has a cache of its own: by sockets
        ([set(range(8)), set(range(4)), set(range(8, 16)), {15}], (0, 0, 1, 1)),  # bound to sockets
        ([{0}, {8}], ()),
        ([{0}, {1}, {2}], ()),
        ([{0}, {1}, {4}, set(range(16))], ()),  # one may run anywhere
        ([{0}], ()),
        ([{0}, {1}, {99}, {98}], ()),  # the system says nothing of them
        ([set(), {1}, {4}], ()),
    ],
)
def test_by_what_ranks_are_bound_to(cpus: Path, cores: list[set[int]], found: tuple[int, ...]) -> None:
    assert domains(cores, cpus) == found


def test_a_system_that_says_nothing(tmp_path: Path) -> None:
    assert domains([{0}, {1}, {2}, {3}], tmp_path) == ()


def test_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(range(4), 4) is None
    monkeypatch.setenv(VARIABLE, "b,a,b,a")
    assert asked(range(4), 4) == (0, 1, 0, 1)
    assert asked([1, 2], 4) == (0, 1)
    assert asked([3, 1], 4) == ()
    with pytest.raises(InvalidArgumentError, match="4 labels for 3 ranks"):
        asked(range(3), 3)


@pytest.mark.parametrize("places", [(0,) * 8 + (1,) * 8, (0, 1) * 8, (0,) * 12 + (1,) * 4])
def test_short_data_cross_in_few_messages(places: tuple[int, ...]) -> None:
    size, tuning = len(places), Tuning(Machine(cores=16))
    chosen = {
        verb: choose(Query(verb, 8, size, domains=places), tuning) for verb in ("all_reduce", "broadcast")
    }
    free = choose(Query("all_reduce", 8, size), tuning)
    fewest = crossing(find("all_reduce", "leaders").on(places), size, places)
    assert crossing(chosen["all_reduce"], size, places).crowded < crossing(free, size, places).crowded
    assert crossing(chosen["all_reduce"], size, places).crowded <= 8 * fewest.crowded


def test_domains_cost_less_than_hosts_and_more_than_nothing() -> None:
    machine, places = Machine(cores=8), (0, 0, 0, 0, 1, 1, 1, 1)
    for name in ("ring", "one_shot", "leaders", "hierarchical"):
        one = find("all_reduce", name).on(places)
        for nbytes in (8, 1 << 20):
            near = predict(one, 8, nbytes, machine)
            assert near < predict(one, 8, nbytes, machine, domains=places)
            assert predict(one, 8, nbytes, machine, domains=places) < predict(
                one, 8, nbytes, machine, hosts=places
            )


def test_an_explanation_says_who_is_where() -> None:
    query, tuning = Query("all_reduce", 1 << 20, 4, domains=(0, 0, 1, 1)), Tuning(Machine(cores=4))
    found = explain(query, tuning, named=None, reason="")
    assert {c.name for c in found.candidates if not c.obstacle} >= {"leaders", "hierarchical"}
    assert any("0,0,1,1" in note for note in notes(query, tuning, found, None))


@pytest.mark.parametrize("labels", ["a,a,b,b", "a,b,a,b", "a,a,a,b"])
def test_on_ranks(labels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every algorithm that knows places, on domains of one host; what is split off knows its own ranks' domains."""
    monkeypatch.setenv(VARIABLE, labels)

    def fn(comm: Any) -> None:
        x = np.arange(1000.0) + comm.rank
        want = 4 * np.arange(1000.0) + 6
        assert comm.settings.domains == asked(range(4), 4) and not comm.settings.hosts
        for one in comm.algorithms("all_reduce"):
            if not one.obstacle:
                assert np.array_equal(comm.all_reduce(x, algorithm=one.name), want), one.name
        assert np.array_equal(comm.all_reduce(x), want)
        assert np.array_equal(comm.all_reduce(x, algorithm="leaders"), want)
        pair = comm.split(comm.rank % 2)
        assert pair.settings.domains == asked([comm.rank % 2, comm.rank % 2 + 2], 4)

    ranks.threads(4, fn)
