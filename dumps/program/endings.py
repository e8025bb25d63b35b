"""The judging part of a repro: runs the graph, compares its results and prints the outcome, one function for each kind
of failure.

A program ends with 1 while the bug is there, with 0 when it is gone, and with 2 when it can't tell: an unexpected
exception ends it with 2 (see `repro`). A repro is read before it is run, so code for cases that cannot occur in its
graph is left out: a branch for integers where all outputs are floating, gradients where none is wanted. Imports no
torch.

For example:

    ending_of(case).lines[-1]
    # 'print("gone: the compiled result agrees with float64")'
"""

from __future__ import annotations

from collections.abc import Callable

from ..wording import words_of
from . import suite
from .case import FLOATING, REAL, ReproFacts
from .suite import DyingProgram
from .text import CannotExpressError, Lines, indented, quoted


def ending_of(
    case: ReproFacts, compiled: str = "compiled", *, inner: bool = False, wide: str | None = ""
) -> DyingProgram:
    """Returns the statements that run, compare and judge; raises CannotExpressError for a kind of failure without a
    check.

    `compiled`: the compiled function as an expression; `inner`: it is Inductor's inner compiler. `wide`: keyword
    arguments with which the graph casts to float64 in place of its own floating dtypes; None: it has no such parameters
    and needs the mode.
    """
    failure, ending = case.failure, _ending_of(case, compiled, inner, wide)
    if failure.kind in ("crash", "missing_error"):
        words = ", ".join(map(quoted, sorted(sorted(words_of(failure.message)), key=failure.message.lower().find)))
        ending.expected = [
            f"ERROR, WORDS = {quoted(failure.error.rpartition('.')[2])}, {f'{{{words}}}' if words else 'set()'}"
        ]
    return ending


def _ending_of(case: ReproFacts, compiled: str, inner: bool, wide: str | None) -> DyingProgram:
    kind, detail = case.failure.kind, case.failure.detail
    if kind in ("accuracy", "nan") and case.facts.draws_as_inductor:
        raise CannotExpressError("the graph draws from Inductor's own random generator, which eager mode does not have")
    if case.only_compiled and kind == "crash":
        return suite.only_compiles(case, compiled, inner=inner)
    if case.checked:
        return _crossed(detail)
    if kind == "metadata" and detail in ("mutation", "no mutation"):
        return _mutation(compiled)
    if kind == "metadata" and detail in ("alias", "no alias", "offset"):
        return _shared_memory(compiled)
    run = Runs(case, compiled, wide)
    ending = _float64(run, wide) if case.against_float64 else _KINDS.get(kind, _unknown)(run)
    if run.function:
        ending.functions[:0] = [*([_LEAF] if run.facts.moved else []), run.function]
    return ending


_LEAF = [
    "def leaf(x):  # what gets the gradient of an input that was computed",
    "    node = x.grad_fn",
    '    while node is not None and not hasattr(node, "variable"):',
    "        node = next((n for n, _ in node.next_functions if n is not None), None)",
    "    return x if node is None else node.variable",
]


def _gone(how: str) -> str:
    return f'print("gone: the compiled result {how}")'


class Runs:
    """How this graph is run: forward only or with gradients, and with only its tensor outputs where it returns others
    too."""

    def __init__(self, case: ReproFacts, compiled: str, wide: str | None) -> None:
        self.facts, self.failure, self.compiled = case.facts, case.failure, compiled
        self.dtypes = ", **dtypes" if wide else ""
        self.backward = case.facts.wants_backward
        facts, failure = self.facts, self.failure
        compared = failure.kind in ("accuracy", "nan", "metadata") and failure.stage != "eager"
        self.writes = compared and facts.writes
        self.autocast = facts.autocast if compared else []
        """The devices on which autocast is turned off in the backward; empty where no results are compared."""
        self.results = [*facts.outputs, *([*facts.inputs, *facts.held] if self.writes else [])]
        """The dtypes of the compared outputs, without gradients; empty for an output that is no tensor."""
        self.tensors = bool(self.results) and all(self.results)
        self.function = self.with_gradients() if self.backward else self.with_inputs() if self.writes else []
        """The lines of the function `run`; empty where none is needed."""

    def of(self, function: str, inputs: str = "make_inputs()", more: str = "") -> str:
        """One run as an expression."""
        return f"run({function}, {inputs}{more})" if self.function else f"{function}(*{inputs}{more})"

    def waited(self, function: str) -> Lines:
        """One run as statements that wait for the device, so that a failure or hang there belongs to this run."""
        return [self.of(function), *(["torch.cuda.synchronize()"] if self.facts.on_cuda else [])]

    def eager(self) -> Lines:
        """The eager run before the compiled one; none where the failure is eager's own."""
        return [] if self.failure.stage == "eager" else [self.of("graph")]

    def compared(self, exact: str = "") -> Lines:
        """Assignments of `eager` and `got`, and of `exact` where it is given."""
        texts = {"eager": self.of("graph"), "got": self.of(self.compiled)} | ({"exact": exact} if exact else {})
        plain = self.tensors or self.backward or not self.results
        return [
            f"{name} = {text if plain else f'[y for y in {text} if torch.is_tensor(y)]'}"
            for name, text in texts.items()
        ]

    def with_inputs(self) -> Lines:
        """The function `run` of a graph that writes to its inputs."""
        return [
            f"def run(function, inputs{self.dtypes}):  # the results, then the inputs: they are written in place",
            f"    return [*function(*inputs{self.dtypes}), *inputs]",
        ]

    def with_gradients(self) -> Lines:
        """The function `run` of a graph that autograd sees."""
        wanted = self.facts.wanted
        front = wanted == list(range(len(wanted)))
        sources = f"inputs[:{len(wanted)}]" if front else f"[{', '.join(f'inputs[{at}]' for at in wanted)}]"
        drop = not all(self.facts.outputs) and self.failure.kind in ("accuracy", "nan")
        outputs = f"function(*inputs{self.dtypes})"
        outputs = f"[y for y in {outputs} if torch.is_tensor(y)]" if drop else f"list({outputs})"
        tensor = "" if all(self.facts.outputs) or drop else "torch.is_tensor(y) and "
        unused = "allow_unused" if self.failure.kind == "metadata" else "materialize_grads"
        after = " + inputs" if self.writes and all([*self.facts.inputs, *self.facts.held]) else ""
        moved = self.facts.moved
        leaves = "leaves" if after or moved else sources
        gradients = f"torch.autograd.grad(sources, {leaves}, tangents, {unused}=True)"
        returned = (
            f"return outputs + list({gradients}{'' if self.facts.outputs_want else ' if sources else ()'}){after}"
        )
        off = ", ".join(f"torch.autocast({quoted(device)}, enabled=False)" for device in self.autocast)
        drawn = ", generator=own" if self.facts.is_random else ""
        return [
            f"def run(function, inputs{self.dtypes}):  # the outputs, then the gradients of the inputs that want one",
            *([f"    leaves, inputs = {sources}, [x.clone() for x in inputs]"] if after and not moved else []),
            *([f"    leaves = [leaf(x) for x in {sources}]"] if moved else []),
            f"    outputs = {outputs}",
            f"    sources = [y for y in outputs if {tensor}y.requires_grad]",
            *(["    own = torch.Generator().manual_seed(0)  # the backward may draw, too"] if drawn else []),
            f"    tangents = [torch.randn(y.shape, dtype=torch.float64{drawn}).to(y) for y in sources]",
            *([f"    with {off}:  # as a program's backward", f"        {returned}"] if off else [f"    {returned}"]),
        ]


# -- what the results are like
# -------------------------------------------------------------------------------------------------


def _nan(run: Runs) -> DyingProgram:
    if run.failure.stage == "eager":  # the model's own failure: no compiler is needed
        return DyingProgram(
            f"for i, e in enumerate({run.of('graph')}):",
            "    if torch.is_tensor(e) and e.isnan().any():",
            '        sys.exit(f"BUG: output {i}: {int(e.isnan().sum())} values are NaN in eager mode")',
            'print("gone: no output is NaN")',
        )
    return DyingProgram(
        *run.compared(),
        "for i, (e, g) in enumerate(zip(eager, got, strict=True)):",
        "    bad = e.isfinite() & ~g.isfinite()",
        "    if bad.any():",
        '        sys.exit(f"BUG: output {i}: {int(bad.sum())} values are NaN or infinite, eager\'s are finite")',
        _gone("is finite where eager mode is"),
    )


def _metadata(run: Runs) -> DyingProgram:
    stride = run.failure.detail == "stride"
    form = "strides(x)" if stride else "(x.shape, x.dtype, x.device, x.layout)"
    form = form if run.tensors and not run.backward else f"torch.is_tensor(x) and {form}"
    strides = [
        "def strides(x):  # those that mean something",
        "    return [step for size, step in zip(x.shape, x.stride(), strict=True) if size > 1]",
    ]
    return DyingProgram(
        f"eager = {run.of('graph')}",
        f"got = {run.of(run.compiled)}",
        f"eager, got = ([{form} for x in y] for y in (eager, got))",
        "print(f\"{'gone' if eager == got else 'BUG'}: outputs are {got}, in eager mode {eager}\")",
        "sys.exit(int(eager != got))",
        functions=[strides] if stride else [],
    )


def _crossed(detail: str) -> DyingProgram:
    """Lets torch compare operators on real and on fake tensors; torch 2.11 compares strides on CUDA alone."""
    every = (
        '    torch._prims_common.check_significant_strides.__kwdefaults__["only_cuda"] = False  # CPU, too, in '
        "torch 2.11"
    )
    return DyingProgram(
        "if FAULT:",
        *([every] if detail == "stride" else []),
        "    try:",
        "        with CrossRefFakeMode(only_check_ops_with_meta=False):",
        "            graph(*make_inputs())",
        "    except (MetadataMismatchError, AssertionError) as error:",
        '        sys.exit(f"BUG: {error}")',
        'print("gone: each operator returns what it promises")',
    )


def _mutation(compiled: str) -> DyingProgram:
    return DyingProgram(
        "before, eager, got = make_inputs(), make_inputs(), make_inputs()",
        "graph(*eager)",
        f"{compiled}(*got)",
        "for i, (b, *after) in enumerate(zip(before, eager, got, strict=True)):",
        "    changed = [torch.is_tensor(b) and not torch.allclose(b, x, rtol=0, atol=0, equal_nan=True) "
        "for x in after]",
        "    if changed[0] != changed[1]:",
        "        sys.exit(f\"BUG: {'eager mode' if changed[0] else 'the compiled graph'} alone changes "
        'input {i} in place")',
        _gone("changes what eager mode changes"),
    )


def _shared_memory(compiled: str) -> DyingProgram:
    homes = [
        "def homes(function):",
        '    """For each output the first input whose memory it shares (None: none of them) and its storage '
        'offset there."""',
        "    inputs = make_inputs()",
        "    outputs = function(*inputs)",
        "    owner = {x.untyped_storage().data_ptr(): i for i, x in reversed(list(enumerate(inputs))) if "
        "torch.is_tensor(x)}",
        "    owned = [(owner.get(y.untyped_storage().data_ptr()), y) for y in outputs if torch.is_tensor(y) "
        "and y.numel()]",
        "    return [(home, None if home is None else y.storage_offset()) for home, y in owned]",
    ]
    return DyingProgram(
        f"eager, got = homes(graph), homes({compiled})",
        "print(f\"{'gone' if eager == got else 'BUG'}: outputs lie in inputs (number, offset) {got}, in "
        'eager mode {eager}")',
        "sys.exit(int(eager != got))",
        functions=[homes],
    )


def _unknown(run: Runs) -> DyingProgram:
    raise CannotExpressError(f"no repro can be written for a failure of the kind {run.failure.kind!r} yet")


_KINDS: dict[str, Callable[[Runs], DyingProgram]] = {
    "crash": suite.crash,
    "missing_error": suite.missing_error,
    "signal": suite.signal,
    "hang": suite.hang,
    "slow": suite.slow,
    "memory": suite.memory,
    "nan": _nan,
    "metadata": _metadata,
}


# -- values against float64
# ----------------------------------------------------------------------------------------------------

_FLOAT64_MODE = [
    "class Float64(TorchDispatchMode):",
    '    """Rewrites every floating dtype argument to float64 while the reference is computed."""',
    "",
    "    def __torch_dispatch__(self, op, types, args=(), kwargs=None):",
    "        given = (args, kwargs or {})",
    "        args, kwargs = tree_map_only(torch.dtype, lambda x: torch.float64 if x.is_floating_point else x, given)",
    "        return op(*args, **kwargs)",
]


def _float64(run: Runs, wide: str | None) -> DyingProgram:
    """A comparison of the compiled and eager results with the graph's float64 result."""
    if not run.facts.with_floats and run.failure.kind == "accuracy":  # float64 would change nothing
        loop = "for i, (e, g) in enumerate(zip(eager, got, strict=True)):"
        return DyingProgram(*run.compared(), loop, *indented(_integers("e != g")), _gone("is eager's"))
    given, functions = f"[{_in_float64(run)} for x in make_inputs()]", [_FLOAT64_MODE] if wide is None else []
    reads_more = (run.writes and run.facts.shares) or run.facts.reaches
    if reads_more and not run.backward and all([*run.facts.inputs, *run.facts.held]):
        given, functions = "widened(make_inputs())", [*functions, _WIDENED]
    given = "make_inputs(torch.Tensor.double)" if run.facts.moved else given
    exact = run.of("graph", given, wide or "")
    mode = ["with Float64():", f"    exact = {exact}"] if wide is None else []
    test = _test(run)
    if run.facts.unbacked:
        test = ["r = r if r.shape == e.shape else e", *test]
    agrees = {"rounding": "rounds as eager mode does", "signed zero": "has the signs of eager mode"}.get(
        run.failure.detail
    )
    return DyingProgram(
        *mode,
        *run.compared(exact if wide is not None else ""),
        "for i, (e, r, g) in enumerate(zip(eager, exact, got, strict=True)):",
        *indented(test),
        _gone(agrees or "agrees with float64"),
        functions=functions,
    )


_WIDENED = [
    "def widened(inputs):  # in float64; what shares memory, or lies between, is kept",
    "    memory = {x.untyped_storage().data_ptr(): x for x in inputs}",
    "    for at, x in memory.items():",
    "        x = x.as_strided((x.untyped_storage().nbytes() // x.itemsize,), (1,), 0)",
    "        memory[at] = x.double() if x.is_floating_point() else x",
    "    forms = [(memory[x.untyped_storage().data_ptr()], x.shape, x.stride(), x.storage_offset()) for x in inputs]",
    "    return [torch.as_strided(*form) for form in forms]",
]


def _in_float64(run: Runs) -> str:
    """An input `x` in float64, as an expression that fits all inputs."""
    inputs = [*run.facts.inputs, *run.facts.held]
    if all(dtype.startswith(REAL) for dtype in inputs):
        return "x.double()"
    return f"x.double() if {'' if all(inputs) else 'torch.is_tensor(x) and '}x.is_floating_point() else x"


def _test(run: Runs) -> Lines:
    """The statements on one output: eager's `e`, float64's `r`, the compiled `g`."""
    detail, complexes = run.failure.detail, run.facts.with_complex
    dtypes = [*run.results, *(["float32"] if run.backward else [])]
    floats = bool(dtypes) and all(dtype.startswith(FLOATING) for dtype in dtypes)
    wide = "to(torch.complex128)" if complexes else "double()"
    guard = f"if e.is_floating_point(){' or e.is_complex()' if complexes else ''}:"
    if detail in ("signed zero", "rounding"):
        test = _signed_zero() if detail == "signed zero" else _rounding()
        real = bool(dtypes) and all(dtype.startswith(REAL) for dtype in dtypes)
        guard = guard if run.failure.kind == "nan" else "if e.is_floating_point():"
        return test if real else [guard, *indented(test)]
    if run.failure.kind == "nan":
        return _missing(wide) if floats else [guard, *indented(_missing(wide))]
    if run.tensors and not any(dtype.startswith(FLOATING) for dtype in dtypes):
        return _integers("(e != g) & (e == r)")
    measured, bad = _measured(run, wide)
    if floats:
        return [
            *measured,
            f"if {bad}:",
            '    print(f"compiled:\\n{g}\\nin float64:\\n{r}")',
            '    sys.exit(f"BUG: output {i} is {off:.3g} off its float64 value of norm {size:.3g}, eager '
            'mode {own:.3g}")',
        ]
    return [
        guard,
        *indented([*measured, f"bad = {bad}"]),
        "else:",
        "    bad = ((e != g) & (e == r)).any()",
        "if bad:",
        '    sys.exit(f"BUG: output {i} is\\n{g}\\neager mode gives\\n{eager[i]}\\nfloat64 gives\\n{r}")',
    ]


def _measured(run: Runs, wide: str) -> tuple[Lines, str]:
    """Statements that measure how far the compiled and eager results are from float64, where all three are finite; and
    the condition under which that is too far."""
    loosest = run.facts.tolerance
    lines = [
        f"e, r, g = (x.{wide} for x in (e, r, g))",
        "finite = (e + r + g).isfinite()",
        "off, own, size = (x[finite].norm() for x in (g - r, e - r, r))",
    ]
    bad = f"off > 4 * own + {loosest!r} * size"
    if run.failure.size is not None and run.failure.size >= 4 * loosest:  # a large error shows in the norm
        return lines, bad
    noise = f"{24 if run.facts.half else 256} * torch.finfo(eager[i].dtype).eps * (r.abs() + rms)"
    return [
        *lines,
        "most, rms = max((e - r)[finite].abs().tolist(), default=0), size / max(int(finite.sum()), 1) ** 0.5",
        f"far = ((g - r).abs() > 16 * most + {noise})[finite]",
    ], f"{bad} or far.any()"


def _integers(bad: str) -> Lines:
    return [
        f"bad = {bad}",
        "if bad.any():",
        '    sys.exit(f"BUG: output {i}: {int(bad.sum())} elements differ, such as {g[bad][0]}, eager gives '
        '{e[bad][0]}")',
    ]


def _missing(wide: str) -> Lines:
    """A check for values that are not finite in eager mode and in float64."""
    return [
        f"e, r, g = (x.{wide} for x in (e, r, g))",
        "odd = ~e.isfinite() & ((e == r) | (e.isnan() & r.isnan()))",
        "bad = odd & ~((e == g) | (e.isnan() & g.isnan()))",
        "if bad.any():",
        '    sys.exit(f"BUG: output {i} has {g[bad][0]} where eager and float64 give {e[bad][0]}")',
    ]


def _signed_zero() -> Lines:
    return [
        "zero = (e == 0) & (r == 0) & (g == 0) & (e.signbit() == r.signbit())",
        "bad = zero & (e.signbit() != g.signbit())",
        "if bad.any():",
        '    sys.exit(f"BUG: output {i}: {int(bad.sum())} zeros have another sign than eager\'s")',
    ]


def _rounding() -> Lines:
    """A check for a rounding that compiled code leaves out: its result is near float64, which has no such rounding, and
    far from eager's."""
    return [
        "noise = 100 * torch.finfo(e.dtype).eps",
        "e, r, g = (x.double() for x in (e, r, g))",
        "bad, near, size = (x[~x.isnan()].norm() for x in (g - e, g - r, r[r.isfinite()]))",
        "if bad > 2 * near + noise * size:",
        '    sys.exit(f"BUG: output {i} leaves a rounding out: {near:.3g} off float64 without it, {bad:.3g} '
        'off eager")',
    ]
