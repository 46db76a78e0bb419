"""Write your own algorithm: a star all-reduce in ten lines, checked like the built-in ones; and a wrong one, refused.

python -m pycollectives run -n 4 examples/own_algorithm.py
"""

import numpy as np

import pycollectives as pc


@pc.algorithm("all_reduce")
def star(p: pc.Program) -> None:
    p.chunks(1)
    center = p.rank == 0
    with p.phase("gather and reduce"):
        p.send(p.chunk(0), to=p.select(center, pc.NULL, 0))
        p.reduce(p.chunk(0), source=p.select(p.peers(center), p.others(), pc.NULL))
    with p.phase("broadcast"):
        p.send(p.chunk(0), to=p.select(p.peers(center), p.others(), pc.NULL))
        p.recv(p.chunk(0), source=p.select(center, pc.NULL, 0))


@pc.algorithm("all_reduce")
def off_by_one(p: pc.Program) -> None:
    right, left = (p.rank + 1) % p.size, (p.rank - 1) % p.size
    for step in p.steps(p.size - 1):
        p.send(p.chunk((p.rank - step) % p.size), to=right)
        p.reduce(p.chunk((p.rank - step) % p.size), source=left)


comm = pc.init()
x = np.arange(6.0) * (comm.rank + 1)
total = comm.all_reduce(x, algorithm="star")
try:
    comm.all_reduce(x, algorithm="off_by_one")
except pc.ScheduleError as error:
    refusal = error
if comm.rank == 0:
    print("star:", total)
    print("off_by_one is refused:", refusal)
