"""The contents that a written report shares, counted in the texts that would be published, and whether anything about
this machine is left.

For screens and for `graphdbg report --preview`. Reads files; runs nothing and changes nothing. No torch.

For example:

    preview = Preview.of(Path("small"))
    preview.sentences()[0]
    # 'what will be shared: 1 source line of 1 file (train_gpt.py), 1 operation, 1 input shape'
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...dumps import opening
from ...dumps.atomic import free_path
from ...dumps.pack.redact import Redactor
from ...dumps.secrets import random_looking
from ...dumps.wording import counted, size_text
from .issue import PRIVACY, user_lines

ISSUE, REPRO, SIDECAR, ARTIFACTS = "issue.md", "repro.py", "repro.safetensors", "artifacts.zip"
MARKERS = {
    "...": "folder",
    "<path>": "path",
    "<folder>": "folder",
    "<cache>": "scratch folder",
    "<tmp>": "scratch folder",
    "<site-packages>": "library folder",
    "<python>": "library folder",
    "<graphdbg>": "library folder",
    "<user>": "user name",
    "<secret>": "credential",
}
"""What stands for something that was taken out -> the kind of thing that was."""
_MARKER = re.compile(r"\.\.\.(?=/)|<(?:path|folder|cache|tmp|site-packages|python|graphdbg|user|secret)>")
_LINES = re.compile(r"The operations come from these lines:\n\n```\n(?P<lines>.*?)\n```", re.DOTALL)
_PLACE = re.compile(r"^(?P<file>.+?):\d+ in ")
_GRAPH = re.compile(r"^def graph\(.*?(?=^\S)", re.DOTALL | re.MULTILINE)
_OPERATION = re.compile(r"(?:=|return) (?:torch\.ops\.)?([\w.]+?)(?:\.default)?\(")
_KNOWN = re.compile(r"https://github\.com/pytorch/pytorch/\S+|^Git revision: \w+$", re.MULTILINE)
"""Words of the report's own that look random: the link to a search, torch's revision."""
_RATE = re.compile(r"shows it in (\d+) of (\d+) fresh processes|it did in (\d+) of (\d+) fresh processes")


@dataclass
class Preview:
    """One folder with a report in it. `shown` and `times`: how often the repro failed when it was written."""

    folder: Path
    issue: str = ""
    repro: str = ""
    source_lines: list[str] = field(default_factory=list[str])
    replaced: Counter[str] = field(default_factory=Counter[str])
    leaks: list[str] = field(default_factory=list[str])
    random: list[str] = field(default_factory=list[str])
    """Words that look as if made at random: a credential that no rule knows may be among them."""
    members: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """The members of artifacts.zip: name and size in bytes."""
    sidecar_bytes: int = 0
    shown: int = 0
    times: int = 0
    damage: str = ""

    @classmethod
    def of(cls, folder: Path, redactor: Redactor | None = None) -> Preview:
        """Reads the report in a folder; a missing file is an empty text."""
        preview = cls(folder, _text(folder / ISSUE), _text(folder / REPRO))
        both = preview.issue + preview.repro
        listed = _LINES.search(preview.issue)
        preview.source_lines = listed["lines"].splitlines() if listed else []
        # issue.md has the text of repro.py in it: what stands there is counted once
        rest = preview.issue.replace(preview.repro.rstrip(), "") if preview.repro else preview.issue
        preview.replaced = Counter(MARKERS[marker] for marker in _MARKER.findall(rest + preview.repro))
        preview.leaks = list(dict.fromkeys((redactor or Redactor()).leaks(both)))
        preview.random = random_looking(_KNOWN.sub("", rest))
        rate = _RATE.search(preview.issue)
        if rate:
            preview.shown, preview.times = (int(number) for number in rate.groups() if number is not None)
        try:
            if (folder / SIDECAR).is_file():
                preview.sidecar_bytes = (folder / SIDECAR).stat().st_size
            if (folder / ARTIFACTS).is_file():
                with opening.opened(folder / ARTIFACTS) as file, zipfile.ZipFile(file) as archive:
                    preview.members = [(item.filename, item.file_size) for item in archive.infolist()]
        except (OSError, zipfile.BadZipFile) as error:
            preview.damage = f"{folder / ARTIFACTS} cannot be read: {error}"
        return preview

    @property
    def is_there(self) -> bool:
        """Whether a report was written here."""
        return bool(self.issue or self.repro)

    def as_json(self) -> dict[str, Any]:
        """The preview for --json: what is shared, in numbers and words."""
        return {
            "folder": str(self.folder),
            "source_lines": self.source_lines,
            "replaced": dict(self.replaced),
            "leaks": self.leaks,
            "random": self.random,
            "artifacts": [name for name, _ in self.members],
            "shown": self.shown,
            "times": self.times,
            "says": self.sentences(),
            "warning": PRIVACY,
        }

    def sentences(self) -> list[str]:
        """What will be shared, what was replaced, what the archive holds, how sure it is."""
        files = list(dict.fromkeys(match["file"] for line in self.source_lines if (match := _PLACE.match(line))))
        operations = dict.fromkeys(_OPERATION.findall("".join(_GRAPH.findall(self.repro)) or self.repro))
        parts = [
            f"{counted(len(self.source_lines), 'source line')} of {counted(len(files), 'file')}"
            + (f" ({', '.join(files)})" if files else "")
        ]
        parts.append(
            f"{counted(len(operations), 'operation')}" + (f" ({', '.join(list(operations)[:4])})" if operations else "")
        )
        values = f" and values ({size_text(self.sidecar_bytes)})" if self.sidecar_bytes else ""
        parts.append(f"the shapes of the inputs{values}")
        parts.append("versions of this machine, by allow-list")
        lines = [f"what will be shared: {', '.join(parts)}"]
        total = sum(self.replaced.values())
        kinds = ", ".join(counted(count, kind) for kind, count in sorted(self.replaced.items()))
        lines.append(f"{counted(total, 'path or name', 'paths or names')} replaced" + (f": {kinds}" if kinds else ""))
        if self.leaks:
            lines.append(f"STILL THERE, look at it: {', '.join(self.leaks[:4])}")
        else:
            lines.append(
                "looked through now: no known credential and no absolute path (but /dev/null and such) is left in it"
            )
        if self.random:
            lines.append(f"looks random, see that it is no credential: {', '.join(self.random[:4])}")
        rate = f"{self.shown} of {counted(self.times, 'fresh process')}"
        lines.append(f"the repro failed in {rate}" if self.times else "the repro was not run")
        if self.members:
            size = sum(size for _, size in self.members)
            lines.append(
                f"{ARTIFACTS}: {counted(len(self.members), 'file')}, {size_text(size)} unpacked: "
                + ", ".join(name for name, _ in self.members)
            )
        return lines + ([self.damage] if self.damage else [])


def ahead(graph: str) -> list[str]:
    """What a report of a graph would share, before it is written. Raises GraphdbgError where the graph cannot be
    read."""
    from ...dumps.pack.making import secrets_of
    from ...dumps.store import resolve_graph

    saved = resolve_graph(graph)
    record, redactor = saved.record, Redactor(secrets=secrets_of(saved.run))
    lines = [redactor.text(line) for line in user_lines(record)]
    files = list(dict.fromkeys(match["file"] for line in lines if (match := _PLACE.match(line))))
    operations = dict.fromkeys(node.target for node in record.graph.nodes if node.op.startswith("call_"))
    replaced = Counter(MARKERS[marker] for line in lines for marker in _MARKER.findall(line))
    kinds = ", ".join(counted(count, kind) for kind, count in sorted(replaced.items()))
    named = f" ({', '.join(files[:4])})" if files else ""
    inputs = saved.inputs_record
    kept = sum(item.stored is not None for item in inputs.inputs) if inputs else 0
    return [
        f"what would be shared: {counted(len(lines), 'source line')} of {counted(len(files), 'file')}{named}, "
        f"{counted(len(operations), 'operation')}, the shapes of the inputs, versions of this machine, by allow-list",
        f"{counted(sum(replaced.values()), 'path or name', 'paths or names')} replaced"
        + (f": {kinds}" if kinds else ""),
        f"{counted(kept, 'input')} with recorded values, which go along where the failure needs them",
        *lines,
    ]


def warning() -> str:
    """The warning to read before it is published."""
    return PRIVACY


def free_folder(cwd: Path) -> str:
    """`graphdbg-report-N` with the first N that is free: the folder that the command takes."""
    return free_path(str(cwd / "graphdbg-report"), bare=False).name


def reports(graph: str, cwd: Path) -> list[Path]:
    """Folders with a report that belongs to a case: beside it or around it, as minify leaves it. A run's graph has
    none."""
    path = cwd / graph
    return [place for place in (path, path.parent) if (place / ISSUE).is_file() and (path / "case.json").is_file()]


def _text(path: Path) -> str:
    try:
        return opening.read_text(path)
    except OSError:
        return ""
