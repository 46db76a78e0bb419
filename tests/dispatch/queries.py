"""Queries, tables and tunings of any content, sensible or not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import pycollectives.algorithms  # noqa: F401 - registers
from pycollectives.cost import Machine
from pycollectives.dispatch import KINDS, Needs, Query, Row, Series, Table, Tuning, entrants
from pycollectives.schedule import COLLECTIVES

CORES = 4
SIZES = st.sampled_from([1, 2, 3, 4, 6, 8])
NBYTES = st.one_of(st.integers(0, 1 << 32), st.integers(0, 40).map(lambda bits: 1 << bits))
SECONDS = st.floats(1e-9, 10.0)


@st.composite
def queries(draw: Any) -> Query:
    verb = draw(st.sampled_from(sorted(COLLECTIVES)))
    contract, size = COLLECTIVES[verb], draw(SIZES)
    reduces = contract.reduces and not contract.repeats
    needs = Needs(reduces and draw(st.booleans()), reduces and draw(st.booleans()), draw(st.booleans()))
    kind = draw(st.sampled_from(KINDS)) if reduces else "bytes"
    root = draw(st.integers(0, size - 1)) if contract.rooted else 0
    return Query(verb, draw(NBYTES), size, root, needs, kind)


@st.composite
def rows(draw: Any, collective: str, size: int) -> Row:
    """Of names that exist and names that do not."""
    known = entrants(collective, size)
    name = st.one_of(
        st.sampled_from(known), st.sampled_from(["nonsense", "torus(9x9)", "torus(", "ring(2x2)", ""])
    )
    seconds = draw(st.dictionaries(name, SECONDS, min_size=1, max_size=6))
    return Row(draw(NBYTES), draw(st.sampled_from(sorted(seconds))), seconds)


@st.composite
def series(draw: Any, collective: str, kind: str, size: int) -> Series:
    found = {row.nbytes: row for row in draw(st.lists(rows(collective, size), max_size=5))}
    return Series(collective, kind, size, CORES, tuple(found[n] for n in sorted(found)), "today")


@st.composite
def asked(draw: Any) -> tuple[Query, Tuning]:
    """A query, and a tuning that may say something of it."""
    query = draw(queries())
    kinds = draw(st.lists(st.sampled_from([*KINDS, "bytes"]), max_size=3))
    table = Table.of(draw(series(query.collective, kind, query.size)) for kind in [*kinds, query.kind])
    parameters = {name: draw(st.floats(1e-12, 1e-3)) for name in ("alpha", "turn", "beta", "gamma")}
    return query, Tuning(Machine(cores=CORES).measured(parameters), table, "a test")
