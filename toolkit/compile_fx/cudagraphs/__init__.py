"""CUDA graphs: whether a compiled call is recorded, how, and the recording itself.

`reasons` says why not, `recorders` puts them on, `partitions` what each part of a split graph is given, `deferring`
waits for real inputs, `plain` is our recording, `trees` is torch's, `copying` brings inputs to where they were recorded,
`unfit` names what cannot be recorded. Importing this package imports no torch.

>>> from .plain import Recording
"""
