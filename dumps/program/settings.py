"""Recorded settings, global state and process groups as statements of a program, where they differ from a fresh
process.

Imports no torch. A setting without a plain form (a custom pass, a callable) is written with its recorded source where
the user trusts that; else it is listed as left out, as is a setting that no dump may set (see `permitted`).

>>> config_lines({"inductor": {"cpp.simdlen": 256}})
(['torch._inductor.config.cpp.simdlen = 256'], [])
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import NamedTuple

from .. import syntax
from ..errors import RefusedError
from ..permitted import of_the_process, refusal
from ..schema import Ambient, Arg, DefinitionRecord, GraphRecord
from ..walk import bodies, plain, tag_of
from ..wording import counted
from .case import ReproFacts
from .text import CannotExpressError, Writer, dotted, quoted

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
    """Differences from a fresh process: assignments of settings, other statements, settings without a plain form,
    sentences for the program's docstring."""

    settings: list[str]
    around: list[str]
    left_out: list[str]
    remarks: list[str]


def state_of(case: ReproFacts, config: Mapping[str, Mapping[str, Arg]]) -> State:
    """Statements that restore the recorded state, with `config` in place of the recorded settings."""
    own = {name: text for definition in sources(case) for name, text in definition.values.items()}
    settings, left_out = config_lines(config, own, trusted=case.trust or case.ours)
    groups, remarks = group_lines(case.record)
    for own_source in sources(case):
        remarks.append(f"It holds code of {PurePath(own_source.file).name}: {', '.join(own_source.values)}.")
    random = random_lines(case)
    settings = [line for line in settings if line not in random]
    return State(settings, [*random, *ambient_lines(case), *groups], left_out, remarks)


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
