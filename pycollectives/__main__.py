"""`python -m pycollectives` is the command `pycollectives`; `python -m pycollectives script.py` runs a rank's script.

In the second form, of use under mpiexec, a rank that fails ends the job.
"""

import sys


def main() -> int:
    """Run the command line, or the script that it names."""
    arguments = sys.argv[1:]
    module = arguments[:1] == ["-m"] and len(arguments) > 1
    if module or (arguments and arguments[0].endswith((".py", ".pyc"))):
        from .bootstrap.script import run

        return run(arguments[module:], module=module)
    from .cli import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
