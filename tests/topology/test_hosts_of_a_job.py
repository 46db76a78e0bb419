"""What the hosts of a job look like: as data, as text, as a figure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pycollectives import topology
from pycollectives.topology import Host, Interface, Placed

ETHERNET = Interface("eth0", "10.77.0.1/24", 10_000)


def host(number: int, ip: str = "10.77.0.{}/24") -> Host:
    eth0 = Interface("eth0", ip.format(number + 1), 1000)
    return Host(f"node{number}", "Some CPU", (0, 1, 2, 3), ((0, 1), (2, 3)), 8 << 30, (eth0,))


def test_this_host() -> None:
    here = Host.here()
    assert here.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert sorted(core for node in here.nodes for core in node) == list(here.cores)
    assert here.memory > 1 << 28 and here.cpu and here.name
    assert all(each.name != "lo" and each.ip in each.address for each in here.interfaces)
    assert all(each.rate is None or each.rate > 0 for each in here.interfaces)


def test_interfaces_read_well() -> None:
    assert str(ETHERNET) == "eth0 10.77.0.1/24, 10 Gbit/s"
    assert str(Interface("ib0", "fd00::1/64")) == "ib0 fd00::1/64"
    assert str(Interface("eth1", "10.0.0.1/8", 100)).endswith("100 Mbit/s")
    assert str(ETHERNET.network) == "10.77.0.0/24" and ETHERNET.ip == "10.77.0.1"


def test_ranks_by_hosts() -> None:
    placed = topology.group((0, 1, 0, 2), [host(0), host(1), host(0), host(2)])
    assert [(each.host.name, each.ranks) for each in placed] == [
        ("node0", (0, 2)),
        ("node1", (1,)),
        ("node2", (3,)),
    ]
    assert topology.ranges((0, 1, 2, 3, 8, 10, 11)) == "0-3, 8, 10-11"
    assert topology.networks(placed) == ["10.77.0.0/24"]
    assert topology.networks([Placed(host(0), (0,)), Placed(host(1, "10.78.0.{}/24"), (1,))]) == []


def test_text() -> None:
    shown = topology.text([Placed(host(0), (0, 1)), Placed(host(1), (2,))])
    assert shown.splitlines() == [
        "host 0: node0, ranks 0-1", "  Some CPU, 4 cores, 8.0 GiB", "  node 0: cores 0-1", "  node 1: cores 2-3",
        "  eth0 10.77.0.1/24, 1 Gbit/s", "host 1: node1, rank 2", "  Some CPU, 4 cores, 8.0 GiB",
        "  node 0: cores 0-1", "  node 1: cores 2-3", "  eth0 10.77.0.2/24, 1 Gbit/s",
        "networks of all hosts: 10.77.0.0/24",
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [".png", ".html"])
def test_figures(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"hosts{suffix}"
    topology.draw([Placed(host(0), (0, 1, 2)), Placed(host(1), (3,))], path)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG") if suffix == ".png" else b"host 1: node1" in data
