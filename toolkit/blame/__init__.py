"""Who is to blame for a failing graph: `bisect` names the run's own setting, the node, or the pass or lowering.

It asks children of one fork server, never compiles in the caller's process, and never writes to the user's Inductor
cache.

"""
