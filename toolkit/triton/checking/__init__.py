"""Looks at each access of interpreted kernels: out of bounds, uninitialised, two programs at one place, overflowed indices, NaN born."""
