"""The plug-in that torch loads, the private names of torch that the recorder wraps, and those that the rest needs.

>>> hooks().found
'all 17 are there'
"""

from __future__ import annotations

import importlib.metadata

from ...dumps.private_names import SEEN, exists
from .finding import Finding, row


@row("recorder plug-in", essential=True)
def plugin() -> Finding:
    """Whether torch will load the recorder when it is imported."""
    entries = [
        entry.value for entry in importlib.metadata.entry_points(group="torch.backends") if entry.name == "graphdbg"
    ]
    fix = "install graphdbg into the environment that runs torch: pip install graphdbg"
    return Finding(
        "recorder plug-in", bool(entries), True, entries[0] if entries else "torch does not know graphdbg", fix, "dump",
        "all commands that look at what is recorded",
    )  # fmt: skip


HOOKS_FIX = "this torch has other names there; all else is recorded"
FIX = f"take a torch from {SEEN[0]} to {SEEN[-1]}"


@row("recorder hooks", essential=True)
def hooks() -> Finding:
    """Looks each private name up that the recorder's table holds, and says what is not recorded without it."""
    import torch  # noqa: F401  without it no name is lost, there is none

    from ..torch_private.names import HOOKS

    lost: list[str] = []
    for hook in HOOKS:
        if not all(exists(hook.module, path) for path in hook.places().values()):
            what = f"{' and '.join(hook.stages)} not recorded" if hook.stages else f"not known: {hook.lost}"
            lost.append(f"{hook.whole()} ({what})")
    found = f"all {len(HOOKS)} are there" if not lost else f"{len(lost)} of {len(HOOKS)} missing: {'; '.join(lost)}"
    return Finding("recorder hooks", not lost, len(lost) == len(HOOKS), found, HOOKS_FIX)


@row("private torch names", essential=False)
def names() -> Finding:
    """Looks up what else of torch is private and used, and says who needs what this torch lacks."""
    import torch

    from ...dumps.torchside.torch_private import NAMES as OF_DUMPS
    from ..torch_private.names import HOOKS, NAMES

    cuda = torch.version.cuda is not None
    every = [row for table in (OF_DUMPS, NAMES) for row in table.rows if row not in HOOKS]
    lacking = [pair for table in (OF_DUMPS, NAMES) for pair in table.lacking(torch.__version__, cuda=cuda)]
    lost = {name: f"needed by {row.needed_by}" + (f": {row.lost}" if row.lost else "") for name, row in lacking if row in every}
    count = len({(row.module, path) for row in every for path in row.places().values()})
    told = "; ".join(f"{name} ({why})" for name, why in lost.items())
    found = f"{len(lost)} of {count} missing: {told}" if lost else f"all {count} that this torch should have are there"
    return Finding("private torch names", not lost, False, found, FIX, without="all that does not name them")
