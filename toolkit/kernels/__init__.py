"""Kernels that Inductor generates: which nodes each is made of, what it moves and computes."""
