"""Who is to blame for a failing graph: `bisect` names the pass, lowering or setting, `localize` the node.

Both ask children of one fork server and never compile in the caller's process; neither writes to the user's Inductor cache.

>>> from graphdbg.toolkit.blame.bisect import bisect
>>> bisect(load_graph("myrun/0_0/forward")).sentence
"""
