"""The text of a plain program: a function with torch's own names, its inputs, and one of the endings that show the failure.

Pure text; which ending shows it is found by running (`plain_program`). Must not import torch.

>>> [ending.what for ending in endings(case)]                                          # doctest: +SKIP
['a comparison of the outputs']
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ...dumps.hints import numbers
from ...dumps.kernel_text import INTERPRETED
from ...dumps.schema import GraphBody, NodeRecord
from ...toolkit.plain_names import INDEX, Slice, plain_call
from .case import Case
from .checks import is_random, limit_s, on_cuda, tolerance, wants_backward
from .dynamic import sizes_inside
from .groups import group_lines
from .program import CannotExpressError, Function, Program, broken, dotted
from .repro import BACKENDS, SENTENCES, Script
from .settings import CONFIG_MODULES, ambient_lines, config_lines, random_lines
from .values import Slot, slots_of, source_of

_INFIX = {"torch.add": "+", "torch.sub": "-", "torch.mul": "*", "torch.div": "/"}
_WRITES = re.compile(r"\b\w+_(?:\.\w+)?$")
_AUTOCAST = "torch.set_autocast_"


@dataclass(frozen=True)
class Ending:
    """The last lines. @EAGER@ and @COMPILED@ stand for a run; `error`: the type that is raised, if no AssertionError."""

    what: str
    text: str
    error: str = ""
    death: str = ""
    marker: str = ""
    expects: str = "AssertionError, exit code 1"
    control: bool = True


def endings(case: Case) -> list[Ending]:
    """What may show the failure, plainest first; raises CannotExpressError for a kind that no plain line shows."""
    failure, backward = case.failure, wants_backward(case)
    kind, detail = failure.kind, failure.detail
    if kind == "crash":
        error = failure.error.rpartition(".")[2]
        told: dict[str, Any] = {"error": error, "expects": f"{error}, exit code 1"}
        found = [Ending("the call that raises", "@COMPILED@", **told)]
        return (
            [*found, Ending("the gradients, which raise", f"{_LOSS.strip()}.backward()", **told)] if backward else found
        )
    if kind in ("signal", "hang"):
        death = "hang" if kind == "hang" else detail or "SIGSEGV"
        why = f"does not end within {limit_s(failure)} s" if kind == "hang" else f"killed by {death}"
        first = [] if failure.stage == "eager" else ["@EAGER@"]
        text = "\n".join([*first, 'print("compiling", flush=True)', f"@COMPILED@  # {why}"])
        return [Ending("a run that dies" if kind == "signal" else "a run that does not end", text, death=death,
                       marker="compiling", expects=why)]  # fmt: skip
    if kind == "missing_error":
        error = failure.error.rpartition(".")[2]
        text = "try:\n    @EAGER@\nexcept Exception as error:  # noqa: BLE001\n"
        text += '    print("eager mode raises:", error)\n    @COMPILED@\n'
        text += f'    raise AssertionError("torch.compile raises no {error}") from None'
        return [Ending("an exception that is missing", text, control=False)]
    if kind == "metadata":
        form = {"stride": "stride()", "dtype": "dtype", "shape": "shape", "device": "device"}.get(detail)
        if form is None:
            raise CannotExpressError(
                f"a difference in {detail or 'metadata'} is no comparison of one line; repro.py has it"
            )
        pair = (
            "[(one.FORM, other.FORM) for one, other in zip(actual, expected, strict=True)]"
            if _several(case)
            else "(actual.FORM, expected.FORM)"
        )
        same = "all(one == other for one, other in found)" if _several(case) else "found[0] == found[1]"
        text = f'{_PAIR}\nfound = {pair.replace("FORM", form)}\nprint("compiled, eager mode:", found)\nassert {same}'
        return [Ending(f"a comparison of {detail}", text)]
    if kind not in ("accuracy", "nan") or detail == "rounding":
        raise CannotExpressError(
            f"a failure of the kind {detail or kind} is no comparison of one line; repro.py measures it"
        )
    if detail == "signed zero":
        pair = "zip(actual, expected, strict=True)" if _several(case) else "[(actual, expected)]"
        text = f"{_PAIR}\nprint(actual, expected)\nassert all(torch.equal(a.signbit(), b.signbit()) for a, b in {pair})"
        return [Ending("a comparison of signs", text)]
    if _is_small(case):
        return _against_float64(case, backward)
    close = "torch.testing.assert_close(actual, expected@NAN@)".replace(
        "@NAN@", ", equal_nan=True" if kind == "nan" else ""
    )
    found = [Ending("a comparison of the outputs", f"{_PAIR}\n{close}")]
    if backward:
        found.append(Ending("a comparison of the gradients", f"{_GRADIENTS}\n{close}"))
    if backward and not _several(case):
        found.append(Ending("a comparison of the gradients for random tangents", f"{_TANGENTS}\n{close}"))
    return found


_PAIR = "expected = @EAGER@\nactual = @COMPILED@"
_LOSS = "@LOSS:COMPILED@"
_GRADIENTS = "expected = torch.autograd.grad(@LOSS:EAGER@, [@WANTED@])\nactual = torch.autograd.grad(@LOSS:COMPILED@, [@WANTED@])"
_TANGENTS = """out, got = @EAGER@, @COMPILED@
tangent = torch.randn_like(out)
expected = torch.autograd.grad(out, [@WANTED@], tangent)
actual = torch.autograd.grad(got, [@WANTED@], tangent)"""


def _against_float64(case: Case, backward: bool) -> list[Ending]:
    """For an error that is small beside what rounding may do: eager mode's own is printed, and tells how large it may be."""
    if backward or _several(case):
        raise CannotExpressError(
            "so small an error, in one of several results, is no comparison of one line; repro.py measures it"
        )
    text = f"""{_PAIR}
exact = @WIDE@
own, off = ((one - exact).abs().max().item() for one in (expected, actual))
print(f"largest error to float64: eager mode {{own:.3g}}, compiled {{off:.3g}}")
assert off <= 16 * own + {tolerance(case.record)[0]!r} * exact.abs().max()"""
    return [Ending("a comparison with float64", text)]


def _is_small(case: Case) -> bool:
    """Whether the error may be taken for rounding by torch.testing's tolerances, or the other way round."""
    failure = case.failure
    return (
        failure.kind == "accuracy"
        and failure.detail == ""
        and (failure.size is None or failure.size < 10 * tolerance(case.record)[0])
    )


def _several(case: Case) -> bool:
    return len(_returned(case.record.graph)) != 1


def _returned(body: GraphBody) -> list[Any]:
    output = next(node for node in body.nodes if node.op == "output")
    listed: Any = output.args[0] if output.args else []
    if isinstance(listed, dict):
        listed = cast("dict[str, Any]", listed).get("tuple", [listed])
    return cast("list[Any]", listed) if isinstance(listed, list) else [listed]


class _Plain(Function):
    """A graph as a function in torch's own names, where the nodes in `names` have such a form."""

    names_plain: set[str]

    def _call(self, node: NodeRecord) -> str:
        plain = (
            plain_call(node.target, node.args, node.kwargs) if node.op == "call_function" and not self.path else None
        )
        if plain is None or node.name not in self.names_plain:
            return super()._call(node)
        writer = self._arguments(node)
        texts = [_slice(one, writer) if isinstance(one, Slice) else writer.argument(one) for one in plain.args]
        named = [f"{key}={writer.argument(one)}" for key, one in plain.kwargs.items()]
        if plain.call == INDEX:
            return f"{texts[0]}[{', '.join(texts[1:])}]"
        if plain.call.startswith("."):
            return f"{texts[0]}{plain.call}({', '.join([*texts[1:], *named])})"
        if (
            plain.call in _INFIX
            and len(texts) == 2
            and not named
            and all(re.fullmatch(r"[\w.]+", text) for text in texts)
        ):
            return f"{texts[0]} {_INFIX[plain.call]} {texts[1]}"
        return f"{dotted(plain.call, 'the function')}({', '.join([*texts, *named])})"


def _slice(one: Slice, writer: Any) -> str:
    start, stop, step = ("" if part is None else writer.argument(part) for part in one)
    return f"{start}:{stop}" + (f":{step}" if step else "")


def _function(case: Case, names: set[str]) -> Program:
    function = _Plain(case.record)
    function.names_plain = names
    text = function.text(case.record.graph, "f")
    if not _several(case):
        text = re.sub(r"\n    return \((.*),\)$", r"\n    return \1", text)
    return Program(
        "\n\n\n".join([*function.above.values(), text]), function.parameters, function.constants, function.imports,
        function.kernels,
    )  # fmt: skip


def program_text(case: Case, script: Script, ending: Ending, names: set[str], *, compiled: bool = True) -> str:
    """The whole program. `names`: nodes to write with functions of torch; `compiled=False`: the control."""
    record, sizing = (script.case or case).record, script.sizing
    if sizing is not None:
        record = sizes_inside(record)
        case = replace(case, record=record)
    program = _function(case, names)
    slots = slots_of(record, case.inputs, program.constants, grad=case.grad)
    source = source_of(slots, script.way, case.read, numbers(record, case.inputs))
    if source.file:
        raise CannotExpressError("it needs recorded values of its inputs, more than can be written out")
    parameters = [*program.parameters, *program.constants]
    settings, notes = config_lines(record.config)
    ambient = [line for line in ambient_lines(case) if line != "torch.set_grad_enabled(False)"]
    before = [
        *settings,
        *random_lines(case),
        *(line for line in ambient if not line.startswith(_AUTOCAST)),
        *group_lines(record)[0],
    ]
    if before:
        before.append("")
    seeded = ["torch.manual_seed(0)"] if source.seeded else []
    inputs = [
        *source.statements,
        *(f"{name} = {_input(text)}" for name, text in zip(parameters, source.expressions, strict=True)),
    ]
    marks = [re.sub(r"inputs\[(\d+)\]", lambda found: parameters[int(found[1])], line).partition("  #")[0]
             for line in (sizing.lines([slot.name for slot in slots]) if sizing else [])]  # fmt: skip
    last = _filled(case, ending, script, parameters, slots, compiled=compiled)
    if case.grad and record.ambient.autocast:
        devices = [
            f'torch.autocast("{device}", torch.{dotted(dtype, "a dtype")})'
            for device, dtype in record.ambient.autocast.items()
        ]
        last = [f"with {', '.join(devices)}:", *textwrap.indent("\n".join(last), "    ").splitlines()]
    statements = [row for line in [*before, *seeded, *inputs, *marks, *last] for row in broken(line, 110)]
    body = "\n\n\n".join(
        one for one in (case.ops.block if case.ops else "", program.kernels.source, program.source, "\n".join(statements)) if one
    )
    head = _head(case, ending, notes, sizing, names)
    modules = {*program.imports, *(one for one in CONFIG_MODULES.values() if f"{one}." in body)}
    used = [f"import {name}" for name in ("math", "operator") if re.search(rf"\b{name}\.", body)]
    of_ops = case.ops.imports if case.ops else ()
    plain = sorted({*used, *(one for one in of_ops if one.split()[1].split(".")[0] not in ("torch", "numpy"))})
    inside = sorted({"import torch", *(f"import {one}" for one in modules), *(one for one in of_ops if one not in plain)},
                    key=lambda one: (one.startswith("from"), one))  # fmt: skip
    inside += [f"import {dotted(one, 'the module')}" for one in case.imports]
    kernels = program.kernels
    inside += [INTERPRETED, *kernels.imports] if kernels.source else []
    plain = [*plain, "import os"] if kernels.source else plain
    future = ["from __future__ import annotations", ""] if kernels.strings_for_types else []
    imports = [*future, *plain, *([""] if plain else []), *inside]
    gap = "\n\n\n" if body.startswith(("def ", "@", "class ")) else "\n\n"
    return "\n".join([*head, *imports]) + gap + body + "\n"


def _input(text: str) -> str:
    """`requires_grad=True` where a person writes it so."""
    made = re.fullmatch(r"(torch\.(?:randn|rand|ones|zeros)\(.*)\)\.requires_grad_\(\)", text)
    return f"{made[1]}, requires_grad=True)" if made and ")." not in made[1] else text


def _filled(
    case: Case, ending: Ending, script: Script, parameters: list[str], slots: Sequence[Slot], *, compiled: bool
) -> list[str]:
    arguments = ", ".join(parameters)
    function = f"torch.compile({', '.join(['f', *_options(case, script)])})" if compiled else "f"
    writes = any(
        node.op == "call_function" and _WRITES.search(node.target.removesuffix(".default"))
        for node in case.record.graph.nodes
    )
    fresh = ", ".join(
        f"{slot}.clone()" if made.scalar is None else slot for slot, made in zip(parameters, slots, strict=True)
    )
    calls = {"EAGER": f"f({fresh if writes else arguments})", "COMPILED": f"{function}({arguments})"}
    wide = ", ".join(f"{name}.double()" for name in parameters)
    wanted = ", ".join(name for name, slot in zip(parameters, slots, strict=True) if slot.requires_grad)
    several = _several(case)

    def loss(call: str) -> str:
        return f"sum(y.sum() for y in {call} if y.requires_grad)" if several else f"{call}.sum()"

    text = ending.text
    for name, call in calls.items():
        text = text.replace(f"@LOSS:{name}@", loss(call)).replace(f"@{name}@", call)
    text = text.replace("@WANTED@", wanted).replace("@WIDE@", f"f({wide})")
    lines = text.splitlines()
    if is_random(case.record):
        lines = [row for line in lines for row in (["torch.manual_seed(0)", line] if "f(" in line else [line])]
    if on_cuda(case.record) and not case.failure.kind.startswith(("accuracy", "nan", "metadata")):
        lines.append("torch.cuda.synchronize()")
    return lines


def _options(case: Case, script: Script) -> list[str]:
    backend = BACKENDS[case.rung]
    options = [] if backend == "inductor" else [f'backend="{backend}"']
    if case.record.symbols and script.sizing is None:
        options.append("dynamic=True")
    return options


def _head(case: Case, ending: Ending, notes: Sequence[str], sizing: Any, names: set[str]) -> list[str]:
    """What it shows and how it was made, as comments."""
    version = case.record.versions.get("torch", "")
    stage = case.recorded_at or case.record.stage
    lines = [
        f"{SENTENCES.get(case.failure.kind, 'torch.compile fails')}{f' (torch {version})' if version else ''}.",
        f"{case.made} Found in a graph of stage {stage}.".strip(),
        *([sizing.sentence()] if sizing is not None and sizing.marks else []),
        f"Run: python program.py. To expect: {ending.expects}.",
        *(case.ops.told if case.ops else ()),
        *(f"Left out: {note}." for note in notes),
        *([f"Needs {', '.join(case.imports)} where Python finds it."] if case.imports else []),
        *group_lines(case.record)[1],
    ]
    if not names and any(
        node.op == "call_function" and node.target.startswith("aten.") for node in case.record.graph.nodes
    ):
        lines.append("Operators are called by their aten names.")
    flat = [" ".join(line.split()) for line in lines]
    return [f"# {row}" for line in flat for row in textwrap.wrap(line, 110)]
