"""Whether two texts are of one error: what signatures are compared by and, word for word, what a repro asks. No torch.

>>> like(words_of("expected <n> columns but got <n>"), "RuntimeError: expected 3 columns but got 4")
True
"""

import inspect
import re

MOST = 8
"""The most words by which an error is known: a line of a program has room for them."""


def like(words: set[str], text: str) -> bool:  # whether it has two thirds of them, numbers and signs left out
    return len(words - {x.strip("0123456789_%.,:;'\"`()[]") for x in text.lower().split()}) <= len(words) / 3


SOURCE = inspect.getsource(like).splitlines()
"""The function as a program has it."""


def words_of(message: str) -> set[str]:
    """The first words of a normalised message that `like` finds in it; none where it says nothing but numbers and
    names."""
    words = dict.fromkeys(re.findall(r"[^\W\d_]+", message.lower()))
    return set([word for word in words if like({word}, message)][:MOST])
