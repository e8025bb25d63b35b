"""The body of `graphdbg doctor`: what works on this machine and what is missing, as rows.

Each check runs what the commands need: it imports, compiles, forks and draws. It returns a Finding (several, for
packages) and never raises for the thing that it checks. torch and msgspec are imported inside the checks, so that their
absence becomes a row, too.

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
"""The checks, in order."""


def examine() -> list[HealthCheck]:
    """Runs all checks, each after those that it depends on."""
    checks: list[HealthCheck] = []
    for check in CHECKS:
        outcome = check()
        checks += [outcome] if isinstance(outcome, HealthCheck) else outcome
    return checks
