"""Running a script so that a rank which fails ends the job: `python -m pycollectives script.py`.

Under mpiexec an exception in one rank leaves the others waiting, and MPI's own end waits for all ranks. So the ranks of an
MPI job are ended by MPI_Abort when one raises or exits with a code. Other launchers end the job by themselves.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from collections.abc import Sequence


def run(command: Sequence[str], *, module: bool = False) -> int:
    """Run a script (or a module) as __main__ with its arguments; returns its exit code, 0 if it comes to its end.

    Does not return in a rank of an MPI job whose code is not 0: that ends the job.
    """
    target, sys.argv = command[0], list(command)
    code = 1
    try:
        if module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(target, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = exit_code(end)
    except KeyboardInterrupt:
        code = 130
        raise
    except BaseException:
        traceback.print_exc()
    finally:
        if code:
            abort(code)
    return code


def exit_code(end: SystemExit) -> int:
    """What the interpreter would exit with; prints what it would print."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1


def abort(code: int) -> None:
    """End all ranks of the MPI job that this process is one of, if it is one."""
    MPI = sys.modules.get("mpi4py.MPI")
    if MPI is None or not MPI.Is_initialized() or MPI.Is_finalized():
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if MPI.COMM_WORLD.Get_size() > 1:
        MPI.COMM_WORLD.Abort(code)
