"""Stride: batch normalisation of a permuted image keeps its layout where eager gives a contiguous one.

Source: found by comparing the strides of operators' results on permuted inputs.
"""

from torch.nn import functional as F

KIND, HOST, MODE = "stride", "unet", "no_grad"
SAYS, CORE, MOST = "stride", ("batch_norm",), 4
FLAGS = ("--check", "metadata")  # strides as traced, though not eager's, are else a note


def f(x):
    turned = F.batch_norm((x + 1).permute(3, 1, 0, 2), None, None, training=True)
    return x + turned.mean(), (turned,)
