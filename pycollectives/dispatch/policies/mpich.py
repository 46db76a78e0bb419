"""MPICH's rules: thresholds of bytes, the same since 2005.

source   R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19(1),
         2005; the limits as MPICH 4's control variables name them (MPIR_CVAR_BCAST_SHORT_MSG_SIZE and others)
"""

from __future__ import annotations

from ..query import Query
from .advice import Advice, block_bytes, is_power_of_two

_ALL_REDUCE_SHORT = _REDUCE_SHORT = 2048
_BCAST_SHORT, _BCAST_LONG, _BCAST_MIN_PROCS = 12288, 524288, 8
_ALL_GATHER_SHORT, _ALL_GATHER_LONG = 81920, 524288
_REDUCE_SCATTER_LONG = 524288
_ALL_TO_ALL_SHORT, _ALL_TO_ALL_MEDIUM, _ALL_TO_ALL_MIN_PROCS = 256, 32768, 8


def advice(query: Query) -> Advice | None:
    """What MPICH takes between ranks of one communicator, by its point-to-point algorithms."""
    n, size, power = query.nbytes, query.size, is_power_of_two(query.size)
    ordered = query.needs.rank_order
    match query.collective:
        case "all_reduce":
            if n <= _ALL_REDUCE_SHORT or ordered:
                return Advice("recursive doubling", "recursive_doubling")
            return Advice("reduce-scatter + all-gather (Rabenseifner)", "halving_doubling")
        case "reduce":
            if n <= _REDUCE_SHORT or ordered:
                return Advice("binomial", "binomial")
            return Advice("reduce-scatter + gather (Rabenseifner)", "rabenseifner")
        case "broadcast":
            if n < _BCAST_SHORT or size < _BCAST_MIN_PROCS:
                return Advice("binomial", "binomial")
            short = n < _BCAST_LONG and power
            return Advice(
                f"scatter + {'recursive-doubling' if short else 'ring'} all-gather", "scatter_all_gather"
            )
        case "all_gather":
            if power and n < _ALL_GATHER_LONG:
                return Advice("recursive doubling", "recursive_doubling")
            return Advice("Bruck", "bruck") if n < _ALL_GATHER_SHORT else Advice("ring", "ring")
        case "reduce_scatter":
            if n < _REDUCE_SCATTER_LONG and not ordered:
                return Advice("recursive halving", "recursive_halving")
            return Advice("pairwise exchange", "pairwise")
        case "all_to_all":
            block = block_bytes(query)
            if block <= _ALL_TO_ALL_SHORT and size >= _ALL_TO_ALL_MIN_PROCS:
                return Advice("Bruck", "bruck")
            if block <= _ALL_TO_ALL_MEDIUM:
                return Advice("scattered isend/irecv", "direct")
            return Advice("pairwise exchange", "pairwise")
        case "gather" | "scatter":
            return Advice("binomial", "binomial")
        case "scan" | "exscan":
            return Advice("recursive doubling", "recursive_doubling")
        case "barrier":
            return Advice("dissemination", "dissemination")
    return None
