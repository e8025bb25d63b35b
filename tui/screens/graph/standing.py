"""Standing at a node of Graph: a Python prompt with its inputs and value over the screen, and nodes that become a case.

For example:

    room.standing.do_graph_stand()      # `graphdbg replay RUN/ID --at NODE`, in this terminal
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from ....dumps.atomic import free_path
from ....dumps.errors import UsageError
from ...editor import over
from ...here import Here
from ...jobs import command_of
from ...sheet import Ask

if TYPE_CHECKING:
    from .room import GraphRoom


class GraphStanding:
    """The part of Graph that hands nodes on."""

    def __init__(self, room: GraphRoom) -> None:
        self.room = room

    def _name(self) -> str:
        node = self.room.table.node
        if node < 0:
            raise UsageError("the cursor is on no node", "it is on a folded module", "open it with the right arrow key")
        return self.room.needed().table.name[node]

    def do_graph_stand(self) -> None:
        """Opens a prompt at the node under the cursor, and returns when it ends."""
        words = ["replay", self.room.here.graph or "", "--at", self._name()]
        over(self.room.workbench, command_of(words), f"graphdbg {' '.join(words)}", "run it in a terminal")

    def do_graph_cut(self) -> None:
        """Asks which nodes become a case: those that the filter leaves, else from the one under the cursor to
        another."""
        if text := self.room.rows.filter_text:
            self._save(["--filter", text])
            return
        hint = "A..B, in the order of the graph; or A, or A,B..C"
        title, value = "save nodes as a case", f"{self._name()}.."
        ask = Ask(
            title, hint=hint, value=value, check=lambda text: "from where to where?" if text.endswith("..") else ""
        )
        self.room.app.push_screen(ask, lambda text: None if text is None else self._save(["--nodes", text]))

    def _save(self, which: list[str]) -> None:
        case = free_path("graphdbg-case", bare=False)
        words = ["show", self.room.here.graph or "", *which, "--save", str(case)]
        self.room.status.show(None, f"graphdbg {' '.join(words)} ...")
        asked = lambda: subprocess.run(command_of(words), capture_output=True, text=True, check=False)  # noqa: E731
        self.room.work(asked, lambda done: self._saved(case, done), group="case", doing="saving nodes as a case")

    def _saved(self, case: Path, done: subprocess.CompletedProcess[str]) -> None:
        said = (done.stdout if not done.returncode else done.stderr).strip()
        self.room.status.show(
            None, said.splitlines()[0] if said else f"exit code {done.returncode}", alarm=bool(done.returncode)
        )
        if not done.returncode:
            self.room.workbench.go("graph", Here(graph=str(case)))
