"""Hostile dumps, one after the other: each is damaged by its seeded number, and read by every reading command and a replay.

Each lies in a folder of its own and is read in a fork of one warm parent, which calls the commands in process, with a limit of
time and memory, and an audit hook that sees what is started. A dump fails that ends in code 70, starts a program, hangs, takes
more than a gigabyte beside its own size, or reads or writes what lies beside it. What was done stands in SEED.json below
.cache/hostile, and the next call with that seed goes on there.

    python tests/hostile/fuzz.py --minutes 30 --seed 1        # go on with seed 1
    python tests/hostile/fuzz.py --seed 1 --only 4711         # that dump again, kept; what its commands say is printed
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

if __package__:
    from . import mutations
    from .corpus import ROOT, corpus
else:  # run as a script
    import mutations
    from corpus import ROOT, corpus

HOME = ROOT / ".cache" / "hostile"
LIMIT_S = 20.0
"""Of one command, in seconds of computing."""

WHOLE_S = 60.0
"""Of all of them; ten times that by the clock, for what waits and computes nothing."""

MEMORY_BYTES = 1 << 30
SECRET = "what nobody may read"
STARTS = frozenset({"os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "os.fork", "pty.spawn", "ctypes.dlopen"})
STAGES = ("damaged", "opened", "loaded", "built", "replayed")

OF_RUNS = (
    "ls R", "ls R --why", "ls R --time", "ls R --stages --json", "show G", "show G --code", "show G --json",
    "show G --stats", "show G --node N", "diff G H", "diff R R", "draw G -o O1.dot", "draw G --by-module -o O2.dot",
    "pack R -o O3.zip", "ls O3.zip",
)  # fmt: skip
OF_CASES = (
    "ls R", "show R", "show R --json", "show R --code", "show R --stats", "diff R R", "draw R -o O1.dot", "steer R",
    "steer R pause", "pack R -o O3.zip", "report R --preview --json",
)  # fmt: skip


class Sandbox:
    """A folder with one damaged dump, and beside it what may not be touched."""

    def __init__(self, place: Path, source: Path, random: Random) -> None:
        self.place, self.outside = place, place / "outside"
        self.outside.mkdir(parents=True)
        (self.outside / "secret").write_text(SECRET)
        mutations.OUTSIDE = self.outside
        self.dump = place / "work" / source.name
        self.dump.parent.mkdir()
        shutil.copytree(source, self.dump, symlinks=True) if source.is_dir() else shutil.copyfile(source, self.dump)
        (place / "tmp").mkdir()
        self.done = mutations.damage(self.dump, random)
        self.bytes = sum(path.lstat().st_size for path in (self.dump, *self.dump.rglob("*")))

    def touched(self) -> list[str]:
        """What became of the outside, and what temporary folders were left."""
        found = [path.name for path in self.outside.iterdir() if path.name != "secret"]
        if (self.outside / "secret").read_text() != SECRET:
            found.append("secret")
        return [f"outside/{name}" for name in found]


def read_all(box: Sandbox, kind: str) -> dict[str, Any]:
    """In a fork: every command; the stage that was reached, codes, and what went wrong."""
    from graphdbg.cli import run
    from graphdbg.dumps.errors import GraphdbgError
    from graphdbg.dumps.store import Run, resolve

    started: list[str] = []
    sys.addaudithook(lambda event, args: started.append(f"{event} {args[:1]!r:.120}") if event in STARTS else None)
    told: dict[str, Any] = {"stage": "damaged", "codes": collections.Counter(), "wrong": [], "why": ""}
    graph = other = str(box.dump)
    node = "x"
    try:
        found = resolve(str(box.dump))
        told["stage"] = "opened"
        if isinstance(found, Run):
            saved = found.graphs()
            loadable = [one for one in saved if _loads(one)] or saved
            graph, other = f"{box.dump}/{loadable[0].id}", f"{box.dump}/{loadable[-1].id}"
            found = loadable[0]
        node = found.record.graph.nodes[-1].name
        told["stage"] = "loaded"
    except (GraphdbgError, OSError, IndexError) as error:
        told["why"] = f"{type(error).__name__}: {error}"
    lines = OF_RUNS if kind in ("run", "pack") else OF_CASES
    names = {"R": str(box.dump), "G": graph, "H": other, "N": node}
    for line in lines:
        words = [names.get(word, str(box.place / word) if re.match(r"O\d", word) else word) for word in line.split(" ")]
        said = io.StringIO()
        begun = time.process_time()
        (box.place / "now").write_text(line)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = run(words)
            except SystemExit as error:
                code = int(error.code or 0)
        if (spent := time.process_time() - begun) > LIMIT_S:
            told["wrong"].append({"kind": "slow", "what": line, "text": f"{spent:.0f} s"})
        told["codes"][str(code)] += 1
        text = said.getvalue()
        if code not in (0, 1, 2, 3, 4):
            told["wrong"].append({"kind": f"code {code}", "what": line, "text": text[-3000:]})
        if SECRET in text:
            told["wrong"].append({"kind": "secret", "what": line, "text": text[-300:]})
    if told["stage"] == "loaded":
        replayed(found, told)
    for one in started:
        told["wrong"].append({"kind": "started", "what": one, "text": ""})
    return told


def _loads(saved: Any) -> bool:
    from graphdbg.dumps.errors import GraphdbgError

    try:
        return bool(saved.record.graph.nodes)
    except (GraphdbgError, OSError):
        return False


def replayed(saved: Any, told: dict[str, Any]) -> None:
    """What the child of `replay --rung nop` does."""
    from graphdbg.dumps.errors import GraphdbgError
    from graphdbg.toolkit.case import Case
    from graphdbg.toolkit.replay import How, task

    rest = {"check": "auto", "own_nan": False, "measured": False, "keep": None, "shared": None}
    payload = {**How().payload(saved), "rung": "nop", **rest}
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            Case.at(payload["path"]).live(rung="nop", seed=0, device=None, meeting="")
            told["stage"] = "built"
            task(payload)
        told["stage"] = "replayed"
    except GraphdbgError as error:
        told["why"] = f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - in the child of a replay it becomes a verdict
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _ours(frame.filename)]
        place = f"{Path(frames[-1].filename).relative_to(ROOT)}:{frames[-1].lineno}" if frames else ""
        told["raised"] = f"{type(error).__name__} at {place}: {str(error)[:150]}"


def _ours(file: str) -> bool:
    return file.startswith(str(ROOT)) and ".venv" not in file


def one(seed: int, number: int, made: dict[str, Path], place: Path, *, kept: bool = False) -> dict[str, Any]:
    """One dump, in a fork: what was done to it and what came of it."""
    random = Random(f"{seed}:{number}")
    kind = random.choice(("run", "run", "run", "case", "case", "pack", "out"))
    box = Sandbox(place, made[kind], random)
    report = place / "report"
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        _in_fork(box, kind, report, said=kept)
    ended, peak = _waited(child, begun)
    told: dict[str, Any] = json.loads(report.read_bytes()) if report.exists() else {"stage": "damaged", "codes": {}, "wrong": []}
    if ended:
        told["wrong"].append({"kind": ended, "what": (place / "now").read_text() if (place / "now").exists() else "", "text": ""})
    if peak - told.get("before", peak) > MEMORY_BYTES + box.bytes:
        told["wrong"].append({"kind": "memory", "what": f"{(peak - told['before']) >> 20} MiB", "text": ""})
    told["wrong"] += [{"kind": "outside", "what": what, "text": ""} for what in box.touched()]
    left = [path.name for path in (place / "tmp").iterdir() if path.name.startswith("graphdbg-")]
    if left and not ended:
        told["wrong"].append({"kind": "left", "what": left[0], "text": ""})
    return {**told, "number": number, "dump": kind, "done": box.done, "seconds": time.monotonic() - begun}


def _in_fork(box: Sandbox, kind: str, report: Path, *, said: bool) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        os.chdir(box.place / "work")
        own = str(box.place / "tmp")
        os.environ |= {"HOME": own, "TMPDIR": own, "XDG_CACHE_HOME": f"{own}/cache"}
        tempfile.tempdir = str(box.place / "tmp")
        before = _rss_bytes()
        told = read_all(box, kind)
        if said:
            print(json.dumps(told, indent=1))
        from graphdbg.dumps import temporary

        temporary.remove_mine()
        report.write_text(json.dumps({**told, "before": before}))
        code = 0
    except BaseException:  # noqa: BLE001 - told to the parent, and no further: this is a fork
        wrong = {"kind": "fuzzer", "what": "", "text": traceback.format_exc()[-3000:]}
        report.write_text(json.dumps({"stage": "damaged", "codes": {}, "before": 0, "wrong": [wrong]}))
    finally:
        sys.stdout.flush()
        os._exit(code)


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu_s(pid: int) -> float:
    """The time that a process computed: on a busy machine the clock says little."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _waited(child: int, begun: float) -> tuple[str, int]:
    """How a fork ended that did not end well, and the memory that it took at most."""
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            return (f"signal {number}" if number else ""), usage.ru_maxrss << 10
        if _cpu_s(child) > WHOLE_S or time.monotonic() - begun > 10 * WHOLE_S:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hang", 0
        time.sleep(0.01)


class Counts:
    """What was seen with one seed, over all calls."""

    def __init__(self, seed: int, home: Path) -> None:
        self.path = home / f"{seed}.json"
        known: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.done = int(known.get("done", 0))
        self.stages = collections.Counter(known.get("stages", {}))
        self.codes = collections.Counter(known.get("codes", {}))
        self.raised: dict[str, list[int]] = known.get("raised", {})
        self.wrong: dict[str, list[int]] = known.get("wrong", {})
        self.seconds = float(known.get("seconds", 0.0))

    def add(self, told: dict[str, Any]) -> None:
        """Counts one dump."""
        self.done = told["number"] + 1
        self.stages[told["stage"]] += 1
        self.codes.update(told["codes"])
        self.seconds += told["seconds"]
        if "raised" in told:
            self.raised.setdefault(told["raised"], []).append(told["number"])
        for wrong in told["wrong"]:
            self.wrong.setdefault(self.named(wrong), []).append(told["number"])

    @staticmethod
    def named(wrong: dict[str, str]) -> str:
        """The same for what is the same: of a traceback the last place of ours, and the error."""
        places = re.findall(r'File "([^"]+)", line (\d+)', wrong["text"])
        ours = [f"{Path(file).name}:{line}" for file, line in places if _ours(file)]
        last = [line for line in wrong["text"].strip().splitlines() if re.match(r"\w*(Error|Exception)\b", line)]
        parts = (wrong["kind"], "" if ours else wrong["what"], *ours[-1:], *(line[:120] for line in last[-1:]))
        return " · ".join(filter(None, parts))

    def keep(self) -> None:
        """Writes them for the next call."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = {name: getattr(self, name) for name in ("done", "stages", "codes", "raised", "wrong", "seconds")}
        self.path.write_text(json.dumps(whole, indent=1))

    def text(self) -> str:
        """For people."""
        reached, lines = 0, [f"{self.done} dumps in {self.seconds:.0f} s"]
        for stage in reversed(STAGES):
            reached += self.stages[stage]
            lines.append(f"  reached {stage:<9} {reached}")
        lines.append("  codes " + ", ".join(f"{code}: {count}" for code, count in sorted(self.codes.items())))
        for head, found in (("  a replay raised ", self.raised), ("WRONG ", self.wrong)):
            lines += [f"{head}{what}: {len(numbers)}, first {numbers[0]}" for what, numbers in sorted(found.items())]
        return "\n".join(lines)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as place:
        yield Path(place)


def warm() -> None:
    """Imports what every fork needs."""
    import torch

    torch.set_num_threads(1)
    from graphdbg.cli import COMMANDS
    from graphdbg.dumps import live  # noqa: F401
    from graphdbg.toolkit import judge, replay  # noqa: F401
    from graphdbg.toolkit.rungs import nop  # noqa: F401

    for name in ("ls", "show", "diff", "draw", "pack", "steer", "report"):
        module = COMMANDS[name][1].partition(":")[0]
        __import__(f"graphdbg.{module}")


def fuzz(seed: int, minutes: float, most: int | None = None, home: Path = HOME) -> Counts:
    """Goes on with a seed for so long, or so many dumps."""
    made, counts = corpus(HOME / "corpus"), Counts(seed, home)
    warm()
    gc.freeze()  # forks share what is there
    until, last = time.monotonic() + 60 * minutes, counts.done + most if most else None
    while time.monotonic() < until and (last is None or counts.done < last):
        with folder() as place:
            counts.add(one(seed, counts.done, made, place / "one"))
        if counts.done % 50 == 0:
            counts.keep()
    counts.keep()
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--count", type=int, help="this many dumps at most")
    parser.add_argument("--counts", type=Path, default=HOME, metavar="DIR", help="where SEED.json lies")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this dump alone; its folder is kept")
    asked = parser.parse_args()
    if asked.only is not None:
        warm()
        place = Path(tempfile.mkdtemp(prefix="hostile-kept-")) / "one"
        told = one(asked.seed, asked.only, corpus(HOME / "corpus"), place, kept=True)
        print(place, told["dump"], *told["done"], told.get("raised", ""), *(wrong["text"] for wrong in told["wrong"]), sep="\n")
        return bool(told["wrong"])
    counts = fuzz(asked.seed, asked.minutes, asked.count, asked.counts)
    print(f"seed {asked.seed}: {counts.text()}")
    return bool(counts.wrong)


if __name__ == "__main__":
    sys.exit(main())
