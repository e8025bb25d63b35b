"""The value of every node under a rung, one row as soon as it is known: range, NaN, Inf, error to float64, eager's own error.

`reading` asks children and hands their rows on (no torch); `child` is what they do; `tapped` reads values out of a compiled
program by extra outputs; `measuring` makes rows; `words` says what was found. `docs/json-lines.md` lists the fields.

>>> for event in node_values(load_graph("myrun/0_0/forward"), "inductor"): print(event)
"""

from __future__ import annotations

from .reading import node_values

__all__ = ["node_values"]
