"""One thing that a user can do on a screen, as data. Does nothing itself.

>>> SEARCH = Action("graph.search", ("slash",), "search", "Find text in names, targets, modules and lines.", ("graph",))
>>> SEARCH.method
'do_graph_search'
"""

from __future__ import annotations

from dataclasses import dataclass

EVERYWHERE = "*"


@dataclass(frozen=True)
class Action:
    """`keys` as textual names them. `rooms`: the screens that have it, or everywhere. `words`: the command that does the same,
    as a user would type it (empty: it only moves about on the screen). `footer`: whether the footer has place for it.
    """

    id: str
    keys: tuple[str, ...]
    label: str
    help: str
    rooms: tuple[str, ...] = (EVERYWHERE,)
    words: str = ""
    footer: bool = False

    @property
    def method(self) -> str:
        """The method of a screen or of the app that does it."""
        return "do_" + self.id.replace(".", "_")
