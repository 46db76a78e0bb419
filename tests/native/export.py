"""Writes plans, the sizes of calls, inputs and right results to a file, for the native tests to run without Python.

python tests/native/export.py FILE [--sizes 2,3,4] [--counts 1,37,3000,900,1500]

The file is a row of 64-bit words: each field is a length and that many words (bytes are padded to whole words). What
`_core.Plan` and `_core.Prepared` would get is written as it is, so that the same decoder reads it.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "communicator"))

import catalogue
import numpy as np
import reference

import pycollectives as pc
from pycollectives import _core, calls, ops
from pycollectives.cost import Machine
from pycollectives.dispatch import Table, Tuning
from pycollectives.schedule import COLLECTIVES, find
from pycollectives.settings import Settings

SETTINGS = Settings(pool_bytes=1 << 17, segment_bytes=4096, tuning=Tuning(Machine(cores=2), Table(), ""))
TABLES = ("instructions", "operands", "refs", "connections", "peers", "channels", "scratch_like")
PLAN = ("size", "rank", "nchunks", "max_message", "max_connections", "steps", "waits_for_all", "balanced")
KIND = (
    *("dtype", "op", "epilogue", "wide", "pool_bytes", "segment_bytes", "fingerprint", "count", "verb"),
    *("algorithm", "record_dtype", "record_op", "root", "deterministic"),
)


class Recorder:
    """In place of the native module: keeps what it is given."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_core, name)

    def Plan(self, **arguments: Any) -> Any:
        return SimpleNamespace(**arguments)

    def Prepared(self, **arguments: Any) -> Any:
        return SimpleNamespace(**arguments)


class Writer:
    """Fields one after the other."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "wb")  # noqa: SIM115 - as long as this lives

    def numbers(self, values: Iterable[Any]) -> None:
        """A field of whole numbers of up to 64 bits."""
        words = [int(v) & (2**64 - 1) for v in values]
        self.file.write(struct.pack(f"<Q{len(words)}Q", len(words), *words))

    def text(self, data: bytes) -> None:
        """A field of bytes."""
        self.file.write(struct.pack("<Q", len(data)) + data + bytes(-len(data) % 8))


def cases(sizes: list[int], counts: list[int]) -> Any:
    """(verb, algorithm, root, operator, inputs) of every call."""
    for size in sizes:
        for verb, contract in COLLECTIVES.items():
            for name in reference.algorithms(verb, size):
                for i, count in enumerate(counts if verb != "barrier" else [0]):
                    for root in (range(size) if i == 0 else [i % size]) if contract.rooted else [-1]:
                        blocks = contract.output == "block" or verb in ("all_to_all", "scatter")
                        length, dtype = (
                            count * size if blocks else count,
                            "int32" if i % 2 == 0 else "bfloat16",
                        )
                        xs = catalogue.inputs(size, length, dtype, i)
                        yield verb, name, root, "sum" if i % 3 < 2 else "max", xs
        for dtype in reference.DTYPES:
            for op in reference.operators(dtype):
                rng = np.random.default_rng(size)
                xs = [
                    reference.values(dtype, (counts[-1] % 500 + 61,), rng, exact=False) for _ in range(size)
                ]
                yield "all_reduce", "one_shot", -1, op, xs


def write(path: str, sizes: list[int], counts: list[int]) -> int:
    """Writes all cases; returns their number."""
    calls._core = Recorder()  # type: ignore[attr-defined]
    writer, written = Writer(path), 0
    for verb, name, root, op, xs in cases(sizes, counts):
        contract, size, dtype = COLLECTIVES[verb], len(xs), xs[0].dtype
        meant = pc.scaled_sum(reference.FACTOR) if op == "scaled_sum" else op
        operator = ops.resolve(meant, size) if contract.reduces and verb != "barrier" else None
        kind = calls.Kind(verb, dtype, xs[0].size, operator, root, name)
        writer.text(f"{verb} by {name}, {size} ranks, root {root}, {dtype} {op}, {xs[0].size}".encode())
        writer.numbers([size])
        for rank in range(size):
            made = calls.Calls(rank, size, SETTINGS).make(find(verb, name), kind)
            plan = made.plan
            writer.numbers(getattr(plan, field) for field in PLAN)
            for table in TABLES:
                writer.numbers(np.asarray(getattr(plan, table)).ravel())
            writer.numbers(getattr(made, field) for field in KIND)
            factor = struct.unpack("<Q", struct.pack("<d", made.factor))[0]
            writer.numbers([*made.held_in, *made.held_out, factor])
            writer.numbers(made.blocks)
            writer.numbers(made.sent_blocks)
            writer.numbers(made.taken_blocks)
            writer.text(xs[rank][: 0 if contract.input == "root" and rank != root else None].tobytes())
            want = None if verb == "barrier" else wanted(verb, op, xs, rank, root)
            writer.text(b"" if want is None else want.tobytes())
        written += 1
    writer.file.close()
    return written


def wanted(verb: str, op: str, xs: list[Any], rank: int, root: int) -> Any:
    """What `rank` must get."""
    if op == "sum" or not COLLECTIVES[verb].reduces:
        return catalogue.wanted(verb, xs, rank, root)
    upto = {"scan": xs[: rank + 1], "exscan": xs[:rank]}.get(verb, xs)
    if not upto or (verb == "reduce" and rank != root):
        return None
    total = reference.fold(op, upto)
    n = total.size // len(xs)
    return total[rank * n : (rank + 1) * n] if verb == "reduce_scatter" else total


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--sizes", default="2,3,4")
    parser.add_argument("--counts", default="1,37,3000,900,1500")
    given = parser.parse_args()
    lists = [[int(n) for n in text.split(",")] for text in (given.sizes, given.counts)]
    print(f"{write(given.file, *lists)} calls written to {given.file}")
