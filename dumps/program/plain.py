"""The plain program: a function with torch's own names, its inputs, and one of the endings that show the failure.

Pure text; which ending shows it is found by running (minifier.report). Must not import torch.

>>> [ending.what for ending in endings(case)]                                          # doctest: +SKIP
['a comparison of the outputs']
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..schema import NodeRecord
from ..walk import outputs
from .case import Case
from .dying import limit_s
from .function import Function, is_word
from .inputs import Slot, inputs_of
from .repro import BACKENDS, Script
from .settings import state_of
from .sizes import Sizing, sizes_inside
from .text import CannotExpressError, Lines, blocks, broken, dotted, gap_before, indented
from .torch_names import INDEX, Plain, Slice, plain_call

_INFIX = {"torch.add": "+", "torch.sub": "-", "torch.mul": "*", "torch.div": "/"}
_WRITES = re.compile(r"\b\w+_(?:\.\w+)?$")
_NOT_SAID = ("torch.set_autocast_", "torch.set_grad_enabled(")
"""What a plain program has otherwise: autocast is a block of its own, and gradients stay as they are."""
_WIDTH = 110


@dataclass(frozen=True)
class Runs:
    """The texts of a program's runs: calls of the function itself and of the compiled one, and what to draw before each."""

    eager: str
    compiled: str
    wide: str
    """The call with all inputs in float64."""
    wanted: str
    """The inputs that want a gradient."""
    several: bool
    before: Lines

    def pair(self, form: str = "{}") -> Lines:
        """Both, each in `form`."""
        expected, actual = form.format(self.eager), form.format(self.compiled)
        return [*self.before, f"expected = {expected}", *self.before, f"actual = {actual}"]

    def loss(self, call: str) -> str:
        """A sum that gradients can be taken of."""
        return f"sum(y.sum() for y in {call} if y.requires_grad)" if self.several else f"{call}.sum()"


@dataclass(frozen=True)
class Ending:
    """The last lines. `error`: the type that is raised, if no AssertionError; `death`: the signal, or "hang", that `marker` is
    printed before; `control`: whether the function itself passes in place of the compiled one.
    """

    what: str
    lines: Callable[[Runs], Lines]
    error: str = ""
    death: str = ""
    marker: str = ""
    expects: str = "AssertionError, exit code 1"
    control: bool = True


def endings(case: Case) -> list[Ending]:
    """What may show the failure, plainest first; raises CannotExpressError for a kind that no plain line shows."""
    kind, detail = case.failure.kind, case.failure.detail
    if kind == "crash":
        return list(_raising(case))
    if kind in ("signal", "hang"):
        return [_dying(case)]
    if kind == "missing_error":
        return [_not_raising(case)]
    if kind == "metadata":
        return [_metadata(case)]
    if kind not in ("accuracy", "nan") or detail == "rounding":
        raise CannotExpressError(
            f"a failure of the kind {detail or kind} is no comparison of one line; repro.py measures it"
        )
    if detail == "signed zero":
        return [Ending("a comparison of signs", _signs)]
    return [_against_float64(case)] if _is_small(case) else list(_comparisons(case))


def _raising(case: Case) -> Iterator[Ending]:
    error = case.failure.error.rpartition(".")[2]
    expects = f"{error}, exit code 1"
    yield Ending("the call that raises", lambda run: [*run.before, run.compiled], error, expects=expects)
    if case.facts.wants_backward:
        what = "the gradients, which raise"
        yield Ending(what, lambda run: [*run.before, f"{run.loss(run.compiled)}.backward()"], error, expects=expects)


def _dying(case: Case) -> Ending:
    hangs, dies_in_eager = case.failure.kind == "hang", case.failure.stage == "eager"
    death = "hang" if hangs else case.failure.detail or "SIGSEGV"
    why = f"does not end within {limit_s(case.failure)} s" if hangs else f"killed by {death}"

    def lines(run: Runs) -> Lines:
        first = [] if dies_in_eager else [*run.before, run.eager]
        return [*first, 'print("compiling", flush=True)', *run.before, f"{run.compiled}  # {why}"]

    what = "a run that does not end" if hangs else "a run that dies"
    return Ending(what, lines, death=death, marker="compiling", expects=why)


def _not_raising(case: Case) -> Ending:
    error = case.failure.error.rpartition(".")[2]

    def lines(run: Runs) -> Lines:
        return [
            "try:",
            *indented([*run.before, run.eager]),
            "except Exception as error:  # noqa: BLE001",
            '    print("eager mode raises:", error)',
            *indented([*run.before, run.compiled]),
            f'    raise AssertionError("torch.compile raises no {error}") from None',
        ]

    return Ending("an exception that is missing", lines, control=False)


def _metadata(case: Case) -> Ending:
    detail = case.failure.detail
    form = {"stride": "stride()", "dtype": "dtype", "shape": "shape", "device": "device"}.get(detail)
    if form is None:
        raise CannotExpressError(f"a difference in {detail or 'metadata'} is no comparison of one line; repro.py has it")

    def lines(run: Runs) -> Lines:
        found, same = f"(actual.{form}, expected.{form})", "found[0] == found[1]"
        if run.several:
            found = f"[(one.{form}, other.{form}) for one, other in zip(actual, expected, strict=True)]"
            same = "all(one == other for one, other in found)"
        return [*run.pair(), f"found = {found}", 'print("compiled, eager mode:", found)', f"assert {same}"]

    return Ending(f"a comparison of {detail}", lines)


def _signs(run: Runs) -> Lines:
    pair = "zip(actual, expected, strict=True)" if run.several else "[(actual, expected)]"
    same = f"all(torch.equal(a.signbit(), b.signbit()) for a, b in {pair})"
    return [*run.pair(), "print(actual, expected)", f"assert {same}"]


def _comparisons(case: Case) -> Iterator[Ending]:
    close = f"torch.testing.assert_close(actual, expected{', equal_nan=True' if case.failure.kind == 'nan' else ''})"

    def gradients(run: Runs) -> Lines:
        eager, compiled = (f"torch.autograd.grad({run.loss(call)}, [{run.wanted}])" for call in (run.eager, run.compiled))
        return [*run.before, f"expected = {eager}", *run.before, f"actual = {compiled}", close]

    def tangents(run: Runs) -> Lines:
        outputs = [f"out, got = {run.eager}, {run.compiled}"]
        if run.before:
            outputs = [*run.before, f"out = {run.eager}", *run.before, f"got = {run.compiled}"]
        return [
            *outputs,
            "tangent = torch.randn_like(out)",
            f"expected = torch.autograd.grad(out, [{run.wanted}], tangent)",
            f"actual = torch.autograd.grad(got, [{run.wanted}], tangent)",
            close,
        ]

    yield Ending("a comparison of the outputs", lambda run: [*run.pair(), close])
    if case.facts.wants_backward:
        yield Ending("a comparison of the gradients", gradients)
        if not case.facts.several:
            yield Ending("a comparison of the gradients for random tangents", tangents)


def _against_float64(case: Case) -> Ending:
    """For an error that is small beside what rounding may do: eager mode's own is printed, and tells how large it may be."""
    if case.facts.wants_backward or case.facts.several:
        raise CannotExpressError(
            "so small an error, in one of several results, is no comparison of one line; repro.py measures it"
        )
    loosest = case.facts.tolerance

    def lines(run: Runs) -> Lines:
        return [
            *run.pair(),
            *run.before,
            f"exact = {run.wide}",
            "own, off = ((one - exact).abs().max().item() for one in (expected, actual))",
            'print(f"largest error to float64: eager mode {own:.3g}, compiled {off:.3g}")',
            f"assert off <= 16 * own + {loosest!r} * exact.abs().max()",
        ]

    return Ending("a comparison with float64", lines)


def _is_small(case: Case) -> bool:
    """Whether the error may be taken for rounding by torch.testing's tolerances, or the other way round."""
    failure = case.failure
    small = failure.size is None or failure.size < 10 * case.facts.tolerance
    return failure.kind == "accuracy" and failure.detail == "" and small


class _Plain(Function):
    """A graph as a function in torch's own names, where the nodes in `plainly` have such a form."""

    plainly: set[str]

    def returned(self, node: NodeRecord) -> str:
        alone = outputs(self.record.graph) or []
        if self.path or len(alone) != 1:
            return super().returned(node)
        self.where = f"node {node.name}"
        return f"return {self.argument(alone[0])}"

    def call(self, node: NodeRecord) -> str:
        wanted = node.op == "call_function" and not self.path and node.name in self.plainly
        plain = plain_call(node.target, node.args, node.kwargs) if wanted else None
        if plain is None:
            return super().call(node)
        self.where = f"node {node.name}"
        return self._plainly(plain)

    def _plainly(self, plain: Plain) -> str:
        texts = [self._slice(one) if isinstance(one, Slice) else self.argument(one) for one in plain.args]
        named = [f"{key}={self.argument(one)}" for key, one in plain.kwargs.items()]
        if plain.call == INDEX:
            return f"{texts[0]}[{', '.join(texts[1:])}]"
        if plain.call.startswith("."):
            return f"{texts[0]}{plain.call}({', '.join([*texts[1:], *named])})"
        if plain.call in _INFIX and len(texts) == 2 and not named and all(map(is_word, texts)):
            return f"{texts[0]} {_INFIX[plain.call]} {texts[1]}"
        return f"{dotted(plain.call, 'the function')}({', '.join([*texts, *named])})"

    def _slice(self, one: Slice) -> str:
        start, stop, step = ("" if part is None else self.argument(part) for part in one)
        return f"{start}:{stop}" + (f":{step}" if step else "")




def program_text(case: Case, script: Script, ending: Ending, names: set[str], *, compiled: bool = True) -> str:
    """The whole program. `names`: nodes to write with functions of torch; `compiled=False`: the control."""
    sizing = script.sizing
    case = replace(case, record=script.case.record if sizing is None else sizes_inside(script.case.record))
    function = _Plain(case.record)
    function.plainly = names
    program = function.program("f")
    slots, source = inputs_of(case, program.constants, script.way, plain=True)
    if source.file:
        raise CannotExpressError("it needs recorded values of its inputs, more than can be written out")
    variables = dict(zip([slot.name for slot in slots], [*program.parameters, *program.constants], strict=True))
    state, notes, told = state_of(case)
    before = [line for line in state if not line.startswith(_NOT_SAID)]
    dims = sizing.dims() if sizing is not None else {}
    statements = [
        *before,
        *([""] if before else []),
        *(["torch.manual_seed(0)"] if source.seeded else []),
        *source.statements,
        *(f"{name} = {text}" for name, text in zip(variables.values(), source.expressions, strict=True)),
        *(f"torch._dynamo.mark_dynamic({variables[name]}, {at})" for name, at in dims.items()),
        *_last(case, ending, _runs(case, script, slots, list(variables.values()), compiled=compiled)),
    ]
    rows = [row for line in statements for row in broken(line, _WIDTH)]
    body = blocks(case.ops.block if case.ops else "", program.kernels.source, program.source, rows)
    first, plain, inside = program.imported(body, case.ops.imports if case.ops else ())
    head = [
        *_head(case, ending, notes, told, sizing, names),
        *first,
        *plain,
        *([""] if plain else []),
        *inside,
        *(f"import {dotted(module, 'the module')}" for module in case.imports),
    ]
    return "\n".join([*head, *gap_before(body), body, ""])


def _runs(case: Case, script: Script, slots: Sequence[Slot], variables: Sequence[str], *, compiled: bool) -> Runs:
    options = ", ".join(["f", *_options(case, script)])
    function = f"torch.compile({options})" if compiled else "f"
    writes = any(
        node.op == "call_function" and _WRITES.search(node.target.removesuffix(".default")) for node in case.record.graph.nodes
    )
    pairs = list(zip(variables, slots, strict=True))
    fresh = [name if slot.scalar is not None or not writes else f"{name}.clone()" for name, slot in pairs]
    return Runs(
        eager=f"f({', '.join(fresh)})",
        compiled=f"{function}({', '.join(variables)})",
        wide=f"f({', '.join(f'{name}.double()' for name in variables)})",
        wanted=", ".join(name for name, slot in pairs if slot.requires_grad),
        several=case.facts.several,
        before=["torch.manual_seed(0)"] if case.facts.is_random else [],
    )


def _last(case: Case, ending: Ending, runs: Runs) -> Lines:
    """The lines of the ending; with autocast, where it was on."""
    lines = ending.lines(runs)
    if case.facts.on_cuda and case.failure.kind not in ("accuracy", "nan", "metadata"):
        lines = [*lines, "torch.cuda.synchronize()"]
    if not case.facts.grad or not case.record.ambient.autocast:
        return lines
    autocast = [
        f'torch.autocast("{device}", torch.{dotted(dtype, "a dtype")})'
        for device, dtype in case.record.ambient.autocast.items()
    ]
    return [f"with {', '.join(autocast)}:", *indented(lines)]


def _options(case: Case, script: Script) -> list[str]:
    backend = BACKENDS[case.rung]
    options = [] if backend == "inductor" else [f'backend="{backend}"']
    if case.record.symbols and script.sizing is None:
        options.append("dynamic=True")
    return options


def _head(
    case: Case, ending: Ending, notes: Sequence[str], told: Sequence[str], sizing: Sizing | None, names: set[str]
) -> Lines:
    """What it shows and how it was made, as comments."""
    version = case.record.versions.get("torch", "")
    stage = case.recorded_at or case.record.stage
    lines = [
        f"{case.happens}{f' (torch {version})' if version else ''}.",
        f"{case.made} Found in a graph of stage {stage}.".strip(),
        *([sizing.sentence()] if sizing is not None and sizing.marks else []),
        f"Run: python program.py. To expect: {ending.expects}.",
        *(case.ops.told if case.ops else ()),
        *(f"Left out: {note}." for note in notes),
        *([f"Needs {', '.join(case.imports)} where Python finds it."] if case.imports else []),
        *told,
    ]
    if not names and any(
        node.op == "call_function" and node.target.startswith("aten.") for node in case.record.graph.nodes
    ):
        lines.append("Operators are called by their aten names.")
    flat = [" ".join(line.split()) for line in lines]
    return [f"# {row}" for line in flat for row in textwrap.wrap(line, _WIDTH)]
