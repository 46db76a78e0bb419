"""The file that `pycollectives tune` writes: the machine's parameters and the measured table, keyed by hardware.

    $XDG_CACHE_HOME/pycollectives/tuning-<digest of the hardware>.json     (~/.cache without XDG_CACHE_HOME)
    PYCOLLECTIVES_TUNING=FILE                                              another file
    PYCOLLECTIVES_TUNING=off                                               none

A file that is damaged, of another machine, or of another version is not used; `Found.remark` says why. Reading never
raises: a call must not fail because of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path

from ..cost import Machine, hardware
from ..schedule import COLLECTIVES
from .query import KINDS
from .table import Series, Table, positive

VARIABLE = "PYCOLLECTIVES_TUNING"
SCHEMA = 2
# Of the machine's parameters those that are measured; the others belong to the communicator.
PARAMETERS = tuple(f.name for f in fields(Machine) if f.name not in ("cores", "segment", "cache"))
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class TuningFile:
    """The content. `parameters`: some of PARAMETERS, in seconds; `flag_ns`: one-way times of a flag that were seen."""

    parameters: Mapping[str, float] = field(default_factory=dict)
    table: Table = field(default_factory=Table)
    flag_ns: tuple[float, ...] = ()
    made: str = ""

    def machine(self, defaults: Machine) -> Machine:
        """The parameters, the defaults where one was not measured."""
        return defaults.measured(self.parameters)

    def encode(self) -> str:
        """As JSON text."""
        from .. import __version__

        here = hardware()
        return json.dumps(
            {
                "schema": SCHEMA,
                "version": __version__,
                "hardware": here.key(),
                "details": asdict(here),
                "made": self.made,
                "flag_ns": list(self.flag_ns),
                "parameters": dict(self.parameters),
                "series": [each.encode() for each in self.table.series.values()],
            },
            indent=1,
        )

    @staticmethod
    def decode(text: str) -> TuningFile:
        """From JSON text. Raises ValueError, which says what is wrong, also for another schema, version or hardware."""
        from .. import __version__

        try:
            data = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(data, dict):
            raise ValueError("it holds no object")
        if data.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {data.get('schema')!r}, this version reads {SCHEMA}")
        if data.get("version") != __version__:
            raise ValueError(f"it was made by version {data.get('version')!r}, this is {__version__}")
        if data.get("hardware") != hardware().key():
            raise ValueError(
                f"it is of another machine: {data.get('hardware')!r}, this is {hardware().key()!r}"
            )
        parameters, series, flags = data.get("parameters"), data.get("series"), data.get("flag_ns")
        if not isinstance(parameters, dict) or not isinstance(series, list) or not isinstance(flags, list):
            raise ValueError("parameters, series or flag_ns are missing")
        table = [Series.decode(each) for each in series]
        for each in table:
            if each.collective not in COLLECTIVES or each.kind not in (*KINDS, "bytes"):
                raise ValueError(f"unknown collective or kind: {each.collective!r}, {each.kind!r}")
        return TuningFile(
            {name: positive(parameters[name], name) for name in PARAMETERS if name in parameters},
            Table.of(table),
            tuple(positive(flag, "flag_ns") for flag in flags),
            str(data.get("made", "")),
        )


@dataclass(frozen=True)
class Found:
    """What there is: the content or None, where it was looked for, and what to say about it."""

    content: TuningFile | None
    path: Path | None
    remark: str


def cache_folder() -> Path:
    """Where this library keeps what it can make again. Raises RuntimeError where there is no home directory."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(cache) if os.path.isabs(cache) else Path("~/.cache")
    return folder.expanduser() / "pycollectives"


def default_path() -> Path:
    """Where this machine's file lies."""
    digest = hashlib.blake2b(hardware().key().encode(), digest_size=6).hexdigest()
    return cache_folder() / f"tuning-{digest}.json"


def path_in_use() -> Path | None:
    """The file that PYCOLLECTIVES_TUNING or the default names; None where tuning is off."""
    named = os.environ.get(VARIABLE, "")
    if named.lower() == "off":
        return None
    return Path(named) if named else default_path()


def load() -> Found:
    """The file in use, read again only when it has changed. Never raises."""
    try:
        path = path_in_use()
        if path is None:
            return Found(None, None, f"turned off by {VARIABLE}")
        try:
            state = path.stat()
        except FileNotFoundError:
            named = f"{VARIABLE} names {path}, which does not exist" if os.environ.get(VARIABLE) else ""
            return Found(None, path, named or "this machine has not been tuned (`pycollectives tune`)")
        return _read(path, state.st_mtime_ns, state.st_size)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: there is no home directory
        return Found(None, None, f"the tuning file cannot be read: {error}")


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int, size: int) -> Found:
    try:
        if size > _MOST_BYTES:
            raise ValueError(f"it has {size} bytes")
        content = TuningFile.decode(path.read_text())
    except (OSError, ValueError) as error:
        return Found(None, path, f"{path} is not used: {error}; `pycollectives tune` makes a new one")
    return Found(content, path, f"{path}, made {content.made}")


def save(content: TuningFile, path: Path) -> None:
    """Write the file in one step: readers see the old or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(content.encode() + "\n")
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
