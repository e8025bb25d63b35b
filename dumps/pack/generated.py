"""Generated code as it may be sent: kernels and calls stay, what a compiler copied into them of the user's program goes.

Must not leave out a line that a compiler wrote itself, and must not run or parse the code.

>>> redacted("# File: /home/ann/gpt/train.py:76 in forward, code: y = self.fc(x)", texts)
'# File: train.py:76 in forward'
"""

from __future__ import annotations

import re

from .texts import Texts

_USERS_KERNEL = re.compile(
    r"(?P<head>^[ \t]*# Original path:[^\n]*\n(?:[ \t]*#[^\n]*\n)*[^\n]*async_compile\.triton\([^\n]*?'{3})"
    r"(?P<kernel>.*?)(?P<tail>'{3}, device_str=)",
    re.MULTILINE | re.DOTALL,
)
_TRACES = re.compile(r"Original path:|custom_kernel=True|\.user_autotune\(")
_CODE = re.compile(r"(?P<head>(?:#|//) File: (?P<file>[^\n:]+):\d+ in [^\n,]*)(?P<code>, code: [^\n]*)")
_FILE = re.compile(r"(?<=File: )(?P<file>[^\n:]+)(?=:\d+ in )")


def redacted(source: str, texts: Texts) -> str | None:
    """The text without lines of the user's source; None for one that holds a kernel of the user's own which cannot be cut out."""
    if not texts.source:
        source = _USERS_KERNEL.sub(lambda found: _without_kernel(found, texts), source)
        if _TRACES.search(source):
            return None
        source = _CODE.sub(lambda found: _without_code(found, texts), source)
    source = _FILE.sub(lambda found: texts.file(found["file"]), source)
    return texts.text(source)


def _without_kernel(found: re.Match[str], texts: Texts) -> str:
    texts.changed["source lines"] += found["kernel"].count("\n")
    head = found["head"].replace("Original path:", "A kernel of the user's own, left out:")
    return f"{head}{found['tail']}"


def _without_code(found: re.Match[str], texts: Texts) -> str:
    kept = texts.line(texts.file(found["file"]), found["code"])
    return found["head"] + kept
