"""How a repro enters the compiler, in which state, and what stock torch has in place of a rung.

Three entries, the plainest first: `torch.compile`; Inductor's inner compiler on the graph; `as recorded`, at the stage
where the graph was recorded: the saved nodes themselves, constants as constants, with the recorded arguments, and
Inductor's passes from that stage on. Each entry compiles when it is run.

Recorded settings, global state and process groups are statements of the program, where they differ from a fresh
process. A setting without a plain form (a custom pass, a callable) is written with its recorded source where the user
trusts that; else it is listed as left out, as is a setting that no dump may set (see `permitted`). Imports no torch.

For example: `entries_of(case)` gives `['torch.compile', 'compile_fx_inner', 'as recorded']`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from .. import syntax
from ..errors import RefusedError
from ..permitted import of_the_process, refusal
from ..schema import Ambient, Arg, DefinitionRecord, GraphRecord
from ..walk import bodies, plain, tag_of
from ..wording import counted
from .case import GRAD_STAGES, ReproFacts
from .text import WIDTH, CannotExpressError, Lines, Writer, dotted, quoted

Entry = Literal["torch.compile", "compile_fx_inner", "as recorded"]

RUNG = "triton_interpret"
"""The rung that runs Inductor's Triton kernels on Triton's interpreter; a program for its failures runs them on the
GPU."""

LAZY = "lazy"
"""The rung of torch's lazy tensors: no backend of `torch.compile`, but a device to which a program can move its
inputs."""

Settings = Mapping[str, Mapping[str, Arg]]


@dataclass(frozen=True)
class Stand:
    """A replacement for a rung in stock torch: a backend's name, a mode of `torch.compile`, settings."""

    backend: str = "inductor"
    mode: str = ""
    settings: Settings = field(default_factory=dict[str, dict[str, Arg]])

    @property
    def is_inductor(self) -> bool:
        """Whether Inductor compiles."""
        return self.backend == "inductor"


_NOT_FUSED: Settings = {
    "inductor": {
        "max_fusion_size": 1,
        "realize_opcount_threshold": 0,
        "pattern_matcher": False,
        "use_pre_grad_passes": False,
        "use_joint_graph_passes": False,
        "fallback_random": True,
    }
}

STANDS: dict[str, tuple[Stand, ...]] = {
    "inductor": (Stand(),),
    RUNG: (Stand(),),
    "inductor_nofuse": (Stand(), Stand(settings=_NOT_FUSED)),
    "lite": (Stand(mode="lite"),),
    "strict": (Stand(mode="strict"),),
    "aot_inductor": (Stand(),),
    "inductor_cudagraphs": (Stand(), Stand("cudagraphs")),
    "torchscript": (Stand("aot_ts"),),
    LAZY: (Stand(LAZY),),
    "eager": (Stand("eager"),),
    "nop": (Stand("aot_eager"),),
    "debug_nop": (Stand("aot_eager"),),
    "decomposed": (Stand("aot_eager_decomp_partition"),),
}
"""Rung -> its replacements, in the order in which to try them; `inductor` comes first where torch has nothing of the
rung's name."""

ENTERS: dict[Entry, str] = {
    "torch.compile": "through `torch.compile`",
    "compile_fx_inner": "through `compile_fx_inner`",
    "as recorded": "where it was recorded",
}
"""Entry -> its description in a program."""

CHECKED_BY = "CrossRefFakeMode"
"""Torch's own comparison of operators on real and on fake tensors, which compiles nothing."""


CONFIG_MODULES = {
    "inductor": "torch._inductor.config",
    "dynamo": "torch._dynamo.config",
    "functorch": "torch._functorch.config",
}

SET_BY_TORCH = {"functorch": ("unlift_effect_tokens", "selective_decompose"), "inductor": ("fx_graph_cache",)}
"""Settings that torch.compile itself changes while it compiles (2.13.0), as a plain torch.compile will do again."""

_AUTOCAST = {"cpu": "bfloat16", "cuda": "float16"}
"""The default dtype of autocast, by device."""

_INNER_KWARGS = ("static_input_idxs", "is_inference", "is_backward", "cudagraphs")

_COLLECTIVES = ("_c10d_functional.", "c10d_functional.", "_c10d_functional_autograd.")
_SIZED = {"all_gather_into_tensor": 1, "reduce_scatter_tensor": 2, "all_gather_into_tensor_coalesced": 1}
"""Collective -> the position of the group's size among its arguments."""


class State(NamedTuple):
    """Differences from a fresh process: assignments of settings, statements that set a mode of `torch.compile` where
    another entry is used, other statements, settings without a plain form, sentences for the program's docstring, the
    user's code that defines settings."""

    settings: list[str]
    mode: list[str]
    around: list[str]
    left_out: list[str]
    remarks: list[str]
    sources: list[DefinitionRecord]


def state_of(case: ReproFacts, entry: Entry, stand: Stand) -> State:
    """Statements that restore the recorded state, with the settings of the rung's replacement and of the entry."""
    own_sources = sources(case)
    own = {name: text for definition in own_sources for name, text in definition.values.items()}
    settings, left_out = config_lines(_settings_at(case, entry, stand), own, trusted=case.trust or case.ours)
    groups, remarks = group_lines(case.record)
    for own_source in own_sources:
        remarks.append(f"It holds code of {PurePath(own_source.file).name}: {', '.join(own_source.values)}.")
    random = random_lines(case)
    settings = [line for line in settings if line not in random]
    around = [*random, *ambient_lines(case), *groups]
    return State(settings, _mode_lines(entry, stand), around, left_out, remarks, own_sources)


_CHANGES = re.compile(
    r"import torch(?:\.\w+)*|from torch\._inductor(?:\.lowering)? import (?:make_fallback|decomposition)"
    r"|make_fallback\(torch\.ops\.\w+\.\w+\.\w+, warn=False, override_decomp=True\)"
    r"|decomposition\.decompositions\.pop\(torch\.ops\.\w+\.\w+\.\w+\)|decomposition\.fast_random_decomps\.cache_clear\(\)"
    r"|torch\.compiler\.config\.cache_key_tag = \"[\w. ]*\""
    r"|torch\._(?:inductor|dynamo|functorch)\.config(?:\.\w+)+ = (?:None|True|False|-?\d+(?:\.\d+)?|\"\w*\")"
    r"|for name, value in torch\._inductor\.list_mode_options\(\"lite\"\)\.items\(\):"
    r"|    setattr\(torch\._inductor\.config, name, value\)"
)

_SET = re.compile(
    r"torch\._(?P<room>\w+)\.config\.(?P<name>[\w.]+) = (?P<value>None|True|False|-?\d+(?:\.\d+)?|\"\w*\")"
)


def plain_change(code: str) -> str:
    """Returns a work-around of a known form unchanged; empty for any other text, which may come from a file."""
    lines = code.splitlines()
    set_here = [match for line in lines if (match := _SET.fullmatch(line))]
    refused = any(refusal(setting["room"], setting["name"], syntax.literal(setting["value"])) for setting in set_here)
    return code if lines and all(map(_CHANGES.fullmatch, lines)) and not refused else ""


def sources(case: ReproFacts) -> list[DefinitionRecord]:
    """The user's code that defines settings without a plain form; empty where it is not trusted, or also registers
    operators."""
    definitions = case.record.definitions if case.trust else []
    in_force = {f"{room}.{name}" for room, values in case.record.config.items() for name in values}
    whole = [own for own in definitions if own.program and not own.missing and "from __future__" not in own.program]
    return [own for own in whole if not own.spaces and in_force & set(own.values)]


def config_lines(
    config: Mapping[str, Mapping[str, Arg]], own: Mapping[str, str] = MappingProxyType({}), *, trusted: bool = False
) -> tuple[list[str], list[str]]:
    """Assignments that restore the recorded settings; and sentences on settings that have no plain form, or that a dump
    may not set unless it is `trusted`.

    `own`: setting -> expression over the user's code.
    """
    lines: list[str] = []
    notes: list[str] = []
    for room, values in config.items():
        module = CONFIG_MODULES.get(room, room)
        for key, value in values.items():
            if key in SET_BY_TORCH.get(room, ()) or of_the_process(key):
                continue
            if module not in CONFIG_MODULES.values():
                notes.append(f"the setting {room}.{key}")
                continue
            text = _setting(value)
            why = "" if text is None or trusted else refusal(room, key, plain(value))
            text = own.get(f"{room}.{key}") if text is None else text
            if why:
                notes.append(f"the setting {module}.{key}: {why}, and only --trust sets it")
            elif text is None:
                notes.append(f"the setting {module}.{key}, which is not a plain value")
            else:
                lines.append(f"{module}.{dotted(key, 'the setting')} = {text}")
    return lines, notes


_DRAWING = ("decomposed", "inductor", "inductor_nofuse", "lite", "strict")
"""Rungs whose compiled code draws other random numbers than eager, by design."""


def random_lines(case: ReproFacts) -> list[str]:
    """Settings with which compiled code draws the same random numbers as eager mode, where results are compared."""
    compared = case.failure.kind in ("accuracy", "nan") and case.rung in _DRAWING
    return ["torch._inductor.config.fallback_random = True"] if compared and case.facts.is_random else []


class _SettingWriter(Writer):
    """Writes the values that a setting may have: numbers, texts, and lists, tuples and dicts of these."""

    PLAIN = True

    def argument(self, arg: Arg) -> str:
        if tag_of(arg)[0] not in ("", "float", "tuple", "dict"):
            raise RefusedError(self.where, "it is no plain value")
        return super().argument(arg)

    def items(self, args: Iterable[Arg]) -> str:
        return f"({''.join(f'{self.argument(item)}, ' for item in args).rstrip()})"


def _setting(value: Arg) -> str | None:
    try:
        return _SettingWriter({}).argument(value)
    except RefusedError:
        return None


def ambient_lines(case: ReproFacts) -> list[str]:
    """Statements that restore the recorded global state, where it differs from a fresh process."""
    ambient = case.record.ambient
    lines = process_lines(ambient)
    if case.facts.grad:
        for device, dtype in ambient.autocast.items():
            lines.append(f"torch.set_autocast_enabled({quoted(device)}, True)")
            if _AUTOCAST.get(device) != dtype:
                lines.append(f"torch.set_autocast_dtype({quoted(device)}, torch.{dotted(dtype, 'the autocast dtype')})")
    if not ambient.grad or not case.facts.grad:
        lines.append("torch.set_grad_enabled(False)")
    return lines


def process_lines(ambient: Ambient) -> list[str]:
    """Statements that restore the state of all threads of a process, where it differs from a fresh process."""
    lines: list[str] = []
    if ambient.deterministic:
        lines.append(f"torch.use_deterministic_algorithms(True, warn_only={ambient.deterministic_warn_only})")
    if ambient.matmul_precision in ("high", "medium"):
        lines.append(f"torch.set_float32_matmul_precision({quoted(ambient.matmul_precision)})")
    if ambient.default_dtype != "float32":
        lines.append(f"torch.set_default_dtype(torch.{dotted(ambient.default_dtype, 'the default dtype')})")
    return lines


def inner_kwargs(recorded: Mapping[str, Arg]) -> str:
    """The recorded keyword arguments of the inner compiler that have a plain form, as `, name=value` texts."""
    texts: list[str] = []
    for name in _INNER_KWARGS:
        if name in recorded and recorded[name] not in (None, False, []):
            text = _setting(recorded[name])
            if text is not None and name != "cudagraphs":
                texts.append(f", {name}={text}")
    return "".join(texts)


def group_lines(record: GraphRecord) -> tuple[list[str], list[str]]:
    """Statements that create the process groups of a graph's collectives, and sentences for the program's docstring;
    both empty without collectives.

    One process creates them, so the program runs without torchrun. If all groups had one rank they are real (gloo);
    larger groups use torch's "fake" backend, whose collectives have the recorded shapes and move no data, and a
    sentence says so.
    """
    sizes: dict[str, int] = {}
    for body in bodies(record.graph):
        for node in body.nodes:
            if node.op != "call_function" or not node.target.startswith(_COLLECTIVES):
                continue
            texts = [arg for arg in [*node.args, *node.kwargs.values()] if isinstance(arg, str)]
            op = node.target.split(".")[1].removesuffix("_out").removesuffix("_")
            at = _SIZED.get(op, -1)
            size = node.args[at] if 0 <= at < len(node.args) else 1
            if op == "wait_tensor" or not texts:
                continue
            if not texts[-1].isdigit():
                what = f"the process group {texts[-1][:40]!r} has a custom name, which the program cannot give it"
                raise CannotExpressError(what)
            sizes[texts[-1]] = max(sizes.get(texts[-1], 1), size if isinstance(size, int) else 1)
    if not sizes:
        return [], []
    world = max(sizes.values())
    backend, store = ("gloo", "torch.distributed.HashStore()") if world == 1 else ("fake", "FakeStore()")
    lines = [
        "if not torch.distributed.is_initialized():",
        *(["    from torch.testing._internal.distributed.fake_pg import FakeStore", ""] if world > 1 else []),
        f'    torch.distributed.init_process_group("{backend}", store={store}, rank=0, world_size={world})',
    ]
    for number in range(1, max(map(int, sizes)) + 1):
        lines.append(f"    torch.distributed.new_group(list(range({sizes.get(str(number), 1)})))")
    missing = f"up to {counted(world, 'rank')} that are not there: collectives move nothing"
    ranks = "one rank each" if world == 1 else missing
    return lines, [f"Process groups are made here by one process, with {ranks}."]


def stands_for(rung: str) -> tuple[Stand, ...]:
    """The replacements for a rung; raises CannotExpressError where torch has none."""
    if rung not in STANDS:
        why = "stock torch has no such backend"
        raise CannotExpressError(f"no repro can be written for the rung {rung!r}", why)
    return STANDS[rung]


def entries_of(case: ReproFacts, stand: Stand) -> list[Entry]:
    """The entries that a program for this graph can use."""
    entries: list[Entry] = ["torch.compile"]
    if stand.backend == LAZY and case.failure.stage != "eager":
        if case.facts.wants_backward:
            raise CannotExpressError("no repro can be written for the rung 'lazy'", "the graph computes gradients")
        return ["as recorded"]
    if case.record.kernels or case.failure.stage == "eager":
        return entries  # make_fx cannot trace the call of a kernel, and eager enters nothing
    if _is_training_joint(case):
        plain = stand.is_inductor and not (case.record.symbols or case.record.graph.subgraphs or case.only_compiled)
        return [*entries, "as recorded"] if plain else entries
    if stand.is_inductor and not case.facts.grad:
        entries.append("compile_fx_inner")
    known = stand.backend in ("inductor", "aot_eager", "aot_eager_decomp_partition")
    if not known or case.only_compiled or (case.facts.grad and (not stand.is_inductor or case.record.symbols)):
        return entries
    if case.facts.switches:  # while tracing, autocast and the like would be on, and not in the graph
        return entries
    if case.record.stage != "compiled_autograd" and not (case.record.graph.subgraphs and case.facts.grad):
        entries.append("as recorded")
    return entries  # only Dynamo traces graphs of Dynamo with bodies


def compiled_at(
    case: ReproFacts, entry: Entry, stand: Stand, parameters: Sequence[str], constants: int, *, wide: bool
) -> Lines:
    """The lines of the function `compiled` for an entry. `constants`: how many of the last parameters are constants of
    the graph. `wide`: the graph has parameters with defaults, which a tracer takes for inputs.
    """
    if entry == "compile_fx_inner":
        return _by_inner_compiler(case, "lambda *given: graph(*given)" if wide else "graph")
    return _as_recorded(case, stand, parameters, constants, wide=wide)


def or_eager(inner: Lines, statements: Lines, *, eager: bool) -> tuple[Lines, Lines]:
    """The function and the statements after it, with torch's backend eager in its place under --without-fault."""
    other = 'torch.compile(graph, backend="eager")'
    if not eager:
        return inner, statements
    if len(inner) == 2 and inner[1].endswith(")(*inputs)"):
        short = (
            f"{inner[1].removesuffix('(*inputs)').replace('return ', 'return (', 1)} if FAULT else {other})(*inputs)"
        )
        if len(short) <= WIDTH:
            return [inner[0], short], statements
    return inner, [*statements, f"compiled = compiled if FAULT else {other}"]


def _settings_at(case: ReproFacts, entry: Entry, stand: Stand) -> dict[str, dict[str, Arg]]:
    """The recorded settings, together with those of the rung's replacement and of the entry."""
    own: list[Settings] = [stand.settings]
    if entry == "as recorded":
        for passes in ("post_grad", "pre_grad"):  # these passes have already run
            if case.record.stage.startswith(passes):
                own.append({"inductor": {f"use_{passes}_passes": False}})
    rooms = dict.fromkeys([*case.record.config, *(room for settings in own for room in settings)])
    every = [case.record.config, *own]
    return {
        room: {name: value for settings in every for name, value in settings.get(room, {}).items()} for room in rooms
    }


def _mode_lines(entry: Entry, stand: Stand) -> Lines:
    """The statements that set a mode of `torch.compile` where another entry is used."""
    if not stand.mode or entry == "torch.compile":
        return []
    return [
        f"for name, value in torch._inductor.list_mode_options({quoted(stand.mode)}).items():",
        "    setattr(torch._inductor.config, name, value)",
    ]


def _by_inner_compiler(case: ReproFacts, function: str) -> Lines:
    """The entry after AOTAutograd, with a graph that is traced again."""
    tracing = "symbolic" if case.record.symbols else "real" if case.only_compiled else "fake"
    kwargs = inner_kwargs(case.record.compile_kwargs)
    head = ["def compiled(*inputs):", f'    gm = make_fx({function}, tracing_mode="{tracing}")(*inputs)']
    if case.only_compiled:
        return [
            *head,
            "    if FAULT:",
            '        compile_fx_inner(gm, [node.meta["val"] for node in '
            f'gm.graph.find_nodes(op="placeholder")]{kwargs})',
            '    print("gone: it compiles; it is not run")',
            "    sys.exit(0)",
        ]
    return [
        *head,
        '    fakes = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]',
        f"    return compile_fx_inner(gm, fakes{kwargs})(list(inputs))",
    ]


_WRITTEN = re.compile(
    "_?operator\\.(setitem|i(?:add|sub|mul|truediv|floordiv|mod|pow|matmul|and|or|xor|lshift|rshift))"
)


def _written(case: ReproFacts) -> Lines:
    """Statements that let `torch.fx` trace Python's in-place operators unchanged: it would turn `x += y` into a sum."""
    names = sorted({match[1] for node in case.record.graph.nodes if (match := _WRITTEN.fullmatch(node.target))})
    call = 'lambda *args: args[0].tracer.create_proxy("call_function"'
    return [f"Proxy.__{name}__ = {call}, operator.{name}, args, {{}})" for name in names]


def _as_recorded(case: ReproFacts, stand: Stand, parameters: Sequence[str], constants: int, *, wide: bool) -> Lines:
    """The entry that compiles the saved nodes from their stage on."""
    stage, named, facts = case.record.stage, ", ".join(parameters), case.facts
    if stand.backend == LAZY:
        return _on_lazy_device(case)
    lines = [*_written(case), "def compiled(*inputs):"]
    function = f"lambda {named}: graph({named})" if wide else "graph"
    if constants:
        count = len(parameters)
        lines.append(f"    inputs, held = inputs[:{count}], inputs[{count}:]  # what the graph holds is no input of it")
        function = f"lambda {named}: graph({', '.join([*parameters, '*held'])})"
    allowed = ", _allow_non_fake_inputs=True" if constants else ""
    if stand.backend == "aot_eager_decomp_partition":
        table = "decomposition_table=select_decomp_table()"
        return [*lines, f"    return make_fx({function}, {table}{allowed})(*inputs)(*inputs)"]
    traced = bool(case.record.symbols or case.record.graph.subgraphs)  # symbolic_trace does not take calls with bodies
    if traced:
        tracing = "symbolic" if case.record.symbols else "fake"
        lines.append(f'    gm = make_fx({function}, tracing_mode="{tracing}"{allowed})(*inputs)')
    else:
        lines.append(f"    gm = symbolic_trace({function})")
    if not stand.is_inductor:
        return [*lines, "    return gm(*inputs)"]
    if stage in GRAD_STAGES:
        return [*lines[:-1], f"    return compile_fx(symbolic_trace({function}), list(inputs))(*inputs)"]
    if not traced:
        mode = ", FakeTensorMode(allow_non_fake_inputs=True)" if constants else ""
        lines.append(f"    FakeTensorProp(gm{mode}).propagate(*inputs)")
    if _is_training_joint(case):
        return [*lines, *_in_halves(case)]
    fake = 'n.meta["val"]' if all(facts.inputs) or traced else 'n.meta.get("val", x)'
    over = 'gm.graph.find_nodes(op="placeholder")'
    pairs = f"n in {over}" if fake == 'n.meta["val"]' else f"n, x in zip({over}, inputs, strict=True)"
    lines.append(f"    fakes = [{fake} for {pairs}]")
    if stage == "inference":
        lines.append(f'    joint_graph.joint_graph_passes(gm, torch.device("{"cuda" if facts.on_cuda else "cpu"}"))')
    if visible := _visible(case):
        lines.append(f'    gm.graph.output_node().meta["user_visible_output_idxs"] = {visible!r}')
    return [*lines, f"    return compile_fx_inner(gm, fakes{_kwargs(case)})(list(inputs))"]


def _on_lazy_device(case: ReproFacts) -> Lines:
    """The entry on the lazy device: each operator by its lazy kernel; written inputs are copied back."""
    tensors = all([*case.facts.inputs, *case.facts.held])
    moved = "x.to(device)" if tensors else "x.to(device) if torch.is_tensor(x) else x"
    there = "" if tensors else "if torch.is_tensor(x): "
    back = ["    for x, y in zip(inputs, moved, strict=True):", f"        {there}x.copy_(y.cpu())"]
    return [
        *["torch._C._lazy_ts_backend._init()", 'device = torch.device("lazy")', "", "def compiled(*inputs):"],
        f"    moved = [{moved} for x in inputs]",
        "    results = [y.cpu() if torch.is_tensor(y) else y for y in graph(*moved)]",
        *(back if case.facts.writes else []),
        "    return results",
    ]


def _is_training_joint(case: ReproFacts) -> bool:
    return case.record.stage in ("joint", "joint_passed") and "num_fwd_outputs" in case.record.compile_kwargs


def _in_halves(case: ReproFacts) -> Lines:
    """The entry for a joint graph (`gm`) from its partition on: the forward, then the backward on the values that it
    saved."""
    kept, passed = case.record.compile_kwargs["num_fwd_outputs"], case.record.stage == "joint_passed"
    partition = "min_cut_rematerialization_partition" if passed else "partition_fn"
    compiler = ', compiler="inductor"' if passed else ""
    return [
        '    places = gm.graph.find_nodes(op="placeholder")',
        "    values = {n.name: x for n, x in zip(places, inputs, strict=True)}",
        '    fakes = [n.meta["val"] for n in places]',
        f"    halves, results = {partition}(gm, fakes, num_fwd_outputs={kept}{compiler}), []",
        "    for half in halves:",
        '        places, last = half.graph.find_nodes(op="placeholder"), half.graph.output_node()',
        '        last.meta["user_visible_output_idxs"] = range(len(last.args[0]))',
        '        fakes, given = [n.meta["val"] for n in places], [values[n.name] for n in places]',
        "        outputs = compile_fx_inner(half, fakes, is_backward=half is halves[1])(given)",
        "        values |= {str(n): y for n, y in zip(last.args[0], outputs, strict=True)}",
        f"        results += outputs if results else outputs[:{kept}]",
        "    return results",
    ]


def _kwargs(case: ReproFacts) -> str:
    text = inner_kwargs(case.record.compile_kwargs)
    if case.record.stage in ("inference", "joint_passed") and "is_inference" not in text:
        text += ", is_inference=True"
    if case.record.stage.endswith("backward") and "is_backward" not in text:
        text += ", is_backward=True"
    return text


def _visible(case: ReproFacts) -> list[int]:
    """The outputs whose strides Inductor keeps: as recorded, else all of an inference graph."""
    output = next(node for node in reversed(case.record.graph.nodes) if node.op == "output")
    if "user_visible_output_idxs" in output.meta:
        known: list[Any] = list(plain(output.meta["user_visible_output_idxs"]) or ())
        return [index for index in known if isinstance(index, int)]
    whole = case.record.stage in ("inference", "joint_passed")
    return [at for at, dtype in enumerate(case.facts.outputs) if dtype] if whole else []
