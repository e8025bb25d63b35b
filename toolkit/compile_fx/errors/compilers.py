"""Errors of compilers and of the machine.

A kernel in C++ or Triton that its compiler refused: the first error, the source around it, the kernel and its nodes;
code that is no Python, a kernel that needs more than the GPU has. Triton compiles here or in a worker process, whose
error arrives as text. Triton is never imported here.

Of the machine or the process: memory, disk, recursion, a compile worker that hangs or dies, a compiler that is not
there, a GPU that is too old (for bfloat16 torch then leaves the graph uncompiled without an error).

For example:

    cpp_refused(case, case.find("CppCompileError")).compiler_line
    # 'main.cpp:37:41: error: expected primary-expression'
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....dumps.opening import text_if_there
from ....dumps.wording import counted
from .case import ErrorContext, Explained, NodeAt, at

_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? (?:fatal )?error: (?P<said>.*)$", re.MULTILINE
)
_LINKER = re.compile(
    r"^.*(?:undefined reference|cannot find -l|ld returned|unrecognized (?:command[- ]line )?option).*$", re.MULTILINE
)
_SOURCE = (".cpp", ".cc", ".cu", ".c")


@dataclass
class SourceError:
    """Where a compiler found an error. `line` is 0 and `column` None where it names none; `said` is its message."""

    file: str
    line: int
    column: int | None
    said: str
    whole: str


def first_error(output: str) -> SourceError | None:
    """The first error in the output of g++ or clang; None when it has none (a linker's message, a killed compiler)."""
    match = _ERROR.search(output)
    if match is None:
        return None
    column = int(match["column"]) if match["column"] else None
    return SourceError(match["file"], int(match["line"]), column, match["said"], match[0])


def cpp_refused(case: ErrorContext, error: Any) -> Explained:
    """A CppCompileError, of a CPU kernel, a C++ wrapper, or a library ahead of time."""
    output = str(getattr(error, "output", "") or error)
    command = [str(part) for part in getattr(error, "cmd", ())]
    sources = [part for line in command for part in line.split() if part.endswith(_SOURCE)]
    source_error, failed = first_error(output), f"the C++ compiler failed in the stage {case.stage}"
    if source_error is None:
        linker = _LINKER.search(output)
        line = linker[0].strip() if linker else next((line for line in output.splitlines()[::-1] if line.strip()), "")
        return case.about(
            "C++ compile error",
            failed,
            line or "the compiler stopped without a message",
            "look at its command in the error's text, and run it by hand",
            compiler_line=line,
        )
    place = _in_source(source_error, output, sources)
    source = text_if_there(place.file)
    inside = enclosing_function(source, place.line)  # `kernel` in a file of its own; the wrapper has its name
    kernel = inside if inside and inside != "kernel" else kernel_of(case.code, source)
    what = f"the C++ compiler refused the kernel {kernel}" if kernel else failed
    return _refused(case, kernel, "C++ compile error", what, place, source)


def _refused(case: ErrorContext, kernel: str, kind: str, what: str, error: SourceError, source: str) -> Explained:
    """The account of an error that a compiler found in a source."""
    place: dict[str, Any] = {"file": error.file, "line": error.line or None, "column": error.column}
    around = excerpt(source, error.line, error.column)
    return case.about_kernel(kernel, kind, what, error.said, _FIX, **place, excerpt=around, compiler_line=error.whole)


def _in_source(error: SourceError, output: str, sources: list[str]) -> SourceError:
    """The error's place in generated source; for an error inside a header, the source line that needed the header's
    code."""
    if error.file in sources or not sources:
        return error
    for source in sources:
        needed = rf"^{re.escape(source)}:(\d+):(?:(\d+):)?\s+(?:required from|required by|note: in instantiation)"
        if named := re.search(needed, output, re.MULTILINE):
            return SourceError(source, int(named[1]), int(named[2]) if named[2] else None, error.said, error.whole)
    return error


_TRITON = "Triton compile error"
_PLACE = re.compile(
    r"(?:CompilationError|CompileTimeAssertionFailure|UnsupportedLanguageConstruct): at (\d+):(\d+):\n(.*)", re.DOTALL
)
_DEF = re.compile(r"^def (\w+)\(", re.MULTILINE)
_BACKEND = re.compile(
    r"^.*(?:ptxas (?:fatal|error|info).*|PTXASError.*|PassManager::run failed.*|LLVM ERROR.*)$", re.MULTILINE
)
_IMPORT = re.compile(r"Failed to import (\S+)\n(?:SyntaxError|IndentationError): (.*?) \(\S+, line (\d+)\)")
_RESOURCES = re.compile(r"out of resources?: (.*?)(?:\n|$)", re.IGNORECASE)
_FIX = (
    "see all of the code with graphdbg compile ... --until codegen --emit source; "
    "graphdbg bisect names the pass or setting behind it, minify makes the smallest graph that fails"
)


def triton_refused(case: ErrorContext, _: Any) -> Explained | None:
    """Triton's front end refused the source, or its back end the code made of it."""
    refusal: Any = case.find("CompilationError")
    if refusal is not None and hasattr(refusal, "error_message"):
        reasons = [error for error in case.chain if hasattr(error, "error_message")]
        inner: Any = reasons[-1]
        said = str(inner.error_message or inner.__cause__ or inner).strip()
        node = refusal.node
        line, column = getattr(node, "lineno", None), getattr(node, "col_offset", None)
        return _refused_by_triton(case, _named(case, refusal.src or ""), said, refusal.src or "", line, column)
    text = case.text()
    if placed := _PLACE.search(text):
        said, source = _after_caret(placed[3])
        kernel = _named(case, source)
        whole = _function(kernels(case.code).get(kernel, ""))
        return _refused_by_triton(case, kernel, said, whole, int(placed[1]), int(placed[2]))
    if (backend := _BACKEND.search(text)) and (kernel := _named(case, "")):
        return _refused_by_triton(case, kernel, backend[0].strip(), "", None, None)
    return None


def resources(case: ErrorContext, _: Any) -> Explained | None:
    """The kernel compiles, but needs more shared memory, registers or threads than the GPU has."""
    match = _RESOURCES.search(case.text())
    if match is None:
        return None
    kernel = _named(case, "")
    return case.about_kernel(
        kernel,
        "kernel too large",
        f"the Triton kernel {kernel} does not fit the GPU".replace("  ", " "),
        f"out of resource: {match[1]}",
        "make it smaller: torch._inductor.config.max_fusion_size = 8, or realize_reads_threshold = 1; "
        "or leave the fusion out (rung inductor_nofuse)",
    )


def not_python(case: ErrorContext, _: Any) -> Explained | None:
    """Generated code, a kernel's or the wrapper's, that Python cannot read; here or in a worker."""
    error, written = case.find("SyntaxError"), _IMPORT.search(case.text())
    column: int | None = None
    if isinstance(error, SyntaxError) and error.filename and error.lineno is not None and _is_import(case):
        file, said, line, column = error.filename, str(error.msg), error.lineno, error.offset
    elif written:
        file, said, line = written[1], written[2], int(written[3])
    else:
        return None
    source = text_if_there(file)
    kernel = kernel_of(case.code, source) or _named(case, "")
    what = f"the source of the Triton kernel {kernel} is no Python" if kernel else "the generated code is no Python"
    whole = f"{file}:{line}:{f'{column}:' if column else ''} SyntaxError: {said}"
    kind = _TRITON if kernel else "generated code is no Python"
    return _refused(case, kernel, kind, what, SourceError(file, line, column, said, whole), source)


def _refused_by_triton(
    case: ErrorContext, kernel: str, said: str, source: str, line: int | None, column: int | None
) -> Explained:
    column = None if column is None else column + 1  # Python's count from 0
    first = said.splitlines()[0] if said else "no reason is given"
    at = f"{kernel or 'kernel'}:{line}:{column}: " if line is not None else ""
    what, error = f"Triton could not compile the kernel {kernel}".rstrip(), f"{at}error: {first}"
    return _refused(case, kernel, _TRITON, what, SourceError("", line or 0, column, first, error), source)


def _is_import(case: ErrorContext) -> bool:
    """Whether the error was raised while generated code was loaded; a SyntaxError of other code is left to other
    families."""
    return any(frame.f_code.co_name == "_reload_python_module" for frame in case.frames)


def _named(case: ErrorContext, source: str) -> str:
    """The kernel's name in the wrapper; its function may be called `triton_` in every kernel."""
    known, function = kernels(case.code), _DEF.search(source)
    values = [frame.f_locals.get(local) for frame in case.inwards() for local in ("kernel_name", "key", "name")]
    values += re.findall(r"^Name=(\w+)", case.text(), re.MULTILINE)
    named = next((value for value in values if isinstance(value, str) and value in known), "")
    return named or kernel_of(case.code, source) or (function[1] if function else "")


def _after_caret(text: str) -> tuple[str, str]:
    """The message and the source that follow "at 3:7:" in a worker's text: the message is the line below the caret."""
    caret = re.search(r"^ *\^\n", text, re.MULTILINE)
    if caret is None:
        return "", text
    return text[caret.end() :].strip().partition("\n")[0], text[: caret.start()]


def _function(source: str) -> str:
    """The part of a kernel's module that Triton counts lines in: from the decorated function on."""
    match = _DEF.search(source)
    return source[match.start() :] if match else source


_KERNEL = re.compile(
    r"^(\w+) = async_compile\.(\w+)\((?:.*?), r?(?:'''|\"\"\")(.*?)(?:'''|\"\"\")", re.MULTILINE | re.DOTALL
)
_FUNCTION = re.compile(
    r"^\s*(?:extern \"C\"\s+)?(?:__\w+\s+)?(?:static\s+)?(?:inline\s+)?void\s+(\w+)\s*\(", re.MULTILINE
)


def excerpt(source: str, line: int, column: int | None = None, around: int = 3, tail: int | None = None) -> str:
    """Numbered lines around a line, which is marked; `column` counts from 1 and gets a caret. "" when there is no such
    line."""
    lines = source.split("\n")
    if not 1 <= line <= len(lines):
        return ""
    first, last = max(1, line - around), min(len(lines), line + (around if tail is None else tail))
    width = len(str(last))
    out: list[str] = []
    for number in range(first, last + 1):
        out.append(f"{'>' if number == line else ' '} {number:{width + 2}} | {lines[number - 1]}".rstrip())
        if number == line and column is not None:
            blank = re.sub(r"\S", " ", lines[number - 1][: max(0, column - 1)])
            out.append(f"  {'':{width + 2}} | {blank.ljust(max(0, column - 1))}^")
    return "\n".join(out)


def kernels(generated: str) -> dict[str, str]:
    """Name -> source of each kernel that a generated wrapper in Python defines."""
    return {match[1]: match[3] for match in _KERNEL.finditer(generated)}


def kernel_of(generated: str, source: str) -> str:
    """The kernel of a wrapper whose source this is, or contains; "" where it is none."""
    wanted, bodies = _body(source), {name: _body(text) for name, text in kernels(generated).items()}
    alike = (name for name, body in bodies.items() if wanted and body and (body in wanted or wanted in body))
    return next(alike, "")


def enclosing_function(source: str, line: int) -> str:
    """The C++ function that a line stands in, by the last definition above it; "" when there is none."""
    above = [match[1] for match in _FUNCTION.finditer(source) if source.count("\n", 0, match.start(1)) < line]
    return above[-1] if above else ""


def _body(source: str) -> str:
    """A source without the parts that are added when it is written: includes, comments, blank lines, indentation."""
    kept = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in kept if line and not line.startswith(("#include", "#pragma once", "//")))


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
        return case.about(
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
    return case.about_nodes("out of memory", f"memory ran out in the stage {case.stage}", said or case.said(), fix)


def recursion(case: ErrorContext, _: Any) -> Explained | None:
    """Python's limit of nested calls; the function that comes most often is named."""
    if case.find("RecursionError") is None and "maximum recursion depth" not in str(case.cause()):
        return None
    code, times = Counter(frame.f_code for frame in case.frames).most_common(1)[0]
    where = f"{code.co_name} ({Path(code.co_filename).name}:{code.co_firstlineno})"
    return case.about_nodes(
        "recursion",
        f"the stage {case.stage} recursed too deep",
        f"{where} was entered {counted(times, 'time')}; {case.said()}",
        "raise the limit before the compile (sys.setrecursionlimit(20000)) if the graph is deep; "
        "otherwise it is a defect of that function",
    )


def worker(case: ErrorContext, _: Any) -> Explained | None:
    """A compile in another process took too long, or ended."""
    text = "\n".join(str(error) for error in case.chain if not case.find("CppCompileError"))
    late = _LATE.search(text)
    if late or case.find("TimeoutExpired", "TimeoutError"):
        kernel = (late[1] or "") if late else ""
        of = f" of {kernel}" if kernel else ""
        return case.about(
            "compile timed out",
            f"the compile{of} took too long in the stage {case.stage}",
            case.said(),
            "look for a compiler that hangs (TORCHINDUCTOR_COMPILE_THREADS=1 compiles in this process), "
            "or raise TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT",
            kernel=kernel,
        )
    if "compilation subprocess exited unexpectedly" in text or case.find("BrokenProcessPool"):
        return case.about(
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
    return case.about(
        _NO_COMPILER,
        f"no C++ compiler: the stage {case.stage} needs one for kernels on the CPU",
        f"{' and '.join(tried) or 'g++'} cannot be run (CXX, torch._inductor.config.cpp.cxx)",
        "install one (apt-get install g++, conda install gxx, xcode-select --install) or set CXX to it; "
        "graphdbg compile with --until codegen works without",
    )


def no_triton(case: ErrorContext, error: Any) -> Explained:
    """Triton is not installed."""
    return case.about(
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
    return case.about(
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
    held = f"{', '.join(values)} {'is' if len(values) == 1 else 'are'}" if values else "it takes or returns"
    return case.about(
        "bfloat16 on an old GPU",
        f"bfloat16 cannot be compiled for {gpu}",
        f"{held} bfloat16, and this GPU has no bfloat16 of its own, so torch gives the graph up (SkipFrame) and runs "
        "it uncompiled",
        "use float16 or float32 on it, or a GPU of compute capability 8.0 or more",
        nodes=_nodes(case, values),
    )


def too_old(case: ErrorContext, error: Any) -> Explained:
    """Triton has no code for a GPU below 7.0."""
    return case.about(
        "GPU too old for Triton",
        "the graph cannot be compiled for this GPU",
        str(error),
        "use a GPU of compute capability 7.0 or more, the CPU, or torch.compile with backend aot_eager",
    )


def _gpu(case: ErrorContext) -> str:
    properties_seen = (frame.f_locals.get("device_props") for frame in case.inwards())
    properties = next((known for known in properties_seen if known is not None), None)
    major, minor = getattr(properties, "major", None), getattr(properties, "minor", None)
    capability = f" (compute capability {major}.{minor})" if major is not None else ""
    return f"{getattr(properties, 'name', 'this GPU')}{capability}"


def _values(case: ErrorContext) -> list[str]:
    """Names of the bfloat16 inputs; of the bfloat16 outputs where no input is one."""
    if case.lowering is None:
        return []
    inputs = [name for name, value in case.lowering.graph_inputs.items() if _is_bf16(value)]
    return inputs or [f"output {i}" for i, value in enumerate(case.lowering.graph_outputs or ()) if _is_bf16(value)]


def _is_bf16(value: Any) -> bool:
    dtype = getattr(value, "get_dtype", None)
    return dtype is not None and str(dtype()) == "torch.bfloat16"


def _nodes(case: ErrorContext, names: list[str]) -> list[NodeAt]:
    nodes = case.gm.graph.nodes if hasattr(case.gm, "graph") else ()
    return [at(node) for node in nodes if node.op == "placeholder" and node.name in names]
