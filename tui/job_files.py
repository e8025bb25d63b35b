"""The folders of jobs on disk: one each, so that what a command printed outlives the workbench, and another one finds
it again.

`$XDG_STATE_HOME/graphdbg/jobs/ID/` holds job.json (the words, the folder it was started in, its process), out, err and,
once it ended, exit. A command that judged in a shell leaves one, too, without a process (`keep`). Starts, signals and
judges no job. Reading deletes nothing; only a new job drops the oldest ended ones.

For example:

    [(found.line, found.state) for found in recent()]
    # [('graphdbg triage myrun/0_0/forward', 'running'), ('graphdbg minify myrun/0_0/forward -o out', 'ended')]
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from platformdirs import user_state_path

from ..dumps.atomic import cannot_write, write_file
from ..dumps.errors import GraphdbgError
from ..dumps.graph_folder import encode
from ..dumps.lines import objects
from ..dumps.opening import opened
from ..dumps.process import ProcessRecord, describe, liveness, start_ticks
from ..dumps.reading import read_record
from ..dumps.schema import FORMAT, Record

KEPT = 50
"""How many ended jobs, and how many typed in a shell, are kept; a new one drops the oldest of its sort beyond."""
TYPED = "-typed"
"""How the names of folders of typed commands end."""
MOST_BYTES = 1 << 25
"""The size up to which the findings of a command in a shell are kept."""

NORMAL = (0, 1, 4)
"""Exit codes of a command that did what it was asked: nothing fails, something does, or that cannot be decided."""

LINES = "--json-lines"
LAST_BYTES = 1 << 20
JOB_FILE, OUT_FILE, ERR_FILE, EXIT_FILE = "job.json", "out", "err", "exit"

State = Literal["running", "ended", "gone", "elsewhere"]
"""gone: it died and nobody saw how; elsewhere: on another host, it can be watched only."""

_count = itertools.count()


class JobRecord(Record, kw_only=True):
    """job.json. `passing`: only the workbench wanted the job (a comparison to draw), so it is not listed."""

    format: int
    words: list[str]
    cwd: str
    started: float = 0.0
    process: ProcessRecord | None = None
    passing: bool = False


class JobFile(msgspec.Struct):
    """One job found in the folder: `code` as far as it is known, `ended` when (seconds since 1970)."""

    folder: Path
    record: JobRecord
    state: State
    code: int | None = None
    ended: float | None = None

    @property
    def line(self) -> str:
        """The command line as a user would type it."""
        return shlex.join(["graphdbg", *self.record.words])

    @property
    def here(self) -> bool:
        """Whether the job was started in the current folder."""
        return Path(self.record.cwd) == Path.cwd().resolve()

    def age_s(self) -> float:
        """Seconds since the job ended, or else since it started."""
        return max(0.0, time.time() - (self.ended or self.record.started))


def state_folder() -> Path:
    """The folder of copies, crash texts and the like."""
    return user_state_path("graphdbg")


def writable(folder: Path) -> Path:
    """The folder, created; where it cannot be written, one for this user in the temporary folder. Raises OSError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except OSError:
        pass  # the other place is named wherever a file in it is named
    other = _temporary(folder.name)
    other.mkdir(mode=0o700, parents=True, exist_ok=True)
    return other


def homes() -> list[Path]:
    """Folders where jobs may lie: the user's state folder, then one in the folder for temporary files."""
    return [state_folder() / "jobs", _temporary("jobs")]


def _temporary(name: str) -> Path:
    """A folder of this user in the folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"graphdbg-{os.getuid() if hasattr(os, 'getuid') else 0}" / name


def new_folder(
    words: Sequence[str],
    *,
    passing: bool,
    files: Mapping[str, bytes] = MappingProxyType({}),
    began: float | None = None,
) -> tuple[Path, str]:
    """A folder for a new job with its job.json, and a sentence where it is not the usual place. `files`: of one that
    has ended already, and `began` when. Raises EnvironmentLackError."""
    refused: list[OSError | GraphdbgError] = []
    record = JobRecord(format=FORMAT, words=list(words), cwd=str(Path.cwd().resolve()), passing=passing)
    record.started = time.time() if began is None else began
    typed = TYPED if files else ""
    for home in homes():
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(_count):04}{typed}"
        folder = home / (f".{name}" if files else name)
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            _refuse_a_strangers(home)
            _trim(home, typed)
            folder.mkdir()
            for file, data in {**files, JOB_FILE: encode(record)}.items():
                write_file(folder / file, data)
            if files:  # it is seen when it is whole
                folder = folder.rename(home / name)
        except (OSError, GraphdbgError) as error:
            refused.append(error)
            shutil.rmtree(folder, ignore_errors=True)
            continue
        why = f"jobs are kept in {home}, for {refused[0]}" if refused else ""
        return folder, why
    error = refused[-1]
    raise error if isinstance(error, GraphdbgError) else cannot_write(homes()[-1], error)


def keep(
    typed: Sequence[str], began: float, asked: str, target: str, lines: Iterable[dict[str, Any]], code: int
) -> None:
    """Keeps the findings of a command in a shell as a job that has ended, as the workbench would have started it;
    nothing is kept where nothing can be written, or where it is too large."""
    options = [word for word in typed[1:] if word not in ("--json", LINES)]
    if asked in options:
        options.remove(asked)
    words = [typed[0], target, *options, "--json" if typed[0] in ("bisect", "check") else LINES]
    out = bytearray()
    for line in lines:
        out += json.dumps(line).encode() + b"\n"
        if len(out) > MOST_BYTES:
            return
    with contextlib.suppress(OSError, GraphdbgError):
        files = {OUT_FILE: bytes(out), ERR_FILE: b"", EXIT_FILE: str(code).encode()}
        new_folder(words, passing=False, files=files, began=began)


def _refuse_a_strangers(home: Path) -> None:
    """Refuses a folder that another user made in the folder for temporary files."""
    if hasattr(os, "getuid") and home.stat().st_uid != os.getuid():
        raise PermissionError(13, "it belongs to another user", str(home))


def note_process(folder: Path, pid: int) -> None:
    """Writes the process of a job into job.json. Raises EnvironmentLackError."""
    record = read_record(folder / JOB_FILE, JobRecord)
    record.process = msgspec.structs.replace(describe("job"), pid=pid, start_ticks=start_ticks(pid) or 0, argv=[])
    write_file(folder / JOB_FILE, encode(record))


def code_of(folder: Path) -> int | None:
    """The recorded exit code of a job: minus the number of a signal that killed it; None where there is none."""
    try:
        code = int((folder / EXIT_FILE).read_text())
    except (OSError, ValueError):
        return None
    return code if code < 128 else 128 - code


def look(folder: Path) -> JobFile:
    """A job in its present state. Raises GraphdbgError where its job.json cannot be read."""
    record = read_record(folder / JOB_FILE, JobRecord)
    code = code_of(folder)
    ends = "dead" if code is None else "ended"
    alive = ends if record.process is None else liveness(record.process, ended=code is not None)
    states: dict[str, State] = {"ended": "ended", "alive": "running", "dead": "gone", "unknown": "elsewhere"}
    ended = None
    if alive in ("ended", "dead"):
        with contextlib.suppress(OSError):
            files = [folder / name for name in (EXIT_FILE, OUT_FILE, ERR_FILE, JOB_FILE)]
            ended = max(file.stat().st_mtime for file in files if file.exists())
    return JobFile(folder, record, states[alive], code, ended)


def stamp() -> list[int]:
    """A stamp that changes whenever a job came or went."""
    seen: list[int] = []
    for home in homes():
        with contextlib.suppress(OSError):
            seen.append(home.stat().st_mtime_ns)
    return seen


def recent() -> list[JobFile]:
    """The jobs there are, the newest first; folders that cannot be read, and passing ones, are left out."""
    jobs: list[JobFile] = []
    for folder in (folder for home in homes() for folder in _folders(home)):
        with contextlib.suppress(GraphdbgError):
            jobs.append(look(folder))
    listed = (kept for kept in jobs if not kept.record.passing)
    return sorted(listed, key=lambda kept: kept.record.started, reverse=True)[: 2 * KEPT]


def option(words: Sequence[str], *names: str) -> str:
    """The value behind an option; empty where the option is missing."""
    return next((after for word, after in itertools.pairwise(words) if word in names), "")


def kind_of(words: Sequence[str]) -> str:
    """The kind of a job as Replay starts it (triage, values, bisect); empty for anything else."""
    if words[:1] == ["triage"] and LINES in words:
        return "triage"
    if words[:1] == ["replay"] and "--values" in words and LINES in words:
        return "values"
    return "bisect" if words[:1] == ["bisect"] and "--json" in words else ""


def conditions(words: Sequence[str]) -> list[str]:
    """The words of a ladder's command except its rungs: seed, device, imports."""
    rungs = option(words, "--rungs")
    return [word for word in words if word not in ("--rungs", rungs, "--all", LINES)]


def recorded_at(target: Path) -> float:
    """When the run or case that a graph lies in was written; an older job was about another one of that name."""
    for path in (target, *target.parents):
        for file in (path / "run.json", path / "graph.json", path):
            if file.is_file():
                return file.stat().st_mtime
    return 0.0


def _about(graph: str) -> list[JobFile]:
    """The jobs about a graph, the newest first."""
    wanted = Path(graph).absolute()
    since = recorded_at(wanted)
    jobs = [kept for kept in recent() if kept.record.started >= since and len(kept.record.words) > 1]
    return [kept for kept in jobs if Path(kept.record.cwd, kept.record.words[1]) == wanted]


def of_graph(graph: str) -> dict[str, JobFile]:
    """The newest job about a graph of each kind, which Replay shows again."""
    by_kind: dict[str, JobFile] = {}
    for kept in _about(graph):
        if kind := kind_of(kept.record.words):
            by_kind.setdefault(kind, kept)
    return by_kind


def finding(kept: JobFile) -> str:
    """The finding of a job that has ended, in a few words."""
    said = {} if kept.state == "running" else _last_said(kept.folder)
    return str(said.get("sentence") or said.get("summary") or said.get("reason") or "")


@functools.lru_cache(maxsize=256)
def _last_said(folder: Path) -> dict[str, Any]:
    """The last JSON object that an ended job printed; empty where there is none."""
    return next(iter(objects(reversed(end_of(folder / OUT_FILE, LAST_BYTES)))), {})


def end_of(path: Path, most_bytes: int) -> list[bytes]:
    """The lines at the end of a file; none where it cannot be read."""
    with contextlib.suppress(OSError), opened(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
        return file.read().splitlines()
    return []


def rungs_so_far(graph: str) -> list[dict[str, Any]]:
    """The `rung` lines of earlier ladders of a graph that ran under the conditions of the newest one, the oldest
    first; of a graph that has no ladder of its own those of the newest triage of its run."""
    ladders = [kept for kept in _about(graph) if kind_of(kept.record.words) == "triage"]
    rung_lines: list[dict[str, Any]] = [] if ladders else _rungs_of_run(graph)
    for kept in reversed(ladders[1:]):
        if conditions(kept.record.words) == conditions(ladders[0].record.words):
            rung_lines += [line for line in printed(kept) if line.get("event") == "rung"]
    return rung_lines


def _rungs_of_run(graph: str) -> list[dict[str, Any]]:
    wanted = Path(graph).absolute()
    since, own = recorded_at(wanted), {"rung", "graph"}
    for kept in recent():
        words = kept.record.words
        target = Path(kept.record.cwd, *words[1:2])
        if kept.record.started < since or kind_of(words) != "triage" or target not in wanted.parents:
            continue
        name, rung = wanted.relative_to(target).as_posix(), option(words, "--rungs") or "inductor"
        lines = [{"rung": rung, **line} for line in printed(kept) if line.get("event") in own]
        return [{**line, "event": "rung"} for line in lines if name in (line.get("graph"), line.get("id"))]
    return []


def printed(kept: JobFile) -> Iterator[dict[str, Any]]:
    """The JSON objects that a job has printed so far."""
    with contextlib.suppress(OSError), opened(kept.folder / OUT_FILE) as out:
        yield from objects(out)


def _folders(home: Path) -> list[Path]:
    try:
        return sorted(path for path in home.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []


def _trim(home: Path, typed: str) -> None:
    """Removes the oldest ended jobs beyond those that are kept, and none that may still run. `typed`: those of a
    shell."""
    folders = [folder for folder in _folders(home) if folder.name.endswith(TYPED) == bool(typed)]
    for folder in folders[: max(0, len(folders) - KEPT + 1)]:
        with contextlib.suppress(GraphdbgError):
            if look(folder).state in ("ended", "gone"):
                shutil.rmtree(folder, ignore_errors=True)
