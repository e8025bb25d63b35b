"""Defines "fails the same way": the kind of a failure, where it happens, and its error without what a reduction
changes.

No torch is imported. `same_as` is what the minifier, the verification of a report and `triage` compare by; the text is
for people.

>>> seen = from_exception(ValueError("size 4 is not 8"), stage="compile")
>>> seen.same_as(from_exception(ValueError("size 2 is not 16"), stage="compile"))
True
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from ...dumps.allowlist import words
from ...dumps.wording import like, without_advice, without_excerpt, words_of
from ..isolation.protocol import TaskResult, frames_of

_IR = re.compile(
    r"\b(?:TensorBox|StorageBox|InputBuffer|ComputedBuffer|ConstantBuffer|Pointwise|Reduction|Scatter|View|ReinterpretView|PermuteView|"
    r"ExpandView|SqueezeView|SliceView|GenericView|DonatedBuffer|ExternKernel\w*|FallbackKernel|MultiOutput|\w*Layout|FakeTensor|tensor|Parameter|"
    r"torch\.Size|TensorMetadata|ShapeAsConstantBuffer|SchedulerNode|FusedSchedulerNode|\w+Box|\w+Constant)\("
)
_NAMED = "buf|arg|args|op|primals|tangents|tmp|getitem|inp|in_ptr|out_ptr|fwd_rng_state|x|i|p|z|r|s|u|zuf|val|ks|idx"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"0x[0-9a-fA-F]+"), "<hex>"),
    (re.compile(r"(?:[A-Za-z]:)?(?:/[\w.+\-@]+){2,}/?"), "<path>"),
    (re.compile(r"\bc[a-z2-7]{50,}\w*"), "<hash>"),
    (re.compile(rf"%?\b(?:{_NAMED})_?\d+(?:_\d+)*\b"), "<name>"),
    (re.compile(r"(%?\b[A-Za-z]\w*?)(?:_\d+)+\b"), r"\1"),
    (re.compile(r"\bname='[^']*'"), "name=<name>"),
    (re.compile(r"(?<![\w<])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w)"), "<n>"),
    (re.compile(r"\[\s*(?:(?:<n>|<name>)\s*,?\s*)+\]"), "[..]"),
    (re.compile(r"\(\s*(?:(?:<n>|<name>)\s*,?\s*)+\)"), "(..)"),
    (re.compile(r"[ \t]+"), " "),
)
_CPP_ERROR = re.compile(r"\berror: (.*)")
_ACCUMULATOR = re.compile(r"(?<=tmp_acc)\d+")
"""The number of an accumulator in a generated kernel: a smaller kernel has fewer of them."""
_MAX_LINES, _MAX_CHARS, _FRAMES = 4, 400, 4


def message(text: str) -> str:
    """The first lines of an error text without numbers, node and buffer names, addresses, paths and reprs of values."""
    text = _collapse(without_advice(text))
    lines = [line.strip() for line in text.splitlines() if line.strip()][:_MAX_LINES]
    kept = "\n".join(lines)
    for pattern, replacement in _RULES:
        kept = pattern.sub(replacement, kept)
    return kept[:_MAX_CHARS].strip()


def cpp_error(output: str) -> str:
    """The first `error:` line of a C++ compiler's output, normalised; the last line when there is none (a linker's
    message)."""
    match = _CPP_ERROR.search(output)
    if match:
        return message(_ACCUMULATOR.sub("<n>", match.group(1)))
    lines = [line for line in output.splitlines() if line.strip()]
    return message(lines[-1]) if lines else ""


def lowering_target(text: str) -> str:
    """The op of `target: aten.foo.default` in a lowering error's text, or the empty string."""
    match = re.search(r"^\s*target: (\S+)", text, re.MULTILINE)
    return match.group(1) if match else ""


def _collapse(text: str) -> str:
    """Replaces the balanced arguments of IR and tensor reprs by dots, whatever their depth."""
    out: list[str] = []
    at = 0
    while match := _IR.search(text, at):
        out.append(text[at : match.end()])
        depth, end = 1, match.end()
        while end < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        out.append("..)")
        at = end
    return "".join(out) + text[at:]


_PLUMBING = words("""
    torch.fx.interpreter torch._dynamo.utils torch.utils._python_dispatch torch._dynamo.repro.after_aot
    contextlib torch.utils._contextlib torch._logging._internal torch._utils_internal torch.nn.modules.module
    torch._compile""")


def library_frames(frames: list[str]) -> list[str]:
    """The frames of torch and triton among `module:function` frames, innermost first, without the plumbing around
    them."""
    inside = [frame for frame in frames if frame.split(".")[0].split(":")[0] in ("torch", "triton", "sympy")]
    return [frame for frame in inside if frame.split(":")[0] not in _PLUMBING][:_FRAMES]


_TRACE_LINE = re.compile(r'File "([^"]+)", line \d+ in (\S+)')


def faulthandler_frames(output: str) -> list[str]:
    """`module:function` of a faulthandler trace, innermost first; generated code is `<generated>`."""
    _, marker, trace = output.rpartition("(most recent call first):")
    if not marker:
        return []
    frames = []
    for path, function in _TRACE_LINE.findall(trace):
        parts = path.removesuffix(".py").split("/")
        if package := next((name for name in ("torch", "triton", "graphdbg") if name in parts[:-1]), ""):
            frames.append(".".join(parts[parts.index(package) :]).removesuffix(".__init__") + f":{function}")
        else:
            generated = re.fullmatch(r"c[a-z2-7]{50,}", parts[-1]) is not None or path.startswith("<")
            frames.append(f"{'<generated>' if generated else parts[-1]}:{function}")
    return frames[:_FRAMES]


SURE, STILL = 100.0, 3.0
"""A result that was more than SURE times beyond rounding must stay more than STILL times beyond it."""

FEW, MANY, LEAST = 0.02, 0.5, 64
"""A share of at most FEW wrong elements does not grow to MANY, among at least LEAST elements: reducing a graph does not
spread an error."""

SHARP = 0.01
"""The relative difference up to which two factors are equal."""


class Form(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form of a wrong result: what distinguishes one wrong-number bug from another and from rounding, and survives
    a reduction. Cutting a graph smears or gathers an error, so only what both forms say sharply must agree.

    `count` elements, `wrong` of them as a share; `over`: the error over what rounding explains, 0 where that has no
    meaning; `factor`, `offset`: what all wrong elements have in common, if anything.
    """

    count: int = 0
    wrong: float = 0.0
    over: float = 0.0
    factor: float | None = None
    offset: int | None = None


def alike(wanted: Form | None, got: Form | None) -> bool:
    """Whether a smaller case's wrong result can have the original's cause. True where one of the forms is unknown."""
    if wanted is None or got is None:
        return True
    if wanted.over >= SURE and 0.0 < got.over < STILL:
        return False
    if wanted.wrong <= FEW and wanted.count >= LEAST and got.wrong >= MANY and got.count >= LEAST:
        return False
    if wanted.factor is not None and got.factor is not None and not _one_factor(wanted.factor, got.factor):
        return False
    return wanted.offset is None or got.offset is None or abs(wanted.offset) == abs(got.offset)


def _one_factor(factor: float, other: float) -> bool:
    """Whether two factors are equal, or one is the reciprocal, square or square root of the other."""
    known = (factor, 1.0 / factor, factor * factor, abs(factor) ** 0.5) if factor else (factor,)
    return any(abs(value - other) <= SHARP * abs(value) for value in known)


VERSION = 6
"""Raised when `same_as` or the normalisation changes, since journals key their verdicts by it."""

Kind = Literal[
    "crash",
    "accuracy",
    "nan",
    "metadata",
    "hang",
    "signal",
    "memory",
    "slow",
    "missing_error",
    "command",
    "nondeterministic",
    "error",
]

RAISED_TOO = "raised, too"
"""The detail of an "error" for which the rung raises the same as eager."""

_SIZE_FACTOR = 1e-3

_HEAP = re.compile(r"double free|corrupted (?:size|double)|^(?:malloc|calloc|realloc|munmap_chunk|free)(?:_\w+)?\(\)")
"""glibc's messages about a corrupt heap: which check notices it, and when, is chance."""


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to fail.

    `kind`: crash (the rung raised), accuracy, nan, metadata, hang, signal, memory, slow (as asked), missing_error
    (eager raised, the rung did not), command (a command of the user's said so); nondeterministic and error mean that no
    verdict is possible (eager differs between two runs; eager or graphdbg itself failed). `stage`: eager | compile |
    run | compare. `error`: exception type. `message`: normalised, or the threshold of what is measured. `frames`:
    innermost library frames. `detail`: signal name, lowered op, op at which eager raises, metadata property, "nan" or
    "inf". `size`: for accuracy, the error relative to the reference's root mean square; for what is measured, the
    amount. `raw` is the text as it was, not compared.
    """

    kind: Kind
    stage: str = ""
    error: str = ""
    message: str = ""
    frames: tuple[str, ...] = ()
    detail: str = ""
    size: float | None = None
    raw: str = ""
    form: Form | None = None

    @property
    def undecided(self) -> bool:
        """Whether it is no failure, but means that no verdict is possible."""
        return self.kind in ("nondeterministic", "error")

    def same_as(self, other: Signature) -> bool:
        """Whether two failures are one bug.

        Kind, stage, detail and exception type must be equal. Messages must be equal after normalisation; when they
        differ, the same two innermost library frames and most words of each in the other make up for it; when both are
        empty, the frames alone do. An accuracy failure must not have shrunk a thousandfold (it would be rounding by
        then), and the forms must be alike.
        """
        if (self.kind, self.stage, self.group(), self.error) != (other.kind, other.stage, other.group(), other.error):
            return False
        if self.kind == "accuracy":
            return (other.size or 0.0) >= _SIZE_FACTOR * (self.size or 0.0) and alike(self.form, other.form)
        if self.kind in ("hang", "memory", "slow", "nan", "metadata", "nondeterministic"):
            return True
        if self.message == other.message:
            return bool(self.message) or self.frames[:2] == other.frames[:2]
        if not self.frames or self.frames[:2] != other.frames[:2]:
            return False
        return like(words_of(self.message), other.message) and like(words_of(other.message), self.message)

    def group(self) -> str:
        """The detail; the same for those that a few nodes turn into each other: Inf and NaN, wrong integers and wrong
        floats."""
        if self.kind == "nan":
            return "extra" if self.detail in ("nan", "inf") else "missing"
        return "" if self.kind == "accuracy" and self.detail == "integers" else self.detail

    def text(self) -> str:
        """One line for people: "crash in compile: LoweringException (aten.foo): ..."."""
        missing = self.kind == "missing_error"
        parts = ["missing error" if missing else self.kind + (f" in {self.stage}" if self.stage else "")]
        named = self.error.rpartition(".")[2]
        if self.detail:
            named = f"{named} ({self.detail})" if named else self.detail
        first = (without_excerpt(self.raw or self.message).strip().splitlines() or [""])[0]
        relative = self.kind == "accuracy" and self.detail != "integers" and self.size is not None
        size = f"relative error {self.size:.2g}" if relative else ""
        if size not in first:
            named = f"{named} {size}".strip()
        parts += [part for part in (named, first) if part]
        return ": ".join(parts)


def from_exception(error: BaseException, stage: str) -> Signature:
    """The signature of an exception, unwrapped to what was first raised inside the compiler."""
    inner, detail, frames = error, "", library_frames(frames_of(error))
    for _ in range(20):
        detail = detail or lowering_target(str(inner) if _is(inner, "LoweringException") else "")
        deeper = inside(inner)
        if deeper is None:
            break
        frames = library_frames(frames_of(deeper)) or frames
        inner = deeper
    name = f"{type(inner).__module__}.{type(inner).__qualname__}".removeprefix("builtins.")
    if _is(inner, "CppCompileError"):
        text = cpp_error(str(getattr(inner, "output", "") or inner))
        return Signature("crash", stage, name, text, detail=detail or "C++", raw=text)
    raw = without_advice(str(inner))[:1000]
    return Signature("crash", stage, name, message(str(inner)), tuple(frames), detail, raw=raw)


def from_answer(answer: TaskResult) -> Signature | None:
    """The signature of a whole query: the one that the task returned, else how its process ended. None: the query
    passed."""
    if answer.status == "done":
        signature: Any = answer.value.get("signature") if isinstance(answer.value, dict) else None
        return None if signature is None else msgspec.convert(signature, Signature)
    frames = tuple(faulthandler_frames(answer.output))
    if answer.status == "signal":
        raw = _abort_text(answer.output)
        corrupt = _HEAP.search(raw) is not None
        stage, text = answer.stage, "the heap is corrupt" if corrupt else message(raw)
        stage = "run" if corrupt and stage == "compare" else stage  # comparing only reveals what the run corrupted
        return Signature("signal", stage, frames=frames, detail=answer.signal, message=text, raw=raw)
    if answer.status == "timeout":
        return Signature("hang", answer.stage, frames=frames, size=round(answer.seconds, 1))
    if answer.status == "memory":
        return Signature("memory", answer.stage)
    failure = answer.error
    assert failure is not None
    kind: Kind = "crash" if failure.type == "ProcessExit" else "error"
    inside = tuple(library_frames(failure.frames))
    return Signature(kind, answer.stage, failure.type, message(failure.message), inside, raw=failure.message[:1000])


def how_ended(answer: TaskResult) -> str:
    """How a process ended that gave no value, in one line."""
    signature = from_answer(answer)
    return signature.text().splitlines()[0] if signature is not None else answer.status


def _is(error: BaseException, name: str) -> bool:
    return any(cls.__name__ == name for cls in type(error).__mro__)


def inside(error: BaseException) -> BaseException | None:
    """The exception that a wrapper of torch's wraps; None for an exception that wraps nothing."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException) and inner is not error:
        return inner
    if _is(error, "LoweringException"):
        return error.__cause__ or error.__context__
    if _is(error, "CompilationError") and not getattr(error, "error_message", None):  # raised in a called function
        return error.__cause__
    return None


def _abort_text(output: str) -> str:
    """The line that a C++ abort leaves: "terminate called ...", a failed assertion, a heap that is corrupt."""
    signs = ("what():", "Assertion", "corrupt")
    lines = output.splitlines()
    return next((line for line in lines if any(sign in line for sign in signs) or _HEAP.search(line)), "")
