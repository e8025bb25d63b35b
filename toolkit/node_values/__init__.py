"""Gives the value of every node under a rung, one row as soon as it is known: range, NaN, Inf, error to float64,
eager's own error.

`reading` asks children and passes their rows on (no torch); `child` reads values out of a compiled program by extra
outputs; `measuring` makes rows; `words` describes the finding; `seen` keeps rows for a screen. Their fields:
`docs/json-lines.md`.

For example: `for event in reading.node_values(load_graph("myrun/0_0/forward"), "inductor"): print(event)`.
"""
