"""What records: the plug-in that torch loads, and the private names of torch that the recorder wraps.

>>> hooks().found
'all 17 are there'
"""

from __future__ import annotations

import importlib
import importlib.metadata

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


FIX = "this torch has other names there; all else is recorded"


@row("recorder hooks", essential=True)
def hooks() -> Finding:
    """Looks each private name up that the recorder's table holds, and says what is not recorded without it."""
    import torch  # noqa: F401  without it no name is lost, there is none

    from ..recorder._torch import HOOKS

    lost: list[str] = []
    for hook in HOOKS:
        if not _exists(hook.module, hook.attribute):
            what = f"{' and '.join(hook.required_for)} not recorded" if hook.required_for else f"not known: {hook.why}"
            lost.append(f"{hook.name} ({what})")
    found = f"all {len(HOOKS)} are there" if not lost else f"{len(lost)} of {len(HOOKS)} missing: {'; '.join(lost)}"
    return Finding("recorder hooks", not lost, len(lost) == len(HOOKS), found, FIX)


def _exists(module: str, attribute: str) -> bool:
    try:
        owner: object = importlib.import_module(module)
    except ImportError:
        return False
    for part in attribute.split("."):
        owner = getattr(owner, part, None)
    return owner is not None
