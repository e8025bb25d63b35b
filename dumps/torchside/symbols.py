"""Symbolic shapes: a live ShapeEnv -> records, and records -> a ShapeEnv with the same symbols, hints, ranges and
facts.

Reading a live ShapeEnv adds no guard and specialises nothing: only expressions and tables are read. Rebuilding
evaluates no text.

>>> writer = SymbolWriter()
>>> writer.dim(torch.ones(2).shape[0])
2
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, cast

import sympy
import torch

from ..errors import DamagedError, NameRefusedError, RefusedError
from ..inert import InertTexts
from ..schema import Arg, Dim, GraphRecord, GuardRecord, SymbolRecord, SymValue
from . import sympy_text
from . import torch_private as t

SYMBOL = re.compile(r"[a-z]{1,8}[0-9]{1,20}", re.ASCII)
_SYM_TYPES = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ASSUMPTIONS = ("integer", "positive", "nonnegative", "real", "even", "odd", "zero")
_COUNTERS = ("unbacked_symint_counter", "unbacked_symfloat_counter")
_FLAGS = ("frozen", "runtime_asserts_frozen")
_SOURCES = "graphdbg_sources"
"""Attribute of a rebuilt ShapeEnv: symbol -> its source, as recorded."""

MOST_S = 10.0
SECONDS_A_NODE = 0.01
"""The seconds that a graph's expressions may take to read, and those added per node: usual ones take a millisecond."""


def _hints(env: Any) -> dict[Any, Any]:
    """The symbols of a ShapeEnv and their hints: `backed_var_to_val` since 2.13, `var_to_val` before."""
    hints = getattr(env, "backed_var_to_val", None)
    return env.var_to_val if hints is None else hints


def is_symbolic(value: object) -> bool:
    """Whether a value is a SymInt, SymFloat or SymBool."""
    return isinstance(value, _SYM_TYPES)


class SymbolWriter:
    """Collects the symbols that a graph mentions while its values are encoded, then writes them with all facts on
    them."""

    def __init__(self, originals: Mapping[str, str] | None = None) -> None:
        self.env: Any = None
        self.originals = originals or {}
        self._texts: dict[Any, str] = {}
        self._used: set[Any] = set()

    def adopt(self, env: Any) -> None:
        """Keeps the ShapeEnv of the graph; later ones are ignored."""
        if self.env is None:
            self.env = env

    def dim(self, value: Any) -> Dim:
        """A size, stride or offset as int or text."""
        if type(value) is int:
            return value
        if not is_symbolic(value):
            return int(value)
        expr = self.expr(value)
        return int(expr) if expr.is_Integer else self.text(expr)

    def expr(self, value: Any) -> Any:
        """The sympy expression of a symbolic value, replacements applied."""
        self.adopt(value.node.shape_env)
        return value.node.expr

    def text(self, expr: Any) -> str:
        """The text of an expression; its symbols count as used."""
        known_text = self._texts.get(expr)
        if known_text is None:
            known_text = self._texts[expr] = sympy_text.write(expr)
            self._used.update(getattr(expr, "free_symbols", ()))
        return known_text

    def sym(self, value: Any) -> SymValue:
        """The record of a symbolic scalar, with its hint. Inductor names inputs by the symbol they were created
        with."""
        kind = "int" if isinstance(value, torch.SymInt) else "float" if isinstance(value, torch.SymFloat) else "bool"
        node = cast(Any, value).node
        self.adopt(node.shape_env)
        expr = getattr(node, "_expr", node.expr)  # as created, before replacements
        return SymValue(kind=kind, expr=self.text(expr), hint=self.hint(expr))

    def use(self, symbol: Any) -> str:
        """Marks a symbol that node metadata mentions as used, and returns its name."""
        self._used.add(symbol)
        return symbol.name

    def hint(self, expr: Any) -> int | float | bool | None:
        """The number that an expression had while tracing; None if it depends on data."""
        if self.env is None:
            return None
        hints = _hints(self.env)
        if any(symbol not in hints for symbol in expr.free_symbols):
            return None
        return _number(expr.xreplace({symbol: hints[symbol] for symbol in expr.free_symbols}))

    def finish(self) -> tuple[list[SymbolRecord], list[GuardRecord], dict[str, Arg]]:
        """Records of the used symbols and of every fact connected with them."""
        env = self.env
        if env is None:
            return [], [], {}
        facts = _facts(env)
        self._close_over(env, [fact for fact, *_ in facts])
        guards = [
            GuardRecord(
                expr=self.text(expr),
                kind=kind,
                symbol=symbol,
                message=self.originals.get(message, message),
                size_oblivious=oblivious,
            )
            for expr, kind, symbol, message, oblivious in facts
            if expr.free_symbols and expr.free_symbols <= self._used
        ]
        ordered = sorted(self._used, key=lambda symbol: (len(symbol.name), symbol.name))
        return [self._symbol(symbol) for symbol in ordered], guards, _environment(env)

    def _close_over(self, env: Any, facts: list[Any]) -> None:
        """Adds the symbols that share a fact with a used one, until nothing changes."""
        linked = [set(expr.free_symbols) for expr in facts]
        linked += [{old, *new.free_symbols} for old, new in env.replacements.items()]
        linked += [{old, new} for old, new in getattr(env, "unbacked_renamings", {}).items()]
        size = -1
        while size != len(self._used):
            size = len(self._used)
            for group in linked:
                if group & self._used:
                    self._used |= group

    def _symbol(self, symbol: Any) -> SymbolRecord:
        env = self.env
        hints = _hints(env)
        span = env.var_to_range.get(symbol)
        sources = env.var_to_sources.get(symbol, [])
        made_with = dict(getattr(symbol, "_assumptions_orig", None) or {})  # the assumptions it was created with
        renamed = getattr(env, "unbacked_renamings", {}).get(symbol)
        return SymbolRecord(
            name=symbol.name,
            hint=_number(hints[symbol]) if symbol in hints else None,
            lower=_bound(span.lower) if span is not None else None,
            upper=_bound(span.upper) if span is not None else None,
            backed=symbol in hints,
            source=getattr(env, _SOURCES, {}).get(symbol) or (_source_name(sources[0]) if sources else ""),
            assume=" ".join(name for name in _ASSUMPTIONS if made_with.get(name)),
            replacement=self.text(env.replacements[symbol]) if symbol in env.replacements else "",
            renamed=renamed.name if renamed is not None else "",
            size_like=symbol in getattr(env, "size_like", ()),
            input=symbol in getattr(env, "unbacked_inputs", ()),
            hint_override=getattr(env, "var_to_hint_override", {}).get(symbol),
            order=getattr(env, "unbacked_alloc_order", {}).get(symbol, -1),
        )


class Symbols:
    """A ShapeEnv rebuilt from a record, and the symbolic values in it."""

    def __init__(self, record: GraphRecord, where: str, texts: InertTexts | None = None) -> None:
        self.where = where
        self.texts = InertTexts() if texts is None else texts
        self.env = t.ShapeEnv(**_settings(record.shape_env))
        self.by_name: dict[str, Any] = {}
        self._exprs: dict[str, Any] = {}
        self._numbers = {item.name: item.hint for item in record.symbols}
        self._left_s = MOST_S + SECONDS_A_NODE * len(record.graph.nodes)
        self._int = cache(partial(self.sym, "int"))
        for item in record.symbols:
            self._declare(item)
        for item in record.symbols:
            self._relate(item)
        for guard in record.guards:
            self._assume(guard)
        self._restore(record.shape_env)

    def expr(self, text: str) -> Any:
        """The sympy expression of a stored text."""
        expression = self._exprs.get(text)
        if expression is None:
            with self._spending():
                expression = self._exprs[text] = sympy_text.read(text, self.by_name, self.where, self._numbers)
        return expression

    @contextmanager
    def _spending(self) -> Generator[None]:
        """Counts the time of a block against the limit for a graph's expressions; raises RefusedError where that is
        used up."""
        if self._left_s < 0:
            raise RefusedError(self.where, "its expressions take too long to read")
        begun = time.perf_counter()
        yield
        self._left_s -= time.perf_counter() - begun

    def dim(self, value: Dim) -> Any:
        """An int or a SymInt."""
        return value if isinstance(value, int) else self._int(value)

    def sym(self, kind: str, text: str) -> Any:
        """A symbolic scalar of kind int, float or bool (symbolic even if the expression is a number)."""
        expr = self.expr(text)
        if kind == "int":
            if expr.is_Integer:
                return torch.SymInt(t.SymNode(expr, self.env, int, int(expr)))
            if expr.is_number:
                raise DamagedError(self.where, f"{text!r} is not a whole number")
            return self.env.create_symintnode(expr, hint=None)
        if kind == "float":
            if expr.is_Float:
                return torch.SymFloat(t.SymNode(expr, self.env, float, float(expr)))
            return self.env.create_symfloatnode(expr, hint=None)
        return torch.SymBool(t.SymNode(expr, self.env, bool, None))

    def _declare(self, item: SymbolRecord) -> None:
        if not SYMBOL.fullmatch(item.name) or item.name in self.by_name:
            raise NameRefusedError(self.where, f"{item.name!r} is not a symbol name, or it comes twice")
        words = item.assume.split()
        if any(word not in _ASSUMPTIONS for word in words):
            raise DamagedError(self.where, f"symbol {item.name} has the unknown property {item.assume!r}")
        env = self.env
        symbol = self.by_name[item.name] = sympy.Symbol(item.name, **dict.fromkeys(words, True))
        is_float = item.name.startswith("z")
        env.var_to_range[symbol] = _span(item, is_float)
        place = env._get_sloc()
        env.var_to_range_sloc[symbol] = t.ValueRangesSLoc(place, place)
        if item.backed and item.hint is not None:
            number = sympy.Float(item.hint) if is_float else sympy.Integer(item.hint)
            _hints(env)[symbol] = number
            # A source is written into guards as code, so it is the symbol's name here.
            env.var_to_sources[symbol] = [t.ConstantSource(source_name=item.name)]
            env.source_to_var[item.name] = symbol
            cast(dict[str, Any], vars(env)).setdefault(_SOURCES, {})[symbol] = item.source
            env.symbol_guard_counter[symbol] = 0
            if env.duck_shape:
                env.val_to_var.setdefault(item.hint, symbol)
        else:
            env.var_to_stack[symbol] = t.CapturedTraceback.extract(skip=1)
            if item.order >= 0 and hasattr(env, "unbacked_alloc_order"):
                env.unbacked_alloc_order[symbol] = item.order
        if hasattr(env, "name_to_symbol"):  # since 2.15: by which entries of the cache are read
            env.name_to_symbol[item.name] = symbol
        if hasattr(env, "unique_ids"):
            env.unique_ids.add(int(re.sub(r"\D", "", item.name)))
        if item.size_like and hasattr(env, "size_like"):
            env.size_like.add(symbol)
        if item.input and hasattr(env, "unbacked_inputs"):
            env.unbacked_inputs.add(symbol)
        if item.hint_override is not None and hasattr(env, "var_to_hint_override"):
            env.var_to_hint_override[symbol] = item.hint_override

    def _relate(self, item: SymbolRecord) -> None:
        symbol = self.by_name[item.name]
        if item.replacement:
            self.env.replacements[symbol] = self.expr(item.replacement)
        if item.renamed and item.renamed in self.by_name and hasattr(self.env, "unbacked_renamings"):
            self.env.unbacked_renamings[symbol] = self.by_name[item.renamed]

    def _assume(self, guard: GuardRecord) -> None:
        env, expr = self.env, self.expr(guard.expr)
        if guard.kind == "divisible":
            env.divisible.add(expr)
            return
        if guard.kind == "guard":
            place = dataclasses.replace(env._get_sloc(), maybe_user_loc=self.texts(guard.message) or None)
            env.guards.append(t.ShapeGuard(expr, place, size_oblivious=guard.size_oblivious))
        else:
            asserted = t.RuntimeAssert(expr, self.texts(guard.message), t.CapturedTraceback.extract(skip=1))
            env.deferred_runtime_asserts.setdefault(self.by_name.get(guard.symbol), []).append(asserted)
            env.num_deferred_runtime_asserts += 1
        with self._spending():
            env.axioms.update(dict(env.get_implications(env.simplify(expr))))  # pyright: ignore

    def _restore(self, saved: dict[str, Arg]) -> None:
        env = self.env
        env._update_version_counter()
        if env.replacements and hasattr(env, "_replacements_version_counter"):  # else 2.13 leaves every symbol as it is
            env._replacements_version_counter += 1
        for name in _COUNTERS:
            if isinstance(saved.get(name), int) and hasattr(env, name):
                setattr(env, name, saved[name])
        for name in _FLAGS:
            if saved.get(name) is True and hasattr(env, name):
                setattr(env, name, True)


def _facts(env: Any) -> list[tuple[Any, Any, str, str, bool]]:
    facts: list[tuple[Any, Any, str, str, bool]] = [
        (guard.expr, "guard", "", _user_line(guard), bool(getattr(guard, "size_oblivious", False)))
        for guard in env.guards
    ]
    for symbol, asserts in env.deferred_runtime_asserts.items():
        name = symbol.name if symbol is not None else ""
        facts += [(item.expr, "assert", name, str(item.msg), False) for item in asserts]
    facts += [(expr, "divisible", "", "", False) for expr in sorted(env.divisible, key=str)]
    return facts


def _user_line(guard: Any) -> str:
    """The user line of a guard, in the form that torch writes while tracing: `x = x.view(2, -1) # model.py:12 in
    forward`."""
    return str(getattr(getattr(guard, "sloc", None), "maybe_user_loc", None) or "")


def _environment(env: Any) -> dict[str, Arg]:
    settings = cast(Any, getattr(env, "settings", None))
    names = cast(dict[str, Any], getattr(settings.__class__, "__dataclass_fields__", {}))
    saved: dict[str, Arg] = {name: value for name in names if isinstance(value := getattr(settings, name), bool)}
    saved |= {name: int(getattr(env, name)) for name in _COUNTERS if getattr(env, name, 0)}
    return saved | {name: True for name in _FLAGS if getattr(env, name, False)}


def _settings(saved: dict[str, Arg]) -> dict[str, Any]:
    known = inspect.signature(t.ShapeEnv._init).parameters
    return {name: value for name, value in saved.items() if name in known and isinstance(value, bool)}


def _source_name(source: Any) -> str:
    name = source.name
    return str(name() if callable(name) else name)


def _number(value: Any) -> int | float | bool | None:
    if value is sympy.true or value is sympy.false:
        return bool(value)
    if getattr(value, "is_Integer", False):
        return int(value)
    if getattr(value, "is_number", False) and getattr(value, "is_real", False):
        return float(value)
    return None


def _bound(value: Any) -> int | float | None:
    if value in (t.int_oo, -t.int_oo, sympy.oo, -sympy.oo):
        return None
    return _number(value)


def _span(item: SymbolRecord, is_float: bool) -> Any:
    infinity = sympy.oo if is_float else t.int_oo
    make = sympy.Float if is_float else sympy.Integer
    lower = -infinity if item.lower is None else make(item.lower)
    upper = infinity if item.upper is None else make(item.upper)
    return t.ValueRanges(lower, upper)
