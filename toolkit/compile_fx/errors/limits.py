"""Errors of the machine or the process, not of the graph: memory, disk, recursion, a compile worker that hangs or dies.

>>> memory(case).kind
'out of memory'
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from pathlib import Path

from ....dumps.wording import counted
from .case import Case
from .explained import Explained
from .nodes import running

_MEMORY = re.compile(
    r"out of memory|can't allocate memory|not enough memory|Cannot allocate memory|Killed signal terminated program|"
    r"virtual memory exhausted|std::bad_alloc"
)
_COMPILER_MEMORY = re.compile(r"(?:\S+: )?(?:fatal error: Killed|virtual memory exhausted|out of memory allocating)")
_LATE = re.compile(r"future for '?(\w+)'? did not\s+complete within (\S+?)s\b|did not\s+complete within")


def memory(case: Case) -> Explained | None:
    """The compile itself ran out of memory, on the host or the GPU, or of disk."""
    disk = next((one for one in case.chain if isinstance(one, OSError) and one.errno == errno.ENOSPC), None)
    if disk is not None or (case.find("CppCompileError") and "No space left on device" in case.text()):
        return case.told(
            "disk full", f"the disk was full in the stage {case.stage}", case.said(),
            "free some of it, or set TORCHINDUCTOR_CACHE_DIR to a folder elsewhere",
        )  # fmt: skip
    one = case.find("MemoryError", "OutOfMemoryError")
    compiler = case.find("CppCompileError")
    said = next((line for line in _lines(case, compiler) if _MEMORY.search(line)), None)
    if one is None and said is None:
        return None
    gpu = "CUDA" in case.text() or case.find("OutOfMemoryError") is not None
    fix = (
        "free memory of the GPU before compiling, or compile with fewer autotuning choices (max_autotune = False)"
        if gpu
        else "use fewer compile workers (TORCHINDUCTOR_COMPILE_THREADS=1), or a machine with more memory"
    )
    return case.told(
        "out of memory", f"memory ran out in the stage {case.stage}", said or case.said(), fix, nodes=running(case),
    )  # fmt: skip


def recursion(case: Case) -> Explained | None:
    """Python's limit of nested calls; the function that comes most often is named."""
    if case.find("RecursionError") is None and "maximum recursion depth" not in str(case.cause()):
        return None
    code, times = Counter(frame.f_code for frame in case.frames).most_common(1)[0]
    where = f"{code.co_name} ({Path(code.co_filename).name}:{code.co_firstlineno})"
    return case.told(
        "recursion", f"the stage {case.stage} recursed too deep",
        f"{where} was entered {counted(times, 'time')}; {case.said()}",
        "raise the limit before the compile (sys.setrecursionlimit(20000)) if the graph is deep; "
        "otherwise it is a defect of that function",
        nodes=running(case),
    )  # fmt: skip


def worker(case: Case) -> Explained | None:
    """A compile in another process took too long, or ended."""
    text = "\n".join(str(one) for one in case.chain if not case.find("CppCompileError"))
    late = _LATE.search(text)
    if late or case.find("TimeoutExpired", "TimeoutError"):
        kernel = (late[1] or "") if late else ""
        of = f" of {kernel}" if kernel else ""
        return case.told(
            "compile timed out", f"the compile{of} took too long in the stage {case.stage}", case.said(),
            "look for a compiler that hangs (TORCHINDUCTOR_COMPILE_THREADS=1 compiles in this process), "
            "or raise TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT",
            kernel=kernel,
        )  # fmt: skip
    if "compilation subprocess exited unexpectedly" in text or case.find("BrokenProcessPool"):
        return case.told(
            "compile worker died", f"a compile worker ended in the stage {case.stage}", case.said(),
            "set TORCHINDUCTOR_COMPILE_THREADS=1 to see the crash in this process; "
            "where the machine ran out of memory, dmesg says so",
        )  # fmt: skip
    return None


def _lines(case: Case, compiler: BaseException | None) -> list[str]:
    """Where to look for words about memory: first lines of errors, and what a compiler said of its own end."""
    lines = [line for one in case.chain if one is not compiler for line in str(one).splitlines()[:3]]
    if compiler is not None:
        output = str(getattr(compiler, "output", "") or "")
        lines += [line for line in output.splitlines() if _COMPILER_MEMORY.match(line)]
    return lines
