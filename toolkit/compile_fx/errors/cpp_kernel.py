"""A kernel in C++ that its compiler refused: the compiler's first error, the source around it, the kernel and its nodes.

>>> compile_error(case).compiler_line
'main.cpp:37:41: error: expected primary-expression'
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .case import Case
from .explained import Explained
from .nodes import generated, of_kernel
from .sources import enclosing_function, excerpt, kernel_of

KIND = "C++ compile error"
_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? (?:fatal )?error: (?P<said>.*)$", re.MULTILINE
)
_LINKER = re.compile(
    r"^.*(?:undefined reference|cannot find -l|ld returned|unrecognized (?:command[- ]line )?option).*$", re.MULTILINE
)
_SOURCE = (".cpp", ".cc", ".cu", ".c")


@dataclass
class Place:
    """Where a compiler found an error. `column` is None where it names none; `said` is its message."""

    file: str
    line: int
    column: int | None
    said: str
    whole: str


def first_error(output: str) -> Place | None:
    """The first error in the output of g++ or clang; None when it has none (a linker's message, a killed compiler)."""
    found = _ERROR.search(output)
    if found is None:
        return None
    column = int(found["column"]) if found["column"] else None
    return Place(found["file"], int(found["line"]), column, found["said"], found[0])


def compile_error(case: Case) -> Explained | None:
    """A CppCompileError, of a CPU kernel, a C++ wrapper, or a library ahead of time."""
    error = case.find("CppCompileError")
    if error is None:
        return None
    output = str(getattr(error, "output", "") or error)
    command = [str(part) for part in getattr(error, "cmd", ())]
    sources = [part for line in command for part in line.split() if part.endswith(_SOURCE)]
    found = first_error(output)
    if found is None:
        linker = _LINKER.search(output)
        line = linker[0].strip() if linker else next((one for one in output.splitlines()[::-1] if one.strip()), "")
        return case.told(
            KIND, _what("", case), line or "the compiler stopped without a message",
            "look at its command in the error's text, and run it by hand", compiler_line=line,
        )  # fmt: skip
    place = _in_source(found, output, sources)
    source = _read(place.file)
    kernel = _kernel(case, source, place.line)
    return case.told(
        KIND, _what(kernel, case), found.said,
        "see all of the code with graphdbg compile ... --until codegen --emit source; "
        "graphdbg bisect names the pass or setting behind it, minify makes the smallest graph that fails",
        nodes=of_kernel(case.work, kernel), kernel=kernel, file=place.file, line=place.line, column=place.column,
        excerpt=excerpt(source, place.line, place.column), compiler_line=found.whole,
    )  # fmt: skip


def _what(kernel: str, case: Case) -> str:
    return (
        f"the C++ compiler refused the kernel {kernel}"
        if kernel
        else f"the C++ compiler failed in the stage {case.stage}"
    )


def _in_source(found: Place, output: str, sources: list[str]) -> Place:
    """The place in generated source: an error inside a header names there the line that needed it."""
    if found.file in sources or not sources:
        return found
    for source in sources:
        needed = rf"^{re.escape(source)}:(\d+):(?:(\d+):)?\s+(?:required from|required by|note: in instantiation)"
        if named := re.search(needed, output, re.MULTILINE):
            return Place(source, int(named[1]), int(named[2]) if named[2] else None, found.said, found.whole)
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _kernel(case: Case, source: str, line: int) -> str:
    """A file of one kernel calls it `kernel`; the wrapper knows its name."""
    inside = enclosing_function(source, line)
    if inside and inside != "kernel":
        return inside
    return kernel_of(generated(case.work), source)
