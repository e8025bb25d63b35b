"""Proposes how a minification is begun from a screen: options with their defaults for a graph, as text, and the command
line that they make. Also reads from the folder of an unfinished one how it goes on, so that `--resume -o OUT` alone is
enough.

Reads the case.json of a case folder, where there is one; starts nothing and needs no torch.

>>> start = proposed("myrun/0_0/forward")
>>> start.words()
['minify', 'myrun/0_0/forward', '-o', 'minified-forward', '--json']
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from ..dumps import errors, opening
from ..dumps.atomic import free_path
from ..dumps.wording import shown_path
from ..toolkit.isolation.imports import TRUST, option_words, shown, with_trust, without_trust
from ..toolkit.rungs import NAMES
from ..toolkit.verdicts import verdict_words
from ..toolkit.verdicts.verdict import ROUNDING, Verdict
from .log import nothing_to_resume, read
from .options import CHECKS, FLAGS, MinifyOptions

SHOWN = ("rung", "check", "match", "jobs", "max_time", "max_queries")
"""The options that a screen asks for; others stay as they are proposed."""
ASKS = ("rung", "check", "match")
"""Options that say what counts as failing."""
HINTS = {
    "rung": ", ".join(NAMES),
    "check": f"{', '.join(CHECKS)}, cmd: COMMAND {{case}}",
    "match": "a regular expression for the failure's text, in place of its signature",
    "jobs": "queries at the same time",
    "max_time": "seconds; empty: until it is done",
    "max_queries": "empty: until it is done",
    "out": "a new folder for the result",
}
_KINDS: dict[str, Callable[[str], Any]] = {"jobs": int, "max_time": float, "max_queries": int}


@dataclass(frozen=True)
class Start:
    """One minification that could be begun. `why`: where its options come from, in words. `doubt`: why it would end
    without a repro, and `instead` what helps; then it is begun only with options of the user's own."""

    graph: str
    out: str
    options: MinifyOptions = field(default_factory=MinifyOptions)
    why: str = ""
    doubt: str = ""
    instead: str = ""

    def texts(self) -> dict[str, str]:
        """The options that are asked for, as text."""
        values: dict[str, Any] = {name: getattr(self.options, name) for name in SHOWN}
        return {**{name: _text(value) for name, value in values.items()}, "out": self.out}

    def with_texts(self, texts: dict[str, str]) -> Start:
        """This start with the typed options. Raises UsageError for options that make no sense, and for a start that
        would end without a repro."""
        typed, known = {name: texts.get(name, "").strip() for name in (*SHOWN, "out")}, self.texts()
        if self.doubt and all(typed[name] == known[name] for name in ASKS):
            raise errors.UsageError("there is nothing to shrink here", self.doubt, self.instead)
        values: dict[str, Any] = {}
        for name in SHOWN:
            text = typed[name]
            try:
                values[name] = _KINDS.get(name, str)(text) if text else getattr(MinifyOptions, name)
            except ValueError:
                fix = "type a number, or leave it empty"
                raise errors.BadValueError(f"{FLAGS[name]} {text!r} is not a number", "", fix) from None
        if values["rung"] not in NAMES:
            raise errors.UnknownWordError(f"there is no rung {values['rung']!r}", "", f"use one of {', '.join(NAMES)}")
        out = typed["out"]
        if not out:
            raise errors.CommandLineError("the result needs a folder", "", "type a new folder at -o")
        if Path(out).exists() and (not Path(out).is_dir() or any(Path(out).iterdir())):
            raise errors.ExistsAlreadyError(f"{out} exists already", "", "type another folder at -o")
        return replace(self, out=out, options=replace(self.options, **values).checked())

    def words(self) -> list[str]:
        """The words after `graphdbg` that begin it."""
        return ["minify", self.graph, "-o", self.out, *self.options.words(), "--json"]


def proposed(graph: str, *, verdict: Verdict | None = None, rung: str = "", imports: tuple[str, ...] = ()) -> Start:
    """The start that is proposed for a graph: with the options that a case was found with, else as its last verdict
    says: `rung` is the first that fails, `imports` what it was judged with.

    Raises GraphdbgError where there is no such graph.
    """
    from ..dumps.store import Run, resolve

    resolved = resolve(graph)
    if isinstance(resolved, Run):
        return Start(graph, free_folder("graph"), why="the graph of the run that failed")
    stage = resolved.stage
    options, why = _of_case(resolved.path), "as it was found" if (resolved.path / "case.json").is_file() else ""
    if why and needs_saying(options):
        left = ["its command"] if options.command else []
        left += map(shown, without_trust(options.imports))
        check = MinifyOptions.check if options.command is not None else options.check
        options = replace(options, imports=(), check=check)
        why += f", without {' and '.join(left)}: what is run has to be said by you"
    start = Start(graph, free_folder(stage), options, why)
    return start if why or verdict is None else _as_judged(start, verdict, rung, imports)


def _as_judged(start: Start, verdict: Verdict, rung: str, imports: tuple[str, ...]) -> Start:
    """The start that asks for the failure of a verdict; with a doubt where no rung shows one."""
    first = verdict_words.first_line(verdict)
    options = replace(start.options, imports=imports)
    if verdict.failed and rung in NAMES:
        return replace(start, options=replace(options, rung=rung), why=f"last verdict at rung {rung}: {first}")
    if verdict.verdict == ROUNDING:
        return replace(start, options=replace(options, check=ROUNDING), why=f"last verdict: {first}")
    if not verdict.failed and verdict.exit_code == 0:
        doubt, instead = "its last verdict is ok: no rung that ran fails", "judge it with the inputs of the run"
    else:
        doubt, instead = f"its last verdict is {first}", "judge it again"
    if verdict.failed:
        doubt, instead = f"{doubt}; the graph itself does not fail at a rung", "go on as the verdict says"
    helps = f"{instead}: {verdict.next[0]}" if verdict.next else instead
    helps += "; with another --rung, --check or --match it is begun"
    return replace(start, options=options, doubt=doubt, instead=helps)


def free_folder(stage: str, cwd: Path | None = None) -> str:
    """`minified-STAGE`, numbered where it is taken: the folder that the command takes."""
    return free_path(str((cwd or Path()) / f"minified-{stage}"), first=2).name


def _text(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _of_case(folder: Path) -> MinifyOptions:
    """The options in a case's case.json that say what is asked, without limits of the search, executor and
    verification."""
    try:
        data: Any = msgspec.json.decode(opening.read(folder / "case.json"))
        old = {name: data[name] for name in ("rung", "check", "seed") if name in data}
        known = MinifyOptions.from_json(data.get("options") or old)
        kept = {option.name for option in fields(MinifyOptions)} - {"max_time", "max_queries", "executor", "verify"}
        return MinifyOptions(**{name: getattr(known, name) for name in kept}).checked()
    except (OSError, msgspec.MsgspecError, errors.GraphdbgError, AttributeError, KeyError, TypeError):
        return MinifyOptions()


def resumed(out: Path, options: MinifyOptions, typed: Collection[str]) -> tuple[str, MinifyOptions, str]:
    """The graph to go on with, its options, and the folder where its first process was started; `typed` are the fields
    that the user gave now. Raises UsageError where there is no unfinished minification, and where the folder names a
    command or modules that the user neither typed again nor trusts.

    Typed options are taken; all others come from the folder. A limit that has ended the search does not end it again.
    """
    try:
        story, _ = read(out)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise nothing_to_resume(out) from error
    except OSError as error:
        raise errors.UnreadableError(f"cannot read the log in {out}", error.strerror or str(error)) from error
    if story.conditions is None:
        raise nothing_to_resume(out)
    known, answers = story.conditions.about, len(story.answers)
    old = MinifyOptions.from_json(known.get("options", {}))
    kept = {field.name: getattr(old, field.name) for field in fields(old) if field.name not in typed}
    if kept.get("max_queries") and answers >= kept["max_queries"]:
        kept["max_queries"] = None
    if kept.get("max_time"):
        kept["max_time"] = None
    directory, trusted = str(known.get("directory", "")), TRUST in options.imports
    graph, chosen = str(known.get("graph", "")), replace(options, **kept)
    _said(out, old, directory, typed, trusted=trusted)
    if TRUST in old.imports and not trusted:  # trust comes from the user, never from a file
        what = "the graph calls the program's own Triton kernels, whose source is in the dump"
        raise errors.NeedsTrustError(
            what, "", f"read it: graphdbg show {shown_path(Path(graph))} --kernel; then add --trust"
        )
    ours = TRUST in old.imports or not needs_saying(old)  # else trust was given for these, not for the graph's source
    imports = with_trust(without_trust(chosen.imports), trusted and ours)
    return graph, replace(chosen, imports=imports), directory


def needs_saying(options: MinifyOptions) -> bool:
    """Whether a folder's options run something that the user has to type again: a command, or modules that are
    imported."""
    return options.command is not None or bool(without_trust(options.imports))


def _said(out: Path, old: MinifyOptions, directory: str, typed: Collection[str], *, trusted: bool) -> None:
    """Raises UsageError where a command or modules of the folder's would be run that were not typed again."""
    if trusted or not needs_saying(old):
        return
    here = not directory or Path(directory).resolve() == Path.cwd()
    lacking: list[str] = []
    if old.command is not None and not ("check" in typed and here):
        lacking.append(f"runs the command {old.command!r} in {directory or '.'!r}")
    if without_trust(old.imports) and "imports" not in typed:
        lacking.append(f"imports {', '.join(map(repr, without_trust(old.imports)))}")
    if lacking:
        command, how = again(out, old), "then allow it: {} (or --trust)"
        if not here or not command.isprintable():
            command, how = again(out, MinifyOptions(imports=(TRUST,))), "then run {} if you trust it"
        why = "its journal asks for this, and you have not allowed it"
        raise errors.NeedsTrustError(f"resuming {out} {' and '.join(lacking)}", why, f"read it, {how.format(command)}")


def again(out: Path, options: MinifyOptions | None = None) -> str:
    """The command that goes on in a folder. Trust has to be typed again, and so has what would be run: a command,
    modules."""
    words = option_words(options.imports) if options is not None else []
    words += ["--check", options.check] if options is not None and options.command is not None else []
    return shlex.join(["graphdbg", "minify", "--resume", "-o", str(out), *words])
