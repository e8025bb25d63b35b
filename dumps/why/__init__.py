"""Why each graph of a run exists: graph breaks, recompiles, restarts, DDP's parts and dynamic sizes, from the journals.

`events` reads the journals into a view model and adds symbols and guards from the records, `wording` parses torch's own
texts, `text` writes the result for 80 columns. Imports no torch; opens graph.json only for the guards of dynamic sizes.

>>> from graphdbg.dumps.why.show import of_rows
>>> [compile.id for compile in of_rows(run)]
['0_0', '0_1']
"""

from __future__ import annotations

from .events import from_journals, of_run
from .frequent import FirstSeen, first_found, hint, limits, repeated
from .model import Why
from .text import render

__all__ = ["FirstSeen", "Why", "first_found", "from_journals", "hint", "limits", "of_run", "render", "repeated"]
