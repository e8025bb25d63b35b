"""The parts of a node table: columns, filter, order, folding, lanes, search, one node in detail. Needs no torch, no
textual.

The terminal workbench and `graphdbg show` use the same functions, so that a filter means the same in both.
"""
