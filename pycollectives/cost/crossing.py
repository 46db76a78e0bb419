"""What a schedule asks of the network between hosts.

    seconds = rounds x alpha + max(messages, crowded / cores) x message + nbytes x busiest x beta x (1 + shared x incast)

rounds    messages between hosts on the longest path: each waits for what its sender has received before; what happens
          inside hosts takes no time here
messages  between hosts, sent and received by the rank with the most of them: its processor handles one after the other, as
          by the overhead o of LogP (D. Culler et al., "LogP: towards a realistic model of parallel computation", 1993)
crowded   the same of all ranks of a host, who share its cores
busiest   the part of the vector that leaves, or enters, the host with the most of it
shared    hosts that send to one at the same time, beyond the first: the mean over what enters the host with the most of them.
          Their streams compete for its link (A. Phanishayee et al., "Measurement and analysis of TCP throughput collapse
          in cluster-based storage systems", FAST 2008)
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ..schedule import Algorithm
from ..schedule.schedule import Operation

Hosts = tuple[int, ...]


@dataclass(frozen=True)
class Crossing:
    """`rounds` of messages between hosts, one after the other; `messages` of the busiest rank and `crowded` of the busiest
    host, sent and received; `busiest`: in units of the whole vector; `shared`: 0 where each host hears one other at a time."""

    rounds: int
    messages: int
    crowded: int
    busiest: Fraction
    shared: float


@lru_cache(maxsize=1024)
def crossing(algorithm: Algorithm, size: int, hosts: Hosts, root: int = 0) -> Crossing:
    """The messages of `algorithm` between hosts; `hosts`: that of every rank.

    Raises what `Algorithm.schedule` raises.
    """
    schedule = algorithm.schedule(size, root=root)
    operations = schedule.operations()
    leaves: dict[int, int] = dict.fromkeys(hosts, 0)
    enters: dict[int, int] = dict.fromkeys(hosts, 0)
    handled = [0] * size  # messages by rank
    for rank, mine in operations.items():
        for op in mine:
            for peer, chunks in op.parts if op.kind == "send" else ():
                if peer is not None and hosts[peer] != hosts[rank]:
                    leaves[hosts[rank]] += len(chunks.index)
                    enters[hosts[peer]] += len(chunks.index)
                    handled[rank] += 1
                    handled[peer] += 1
    most = max(*leaves.values(), *enters.values())
    paths = [_longest(operations, hosts, channel) for channel in range(schedule.channels)]
    rounds = max(longest for longest, _ in paths)
    crowded = dict.fromkeys(hosts, 0)
    for host, count in zip(hosts, handled, strict=True):
        crowded[host] += count
    busiest = Fraction(most, schedule.nchunks * schedule.channels)
    return Crossing(
        rounds, max(handled), max(crowded.values()), busiest, _shared([flows for _, flows in paths])
    )


Flows = dict[tuple[int, int], Counter[int]]  # by round and host: how many chunks come from which other host


def _shared(flows: list[Flows]) -> float:
    entering: Counter[int] = Counter()
    beyond: Counter[int] = Counter()
    for one in flows:
        for (_, host), sources in one.items():
            entering[host] += sources.total()
            beyond[host] += sources.total() * (len(sources) - 1)
    return max((beyond[host] / n for host, n in entering.items() if n), default=0.0)


def _longest(operations: dict[int, list[Operation]], hosts: Hosts, channel: int) -> tuple[int, Flows]:
    """The longest path through one channel, and what enters the hosts in each of its rounds: every rank runs its operations in
    order and waits for what it receives."""
    programs = {rank: [op for op in mine if op.channel == channel] for rank, mine in operations.items()}
    at, now = dict.fromkeys(programs, 0), dict.fromkeys(programs, 0)
    sent: dict[tuple[int, int], deque[int]] = {}
    waiting: dict[tuple[int, int], int] = {}
    ready = deque(programs)
    flows: Flows = defaultdict(Counter)
    while ready:
        rank = ready.popleft()
        while at[rank] < len(programs[rank]):
            op = programs[rank][at[rank]]
            peers = [peer for peer, _ in op.parts if peer is not None]
            if op.kind == "send":
                for peer, chunks in op.parts:
                    if peer is None:
                        continue
                    takes = int(hosts[peer] != hosts[rank])
                    if takes:
                        flows[now[rank] + 1, hosts[peer]][hosts[rank]] += len(chunks.index)
                    sent.setdefault((rank, peer), deque()).append(now[rank] + takes)
                    if waiting.pop((rank, peer), None) is not None:
                        ready.append(peer)
            elif op.kind in ("recv", "reduce"):
                missing = next((p for p in peers if not sent.get((p, rank))), None)
                if missing is not None:
                    waiting[missing, rank] = rank
                    break
                now[rank] = max(now[rank], *(sent[p, rank].popleft() for p in peers))
            at[rank] += 1
    return max(now.values(), default=0), flows
