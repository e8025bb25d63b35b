"""CUDA graphs: whether a compiled call is recorded, how, and the recording itself.

`reasons` says why not and names what cannot be recorded, `recorders` puts them on, torch's or ours, which is `plain`.
Importing this package imports no torch.

>>> from .plain import Recording
"""
