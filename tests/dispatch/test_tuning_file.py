"""The tuning file: found, read, refused with a reason, never an error in a call."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycollectives as pc
from pycollectives.cost import Machine, hardware
from pycollectives.dispatch import Row, Series, Table, tuning_file
from pycollectives.dispatch.tuning_file import PARAMETERS, TuningFile
from pycollectives.settings import decide

ROWS = tuple(Row(n, "chain", {"chain": 1e-6, "ring": 2e-6}) for n in (8, 128, 2048))
CORES = len(os.sched_getaffinity(0))
GOOD = TuningFile(
    {"alpha": 3e-6, "gamma": 1e-9},
    Table.of([Series("all_reduce", "float", 2, CORES, ROWS)]),
    (50.0,),
    "on a day",
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tuning.json"
    monkeypatch.setenv(tuning_file.VARIABLE, str(path))
    return path


def explained(nbytes: int = 8) -> tuple[str, str]:
    def on(comm: pc.Communicator) -> tuple[str, str]:
        assert (comm.all_reduce(np.ones(2, np.float32)) == 2).all()
        found = comm.explain("all_reduce", nbytes=nbytes)
        return found.chosen, str(found)

    first, second = pc.run_threads(2, on)
    assert first[0] == second[0]
    return first


def test_saved_and_used(file: Path) -> None:
    tuning_file.save(GOOD, file)
    assert tuning_file.load().content == GOOD
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    chosen, text = explained()
    assert chosen == "chain" and "measured to be the fastest" in text and "on a day" in text
    assert "measured 2.00 x the time" in text
    assert "predicted to be the fastest" in explained(1 << 24)[1]  # was not measured


def test_a_change_is_seen(file: Path) -> None:
    tuning_file.save(GOOD, file)
    assert explained()[0] == "chain"
    tuning_file.save(TuningFile(GOOD.parameters, Table(), (), "another day"), file)
    assert "another day" in explained()[1]


def test_between_hosts_the_table_of_one_host_does_not_hold(file: Path) -> None:
    tuning_file.save(GOOD, file)
    here, apart = decide(2, nested=False), decide(2, nested=False, hosts=(0, 1))
    assert here.tuning.table.series and not apart.tuning.table.series
    assert apart.tuning.machine.cores == here.tuning.machine.cores == CORES  # of each host
    assert "not of the network" in apart.tuning.origin
    assert apart.segment_bytes == 64 << 10
    tuning_file.save(TuningFile({**GOOD.parameters, "network_alpha": 1e-3}), file)
    measured = decide(2, nested=False, hosts=(0, 1)).tuning
    assert measured.machine.network_alpha == 1e-3 and "and of the network" in measured.origin


@pytest.mark.parametrize(("rate", "segment"), [(1e6, 16 << 10), (20e6, 24 << 10), (125e6, 64 << 10)])
def test_segments_are_short_on_slow_networks(file: Path, rate: float, segment: int) -> None:
    tuning_file.save(TuningFile({"network_beta": 1 / rate}), file)
    assert decide(2, nested=False, hosts=(0, 1)).segment_bytes == segment
    assert decide(2, nested=False).segment_bytes >= 64 << 10


def broken(**changes: Any) -> str:
    return json.dumps({**json.loads(GOOD.encode()), **changes})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not used: Expecting value"),
        (GOOD.encode()[:-20], "not used: "),
        ("[]", "holds no object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"schema": 2}', "made by version None"),
        (broken(schema=99), "its schema is 99"),
        (broken(version="0.0.1"), "made by version '0.0.1'"),
        (broken(hardware="a toaster"), "of another machine: 'a toaster'"),
        (broken(parameters=[]), "are missing"),
        (broken(parameters={"alpha": -1}), "alpha is -1, not a number above 0"),
        (broken(parameters={"alpha": "fast"}), "alpha is 'fast'"),
        (broken(parameters={"alpha": 10**400}), "not a number above 0"),
        (broken(series=[7]), "rows is None, not a list"),
        (broken(flag_ns=[float("nan")]), "flag_ns is nan"),
        ("\x00\xff", "not used: "),
    ],
)
def test_what_cannot_be_used_is_ignored_with_a_remark(file: Path, text: str, reason: str) -> None:
    file.write_bytes(text.encode("latin-1"))
    found = tuning_file.load()
    assert found.content is None and reason in found.remark and str(file) in found.remark
    chosen, shown = explained()
    assert "predicted to be the fastest" in shown and reason in shown and chosen


def test_no_file_a_folder_and_off(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not exist" in tuning_file.load().remark
    file.mkdir()
    assert tuning_file.load().content is None
    assert "predicted" in explained()[1]
    monkeypatch.setenv(tuning_file.VARIABLE, "off")
    assert tuning_file.load().remark == "turned off by PYCOLLECTIVES_TUNING"
    monkeypatch.delenv(tuning_file.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert "has not been tuned" in tuning_file.load().remark
    path = tuning_file.default_path()
    assert path.parent == file / "pycollectives" and path.suffix == ".json"
    tuning_file.save(GOOD, path)
    assert tuning_file.load().content == GOOD


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    try:
        TuningFile.decode(content.decode())
    except ValueError:  # UnicodeDecodeError is one
        return
    raise AssertionError("decoded")


@given(st.dictionaries(st.sampled_from(PARAMETERS), st.floats(1e-12, 1.0)))
def test_parameters_that_are_missing_keep_their_defaults(parameters: dict[str, float]) -> None:
    default = Machine(cores=3, cache=5, segment=7)
    machine = TuningFile(parameters).machine(default)
    for name in PARAMETERS:
        assert getattr(machine, name) == parameters.get(name, getattr(default, name))
    assert (machine.cores, machine.cache, machine.segment) == (3, 5, 7)


def test_hardware_of_a_made_up_system(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(
        "processor : 0\nmodel name : Some  Chip\ncpu family : 6\nmodel : 1\n\nmodel name : Other\n"
    )
    for cpu in range(4):
        levels = [
            ("1", "Data", "32K", cpu),
            ("1", "Instruction", "32K", cpu),
            ("3", "Unified", "8M", cpu // 2),
        ]
        for i, (level, kind, size, shared) in enumerate(levels):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{i}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
                (folder / name).write_text(f"{text}\n")
    found = hardware(tmp_path, info)
    assert found.cpu == "Some Chip (6.1.)"
    assert [(c.level, c.nbytes, c.instances) for c in found.caches] == [(1, 32 << 10, 4), (3, 8 << 20, 2)]
    apart = found.defaults(cores=4, segment=4096)
    assert (apart.cache, apart.cores, apart.segment) == (16 << 20, 4, 4096)
    unknown = hardware(tmp_path / "nothing", tmp_path / "nothing")
    assert unknown.caches == () and unknown.cpu and "caches unknown" in unknown.key()
    assert apart.alpha > unknown.defaults(4, 4096).alpha  # a line from another cache takes longer
    here = hardware()
    assert here.caches and here.last_level is not None and here.defaults(1, 1).cache >= here.last_level.nbytes
