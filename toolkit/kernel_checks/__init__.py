"""Looks at each access while kernels are interpreted: out of bounds, memory that nothing wrote, two programs at one
place, overflowed indices, NaN and infinities born.

`run` is the door: a graph in, findings out. `watching` sees accesses and remembers who wrote what, `tracking` looks at
values, `wrapper` knows the graph behind kernels, `departing` names the first kernel that departs from eager.
"""
