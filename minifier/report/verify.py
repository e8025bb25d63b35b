"""Runs a repro in fresh processes, each with its own Inductor cache: how often it shows the bug, and the first layer to
fail.

Also: a repro under the user's own torch: which torch a Python has, what the program shows there, and when that torch
was built again.

>>> first_layer({"eager": 0, "aot_eager": 0, "aot_eager_decomp_partition": 0}, "inductor")
('', 'inductor (eager, aot_eager and aot_eager_decomp_partition pass)')
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ...dumps.errors import CannotStartError
from ...dumps.wording import counted, flat, joined
from ...toolkit.isolation.cache import toolchain_seed
from ...toolkit.isolation.fresh import BUG, GONE, FreshRun, run_command, run_many
from .environment import package_version

ANSWER_S = 120.0

BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition")
"""Backends of torch whose layers come before Inductor's."""

_PROBE = """
import functools, json, runpy, sys, torch
program, real, codes = sys.argv[1], torch.compile, {}
for backend in sys.argv[2:]:
    def compile(function, **options):
        return real(function, **{**options, "backend": backend})
    torch.compile = compile
    torch._dynamo.reset()
    try:
        runpy.run_path(program, run_name="__main__")
        codes[backend] = 0
    except SystemExit as end:
        codes[backend] = 1 if isinstance(end.code, str) else end.code or 0
    except Exception:
        codes[backend] = 2
open("answer", "w").write(json.dumps(codes))
"""


class _ProgramRuns:
    """Runs of one program."""

    trials: Sequence[FreshRun]

    @property
    def shown(self) -> int:
        """How many runs showed the bug."""
        return sum(trial.code == BUG for trial in self.trials)

    @property
    def rate(self) -> str:
        """The rate as text: `3 of 3 fresh processes`."""
        return f"{self.shown} of {counted(len(self.trials), 'fresh process')}"

    @property
    def output(self) -> str:
        """What a run that showed the bug printed, else what the first one did."""
        chosen = next((trial for trial in self.trials if trial.code == BUG), None)
        return (chosen or self.trials[0]).output if self.trials else ""

    @property
    def ending(self) -> str:
        """How that run ended and its last line: `exit code 2: cannot tell: ...`."""
        last = flat(self.output.strip().rpartition("\n")[2])
        return _ending(self.trials[0].code) + (f": {last}" if last else "")


@dataclass(frozen=True)
class Verification(_ProgramRuns):
    """All runs of one program."""

    trials: Sequence[FreshRun]


def answer_of(python: str, code: str, *arguments: str, **how: Any) -> tuple[Any, FreshRun]:
    """Runs a few lines of Python in a fresh process of `python`. Returns the JSON that they left in the file "answer",
    None where they died; and the run."""
    answers: list[Any] = []

    def read(cwd: Path) -> None:
        answer = cwd / "answer"
        answers.extend([json.loads(answer.read_text(encoding="utf-8"))] if answer.exists() else [None])

    trial = run_command([python, "-c", code, *arguments], limit_s=ANSWER_S, after=read, **how)
    return answers[0], trial


def probe(program: Path, **how: Any) -> dict[str, int]:
    """The exit code that a repro would have under each backend of BACKENDS, in one fresh process; empty where that
    dies.

    Only for one that enters through plain `torch.compile`: one that enters behind AOTAutograd has its layer by
    construction.
    """
    return answer_of(sys.executable, _PROBE, str(program.resolve()), *BACKENDS, **how)[0] or {}


def first_layer(codes: Mapping[str, int], rung: str) -> tuple[str, str]:
    """The first stock backend that fails before Inductor comes in, empty for none; and the first failing layer in
    words."""
    if failing := next((backend for backend in BACKENDS if codes.get(backend) == BUG), ""):
        return failing, f"{failing} (so Inductor's code generation is not needed for the failure)"
    passing = [backend for backend in BACKENDS if codes.get(backend) == GONE]
    return "", f"{rung} ({joined(passing)} pass{'es' if len(passing) == 1 else ''})" if passing else rung


TIMES = 3
POLL_S, QUIET_S = 1.0, 3.0
"""How often the files of a watched torch are looked at, and how long they have to be unchanged until it counts as
built."""

_BUILT = (".py", ".so", ".pyd", ".dylib")
_ASIDE = frozenset({"include", "share", "test", "__pycache__"})

_UNDER_PROBE = """
import importlib.util, json, sys
spec = importlib.util.find_spec("torch")
problem = "it has no torch" if spec is None else ""
answer = {"version": "", "file": spec.origin if spec is not None else "", "problem": problem}
def write():
    with open("answer", "w") as file:
        json.dump(answer, file)
try:
    with open(sys.argv[1], encoding="utf-8") as file:
        compile(file.read(), sys.argv[1], "exec")
    if spec is not None:
        answer["problem"] = "its torch dies when it is imported"
        write()
        import torch
        answer["version"], answer["problem"] = torch.__version__, ""
except SyntaxError as error:
    answer["problem"] = f"it cannot read the program (Python {sys.version.split()[0]}): {error}"
except Exception as error:
    answer["problem"] = f"its torch cannot be imported: {type(error).__name__}: {error}"
write()
"""


@dataclass(frozen=True)
class TorchThere:
    """The torch of a Python. `problem`: why no program can run with it; `folder`: where its files lie, or None."""

    python: str
    version: str = ""
    folder: Path | None = None
    problem: str = ""


@dataclass(frozen=True)
class Shown(_ProgramRuns):
    """What a program showed. `flaky`: the failure was recorded in only a share of the runs."""

    program: Path
    torch: TorchThere
    trials: Sequence[FreshRun] = ()
    flaky: bool = False

    @property
    def says(self) -> Literal["shows", "passes", "none"]:
        """Whether it shows the failure, as often as the case does; "none" where that cannot be decided."""
        codes = [trial.code for trial in self.trials]
        if codes and (self.shown == len(codes) or (self.flaky and self.shown)):
            return "shows"
        return "passes" if GONE in codes else "none"

    @property
    def exit_code(self) -> int:
        """0: it fails, 1: it does not, 4: that cannot be decided."""
        return {"shows": 0, "passes": 1, "none": 4}[self.says]

    def sentence(self) -> str:
        """The sentence for people."""
        where = f"torch {self.torch.version} of {self.torch.python}"
        if self.torch.problem:
            return f"{self.program}: it cannot be determined, {self.torch.python}: {self.torch.problem}"
        if self.says == "none":
            how = ", ".join(_ending(trial.code) for trial in self.trials)
            return f"{self.program}: it cannot be determined under {where} (its runs ended with {how})"
        return f"{self.program}: the failure shows in {self.rate} under {where}"

    def plain(self) -> dict[str, Any]:
        """The fields for --json."""
        return {
            "repro": self.says,
            "repro_path": str(self.program),
            "python": self.torch.python,
            "torch": self.torch.version or None,
            "shown": self.shown,
            "times": len(self.trials),
            "codes": [trial.code for trial in self.trials],
            "reason": self.sentence(),
            "output": self.output.strip(),
        }


def _ending(code: int | None) -> str:
    return "the time limit" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"


def interpreter(name: str) -> str:
    """The path of a Python, links not followed: they are what makes a virtual environment. Raises UsageError."""
    path = shutil.which(Path(name).expanduser()) if name else None
    if path is None:
        why = "there is no such program" if not Path(name).is_dir() else "it is a folder"
        raise CannotStartError(
            f"cannot run {name}", why, "name the Python of that torch, such as ~/pytorch/.venv/bin/python"
        )
    return str(Path(path).absolute())


def torch_of(python: str, program: Path) -> TorchThere:
    """Which torch a Python has, asked in a process of it, which also checks that it can read `program`."""
    if python == sys.executable:
        spec = find_spec("torch")
        folder = Path(spec.origin).parent if spec is not None and spec.origin else None
        return TorchThere(python, package_version("torch") or "", folder, "" if folder else "it has no torch")
    there, trial = answer_of(python, _UNDER_PROBE, str(program.resolve()))
    if there is None:
        last = (trial.output.strip().splitlines() or [_ending(trial.code)])[-1]
        return TorchThere(python, problem=f"it does not run as a Python: {last}")
    return TorchThere(python, there["version"], Path(there["file"]).parent if there["file"] else None, there["problem"])


def shown(program: Path, torch: TorchThere, *, path: Sequence[str] = (), flaky: bool = False) -> Shown:
    """Runs the program with that torch. `path`: folders where it finds modules beside torch."""
    if torch.problem:
        return Shown(program, torch)
    trials = run_many(program, TIMES, python=torch.python, seed=toolchain_seed(), path=path)
    return Shown(program, torch, trials, flaky)


def builds(folder: Path, *, poll_s: float = POLL_S, quiet_s: float = QUIET_S) -> Iterator[None]:
    """Yields each time that the files of a torch have changed and come to rest. Never ends by itself."""
    known = _state(folder)
    while True:
        time.sleep(poll_s)
        now = _state(folder)
        if now == known:
            continue
        since = time.monotonic()
        while time.monotonic() - since < quiet_s:
            time.sleep(poll_s)
            if (later := _state(folder)) != now:
                now, since = later, time.monotonic()
        known = now
        yield


def _state(folder: Path) -> tuple[int, int, int]:
    """The number of files that a build makes or that are run, their bytes, and their latest change."""
    count = size = last = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _ASIDE]
        for name in names:
            if name.endswith(_BUILT):
                try:
                    status = Path(place, name).stat()
                except OSError:  # it is being replaced
                    continue
                count, size, last = count + 1, size + status.st_size, max(last, status.st_mtime_ns)
    return count, size, last
