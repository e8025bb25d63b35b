"""CUDA graphs: whether a compiled call is recorded, how, and the recording itself.

`reasons` explains why a call is not recorded and names the nodes at fault, `recorders` wraps a call in torch's
recording or in this package's own, `plain`. Importing this package imports no torch.

>>> from .plain import Recording
"""
