"""One row of `graphdbg doctor`, and the decorator that makes a row of a check that raises.

For example:

    Finding("textual", False, False, "not installed", "pip install textual", "tui", "all other commands").advice()
    # 'needed by tui; all other commands do without: pip install textual'
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class HealthCheck:
    """What was looked for, whether it works, whether dump, ls and show cannot do without it, what was seen, what to do.

    `needed_by` names what does not work where it is missing, `without` what does without.
    """

    name: str
    ok: bool
    essential: bool
    found: str
    fix: str = ""
    needed_by: str = ""
    without: str = ""

    def advice(self) -> str:
        """The line under a row that is not ok; empty when there is nothing to add."""
        words = [f"needed by {self.needed_by}"] if self.needed_by else []
        words += [f"{self.without} do without"] if self.without else []
        return ": ".join(part for part in ("; ".join(words), self.fix) if part)


def row(name: str, *, essential: bool) -> Callable[[Callable[[], HealthCheck]], Callable[[], HealthCheck]]:
    """Makes a row of that name of whatever a check raises: a broken package may raise anything."""

    def decorated(check: Callable[[], HealthCheck]) -> Callable[[], HealthCheck]:
        @functools.wraps(check)
        def checked() -> HealthCheck:
            try:
                return check()
            except ImportError as error:
                return HealthCheck(name, False, essential, f"not asked: {one_line(error)}")
            except Exception as error:  # noqa: BLE001  said in the row
                return HealthCheck(
                    name, False, essential, f"cannot be asked: {type(error).__name__}: {one_line(error)}"
                )

        return checked

    return decorated


def one_line(what: object, most: int = 200) -> str:
    """The text of something in one line of at most `most` characters."""
    text = " ".join(str(what).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
