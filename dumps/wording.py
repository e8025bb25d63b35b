"""Numbers with their nouns, and other short texts for people: the one place that forms plurals.

Machine-readable output has numbers, not these words.

>>> counted(1, "graph"), counted(2, "process"), counted(3, "query"), counted(1200, "node", form=",")
('1 graph', '2 processes', '3 queries', '1,200 nodes')
>>> counted(1, "graph was", "graphs were") + " left out"
'1 graph was left out'
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path


def size_text(size_bytes: float | None, *, digits: int = 1) -> str:
    """A number of bytes: 512 B, 1.5 KiB, 3.0 MiB; "?" where it is not known."""
    if size_bytes is None:
        return "?"
    from humanize import naturalsize  # imported late: a command that prints no size does not wait for it

    return naturalsize(size_bytes, binary=True, format=f"%.{digits}f").replace("Bytes", "B").replace("Byte", "B")


def count_text(number: float | None, unit: str = "") -> str:
    """A number in three digits with a decimal prefix: 134M, 2.10k, 1.33 TB/s; "?" where it is not known."""
    if number is None:
        return "?"
    if isinstance(number, int) and abs(number) < 1000:
        return f"{number} {unit}".rstrip()
    from humanize import metric

    text = metric(number, unit, precision=3)
    return text if unit else text.replace(" ", "")


def age_text(seconds: float) -> str:
    """A length of time in one unit: 43 seconds, 12 minutes, 3 hours, 2 days."""
    from humanize import naturaldelta

    return naturaldelta(max(0.0, seconds))


def ago_text(seconds: float) -> str:
    """How long ago: 12 minutes ago."""
    return f"{age_text(seconds)} ago"


def clock_text(seconds: float) -> str:
    """A length of time to the second: 8 s, 2:05, 1:02:03."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else str(timedelta(seconds=whole)).lstrip("0:")


MOST = 8
"""The most words by which an error is recognised: as many as fit into a line of a program."""


def like(words: set[str], text: str) -> bool:  # whether it has two thirds of them, numbers and signs left out
    return len(words - {x.strip("0123456789_%.,:;'\"`()[]") for x in text.lower().split()}) <= len(words) / 3


SOURCE = inspect.getsource(like).splitlines()
"""The source of `like`, to be copied into programs."""


def words_of(message: str) -> set[str]:
    """The first words of a normalised message that `like` finds in it; empty for a message of only numbers and
    names."""
    words = dict.fromkeys(re.findall(r"[^\W\d_]+", message.lower()))
    return set([word for word in words if like({word}, message)][:MOST])


def counted(count: float, singular: str, many: str = "", *, form: str = "") -> str:
    """`count` in the format `form`, with its noun; `many`: the plural, where the usual rule does not give it."""
    return f"{count:{form}} {singular if count == 1 else many or plural(singular)}"


def listed(names: Iterable[object], most: int = 8) -> str:
    """The names as a list in words; after the first `most` only their number.

    >>> listed("abcd", 2)
    'a, b and 2 more'
    """
    known = [str(name) for name in names]
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")


def joined(names: Sequence[str]) -> str:
    """All of the names as a list in words.

    >>> joined(["a"]), joined(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def plural(noun: str) -> str:
    """The plural of a noun, or of a phrase that ends in one, by the usual rule."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "z", "ch", "sh")) else "s")


UNPACKED, TYPED = "graphdbg-zip-", ".archive"
"""The prefix of folders that archives are unpacked to, and the file in such a folder that holds the path of its
archive."""


def typed_path(path: Path) -> Path:
    """The path under which a thing is found again: below the archive where it was unpacked from one, as the unpacked
    folder is deleted when the process ends.

    >>> typed_path(Path("myrun/0_0"))
    PosixPath('myrun/0_0')
    """
    for folder in path.parents:
        if folder.name.startswith(UNPACKED) and (archive := _archive(folder)) is not None:
            typed = archive.joinpath(*path.relative_to(folder).parts[1:])
            return typed.relative_to(Path.cwd()) if typed.is_relative_to(Path.cwd()) else typed
    return path


@cache
def _archive(folder: Path) -> Path | None:
    with contextlib.suppress(OSError):
        return Path(os.fsdecode((folder / TYPED).read_bytes()))
    return None


def shown_path(path: Path) -> str:
    """The path as a person would type it here."""
    path = typed_path(path)
    with contextlib.suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))


_TRITON_EXCERPT = re.compile(r"\bat \d+:\d+:\n(?:.*\n)*? *\^\n(?=\S)")


def without_excerpt(text: str) -> str:
    """An error's text without the excerpt of the kernel's source that Triton puts before the actual message.

    >>> without_excerpt("CompilationError: at 2:8:\\n    i = tl.arange(0, n)\\n        ^\\narange takes constants")
    'CompilationError: arange takes constants'
    """
    return _TRITON_EXCERPT.sub("", text)


_CUDA_ADVICE = re.compile(
    r"^(?:Search for `cuda|CUDA kernel errors might be|For debugging consider passing CUDA_LAUNCH_BLOCKING"
    r"|Compile with `TORCH_USE|Device-side assert(?:ion|ions)? (?:tracking|were|was)).*(?:\n|\Z)",
    re.MULTILINE,
)
"""What torch adds to each CUDA error: it says nothing of this one."""


def without_advice(text: str) -> str:
    """An error text without the advice that torch adds to every CUDA error, and the source that Triton begins with.

    >>> without_advice("CUDA error: out of memory\\nCompile with `TORCH_USE_CUDA_DSA`")
    'CUDA error: out of memory'
    """
    text = without_excerpt(text)
    return _CUDA_ADVICE.sub("", text).rstrip() if "CUDA" in text else text


_ON_FAKES = "Dynamo failed to run FX node with fake tensors: "
_CALLED = re.compile(r"\w+ (?:<[^>]*?(?:function|method) (?P<name>[\w.]+)|(?P<plain>[\w.]+)\()")
_RAISED = re.compile(r"(\w+)\((['\"])(.*)\2\)\.?")
_EXPLANATION = re.compile(r"^  Explanation: (.*(?:\n(?!  Hint:|  Developer debug context:).*)*)", re.MULTILINE)
_CONTEXT = re.compile(r"^  Developer debug context: (.+)", re.MULTILINE)
AND_THEN = "*** While handling this graph break, another graph break occurred: ***"


def explained(text: str) -> tuple[str, str]:
    """The title and the explanation of a text with which Dynamo gives up; of an operator that it tried on fake tensors,
    what that raised in place of the call written out.

    >>> called = "call_function <built-in function add>(*(FakeTensor(..., size=(2,)), 1), **{})"
    >>> said = f"Dynamo failed to run FX node with fake tensors: {called}: got RuntimeError('sizes differ')"
    >>> explained(f"RuntimeError\\n  Explanation: {said}\\n  Hint: none")
    ('RuntimeError', 'add raises RuntimeError: sizes differ')
    """
    first, second = (_by_operator(part) for part in text.partition(AND_THEN)[::2])
    title, _, rest = first.strip().partition("\n")
    own = _EXPLANATION.search(first)
    why = _joined(own[1].partition("\n\n")[0]) if own else _joined(rest)
    if not why and (context := _CONTEXT.search(first)):
        why = _joined(context[1])
    if second.strip() and own:
        later = _EXPLANATION.search(second)
        then = _joined(later[1]) if later else second.strip().partition("\n")[0]
        why = ". ".join(filter(None, [why.rstrip("."), then]))
    return title.strip(), why


def _by_operator(text: str) -> str:
    """A text of Dynamo with what an operator raised on fake tensors in place of its call. One pass: a saved text may be
    long."""
    before, there, rest = text.partition(_ON_FAKES)
    line, end, after = rest.partition("\n")
    call, _, raised = line.rpartition(": got ")
    called, said = _CALLED.match(call[:400]), _RAISED.match(raised)
    if not there or called is None or said is None:
        return text
    return f"{before}{called['name'] or called['plain']} raises {said[1]}: {said[3]}{raised[said.end() :]}{end}{after}"


def in_short(error: str) -> str:
    """An error's text; of Dynamo's, which go on with hints and links, the title and the explanation alone.

    >>> in_short("Graph break\\n  Explanation: It prints.\\n  Hint: none"), in_short("no such size")
    ('Graph break: It prints', 'no such size')
    """
    return ": ".join(filter(None, explained(error))).rstrip(".") if _EXPLANATION.search(error) else error


def _joined(text: str) -> str:
    return " ".join(text.split())


def error_line(error: object) -> str:
    """The first line of an error's text; the name of its type where there is none.

    >>> error_line(ValueError("no such size\\nat line 3")), error_line(KeyboardInterrupt())
    ('no such size', 'KeyboardInterrupt')
    """
    text = without_excerpt(str(error))
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def raised_line(error: BaseException, limit: int = 200) -> str:
    """An exception in one line: its type, and the first line of its text.

    >>> raised_line(ValueError("no such size\\nat line 3")), raised_line(KeyboardInterrupt())
    ('ValueError: no such size', 'KeyboardInterrupt')
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:limit]}" if lines else type(error).__name__


def flat(text: object, limit: int = 200) -> str:
    """The text of something in one line of at most `limit` characters.

    >>> flat("two\\n  lines", 9), flat("two lines", 6)
    ('two lines', 'two l…')
    """
    line = " ".join(str(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def shortened(text: str, limit: int) -> str:
    """A text with single spaces between its words, cut after the last word that fits, with "…" where it is cut.

    >>> shortened("report it  as a bug to PyTorch", 22), shortened("a bug", 22)
    ('report it as a bug to…', 'a bug')
    """
    words = " ".join(text.split())
    return words if len(words) <= limit else f"{words[:limit].rpartition(' ')[0] or words[: limit - 1]}…"


def why_not_there(path: Path, lacks: str) -> str:
    """Why a command did not find what it needs at a path: a folder without `lacks`, a file, or nothing at all.

    >>> why_not_there(Path("nowhere"), "run.json")
    'there is no such folder'
    """
    if path.is_dir():
        return f"it has no {lacks}"
    return "it is a file, not a folder" if path.exists() else "there is no such folder"
