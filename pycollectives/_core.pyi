"""Types of the native extension (csrc/bindings). Only the package itself uses it."""

from collections.abc import Callable, Sequence
from typing import Any

DTYPES: tuple[str, ...]
OPS: tuple[str, ...]
OP_NAMES: list[str]
VERBS: list[str]
SIMD: tuple[str, ...]

class Endpoint:
    timeout: float
    def _open(self, core: Any, size: int, timeout: float, /) -> None: ...
    def _shut(self) -> None: ...
    def _remember(
        self,
        verb: Any,
        dtype: int,
        count: int,
        op: Any,
        root: int,
        algorithm: str | None,
        deterministic: bool,
        prepared: Any,
        /,
    ) -> None: ...

class FastMethod:
    def __init__(self, wrapped: Callable[..., Any], form: int, taker: int, /) -> None: ...
    __wrapped__: Callable[..., Any]
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class BoundCall:
    def __new__(
        cls, core: Any, prepared: Any, source: int, target: int, timeout: float, result: Any, keep: Any, /
    ) -> Any: ...
    def __call__(self) -> Any: ...

def supports(dtype: int, op: int, epilogue: int, /) -> bool: ...
def is_wide(dtype: int, /) -> bool: ...
def simd_name() -> str: ...
def available_memory() -> int: ...
def override(change: int, /) -> None: ...
def reduce(
    dtype: int,
    op: int,
    sources: Sequence[Any],
    sinks: Sequence[Any],
    source_wide: Sequence[bool],
    sink_wide: Sequence[bool],
    count: int,
    epilogue_kind: int,
    factor: float,
    simd: str = "",
    far: bool = False,
    stream: bool = False,
) -> None: ...
def __getattr__(name: str) -> Any: ...
