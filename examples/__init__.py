"""Example training scripts: plain PyTorch, no graphdbg import, seeded, no downloads.

Installed with the package so that `graphdbg demo` finds them in a wheel too. Importing this package imports nothing.

>>> from graphdbg.examples import path_of
>>> path_of("train_gpt").name
'train_gpt.py'
"""

from __future__ import annotations

from pathlib import Path


def path_of(name: str) -> Path:
    """Where the example script `name` (without .py) lies on this machine."""
    return Path(__file__).with_name(f"{name}.py")
