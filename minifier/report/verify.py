"""Runs a repro in fresh processes, each with its own Inductor cache, and counts how often it shows the bug.

The processes get an environment by allow-list, an empty working folder and no recorder. A private cache starts as a copy of the
toolchain probes (vector instruction sets of this CPU, 12 to 30 s otherwise), never with a compiled graph or kernel of the case.
With a `starter` a run is a fork of a Python that has imported torch and done nothing else: the runs then share that import and
the seed of Python's hashes, and still no cache, folder or compiled thing.

>>> verify(Path("out/repro.py"), times=3).rate
'3 of 3 fresh processes'
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...dumps.wording import counted
from ...toolkit.isolation.cache import known_seed, plant, seed_folder
from ...toolkit.isolation.folders import owned
from ...toolkit.isolation.guard import guarded
from .starter import Starter

LIMIT_S = 300.0
_LOG_CHARACTERS = 4_000_000

BUG, GONE, UNSURE = 1, 0, 2
"""Exit codes of a repro."""

KEPT_VARIABLES = (
    "PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH",
    "PYTHONHOME", "CC", "CXX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH", "SYSTEMROOT",
)  # fmt: skip
"""What a process needs to find Python, compilers and devices. Settings of torch are not among them: the repro makes its own."""


@dataclass(frozen=True)
class Trial:
    """One run: the exit code (negative: the signal; None: over the time limit), what it printed, and its time."""

    code: int | None
    output: str
    seconds: float


@dataclass(frozen=True)
class Verification:
    """All runs of one program."""

    trials: tuple[Trial, ...]

    @property
    def shown(self) -> int:
        """How many runs showed the bug."""
        return sum(trial.code == BUG for trial in self.trials)

    @property
    def rate(self) -> str:
        """For the text: `3 of 3 fresh processes`."""
        return f"{self.shown} of {counted(len(self.trials), 'fresh process')}"

    @property
    def output(self) -> str:
        """What a run that showed the bug printed; else what the first one did."""
        chosen = next((trial for trial in self.trials if trial.code == BUG), None)
        return (chosen or self.trials[0]).output if self.trials else ""


@contextlib.contextmanager
def starting(count: int = 1, *, seed: Path | None = None, path: Sequence[str] = ()) -> Generator[Starter]:
    """Processes that import torch from now on, in which programs then run without that wait (see `starter`). CPU only."""
    with contextlib.ExitStack() as stack:
        homes = [_folders(stack.enter_context(owned("graphdbg-verify-")), seed) for _ in range(count)]
        starter = Starter([(_environment(home, path) | _FORKING, home["cwd"]) for home in homes])
        starter.bare = [] if seed else [*homes]
        stack.callback(starter.close)
        yield starter


_FORKING = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""A process that forks must have no worker processes of Inductor's and no CUDA."""


def run_once(
    program: Path, *, limit_s: float = LIMIT_S, seed: Path | None = None, stop: threading.Event | None = None,
    path: Sequence[str] = (), starter: Starter | None = None,
) -> Trial:  # fmt: skip
    """One fresh process. `seed` is a folder of toolchain probes to begin the private cache with; None: the cache starts empty.

    `path`: folders where it finds modules beside torch.
    """
    command = [sys.executable, str(program.resolve())]
    trial = run_command(command, limit_s=limit_s, seed=seed, stop=stop, path=path, starter=starter)
    return replace(trial, output=trial.output.replace(f"{program.resolve().parent}{os.sep}", ""))


def run_command(
    command: Sequence[str], *, limit_s: float, seed: Path | None = None, stop: threading.Event | None = None,
    after: Callable[[Path], None] | None = None, path: Sequence[str] = (), starter: Starter | None = None,
) -> Trial:  # fmt: skip
    """Any command in such a process; `after` may read what it left in its working folder before that vanishes.

    Setting `stop` from another thread ends it at once. With a `starter` it begins there, with torch imported.
    """
    with owned("graphdbg-verify-") as scratch:
        folders = _folders(scratch, seed)
        started = time.monotonic()
        environment, ran = _environment(folders, path), None
        if starter is not None and starter.takes(command):
            starter.furnish(lambda home: _plant(home, seed))
            ran = starter.run(command, environment | _FORKING, folders["cwd"], limit_s, stop)
        code, output = ran or _run(command, environment, folders["cwd"], limit_s, stop)
        if after is not None:
            after(folders["cwd"])
        return Trial(code, output.replace(f"{scratch}{os.sep}", ""), time.monotonic() - started)


def run_many(
    program: Path, times: int, *, limit_s: float = LIMIT_S, seed: Path | None = None, path: Sequence[str] = (),
    starter: Starter | None = None,
) -> list[Trial]:  # fmt: skip
    """Several fresh processes, as many at once as there are cores; an interrupt ends them all."""
    stop = threading.Event()
    with ThreadPoolExecutor(max(1, min(times, (os.cpu_count() or 1)))) as pool, ending(stop):
        options: dict[str, Any] = {"limit_s": limit_s, "seed": seed, "stop": stop, "path": path, "starter": starter}
        runs = [pool.submit(run_once, program, **options) for _ in range(times)]
        return [run.result() for run in runs]


@contextlib.contextmanager
def ending(stop: threading.Event) -> Generator[None]:
    """Sets `stop` when the block is left by an exception, an interrupt above all: no process goes on for nobody."""
    try:
        yield
    except BaseException:
        stop.set()
        raise


def verify(program: Path, times: int = 3, *, limit_s: float = LIMIT_S, seed: Path | None = None) -> Verification:
    """Runs the program `times` times; the limit is for one run."""
    return Verification(tuple(run_many(program, times, limit_s=limit_s, seed=seed)))


def toolchain_seed() -> Path | None:
    """The folder of toolchain probes of this user, torch, compiler and CPU; None when none was made yet. May import torch."""
    known = known_seed()
    if known is not None:
        return known
    folder = seed_folder()
    return folder if folder.exists() else None


def _folders(scratch: Path, seed: Path | None) -> dict[str, Path]:
    """A working folder, caches with the toolchain probes of `seed`, and a TMPDIR."""
    folders = {name: scratch / name for name in ("cache", "tmp", "cwd")}
    for folder in folders.values():
        folder.mkdir()
    _plant(folders, seed)
    return folders


def _plant(folders: Mapping[str, Path], seed: Path | None) -> bool:
    """Whether there was something to plant."""
    if seed is None:
        return False
    plant(folders["cache"], seed)
    _place_headers(folders)
    return True


def _place_headers(folders: Mapping[str, Path]) -> None:
    """Inductor looks for its precompiled header in TMPDIR/torchinductor_<user>, whatever its cache folder is (torch 2.13.0)."""
    made = folders["cache"] / "precompiled_headers"
    try:
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    except (KeyError, OSError):  # a uid without a name: the header is made anew
        return
    if made.is_dir():
        home = folders["tmp"] / f"torchinductor_{user}"
        home.mkdir()
        made.rename(home / made.name)


def _environment(folders: Mapping[str, Path], path: Sequence[str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    if path:
        kept["PYTHONPATH"] = os.pathsep.join([*filter(None, [kept.get("PYTHONPATH")]), *path])
    return kept | {
        "TORCHINDUCTOR_CACHE_DIR": str(folders["cache"]),
        "TRITON_CACHE_DIR": str(folders["cache"] / "triton"),
        "TMPDIR": str(folders["tmp"]),
    }


def _run(
    command: Sequence[str], environment: Mapping[str, str], cwd: Path, limit_s: float, stop: threading.Event | None
) -> tuple[int | None, str]:
    """Exit code and output of a command and all that it starts; they die at the limit, when interrupted, and when we die."""
    log = cwd.parent / "log"
    theirs, ours = os.pipe()
    with log.open("wb") as file:
        process = subprocess.Popen(
            guarded(command, theirs, tempfile.gettempdir()), env=dict(environment), cwd=cwd, pass_fds=[theirs],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        try:
            code = _wait(process, time.monotonic() + limit_s, stop)
        finally:
            _end(process)
            os.close(ours)
    return code, log.read_text(errors="replace")[-_LOG_CHARACTERS:]


def _wait(process: subprocess.Popen[bytes], deadline: float, stop: threading.Event | None) -> int | None:
    """The exit code; None when the deadline or the stop came first."""
    while time.monotonic() < deadline and not (stop is not None and stop.is_set()):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=0.2)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Has the guard end whatever is left of the command, compiler children too, and reaps it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
