"""How many graph breaks and recompiles a run has, for the last line of a plain `ls`: counts lines, decodes none.

>>> hint("myrun", open_run("myrun").processes)
'2 graph breaks, 1 recompile: graphdbg ls myrun --why'
"""

from __future__ import annotations

from collections.abc import Iterable

from ..graph_folder import JOURNAL_FILE
from ..index import Process

_WHAT = (("break", "graph break"), ("recompile", "recompile"), ("limit", "recompile limit reached"), ("failed", "failed"))
_SHOWN = ("break", "recompile", "limit")


def counts(processes: Iterable[Process]) -> dict[str, int]:
    """Kind of reason -> how often it stands in the journals. Quotes inside a text are escaped there: no text looks like one."""
    found = dict.fromkeys((what for what, _ in _WHAT), 0)
    for process in processes:
        try:
            data = (process.path / JOURNAL_FILE).read_bytes()
        except OSError:  # told by the reader of the journal
            continue
        for what in found:
            found[what] += data.count(b'"kind":"why","what":"%s"' % what.encode())
    found["recompile"] -= found["limit"]  # the one too many is not compiled any more
    return found


def hint(text: str, processes: Iterable[Process]) -> str:
    """One line that says where to look; empty when there is nothing to explain."""
    found = counts(processes)
    names = dict(_WHAT)
    parts = [f"{found[what]} {names[what]}{'s' * (found[what] != 1 and what != 'limit')}" for what in _SHOWN if found[what]]
    return f"{', '.join(parts)}: graphdbg ls {text} --why" if parts else ""
