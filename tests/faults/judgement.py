"""How the ranks of a scenario have fared, and what is not as it must be."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from scenarios import ENDS, PATIENCE, Scenario

SOON = 2.0  # seconds from a fault to what the others raise


@dataclass
class Outcome:
    """How a rank has fared."""

    error: str = ""  # the class of what it raised
    text: str = ""
    peer: int | None = None
    when: float = 0.0
    problem: str = ""  # what is wrong with that
    fault: float = 0.0  # when it happened, on the victim
    outside: bool = False  # outside of a collective, so that the library knows nothing of it
    trace: str = ""
    members: tuple[int, ...] = ()  # of the communicator that raised, if it is not that of all


@dataclass
class Child:
    """A rank, as its parent knows it."""

    pid: int
    pidfd: int
    pipe: int
    data: bytes = b""
    outcome: Outcome | None = None
    status: int | None = None
    died: float = 0.0
    ready: bool = False
    open: bool = True
    sent: list[int] = field(default_factory=list)


def judge(plan: Scenario, made: list[Child], snapshot: dict[str, Any]) -> list[str]:
    """What is not as it must be."""
    wrong: list[str] = []
    victim = made[plan.victim]
    faulted = victim.died if plan.fault in ("kill", "killed") else 0.0
    if victim.outcome is not None and plan.fault not in ("kill", "killed"):
        faulted = victim.outcome.fault
    for number, child in enumerate(made):
        mine, outcome = number == plan.victim, child.outcome
        who = f"rank {number}"
        if child.status is None:
            wrong.append(f"{who} has not ended")
            continue
        dies = plan.fault == "massacre" or (
            mine
            and (
                plan.fault in ("kill", "killed") or (plan.fault == "stop" and child.status == signal.SIGKILL)
            )
        )
        if dies:
            if child.status != signal.SIGKILL:
                wrong.append(f"{who} was not killed: {child.status}")
            continue
        if child.status != 0 or outcome is None:
            wrong.append(f"{who} ended with status {child.status}")
            continue
        if outcome.problem:
            wrong.append(f"{who}: {outcome.problem}")
            continue
        wrong += [
            f"{who} {text}: {outcome.text or outcome.trace}"
            for text in judge_one(plan, mine, outcome, victim, faulted)
        ]
    if plan.fault == "kill" and plan.at and snapshot:
        world = next(each for each in snapshot["communicators"] if each["name"] == "world")
        if not next(each["calls"] for each in world["ranks"] if each["rank"] == plan.victim):
            wrong.append("the recorder of the victim is empty")
    return wrong


def judge_one(plan: Scenario, mine: bool, outcome: Outcome, victim: Child, faulted: float) -> Iterator[str]:
    """What is wrong with a rank that has ended in order."""
    own = {"raise": "TransportError", "interrupt": "KeyboardInterrupt", "stop": "PeerError", "leave": ""}
    expected = ENDS[plan.fault] or ""
    if mine and plan.fault in own:
        expected = own[plan.fault]
    if plan.fault == "leave" and mine:
        if outcome.error not in ("", "AbortedError"):
            yield f"raised {outcome.error}"
        return
    if plan.mixed and plan.fault == "abort" and outcome.error == "PeerError" and outcome.peer is not None:
        return  # in the communicator of some ranks, which is not aborted, but left by those who have heard of it
    if outcome.error != expected:
        yield f"raised {outcome.error or 'nothing'} in place of {expected or 'nothing'}"
        return
    if not expected or mine:
        return
    if outcome.members and plan.victim not in outcome.members:
        return  # it has heard from another one, who has noticed before
    number = (
        outcome.members.index(plan.victim) if outcome.members else plan.victim
    )  # ranks are a communicator's own
    heard = plan.mixed and "shrinks the communicator" in outcome.text  # maybe of one that has noticed before
    if expected in ("PeerError", "CollectiveTimeoutError") and outcome.peer != number and not heard:
        yield f"names rank {outcome.peer}"
    died = f"rank {number} (process {victim.pid}) died"
    if plan.fault in ("kill", "killed") and not (
        died in outcome.text and (" call " in outcome.text or "before its first call" in outcome.text)
    ):
        yield "does not say who died where"
    if plan.fault == "stop" and "stopped" not in outcome.text:
        yield "does not say who was stopped"
    # Of what is raised in the communicator of some ranks, the others learn that somebody has gone.
    outside = plan.mixed or (victim.outcome is not None and victim.outcome.outside)
    if plan.fault == "raise" and not outside and "an injected fault" not in outcome.text:
        yield "does not say what was raised"
    if plan.fault == "disagree" and f"rank {plan.victim} called" not in outcome.text and plan.size > 2:
        yield "does not say who disagrees"
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))  # others may have the cores
    limit = SOON * max(1.0, busy) + (PATIENCE if plan.fault == "stop" else 0.0)
    if faulted and outcome.when - faulted > limit:
        yield f"came {outcome.when - faulted:.2f} s after the fault"
