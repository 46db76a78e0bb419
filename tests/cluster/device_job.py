"""What the ranks of jobs with devices do: device_job.py FUNCTION [JSON]. The devices are emulated, each in the process of its rank;
their memory is the host's, so MPI can be given their pointers, too.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "communicator"))
sys.path.insert(0, str(Path(__file__).parents[1] / "device"))

import catalogue
import fake_arrays as fake
import job
import numpy as np
import on_device
import reference
from job import catch, say

from pycollectives.bootstrap import mpi
from pycollectives.communicator import Communicator
from pycollectives.device import emulated
from pycollectives.device.extension import native
from pycollectives.device.spanning import SpanningDevice
from pycollectives.schedule import find


def everything(comm: Any, counts: list[int], dtypes: list[str]) -> None:
    """Every verb by every algorithm, blocking, asynchronous and planned, and by the choice of the selector; and streams."""
    made = catalogue.every_algorithm(comm, counts, dtypes)
    seed = 0
    for verb in catalogue.VERBS:
        for count in (*counts, 30_000):
            for way in catalogue.WAYS:
                seed += 1
                dtype = (*dtypes, "bfloat16")[seed % (len(dtypes) + 1)]
                catalogue.check(comm, verb, None, count, dtype, seed % comm.size, way, seed)
                made += 1
    for verb in ("all_reduce", "reduce_scatter", "all_gather"):
        if not find(verb, "hierarchical").on(comm.hosts).obstacle(comm.size):
            for count in (1, 4097, 30_000):
                for dtype in ("float32", "int64", "float16"):
                    catalogue.check(comm, verb, "hierarchical", count, dtype, 0, "call", count)
                    made += 1
    rounding(comm)
    streams(comm)
    device = comm._device
    say(
        rank=comm.rank,
        made=made,
        direct=device.answer.direct,
        why=device.answer.why,
        inside=device._inside is not None,
        explained=str(comm.explain("all_reduce", nbytes=1 << 20)),
    )


def rounding(comm: Any) -> None:
    """Sums of small floats are rounded once, whichever way they take, and every rank has the same bits."""
    n = comm.size
    mine = [1.0, 2.0**-8, 2.0**-8, 0.0][comm.rank]  # rounded on each host it would be 1
    exact = np.full(3000, 1 + 2.0**-7, "bfloat16")
    x = np.full(3000, mine, "bfloat16")
    ways = [None, "hierarchical"] if len(set(map(comm.hosts.count, comm.hosts))) == 1 else [None]
    for algorithm in ways:
        assert (comm.all_reduce(x, algorithm=algorithm) == exact).all(), algorithm
        block = comm.reduce_scatter(x[: 700 * n], algorithm=algorithm)
        assert block.size == 700 and (block == exact[:700]).all(), algorithm
        for dtype in ("bfloat16", "float16", "float8_e4m3fn"):
            for op in ("sum", "avg", "max"):
                xs = [
                    reference.values(dtype, (4001,), np.random.default_rng([7, r]), exact=False)
                    for r in range(n)
                ]
                got = comm.all_reduce(xs[comm.rank], op, algorithm=algorithm)
                assert reference.close(op, got, xs), (dtype, op, algorithm)
                digests = comm.all_gather_object(got.tobytes())
                assert all(each == digests[0] for each in digests), (dtype, op, algorithm)


def streams(comm: Any) -> None:
    """The caller's stream: the input is written on it before the call, the output read on it after."""
    module = native(True)
    stream = module.make_stream()

    def copy(to: Any, source: Any) -> None:
        fake.kept.extend([to, source])
        module.copy(stream, to.ctypes.data, source.ctypes.data, to.nbytes)

    with fake.libraries() as current:
        current.stream = stream
        everyone = sum(range(1, comm.size + 1))
        for turn, kind in enumerate((fake.CupyArray, fake.TorchTensor)):
            for asynchronous in (False, True):
                n = 20_000 + turn
                later = np.arange(n, dtype=np.float32) * (comm.rank + 1)
                x, seen = np.full(n, np.nan, np.float32), np.zeros(n, np.float32)
                copy(x, later)
                made = comm.all_reduce(kind(x), async_op=asynchronous)
                made = made.wait() if asynchronous else made
                copy(seen, made.memory)
                copy(x, np.zeros_like(x))
                assert isinstance(made, kind)
                module.synchronize(stream)
                assert np.array_equal(seen, np.arange(n) * everyone), (kind, asynchronous)
        y = np.ones(5000, np.float32)
        on = fake.CupyArray(y)
        comm.all_reduce(on, out=on)
        again = comm.plan("all_reduce", on, out=on)
        again()
        work = comm.all_reduce(on, out=on, async_op=True)
        comm.all_reduce(np.ones(3))  # a call of the same communicator behind it
        work.wait()
        module.synchronize(stream)
        assert (y == comm.size**3).all()
        module.begin_capture(stream)
        caught = catch(lambda: comm.all_reduce(on, out=on))
        module.end_capture(stream)
        assert caught["error"] == "UnsupportedError" and "captured" in caught["text"], caught
        with comm.group():
            first = comm.all_reduce(fake.CupyArray(np.full(9, 2.0, np.float32)))
        module.synchronize(stream)
        assert (first.wait().memory == 2 * comm.size).all()
    module.destroy_stream(stream)


def staging(comm: Any) -> None:
    """Runs of all blocks, in pieces, against host arrays of the same communicator."""
    say(rank=comm.rank, made=on_device.staged(host_side(comm), True, 4096))


def host_side(comm: Any) -> Any:
    """A communicator of the same ranks whose arrays are the host's."""
    ranks = comm.world_ranks
    return Communicator._of_family(comm._family, "hosts", ranks, timeout=60, holds=False, parent=comm)


def memory(comm: Any) -> None:
    """Symmetric device memory: inside a host native kernels find it where it is."""
    for turn in range(3):
        x = comm.empty((2, 3000), "float32", device="cuda")
        y = comm.empty((2, 3000), "float32", device="cuda")
        on_device.seen(x)[:] = comm.rank + turn
        comm.all_reduce(x, out=y)
        native(True).synchronize(1)
        got = on_device.seen(y)
        assert (got == sum(range(comm.size)) + turn * comm.size).all(), got
        del x, y, got
    inside = comm._device._inside
    known = inside.device._symmetric._dropped if inside is not None else {}
    say(rank=comm.rank, regions=len(known))


def disagreements(comm: Any, algorithm: str | None) -> None:
    """Rank 1 calls with another length: all raise, and no output changes."""
    part = comm.split(0)
    n = 40_000 + 8 * (comm.rank == 1)
    x, out = np.ones(n, np.float32), np.full(n, 7, np.float32)
    caught = catch(lambda: part.all_reduce(x, out=out, algorithm=algorithm, timeout=20))
    again = catch(lambda: part.all_reduce(x, out=out, timeout=20))
    untouched = bool((out == 7).all())
    part.close()
    assert int(comm.all_reduce(np.ones(1))[0]) == comm.size
    say(rank=comm.rank, **caught, again=again["error"], untouched=untouched)


fail = job.fail  # called by its name, as are the functions above


if __name__ == "__main__":
    faulthandler.enable()
    arguments = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    faulthandler.dump_traceback_later(float(os.environ.get("JOB_SECONDS", "100")), exit=True)
    native(True).configure(seed=7, shared=True)
    world = Communicator(mpi.discover(), device=emulated(native=True))
    assert isinstance(world._device, SpanningDevice)
    globals()[sys.argv[1]](world, **arguments)
    world.close()
