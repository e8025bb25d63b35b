"""Importing this module is `--trust`: from then on this process runs the user's own Triton kernels found in a dump.

`--trust` travels as the name of this module among those that the user asks to import, so it reaches every process that
a module reaches: children of the fork server, workers on other machines, a search that is resumed. Only the user names
it.

For example: `import_modules(["graphdbg.toolkit.triton.trusted"])`.
"""

from __future__ import annotations

from ...dumps import trust


def _ready() -> None:
    from .user_kernels import ready

    ready()


trust.grant(_ready)
