"""Runs the program that was written for a call several times, in fresh processes of `python -I`. Imports no torch.

The plainest first, with torch alone; where that does not show the failure, the one that imports the modules of the
user's own.

For example: `verified(call, "python").says` gives `'shows'`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from ...dumps import temporary
from .records import ALONE, MODULES, WITH_MODULES, Call

TIMES, LIMIT_S = 3, 600.0
WITHOUT = "--without-fault"
BUG, GONE = 1, 0


class Repro(msgspec.Struct, frozen=True):
    """The result of such a program. `says`: shows, passes or none; `codes`: of all runs; `without`: the code with
    --without-fault; `printed`: what it printed."""

    says: str = "none"
    path: str = ""
    codes: tuple[int, ...] = ()
    without: int | None = None
    printed: str = ""
    why: str = ""
    modules: bool = False

    @property
    def rate(self) -> str:
        """The runs that show the failure, for the text: `3 of 3`."""
        return f"{self.codes.count(BUG)} of {len(self.codes)}"

    @property
    def sentence(self) -> str:
        """The sentence about the program."""
        if self.says == "none":
            return f"No program that shows it with torch alone was written: {self.why}."
        modules = " with the program's own modules" if self.modules else " with torch alone"
        if self.says == "shows":
            return (
                f"A program that shows it{modules}: {self.path} ({self.rate} in processes of their own); "
                f"{WITHOUT} it passes."
            )
        return (
            f"The program that was written of it does not show it in a fresh process: {self.path} ({self.rate}; "
            f"{self.why})."
        )

    def plain(self) -> dict[str, Any]:
        """The fields for JSON, flat."""
        return {
            "repro": self.says,
            "repro_path": self.path or None,
            "repro_rate": self.rate,
            "without_fault": self.without,
            "repro_told": self.printed,
            "repro_why": self.why,
        }


def verified(call: Call, python: str) -> Repro:
    """The result of the programs that were written for a call."""
    if not call.repro:
        return Repro(why=call.unsaid or "the process ended before it")
    written, folder = Path(call.repro), Path(call.repro).parent / "repro"
    written.rename(folder)
    repro = shown(folder / ALONE, python)
    if repro.says != "shows" and (folder / MODULES).exists():
        repro = shown(folder / WITH_MODULES, python)
        if repro.says == "shows":
            (folder / WITH_MODULES).replace(folder / ALONE)
            return msgspec.structs.replace(repro, path=str(folder / ALONE), modules=True)
    (folder / WITH_MODULES).unlink()
    if f'HERE / "{MODULES}"' not in (folder / ALONE).read_text(encoding="utf-8"):
        shutil.rmtree(folder / MODULES, ignore_errors=True)
    return msgspec.structs.replace(repro, path=str(folder / ALONE))


def shown(program: Path, python: str) -> Repro:
    """Runs the program once; where that shows the failure, runs it again, and once with nothing compiled."""
    code, printed = run(program, python)
    last = printed.strip().splitlines()[-1][:300] if printed.strip() else ""
    if code != BUG:
        return Repro("passes", str(program), (code,), printed=printed, why=last or f"it ends with {code}")
    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(run, program, python) for _ in range(TIMES - 1)]
        without = pool.submit(run, program, python, WITHOUT)
        codes = (code, *(future.result()[0] for future in others))
        off = without.result()[0]
    says = "shows" if codes == (BUG,) * TIMES and off == GONE else "passes"
    why = "" if says == "shows" else f"{WITHOUT} it ends with {off}" if off != GONE else "not every run shows it"
    return Repro(says, str(program), codes, off, printed, why)


def run(program: Path, python: str, *flags: str) -> tuple[int, str]:
    """The exit code of one fresh process, and what it printed; over the time limit it is killed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHDBG")}
    with temporary.folder("graphdbg-") as scratch:
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(scratch)
        try:
            ended = subprocess.run(
                [python, "-I", str(program.absolute()), *flags],
                env=environment,
                cwd=scratch,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 2, f"it was still at work after {LIMIT_S:.0f} s"
        except OSError as error:
            return 2, str(error)
    return ended.returncode, ended.stdout
