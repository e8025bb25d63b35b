"""The view model of `ls --why`: functions with their compiles, each with its reason and its outcome. Pure data.

>>> Compile(id="0_0", kind="first").breaks
[]
"""

from __future__ import annotations

from pathlib import PurePath

import msgspec

WRAPPER = "/torch/_dynamo/external_utils.py"


class ProgramLine(msgspec.Struct):
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""
    code: str = ""

    @property
    def code_text(self) -> str:
        """The code of the line, after a colon; empty where it is unknown."""
        return f": {self.code}" if self.code else ""


class Break(msgspec.Struct):
    """A graph break, or the reason why a frame was not compiled. `then`: "resumed" after it, "rest skipped" (the rest
    of the function runs uncompiled) or "frame skipped" (the whole function does). `stack`: from the compiled function
    to the line that broke."""

    title: str
    explanation: str = ""
    hints: list[str] = []
    link: str = ""
    then: str = "resumed"
    stack: list[ProgramLine] = []


class Guard(msgspec.Struct):
    """A guard that failed: `of`: the compile that has it, `text`, `place`: the line that needs it, `now`: the present
    values."""

    text: str
    of: str = ""
    place: ProgramLine | None = None
    now: dict[str, int | float | bool | str | None] = {}
    hint: str = ""


class Restart(msgspec.Struct):
    """An attempt that Dynamo abandoned to start over; its graphs have the id of the next attempt."""

    attempt: int
    error: str
    text: str = ""


class Symbol(msgspec.Struct):
    """A symbolic size or number of a graph: its source, its hint, and its range."""

    name: str
    source: str = ""
    hint: int | float | None = None
    lower: int | float | None = None
    upper: int | float | None = None


class DDPPart(msgspec.Struct):
    """One part of a graph that DDP's optimizer cut, and the graphs compiled from it."""

    number: int
    of: int
    parameters: int = 0
    size_bytes: int = 0
    names: list[str] = []
    graphs: list[str] = []


class GraphLine(msgspec.Struct):
    """A graph of the run, with the fields that matter for its compile."""

    id: str
    stage: str
    nodes: int | None
    status: str
    local: str = ""


class Compile(msgspec.Struct):
    """One attempt of Dynamo to compile a frame. `kind`: "first", "again" (a first compile of a known function), "reset"
    (the same after torch._dynamo.reset), "resumed" (after a graph break, at line `resumed_at`), "recompile", "limit"
    (one recompile too many), "observed" (no compile: the program's own graphs) or "unknown" (its beginning was lost).
    `guards`: the first that failed in each compiled version, newest version first, without similar ones; `also`: other
    guards that failed in the newest version. `began`: seconds since 1970; 0 if unknown."""

    id: str
    kind: str = "first"
    function: str = ""
    file: str = ""
    line: int = 0
    began: float = 0.0
    thread: str = ""
    resumed_at: int = 0
    called_from: ProgramLine | None = None
    cached: int = 0
    guards: list[Guard] = []
    also: list[Guard] = []
    captured: str = ""
    restarts: list[Restart] = []
    breaks: list[Break] = []
    failure: Break | None = None
    error: str = ""
    limit: str = ""
    nothing: str = ""
    left_out: str = ""
    symbols: list[Symbol] = []
    became_dynamic: list[Symbol] = []
    conditions: list[str] = []
    parts: list[DDPPart] = []
    graphs: list[GraphLine] = []

    def dynamic_since(self, before: set[str]) -> list[Symbol]:
        """The symbols whose sources are not in `before`."""
        return [symbol for symbol in self.symbols if symbol.source and symbol.source not in before]


class Function(msgspec.Struct):
    """A function of the program, with all its compiles, including those after its graph breaks."""

    name: str
    file: str
    line: int
    compiles: list[Compile] = []

    @property
    def foreign(self) -> bool:
        """Whether the function belongs to torch or Python itself and gave no graph: it only stands between the
        program's own."""
        library = "/torch/" in self.file or ("/lib/python3" in self.file and "-packages/" not in self.file)
        return library and not any(item.graphs for item in self.compiles)

    @property
    def place(self) -> str:
        """Its line in the program; empty for torch's wrapper around a module of a library."""
        return "" if self.file.endswith(WRAPPER) else f"{PurePath(self.file).name}:{self.line}"


class Skipped(msgspec.Struct):
    """A function that was not compiled, and why."""

    name: str
    file: str
    line: int
    reason: str


class ProcessWhy(msgspec.Struct):
    """One recorded process. `known`: False where no reasons were recorded; `lacking`: what its torch could not
    record."""

    name: str
    rank: int | None
    prefix: str
    known: bool = False
    lacking: list[str] = []
    functions: list[Function] = []
    skipped: list[Skipped] = []
    others: list[GraphLine] = []


class Why(msgspec.Struct):
    """All processes of a run that recorded anything."""

    processes: list[ProcessWhy]
