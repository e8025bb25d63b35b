"""Errors of the machine or the process, not of the graph: memory, disk, recursion, a compile worker that hangs or dies,
a compiler that is not there, a GPU that is too old (for bfloat16 torch then leaves the graph uncompiled without an
error).

For example: `memory(case, None).kind` gives `'out of memory'`.
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from pathlib import Path
from typing import Any

from ....dumps.wording import counted
from .case import ErrorContext, Explained, NodeAt, at

_MEMORY = re.compile(
    r"out of memory|can't allocate memory|not enough memory|Cannot allocate memory|Killed signal terminated program|"
    r"virtual memory exhausted|std::bad_alloc"
)
_COMPILER_MEMORY = re.compile(r"(?:\S+: )?(?:fatal error: Killed|virtual memory exhausted|out of memory allocating)")
_LATE = re.compile(r"future for '?(\w+)'? did not\s+complete within (\S+?)s\b|did not\s+complete within")


def memory(case: ErrorContext, _: Any) -> Explained | None:
    """The compile itself ran out of memory, on the host or the GPU, or of disk."""
    disk = next((error for error in case.chain if isinstance(error, OSError) and error.errno == errno.ENOSPC), None)
    if disk is not None or (case.find("CppCompileError") and "No space left on device" in case.text()):
        return case.told(
            "disk full",
            f"the disk was full in the stage {case.stage}",
            case.said(),
            "free some of it, or set TORCHINDUCTOR_CACHE_DIR to a folder elsewhere",
        )
    error = case.find("MemoryError", "OutOfMemoryError")
    compiler = case.find("CppCompileError")
    said = next((line for line in _lines(case, compiler) if _MEMORY.search(line)), None)
    if error is None and said is None:
        return None
    gpu = "CUDA" in case.text() or case.find("OutOfMemoryError") is not None
    fix = (
        "free memory of the GPU before compiling, or compile with fewer autotuning choices (max_autotune = False)"
        if gpu
        else "use fewer compile workers (TORCHINDUCTOR_COMPILE_THREADS=1), or a machine with more memory"
    )
    return case.told(
        "out of memory", f"memory ran out in the stage {case.stage}", said or case.said(), fix, nodes=case.nodes
    )


def recursion(case: ErrorContext, _: Any) -> Explained | None:
    """Python's limit of nested calls; the function that comes most often is named."""
    if case.find("RecursionError") is None and "maximum recursion depth" not in str(case.cause()):
        return None
    code, times = Counter(frame.f_code for frame in case.frames).most_common(1)[0]
    where = f"{code.co_name} ({Path(code.co_filename).name}:{code.co_firstlineno})"
    return case.told(
        "recursion",
        f"the stage {case.stage} recursed too deep",
        f"{where} was entered {counted(times, 'time')}; {case.said()}",
        "raise the limit before the compile (sys.setrecursionlimit(20000)) if the graph is deep; "
        "otherwise it is a defect of that function",
        nodes=case.nodes,
    )


def worker(case: ErrorContext, _: Any) -> Explained | None:
    """A compile in another process took too long, or ended."""
    text = "\n".join(str(error) for error in case.chain if not case.find("CppCompileError"))
    late = _LATE.search(text)
    if late or case.find("TimeoutExpired", "TimeoutError"):
        kernel = (late[1] or "") if late else ""
        of = f" of {kernel}" if kernel else ""
        return case.told(
            "compile timed out",
            f"the compile{of} took too long in the stage {case.stage}",
            case.said(),
            "look for a compiler that hangs (TORCHINDUCTOR_COMPILE_THREADS=1 compiles in this process), "
            "or raise TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT",
            kernel=kernel,
        )
    if "compilation subprocess exited unexpectedly" in text or case.find("BrokenProcessPool"):
        return case.told(
            "compile worker died",
            f"a compile worker ended in the stage {case.stage}",
            case.said(),
            "set TORCHINDUCTOR_COMPILE_THREADS=1 to see the crash in this process; "
            "where the machine ran out of memory, dmesg says so",
        )
    return None


def _lines(case: ErrorContext, compiler: BaseException | None) -> list[str]:
    """Where to look for words about memory: first lines of errors, and what a compiler said of its own end."""
    lines = [line for error in case.chain if error is not compiler for line in str(error).splitlines()[:3]]
    if compiler is not None:
        output = str(getattr(compiler, "output", "") or "")
        lines += [line for line in output.splitlines() if _COMPILER_MEMORY.match(line)]
    return lines


_NO_COMPILER = "missing compiler"


def no_cpp_compiler(case: ErrorContext, error: Any) -> Explained:
    """There is no C++ compiler; a compile still gets as far as generated code."""
    tried = re.findall(r"'([^']+)'", str(error)) or re.findall(r"Compiler: (\S+) is not found", str(error))
    return case.told(
        _NO_COMPILER,
        f"no C++ compiler: the stage {case.stage} needs one for kernels on the CPU",
        f"{' and '.join(tried) or 'g++'} cannot be run (CXX, torch._inductor.config.cpp.cxx)",
        "install one (apt-get install g++, conda install gxx, xcode-select --install) or set CXX to it; "
        "graphdbg compile with --until codegen works without",
    )


def no_triton(case: ErrorContext, error: Any) -> Explained:
    """Triton is not installed."""
    return case.told(
        _NO_COMPILER,
        f"no Triton: the stage {case.stage} needs it for kernels on the GPU",
        "it is not installed, or too old",
        "pip install triton, in the version that this torch names (pip show torch)",
    )


def no_program(case: ErrorContext, error: Any) -> Explained | None:
    """There is no nvcc, ptxas or other program that a compile calls."""
    name = str(getattr(error, "filename", "") or "")
    if not re.search(r"(?:^|/)(?:nvcc|ptxas|ld|g\+\+|gcc|clang(?:\+\+)?|cl|hipcc)(?:-[\d.]+)?$", name):
        return None
    return case.told(
        _NO_COMPILER,
        f"the stage {case.stage} could not run {name}",
        "there is no such program",
        f"install it, or name another one; what calls it: {case.said()}",
    )


def bf16(case: ErrorContext, error: Any) -> Explained | None:
    """Torch does not compile a graph with bfloat16 inputs or outputs (SkipFrame) where the GPU only emulates
    bfloat16."""
    if "bf16" not in str(error).lower():
        return None
    gpu = _gpu(case)
    values = _values(case)
    held = (
        f"{', '.join(values)} {'is' if len(values) == 1 else 'are'} bfloat16"
        if values
        else "it takes or returns bfloat16"
    )
    return case.told(
        "bfloat16 on an old GPU",
        f"bfloat16 cannot be compiled for {gpu}",
        f"{held}, and this GPU has no bfloat16 of its own, so torch gives the graph up (SkipFrame) and runs "
        "it uncompiled",
        "use float16 or float32 on it, or a GPU of compute capability 8.0 or more",
        nodes=_nodes(case, values),
    )


def too_old(case: ErrorContext, error: Any) -> Explained:
    """Triton has no code for a GPU below 7.0."""
    return case.told(
        "GPU too old for Triton",
        "the graph cannot be compiled for this GPU",
        str(error),
        "use a GPU of compute capability 7.0 or more, the CPU, or torch.compile with backend aot_eager",
    )


def _gpu(case: ErrorContext) -> str:
    for frame in case.inwards():
        if (properties := frame.f_locals.get("device_props")) is not None:
            major, minor = getattr(properties, "major", None), getattr(properties, "minor", None)
            capability = f" (compute capability {major}.{minor})" if major is not None else ""
            return f"{getattr(properties, 'name', 'this GPU')}{capability}"
    return "this GPU"


def _values(case: ErrorContext) -> list[str]:
    """Inputs that are bfloat16, else outputs."""
    lowering: Any = case.work.lowering if case.work is not None else None
    if lowering is None:
        return []
    inputs = [name for name, value in lowering.graph_inputs.items() if _is_bf16(value)]
    return inputs or [f"output {i}" for i, value in enumerate(lowering.graph_outputs or ()) if _is_bf16(value)]


def _is_bf16(value: Any) -> bool:
    dtype = getattr(value, "get_dtype", None)
    return dtype is not None and str(dtype()) == "torch.bfloat16"


def _nodes(case: ErrorContext, names: list[str]) -> list[NodeAt]:
    graph = getattr(case.work.gm, "graph", None) if case.work is not None else None
    return (
        [at(node) for node in graph.nodes if node.op == "placeholder" and node.name in names]
        if graph is not None
        else []
    )
