"""Errors that a user sees as one sentence: what failed, why, what to do; and the code of their family.

Raise one of these for anything the user can cause; anything else is a defect of graphdbg and shows its traceback. A
class with a `code` is a family: the user does the same for all its errors, as `docs/errors/CODE.md` describes.

>>> raise UnreadableError("cannot read run/0_0/forward/graph.json", "the file is empty", "record the run again")
Traceback (most recent call last):
...
graphdbg.dumps.errors.UnreadableError: cannot read run/0_0/forward/graph.json: the file is empty. Record the run again.
"""

from __future__ import annotations

INTERRUPTED = "GD90"
DEFECT = "GD99"
"""Codes for endings that are no GraphdbgError."""


def coded(sentence: str, code: str) -> str:
    """A sentence with the code of its family behind it, which is how each error is printed."""
    return f"{sentence} [{code}]"


def said(error: Exception) -> str:
    """An error as it is printed: a GraphdbgError with its code, an OSError with the code of CannotWriteError.

    >>> said(OSError("no space left"))
    'no space left [GD71]'
    """
    if isinstance(error, GraphdbgError):
        return error.said
    return coded(str(error), CannotWriteError.code) if isinstance(error, OSError) else str(error)


class GraphdbgError(Exception):
    """Base of all errors that a user can cause: a sentence of what failed, why, and what to do; `exit_code` (an int) is
    what the command line exits with, `code` is the family's.

    >>> error = GraphdbgError("cannot read run.json", "the file is empty", "record the run again")
    >>> str(error)
    'cannot read run.json: the file is empty. Record the run again.'
    """

    exit_code = 2
    code = ""

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        self.what, self.why, self.fix = what, why, fix
        text = f"{what}: {why}" if why else what
        if fix:
            end = "" if fix.endswith("?") else "."
            first = fix[:1] if fix.startswith("graphdbg ") else fix[:1].upper()  # a command stays one to paste
            text = f"{text.rstrip('.')}. {first}{fix[1:].rstrip('.')}{end}"
        super().__init__(text)

    @property
    def said(self) -> str:
        """The sentence with its code, as it is printed.

        >>> UnreadableError("cannot read run.json").said
        'cannot read run.json [GD40]'
        """
        return coded(str(self), self.code)


class UsageError(GraphdbgError):
    """The request cannot be carried out as it is written."""

    code = "GD01"


class CommandLineError(UsageError):
    """A command, an option or an argument is unknown, missing, or one too many."""

    code = "GD02"


class OptionsExcludeError(UsageError):
    """Two options or arguments exclude each other."""

    code = "GD03"


class BadValueError(UsageError):
    """A value is malformed or out of its range."""

    code = "GD04"


class UnknownWordError(UsageError):
    """A word is none of the fixed list that is accepted there."""

    code = "GD05"


class NoSuchRunError(UsageError):
    """Nothing of that name is there: no run, graph, case folder or package."""

    code = "GD06"


class NoSuchGraphError(UsageError):
    """The run holds no such graph or process, or the id fits several."""

    code = "GD07"


class NoSuchNodeError(UsageError):
    """The graph has no such node or kernel."""

    code = "GD08"


class ExistsAlreadyError(UsageError):
    """The place to write to is taken: something is there already."""

    code = "GD09"


class WrongKindError(UsageError):
    """The thing exists, and the command needs one of another kind."""

    code = "GD11"


class NoPartnerError(UsageError):
    """The graph, process or node has no counterpart to be compared or joined with."""

    code = "GD12"


class NeedsTrustError(UsageError):
    """A program or module would be run, and nobody has said that it is trusted."""

    code = "GD13"


class CannotSkipError(UsageError):
    """A stage or pass of the compile cannot be skipped, replaced or stopped at."""

    code = "GD14"


class CannotCompileError(UsageError):
    """The graph cannot be compiled, loaded or called with what it is given."""

    code = "GD15"


class CannotStartError(UsageError):
    """A command, a script or another Python cannot be run."""

    code = "GD16"


class CannotImportError(UsageError):
    """A file or module cannot be imported."""

    code = "GD17"


class CannotResumeError(UsageError):
    """The folder holds no minification that can be resumed, steered or followed."""

    code = "GD18"


class InUseError(UsageError):
    """Another process or job is at work there."""

    code = "GD19"


class NoGraphError(UsageError):
    """No graph can be made, cut out or saved of what is given."""

    code = "GD20"


class NotReadyError(UsageError):
    """The screen of the workbench has nothing yet to do this with."""

    code = "GD21"


class JobFailedError(UsageError):
    """A command that the workbench started failed."""

    code = "GD22"


class CannotTakeError(GraphdbgError):
    """Another compiler of PyTorch cannot take the graph."""

    code = "GD34"
    exit_code = 3


class UnreadableError(GraphdbgError):
    """A file cannot be read."""

    code = "GD40"


class DamagedError(UnreadableError):
    """A file is truncated, malformed, or not what was recorded."""

    code = "GD41"


class OtherVersionError(UnreadableError):
    """A file was written by another version of graphdbg."""

    code = "GD42"


class TooLargeError(UnreadableError):
    """A file is larger than graphdbg reads or unpacks."""

    code = "GD43"


class ExpressionError(UnreadableError):
    """The expression of a size cannot be read, or has no value."""

    code = "GD44"


class NotStoredError(UnreadableError):
    """What is needed was not recorded, or was not copied along."""

    code = "GD45"


class RefusedError(UnreadableError):
    """The saved form asks for something that loading does not do."""

    code = "GD50"


class TargetRefusedError(RefusedError):
    """A saved graph calls what is not on the list of things that it may call."""

    code = "GD51"


class NameRefusedError(RefusedError):
    """A name in a saved file is no plain name, or leads out of its folder."""

    code = "GD52"


class UntrustedSourceError(RefusedError):
    """The saved graph holds source that would be run, which needs --trust."""

    code = "GD53"


class EnvironmentLackError(GraphdbgError):
    """This machine or this torch lacks something that the request needs."""

    code = "GD70"
    exit_code = 3


class CannotWriteError(EnvironmentLackError):
    """The system refuses a file: a full disk, a permission, a path too long."""

    code = "GD71"


class PackageMissingError(EnvironmentLackError):
    """A package or program is not installed, or not in a version that works here."""

    code = "GD72"


class LacksName(EnvironmentLackError):
    """This torch lacks a private name, so that what needs it cannot be done."""

    code = "GD73"


class DeviceMissingError(EnvironmentLackError):
    """The device that the graph or kernel needs is not here."""

    code = "GD74"


class LostServer(EnvironmentLackError):
    """There is no process here that could be asked about a graph."""

    code = "GD75"


class ToolchainError(EnvironmentLackError):
    """The C++ compiler or assembler that code is made with cannot be used."""

    code = "GD77"


class ClusterError(EnvironmentLackError):
    """Workers on other machines, such as those of Ray, cannot be used."""

    code = "GD78"


class TorchLacksError(EnvironmentLackError):
    """This torch lacks an operator, type or module that the graph uses."""

    code = "GD79"


class NotRegisteredError(EnvironmentLackError):
    """A custom operator, class or kernel of the graph is not defined here."""

    code = "GD80"


class RanksMissingError(EnvironmentLackError):
    """The graph communicates, and the other ranks are not here."""

    code = "GD81"


class ScreenError(EnvironmentLackError):
    """The workbench has no terminal, port, editor or viewer to use."""

    code = "GD82"
