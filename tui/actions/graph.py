"""Actions of the graph screen."""

from __future__ import annotations

from .action import Action

_ROOM = ("graph",)

TABLE: tuple[Action, ...] = (
    Action("graph.filter", ("f",), "filter",
           "Show only what fits: op:mm shape:*,1024 dtype:bf16 users>3 module:layers.3 -op:view.", _ROOM,
           "show RUN/ID --filter TEXT", footer=True),
    Action("graph.search", ("slash",), "search", "Find text in names, targets, modules and lines, or else in code.", _ROOM,
           "show RUN/ID --find TEXT", footer=True),
    Action("graph.users", ("u",), "users", "To a node that uses this one.", _ROOM, footer=True),
    Action("graph.inputs", ("i",), "inputs", "To a node that this one uses.", _ROOM, footer=True),
    Action("graph.down", ("down", "j"), "down", "One row down.", _ROOM),
    Action("graph.up", ("up", "k"), "up", "One row up.", _ROOM),
    Action("graph.page_down", ("pagedown", "ctrl+d"), "page down", "One page down.", _ROOM),
    Action("graph.page_up", ("pageup", "ctrl+u"), "page up", "One page up.", _ROOM),
    Action("graph.top", ("home", "g"), "top", "To the first row.", _ROOM),
    Action("graph.end", ("end", "G"), "end", "To the last row.", _ROOM),
    Action("graph.next", ("n",), "next", "To the next place that was searched for.", _ROOM),
    Action("graph.previous", ("N",), "previous", "To the place before.", _ROOM),
    Action("graph.clear", ("c",), "clear", "Show all nodes again, in the order of the graph.", _ROOM),
    Action("graph.fold", ("left", "h"), "fold", "Fold the module around the node; again: the one around that.", _ROOM,
           "show RUN/ID --fold DEPTH"),
    Action("graph.unfold", ("right", "l"), "unfold", "Open the module under the cursor.", _ROOM),
    Action("graph.toggle", ("space",), "fold or unfold", "Fold the module around the node, or open the folded one.", _ROOM),
    Action("graph.fold_more", ("minus",), "fold more", "Fold all modules one level further up.", _ROOM,
           "show RUN/ID --fold DEPTH"),
    Action("graph.fold_less", ("plus", "equals_sign"), "fold less", "Open all modules one level further down.", _ROOM),
    Action("graph.fold_all", ("underscore",), "fold all", "Only the outermost modules.", _ROOM, "show RUN/ID --fold 0"),
    Action("graph.unfold_all", ("asterisk",), "unfold all", "Every node in a row of its own.", _ROOM),
    Action("graph.sort", ("s",), "sort", "By a column; the same one again: the other way round.", _ROOM,
           "show RUN/ID --sort COLUMN", footer=True),
    Action("graph.columns", ("v",), "columns", "Which columns are shown.", _ROOM, "show RUN/ID --columns A,B"),
    Action("graph.back", ("less_than_sign", "ctrl+o", "backspace"), "back", "To where the last jump began.", _ROOM),
    Action("graph.forward", ("greater_than_sign",), "forward", "Again to where the jump went.", _ROOM),
    Action("graph.goto", ("colon",), "go to", "A node by its name or number, or the first of a line (model.py:12).", _ROOM),
    Action("graph.open", ("enter",), "open", "The node's detail; of a folded module: its nodes.", _ROOM),
    Action("graph.zoom", ("z",), "zoom", "The detail on all of the screen, the table on all of it, both.", _ROOM),
)  # fmt: skip

ACTIONS: tuple[Action, ...] = TABLE
