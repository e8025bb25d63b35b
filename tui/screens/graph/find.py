"""Going places on the graph screen: filter as you type, search with n and N, go to, users and inputs, back and forth.

`dumps/browse` does the search.

For example, `room.find.jump(57)`: shows node 57 wherever it is, and remembers where we came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....dumps.browse.columns import cell
from ....dumps.browse.filter import HELP, FilterError, finished, parse
from ....dumps.browse.search import find_place, hits_of, step
from ....dumps.errors import UsageError
from ...sheet import Ask

if TYPE_CHECKING:
    from .room import GraphRoom
    from .rows import GraphRows

LISTED = 500
KEPT_JUMPS = 500


class GraphFind:
    """The part of the graph screen that filters, searches and jumps."""

    def __init__(self, room: GraphRoom, rows: GraphRows) -> None:
        self.room, self.rows = room, rows
        self.sought = ""
        self.hits: Sequence[int] = ()
        self.trail: list[int] = []
        """Nodes where jumps began, the last one at the end."""
        self.ahead: list[int] = []
        """Nodes that going back has left, for going forth again."""
        self._before = ("", -1)
        """The filter, and the node under the cursor, before typing began."""

    # -- the line that is typed into

    def do_graph_filter(self) -> None:
        """Opens the filter's line; rows follow the text as it is typed."""
        self.room.needed()
        self._before = (self.rows.filter_text, self.room.table.node)
        self.room.prompt.open("filter", self.rows.filter_text, HELP)

    def do_graph_search(self) -> None:
        """Opens the search line; the cursor follows to the first hit as it is typed."""
        self.room.needed()
        self._before = (self.sought, self.room.table.node)
        help = "enter stays, n and N go on, esc goes back · names, ops, modules, lines, else code"
        self.room.prompt.open("find", "", help)

    def typed(self, text: str) -> None:
        """Filters or searches with the text so far."""
        purpose = self.room.prompt.purpose
        if purpose:
            does = self._filter if purpose == "filter" else self._search
            self.room.guarded(lambda: does(text, self._before[1]), doing=purpose)

    def entered(self, text: str) -> None:
        """Keeps the typed text."""
        purpose = self.room.prompt.purpose
        if purpose == "filter":
            try:
                terms = parse(text)
            except FilterError as error:
                self._wrong(error)
                return
            if terms != finished(terms, text):
                self.rows.filter_by(terms, text.strip(), self._before[1], on_error=self._wrong)
        if purpose == "search" and self.room.table.node != self._before[1]:
            self._remember(self._before[1])
        self._close_prompt()

    def leave_prompt(self) -> bool:
        """Closes the line on Escape and restores what was before; returns whether it was open."""
        prompt = self.room.prompt
        if not prompt.is_open:
            return False
        purpose, (text, node) = prompt.purpose, self._before
        self._close_prompt()
        if purpose == "filter":
            self._filter(text, node)
        else:
            self._search(text, node)
            self.goto(node)
        return True

    def _close_prompt(self) -> None:
        self.room.prompt.close()
        self.room.table.focus()

    def _wrong(self, error: BaseException) -> None:
        if isinstance(error, FilterError) and self.room.prompt.is_open:
            self.room.prompt.say(" · ".join(part for part in (error.fix, error.why) if part), error.start, error.end)
        elif isinstance(error, FilterError):
            self.room.status.show(None, f"{error.why}; {error.fix}", alarm=True)
        else:
            self.room.trouble(error, doing="filter")

    def _filter(self, text: str, node: int | None = None) -> None:
        """Shows the rows that fit; where the text cannot be parsed, the rows stay and the note says why."""
        try:
            terms = parse(text)
        except FilterError as error:
            self._wrong(error)
            return
        if self.room.prompt.is_open:
            self.room.prompt.say()
            terms = finished(terms, text)
        self.room.status.show(None, "")
        self.rows.filter_by(terms, text.strip(), node, on_error=self._wrong)

    # -- search

    def _search(self, text: str, node: int) -> None:
        """Finds all hits and goes to the first from a node on."""
        self.sought = text
        view = self.room.needed()
        nodes = self.rows.selection.nodes if self.rows.selection is not None else None

        def found(hits: list[int]) -> None:
            self.hits = hits
            if not text:
                self.room.status.show(None, "")
            elif not hits:
                hidden = "; the filter hides some nodes" if nodes is not None else ""
                self.room.status.show(None, f"no {text!r} here{hidden}", alarm=True)
            elif self.room.prompt.is_open:
                self._to_hit(max(node, 0) - 1, forward=True)

        self.room.ask("search", lambda: hits_of(view, text, nodes), found)

    def _to_hit(self, at: int, forward: bool) -> None:
        if self.rows.question.sort is not None and self.rows.selection is not None:
            rows = sorted(place for hit in self.hits if (place := self.rows.selection.place(hit)) >= 0)
            hit = step(rows, self.rows.selection.place(at), forward)
            hit = hit and hit._replace(node=self.rows.selection.node(hit.node))
        else:
            hit = step(self.hits, at, forward)
        if hit is None:
            none = f"no {self.sought!r} here" if self.sought else "/ finds; n goes on from hit to hit"
            self.room.status.show(None, none, alarm=True)
            return
        hit_text = f"{self.sought}: {hit.number:,}/{len(self.hits):,}{', wrapped' if hit.wrapped else ''}"
        self.goto(hit.node)
        self.room.status.show(None, hit_text)

    def do_graph_hit(self, step: int) -> None:
        """Goes to the next hit, or the one before."""
        self._to_hit(self.room.table.node, forward=step > 0)

    # -- jumps

    def goto(self, node: int) -> bool:
        """Puts the cursor on a node, opening the folded module that holds it; returns whether it can be seen."""
        selection = self.rows.selection
        if selection is None or node < 0:
            return False
        place = selection.place(node)
        if place < 0:
            name = self.room.needed().table.name[node]
            self.room.status.show(None, f"{name} is hidden by the filter: c clears it", alarm=True)
            return False
        if selection.rows[place] < 0 and selection.groups is not None:
            self.rows.depth = None
            folded = selection.groups.opened_for(node, self.rows.question.folded)
            self.rows.ask(node, folded=folded, then=self.room.table.center)
            return True
        far = abs(place - self.room.table.cursor) > self.room.table.page
        self.room.table.move_to(place)
        if far:
            self.room.table.center()
        return True

    def jump(self, node: int) -> None:
        """Goes to a node as `goto` does, so that `<` comes back."""
        before = self.room.table.node
        if self.goto(node) and before != node:
            self._remember(before)

    def _remember(self, node: int) -> None:
        if node >= 0:
            self.trail = [*self.trail, node][-KEPT_JUMPS:]
            self.ahead = []

    def do_graph_trail(self, step: int) -> None:
        """Goes to where the last jump began (-1), or again to where it led."""
        source, other = (self.trail, self.ahead) if step < 0 else (self.ahead, self.trail)
        if not source:
            self.room.status.show(None, "no jump to go back from" if step < 0 else "no jump to do again")
            return
        here = self.room.table.node
        if self.goto(source[-1]):
            source.pop()
            other.append(here)

    def do_graph_neighbours(self, what: str) -> None:
        """Goes to one of the nodes that use this one (users), or that it uses (inputs)."""
        from ..picking import PickNode

        nodes: Sequence[int] = getattr(self.room.needed(), what)(self.room.table.node)
        view, name = self.room.needed(), cell(self.room.needed(), "name", self.room.table.node)
        if not nodes:
            self.room.status.show(None, f"{name} has no {what}")
        elif len(nodes) == 1:
            self.jump(nodes[0])
        else:
            texts = [[cell(view, key, node) for key in ("name", "op", "shape")] for node in nodes[:LISTED]]
            offered = [(text[0], f"{text[1]}  {text[2]}", node) for text, node in zip(texts, nodes, strict=False)]
            sheet = PickNode(f"{len(nodes):,} {what} of {name}", offered, len(nodes))
            self.room.app.push_screen(sheet, lambda node: None if node is None else self.jump(node))

    def do_graph_goto(self) -> None:
        """Asks for a node, by name, number or line of code, and jumps to it."""
        view = self.room.needed()

        def check(text: str) -> str:
            try:
                find_place(view, text)
            except UsageError as error:
                return ". ".join(part for part in (error.why, error.fix) if part)
            return ""

        def go(text: str | None) -> None:
            if text is not None:
                self.room.guarded(lambda: self.jump(find_place(view, text)), doing="go to")

        hint = "a name, a number, or a line of your code: model.py:12"
        self.room.app.push_screen(Ask("go to", hint=hint, check=check), go)
