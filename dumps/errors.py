"""Errors that a user sees as one sentence: what failed, why, what to do. Each carries the exit code of the command
line.

Raise one of these for anything the user can cause; anything else is a defect of graphdbg and shows its traceback.

>>> raise UnreadableError("cannot read run/0_0/forward/graph.json", "the file is empty", "record the run again")
Traceback (most recent call last):
...
graphdbg.dumps.errors.UnreadableError: cannot read run/0_0/forward/graph.json: the file is empty. Record the run again.
"""

from __future__ import annotations


class GraphdbgError(Exception):
    """Base of all errors that a user can cause: a sentence of what failed, why, and what to do; `exit_code` (an int) is
    what the command line exits with.

    >>> error = GraphdbgError("cannot read run.json", "the file is empty", "record the run again")
    >>> str(error)
    'cannot read run.json: the file is empty. Record the run again.'
    """

    exit_code = 2

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        self.what, self.why, self.fix = what, why, fix
        text = f"{what}: {why}" if why else what
        if fix:
            end = "" if fix.endswith("?") else "."
            text = f"{text.rstrip('.')}. {fix[:1].upper()}{fix[1:].rstrip('.')}{end}"
        super().__init__(text)


class UsageError(GraphdbgError):
    """The request makes no sense: unknown id, ambiguous prefix, an existing output path."""


class UnreadableError(GraphdbgError):
    """A file of the saved form is missing, truncated, malformed, of another version, or fails its hash."""


class RefusedError(UnreadableError):
    """The saved form asks for something that loading does not do: a target, name or path off the allow-list."""


class EnvironmentLackError(GraphdbgError):
    """This machine or this torch lacks something that the request needs."""

    exit_code = 3


class LostServer(EnvironmentLackError):
    """There is no process here that could be asked about a graph."""


class LacksName(EnvironmentLackError):
    """This torch lacks a private name, so that what needs it cannot be done."""
