"""The search for a failure among PyTorch's issues, as a link: nothing is sent until somebody opens it.

Made from the normalised signature, so that it holds no name, number or path of the user's program. Pure text.

>>> search_link(Identity("accuracy", "compare", calls=("amin",)), "", Redactor()).rpartition("q=")[2]
'is%3Aissue+%28inductor+OR+torch.compile%29+%28wrong+OR+incorrect+OR+mismatch%29+amin'
"""

from __future__ import annotations

import builtins
import re
from urllib.parse import quote_plus

from ...dumps.pack.redact import Redactor
from ...toolkit.verdicts.identity import CPP, SPEAKING, Identity
from ...toolkit.verdicts.verdict_words import searched

ISSUES = "https://github.com/pytorch/pytorch/issues"
SCOPE = "(inductor OR torch.compile)"
"""What else narrows a search for an operation; the text of an error needs no more."""

_MOST_WORDS, _MOST_CALLS = 8, 3
_BREAK = re.compile(r"<[^<>\s]*>|[\[(]\.+[\])]|\.\.+|[‘’“”`'\"\n:=\[\](){}]|\S+\.(?:py|cpp|h|so|cu)\b\S*")
"""Where the text of an error differs between programs: numbers, names, paths; and signs with a meaning in a search."""


def search_link(failure: Identity, message: str, redactor: Redactor) -> str:
    """The address of the search. `message`: the error's normalised text."""
    return f"{ISSUES}?q={quote_plus('is:issue ' + query(failure, redactor.text(message)))}"


def query(failure: Identity, message: str) -> str:
    """The search text: an error by the longest stretch of its own words, anything else by its kind and operations."""
    stretch, calls = phrase(message), [name for name in failure.calls if "." not in name][:_MOST_CALLS]
    error = failure.error if failure.error and not hasattr(builtins, failure.error) else ""
    if failure.detail and failure.kind in SPEAKING and failure.detail != CPP:
        calls = [failure.detail] if "." not in failure.detail else []
    if stretch:
        words = [error, f'"{stretch}"', *([] if failure.kind == "crash" and len(stretch.split()) > 3 else calls)]
    else:
        words = [SCOPE, searched(failure.kind) or failure.error, *calls]
    return " ".join(filter(None, words))


def phrase(message: str) -> str:
    """The longest stretch of a text that is the same in every program; empty where no two words stand together."""
    pieces = [" ".join(piece.split()[:_MOST_WORDS]).strip(" .,;-") for piece in _BREAK.split(message)]
    longest = max(pieces, key=len, default="")
    return longest if " " in longest else ""
