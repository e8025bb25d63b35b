"""What works on this machine and what is missing, as rows: the body of `graphdbg doctor`.

Each check runs what the commands need: it imports, compiles, forks and draws. It returns a Finding (several, for
packages) and never raises for what it looks for. torch and msgspec are imported inside the checks, so that their
absence is a row too.

For example: `[finding.name for finding in examine() if not finding.ok and finding.essential]` gives `[]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import running
from .running import HealthCheck

CHECKS: tuple[Callable[[], HealthCheck | Sequence[HealthCheck]], ...] = (
    running.python,
    running.torch_itself,
    running.packages,
    running.compiler,
    running.compiling,
    running.cuda,
    running.drawing,
    running.cache_folder,
    running.isolation,
    running.wall,
    running.plugin,
    running.hooks,
    running.names,
)
"""In order."""


def examine() -> list[HealthCheck]:
    """All checks, in the order of what depends on what."""
    checks: list[HealthCheck] = []
    for check in CHECKS:
        outcome = check()
        checks += [outcome] if isinstance(outcome, HealthCheck) else outcome
    return checks
