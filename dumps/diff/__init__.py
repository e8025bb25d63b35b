"""Comparing saved graphs: `diff` of two graphs; runs, processes and recompiles pair by pair in `pair`. Needs no
torch."""

from .pair import diff

__all__ = ["diff"]
