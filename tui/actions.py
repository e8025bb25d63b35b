"""THE registry: every action of every screen. It feeds key bindings, footer, help, palette and the tests. Does nothing itself.

Adding an action is a row here and a method `do_<id>` in its screen, a part of it or the app. Keys must be plain: terminals, tmux
and ssh eat others (no ctrl+enter, no alt).

>>> [action.id for action in of_room("graph")][0]
'graph.filter'
>>> BY_ID["graph.search"].method, BY_ID["diff.previous"].call
('do_graph_search', ('diff_step', -1))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EVERYWHERE = "*"
ROOMS_OF = {
    "app": (EVERYWHERE,), "tabs": ("graph",), "list": ("home", "diff", "replay"), "variant": ("graph", "diff", "replay"),
}  # fmt: skip
"""The screens of actions whose id does not begin with the name of their only one."""
MOVES = ("down", "up", "page_down", "page_up", "top", "end")
"""How keys move in the list of a screen."""


@dataclass(frozen=True)
class Action:
    """`typed`: its keys as textual names them. `words`: the command that does the same, as a user would type it (empty: it only
    moves about on the screen). `does`: the method's name and what it is given, where the id does not say so. `footer`: whether it
    is one of the five of the last line. `also`: other words for it, by which the palette finds it.
    """

    id: str
    typed: str
    label: str
    help: str
    words: str = ""
    does: tuple[Any, ...] = ()
    footer: bool = False
    also: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Its keys, one by one."""
        return tuple(self.typed.split())

    @property
    def group(self) -> str:
        """Under which heading help has it."""
        if self.call[0] == "move":
            return "move"
        if self.id.startswith("app."):
            return "rooms" if self.typed.isdigit() else "everywhere"
        return "here"

    @property
    def rooms(self) -> tuple[str, ...]:
        """The screens that have it, or everywhere."""
        area = self.id.partition(".")[0]
        return ROOMS_OF.get(area, (area,))

    @property
    def call(self) -> tuple[Any, ...]:
        """The method's name without its `do_`, and what it is given."""
        move = self.id.partition(".")[2]
        return self.does or (("move", move) if move in MOVES else (self.id.replace(".", "_"),))

    @property
    def method(self) -> str:
        """The method of a screen, of a part of it or of the app that does it."""
        return f"do_{self.call[0]}"


REGISTRY: tuple[Action, ...] = (
    # home
    Action("home.open", "enter", "open",
           "A graph: its nodes. A compile: its graphs. A minification or a job: how it goes. A run: its compiles.",
           "show RUN/ID", footer=True),
    Action("home.filter", "f", "filter", "Show what has these words in run, id, stage, status or error; -word hides.",
           "ls RUN --filter TEXT", footer=True, also="find search"),
    Action("home.triage", "t", "triage", "Judge every graph of the run, or this one: which are wrong, at which rung.",
           "triage RUN", footer=True, also="check wrong numbers accuracy compare rungs ladder"),
    Action("home.why", "w", "why", "Why this graph exists: graph breaks, failed guards, dynamic sizes.", "ls RUN --why",
           footer=True, also="recompiles guards breaks"),
    Action("home.failed", "exclamation_mark", "next bad", "To the next graph that failed or was judged wrong.",
           does=("home_failed", 1), footer=True, also="error failed"),
    Action("home.unfold", "right l", "unfold", "Unfold the run, process or compile under the cursor.",
           does=("home_fold", False)),
    Action("home.fold", "left h", "fold", "Fold the run, process or compile; from inside of one, go to it.",
           does=("home_fold", True)),
    Action("home.toggle", "space", "toggle", "Fold or unfold a run, process or compile.", does=("home_fold",)),
    Action("home.zoom", "z", "zoom", "More of what is known of the line under the cursor; the list alone; both.",
           also="maximise preview"),
    Action("home.scroll_down", "J", "tab down", "Scroll what is known of the line.", does=("home_scroll", 3)),
    Action("home.scroll_up", "K", "tab up", "Scroll it back.", does=("home_scroll", -3)),
    Action("home.stop", "x", "stop", "Stop the job under the cursor, and all that it started.", also="kill cancel"),
    Action("home.pin", "F", "pin", "While following: the cursor stays on the newest graph.", "ls RUN --follow", also="follow"),
    Action("home.again", "ctrl+r", "read again", "Look again now; every second it is looked at anyhow.", "ls",
           also="refresh reload"),
    # graph
    Action("graph.filter", "f", "filter",
           "Show only what fits: op:mm shape:*,1024 dtype:bf16 users>3 module:layers.3 -op:view.", "show RUN/ID --filter TEXT",
           footer=True),
    Action("graph.search", "slash", "find", "Find text in names, targets, modules and lines, or else in code.",
           "show RUN/ID --find TEXT", footer=True, also="search"),
    Action("graph.users", "u", "users", "To a node that uses this one.", does=("graph_neighbours", "users"), footer=True,
           also="consumers"),
    Action("graph.inputs", "i", "inputs", "To a node that this one uses.", does=("graph_neighbours", "inputs"),
           also="arguments producers"),
    Action("graph.bad", "exclamation_mark", "next bad", "To the next node that a job found bad: triage, bisect or values.",
           footer=True, also="failed wrong first bad values triage bisect"),
    Action("graph.stand", "A", "stand at", "A Python prompt at the node, with its inputs and value, over this screen.",
           "replay RUN/ID --at NODE", also="prompt shell inspect interact"),
    Action("graph.cut", "W", "save as case", "Nodes as a case of their own: those that the filter leaves, or A..B.",
           "show RUN/ID --nodes A..B --save CASE", also="extract subgraph select cut"),
    Action("graph.less", "left_parenthesis", "table smaller", "The tabs get more of the screen; it is remembered.",
           does=("graph_split", -5), also="split resize"),
    Action("graph.more", "right_parenthesis", "table larger", "The table gets more of the screen; it is remembered.",
           does=("graph_split", 5), also="split resize"),
    Action("graph.down", "down j", "down", "One row down."),
    Action("graph.up", "up k", "up", "One row up."),
    Action("graph.page_down", "pagedown ctrl+d", "page down", "One page down."),
    Action("graph.page_up", "pageup ctrl+u", "page up", "One page up."),
    Action("graph.top", "home g", "top", "To the first row."),
    Action("graph.end", "end G", "end", "To the last row."),
    Action("graph.next", "n", "next hit", "To the next place that was searched for.", does=("graph_hit", 1)),
    Action("graph.previous", "N", "hit before", "To the place before.", does=("graph_hit", -1)),
    Action("graph.clear", "0", "clear", "Show all nodes again, in the order of the graph.", also="reset all"),
    Action("graph.fold", "left h", "fold", "Fold the module around the node; again: the one around that.",
           "show RUN/ID --fold DEPTH"),
    Action("graph.unfold", "right l", "unfold", "Open the module under the cursor."),
    Action("graph.toggle", "space", "toggle", "Fold the module around the node, or open the folded one."),
    Action("graph.fold_more", "minus", "fold more", "Fold all modules one level further up.", "show RUN/ID --fold DEPTH",
           does=("graph_depth", -1)),
    Action("graph.fold_less", "plus", "fold less", "Open all modules one level further down.", does=("graph_depth", 1)),
    Action("graph.fold_all", "underscore", "fold all", "Only the outermost modules.", "show RUN/ID --fold 0",
           does=("graph_depth", None, 0)),
    Action("graph.unfold_all", "asterisk", "unfold all", "Every node in a row of its own.", does=("graph_depth", None)),
    Action("graph.sort", "s", "sort", "By a column; the same one again: the other way round.", "show RUN/ID --sort COLUMN",
           also="order largest"),
    Action("graph.columns", "C", "columns", "Which columns are shown.", "show RUN/ID --columns A,B"),
    Action("graph.back", "less_than_sign ctrl+o backspace", "jump back", "To where the last jump began.",
           does=("graph_trail", -1)),
    Action("graph.forward", "greater_than_sign", "jump on", "Again to where the jump went.", does=("graph_trail", 1)),
    Action("graph.goto", "colon", "go to", "A node by its name or number, or the first of a line (model.py:12).",
           also="jump line"),
    Action("graph.open", "enter", "open", "The node's detail; of a folded module: its nodes."),
    Action("graph.zoom", "z", "zoom", "The detail on all of the screen, the table on all of it, both.", also="maximise"),
    # the tabs beside the node table
    Action("tabs.partner", "p", "partner", "To the node's partner in the backward or forward graph; again: the next one.",
           "show RUN/ID --node NODE", footer=True, also="backward forward gradient"),
    Action("tabs.next", "right_square_bracket tab", "next view", "Detail, Source, Code, IR, Near.",
           also="source code kernel triton ir neighbourhood"),
    Action("tabs.previous", "left_square_bracket shift+tab", "view before", "The tab to the left."),
    Action("tabs.more", "full_stop", "next part", "The next frame or kernel; on Near: a hop more.",
           "show RUN/ID --node NODE --hops N", does=("tabs_more", 1), also="kernel frame hop"),
    Action("tabs.less", "comma", "part before", "The frame or kernel before; on Near: a hop less.", does=("tabs_more", -1)),
    Action("tabs.down", "J", "tab down", "Scroll the tab while the table keeps the cursor.", does=("tabs_scroll", 3)),
    Action("tabs.up", "K", "tab up", "Scroll the tab back.", does=("tabs_scroll", -3)),
    Action("tabs.left", "left_curly_bracket", "sideways left", "Back to the beginning of long lines of the tab.",
           does=("tabs_across", -20)),
    Action("tabs.right", "right_curly_bracket", "sideways right", "See more of long lines of the tab.", does=("tabs_across", 20)),
    Action("tabs.editor", "e", "editor", "Open what the tab shows, else the user's file, in your editor at the line."),
    Action("tabs.export", "o", "export", "Draw the neighbourhood into an .svg file: .svg, .png or .txt.",
           "draw RUN/ID --around NODE --hops N", also="draw picture write save"),
    # diff
    Action("diff.next", "n", "next hit", "To the next difference that does not merely follow from another.", "diff A B --all",
           does=("diff_step", 1), footer=True, also="difference"),
    Action("diff.previous", "N", "hit before", "To the difference before.", "diff A B --all", does=("diff_step", -1)),
    Action("diff.choose", "c", "choose other", "Choose the other graph: recompile, stage, forward or backward, another run.",
           "ls RUN", footer=True, also="compare"),
    Action("diff.only", "a", "all or some", "Only what differs and some lines around it, or every line.",
           "diff A B --side-by-side --all", footer=True),
    Action("diff.join", "equals_sign", "by seq_nr", "Join a forward and its backward by seq_nr, or align by what nodes compute.",
           "diff A B --by-seq-nr", footer=True),
    Action("diff.swap", "X", "swap", "A becomes B, and B becomes A.", "diff B A"),
    Action("diff.open", "enter", "open", "The node in its graph: of A, else of B.", "show RUN/ID", does=("diff_open", 0),
           footer=True),
    Action("diff.open_other", "b", "open in B", "The node of B in its graph.", "show RUN/ID", does=("diff_open", 1)),
    # replay
    Action("replay.run", "r", "run", "Run the ticked rungs; the others keep their verdicts.",
           "triage RUN/ID --rungs eager,inductor --all --json-lines", footer=True,
           also="triage ladder replay check wrong numbers accuracy"),
    Action("replay.tick", "space", "toggle", "Tick or untick the rung under the cursor.", "triage RUN/ID --rungs eager,inductor"),
    Action("replay.tick_all", "a", "all or some", "Tick all rungs, or none."),
    Action("replay.open", "enter", "open", "Of a rung what was said about it; of a value its node in the graph.", "show RUN/ID"),
    Action("replay.values", "v", "values",
           "Read each node's value under a rung: min, max, NaN, error to float64.",
           "replay RUN/ID --values --rung inductor --json-lines", footer=True, also="tensors statistics nan inf localize"),
    Action("replay.stop", "x", "stop", "Stop what runs here; what was found so far stays.", also="kill cancel"),
    Action("replay.bisect", "B", "bisect", "Name the node that makes it fail, or the pass, lowering or setting.",
           "bisect RUN/ID --rung inductor", footer=True, also="localize pass lowering setting guilty first wrong node"),
    Action("replay.minify", "m", "minify", "Shrink it under the rung that fails.", "minify RUN/ID --rung inductor",
           footer=True, also="shrink reduce minimise repro"),
    Action("replay.next_bad", "exclamation_mark", "next bad", "To the first bad node, then to the next one.",
           does=("replay_bad", 1), footer=True),
    Action("replay.switch", "tab", "next view", "From the rungs to the values, and back."),
    Action("replay.next_view", "right_square_bracket", "next view", "Values, bisect, and what the ladder said.",
           does=("view", 1)),
    Action("replay.previous_view", "left_square_bracket shift+tab", "view before", "The view before.", does=("view", -1)),
    Action("replay.zoom", "z", "zoom", "The lower view alone, or with the rungs again.", also="maximise"),
    Action("replay.seed", "number_sign", "seed", "The seed of inputs that were not stored, and of random ops.",
           "triage RUN/ID --seed 1"),
    Action("replay.device", "D", "device", "Move graph and inputs to a device first.", "triage RUN/ID --device cpu",
           also="cuda gpu"),
    Action("replay.imports", "I", "imports", "Modules to import first, for the custom ops that they register.",
           "triage RUN/ID --import MODULE", also="custom operators"),
    Action("replay.copy", "y", "copy", "What the lower view shows, as text."),
    # minify
    Action("minify.open", "enter", "open", "Start it from the form; later open what the cursor is on: a state, a query, a case.",
           "minify RUN/ID -o OUT --json", footer=True, also="start minify shrink reduce"),
    Action("minify.next_view", "right_square_bracket tab", "next view",
           "Steps, history, candidate, queries, other failures, log, result.", does=("view", 1), footer=True),
    Action("minify.previous_view", "left_square_bracket shift+tab", "view before", "The view before.", does=("view", -1)),
    Action("minify.pause", "space", "toggle", "Pause after this query, or go on.", "steer OUT pause", footer=True,
           also="pause resume"),
    Action("minify.skip", "S", "skip", "Leave the step that runs now as far as it is, and go on with the next one.",
           "steer OUT skip", does=("minify_steer", "skip"), footer=True),
    Action("minify.disable", "d", "disable", "Leave out the step under the cursor (view Steps); again: take it in.",
           "steer OUT disable STEP"),
    Action("minify.raise", "P", "raise", "Do the step under the cursor next (view Steps).", "steer OUT raise STEP",
           also="prioritise"),
    Action("minify.stop", "x", "stop", "End the search; the best case is checked and kept.", "steer OUT cancel", footer=True,
           also="cancel end"),
    Action("minify.restart", "r", "run", "Search again from the state under the cursor (view History); what was found stays.",
           "steer OUT restart 1", also="restart again"),
    Action("minify.resume", "R", "resume", "Go on with one that died, was interrupted or stopped at a limit.",
           "minify --resume -o OUT --json", footer=True),
    Action("minify.minify", "m", "minify", "The form for another search: of this graph; in the view Other failures, of that one.",
           "minify RUN/ID", footer=True, also="new other failure"),
    Action("minify.copy", "y", "copy", "What this view shows, as text; of the result the repro.", footer=True),
    Action("minify.down", "j down", "down", "The next line."),
    Action("minify.up", "k up", "up", "The line before."),
    Action("minify.page_down", "pagedown ctrl+d", "page down", "A page on."),
    Action("minify.page_up", "pageup ctrl+u", "page up", "A page back."),
    Action("minify.top", "home g", "top", "The first line."),
    Action("minify.end", "end G", "end", "The last line."),
    Action("minify.right", "right_curly_bracket", "sideways right", "See more of long lines.", does=("minify_across", 1)),
    Action("minify.left", "left_curly_bracket", "sideways left", "Back to their beginning.", does=("minify_across", -1)),
    Action("minify.zoom", "z", "zoom", "The view alone, or with the plot again.", also="maximise"),
    # report
    Action("report.write", "o", "export",
           "Write repro.py, issue.md and artifacts.zip into a new folder; nothing is overwritten or sent.",
           "report RUN/ID -o DIR --json", footer=True, also="write report repro issue bug"),
    Action("report.verify", "r", "run", "Run repro.py three times in fresh processes.", "verify OUT --json",
           footer=True, also="verify again repro"),
    Action("report.next_view", "right_square_bracket tab", "next view", "Privacy, issue text, repro, artifacts, log.",
           does=("view", 1), footer=True),
    Action("report.previous_view", "left_square_bracket shift+tab", "view before", "The view before.", does=("view", -1)),
    Action("report.copy", "y", "copy", "The text of this view: the issue, the repro.", footer=True, also="clipboard"),
    Action("report.copy_path", "ctrl+y", "copy path", "The path of the file of this view."),
    Action("report.edit", "e", "editor", "The file of this view in your editor.", footer=True),
    Action("report.stop", "x", "stop", "Stop what writes or verifies."),
    Action("report.down", "j down", "down", "A line on."),
    Action("report.up", "k up", "up", "A line back."),
    Action("report.page_down", "pagedown ctrl+d", "page down", "A page on."),
    Action("report.page_up", "pageup ctrl+u", "page up", "A page back."),
    Action("report.top", "home g", "top", "The first line."),
    Action("report.end", "end G", "end", "The last line."),
    # a graph, wherever it is looked at
    Action("variant.edit", "V", "edit graph",
           "Its graph.py in your editor, at the node (in Diff: that of B): a case of what you change, judged, beside the graph.",
           "import FILE --like RUN/ID --trust -o CASE", also="variant change try modify graph.py"),
    # lists
    Action("list.down", "down j", "down", "One line down."),
    Action("list.up", "up k", "up", "One line up."),
    Action("list.page_down", "pagedown ctrl+d", "page down", "One page down."),
    Action("list.page_up", "pageup ctrl+u", "page up", "One page up."),
    Action("list.top", "home g", "top", "To the first line."),
    Action("list.end", "end G", "end", "To the last line."),
    # every screen
    Action("app.home", "1", "home", "The runs here, their processes and graphs.", "ls", also="runs list"),
    Action("app.graph", "2", "graph", "The nodes of the graph.", "show RUN/ID", does=("app_show", "graph"), also="nodes show"),
    Action("app.diff", "3", "diff", "The graph beside another one.", "diff A B", does=("app_show", "diff"), also="compare"),
    Action("app.replay", "4", "replay", "Run the graph again under any rung.", "triage RUN/ID", does=("app_show", "replay"),
           also="triage rungs ladder values bisect"),
    Action("app.minify", "5", "minification",
           "Shrink the graph to the smallest case that fails alike: the search that runs, else the form.",
           "minify RUN/ID", also="minify shrink reduce"),
    Action("app.report", "6", "report", "Write a repro and the text of an issue.", "report RUN/ID",
           does=("app_show", "report"), also="repro issue bug"),
    Action("app.help", "question_mark", "help", "What can be done here, and with which key.", also="keys"),
    Action("app.palette", "ctrl+p", "palette", "Find an action by its name."),
    Action("app.command", "at", "command", "The command line that does what this screen shows; those of its jobs.", also="cli"),
    Action("app.undo", "Z", "undo", "Bring back what a key took away: a filter, folds, verdicts, a search that was left."),
    Action("app.back", "escape", "back", "Close what is open in front; else go back to the screen before."),
    Action("app.errors", "E", "errors", "The errors so far, the newest first; again: the one before."),
    Action("app.theme", "f2 T", "theme", "Dark, light, or the colours of the terminal itself; it is remembered.", also="colours"),
    Action("app.mouse", "M", "mouse", "Give the mouse to the terminal, so that it marks text; again: take it back."),
    Action("app.tour", "f1", "tour", "Two minutes round the workbench.", "demo", also="tutorial"),
    Action("app.quit", "q ctrl+q", "quit",
           "Leave. Where jobs run it asks: leave them running (`graphdbg tui` finds them again) or stop them.",
           also="exit leave"),
)  # fmt: skip
"""In the order in which help tells them: what a screen is for first."""

BY_ID = {action.id: action for action in REGISTRY}


def of_room(room: str) -> list[Action]:
    """What can be done on a screen: its own actions, then those that all have."""
    return [action for action in REGISTRY if room in action.rooms or EVERYWHERE in action.rooms]
