"""sympy has no types of its own: expressions are `Any` to the type checker."""

from typing import Any

def __getattr__(name: str) -> Any: ...
