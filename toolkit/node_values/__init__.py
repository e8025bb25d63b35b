"""Gives the value of every node under a rung, one row as soon as it is known: range, NaN, Inf, error to float64,
eager's own error.

`at_node` asks children and passes their rows on (no torch); `standing` is the child's part: it reads values out of a
compiled program by extra outputs and makes the rows; `seen` keeps rows and describes the finding. Their fields:
`docs/json-lines.md`.

For example: `for event in at_node.node_values(load_graph("myrun/0_0/forward"), "inductor"): print(event)`.
"""
