"""Which rows the graph screen shows: filter, sorting, folds, columns and values. Each change is a new question to
`dumps/browse`.

The cursor sticks to its node whatever changes. It computes nothing itself.

For example: `room.rows.ask(sort=usual("bytes"))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....dumps.browse import columns as all_columns
from ....dumps.browse.columns import NodeColumn
from ....dumps.browse.filter import VALUE_KEYS, Term, hint
from ....dumps.browse.row_texts import Lanes, laying
from ....dumps.browse.selection import INPUTS, Groups, Question, Selection, grouping, selecting, usual
from ....dumps.browse.table import GraphView
from ....dumps.store import SavedGraph, resolve_graph
from ....dumps.wording import counted
from ...sheet import Choose

if TYPE_CHECKING:
    from .room import GraphRoom

_SORTED = "name op dtype shape stride bytes flops users module file kernel min max nan inf error"
SORT_KEYS = {"g": "", **dict(zip("nodstbfumlkwxaie", _SORTED.split(), strict=True))}
"""The key behind `s` -> the column; g is the order of the graph."""


FEW_INPUTS = 4
"""Up to this many inputs are not folded."""


def early(name: str, saved: SavedGraph | None) -> tuple[SavedGraph, GraphView]:
    """A graph and its nodes; read in a thread while textual still starts."""
    saved = saved or resolve_graph(name)
    return saved, GraphView(saved.table)


class GraphRows:
    """The part of the graph screen that chooses rows."""

    def __init__(self, room: GraphRoom) -> None:
        self.room = room
        self.question = Question()
        self.filter_text = ""
        self.depth: int | None = None
        """The depth to which modules are open; None: each is folded by itself."""
        self.groups: Groups | None = None
        self.lanes: Lanes | None = None
        self.chosen: tuple[NodeColumn, ...] | None = None
        """Columns that the user chose; None: the default ones."""

    @property
    def _inputs(self) -> frozenset[int]:
        """The group of the inputs, which may be folded with lanes beside the rest."""
        return frozenset([0]) if self.groups is not None and self.groups.labels[:1] == [INPUTS] else frozenset()

    @property
    def selection(self) -> Selection | None:
        """The selection that is shown."""
        return self.room.table.selection

    # -- questions

    def ask(
        self,
        node: int | None = None,
        then: Callable[[], object] | None = None,
        on_error: Callable[[BaseException], object] | None = None,
        **changed: Any,
    ) -> None:
        """Asks for other rows; the cursor goes to `node`, else stays on its node."""
        view = self.room.needed()
        question = replace(self.question, **changed)
        at = self.room.table.node if node is None else node

        def show(selection: Selection) -> None:
            self.question = question
            self.show_rows(selection, at)
            if then is not None:
                then()

        before = self.selection if self.selection is not None and self.selection.view is view else None
        self.room.ask("rows", lambda: selecting(view, question, self.groups, before), show, on_error)

    def show_rows(self, selection: Selection, node: int) -> None:
        """Shows rows with the cursor at a node or near it."""
        question = selection.question
        plain = question.sort is None and selection.nodes is None and not question.folded - self._inputs
        columns = self.chosen or all_columns.usual(selection.view)
        self.room.table.show(selection, columns, self.lanes if plain else None, selection.nearest(max(node, 0)))
        self.show_counts()

    def show_counts(self) -> None:
        """Writes how many rows there are, and what filters, sorts and folds them."""
        selection = self.selection
        if selection is None:
            return
        parts = [selection.count_text]
        if self.filter_text:
            parts.append(f"filter {self.filter_text}")
        sort = selection.question.sort
        if sort is not None:
            parts.append(f"by {all_columns.BY_KEY[sort.key].title}{', largest first' if sort.descending else ''}")
            if selection.question.folded:
                parts.append("folds are off while sorted")
        elif selection.question.folded:
            what = "modules" if selection.question.folded - self._inputs else "inputs"
            parts.append(f"{counted(len(selection), 'row', form=',')}, {what} folded")
        if self.lanes is not None and self.room.table.lanes is None:
            parts.append("no lanes")
        empty = "" if selection.matched or not self.question.terms else hint(selection.view, self.question.terms)
        self.room.status.show(" · ".join(parts), empty or None, alarm=bool(empty))

    def filter_by(
        self,
        terms: Sequence[Term],
        text: str,
        node: int | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        """Shows only what fits, with the cursor at a node or near it."""

        def done() -> None:
            self.filter_text = text
            self.show_counts()

        self.ask(node, terms=tuple(terms), then=done, on_error=on_error)

    def do_graph_clear(self) -> None:
        """Shows all nodes again, in the order of the graph."""
        text, question = self.filter_text, self.question
        if text or question.sort is not None:
            again = lambda: self.filter_by(question.terms, text)  # noqa: E731
            self.room.undoable("filter and order", lambda: self.ask(sort=question.sort, then=again))
        self.filter_text = ""
        self.room.status.show(None, "")
        self.ask(terms=(), sort=None)

    # -- sorting

    def sort_by(self, key: str) -> None:
        """Sorts by a column; the same one again reverses the order."""
        now = self.question.sort
        if key in ("", "index") and now is not None and key != now.key:
            self.ask(sort=None)
        elif key:
            self.ask(sort=now.turned if now is not None and now.key == key else usual(key))

    def do_graph_sort(self) -> None:
        """Asks for the column."""
        view = self.room.needed()
        shown = {column.key for column in (self.chosen or all_columns.usual(view))}
        offered = {letter: all_columns.BY_KEY[key] for letter, key in SORT_KEYS.items() if key in shown}
        answers = {letter: f"{column.title:<10} {column.help}" for letter, column in offered.items()}
        answers = {"g": "the order of the graph"} | answers
        self.room.app.push_screen(Choose("Sort by", answers), self._sort_answered)

    def _sort_answered(self, letter: str | None) -> None:
        if letter is not None:
            self.room.guarded(lambda: self.sort_by(SORT_KEYS[letter]), doing="sort")

    # -- columns and values

    def do_graph_columns(self) -> None:
        """Asks which columns are wanted."""
        from ..picking import ChooseColumns

        view = self.room.needed()
        now = self.chosen or all_columns.usual(view)
        offered = [column for column in all_columns.COLUMNS if not column.seen or view.values]
        self.room.app.push_screen(ChooseColumns(offered, now), self._columns_chosen)

    def _columns_chosen(self, keys: list[str] | None) -> None:
        if keys:
            self.chosen = tuple(column for column in all_columns.COLUMNS if column.key in keys)
            self.room.guarded(self.again, doing="columns")

    def again(self) -> None:
        """Shows the present rows, with what was read since."""
        if self.selection is not None:
            self.show_rows(self.selection, self.room.table.node)

    def value_columns(self, seen: Mapping[str, Sequence[float | None]], rungs: Sequence[str] = ()) -> None:
        """Takes min, max, nan, inf and errors of nodes by their names: they become columns, and terms of the filter."""
        view = self.room.needed()
        view.take_values(seen)
        view.rungs = rungs
        if self.selection is not None:
            self.again()
            self.room.table.measure()
            if any(term.key in VALUE_KEYS for term in self.question.terms):
                self.ask()

    def kernel_column(self, kernels: Mapping[int, str]) -> None:
        """Takes the kernels of nodes by their positions."""
        self.room.needed().kernels = kernels
        if kernels:
            self.again()

    # -- folds

    def _fold(self, folded: frozenset[int], node: int) -> None:
        if self.question.sort is not None:
            self.room.status.show(None, "folds are off while sorted: s g is the order of the graph", alarm=True)
        self.ask(node, folded=folded)

    def do_graph_fold(self) -> None:
        """Folds the innermost open module around the cursor."""

        def fold(groups: Groups) -> None:
            row, node = self.room.table.row, self.room.table.node
            group = groups.parents[~row] if row < 0 else groups.around(node)
            if group < 0:
                node_alone = "the node has no module with other nodes beside it"
                self.room.status.show(None, "the module has none around it" if row < 0 else node_alone, alarm=True)
                return
            self.depth = None
            self._fold(self.question.folded | {group}, groups.starts[group])

        self.grouped(fold)

    def do_graph_unfold(self) -> None:
        """Unfolds the module under the cursor."""
        if self.room.table.row < 0:
            self.depth = None
            self._fold(self.question.folded - {~self.room.table.row}, self.room.table.node)

    def do_graph_toggle(self) -> None:
        """Folds or unfolds the module under the cursor."""
        self.do_graph_unfold() if self.room.table.row < 0 else self.do_graph_fold()

    def do_graph_depth(self, step: int | None, to: int | None = None) -> None:
        """Opens all modules so many levels further (below 0: closes them), or to a depth; None: all of them."""

        def fold(groups: Groups) -> None:
            now = groups.deepest if self.depth is None and not self.question.folded else self.depth or 0
            depth = to if step is None else now + step
            self.depth = None if depth is None or depth >= groups.deepest else max(0, depth)
            folded = frozenset[int]() if self.depth is None else groups.to_depth(self.depth)
            self.room.status.show(None, "all open" if self.depth is None else f"modules open to depth {self.depth}")
            self._fold(folded, self.room.table.node)

        self.grouped(fold)

    # -- what takes a while, behind the first paint

    def prepare(self) -> None:
        """Finds lanes, groups and the tables of the search."""
        view = self.room.needed()

        def laid(lanes: Lanes) -> None:
            self.lanes = lanes
            self.again()
            self.grouped(grouped)

        def grouped(groups: Groups) -> None:
            self._fold_inputs(groups)
            self.room.ask("search tables", lambda: _warm(view), lambda _: None)

        self.room.ask("lanes", lambda: laying(view), laid)

    def _fold_inputs(self, groups: Groups) -> None:
        """Folds the inputs in front into one line, unless a key went among them or other rows are asked for already."""
        if not len(groups) or groups.labels[0] != INPUTS or groups.starts[0] or groups.ends[0] < FEW_INPUTS:
            return
        if self.question == Question() and self.room.table.cursor == 0 and self.room.prompt.purpose == "":
            self.ask(groups.ends[0], folded=frozenset([0]), then=lambda: self.room.table.scroll_home(animate=False))

    def grouped(self, then: Callable[[Groups], object]) -> None:
        """Calls `then` with the groups, which are computed once."""
        if self.groups is not None:
            then(self.groups)
            return

        def found(groups: Groups) -> None:
            self.groups = groups
            then(groups)

        view = self.room.needed()
        self.room.ask("groups", lambda: grouping(view), found)


def _warm(view: GraphView) -> None:
    """Prepares what the first search would otherwise wait for."""
    for column in ("target", "module", "where", "code", "dtype", "shape"):
        view.distinct(column)
    _ = view.lower_names, view.positions
