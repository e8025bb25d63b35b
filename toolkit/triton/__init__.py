"""Triton on any machine: generates Inductor's kernels for a named GPU, compiles them to machine code, runs and checks
them without that GPU.

`standin` pretends that the GPU is there while Inductor compiles, `retarget` puts a graph onto it, `stages` compiles
kernels to every form down to machine code, `interpreting` runs them on Triton's interpreter, `checking` looks at each
access while they run, `alone` launches one on a GPU. Importing this package imports neither torch nor Triton.
"""
