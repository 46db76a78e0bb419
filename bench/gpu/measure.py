"""Measures the kernels.

    python -m bench.gpu.measure FILE [--emulated] [--seconds 80]      writes each row as a line of JSON when it is there

Rows that are in the file already are not made again: after one that hangs, and so ends the process, the others go on.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pycollectives as pc

from . import others
from .limits import STACKS, append, lines
from .plan import plan
from .timing import ROW_SECONDS, SMALL, Wish, copy_bandwidth


def measure(wish: Wish, seconds: float, file: Path) -> None:
    """All rows that the time is enough for, each written when it is there."""
    end = time.monotonic() + seconds
    known = lines(file)
    bandwidth = next(
        (line["copy_bytes_per_second"] for line in known if "copy_bytes_per_second" in line), 0.0
    )
    if not bandwidth:
        bandwidth = copy_bandwidth(wish)
        append(file, copy_bytes_per_second=bandwidth)
    begun, left_out = {line["begin"] for line in known if "begin" in line}, 0
    for row, run in plan(wish):
        if row.key in begun:
            continue
        if time.monotonic() > end:
            left_out += 1
            continue
        append(file, begin=row.key)
        faulthandler.dump_traceback_later(ROW_SECONDS, exit=True, file=STACKS)
        try:
            row.microseconds = run()
            row.share = row.traffic / (row.microseconds * 1e-6) / bandwidth
        except (pc.UnsupportedError, pc.InvalidArgumentError, pc.ScheduleError):
            append(file, none=row.key)  # not for so many ranks
            continue
        except (
            Exception
        ) as error:  # the library's, CuPy's, CUDA's: the other rows are worth more than a stack
            row.error = f"{type(error).__name__}: {error}"
        finally:
            faulthandler.cancel_dump_traceback_later()
        append(file, row=asdict(row))
        if (
            row.error and not wish.emulated
        ):  # kernels may spin, or the context be broken: the rest in a new process
            sys.stdout.flush()
            os._exit(4)
    append(file, left_out=left_out, not_compared=others.missing(wish.emulated))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--seconds", type=float, default=80)
    given = parser.parse_args()
    measure(SMALL if given.emulated else Wish(False), given.seconds, given.file)


if __name__ == "__main__":
    main()
