"""Compares saved graphs: `diff` for two graphs; `pair` for runs, processes and recompiles, graph by graph. Needs no
torch."""

from .pair import diff

__all__ = ["diff"]
