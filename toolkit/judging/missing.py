"""Tells apart errors that a rung finds in torch from errors which only say that something is missing here, or that
graphdbg itself failed.

Not a verdict about torch: an import that fails (except in the user's own files), a tool that Inductor needs and this
machine lacks, and an exception whose innermost frame is graphdbg's own. But an exception of a graphdbg class that a
rung raises in order to report, such as `MetadataMismatch`, is a verdict, and so is a RuntimeError raised by a C++
function of torch that graphdbg called. Also: the failure of a rung that does not raise where eager does. Runs nothing.

>>> missing(ModuleNotFoundError("No module named 'numpy'"))
"No module named 'numpy'"
>>> missing(RuntimeError("CUDA error"))
''
"""

from __future__ import annotations

import dis
import os
import re
import sysconfig
import traceback
from pathlib import Path
from types import FrameType, TracebackType

from torch import fx

from ...dumps.errors import GraphdbgError
from ...dumps.torchside.targets import name_of
from ...dumps.wording import error_line
from ..isolation.child import is_memory_error
from ..live.eager import GraphRunError
from ..live.spec import ReplaySpec
from ..verdicts import signature
from ..verdicts.signature import Signature, from_exception, inside

_TOOLS = {
    "InvalidCxxCompiler": "no C++ compiler was found (g++, or what CXX names)",
    "TritonMissing": "Triton is not installed",
}
"""Torch exceptions with which Inductor reports a missing tool -> the reason."""

_CUT_OFF = ("file too short", "invalid ELF header", "cannot read file data")
"""Loader errors for a truncated library, as a killed compile leaves one."""

_HELPERS = ("numpy",)
"""Packages that graphdbg calls: an error inside them is charged to the caller."""

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def missing(error: BaseException) -> str:
    """Why an exception says nothing about torch, as a sentence without a full stop; "" where it is about torch."""
    inner = _innermost(error)
    if isinstance(inner, GraphdbgError):
        return str(inner)
    if type(inner).__name__ in _TOOLS:
        return _TOOLS[type(inner).__name__]
    frames = list(traceback.walk_tb(inner.__traceback__))
    if isinstance(inner, ImportError):
        if built := re.match(r"(/.+\.so): (.+)", error_line(inner)):
            cut = built[2].startswith(_CUT_OFF) and any("_inductor" in frame.f_code.co_filename for frame, _ in frames)
            return f"{built[1]} of the compile cache is cut off; delete it, and run again" if cut else ""
        importing = [frame for frame, _ in frames if "importlib" not in frame.f_code.co_filename]
        return "" if importing and _is_users(importing[-1]) else error_line(inner)
    while frames and frames[-1][0].f_globals.get("__name__", "").partition(".")[0] in _HELPERS:
        frames.pop()
    if not frames or not _is_ours(frames[-1][0]) or _ours(type(inner).__module__):
        return ""
    if isinstance(inner, RuntimeError) and not _raised_there(inner.__traceback__):
        return ""
    frame, line = frames[-1]
    name = f"{frame.f_globals['__name__'].partition('.')[2]}:{line}"
    return (
        f"graphdbg itself failed ({type(inner).__name__}: {error_line(inner)}, at {name}), which says nothing "
        "about torch"
    )


def _innermost(error: BaseException) -> BaseException:
    """Unwraps an exception: torch's wrappers, and graphdbg's that add where it happened."""
    for _ in range(20):
        deeper = inside(error)
        if deeper is None and _ours(type(error).__module__) and not isinstance(error, GraphdbgError):
            deeper = error.__cause__
        if deeper is None:
            break
        error = deeper
    return error


def _ours(module: str) -> bool:
    return module.startswith("graphdbg.") and not module.startswith("graphdbg.examples")


def _is_ours(frame: FrameType) -> bool:
    return _ours(frame.f_globals.get("__name__", ""))


def _is_users(frame: FrameType) -> bool:
    """Whether a frame's file is neither graphdbg's, nor installed beside it, nor generated."""
    path = frame.f_code.co_filename
    generated = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or "<"
    return not _is_ours(frame) and not path.startswith(("<", generated, *_INSTALLED)) and Path(path).is_file()


def _raised_there(trace: TracebackType | None) -> bool:
    """Whether the innermost Python frame stopped at a `raise`; if not, C or C++ code that it called raised."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]].startswith(("RAISE", "RERAISE"))


_COMPILERS_OWN = ("prims.inductor", "inductor.", "inductor_prims.", "mkldnn.", "mkl.", "onednn.", "triton")
"""Prefixes of operators that compilers insert: that eager cannot run one says nothing about the program."""


def is_same_error(wanted: Signature, error: BaseException) -> bool:
    """Whether a rung's exception is the one that eager raises."""
    seen = from_exception(error.__cause__ if isinstance(error, GraphRunError) and error.__cause__ else error, "run")
    return seen.error == wanted.error and (seen.message == wanted.message or not wanted.message)


def missing_error(error: BaseException, gm: fx.GraphModule, spec: ReplaySpec) -> Signature | None:
    """The failure of a rung that does not raise where eager does; None where compiled code need not raise eager's
    error: eager ran out of memory, the node is a compiler's own operator, or the graph is from after Inductor's
    passes."""
    cause = error.__cause__
    if not isinstance(error, GraphRunError) or cause is None or is_memory_error(cause):
        return None
    if spec.stage.startswith("post_grad"):
        return None
    node = next((node for node in gm.graph.nodes if node.name == error.node), None)
    if node is None or node.op not in ("call_function", "call_method"):
        return None
    target = node.target if isinstance(node.target, str) else name_of(node.target)
    if target.startswith(_COMPILERS_OWN) or "triton_kernel_wrapper" in target:
        return None
    name = f"{type(cause).__module__}.{type(cause).__qualname__}".removeprefix("builtins.")
    text = " ".join(str(cause).split())
    raw = f"eager raises at node {error.node}: {text}"[:1000]
    return Signature("missing_error", "compare", name, signature.message(str(cause)), detail=target, raw=raw)
