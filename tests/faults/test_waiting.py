"""Long waits: they say who is awaited, and everything ends them that must."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any

import pytest
import waiting_ranks
from ranks import DIED, threads


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("barrier", "rank 0 waits in call 2 barrier() at waiting_ranks.py:"),
        ("async", "call 2 all_reduce(float64[5], sum) at waiting_ranks.py:"),
        ("recv", "rank 0 waits in recv(source=1, tag=3) for "),
        ("empty", "rank 0 waits for other ranks of 'world/1.0' for "),
    ],
)
def test_a_long_wait_says_who_is_awaited(fresh: Any, way: str, words: str) -> None:
    texts = fresh(3, {"PYCOLLECTIVES_WARN_SECONDS": "0.3"}).run(waiting_ranks.be_awaited, way)
    assert len(texts[0]) == 2, texts  # after 0.3 and 0.6 seconds
    for text in texts[0]:
        assert words in text, text
        assert way in ("recv", "empty") or re.search(
            r"for rank 1 after call 1 barrier\(\) at waiting_ranks\.py:\d+$", text
        )
    assert not texts[1]
    assert way != "barrier" or not texts[2]  # rank 0 has spoken


def test_no_word_of_short_waits(fresh: Any) -> None:
    assert fresh(2).run(waiting_ranks.be_awaited, "barrier") == [[], []]


def test_interrupt_ends_every_wait(fresh: Any) -> None:
    found = fresh(2).run(waiting_ranks.be_interrupted)[0]
    assert found.keys() == waiting_ranks.WAITS.keys()
    assert all(0 <= seconds < 1.0 for seconds in found.values()), found


@pytest.mark.parametrize("way", ["empty", "split", "objects", "recv", "sendrecv"])
def test_abort_ends_every_wait(pools: Any, way: str) -> None:
    for kind, seconds in pools(2).run(waiting_ranks.abort_others, way):
        assert kind == "AbortedError" and seconds < 0.8, (kind, seconds)


def test_the_time_in_which_a_job_is_stopped_does_not_count(fresh: Any) -> None:
    job = fresh(2)
    job.start(waiting_ranks.sleep_and_meet, 0.8, 1.0)
    time.sleep(0.4)
    for number, pause in ((signal.SIGSTOP, 1.5), (signal.SIGCONT, 0.0)):
        for pid in job.pids:
            os.kill(pid, number)
        time.sleep(pause)
    assert job.finish(timeout=20)[0] > 1.5


def test_a_rank_that_misses_an_exchange_is_named(pools: Any) -> None:
    *others, last = pools(3).run(waiting_ranks.miss_an_exchange)
    assert last == []
    for [(peer, text)] in others:
        assert peer == 2 and "index 2 did not come within 0.4 s" in text


def test_a_member_that_dies_ends_an_exchange(fresh: Any) -> None:
    """Enough other ranks are left to complete it, but they are not meant."""
    results = fresh(5).run(waiting_ranks.die_in_an_exchange, died=[2])
    peer, text, seconds = results[0]
    assert peer == 1 and re.match(
        r"rank 1 \(process \d+\) died before its first call; needed for array", text
    )
    assert seconds < 2.0


def test_the_error_says_in_which_message_the_other_one_waits(pools: Any) -> None:
    waits, recv = pools(2).run(waiting_ranks.wait_for_different_things)
    assert waits.startswith(
        "CollectiveTimeoutError: call 2 all_reduce(float64[3], sum) at waiting_ranks.py:"
    ), waits
    assert ", waiting for rank 1, waiting in recv(source=0, tag=9) after call 1 barrier() at" in waits, waits
    assert recv.startswith("PeerError: rank 0 waited in vain for this rank"), recv


def test_death_without_a_pidfd(fresh: Any) -> None:
    text, died = fresh(2).run(waiting_ranks.watch_by_number, died=[1])
    assert died is DIED and "rank 1 (process" in text and "died after call" in text


def test_a_thread_that_raises_frees_those_who_wait_in_other_communicators() -> None:
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="my own"):
        threads(3, waiting_ranks.fail_in_a_thread)
    assert time.monotonic() - start < 2.0
