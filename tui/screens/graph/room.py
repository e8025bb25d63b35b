"""The graph screen: node table, tabs of the node under the cursor, lines for filter and search.

Also: findings of jobs on the nodes of the graph screen: marks, the way from one to the next, values of rungs as
columns.

What it shows is computed in `dumps/browse`; what most keys do lies in its parts: rows with their folds, finding, tabs.

"""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text
from textual import events, getters
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from ....dumps.atomic import free_path
from ....dumps.browse.kernels import kernel_column
from ....dumps.browse.selection import Selection
from ....dumps.browse.table import GraphView
from ....dumps.errors import NotReadyError
from ....dumps.store import SavedGraph
from ....dumps.tables import plain
from ....toolkit.node_values.seen import ValuesSeen
from ... import job_files
from ...base_screen import T, in_thread
from ...here import Here
from ...jobs import command_of
from ...outside import over
from ...room import Room
from ...settings import ascii_only, mark
from ...sheet import Ask
from ...verdicts import NodesFound, nodes_of
from ...widgets.virtual_list import VirtualList
from .beside import GraphTabs
from .find import GraphFind
from .rows import GraphRows, early
from .table import NodeTable

if TYPE_CHECKING:
    from .tabs.node_tabs import NodeTabs


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
        if graph is None or view is None:
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
        alike = [at for at in self.by_node if at != node and source and where[at] == where[node]]
        others = [at for at in alike if view.text[where[at]]]
        return [*self.at(node), *(f"{view.table.name[at]}, {text}" for at in others for text in self.by_node[at])]

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
            none = "no node is marked: no job here found one bad in this graph"
            self.room.status.show(None, f"{none}; in Replay (4) r runs the rungs, v reads values", alarm=True)
            return
        now = self.room.table.node
        self.room.find.jump(next((at for at in places if at > now), places[0]))
        self.show_findings()


class StatusLine(Widget):
    """One line: how many rows on the left, the last finding or message on the right."""

    can_focus = False
    DEFAULT_CSS = "StatusLine { height: 1; background: $boost; color: $text; padding: 0 1; }"

    left: reactive[str] = reactive("")
    right: reactive[str] = reactive("")
    alarm: reactive[bool] = reactive(False)

    def show(self, left: str | None = None, right: str | None = None, *, alarm: bool = False) -> None:
        """Sets what it shows; None leaves that side unchanged."""
        self.left = self.left if left is None else plain(left)
        self.right = self.right if right is None else plain(right)
        self.alarm = alarm

    def render(self) -> Text:
        """The line for the available width; the right side is dropped first."""
        width = self.size.width
        line = Text(self.left, no_wrap=True, end="", overflow="ellipsis")
        room = width - cell_len(self.left) - 2
        if self.right and room >= 8:
            right = Text(self.right, "bold reverse" if self.alarm else "bold", no_wrap=True, end="")
            right.truncate(room, overflow="ellipsis")
            line.append(" " * max(2, width - cell_len(self.left) - right.cell_len))
            line.append_text(right)
        return line


class PromptInput(Input):
    """An input in which up and down walk through earlier texts."""

    def __init__(self) -> None:
        super().__init__(compact=True, select_on_focus=False)
        self.history: list[str] = []
        self._at = 0

    def begin(self, history: list[str]) -> None:
        """Takes the history of the present question."""
        self.history, self._at = history, len(history)

    def on_key(self, event: events.Key) -> None:
        """Handles up and down."""
        if event.key in ("up", "down") and self.history:
            event.stop()
            self._at = max(0, min(self._at + (-1 if event.key == "up" else 1), len(self.history)))
            self.value = self.history[self._at] if self._at < len(self.history) else ""
            self.cursor_position = len(self.value)


class Prompt(Vertical):
    """A line to type into, with a note under it; hidden until it is opened."""

    DEFAULT_CSS = """
    Prompt { display: none; height: 2; }
    Prompt Static { height: 1; padding: 0 1; color: $text-muted; background: $boost; }
    Prompt PromptInput { height: 1; border: none !important; padding: 0 1 !important; background: $boost; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.purpose = ""
        self.histories: dict[str, list[str]] = {}
        self.input = PromptInput()
        self.note = Static(markup=False)
        """Help, or carets under what is wrong and why."""
        self.help = ""

    def compose(self):
        """The line and its note."""
        yield self.input
        yield self.note

    @property
    def is_open(self) -> bool:
        """Whether something is being typed now."""
        return bool(self.purpose)

    def open(self, purpose: str, text: str, help: str) -> None:
        """Asks for a text."""
        self.purpose, self.help = purpose, help
        self.input.begin(self.histories.setdefault(purpose, []))
        with self.input.prevent(Input.Changed):
            self.input.value = text
        self.input.cursor_position = len(text)
        self.say()
        self.display = True
        self.input.focus()

    def close(self) -> None:
        """Closes the line."""
        typed = self.input.value.strip()
        history = self.histories.setdefault(self.purpose, [])
        if typed and typed not in history[-1:]:
            history.append(typed)
        self.purpose = ""
        self.display = False

    def say(self, text: str = "", start: int = -1, end: int = -1) -> None:
        """Shows what is wrong, with carets below it; with nothing wrong, the help."""
        if start >= 0:
            said = Text(" " * start + "^" * max(1, end - start) + " " + plain(text), "bold", no_wrap=True)
        else:
            said = Text(plain(text) or self.help, no_wrap=True)
        self.note.update(said, layout=False)


class GraphStanding:
    """The part of the graph screen that opens a prompt at a node, and saves nodes as a case."""

    def __init__(self, room: GraphRoom) -> None:
        self.room = room

    def _name(self) -> str:
        node = self.room.table.node
        if node < 0:
            raise NotReadyError(
                "the cursor is on no node", "it is on a folded module", "open it with the right arrow key"
            )
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
        check = lambda text: "from where to where?" if text.endswith("..") else ""  # noqa: E731
        ask = Ask("save nodes as a case", hint=hint, value=f"{self._name()}..", check=check)
        self.room.app.push_screen(ask, lambda text: None if text is None else self._save(["--nodes", text]))

    def _save(self, which: list[str]) -> None:
        case = free_path("graphdbg-case", bare=False)
        words = ["show", self.room.here.graph or "", *which, "--save", str(case)]
        self.room.status.show(None, f"graphdbg {' '.join(words)} ...")
        asked = lambda: subprocess.run(command_of(words), capture_output=True, text=True, check=False)  # noqa: E731
        self.room.work(asked, lambda done: self._saved(case, done), group="case", doing="saving nodes as a case")

    def _saved(self, case: Path, done: subprocess.CompletedProcess[str]) -> None:
        failed = done.returncode
        said = (done.stderr if failed else done.stdout).strip() or f"exit code {failed}"
        self.room.status.show(None, said.splitlines()[0], alarm=bool(failed))
        if not failed:
            self.room.workbench.go("graph", Here(graph=str(case)))


FEW = 8_000
"""Up to this many nodes a question is answered at once: in some milliseconds."""
REST_S = 0.04
"""How long the cursor rests before the tabs and the path follow it."""
WIDE = 150
"""The columns from which on the tabs stand beside the table, else below it."""
LOW = 30
"""The lines below which (or where it is narrow) there is room for only one of them."""
NARROW = 70


class GraphRoom(Room):
    """The nodes of one graph."""

    ROOM = "graph"
    table = getters.query_one(NodeTable)
    status = getters.query_one(StatusLine)
    """The line under the table."""
    prompt = getters.query_one(Prompt)
    """The line to type into."""

    DEFAULT_CSS = """
    GraphRoom { layers: base front; }
    GraphRoom Prompt { layer: front; dock: bottom; }
    GraphRoom #both { height: 1fr; layout: vertical; }
    GraphRoom #rows { height: 1fr; width: 1fr; }
    GraphRoom.wide #both { layout: horizontal; }
    GraphRoom.low #side, GraphRoom.table #side, GraphRoom.alone #side, GraphRoom.tabs #rows { display: none; }
    GraphRoom.tabs #side { display: block; }
    """

    def __init__(self, here: Here, saved: SavedGraph | None = None) -> None:
        super().__init__(here)
        self.saved = saved
        self.view: GraphView | None = None
        self.rows = GraphRows(self)
        self.find, self.tab_keys = GraphFind(self, self.rows), GraphTabs(self)
        self.marks = GraphMarks(self)
        self.standing = GraphStanding(self)
        self.parts = (self.rows, self.find, self.tab_keys, self.marks, self.standing)
        self.tabs: NodeTabs | None = None
        self._early: Future[tuple[SavedGraph, GraphView]]
        self._begin(saved)
        self.resting: Any = None

    def needed(self) -> GraphView:
        """The graph; raises UsageError while it is being read."""
        if self.view is None:
            raise NotReadyError("the graph is not there yet", "it is being read", "wait a moment")
        return self.view

    def ask(
        self,
        question: str,
        answer: Callable[[], T],
        then: Callable[[T], object],
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        """Calls `then` with the answer to a question about the graph: at once where that takes a few milliseconds, else
        when a thread has it and the same question was not asked again."""
        if len(self.needed()) > FEW:
            self.work(answer, then, group=question, doing=question, on_error=on_error)
            return
        try:
            then(answer())
        except Exception as error:  # noqa: BLE001 - shown
            on_error(error) if on_error else self.trouble(error, doing=question)

    # -- what a room says

    def content(self) -> ComposeResult:
        """The table and tabs, and the line that says what is shown; the typing line lies over it and the keys, so that
        nothing moves."""
        with Container(id="both"):
            yield NodeTable(id="rows", ascii_only=ascii_only())
            yield Container(id="side")
        yield StatusLine()
        yield Prompt()

    def equivalent(self) -> list[str]:
        """The `show` command with the same rows and columns."""
        words = ["show", self.here.graph or ""]
        if self.rows.filter_text:
            words += ["--filter", self.rows.filter_text]
        if self.rows.question.sort is not None:
            sort = self.rows.question.sort
            words += ["--sort", f"{sort.key}:{'down' if sort.descending else 'up'}"]
        if self.rows.chosen is not None:
            words += ["--columns", ",".join(column.key for column in self.rows.chosen)]
        if self.rows.depth is not None:
            words += ["--fold", str(self.rows.depth)]
        if self.find.sought:
            words += ["--find", self.find.sought]
        return words

    def looked_at(self) -> Here:
        """The graph, and the node even of a cursor that has not rested yet."""
        node = self._node
        return self.here if self.view is None or node < 0 else self.here.at(node=self.view.table.name[node])

    def crumbs(self) -> list[str]:
        """The graph, the modules around the node, the node."""
        node = self._node
        if self.view is None or node < 0:
            return [self.here.graph or ""]
        return [self.here.graph or "", *self.view.levels(self.view.table.module[node])[-1:], self.view.table.name[node]]

    @property
    def _node(self) -> int:
        tables = self.query(NodeTable)
        return tables.first().node if tables else -1

    def arrive(self, here: Here) -> None:
        """Shows the graph again, perhaps at another node."""
        super().arrive(here)
        self.marks.look()
        if here.node and self.view is not None:
            place = self.view.position(here.node)
            if place is not None and place != self._node:
                self.find.jump(place)

    # -- reading

    def on_mount(self) -> None:
        """Reads the graph."""
        super().on_mount()
        self.add_class("alone")
        self.place()
        self.table.focus()
        self.status.show("reading ...")
        self.read()

    def _begin(self, saved: SavedGraph | None) -> None:
        self._early = in_thread(lambda: early(self.here.graph or "", saved), "reading the graph")

    def read(self) -> None:
        """Reads the graph, and shows it."""
        begun = self._early
        if begun.done() and begun.exception() is None:
            self._take(begun.result())
        else:
            self.work(begun.result, self._take, group="reading", doing="reading the graph", on_error=self._unreadable)

    def _take(self, graph_and_view: tuple[SavedGraph, GraphView]) -> None:
        self.saved, self.view = saved, view = graph_and_view
        rows = Selection(view, self.rows.question, range(len(view)), None)
        self.rows.show_rows(rows, view.position(self.here.node) or 0 if self.here.node else 0)
        self.rows.prepare()
        self.tab_keys.mount()
        self.marks.begin()
        self.call_after_refresh(gc.freeze)  # what there is now is not looked through again before a long rest
        read = lambda: kernel_column(saved, view)  # noqa: E731
        self.work(read, self.rows.kernel_column, group="kernels", doing="reading the kernels")

    def on_screen_resume(self) -> None:
        """Gives the keys to the table when the screen comes back, and looks for values."""
        super().on_screen_resume()
        if not self.prompt.is_open and not self.has_class("tabs"):
            self.table.focus()
        self.marks.look()

    def _unreadable(self, error: BaseException) -> None:
        self.status.show("the graph cannot be read")
        self.trouble(error, doing="reading the graph", retry=self.read_again)

    def read_again(self) -> None:
        """Reads the graph again: its files may have changed."""
        self._begin(None)
        self.read()

    # -- the tabs

    def on_virtual_list_moved(self, event: VirtualList.Moved) -> None:
        """Lets the tabs and the path follow once the cursor rests."""
        if self.resting is not None:
            self.resting.stop()
        self.resting = self.set_timer(REST_S, self.rest)

    def rest(self) -> None:
        """Shows the node under the cursor in the tabs and the path."""
        node = self._node
        if self.view is None or node < 0:
            return
        self.here = self.here.at(node=self.view.table.name[node])
        self.tell_where()
        self.marks.show_findings()
        if self.tabs is not None and self.query_one("#side").display:
            self.tabs.show_node(node)

    def on_virtual_list_opened(self, event: VirtualList.Opened) -> None:
        """Handles a double click."""
        self.guarded(self.do_graph_open, doing="open")

    def do_graph_open(self) -> None:
        """Opens a folded module, or the detail of a node."""
        if self.table.row < 0:
            self.rows.do_graph_unfold()
        elif not self.query_one("#side").display:
            self.tab_keys.do_graph_zoom()

    # -- the rest

    def do_app_back(self) -> None:
        """Handles Escape: leaves the typing line, the tabs alone, then the filter; then as everywhere."""
        if self.prompt.is_open:
            self.find.leave_prompt()
        elif self.panel is not None and self.panel.shown:
            self.panel.hide()
        elif self.has_class("tabs"):
            self.remove_class("tabs")
            self.table.focus()
        elif self.rows.filter_text:
            self.rows.do_graph_clear()
        else:
            self.workbench.do_app_back()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Applies the text as it is typed."""
        self.find.typed(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keeps the typed text."""
        self.find.entered(event.value)

    def on_node_table_headed(self, event: NodeTable.Headed) -> None:
        """Handles a click on a title."""
        self.guarded(lambda: self.rows.sort_by(event.key), doing="sort")

    def action_visit(self, graph: str, node: str) -> None:
        """Handles a click on a node in a tab."""
        self.guarded(lambda: self.tab_keys.visit(graph, node), doing="jump")

    def action_tab(self, name: str) -> None:
        """Handles a click on the name of a tab."""
        self.tab_keys.side.choose(name)

    def on_resize(self, event: events.Resize) -> None:
        """Places the tabs beside or below the table, or hides them."""
        self.place()

    def place(self) -> None:
        """Divides the screen between table and tabs."""
        width, height = self.app.size
        self.set_class(width >= WIDE, "wide")
        split = self.workbench.settings.split
        for name, part in (("#rows", split), ("#side", 100 - split)):
            styles = self.query_one(name).styles
            styles.width, styles.height = (f"{part}fr", "1fr") if width >= WIDE else ("1fr", f"{part}fr")
        self.set_class(width < WIDE and (height < LOW or width < NARROW), "low")
