"""Inductor's kernels on Triton's interpreter, with tensors on the CPU: exact rounding, every reduction and library
function, and memory that no wild access can hurt.

`memory` gives each tensor an address zone of its own, `builder` computes, `language` has Triton's language call it,
`launching` runs a kernel over its grid, `session` runs a generated wrapper.
"""
