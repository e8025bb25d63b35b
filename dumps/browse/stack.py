"""The stack of a node as frames: the user's in front, torch's behind. Reads text only, opens no file.

>>> [(frame.file, frame.line, frame.user) for frame in frames(stack)]
[('/home/ann/model.py', 12, True), ('/home/ann/train.py', 40, True)]
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+)(?:, in (?P<function>.*))?$', re.MULTILINE)
_SLASH = re.compile(r"[/\\]")
_LIBRARY = re.compile(
    r"(?:site|dist)-packages[/\\]|[/\\]torch[/\\](?:nn|_\w+|fx|autograd|utils|func|library|optim)[/\\]|<torch>/|[/\\]lib[/\\]python3"
)


class Frame(NamedTuple):
    """One call: a line of a file, the function it is in, its text. `user`: neither of torch nor of another installed package."""

    file: str
    line: int
    function: str
    code: str
    user: bool

    @property
    def where(self) -> str:
        """The place without the folder: "model.py:12"."""
        return f"{_SLASH.split(self.file)[-1]}:{self.line}"


def frames(stack: str) -> list[Frame]:
    """The frames of a stack, the user's in front, each kind from the innermost call outwards."""
    places = list(_FRAME.finditer(stack))
    found: list[Frame] = []
    for number, place in enumerate(places):
        end = places[number + 1].start() if number + 1 < len(places) else len(stack)
        rest = stack[place.end() : end].strip("\n")
        code = rest.partition("\n")[0].strip()
        user = not _LIBRARY.search(place["file"])
        found.append(Frame(place["file"], int(place["line"]), place["function"] or "", code, user))
    found.reverse()
    return sorted(found, key=lambda frame: not frame.user)
