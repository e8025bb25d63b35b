"""Triton on any machine: Inductor's kernels for a named GPU written, compiled to machine code, run and checked with no
GPU here.

`standin` pretends that the GPU is there while Inductor compiles, `retarget` puts a graph onto it, `stages` compiles
kernels to every form down to machine code, `interpreting` runs them on Triton's interpreter, `checking` looks at each
access while they run, `alone` launches one on a GPU. Importing this package imports neither torch nor Triton.
"""
