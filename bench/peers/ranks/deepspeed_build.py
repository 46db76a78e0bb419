"""Compiles DeepSpeed's all-reduce in shared memory, as DeepSpeed does at the first use. Run as a module."""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER = Path(sys.prefix) / "torch_extensions"
NAME = "deepspeed_shm_comm"


def library() -> Path:
    """The compiled module."""
    return next(FOLDER.rglob(f"{NAME}.so"))


if __name__ == "__main__":
    os.environ["TORCH_EXTENSIONS_DIR"] = str(FOLDER)
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    ShareMemCommBuilder().load()
    print(library())
