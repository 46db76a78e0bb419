"""The algorithms, one family per file. Importing this package registers them."""

from . import direct, dissemination, ring, tree

__all__ = ["direct", "dissemination", "ring", "tree"]
