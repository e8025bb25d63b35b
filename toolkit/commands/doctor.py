"""`graphdbg doctor`: what works on this machine and what is missing."""

from __future__ import annotations

import click

from ...dumps.output import emit, say


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(as_json: bool) -> None:
    """Say what works on this machine, what is missing, and what to do about it.

    \b
    Looks at Python, torch, the C++ compiler, Triton, CUDA, graphviz, the cache folder, process isolation and
    the places in torch that the recorder hooks into.
    Exit code: 0 all that graphdbg cannot do without is there, 3 something essential is missing.
    """
    import msgspec

    from ..health import examine

    findings = examine()
    lacking = [finding for finding in findings if finding.essential and not finding.ok]
    if as_json:
        emit({"ok": not lacking, "findings": msgspec.to_builtins(findings)}, as_json=True)
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            state = "ok     " if finding.ok else "MISSING" if finding.essential else "absent "
            emit(f"{state}  {finding.name:<{width}}  {finding.found}", as_json=False)
            if not finding.ok and finding.fix:
                emit(f"         {'':<{width}}  {finding.fix}", as_json=False)
    if lacking:
        say(f"{', '.join(finding.name for finding in lacking)}: essential and missing")
    raise SystemExit(3 if lacking else 0)
