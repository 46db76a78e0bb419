"""Data-parallel training: a small network learns scikit-learn's handwritten digits on any number of ranks.

    python examples/data_parallel.py
    pycollectives run -n 4 examples/data_parallel.py
    mpiexec -n 4 python examples/data_parallel.py

Every rank holds the whole network and takes its share of every batch. One all_reduce per batch adds up the
gradients of all shares, so every rank makes the same step: the loss curve is the same on 1 and on N ranks.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, TypeAlias

import numpy as np
from sklearn.datasets import load_digits

import pycollectives as pc

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
INPUTS, HIDDEN, CLASSES = 64, 32, 10


class Network:
    """64 inputs, 32 tanh units, 10 classes. All parameters lie in one vector; the layers are views of it."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        sizes = INPUTS * HIDDEN, HIDDEN, HIDDEN * CLASSES, CLASSES
        self.parameters = np.zeros(sum(sizes))
        self.w1, self.b1, self.w2, self.b2 = self.layers(self.parameters)
        self.w1[...] = random.normal(0, INPUTS**-0.5, self.w1.shape)
        self.w2[...] = random.normal(0, HIDDEN**-0.5, self.w2.shape)

    @staticmethod
    def layers(vector: Array) -> tuple[Array, Array, Array, Array]:
        """The layers' views of a vector of all parameters."""
        w1, b1, w2, b2 = np.split(vector, np.cumsum([INPUTS * HIDDEN, HIDDEN, HIDDEN * CLASSES]))
        return w1.reshape(INPUTS, HIDDEN), b1, w2.reshape(HIDDEN, CLASSES), b2

    def predict(self, images: Array) -> Array:
        """The likeliest class of each image."""
        found: Array = (np.tanh(images @ self.w1 + self.b1) @ self.w2 + self.b2).argmax(axis=1)
        return found

    def gradient(self, images: Array, labels: Array, into: Array) -> float:
        """The loss of these images, summed; its gradient is written into `into`."""
        hidden = np.tanh(images @ self.w1 + self.b1)
        scores = hidden @ self.w2 + self.b2
        scores -= scores.max(axis=1, keepdims=True)
        log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        rows = np.arange(len(labels))
        d_scores = np.exp(log_p)
        d_scores[rows, labels] -= 1
        d_hidden = d_scores @ self.w2.T * (1 - hidden**2)
        w1, b1, w2, b2 = self.layers(into)
        w1[...], b1[...] = images.T @ d_hidden, d_hidden.sum(axis=0)
        w2[...], b2[...] = hidden.T @ d_scores, d_scores.sum(axis=0)
        return float(-log_p[rows, labels].sum())


def train(comm: pc.Communicator, epochs: int, batch: int, rate: float, quiet: bool) -> dict[str, Any]:
    """The loss after every epoch, and the accuracy on images that were not trained on."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))  # the same on every rank
    images, labels = digits.data[order] / 16.0, digits.target[order]
    cut = len(labels) * 4 // 5
    network = Network(seed=1)
    velocity = np.zeros_like(network.parameters)

    # The last element carries the loss: one message for both. The arrays lie in symmetric memory, where other
    # ranks may read them in place.
    message = comm.empty(len(network.parameters) + 1, "float64")
    add_up = comm.plan("all_reduce", message, out=message)
    curve = []
    for epoch in range(epochs):
        loss = 0.0
        order = np.random.default_rng(epoch + 2).permutation(cut)
        for start in range(0, cut, batch):
            chosen = order[start : start + batch]
            mine = chosen[comm.rank :: comm.size]
            message[-1] = network.gradient(images[mine], labels[mine], message[:-1])
            add_up()
            velocity *= 0.9
            velocity -= rate / len(chosen) * message[:-1]  # the average gradient of the batch
            network.parameters += velocity
            loss += message[-1]
        curve.append(loss / cut)
        if comm.rank == 0 and not quiet:
            print(f"epoch {epoch + 1:2}   loss {curve[-1]:.12f}")

    share = slice(cut + comm.rank, None, comm.size)
    right = np.count_nonzero(network.predict(images[share]) == labels[share])
    accuracy = int(comm.all_reduce(np.array(right))) / (len(labels) - cut)
    return {"ranks": comm.size, "loss": curve, "accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128, help="images per step, over all ranks")
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate")
    parser.add_argument("--json", action="store_true", help="print the result as JSON only")
    options = parser.parse_args()
    with pc.init() as comm:
        result = train(comm, options.epochs, options.batch, options.rate, options.json)
        if comm.rank == 0 and options.json:
            print(json.dumps(result))
        elif comm.rank == 0:
            print(f"{comm.size} ranks   accuracy {100 * result['accuracy']:.2f} % on unseen digits")


if __name__ == "__main__":
    main()
