"""`pycollectives topo`: the hosts of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import topology
from ..bench.report import check_plot
from ..world import init
from .ranks import console


def topo(
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw here: a .png or an .html file.")
    ] = None,
) -> None:
    """Show the hosts of a job: which ranks share memory, cores, NUMA nodes, network interfaces and their rates.

    Without a job it shows this host.

    [bold]Examples[/bold]

      pycollectives topo

      mpiexec -n 8 -hosts a,b pycollectives topo --plot hosts.png
    """
    if plot is not None:
        check_plot(plot)
    with init() as comm:
        hosts = topology.group(comm.hosts, comm.all_gather_object(topology.Host.here()))
        if comm.rank == 0:
            console().print(topology.text(hosts), markup=False, soft_wrap=True)
            if plot is not None:
                topology.draw(hosts, plot)
        comm.barrier()
