"""Pictures of graphs: records -> graph as drawn (`source`) -> view (`nodes`, `overview`) -> DOT (`dot`) -> svg, png,
pdf (`picture`).

A view is plain data that any renderer can show; a graph that was saved is drawn without torch. A large graph is not
laid out node by node: above LARGE nodes the overview of its modules or the neighbourhood of one node is drawn.

>>> from graphdbg.toolkit.drawing.picture import draw
>>> draw(saved, Path("forward.svg")).nodes
15
"""

LARGE = 300
"""More nodes than this are not laid out one by one: `dot` takes 0.6 s for 1,000 nodes, 9 s for 3,000 and minutes for
10,000."""
