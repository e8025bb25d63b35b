"""Why CUDA graphs are not used, in a sentence: torch's reasons without their stacks, with the input's name and the user's line.

Pure text and metadata. A reason that is not known here is told in torch's words.

>>> sentence("skipping cudagraphs due to mutated inputs (1 instances). Found from : ...", ["x"], [0])
'x is written to (model.py:12)'
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import torch

from ....dumps.sidecar import user_frame
from ..input_names import listed, name_at
from ..overlap import overlaps_itself

_PREFIX = re.compile(r"^\s*(?:skipping|disabling) cudagraphs due to\s+")
_WHERE = re.compile(r"\.?\s*Found from\s*:?.*", re.DOTALL)
_KEPT = "graphdbg_reason"


def sentence(
    reason: str, names: Sequence[Any] = (), mutated: Collection[int] = (), inputs: Sequence[Any] = (),
    devices: Collection[str] = ("cuda",),
) -> str:  # fmt: skip
    """One of torch's reasons. `mutated` are the inputs that are written to and may not be; `devices` are those of the graph."""
    text = reason
    while (shorter := _PREFIX.sub("", text)) != text:
        text = shorter
    text = " ".join(_WHERE.sub("", text).split()).rstrip(".")
    line, _ = user_frame(reason.replace("Found from", "Found from\n"))  # frames start lines
    where = f" ({line})" if line else ""
    if "cuda" not in devices:
        return "no CUDA device in this graph"
    if text.startswith("mutated inputs") and mutated:
        named = listed(name_at(names, index) for index in sorted(mutated))
        return f"{named} {'is' if len(mutated) == 1 else 'are'} written to{where}"
    if text == "complex memory overlap":
        found = [
            name_at(names, index)
            for index, value in enumerate(inputs)
            if isinstance(value, torch.Tensor) and overlaps_itself(value, expanded=False)
        ]
        return f"{listed(found)} overlaps itself (complex memory overlap)" if found else text
    if text == "non-Tensor inputs":
        found = [name_at(names, i) for i, v in enumerate(inputs) if not isinstance(v, (torch.Tensor, torch.SymInt))]
        return f"{listed(found)} is no tensor" if found else text
    return text + where


def keep(box: Any, reason: str) -> None:
    """Notes on what a forward and its backward share why the forward is not recorded."""
    if hasattr(box, "value"):
        setattr(box, _KEPT, reason)


def of_forward(box: Any) -> str:
    """Why the forward is not recorded, as `keep` noted it; empty when it is, or was never asked to be."""
    return getattr(box, _KEPT, "")
