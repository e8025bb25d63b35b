"""The `graphdbg` command: one table of commands, each imported from its package when it is called.

Holds no logic of any command. `graphdbg --help` imports no command module, and none of them imports torch at its top.
A GraphdbgError is printed as its sentence and its code on stderr; any other exception is a defect of ours and shows
its traceback.

>>> main(["--version"])
Traceback (most recent call last):
...
SystemExit: 0
"""

from __future__ import annotations

import difflib
import errno
import os
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from io import StringIO
from typing import Any

import click

from . import __version__
from .dumps import answers, glossary, manual, temporary, trust
from .dumps.errors import (
    DEFECT,
    INTERRUPTED,
    CannotWriteError,
    CommandLineError,
    GraphdbgError,
    PackageMissingError,
    coded,
)
from .dumps.output import make_ready, say, settle

COMMANDS: dict[str, tuple[str, str, str]] = {
    "dump": ("Record", "toolkit.commands.dump:dump", "Run a command and record every graph that its compiler stack "
    "builds."),
    "import": (
        "Record", "toolkit.commands.import_:import_",
        "Turn a repro script or exported program of torch's into a case, a trace into a run.",
    ),
    "demo": (
        "Record", "minifier.commands.demo:demo", "Record a training run with a planted compiler bug, shrink and "
        "report it.",
    ),
    "doctor": ("Record", "toolkit.commands.doctor:doctor", "Say what works on this machine and what is missing."),
    "ls": ("Look", "dumps.commands.ls:ls", "List the compiles and graphs of a run, or the runs here."),
    "show": ("Look", "minifier.commands.show:show", "Show the nodes, inputs or generated code of one graph."),
    "draw": ("Look", "toolkit.commands.draw:draw", "Draw a graph, a part of it or its modules: svg, png, pdf or dot."),
    "diff": ("Look", "dumps.commands.diff:diff", "Compare two graphs, runs, processes, recompiles or stages."),
    "tui": ("Look", "tui.commands.tui:tui", "Look at runs and graphs, replay, minify and report, in the terminal or "
    "a browser."),
    "triage": (
        "Judge", "toolkit.commands.triage:triage", "Say which layer is to blame: a graph under every rung, a run, a "
        "script.",
    ),
    "replay": ("Judge", "toolkit.commands.replay:replay", "Run a saved graph again, isolated, and judge its result."),
    "check": ("Judge", "toolkit.commands.check:check", "Compare every value of a saved graph with its traced "
    "metadata."),
    "minify": (
        "Shrink and share", "minifier.commands.minify:minify",
        "Shrink a failing graph to the smallest case that fails the same way.",
    ),
    "steer": (
        "Shrink and share", "minifier.commands.steer:steer",
        "Pause, skip, disable, restart or cancel while a graph is being shrunk.",
    ),
    "report": (
        "Shrink and share", "minifier.commands.report:report",
        "Write repro.py, issue.md and artifacts.zip for a failing graph.",
    ),
    "verify": (
        "Shrink and share", "minifier.commands.verify:verify", "Run a repro again, under a torch of your own, after "
        "each build.",
    ),
    "same": (
        "Shrink and share", "minifier.commands.same:same", "Say whether two cases, repros or runs are the same "
        "failure.",
    ),
    "pack": (
        "Shrink and share", "dumps.commands.pack:pack", "Write one redacted file of a run, for somebody else to look "
        "into.",
    ),
    "bisect": (
        "Compiler engineers", "toolkit.commands.bisect:bisect",
        "Name the node that makes a graph fail, or the pass, lowering or setting.",
    ),
    "compile": (
        "Compiler engineers", "toolkit.commands.compile:compile",
        "Compile a saved graph and show every stage, and the kernels it becomes.",
    ),
    "kernel": (
        "Compiler engineers", "toolkit.commands.kernel:kernel",
        "Check a graph's Triton kernels, or run one alone: right, and how fast?",
    ),
}  # fmt: skip
"""Name -> (its heading in `graphdbg --help`, package.commands.module:command, its help line). A new command adds one
row."""


DEFECT_EXIT = 70
INTERRUPTED_EXIT = 130


class Commands(click.Group):
    """A group that reads its list from COMMANDS and imports a command's module only to run it or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][1].partition(":")
        command: click.Command = getattr(import_module(f".{module}", __package__), attribute)
        texts = (option.help or "" for option in command.params if isinstance(option, click.Option))
        command.epilog = manual.epilog(cmd_name, glossary.help_line(" ".join([command.help or "", *texts])))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS, n=2)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(COMMANDS)}."
            ctx.fail(f"no command {name!r}. {hint}")
        answers.typed(ctx, args)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))  # one width for all headings
        for heading in dict.fromkeys(row[0] for row in COMMANDS.values()):
            with formatter.section(heading):
                rows = [(name.ljust(widest), line) for name, (group, _, line) in COMMANDS.items() if group == heading]
                formatter.write_dl(rows)


@click.group(
    cls=Commands,
    epilog="An error ends with a code, such as [GD06]: the page of that name in docs/errors says what to do.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def graphdbg() -> None:
    """Record, look at, replay, shrink and report what torch.compile makes of your model.

    \b
    graphdbg dump -o myrun train.py               record an unmodified training command
    graphdbg ls myrun                             which graphs there are, and which one failed
    graphdbg minify -o small myrun/0_0/forward    shrink that one, failing the same way
    graphdbg report small                         repro.py and the text of an issue
    """


def run(args: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; all errors are printed on stderr."""
    os.environ.pop("GRAPHDBG_ARM", None)  # our own processes fail on purpose
    if trust.rings():
        import_module(".toolkit.recorder.armed.rings", __package__).report()
    try:
        result = graphdbg.main(args=None if args is None else list(args), prog_name="graphdbg", standalone_mode=False)
    except GraphdbgError as error:
        say(f"graphdbg: {error.said}")
        return error.exit_code
    except click.ClickException as error:
        said = StringIO()
        error.show(said)
        say(coded(said.getvalue().rstrip(), CommandLineError.code))
        return 2
    except ModuleNotFoundError as error:
        return _lacking(error)
    except (click.Abort, KeyboardInterrupt):
        say(coded("graphdbg: interrupted", INTERRUPTED))
        return INTERRUPTED_EXIT
    except OSError as error:
        return _refused(error)
    except Exception:  # noqa: BLE001 - the outermost frame: whatever comes here is shown whole
        return _defect()
    return result if isinstance(result, int) else 0


def _lacking(error: ModuleNotFoundError) -> int:
    """Reports a package that is not installed; a missing module of graphdbg itself is a defect."""
    package = (error.name or __package__ or "").partition(".")[0]
    if package == __package__:
        return _defect()
    name = package.replace("_", "-")
    fix = f"install it with `pip install {name}`; graphdbg doctor says what does without it"
    lack = PackageMissingError(f"this command needs {name}", str(error), fix)
    say(f"graphdbg: {lack.said}")
    return lack.exit_code


_OF_THE_SYSTEM = {
    **dict.fromkeys((errno.ENFILE, errno.EIO, errno.EAGAIN, errno.EBADF), ""),
    **dict.fromkeys((errno.ELOOP, errno.EPIPE, errno.ENOMEM, errno.ESTALE), ""),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space or choose another folder"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "choose another folder, or ask its owner"),
    **dict.fromkeys((errno.EROFS, errno.ENOTDIR), "choose another folder"),
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.EMFILE: "raise the limit with ulimit -n",
    errno.EFBIG: "choose another folder, or raise the limit with ulimit -f",
}
"""Errors of the system that are no defect of graphdbg, and what the user can do about them."""


def _refused(error: OSError) -> int:
    """Reports an OSError that no command handles: a full disk, a folder without write permission, a path too long."""
    if error.errno not in _OF_THE_SYSTEM:
        return _defect()
    what = f"cannot use {error.filename}" if error.filename else "cannot write"
    lack = CannotWriteError(what, error.strerror or str(error), _OF_THE_SYSTEM[error.errno])
    say(f"graphdbg: {lack.said}")
    return lack.exit_code


def _defect() -> int:
    say(traceback.format_exc())
    sentence = "graphdbg: this is a defect of graphdbg, not of your model. Please report it with the text above."
    say(coded(sentence, DEFECT))
    return DEFECT_EXIT


def _keep(
    words: Sequence[str], began: float, asked: str, target: str, lines: Iterable[dict[str, Any]], code: int
) -> None:
    from .tui.job_files import keep  # late: most commands judge nothing

    keep(words, began, asked, target, lines, code)


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the `graphdbg` script."""
    make_ready()
    temporary.go_on_signals()
    temporary.remove_left_over()
    if answers.KEPT_ELSEWHERE not in os.environ:
        answers.keep_by(partial(_keep, sys.argv[1:] if args is None else args, time.time()))
    try:
        code = run(args)
    except SystemExit as end:  # as most commands end
        if not isinstance(end.code, int):
            raise
        code = end.code
    sys.exit(settle(code))
