"""Findings of jobs on the nodes of the graph screen: marks, the way from one to the next, values of rungs as columns.

Read in a thread when the screen is seen, and while a job runs. It does not judge: `tui/verdicts.py` reads what jobs
said.

For example: `room.marks.at(57)` gives `['triage: wrong numbers: result: relative error 2']`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....toolkit.node_values.seen import ValuesSeen
from ... import job_files
from ...settings import mark
from ...verdicts import NodesFound, nodes_of

if TYPE_CHECKING:
    from .room import GraphRoom

LOOK_S = 2.0
"""How often it is checked whether jobs, or commands in a shell, found more."""


class GraphMarks:
    """The part of the graph screen that shows findings."""

    def __init__(self, room: GraphRoom) -> None:
        self.room = room
        self.nodes_found = NodesFound()
        self.by_node: dict[int, list[str]] = {}
        self._jobs: list[int] = []
        self.live: ValuesSeen | None = None
        """Values that Replay reads now, or read last."""
        self.was_read = self.wanted = False
        """Whether findings of jobs were read once, and whether a key goes to one as soon as they are."""

    def begin(self) -> None:
        """Looks now, and again while jobs run or after one came."""
        self.look()
        self.room.set_interval(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        before, self._jobs = self._jobs, job_files.stamp()
        if self.room.is_current and (self._jobs != before or self.room.workbench.running()):
            self.look()

    def look(self) -> None:
        """Reads what jobs have said since."""
        graph, view = self.room.here.graph, self.room.view
        live = self.room.workbench.values.get(graph or "")
        if graph is None or view is None or not view.whole:
            return
        if live is not None and live is not self.live:
            self.live = live
            self._values()
        seen = self.nodes_found.seen
        self.room.work(lambda: nodes_of(graph, seen), self._take, group="marks", doing="reading what jobs found")

    def _take(self, nodes_found: NodesFound | None) -> None:
        self.was_read = True
        if nodes_found is not None:
            values = nodes_found.values != self.nodes_found.values
            self.nodes_found = nodes_found
            self.place()
            if values and nodes_found.values:
                self._values()
        if self.wanted:
            self.wanted = False
            self.do_graph_bad()

    def _values(self) -> None:
        """Shows the values that were read last as columns, those of another rung beside them."""
        values_of_rung = dict(self.nodes_found.values)
        if self.live is not None and self.live.rung not in values_of_rung:
            values_of_rung[self.live.rung] = self.live
        shown = NodesFound(values=values_of_rung).rungs()
        if shown is not None:
            self.room.rows.value_columns(shown[0].columns(shown[1]), shown[2])

    def place(self) -> None:
        """Marks the nodes; findings on no node are at the result."""
        view = self.room.needed()
        known = {name: at for at, name in view.known.items()}
        marks_of_node: dict[int, list[str]] = {}
        for (job, rung), marks in self.nodes_found.marks.items():
            for node, name, said in marks:
                words = name.split()  # "grad of blocks.0.weight"
                at = view.position(node) if node else known.get(words[-1] if words else "")
                text = f"{job}{f' {rung}' if rung else ''}: {said}"
                marks_of_node.setdefault(len(view) - 1 if at is None else at, []).append(text)
        if marks_of_node != self.by_node:
            self.by_node = marks_of_node
            table = self.room.table
            table.bad = dict.fromkeys(marks_of_node, mark("bad"))
            table.bad_lines = {view.table.where[at] for at in marks_of_node if view.text[view.table.where[at]]}
            self.room.rows.again()
            self.room.refresh_bindings()
            if self.room.tabs is not None:
                self.room.tabs.notes_of = self.notes
                self.room.tabs.again()
            self.show_findings()

    def at(self, node: int) -> list[str]:
        """The findings at a node."""
        return self.by_node.get(node, [])

    def notes(self, node: int, source: bool = False) -> list[str]:
        """The findings for a tab; over the source also those at other nodes of that line."""
        view = self.room.needed()
        where = view.table.where
        alike = [
            at for at in self.by_node if at != node and source and view.text[where[at]] and where[at] == where[node]
        ]
        return [*self.at(node), *(f"{view.table.name[at]}, {text}" for at in alike for text in self.by_node[at])]

    def show_findings(self) -> None:
        """Shows the findings at the node under the cursor on the line below, else clears that line."""
        node = self.room.table.node
        if texts := self.at(node):
            self.room.status.show(None, f"{mark('bad')} {' · '.join(texts)}", alarm=True)
        elif self.room.status.right.startswith(mark("bad")):
            self.room.status.show(None, "")

    def do_graph_bad(self) -> None:
        """Goes to the next marked node, after the last to the first."""
        places = sorted(self.by_node)
        if not places and not self.was_read:
            self.wanted = True
            self.room.status.show(None, "reading what jobs found ...")
            return
        if not places:
            why = (
                "no node is marked: no job here found one bad in this graph; in Replay (4) r runs the rungs, v "
                "reads values"
            )
            self.room.status.show(None, why, alarm=True)
            return
        now = self.room.table.node
        self.room.find.jump(next((at for at in places if at > now), places[0]))
        self.show_findings()
