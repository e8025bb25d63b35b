"""`issue.md` for a program whose fault lies outside its graphs, in the sections of PyTorch's bug form.

For example: `write(triaged, repro, Path("small"))` gives `Path("small/issue.md")`.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote_plus

from ...dumps import opening
from ...dumps.atomic import write_file
from ...dumps.pack.redact import Redactor
from ...dumps.wording import counted, size_text
from ...toolkit.isolation.fresh import BUG
from ...toolkit.program.concluding import ProgramTriage, Repro
from ...toolkit.verdicts import verdict_words
from ..report.bundle import ISSUES, phrase
from ..report.environment import versions_text
from ..report.issue import ISSUE, fenced, framed, inline, shorten


def write(triaged: ProgramTriage, repro: Repro, out: Path) -> Path:
    """Writes the issue of a repro that shows the failure; returns its path."""
    verdict, call, program = triaged.verdict, triaged.at, Path(repro.path)
    redactor = Redactor()
    words = phrase(redactor.text(verdict.reason.partition(" raises ")[2])) if verdict.kind == "crash" else ""
    kind = verdict_words.searched("", verdict.kind or "")
    asked = f'is:issue "{words}"' if words else f"is:issue {verdict.layer or 'torch.compile'} {kind}".strip()
    beside = [part.name for part in (program.with_suffix(".pt"), program.with_name("modules")) if part.exists()]
    rate = f"{repro.codes.count(BUG)} of {counted(len(repro.codes), 'fresh process')}"
    lines = [
        inline(verdict.reason, 600),
        "",
        "- Expected: what eager does.",
        f"- First failing layer: {verdict.layer or 'torch.compile'}.",
        f"- Seen in {call.place if call is not None else 'a call'} of a program, beside eager from the same start.",
        f"- The program below shows it in {rate}, each without compile caches; without torch.compile it passes.",
    ]
    if beside:
        sizes = [f"{name} ({size_text(_size(program.with_name(name)))})" for name in beside]
        lines.append(f"- It reads {' and '.join(sizes)}, which must be attached.")
    parts = [
        "### 🐛 Describe the bug",
        "\n".join(lines),
        "`repro.py` (exit code 1 while the bug is there, 0 when it is gone, 2 when it cannot tell; for `git bisect "
        f"run`: --git-bisect):\n\n{fenced(opening.read_text(program).rstrip(), 'python')}",
        "### Error logs",
        fenced(shorten(repro.printed)),
        "### Versions",
        fenced(versions_text()),
    ]
    title = f"[{verdict.layer or 'torch.compile'}] {verdict_words.does(verdict)}: {call.function if call else ''}()"
    write_file(out / ISSUE, framed(title, parts, f"{ISSUES}?q={quote_plus(asked)}", redactor).encode())
    return out / ISSUE


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(part.stat().st_size for part in path.iterdir())
