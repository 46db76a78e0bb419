"""A second, simple executor to hold the verifier against: ranks run one operation after the other."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence

from pycollectives.schedule import Operation

Value = Mapping[tuple[int, int], int]  # how often (rank, chunk) of the inputs is in it


def run_strictly(
    operations: dict[int, list[Operation]],
    order: dict[int, Sequence[int]],
    inputs: dict[int, range] | None = None,
    *,
    apart: bool = False,
) -> list[dict[int, Value]] | None:
    """The data chunks of every rank after a run of one channel, with one message per pair under way.

    None if that ends in a deadlock. `inputs`: the chunks that each rank has at first (default: any). `apart`:
    input and output are different memory; what the output holds is returned. Else they are the same.
    """
    size = len(operations)
    memory: list[dict[tuple[str, int], Value]] = [{} for _ in range(size)]
    queues: dict[tuple[int, int], deque[list[Value]]] = defaultdict(deque)
    result = "output" if apart else "data"

    def read(rank: int, space: str, index: int) -> Value:
        name = space if apart or space == "scratch" else "data"
        if (name, index) in memory[rank]:
            return memory[rank][name, index]
        assert space in ("data", "input")
        assert inputs is None or index in inputs[rank]
        return {(rank, index): 1}

    def write(rank: int, space: str, index: int, value: Value) -> None:
        memory[rank][space if apart or space == "scratch" else "data", index] = value

    def step(rank: int, op: Operation) -> bool:
        if op.kind == "send":
            if any(queues[rank, peer] for peer in op.peers):
                return False
            for peer, chunks in op.parts:
                assert peer is not None
                queues[rank, peer].append([read(rank, chunks.space, i) for i in chunks.index])
        elif op.into is None:
            if not all(queues[peer, rank] for peer in op.peers):
                return False
            for peer, chunks in op.parts:
                assert peer is not None
                for i, value in zip(chunks.index, queues[peer, rank].popleft(), strict=True):
                    own = read(rank, chunks.space, i) if op.kind == "reduce" else {}
                    write(rank, chunks.space, i, Counter(own) + Counter(value))
        else:
            source = op.parts[0][1]
            for i, j in zip(source.index, op.into.index, strict=True):
                own = read(rank, op.into.space, j) if op.kind == "combine" else {}
                write(rank, op.into.space, j, Counter(own) + Counter(read(rank, source.space, i)))
        return True

    at = [0] * size
    moved = True
    while moved:
        moved = False
        for rank in range(size):
            while at[rank] < len(order[rank]) and step(rank, operations[rank][order[rank][at[rank]]]):
                at[rank] += 1
                moved = True
    if any(at[rank] < len(order[rank]) for rank in range(size)):
        return None
    own = {} if apart else inputs or {}
    every = range(
        1 + max([0, *(i for found in memory for _, i in found), *(i for mine in own.values() for i in mine)])
    )
    any_input = inputs is None and not apart
    return [
        {i: read(r, result, i) for i in every if any_input or (result, i) in memory[r] or i in own.get(r, ())}
        for r in range(size)
    ]
