"""`graphdbg doctor`: what works on this machine and what is missing; `--clean` empties the cache folder."""

from __future__ import annotations

from pathlib import Path

import click

from ...dumps.commands.options import json_option
from ...dumps.errors import CommandLineError, OptionsExcludeError
from ...dumps.output import emit, say
from ...dumps.wording import size_text
from ..isolation import cache, cleaning

_NEXT = ("graphdbg dump train.py",)


@click.command()
@click.option("--clean", is_flag=True, help="List what lies in the cache folder and remove it, but for what is in use.")
@click.option("--dry-run", is_flag=True, help="With --clean: only list it.")
@click.option("--skill", is_flag=True, help="Print where SKILL.md lies, which tells an agent how to use graphdbg.")
@json_option()
def doctor(clean: bool, dry_run: bool, skill: bool, as_json: bool) -> None:
    """Say what works on this machine, what is missing, which commands do without it, and what to do about it.

    Runs what the commands need: imports every package, compiles a small program and three nodes, forks, draws,
    looks at CUDA, the cache folder and the places in torch that the recorder hooks into. Each row is ok, MISSING
    (recording and looking do not work without it) or absent.

    --clean removes what graphdbg keeps in $XDG_CACHE_HOME/graphdbg, else ~/.cache/graphdbg; the next replay writes
    it again.
    """
    if skill:
        if clean:
            what = "--skill and --clean cannot be used together"
            raise OptionsExcludeError(what, "--skill only prints a path", "leave one out")
        path = str(Path(__file__).parents[2] / "SKILL.md")
        emit({"skill": path} if as_json else path, as_json=as_json)
        return
    if dry_run and not clean:
        why = "it lists what --clean would remove"
        raise CommandLineError("--dry-run needs --clean", why, "graphdbg doctor --clean --dry-run")
    raise SystemExit(_clean(dry_run, as_json) if clean else _examine(as_json))


def _examine(as_json: bool) -> int:
    from dataclasses import asdict

    from ..health import examine

    findings = examine()
    lacking = [finding for finding in findings if finding.essential and not finding.ok]
    if as_json:
        emit({"ok": not lacking, "findings": [asdict(finding) for finding in findings]}, as_json=True, next=_NEXT)
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            state = "ok     " if finding.ok else "MISSING" if finding.essential else "absent "
            emit(f"{state}  {finding.name:<{width}}  {finding.found}", as_json=False)
            if not finding.ok and (advice := finding.advice()):
                emit(f"         {'':<{width}}  {advice}", as_json=False)
    if lacking:
        say(f"{', '.join(finding.name for finding in lacking)}: essential and missing")
    return 3 if lacking else 0


def _clean(dry_run: bool, as_json: bool) -> int:
    cleaned = cleaning.clean(cache.home(), dry_run=dry_run)
    failed = [entry for entry in cleaned.entries if entry.failed]
    if as_json:
        entries = [
            {"name": entry.name, "bytes": entry.bytes, "what": entry.what}
            | ({"kept": entry.kept} if entry.kept else {"removed": entry.removed})
            for entry in cleaned.entries
        ]
        facts = {"folder": cleaned.folder, "dry_run": dry_run, "entries": entries, "bytes": cleaned.bytes}
        emit(facts, as_json=True, next=_NEXT)
    else:
        sizes = [size_text(entry.bytes) for entry in cleaned.entries]
        width = max(map(len, sizes), default=0)
        for entry, size in zip(cleaned.entries, sizes, strict=True):
            state = "kept" if entry.kept else "would be removed" if dry_run else "removed"
            why = f"; {entry.kept}" if entry.kept else ""
            emit(f"{state:<{16 if dry_run else 7}}  {size:>{width}}  {entry.name}  {entry.what}{why}", as_json=False)
    going = sum(entry.bytes for entry in cleaned.entries if not entry.kept)
    kept = f", {size_text(cleaned.bytes - going)} kept" if any(entry.kept for entry in cleaned.entries) else ""
    said = f"{size_text(going)} {'would be removed' if dry_run else 'removed'}{kept}"
    say(f"{cleaned.folder}: {said if cleaned.entries else 'nothing lies there'}")
    return 3 if failed else 0
