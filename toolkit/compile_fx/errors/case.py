"""The account of a failure of a compile, as a record and as text, and what it is made from: an exception with all that
it wraps, the frames it came through, the work of its stage, and the nodes that it is about.

Frames keep their local variables while the exception lives: that is how the node being lowered and the pass being run
are known. Torch is imported only once there is an error, so that records can be read in a process without torch.

For example:

    case = ErrorContext.of(error, work, "lower")
    case.find("LoweringException")  # -> LoweringException(...)
    print(Explained("recursion", "stage joint failed", "it recursed too deep", "raise the limit").text())
    # stage joint failed: it recursed too deep. Raise the limit.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ....dumps.walk import user_frame
from ....dumps.wording import listed

if TYPE_CHECKING:
    from ..stage import Work

_WORKER_ERROR = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Failure|Resources|Construct))(?::|$)", re.MULTILINE)
_NODES_SHOWN = 12


class NodeAt(NamedTuple):
    """A node of the graph: its name, its operator, and the user's line ("model.py:12") with its code, "" where none is
    known."""

    node: str
    op: str
    line: str = ""
    code: str = ""


@dataclass
class Explained:
    """What is known of a failure.

    `kind` is a few words for the family ("C++ compile error", "unsupported operator", ...). `what` failed, `why`, and
    what to do (`fix`). `nodes`: those that failed, innermost first, or that stand behind `kernel`. `excerpt`: source
    around `line` of `file` with a marker. `compiler_line`: the compiler's own first error. `pass_name`: the pass that
    raised. `message`: the original text, whole.
    """

    kind: str
    what: str
    why: str = ""
    fix: str = ""
    stage: str = ""
    part: str = ""
    error_type: str = ""
    message: str = ""
    nodes: list[NodeAt] = field(default_factory=list[NodeAt])
    kernel: str = ""
    file: str = ""
    line: int | None = None
    column: int | None = None
    excerpt: str = ""
    compiler_line: str = ""
    pass_name: str = ""
    notes: list[str] = field(default_factory=list[str])

    def summary(self) -> str:
        """One paragraph: what failed, why, what to do."""
        said = f"{self.what}: {self.why.rstrip('.')}" if self.why else self.what
        return f"{said}. {self.fix[:1].upper()}{self.fix[1:].rstrip('.')}." if self.fix else said

    def text(self) -> str:
        """The account for people: the summary, then nodes, the compiler's line and the source around it."""
        lines = [self.summary()]
        if self.nodes:
            lines.append("nodes behind the kernel:" if self.kernel else "nodes:")
            width, op_width = (max(len(node[i]) for node in self.nodes[:_NODES_SHOWN]) for i in (0, 1))
            for node in self.nodes[:_NODES_SHOWN]:
                seen = f"{node.line or 'no user line is known'}  {node.code}".rstrip()
                lines.append(f"  {node.node:{width}}  {node.op:{op_width}}  {seen}")
            if (more := len(self.nodes) - _NODES_SHOWN) > 0:
                lines.append(f"  ... {more} more")
        return "\n".join([*lines, *filter(None, (self.compiler_line, self.excerpt)), *self.notes])

    def behind(self) -> str:
        """Kernel or pass, and nodes with their user lines, in one line; "" where none is known."""
        named = listed((f"{node.node} ({node.line})" if node.line else node.node for node in self.nodes), 4)
        if self.kernel:
            return f"in the kernel {self.kernel}" + (f", made of {named}" if named else "")
        if self.pass_name:
            return f"in the pass {self.pass_name}" + (f", at {named}" if named else "")
        return f"at {named}" if named else ""


@dataclass
class ErrorContext:
    """An error and its surroundings. `chain`: the error, then what it wraps, outermost first."""

    error: BaseException
    stage: str
    chain: list[BaseException]
    frames: list[FrameType]
    """The frames of the chain, outermost first; those of the innermost error come last."""
    part: str = ""
    gm: Any = None
    lowering: Any = None
    code: str = ""
    """The text of the generated wrapper with its kernels, "" before there is one."""

    @classmethod
    def of(cls, error: BaseException, work: Work | None, stage: str) -> ErrorContext:
        """Unwraps an error. An exception that only happened to be handled when another was raised counts as wrapped,
        too."""
        chain = chain_of(error)
        frames: list[FrameType] = []
        for link in chain:
            frames += [frame for frame, _ in traceback.walk_tb(link.__traceback__) if frame not in frames]
        case = cls(error, stage, chain, frames)
        if work is not None:
            case.part, case.gm = work.part, work.gm
            case.lowering = work.lowered.graph if work.lowered is not None else None
            case.code = _text(work.coded.wrapper, work.coded.kernels) if work.coded is not None else ""
        case._look_into_frames()
        return case

    def _look_into_frames(self) -> None:
        """Fills in lowering, code and graph from the frames where the stage's work lacks them; a compile by torch's own
        functions has no other source."""
        for frame in self.frames:
            own = frame.f_locals.get("self")
            if type(own).__name__ == "GraphLowering":
                self.code = self.code or _text(frame.f_locals.get("wrapper_code"))
            else:
                own = frame.f_locals.get("lowering")
            if self.lowering is None and type(own).__name__ == "GraphLowering":
                self.lowering = own
                self.gm = self.gm if self.gm is not None else getattr(own, "module", None)

    def find(self, *names: str) -> BaseException | None:
        """The first error in the chain whose class has one of these names; torch keeps most of its classes to
        itself."""
        return next((error for error in self.chain if any(cls.__name__ in names for cls in type(error).__mro__)), None)

    def text(self) -> str:
        """The texts of the whole chain, and with them what a compile worker wrote about the error of its own
        process."""
        return "\n".join(str(error) for error in self.chain)

    def cause(self) -> BaseException:
        """The first error in the chain that is not one of torch's wrappers."""
        return next((error for error in self.chain if not _is_wrapper(error)), self.chain[-1])

    def said(self) -> str:
        """The type and first line of the cause; of a compile worker's error the last line that names an error class."""
        cause = self.cause()
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        if type(cause).__name__ == "SubprocException" and lines:
            return next((line for line in reversed(lines) if _WORKER_ERROR.match(line)), lines[-1])
        return f"{type(cause).__name__}: {lines[0]}" if lines else type(cause).__name__

    @cached_property
    def running(self) -> list[Any]:
        """The FX nodes that were run, lowered, scheduled or matched when the error was raised, innermost first."""
        return running(self.frames)

    @property
    def nodes(self) -> list[NodeAt]:
        """The same nodes as `NodeAt` records."""
        return [at(node) for node in self.running]

    @property
    def op(self) -> str:
        """The operator that the error is about: that of the innermost running node, else from the error's text."""
        if self.running:
            return at(self.running[0]).op
        match = re.search(r"target: (\S+)", self.text())
        return match[1] if match else self.said()

    @property
    def where(self) -> str:
        """Node and line in brackets, to follow an operator's name; "" where no node is known."""
        if not self.running:
            return ""
        node = at(self.running[0])
        return f" (node {node.node}, {node.line or 'no user line is known'})"

    def inwards(self) -> Iterator[FrameType]:
        """The frames from the innermost to the outermost."""
        return reversed(self.frames)

    def about(self, kind: str, what: str, why: str = "", fix: str = "", **more: Any) -> Explained:
        """An account with the fields that every account has filled in."""
        cause, message = type(self.cause()).__name__, str(self.error)
        return Explained(kind, what, why, fix, self.stage, self.part, cause, message, **more)

    def about_nodes(self, kind: str, what: str, why: str = "", fix: str = "", **more: Any) -> Explained:
        """An account about the nodes that were running."""
        return self.about(kind, what, why, fix, nodes=self.nodes, **more)

    def about_kernel(self, kernel: str, kind: str, what: str, why: str = "", fix: str = "", **more: Any) -> Explained:
        """An account about a kernel, with the nodes behind it."""
        return self.about(kind, what, why, fix, nodes=of_kernel(self, kernel), kernel=kernel, **more)


def _is_wrapper(error: BaseException) -> bool:
    return bool(getattr(error, "inner_exception", None)) or type(error).__name__ == "LoweringException"


def chain_of(error: BaseException) -> list[BaseException]:
    """An error, then what it wraps, outermost first."""
    chain = [error]
    while len(chain) < 20:
        inner = getattr(chain[-1], "inner_exception", None)
        inner = inner if isinstance(inner, BaseException) else chain[-1].__cause__ or chain[-1].__context__
        if inner is None or inner in chain:
            break
        chain.append(inner)
    return chain


_OF_SCHEDULER = ("snode", "scheduler_node", "template_node", "current_node", "fx_node")
_LOCALS = ("n", "node", *_OF_SCHEDULER, "match", "m", "node_schedule")
_GRAPH_LINE = re.compile(r"^#\s+%(\w+) : .*?= (call_\w+|PlaceHolder)(?:\[target=([\w.]+)\])?", re.MULTILINE)
_BUFFER = re.compile(r"\b(buf\d+)\b")


def at(node: Any) -> NodeAt:
    """The `NodeAt` record of a node of torch.fx."""
    target = node.target
    own = isinstance(target, str) or type(target).__module__ == "torch._ops"  # prints as aten.add.Tensor
    op = str(target) if own else str(getattr(target, "__name__", target))
    line, code = user_frame(node.stack_trace or "")
    return NodeAt(node.name, node.op if node.op in ("placeholder", "output") else op, line, code)


def running(frames: Sequence[FrameType]) -> list[Any]:
    """The FX node that was run, lowered, scheduled or matched in these frames, followed by the nodes that enclose it.

    Interpreters first, then locals of frames that are nodes or made from nodes.
    """
    if ran := [node for frame in reversed(frames) if (node := _interpreted(frame)) is not None]:
        return list(dict.fromkeys(ran))
    for frame in reversed(frames):
        if frame.f_code.co_filename.endswith(("compile_fx/pipeline.py", "compile_fx/inner.py")):
            break
        for name in _LOCALS:
            if nodes := _origins(frame.f_locals.get(name)):
                return nodes
        if nodes := _origins_of_ir(frame.f_locals.get("self")):
            return nodes
    return []


def interpreter(frames: Sequence[FrameType]) -> Any:
    """The innermost interpreter of a graph that was running, which has the values of nodes in `env`; None where none
    was."""
    return next((frame.f_locals.get("self") for frame in reversed(frames) if _interpreted(frame) is not None), None)


def of_kernel(case: ErrorContext, kernel: str) -> list[NodeAt]:
    """The nodes that a kernel was made of, by Inductor's comment above it, else by the buffers that it writes."""
    if not kernel or not case.code:
        return []
    above = re.search(rf"^((?:#.*\n)+){re.escape(kernel)} = ", case.code, re.MULTILINE)  # Inductor's lines
    comment = above[1] if above else ""
    known = {node.name: node for node in case.gm.graph.nodes} if hasattr(case.gm, "graph") else {}
    named = [(match[1], match[3] or "") for match in _GRAPH_LINE.finditer(comment) if match[2] != "PlaceHolder"]
    if named:
        return [at(known[name]) if name in known else NodeAt(name, op.removeprefix("torch.ops.")) for name, op in named]
    return [at(node) for node in _writing(case, kernel)]


def _text(*codes: Any) -> str:
    return "\n".join(text for code in codes if isinstance(text := getattr(code, "value", None), str))


def _interpreted(frame: FrameType) -> Any:
    """The node in a frame of `Interpreter.run_node` or of a method that overrides it; None for other frames."""
    if frame.f_code.co_name != "run_node":
        return None
    node = frame.f_locals.get("n", frame.f_locals.get("node"))
    return node if _is_node(node) else None


def _is_node(value: Any) -> bool:
    from torch import fx

    return isinstance(value, fx.Node)


def _origins(value: Any) -> list[Any]:
    """Nodes of torch.fx behind a value: a node, a match of a pattern, a node of the scheduler, an IR node."""
    if value is None or isinstance(value, (str, int)):
        return []
    if _is_node(value):
        return [value]
    if isinstance(value, (list, tuple)):
        return list(dict.fromkeys(node for part in value[:64] for node in _origins(part)))  # pyright: ignore[reportUnknownArgumentType]
    if type(value).__name__ == "Match":
        return [node for node in getattr(value, "nodes", ()) if _is_node(node)]
    inside = getattr(value, "get_nodes", None)
    if callable(inside) and hasattr(value, "scheduler"):
        parts: list[Any] = list(inside())  # pyright: ignore[reportArgumentType]
        return list(dict.fromkeys(node for part in parts for node in _origins_of_ir(getattr(part, "node", None))))
    return _origins_of_ir(value)


def _origins_of_ir(value: Any) -> list[Any]:
    origins = getattr(value, "__dict__", {}).get("origins")
    return [] if origins is None or isinstance(origins, str) else [node for node in origins if _is_node(node)]


def _writing(case: ErrorContext, kernel: str) -> list[Any]:
    """Nodes behind the buffers that a kernel writes: those that its calls name and no call before them does."""
    seen: set[str] = set()
    mine: set[str] = set()
    calls = re.compile(
        rf"^\s*(?:{re.escape(kernel)}\b|extern_kernels\.|torch\.ops\.|\w*_fused_\w+\().*\(.*$|^\s*\w+ = torch\.ops\..*$"
    )
    for line in case.code.splitlines():
        if not calls.match(line) or " = async_compile" in line:
            continue
        named = set(_BUFFER.findall(line))
        if re.match(rf"\s*{re.escape(kernel)}\b", line):
            mine |= named - seen
        seen |= named
    nodes: set[Any] = set()
    for group in getattr(getattr(case.lowering, "scheduler", None), "nodes", ()):
        parts = [part for part in group.get_nodes() if not part.is_extern()]  # calls of libraries are no kernel of ours
        outputs = {output.get_name() for part in parts for output in part.get_outputs()}
        if outputs & mine:
            nodes.update(node for part in parts for node in _origins_of_ir(getattr(part, "node", None)))
    place = {node: index for index, node in enumerate(case.gm.graph.nodes)}  # nodes of other graphs go last
    return sorted(nodes, key=lambda node: place.get(node, len(place)))
