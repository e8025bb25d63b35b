"""Checks each access while kernels are interpreted: out of bounds, uninitialised memory, races of two programs,
overflowed indices, new NaN and infinities.

`run` is the entry: a graph in, findings out. `watching` sees accesses and remembers who wrote what, `tracking` follows
values, `wrapper` knows the graph behind kernels, `departing` names the first kernel that departs from eager.
"""
