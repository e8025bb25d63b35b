"""What a fork does with a damaged dump: every reading command, and what the child of `replay --rung nop` does; how far
it got.

>>> read_all(box, "run", print)["stage"]
'replayed'
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import io
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from .corpus import ROOT
from .sandbox import LIMIT_S, SECRET, Sandbox, Told, wrong

STAGES = {
    "damaged": "were damaged",
    "opened": "were found to be a dump",
    "listed": "whose graphs were listed",
    "loaded": "one of whose graphs was loaded",
    "built": "that reached replay: the program was built",
    "replayed": "that were judged",
}
CODES = frozenset({0, 1, 2, 3, 4, 141})
OF_RUNS = (
    "ls",
    "ls R",
    "ls R --why",
    "ls R --time",
    "ls R --stages --json",
    "show G",
    "show G --code",
    "show G --kernel",
    "show G --json",
    "show G --stats",
    "show G --node N",
    "diff G H",
    "diff R R",
    "draw G -o O1.dot",
    "draw G --by-module -o O2.dot",
    "pack R -o O3.zip",
    "pack R -o O4.html",
    "ls O3.zip",
)
OF_CASES = (
    "ls",
    "ls R",
    "show R",
    "show R --json",
    "show R --code",
    "show R --stats",
    "show R --node N",
    "diff R R",
    "draw R -o O1.dot",
    "steer R",
    "steer R pause",
    "pack R -o O3.zip",
    "report R --preview --json",
)


def read_all(box: Sandbox, kind: str, say: Callable[[Told], object], *, replays: bool = True) -> Told:
    """Every command; the stage that was reached, codes, and what went wrong."""
    from graphdbg.dumps.errors import GraphdbgError
    from graphdbg.dumps.store import Run, SavedGraph, resolve

    messages: Told = {"stage": "damaged", "codes": collections.Counter(), "wrong": [], "why": ""}
    names, loads = {"R": str(box.dump), "G": str(box.dump), "H": str(box.dump), "N": "x"}, []
    try:
        with _limited():
            result = resolve(str(box.dump))
            messages["stage"] = "opened"
            graphs: list[SavedGraph] = result.graphs() if isinstance(result, Run) else [result]
            messages["stage"] = "listed"
            graphs.sort(key=lambda item: not any(f"/{item.local_id}/" in line for line in box.done) if item.run else 0)
            loads = list(itertools.islice(filter(_loads, graphs), 3))
            saved = (loads or graphs)[0]
            names |= {"G": saved.name, "H": graphs[-1].name, "N": saved.record.graph.nodes[-1].name}
            messages["stage"] = "loaded"
    except (GraphdbgError, OSError, IndexError) as error:
        messages["why"] = f"{type(error).__name__}: {error}"
    say({"stage": messages["stage"]})
    for line in OF_RUNS if kind in ("run", "pack") else OF_CASES:
        if re.search(r"O[34]", line) is None or box.packed in line.split(
            " "
        ):  # looking for secrets takes longer than all else
            say({"now": line})
            _one(box, line, names, messages)
    say({"now": "replay"})
    for saved in loads if replays else ():
        if messages["stage"] == "loaded":
            with _limited():
                _replayed(saved, messages)
    return messages


def _one(box: Sandbox, line: str, names: dict[str, str], reported: Told) -> None:
    from graphdbg.cli import run
    from graphdbg.dumps.output import settle

    said = io.StringIO()
    packs = line.startswith("pack")  # every byte is searched, and a small file may hold 480 MB of text
    with contextlib.redirect_stderr(said), box.stdout(said), _limited(3 * LIMIT_S if packs else LIMIT_S):
        try:
            code = run(words(box, line, names))
        except SystemExit as error:
            code = int(error.code or 0)
        code = settle(code)
    text = said.getvalue()
    reported["codes"][str(code)] += 1
    if code not in CODES:
        reported["wrong"].append(wrong(f"code {code}", line, text))
    if SECRET in text or any(map(_gives_away, box.place.glob("O*"))):
        reported["wrong"].append(wrong("secret", line, text[-300:]))


def words(box: Sandbox, line: str, names: dict[str, str]) -> list[str]:
    """A command line of this dump; what it writes lies in the place of the dump."""
    return [names.get(word, str(box.place / word) if re.match(r"O\d", word) else word) for word in line.split(" ")]


@contextlib.contextmanager
def _limited(seconds: float = LIMIT_S) -> Any:
    """So much computing for what is done within; SIGPROF ends the fork."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _gives_away(path: Path) -> bool:
    if path.suffix != ".zip":
        return SECRET.encode() in path.read_bytes()
    try:
        with zipfile.ZipFile(path) as packed:
            return any(SECRET.encode() in packed.read(name) for name in packed.infolist() if name.file_size < 1 << 20)
    except (OSError, zipfile.BadZipFile):
        return False


def _loads(saved: Any) -> bool:
    from graphdbg.dumps.errors import GraphdbgError

    try:
        return bool(saved.record.graph.nodes)
    except (GraphdbgError, OSError):
        return False


def _replayed(saved: Any, reported: Told) -> None:
    """What the child of `replay --rung nop` does."""
    from graphdbg.dumps.errors import GraphdbgError
    from graphdbg.toolkit.live.case import Case
    from graphdbg.toolkit.replaying.replay import How, task

    rest = {"check": "auto", "own_nan": False, "measured": False, "anyway": False, "without": [], "registered": []}
    rest |= {"keep": None, "shared": None}
    payload = {**How().payload(saved), "rung": "nop", **rest}
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            Case.at(payload["path"]).live(rung="nop", seed=0, device=None, meeting="")
            reported["stage"] = "built"
            task(payload)
        reported["stage"] = "replayed"
    except GraphdbgError as error:
        reported["why"] = f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - in the child of a replay it becomes a verdict
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if ours(frame.filename)]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        reported["raised"] = f"{type(error).__name__} at {place}: {str(error)[:150]}"


def ours(file: str) -> bool:
    """Whether a file is the tool's own."""
    return file.startswith(str(ROOT)) and "site-packages" not in file


def by_command_line(box: Sandbox, kind: str, random: Random) -> list[Told]:
    """One command of them, or a replay, as a process of its own; what was wrong."""
    line = random.choice([*(OF_RUNS if kind in ("run", "pack") else OF_CASES), *["replay R --rung nop"] * 6])
    asked = [sys.executable, "-m", "graphdbg", *words(box, line, dict.fromkeys("RGH", str(box.dump)) | {"N": "x"})]
    known = os.environ | {"HOME": str(box.own), "TMPDIR": str(box.own), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            asked,
            cwd=box.dump.parent,
            env=known,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=600,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [wrong("hang", f"$ {line}")]
    text = done.stdout + done.stderr
    result = [] if done.returncode in CODES else [wrong(f"code {done.returncode}", f"$ {line}", text)]
    return result + ([wrong("secret", f"$ {line}", text[-300:])] if SECRET in text else [])


def warm(entry: dict[str, Path]) -> None:
    """Has every fork find what it needs: all is done once with the dumps as they were made. A replay imports only, by
    the names that a fork of its own tells: an engine for gradients that ran here would not run in forks."""
    import torch

    torch.set_num_threads(1)
    from graphdbg.toolkit.replaying import replay  # noqa: F401

    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        os.chdir(folder)
        for kind in ("small", "case"):
            box = Sandbox(Path(folder) / kind, entry[kind], None)
            reported = read_all(box, "run" if kind == "small" else kind, lambda _: None, replays=False)
            assert not reported["wrong"], reported
            modules = box.watched(_modules_of_a_replay(box))
            assert not modules["wrong"] and modules["stage"] == "replayed", modules
            for name in modules["modules"]:
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
        os.chdir(ROOT)


def _modules_of_a_replay(box: Sandbox) -> Callable[..., Told]:
    def work(say: Callable[[Told], object]) -> Told:
        known = set(sys.modules)
        reported = read_all(box, "case" if (box.dump / "graph.json").exists() else "run", say)
        return reported | {
            "modules": [name for name in sys.modules if name not in known and not name.startswith("triton")]
        }

    return work
