"""Stage against stage: a recorded graph and the one that was made of it, run in eager and float64 on the same inputs.

Where the two part, what ran between them is to blame: a pass of the user's, or one of the compiler's own. Nothing is
compiled and no code of the user's is imported, so it judges passes that no replay can bring back. A pair that cannot be
compared is left out in silence. `asking` says who is compared and what ran between, `judging` runs in a child,
`tracing` finds the rewritten node.
"""
