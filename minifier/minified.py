"""What a minification returns: the smallest failing case, and how it was found. Imports no torch.

Must not ask, judge or print anything.

"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dumps.displayed import Displayed
from ..dumps.errors import UsageError
from ..dumps.tables import one_line
from ..dumps.wording import counted
from ..toolkit.verdicts.identity import known_id
from ..toolkit.verdicts.verdict import OK, Verdict
from ..toolkit.verdicts.verdict_words import first_line
from .search.problem import Candidate

if TYPE_CHECKING:
    from torch import fx

    from ..toolkit.verdicts.signature import Signature


@dataclass
class Other:
    """Failures with one other signature: how often they were seen, and the smallest candidate that shows them."""

    signature: str
    count: int
    candidate: Candidate
    nodes: int
    failure: Any = None

    def add(self, other: Other) -> None:
        """Takes in what was seen of the same failure elsewhere."""
        self.count += other.count
        if other.nodes < self.nodes:
            self.signature, self.candidate, self.nodes = other.signature, other.candidate, other.nodes
            self.failure = other.failure


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while minifying; `minified`: the best case so far, once it is on the disk."""

    minified: Any = None


@dataclass
class Also:
    """Another failure that was met and not followed. `path`: the smallest case that shows it; `command` minifies
    that."""

    signature: str
    count: int
    nodes: int
    path: Path | None = None
    command: str = ""


@dataclass
class Minified(Displayed):
    """The smallest failing case that was found.

    `module` and `inputs` are the case, live. `queries`: how many cases were judged. `history`: (queries, nodes, input
    bytes) at each improvement; nodes include placeholders and output. `verified`: how many of how many fresh children
    failed the same way at the end. `others`: failures with another signature that were seen and rejected. `stopped`:
    why the search ended early, or None. `also`: those others, written as cases. `passing`: the folder of the nearest
    case that passes, `difference` what makes it pass. `parts`: each node that is left, and what happened without it.
    `asked`: queries by what they were for. `needs`: a row for each part of a small case (see `needs.Needs.rows`).
    `unneeded`: what the original had and the case has not. `neighbour`: "path", "difference" and "diff" (from the case)
    of `passing`. `verdict`: the judge's on the case.

    >>> result = graphdbg.minify(gm, inputs, check=lambda gm, inputs: "erf" in gm.code)
    >>> result.nodes, result.input_bytes, result.original
    (3, 4, (15, 912))
    """

    queries: int
    history: list[tuple[int, int, int]]
    signature: Signature | None
    nodes: int
    input_bytes: int
    verified: tuple[int, int] = (0, 0)
    others: list[Other] = field(default_factory=list["Other"])
    stopped: str | None = None
    notes: list[str] = field(default_factory=list[str])
    path: Path | None = None
    verdicts: dict[str, int] = field(default_factory=dict[str, int])
    live: tuple[fx.GraphModule, list[Any]] | None = None
    original: tuple[int, int] = (0, 0)
    also: list[Also] = field(default_factory=list["Also"])
    passing: Path | None = None
    difference: str = ""
    parts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    asked: dict[str, int] = field(default_factory=dict[str, int])
    needs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    unneeded: list[str] = field(default_factory=list[str])
    neighbour: dict[str, str] = field(default_factory=dict[str, str])
    verdict: Verdict = OK

    def __repr__(self) -> str:
        (shown, times), size = self.verified, f"{self.original[0]} -> {counted(self.nodes, 'node')}"
        return f"<Minified: {size}, verified {shown} of {times}: {one_line(first_line(self.verdict))}>"

    @property
    def signature_id(self) -> str:
        """Which failure it is, in 8 characters (see `toolkit.verdicts.identity`); empty where there is no case."""
        from ..dumps.store import load_graph

        return "" if self.path is None else known_id(self.signature, load_graph(self.path))

    @cached_property
    def _live(self) -> tuple[fx.GraphModule, list[Any]]:
        if self.live is not None:
            return self.live
        from ..dumps.store import load_graph

        if self.path is None:
            raise UsageError("the case was not kept", "it was in a temporary folder", "pass out=... to minify")
        saved = load_graph(self.path)
        return saved.module(), saved.inputs()

    @property
    def module(self) -> fx.GraphModule:
        """The reduced graph."""
        return self._live[0]

    @property
    def inputs(self) -> list[Any]:
        """Its inputs."""
        return self._live[1]
