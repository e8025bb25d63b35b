"""Graph: its digit, what it is about, and its actions with their keys, in the order in which help lists them."""

from __future__ import annotations

from ...actions import Action, Screen

SCREEN = Screen(
    digit="2", label="graph", help="The nodes of the graph.", words="show RUN/ID", also="nodes show",
    about=("the nodes: def-use lanes, folding by module, columns, sorting, search (`/`), a filter as you type (`f`: "
        "`op:mm shape:*,1024 dtype:bf16 users>3 module:layers.3`), jumps to users and inputs with a way back, what "
        "jobs, or commands in a shell, found (`✗`, `!` goes to the next one), errors of two rungs side by side, a "
        "Python prompt at a node (`A`), nodes as a case (`W`), its graph.py in your editor (`V`: what you change "
        "becomes a case, is judged as the graph was, and Diff shows both with their verdicts, `A ✗ wrong numbers at "
        "relu, B ✓ ok`), forward ↔ backward partner (`p`); of a node its detail, your source, its kernel, the same "
        "node at other stages, what lies around it (drawn; `o` writes svg or png)"),
    actions=(
    Action("graph.filter", "f", "filter",
           "Show only what fits: op:mm shape:*,1024 dtype:bf16 users>3 module:layers.3 -op:view.",
           "show RUN/ID --filter TEXT", footer=True),
    Action("graph.search", "slash", "find", "Find text in names, targets, modules and lines, or else in code.",
           "show RUN/ID --find TEXT", footer=True, also="search"),
    Action("graph.users", "u", "users", "To a node that uses this one.", does=("graph_neighbours", "users"),
           footer=True, also="consumers"),
    Action("graph.inputs", "i", "inputs", "To a node that this one uses.", does=("graph_neighbours", "inputs"),
           also="arguments producers"),
    Action("graph.bad", "exclamation_mark", "next bad", "To the next node that a job found bad: triage, bisect or "
           "values.", footer=True, also="failed wrong first bad values triage bisect"),
    Action("graph.stand", "A", "stand at", "A Python prompt at the node, with its inputs and value, over this screen.",
           "replay RUN/ID --at NODE", also="prompt shell inspect interact"),
    Action("graph.cut", "W", "save as case", "Nodes as a case of their own: those that the filter leaves, or A..B.",
           "show RUN/ID --nodes A..B --save CASE", also="extract subgraph select cut"),
    Action("graph.less", "left_parenthesis", "table smaller", "The tabs get more of the screen; it is remembered.",
           does=("graph_split", -5), also="split resize"),
    Action("graph.more", "right_parenthesis", "table larger", "The table gets more of the screen; it is remembered.",
           does=("graph_split", 5), also="split resize"),
    Action("graph.next", "n", "next hit", "To the next place that was searched for.", does=("graph_hit", 1)),
    Action("graph.previous", "N", "hit before", "To the place before.", does=("graph_hit", -1)),
    Action("graph.clear", "0", "clear", "Show all nodes again, in the order of the graph.", also="reset all"),
    Action("graph.fold", "left h", "fold", "Fold the module around the node; again: the one around that.",
           "show RUN/ID --fold DEPTH"),
    Action("graph.unfold", "right l", "unfold", "Open the module under the cursor."),
    Action("graph.toggle", "space", "toggle", "Fold the module around the node, or open the folded one."),
    Action("graph.fold_more", "minus", "fold more", "Fold all modules one level further up.",
           "show RUN/ID --fold DEPTH", does=("graph_depth", -1)),
    Action("graph.fold_less", "plus", "fold less", "Open all modules one level further down.", does=("graph_depth", 1)),
    Action("graph.fold_all", "underscore", "fold all", "Only the outermost modules.", "show RUN/ID --fold 0",
           does=("graph_depth", None, 0)),
    Action("graph.unfold_all", "asterisk", "unfold all", "Every node in a row of its own.", does=("graph_depth", None)),
    Action("graph.sort", "s", "sort", "By a column; the same one again: the other way round.",
           "show RUN/ID --sort COLUMN", also="order largest"),
    Action("graph.columns", "C", "columns", "Which columns are shown.", "show RUN/ID --columns A,B"),
    Action("graph.back", "less_than_sign ctrl+o backspace", "jump back", "To where the last jump began.",
           does=("graph_trail", -1)),
    Action("graph.forward", "greater_than_sign", "jump on", "Again to where the jump went.", does=("graph_trail", 1)),
    Action("graph.goto", "colon", "go to", "A node by its name or number, or the first of a line (model.py:12).",
           also="jump line"),
    Action("graph.open", "enter", "open", "The node's detail; of a folded module: its nodes."),
    Action("graph.zoom", "z", "zoom", "The detail on all of the screen, the table on all of it, both.",
           also="maximise"),
    # the tabs beside the node table
    Action("tabs.partner", "p", "partner", "To the node's partner in the backward or forward graph; again: the next "
           "one.", "show RUN/ID --node NODE", footer=True, also="backward forward gradient"),
    Action("tabs.next", "right_square_bracket tab", "next view", "Detail, Source, Code, IR, Near.",
           also="source code kernel triton ir neighbourhood"),
    Action("tabs.previous", "left_square_bracket shift+tab", "view before", "The tab to the left."),
    Action("tabs.more", "full_stop", "next part", "The next frame or kernel; on Near: a hop more.",
           "show RUN/ID --node NODE --hops N", does=("tabs_more", 1), also="kernel frame hop"),
    Action("tabs.less", "comma", "part before", "The frame or kernel before; on Near: a hop less.", does=("tabs_more",
           -1)),
    Action("tabs.down", "J", "tab down", "Scroll the tab while the table keeps the cursor.", does=("tabs_scroll", 3)),
    Action("tabs.up", "K", "tab up", "Scroll the tab back.", does=("tabs_scroll", -3)),
    Action("tabs.left", "left_curly_bracket", "sideways left", "Back to the beginning of long lines of the tab.",
           does=("tabs_across", -20)),
    Action("tabs.right", "right_curly_bracket", "sideways right", "See more of long lines of the tab.",
           does=("tabs_across", 20)),
    Action("tabs.editor", "e", "editor", "Open what the tab shows, else the user's file, in your editor at the line."),
    Action("tabs.export", "o", "export", "Draw the neighbourhood into an .svg file: .svg, .png or .txt.",
           "draw RUN/ID --around NODE --hops N", also="draw picture write save"),
    ),
)  # fmt: skip
