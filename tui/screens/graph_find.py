"""Going places on the graph screen: filter as you type, search with n and N, go to, users and inputs, back and forth.

Must not search itself (`dumps/browse` does).

>>> room.jump(57)      # shows node 57 wherever it is, and remembers where we came from
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dumps.browse.columns import cell
from ...dumps.browse.filter import HELP, FilterError, finished, parse
from ...dumps.browse.places import find_place
from ...dumps.browse.search import hits_of, step
from ...dumps.errors import UsageError
from ..here import Here
from ..sheet import Ask
from ..widgets.graph_lines import Prompt
from .graph_folds import GraphFolds

LISTED = 500
KEPT_JUMPS = 500


class GraphFind(GraphFolds):
    """The part of the graph screen that goes places."""

    def __init__(self, here: Here) -> None:
        super().__init__(here)
        self.sought = ""
        self.hits: Sequence[int] = ()
        self.trail: list[int] = []
        """Where jumps began, the last one at the end."""
        self.ahead: list[int] = []
        """Where going back came from."""
        self._before = ("", -1)
        """The filter, and the node under the cursor, before something was typed."""

    # -- the line that is typed into

    def do_graph_filter(self) -> None:
        """Opens the line; rows follow what is typed."""
        self.needed()
        self._before = (self.filter_text, self.table.node)
        self.prompt.open("filter", self.filter_text, HELP)

    def do_graph_search(self) -> None:
        """Opens the line; the cursor goes to the first hit as it is typed."""
        self.needed()
        self._before = (self.sought, self.table.node)
        self.prompt.open("search", "", "enter stays, n and N go on, esc goes back · names, ops, modules, lines, else code")

    def on_prompt_typed(self, event: Prompt.Typed) -> None:
        """Filters or searches with what there is so far."""
        if event.purpose != self.prompt.purpose:
            return
        if event.purpose == "filter":
            self.guarded(lambda: self._filter(event.text, self._before[1]), doing="filter")
        else:
            self.guarded(lambda: self._search(event.text, self._before[1]), doing="search")

    def on_prompt_entered(self, event: Prompt.Entered) -> None:
        """Keeps what was typed, or (escape) what was before."""
        if event.purpose == "filter" and event.text is not None:
            try:
                terms = parse(event.text)
            except FilterError as error:
                self._wrong(error)
                return
            if terms != finished(terms, event.text):
                self.filter_by(terms, event.text.strip(), self._before[1], on_error=self._wrong)
        if event.purpose == "search" and event.text is not None and self.table.node != self._before[1]:
            self._remember(self._before[1])
        self._close_prompt()

    def leave_prompt(self) -> bool:
        """Escape: the line closes and all is as before; whether it was open."""
        prompt = self.prompt
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
        self.prompt.close()
        self.table.focus()

    def _wrong(self, error: BaseException) -> None:
        if isinstance(error, FilterError) and self.prompt.is_open:
            self.prompt.say(" · ".join(part for part in (error.fix, error.why) if part), error.start, error.end)
        elif isinstance(error, FilterError):
            self.status.show(None, f"{error.why}; {error.fix}", alarm=True)
        else:
            self.trouble(error, doing="filter")

    def _filter(self, text: str, node: int | None = None) -> None:
        """Rows that fit; where the text cannot be read, the rows stay and the note says why."""
        try:
            terms = parse(text)
        except FilterError as error:
            self._wrong(error)
            return
        if self.prompt.is_open:
            self.prompt.say()
            terms = finished(terms, text)
        self.status.show(None, "")
        self.filter_by(terms, text.strip(), node, on_error=self._wrong)

    # -- search

    def _search(self, text: str, node: int) -> None:
        """Finds all hits and goes to the first from a node on."""
        self.sought = text
        view = self.needed()
        nodes = self.selection.nodes if self.selection is not None else None

        def found(hits: list[int]) -> None:
            self.hits = hits
            if not text:
                self.status.show(None, "")
            elif not hits:
                hidden = "; the filter hides some nodes" if nodes is not None else ""
                self.status.show(None, f"no {text!r} here{hidden}", alarm=True)
            elif self.prompt.is_open:
                self._to_hit(max(node, 0) - 1, forward=True)

        self.slices.run("search", hits_of(view, text, nodes), found)

    def _to_hit(self, at: int, forward: bool) -> None:
        if self.question.sort is not None and self.selection is not None:
            rows = sorted(place for hit in self.hits if (place := self.selection.place(hit)) >= 0)
            hit = step(rows, self.selection.place(at), forward)
            hit = hit and hit._replace(node=self.selection.node(hit.node))
        else:
            hit = step(self.hits, at, forward)
        if hit is None:
            none = f"no {self.sought!r} here" if self.sought else "/ searches; n goes on from hit to hit"
            self.status.show(None, none, alarm=True)
            return
        told = f"{self.sought}: {hit.number:,}/{len(self.hits):,}{', wrapped' if hit.wrapped else ''}"
        self.goto(hit.node)
        self.status.show(None, told)

    def do_graph_next(self) -> None:
        """The next hit."""
        self._to_hit(self.table.node, forward=True)

    def do_graph_previous(self) -> None:
        """The hit before."""
        self._to_hit(self.table.node, forward=False)

    # -- jumps

    def goto(self, node: int) -> bool:
        """Puts the cursor on a node, opening the folded module that holds it; whether it can be seen."""
        selection = self.selection
        if selection is None or node < 0:
            return False
        place = selection.place(node)
        if place < 0:
            self.status.show(None, f"{self.needed().table.name[node]} is hidden by the filter: c clears it", alarm=True)
            return False
        if selection.rows[place] < 0 and selection.groups is not None:
            self.depth = None
            self.ask(node, folded=selection.groups.opened_for(node, self.question.folded), then=self.table.center)
            return True
        far = abs(place - self.table.cursor) > self.table.page
        self.table.move_to(place)
        if far:
            self.table.center()
        return True

    def jump(self, node: int) -> None:
        """As `goto`, and `<` comes back."""
        before = self.table.node
        if self.goto(node) and before != node:
            self._remember(before)

    def _remember(self, node: int) -> None:
        if node >= 0:
            self.trail = [*self.trail, node][-KEPT_JUMPS:]
            self.ahead = []

    def do_graph_back(self) -> None:
        """To where the last jump began."""
        self._step_back(self.trail, self.ahead, "no jump to go back from")

    def do_graph_forward(self) -> None:
        """Again to where it went."""
        self._step_back(self.ahead, self.trail, "no jump to do again")

    def _step_back(self, source: list[int], other: list[int], none: str) -> None:
        if not source:
            self.status.show(None, none)
            return
        here = self.table.node
        if self.goto(source[-1]):
            source.pop()
            other.append(here)

    def do_graph_users(self) -> None:
        """To a node that uses this one."""
        view = self.needed()
        self._one_of(view.users(self.table.node), "users")

    def do_graph_inputs(self) -> None:
        """To a node that this one uses."""
        view = self.needed()
        self._one_of(view.inputs(self.table.node), "inputs")

    def _one_of(self, nodes: Sequence[int], what: str) -> None:
        from .pick_node import PickNode

        view, name = self.needed(), cell(self.needed(), "name", self.table.node)
        if not nodes:
            self.status.show(None, f"{name} has no {what}" if view.whole else "the graph is still being read")
        elif len(nodes) == 1:
            self.jump(nodes[0])
        else:
            offered = [
                (cell(view, "name", node), f"{cell(view, 'op', node)}  {cell(view, 'shape', node)}", node)
                for node in nodes[:LISTED]
            ]
            title = f"{len(nodes):,} {what} of {name}"
            self.app.push_screen(PickNode(title, offered, len(nodes)), lambda node: None if node is None else self.jump(node))

    def do_graph_goto(self) -> None:
        """Asks for a node."""
        view = self.needed()

        def check(text: str) -> str:
            try:
                find_place(view, text)
            except UsageError as error:
                return ". ".join(part for part in (error.why, error.fix) if part)
            return ""

        def go(text: str | None) -> None:
            if text is not None:
                self.guarded(lambda: self.jump(find_place(view, text)), doing="go to")

        self.app.push_screen(Ask("go to", hint="a name, a number, or a line of your code: model.py:12", check=check), go)
