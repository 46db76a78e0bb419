"""Ranks with torchrun's variables, set by torchrun or by hand: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import os
import secrets
import socket
import time
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from pycollectives.bootstrap import hosted
from pycollectives.bootstrap.hosted import Host
from pycollectives.bootstrap.rendezvous import Rendezvous, SingleRendezvous
from pycollectives.bootstrap.settings import connect_timeout, number
from pycollectives.errors import BootstrapError, UnsupportedError

_generations = itertools.count(1)  # every rank opens its n-th rendezvous with the others' n-th


def present() -> bool:
    """Whether the variables are set."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def discover() -> Rendezvous:
    """The rendezvous of the ranks of these variables. Raises BootstrapError, UnsupportedError."""
    rank, size = number("RANK"), number("WORLD_SIZE")
    assert rank is not None and size is not None
    if rank >= size:
        raise BootstrapError(f"RANK is {rank}, but WORLD_SIZE is {size}")
    if size == 1:
        return SingleRendezvous()
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise BootstrapError(f"RANK and WORLD_SIZE are set, but not {' and '.join(missing)}", rank=rank)
    local = number("LOCAL_WORLD_SIZE")
    generation = next(_generations)
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if local is not None and local < size:
        return _across_hosts(rank, size, generation, agent)
    if agent and importlib.util.find_spec("torch") is not None:
        return _by_store(rank, size, generation)
    return _by_name(rank, size, generation)


def _job(generation: int) -> list[str]:
    """What tells this meeting from others with the same store or port."""
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    return [os.environ.get(name, "") for name in names] + [str(generation)]


def _across_hosts(rank: int, size: int, generation: int, agent: bool) -> Rendezvous:
    """MPI carries the data. Its ranks learn of each other from a process manager of ours, whose address the store carries.

    Without the agent's store the manager is at MASTER_PORT itself, as the store that rank 0 would open.
    """
    from pycollectives.bootstrap import mpi, pmi
    from pycollectives.bootstrap.addresses import Door, connect, listen

    timeout, deadline = connect_timeout(), time.monotonic() + connect_timeout()
    host, port = os.environ["MASTER_ADDR"], number("MASTER_PORT") or 0
    if generation > 1:  # MPI knows the ranks already
        return mpi.initialize({}, size)
    try:
        store = _store(size, timeout) if agent else None
        key = "/".join(["pycollectives", *_job(generation), "pmi"])
        if rank == 0:
            with listen(size, 0 if agent else port) as listener:
                door = Door.of(listener)
                pmi.start(listener, size, timeout)
            if store is not None:
                store.set(key, json.dumps(asdict(door)))
            address = "127.0.0.1"
        elif store is not None:
            door = Door.of_json(json.loads(store.get(key)))
            port = door.port
            with connect(door, timeout) as sock:
                address = sock.getpeername()[0]
        else:
            while True:
                try:
                    with socket.create_connection(
                        (host, port), max(0.1, deadline - time.monotonic())
                    ) as sock:
                        address = sock.getpeername()[0]
                    break
                except OSError:
                    if time.monotonic() + 0.1 > deadline:
                        raise
                    time.sleep(0.1)
    except (OSError, RuntimeError, ValueError) as error:
        raise BootstrapError(
            f"the ranks on several hosts cannot meet at MASTER_ADDR={host}, MASTER_PORT={port}: {error}",
            rank=rank,
        ) from error
    return mpi.initialize(pmi.variables(address, door.port if rank == 0 else port, rank, size), size)


def _store(size: int, timeout: float) -> Any:
    """A client of the agent's store."""
    from torch.distributed import TCPStore

    return TCPStore(os.environ["MASTER_ADDR"], number("MASTER_PORT"), size, False, timedelta(seconds=timeout))


def _by_store(rank: int, size: int, generation: int) -> Rendezvous:
    """The agent's store carries name and secret."""
    address, port, timeout = os.environ["MASTER_ADDR"], number("MASTER_PORT"), connect_timeout()
    key = "/".join(["pycollectives", *_job(generation)])
    try:
        store = _store(size, timeout)
        if rank == 0:
            name, secret = hosted.random_name(), secrets.token_bytes(32)
            served = hosted.host(name, secret, size, "torchrun")
            try:
                store.set(
                    key, json.dumps({"name": name, "secret": secret.hex(), "host": asdict(Host.here())})
                )
            except BaseException:
                served.abandon()
                raise
            return served
        entry = json.loads(store.get(key))
    except (RuntimeError, ValueError) as error:
        raise BootstrapError(
            f"torchrun's store at {address}:{port} does not answer: {error}", rank=rank
        ) from error
    here, there = Host.here(), Host(**entry["host"])
    if not here.sees(there):
        raise UnsupportedError(
            f"rank {rank} runs on {here.name}, rank 0 on {there.name} or in another network namespace; "
            "all ranks of a job must run on one host",
            rank=rank,
            peer=0,
        )
    return hosted.join(entry["name"], bytes.fromhex(entry["secret"]), rank, size, "torchrun", timeout)


def _by_name(rank: int, size: int, generation: int) -> Rendezvous:
    """The variables themselves give the name; only the user of the peer is proved by this."""
    parts = [
        str(os.geteuid()),
        os.environ["MASTER_ADDR"],
        os.environ["MASTER_PORT"],
        str(size),
        *_job(generation),
    ]
    digest = hashlib.sha256("\0".join(parts).encode())
    name = f"pycollectives-{digest.hexdigest()[:32]}"
    if rank > 0:
        return hosted.join(name, digest.digest(), rank, size, "torchrun", connect_timeout())
    try:
        return hosted.host(name, digest.digest(), size, "torchrun")
    except BootstrapError as error:
        raise BootstrapError(
            f"another job with MASTER_ADDR={os.environ['MASTER_ADDR']}, "
            f"MASTER_PORT={os.environ['MASTER_PORT']} and {size} ranks is running: "
            f"give each job its own MASTER_PORT ({error})",
            rank=0,
        ) from error
