"""Pickles on their way: what a rank tells the others about its objects, and how the objects are read again.

What is trusted: unpickling runs code that the sender chooses. Bytes are unpickled only if they came through
a collective of this communicator, that is from a rank of the job whose credentials were checked when the
communicator was made. A rank trusts its peers as it trusts itself; nothing from a file or an open port is
ever unpickled.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .arrays import Array
from .errors import CollectiveError, MismatchError, TransportError

PROTOCOL = 5
LONGEST_REASON = 2000  # bytes

# The header of a rank: _MARK + number of the verb, root, FAILED or 0, lengths, checksum of all these.
_MARK = 0x7063_6F62_6A00
_FORMS = (
    "all_gather_object",
    "gather_object",
    "broadcast_object",
    "scatter_object",
    "all_to_all_object",
    "reduce_object",
    "all_reduce_object",
    "scan_object",
    "send_object",
    "reduce_scatter_object",
    "exscan_object",
)
COLLECTIVE_FORMS = tuple(form for form in _FORMS if form != "send_object")
FAILED = -1


class Parcel:
    """What one rank gives: the pickles, or why there are none."""

    def __init__(
        self, pieces: Sequence[bytes] = (), problem: str = "", cause: Exception | None = None
    ) -> None:
        self.pieces, self.cause = pieces, cause
        self.problem = problem.encode(errors="backslashreplace")[:LONGEST_REASON]

    @classmethod
    def of(cls, value: Any) -> Parcel:
        """The pickle of `value`. Never raises: what goes wrong is told to all ranks."""
        return cls.of_each([value], "the object")

    @classmethod
    def of_each(cls, values: Iterable[Any], what: str = "the object for rank {}") -> Parcel:
        """The pickles of what `values` yields; each is pickled before the next one is asked for."""
        pieces: list[bytes] = []
        try:
            for value in values:
                pieces.append(pickle.dumps(value, protocol=PROTOCOL))
        except Exception as error:
            return cls(
                problem=f"{what.format(len(pieces))} cannot be pickled: {described(error)}", cause=error
            )
        return cls(pieces)

    def bytes(self) -> Array:
        """All pickles, one after the other."""
        return np.frombuffer(b"".join(self.pieces), np.uint8) if self.pieces else np.empty(0, np.uint8)

    def header(self, form: str, root: int, slots: int) -> Array:
        """What the others are told; `slots` is the number of lengths."""
        lengths = [len(piece) for piece in self.pieces] or [0] * slots
        if self.problem:
            lengths = [len(self.problem), *[0] * (slots - 1)]
        body = np.array([_MARK + _FORMS.index(form), root, FAILED if self.problem else 0, *lengths], np.int64)
        return np.append(body, zlib.crc32(body.tobytes()))


def described(error: BaseException) -> str:
    """The class and the text of an error."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # its __str__ raises
        return type(error).__name__


def opened(form: str, header: Array, rank: int, peer: int) -> list[int]:
    """The fields of `peer`'s header behind the mark.

    Raises TransportError if it is damaged, MismatchError if it is another verb's.
    """
    mark, *fields = (int(n) for n in header[:-1])
    if (
        int(header[-1]) != zlib.crc32(header[:-1].tobytes())
        or not 0 <= mark - _MARK < len(_FORMS)
        or min(fields[2:]) < 0
    ):
        raise TransportError(
            f"{form}: the lengths that rank {peer} sent are damaged: {header.tolist()}",
            rank=rank,
            peer=peer,
            collective=form,
        )
    if (theirs := _FORMS[mark - _MARK]) != form:
        raise MismatchError(
            f"rank {rank} is in {form}, rank {peer} in {theirs}", rank=rank, peer=peer, collective=form
        )
    return fields


def unpacked(form: str, data: Any, rank: int, peer: int) -> Any:
    """The object in `data`. Raises CollectiveError if it cannot be unpickled here."""
    try:
        return pickle.loads(data)
    except Exception as error:
        text = f"{form}: what rank {peer} sent cannot be unpickled on rank {rank}: {described(error)}"
        raise CollectiveError(text, rank=rank, peer=peer, collective=form) from error
