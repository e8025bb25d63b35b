"""Graphs and cases as live objects: the spec of a replay, seeds, copies of inputs, modes in force, how a graph
is entered.

Knows nothing of verdicts, rungs or commands.
"""
