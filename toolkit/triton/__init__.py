"""Triton on any machine: generates Inductor's kernels for a named GPU, compiles them to machine code, runs and checks
them without that GPU.

`targets` names the GPUs, `pretended` pretends that one is there while Inductor compiles, `retarget` moves a graph onto
it, `emission` compiles kernels to every form down to machine code, `interpreting` runs them on Triton's interpreter.
The checks of each access are in `toolkit.kernel_checks`, launches on a GPU in `toolkit.launching`. Importing this
package imports neither torch nor Triton.
"""
