"""Training that survives the loss of ranks: what is left shrinks the communicator, takes the last checkpoint, and goes on.

    pycollectives run -n 4 --keep-going examples/elastic.py --lose 2 --in-epoch 5

The network is that of data_parallel.py. `--lose` kills a rank in the middle of an epoch, as a lack of memory would. The
loss curve is that of an undisturbed run: every batch is shared out among the ranks that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path

import numpy as np
from data_parallel import Network
from sklearn.datasets import load_digits

import pycollectives as pc

BATCH, RATE = 128, 0.1


class Training:
    """The state: network, velocity, and the loss of the epochs so far. A checkpoint is all of it."""

    def __init__(self) -> None:
        digits = load_digits()
        order = np.random.default_rng(0).permutation(len(digits.target))
        self.images, self.labels = digits.data[order] / 16.0, digits.target[order]
        self.network = Network(seed=1)
        self.velocity = np.zeros_like(self.network.parameters)
        self.curve: list[float] = []

    def save(self, path: Path) -> None:
        """Whole or not at all: a rank may die while it writes."""
        part = path.with_suffix(".part.npz")
        np.savez(part, parameters=self.network.parameters, velocity=self.velocity, curve=self.curve)
        part.replace(path)

    def restore(self, comm: pc.Communicator, path: Path) -> None:
        """The first rank reads the checkpoint, and all take what it has read."""
        state = None
        if comm.rank == 0 and path.exists():
            with np.load(path) as file:
                state = {name: file[name] for name in file.files}
        state = comm.broadcast_object(state)
        if state is None:
            state = {
                "parameters": Network(seed=1).parameters,
                "velocity": np.zeros_like(self.velocity),
                "curve": [],
            }
        self.network.parameters[:] = state["parameters"]
        self.velocity[:] = state["velocity"]
        self.curve = list(map(float, state["curve"]))

    def epoch(self, comm: pc.Communicator, lose: bool) -> None:
        """One pass over all images; `lose`: this rank does not survive it."""
        loss, message = 0.0, np.empty(len(self.velocity) + 1)
        order = np.random.default_rng(len(self.curve) + 2).permutation(len(self.labels))
        for start in range(0, len(order), BATCH):
            if lose and start > len(order) // 2:
                os.kill(os.getpid(), signal.SIGKILL)
            chosen = order[start : start + BATCH]
            mine = chosen[comm.rank :: comm.size]
            message[-1] = self.network.gradient(self.images[mine], self.labels[mine], message[:-1])
            comm.all_reduce(message, out=message)
            self.velocity *= 0.9
            self.velocity -= RATE / len(chosen) * message[:-1]
            self.network.parameters += self.velocity
            loss += message[-1]
        self.curve.append(loss / len(order))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lose", type=int, nargs="*", default=[], help="ranks to kill, one in an epoch")
    parser.add_argument("--in-epoch", type=int, default=2, help="the first of these epochs")
    parser.add_argument("--checkpoint", type=Path, default=Path("elastic.npz"))
    parser.add_argument("--json", action="store_true", help="print the result as JSON only")
    options = parser.parse_args()

    comm = pc.init()
    me = comm.rank  # ranks are numbered anew when one is lost
    training = Training()
    lost, behind = 0, False
    if comm.rank == 0:
        options.checkpoint.unlink(missing_ok=True)
    comm.barrier()
    while len(training.curve) < options.epochs:
        try:
            if behind:
                training.restore(comm, options.checkpoint)
                behind = False
            doomed = dict(enumerate(options.lose, options.in_epoch)).get(len(training.curve))
            training.epoch(comm, lose=me == doomed)
            if comm.rank == 0:
                training.save(options.checkpoint)
            comm.barrier()  # nobody begins an epoch whose checkpoint is not there
        except (pc.PeerError, pc.CollectiveTimeoutError) as error:
            broken, comm = comm, comm.shrink()
            broken.close()
            lost, behind = lost + 1, True
            if comm.rank == 0 and not options.json:
                print(f"{error}; {comm.size} ranks go on")
    if comm.rank == 0 and options.json:
        print(json.dumps({"ranks": comm.size, "lost": lost, "loss": training.curve}))
    elif comm.rank == 0:
        print(f"{comm.size} ranks   loss {training.curve[-1]:.12f}")
    comm.close()


if __name__ == "__main__":
    main()
