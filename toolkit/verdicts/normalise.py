"""Error texts and stack frames in a form that survives a reduction: no numbers, names, paths or reprs of values.

Pure text, no torch. Two candidates of one case fail with different node names, shapes and buffer numbers; what is left
here must be equal for them, and differ for another bug.

>>> message("expected buf12 of size [4, 8] at /tmp/x/ab.py, got 0x7f")
'expected <name> of size [..] at <path>, got <hex>'
"""

from __future__ import annotations

import re

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
"""How the accumulators of a generated kernel are numbered; fewer of them are left in a smaller kernel."""
_MAX_LINES, _MAX_CHARS = 4, 400


_CUDA_ADVICE = re.compile(
    r"^(?:Search for `cuda|CUDA kernel errors might be|For debugging consider passing CUDA_LAUNCH_BLOCKING"
    r"|Compile with `TORCH_USE|Device-side assert(?:ion|ions)? (?:tracking|were|was)).*(?:\n|\Z)",
    re.MULTILINE,
)
"""What torch adds to each CUDA error: it says nothing of this one."""


def without_advice(text: str) -> str:
    """An error text without the advice that torch adds to every CUDA error."""
    return _CUDA_ADVICE.sub("", text).rstrip() if "CUDA" in text else text


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


_PLUMBING = frozenset(
    {
        "torch.fx.interpreter",
        "torch._dynamo.utils",
        "torch.utils._python_dispatch",
        "torch._dynamo.repro.after_aot",
        "contextlib",
        "torch.utils._contextlib",
        "torch._logging._internal",
        "torch._utils_internal",
        "torch.nn.modules.module",
        "torch._compile",
    }
)


def library_frames(frames: list[str], keep: int = 4) -> list[str]:
    """The frames of torch and triton among `module:function` frames, innermost first, without the plumbing around
    them."""
    inside = [frame for frame in frames if frame.split(".")[0].split(":")[0] in ("torch", "triton", "sympy")]
    return [frame for frame in inside if frame.split(":")[0] not in _PLUMBING][:keep]


_TRACE_LINE = re.compile(r'File "([^"]+)", line \d+ in (\S+)')


def faulthandler_frames(output: str, keep: int = 4) -> list[str]:
    """`module:function` of a faulthandler trace, innermost first; generated code is `<generated>`."""
    _, marker, trace = output.rpartition("(most recent call first):")
    if not marker:
        return []
    frames = []
    for path, function in _TRACE_LINE.findall(trace):
        parts = path.removesuffix(".py").split("/")
        for package in ("torch", "triton", "graphdbg"):
            if package in parts[:-1]:
                frames.append(".".join(parts[parts.index(package) :]).removesuffix(".__init__") + f":{function}")
                break
        else:
            generated = re.fullmatch(r"c[a-z2-7]{50,}", parts[-1]) is not None or path.startswith("<")
            frames.append(f"{'<generated>' if generated else parts[-1]}:{function}")
    return frames[:keep]
