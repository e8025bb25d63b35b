"""DOT into svg, png or pdf: by `dot` where it is on PATH, else by the Graphviz that pygraphviz's wheel brings along.

Graphviz is other people's C code and may crash or never end, so both run in a child with a time limit. What one
renderer cannot do, the next one tries. Leaves the text as it is, and never overwrites a file.

For example: `write(dot_text, Path("graph.svg"), limit_s=60)` gives `'pygraphviz'`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ...dumps.atomic import write_file
from ...dumps.deaths import signal_name
from ...dumps.errors import BadValueError, EnvironmentLackError, ExistsAlreadyError, PackageMissingError
from ...dumps.tables import one_line

FORMATS = ("svg", "png", "pdf", "dot")
LIMIT_S = 60.0
_PNG_DPI = "110"
_MOST_PIXELS = 32767
"""Cairo's limit for a side of a bitmap."""


class LayoutTimeoutError(EnvironmentLackError):
    """Graphviz does not end in time."""

    code = "GD76"


def format_of(path: Path) -> str:
    """The format that a file name asks for. Raises UsageError for any other suffix."""
    wanted = path.suffix.lower().removeprefix(".")
    if wanted not in FORMATS:
        why = f"its suffix is {path.suffix!r}" if path.suffix else "it has no suffix"
        suffixes = ", ".join("." + name for name in FORMATS)
        raise BadValueError(f"cannot tell the format of {path}", why, f"end the name in one of {suffixes}")
    return wanted


def refuse_existing(path: Path) -> None:
    """Raises UsageError when there is something of that name."""
    if os.path.lexists(path):
        raise ExistsAlreadyError(f"cannot write {path}", "it exists already", "choose another name or delete it")


def renderers() -> list[str]:
    """The renderers that are installed, the first choice first: "dot", "pygraphviz"."""
    available = ["dot"] if shutil.which("dot") else []
    return available + (["pygraphviz"] if importlib.util.find_spec("pygraphviz") else [])


def refuse_without_renderer(wanted: str) -> None:
    """Raises EnvironmentLackError when nothing here can make that format."""
    if wanted != "dot" and not renderers():
        raise PackageMissingError(
            f"cannot draw a {wanted}",
            "there is no `dot` on PATH and pygraphviz is not installed",
            "install Graphviz, or run pip install pygraphviz (its wheel brings one along), or ask for a .dot file",
        )


def write(text: str, path: Path, *, limit_s: float = LIMIT_S) -> str:
    """Writes a picture of a DOT text and returns what rendered it. Raises UsageError for an existing path or an unknown
    suffix, EnvironmentLackError when there is no renderer, none of them manages, or the disk refuses."""
    wanted = format_of(path)
    refuse_existing(path)
    if wanted == "dot":
        data, renderer = text.encode(), "pydot"
    else:
        data, renderer = rendered(text, wanted, limit_s)
    if not write_file(path, data, exclusive=True):
        refuse_existing(path)
    return renderer


def rendered(text: str, wanted: str, limit_s: float = LIMIT_S) -> tuple[bytes, str]:
    """The bytes of a picture and what rendered it; raises EnvironmentLackError."""
    refuse_without_renderer(wanted)
    failures: list[str] = []
    for renderer in renderers():
        command = _command(renderer, wanted)
        try:
            done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired as error:
            why = f"{renderer} needs more than {limit_s:g} s"
            fix = "draw less (--by-module, or --around NODE with fewer --hops), or give it longer with --limit"
            raise LayoutTimeoutError("the picture could not be laid out", why, fix) from error
        except OSError as error:
            failures.append(f"{renderer} could not be started: {error}")
            continue
        if done.returncode == 0 and done.stdout:
            return centred(done.stdout) if wanted == "svg" else done.stdout, renderer
        failures.append(f"{renderer} {_end(done)}")
    raise PackageMissingError(
        f"cannot draw a {wanted}", "; ".join(failures), "ask for a .dot file, which needs no Graphviz"
    )


def was_scaled(path: Path) -> bool:
    """Whether a picture was too large for its format, so that Graphviz made everything in it smaller."""
    if format_of(path) != "png":
        return False
    with path.open("rb") as file:
        head = file.read(24)
    return max(int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")) >= _MOST_PIXELS


def _command(renderer: str, wanted: str) -> list[str]:
    if renderer == "dot":
        return ["dot", f"-T{wanted}", *([f"-Gdpi={_PNG_DPI}"] if wanted == "png" else [])]
    return [sys.executable, "-m", f"{__package__}.layout_child", wanted, _PNG_DPI if wanted == "png" else "0"]


def _end(done: subprocess.CompletedProcess[bytes]) -> str:
    words = [line for line in done.stderr.decode(errors="replace").splitlines() if line and "Fontconfig" not in line]
    said = f" ({one_line(words[-1], 200)})" if words else ""
    if done.returncode < 0:
        return f"was killed by {signal_name(-done.returncode)}{said}"
    return f"ended with code {done.returncode}{said}" if done.returncode else f"wrote nothing{said}"


_NODE = re.compile(rb'<g id="[^"]*" class="node">.*?</g>\s*(?=<!--|<g |</g>)', re.DOTALL)
_OUTLINE = re.compile(rb'<(?:path|polygon)\b[^>]*?\b(?:d|points)="([^"]+)"')
_START = re.compile(rb'(<text\b[^>]*?)text-anchor="start" x="[^"]*"')
_PAIR = re.compile(rb"(-?\d+(?:\.\d+)?),(-?\d+(?:\.\d+)?)")


def centred(svg: bytes) -> bytes:
    """The same picture with every text of a box in the middle of its box, across, so that it fits whatever font the
    reader has.

    Graphviz writes where a text starts, counted from the middle by the width that the text has in the font of the
    machine that drew it. Where a wider font shows it, it would leave its box on the right. Every text of our boxes is
    centred.
    """
    return _NODE.sub(lambda match: _with_middle(match.group(0)), svg)


def _with_middle(node: bytes) -> bytes:
    outline = _OUTLINE.search(node)
    xs = [float(x) for x, _ in _PAIR.findall(outline.group(1))] if outline else []
    if not xs:
        return node
    middle = f"{(min(xs) + max(xs)) / 2:.2f}".encode()
    return _START.sub(rb'\1text-anchor="middle" x="' + middle + rb'"', node)
