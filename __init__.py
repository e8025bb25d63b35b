"""graphdbg: record, look at, replay, shrink and report what torch.compile makes of your model.

The public names load on first use; `import graphdbg` imports neither torch nor textual.

>>> saved = graphdbg.open_run("myrun").graph("0_0/forward")
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .dumps import late
from .dumps.displayed import makers

_HOME = {
    "record": "toolkit.recorder.starting",
    "open_run": "dumps.store",
    "load_graph": "dumps.store",
    "save_graph": "dumps.torchside.case",
    "replay": "toolkit.replaying.replay",
    "triage": "toolkit.triage.ladder",
    "shadow": "toolkit.program.entry",
    "arm": "toolkit.recorder.armed.entry",
    "save_repro": "toolkit.recorder.armed.entry",
    "observe": "toolkit.recorder.pieces",
    "assert_graphs": "toolkit.recorder.asserting",
    "minify": "minifier.minify",
    "SavedGraph": "dumps.store",
    "Run": "dumps.store",
    "Outcome": "toolkit.verdicts.outcome",
    "Triage": "toolkit.verdicts.ladder_records",
    "Verdict": "toolkit.verdicts.verdict",
    "Minified": "minifier.minify",
    "GraphdbgError": "dumps.errors",
    "load_ipython_extension": "toolkit.commands.notebook",
}

__all__ = [
    "GraphdbgError", "Minified", "Outcome", "Run", "SavedGraph", "Triage", "Verdict", "__version__", "arm",
    "assert_graphs",
    "load_graph", "minify", "observe", "open_run", "record", "replay", "save_graph", "save_repro", "shadow", "triage",
]  # fmt: skip

if TYPE_CHECKING:
    from .dumps.errors import GraphdbgError
    from .dumps.store import Run, SavedGraph, load_graph, open_run
    from .dumps.torchside.case import save_graph
    from .minifier.minify import Minified, minify
    from .toolkit.program.entry import shadow
    from .toolkit.recorder.armed.entry import arm, save_repro
    from .toolkit.recorder.asserting import assert_graphs
    from .toolkit.recorder.pieces import observe
    from .toolkit.recorder.starting import record
    from .toolkit.replaying.replay import replay
    from .toolkit.triage.ladder import triage
    from .toolkit.verdicts.ladder_records import Triage
    from .toolkit.verdicts.outcome import Outcome
    from .toolkit.verdicts.verdict import Verdict


def _shown(module: str, maker: str, value: Any) -> str:
    return getattr(import_module(f".{module}", __name__), maker)(value)


makers.update(
    {
        "SavedGraph": partial(_shown, "dumps.commands.display", "of_graph"),
        "Run": partial(_shown, "dumps.commands.display", "of_run"),
        "Outcome": partial(_shown, "toolkit.commands.notebook", "of_outcome"),
        "Triage": partial(_shown, "toolkit.commands.notebook", "of_triage"),
        "Minified": partial(_shown, "minifier.progress.outcome", "of_minified"),
    }
)


__getattr__ = late(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
