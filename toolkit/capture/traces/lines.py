"""The lines of a structured trace: a glog prefix with a JSON object, then the lines of its payload, each after a tab.

For example:

    [entry.kind for entry in read(Path("dedicated_log_torch_trace_rank_0_abc.log")).entries]
    # ['dynamo_start', 'dynamo_output_graph', 'artifact']
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from ....dumps.allowlist import words
from ....dumps.errors import UnreadableError
from ....dumps.opening import opened
from ....dumps.wording import counted

_PREFIX = re.compile(rb"(?:\[rank(\d+)\]:)?[VIWEC]\d{4} [\d:.]+ \S+ [^\]]*\] (?=\{)")
_COMMON = words("rank frame_id frame_compile_id attempt compiled_autograd_id has_payload stack process pathname")
_PASSED_OVER = words("chromium_event inductor_output_code dynamo_cpp_guards_str dynamo_guards")
_RANK = re.compile(r"_rank_(\d+)_")


@dataclass
class TraceLine:
    """One entry: its kind (`name`: the name of an artifact), the id of its compile ("0/1_2", "" for none), and its
    payload."""

    kind: str
    name: str
    compile_id: str
    rank: int | None
    fields: Any
    payload: str = ""
    whole: bool = True


@dataclass
class Trace:
    """The entries of one file in their order; `damage`: one sentence for each thing that could not be read."""

    path: Path
    entries: list[TraceLine] = field(default_factory=list[TraceLine])
    damage: list[str] = field(default_factory=list[str])


def is_trace(path: Path) -> bool:
    """Whether a file begins as a structured trace does."""
    try:
        with opened(path, named=True) as file:
            return _PREFIX.match(file.readline(4096)) is not None
    except OSError:
        return False


def read(path: Path) -> Trace:
    """Reads a trace, without the kinds of entries that no graph needs. Raises UnreadableError for a file that cannot be
    read."""
    trace, bad, payload = Trace(path), 0, list[bytes]()
    named = _RANK.search(path.name)
    rank = int(named[1]) if named else None
    entry: TraceLine | None = None
    digest = ""

    def end() -> None:
        if entry is not None and digest:
            text = b"\n".join(payload)
            entry.payload = text.decode("utf-8", "replace")
            entry.whole = hashlib.md5(text, usedforsecurity=False).hexdigest() == digest
        payload.clear()

    try:
        with opened(path, named=True) as file:
            for line in file:
                if line.startswith(b"\t"):
                    if digest:
                        payload.append(line[1:].rstrip(b"\n"))
                    continue
                end()
                entry, digest = None, ""
                prefix = _PREFIX.match(line)
                header = _header(line[prefix.end() :]) if prefix else None
                if prefix is None or header is None:
                    bad += bool(line.strip())
                elif (entry := _entry(header, int(prefix[1]) if prefix[1] else rank)) is not None:
                    digest = str(header.get("has_payload") or "")
                    trace.entries.append(entry)
            end()
    except OSError as error:
        raise UnreadableError(f"cannot read {path}", error.strerror or str(error)) from error
    if bad:
        trace.damage.append(f"{path.name}: skipped {counted(bad, 'line')} that cannot be read as a trace")
    return trace


def _header(text: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _entry(header: dict[str, Any], rank: int | None) -> TraceLine | None:
    kind = next((key for key in header if key not in _COMMON), "")
    fields = header.get(kind)
    if not kind or kind in _PASSED_OVER:
        return None
    name = cast("dict[str, Any]", fields).get("name") if isinstance(fields, dict) else None
    own = header.get("rank")
    return TraceLine(kind, str(name or ""), _compile_id(header), own if isinstance(own, int) else rank, fields)


def _compile_id(header: dict[str, Any]) -> str:
    frame, count, attempt, autograd = (
        header.get(key) for key in ("frame_id", "frame_compile_id", "attempt", "compiled_autograd_id")
    )
    known = f"{frame}/{count}" if isinstance(frame, int) and isinstance(count, int) else ""
    if known and isinstance(attempt, int) and attempt:
        known += f"_{attempt}"
    return "/".join(filter(None, (f"!{autograd}" if isinstance(autograd, int) else "", known)))
