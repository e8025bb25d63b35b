"""What two graphs differ in besides their nodes: inputs, symbols, guards, compiler arguments, ambient state,
configuration.

Numbers of one compile (hints, seeds, counters of graphs) are no difference; different versions are noted.

>>> compare(record, run.graph("0_1/forward").record, {})
(['inputs: 5 -> 6', "symbol s77 (2 <= s77 = L['x'].size()[0]): only in B"], [])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..schema import Arg, GraphRecord, SymbolRecord
from ..wording import counted
from .arguments import short
from .facts import renamed

_IGNORED_AMBIENT = frozenset({"seed", "rng_state"})
_IGNORED_KWARGS = frozenset(
    {
        "graph_id",
        "fx_graph_id",
        "num_example_inputs",
        "num_mutated_inp_runtime_indices",
        "static_input_idxs",
        "static_input_indices",
        "static_lifetime_input_indices",
    }
)
"""Counters, and positions of inputs, which differ whenever the inputs do."""

_MISSING = "unset"
_MAX_GUARDS = 4


def compare(a: GraphRecord, b: GraphRecord, rename: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Sentences on what differs, and notes on what does not count. `rename` maps symbols of `b` to those of `a`."""
    counts = [sum(node.op == "placeholder" for node in record.graph.nodes) for record in (a, b)]
    also = [f"inputs: {counts[0]} -> {counts[1]}"] if counts[0] != counts[1] else []
    also += _symbols(a, b, rename)
    also += _guards(a, b, rename)
    if a.stage == b.stage:  # the stack itself calls each of its stages with other arguments and in another state
        also += _mapping("compiler argument", _kept(a.compile_kwargs), _kept(b.compile_kwargs))
        also += _mapping("ambient", _ambient(a), _ambient(b))
        for section in sorted(a.config.keys() | b.config.keys()):
            also += _mapping(f"config {section}", a.config.get(section, {}), b.config.get(section, {}))
    notes = [
        f"{name} {a.versions[name]} -> {b.versions[name]}"
        for name in sorted(a.versions.keys() & b.versions.keys())
        if a.versions[name] != b.versions[name]
    ]
    return also, notes


def _kept(kwargs: dict[str, Arg]) -> dict[str, Arg]:
    return {key: value for key, value in kwargs.items() if key not in _IGNORED_KWARGS}


def _ambient(record: GraphRecord) -> dict[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(record.ambient).items() if key not in _IGNORED_AMBIENT}


def _mapping(what: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [
        f"{what} {key}: {short(a[key]) if key in a else _MISSING} -> {short(b[key]) if key in b else _MISSING}"
        for key in sorted(a.keys() | b.keys())
        if key not in a or key not in b or type(a[key]) is not type(b[key]) or a[key] != b[key]
    ]


def _symbols(a: GraphRecord, b: GraphRecord, rename: Mapping[str, str]) -> list[str]:
    symbols_a = {symbol.name: symbol for symbol in a.symbols}
    two = {renamed(symbol.name, rename): symbol for symbol in b.symbols}
    differing = [f"symbol {name} ({_described(symbols_a[name])}): only in A" for name in symbols_a if name not in two]
    differing += [f"symbol {name} ({_described(two[name])}): only in B" for name in two if name not in symbols_a]
    for name in symbols_a:
        if name in two and _facts(symbols_a[name]) != _facts(two[name]):
            differing.append(f"symbol {name}: {_described(symbols_a[name])} -> {_described(two[name])}")
    return differing


def _facts(symbol: SymbolRecord) -> tuple[Any, ...]:
    return symbol.lower, symbol.upper, symbol.backed, symbol.source, symbol.replacement


def _described(symbol: SymbolRecord) -> str:
    lower = "" if symbol.lower is None else f"{symbol.lower} <= "
    upper = "" if symbol.upper is None else f" <= {symbol.upper}"
    source = f" = {symbol.source}" if symbol.source else ""
    replaced = f", replaced by {symbol.replacement}" if symbol.replacement else ""
    return f"{lower}{symbol.name}{upper}{source}{replaced}"


def _guards(a: GraphRecord, b: GraphRecord, rename: Mapping[str, str]) -> list[str]:
    guards_a = dict.fromkeys((guard.kind, guard.expr) for guard in a.guards)
    two = dict.fromkeys((guard.kind, renamed(guard.expr, rename)) for guard in b.guards)
    differing: list[str] = []
    for name, mine, other in (("A", guards_a, two), ("B", two, guards_a)):
        extra = [f"{kind} {expr}" for kind, expr in mine if (kind, expr) not in other]
        differing += [f"{text}: only in {name}" for text in extra[:_MAX_GUARDS]]
        if len(extra) > _MAX_GUARDS:
            differing.append(f"{counted(len(extra) - _MAX_GUARDS, 'more guard')}: only in {name}")
    return differing
