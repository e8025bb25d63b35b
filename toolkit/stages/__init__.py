"""Compares stage with stage: a recorded graph and the graph that was made from it, run in eager and float64 on the same
inputs.

Where they differ, what ran between them is to blame: a pass of the user's, or the compiler's own. Nothing is compiled
and no user code is imported, so this judges passes that no replay can bring back. A pair that cannot be compared is
skipped silently. `asking` chooses the pairs and names what ran between, `judging` runs in a child, `tracing` finds the
rewritten node.
"""
