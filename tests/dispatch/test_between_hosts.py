"""What the network between hosts adds to a prediction."""

from __future__ import annotations

from fractions import Fraction

import pytest

from pycollectives.cost import Machine, predict
from pycollectives.cost.crossing import crossing
from pycollectives.dispatch import Query, Tuning, choose, explain, notes
from pycollectives.schedule import find


@pytest.mark.parametrize(
    ("name", "hosts", "rounds", "messages", "crowded", "busiest"),
    [
        ("one_shot", (0, 0, 1, 1), 1, 4, 8, 4),
        ("leaders", (0, 0, 1, 1), 1, 2, 2, 1),
        ("one_shot", (0, 1, 2, 3), 1, 6, 6, 3),
        ("recursive_doubling", (0, 1, 2, 3), 2, 4, 4, 2),
        ("recursive_doubling", (0, 0, 1, 1), 1, 2, 4, 2),
        ("ring", (0, 1, 0, 1), 6, 12, 24, Fraction(3)),
        ("one_shot", (0, 0, 0, 1), 1, 6, 6, 3),
    ],
)
def test_counted(
    name: str, hosts: tuple[int, ...], rounds: int, messages: int, crowded: int, busiest: Fraction
) -> None:
    found = crossing(find("all_reduce", name).on(hosts), len(hosts), hosts)
    assert (found.rounds, found.messages, found.crowded, found.busiest) == (
        rounds,
        messages,
        crowded,
        busiest,
    )


@pytest.mark.parametrize(
    ("name", "hosts", "shared"),
    [
        ("ring", (0, 1, 2, 3), 0),
        ("halving_doubling", (0, 1, 2, 3), 0),
        ("two_shot", (0, 1, 2, 3), 2),
        ("one_shot", tuple(range(8)), 6),
        ("one_shot", (0, 0, 1, 1), 0),  # one other host
        ("one_shot", (0, 0, 1, 2), 1),
    ],
)
def test_hosts_that_send_to_one_at_the_same_time(name: str, hosts: tuple[int, ...], shared: float) -> None:
    assert crossing(find("all_reduce", name).on(hosts), len(hosts), hosts).shared == shared


def test_large_data_takes_no_detour_and_no_crowd() -> None:
    """On a slow network an algorithm whose hosts hear one other at a time; with much delay the one of fewest rounds."""
    hosts = (0, 1, 2, 3)

    def chosen(alpha: float) -> str:
        machine = Machine(cores=2, network_alpha=alpha, network_beta=1 / 12.5e6)
        return choose(Query("all_reduce", 4 << 20, 4, hosts=hosts), Tuning(machine)).name

    assert chosen(2e-4) == "halving_doubling" and chosen(20e-3) == "two_shot"


@pytest.mark.parametrize("cores", [2, 8])
@pytest.mark.parametrize("hosts", [(0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 1), (0,) * 8 + (1,) * 8])
def test_short_data_of_several_ranks_per_host_crosses_in_few_messages(
    hosts: tuple[int, ...], cores: int
) -> None:
    size, tuning = len(hosts), Tuning(Machine(cores=cores))
    for verb in ("all_reduce", "broadcast", "barrier"):
        chosen = choose(Query(verb, 8, size, hosts=hosts), tuning)
        fewest = crossing(find(verb, "leaders").on(hosts), size, hosts)
        assert crossing(chosen, size, hosts).crowded <= 2 * fewest.crowded, (verb, chosen.name)
    times = {
        name: predict(find("all_reduce", name).on(hosts), size, 8, tuning.machine, hosts=hosts)
        for name in ("leaders", "one_shot")
    }
    assert times["leaders"] < times["one_shot"]


def test_the_delay_of_the_network_decides_between_rounds_and_messages() -> None:
    hosts = tuple(range(16))

    def chosen(alpha: float) -> str:
        machine = Machine(cores=4, network_alpha=alpha, network_message=3e-6)
        return choose(Query("all_reduce", 8, 16, hosts=hosts), Tuning(machine)).name

    assert chosen(1e-3) == "one_shot" != chosen(1e-6)


def test_cores_count_once() -> None:
    """A rank of each of eight hosts with one core has a core: nobody takes turns."""
    hosts, machine = tuple(range(8)), Machine(cores=1, turn=1.0, enter=1.0)
    assert predict(find("all_reduce", "ring"), 8, 8, machine, hosts=hosts) < 1e-2
    assert predict(find("all_reduce", "ring"), 8, 8, machine) > 1


def test_explained_for_these_hosts() -> None:
    query, tuning = Query("all_reduce", 1 << 20, 4, kind="half", hosts=(0, 0, 1, 1)), Tuning(Machine(cores=2))
    for name in ("hierarchical", "leaders"):
        found = explain(query, tuning, named=name, reason="asked for")
        text = "\n".join(notes(query, tuning, found, "all"))
        assert found.chosen == name and "partial sums" in text and "tune" not in text
