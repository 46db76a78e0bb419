"""The error family: messages, attributes, standard bases, pickling."""

from __future__ import annotations

import copy
import pickle

import pytest

from pycollectives import errors
from pycollectives.errors import CollectiveError

BASES = {
    "InvalidArgumentError": ValueError,
    "UnsupportedError": NotImplementedError,
    "MismatchError": CollectiveError,
    "BootstrapError": CollectiveError,
    "TransportError": OSError,
    "PeerError": CollectiveError,
    "CollectiveTimeoutError": TimeoutError,
    "AbortedError": CollectiveError,
    "DeviceError": CollectiveError,
    "ScheduleError": CollectiveError,
}


@pytest.mark.parametrize("name", BASES)
def test_family(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, CollectiveError) and issubclass(kind, BASES[name])
    error = kind(
        "it broke", rank=1, peer=2, collective="all_reduce", sequence=1 << 33, algorithm="ring", step=4
    )
    for each in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(each) is kind
        assert str(each) == "it broke"
        assert (each.rank, each.peer, each.collective) == (1, 2, "all_reduce")
        assert (each.sequence, each.algorithm, each.step) == (1 << 33, "ring", 4)
    bare = kind()
    assert str(bare) == "" and bare.rank is bare.peer is bare.collective is bare.step is None


def test_schedule_error_names_the_chunk() -> None:
    error = pickle.loads(pickle.dumps(errors.ScheduleError("lost", chunk=3, rank=0)))
    assert (str(error), error.chunk, error.rank) == ("lost", 3, 0)
