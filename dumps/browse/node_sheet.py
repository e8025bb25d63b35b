"""The detail of one node as a sheet: what a person asks first stands first. Knows no file; all comes in a NodeDetail.

>>> print(text(sheet_of(detail)))
addmm_1  call_function  aten.addmm.default
...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..amounts import size_text
from ..schema import InputRecord, SymbolRecord
from ..walk import references
from ..wording import counted
from .node import Near, NodeDetail
from .partner import NUMBER, Partner
from .sheet import BAD, DIM, HERE, TITLE, Line, Sheet, Span, line, link, span

MOST = 40
"""So many inputs or users are listed; of the rest their number."""
LONGEST = 2_000
"""Characters of a call that are shown."""
_LABEL = 9


def sheet_of(
    detail: NodeDetail, partners: Sequence[Partner] = (), *, why_no_partner: str = "", kernels: Sequence[str] = (),
    everything: bool = False,
) -> Sheet:  # fmt: skip
    """The sheet. `partners` and `kernels` are what other modules found of the node; `everything` lists all users."""
    lines: list[Line] = [line((detail.name, HERE), f"  {detail.op}  ", (detail.target if detail.op != "output" else "", TITLE))]
    lines += (line((f"note: {note}", BAD)) for note in detail.notes)
    if detail.op.startswith("call_") or detail.op == "output":
        lines.append(_labelled("call", *_call(detail)))
    lines += _value_lines(detail)
    lines += map(_symbol, detail.symbols)
    if detail.input is not None:
        lines += _input(detail.input)
    if detail.modules:
        lines.append(_labelled("module", detail.modules[-1][0], (f"  {detail.modules[-1][1]}", DIM)))
    lines += _stack(detail)
    if kernels:
        lines.append(_labelled("kernel", ", ".join(kernels)))
    lines += _partners(partners, why_no_partner, detail.seq_nr)
    most = len(detail.users) + len(detail.inputs) if everything else MOST
    lines += _near("inputs", detail.inputs, most)
    lines += _near("users", detail.users, most)
    lines += _origin(detail)
    return Sheet(detail.name, lines)


def _labelled(label: str, *pieces: Span | tuple[str, str] | str) -> Line:
    return line((f"{label:<{_LABEL}}", DIM), *pieces)


def _call(detail: NodeDetail) -> Iterator[Span]:
    """The call, with the nodes in it as links."""
    names = set(references([detail.args, list(detail.kwargs.values())]))
    word = ""
    for char in detail.call[:LONGEST]:
        if char.isalnum() or char in "_.":
            word += char
            continue
        yield from _word(word, names)
        word = ""
        yield span(char)
    yield from _word(word, names)
    if len(detail.call) > LONGEST:
        yield span(f" … and {counted(len(detail.call) - LONGEST, 'character')} more", DIM)


def _word(word: str, names: set[str]) -> Iterator[Span]:
    if word in names:
        yield link(word)
    elif (head := word.partition(".")[0]) in names:
        yield from (link(head), span(word[len(head) :]))
    elif word:
        yield span(word)


def _value_lines(detail: NodeDetail) -> Iterator[Line]:
    for number, value in enumerate(detail.values):
        label = "value" if len(detail.values) == 1 else f"value {number}"
        shown = [f"{key} {text}" if key in ("stride", "offset", "hint") else text for key, text in value.items() if text]
        if len(detail.values) == 1 and detail.size_bytes:
            shown.append(size_text(detail.size_bytes))
        yield _labelled(label, "  ".join(shown))
    if len(detail.values) > 1:
        yield _labelled("bytes", size_text(detail.size_bytes))
    if detail.aliases:
        rest = f" and {len(detail.aliases) - MOST} more" if len(detail.aliases) > MOST else ""
        yield _labelled("storage", "shared with ", *_listed(detail.aliases[:MOST]), rest)


def _listed(names: Sequence[str]) -> Iterator[Span]:
    for number, name in enumerate(names):
        if number:
            yield span(", ")
        yield link(name)


def _symbol(symbol: SymbolRecord) -> Line:
    lower = "-∞" if symbol.lower is None else symbol.lower
    upper = "∞" if symbol.upper is None else symbol.upper
    words = [f"{symbol.name} = {'?' if symbol.hint is None else symbol.hint} when recorded", f"in [{lower}, {upper}]"]
    words += [word for word in (symbol.source, "" if symbol.backed else "unbacked", symbol.replacement) if word]
    return _labelled("symbol", "  ".join(words))


def _input(item: InputRecord) -> Iterator[Line]:
    yield _labelled("input", item.role, f"  {item.source}")
    if item.scalar is not None:
        yield _labelled("seen", f"{item.scalar}")
    if item.statistics:
        numbers = [f"{key} {_number(value)}" for key, value in item.statistics.items()]
        bad = any(item.statistics.get(key) for key in ("nan", "inf"))
        yield _labelled("seen", ("  ".join(numbers), BAD if bad else ""))
    else:
        yield _labelled("seen", ("no statistics: this graph was not seen to run", DIM))
    if item.stored is not None and item.stored.storage:
        yield _labelled("stored", f"its values are in tensors/{item.stored.storage[:12]}…")


def _number(value: float | int | None) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _stack(detail: NodeDetail) -> Iterator[Line]:
    for number, frame in enumerate(detail.stack):
        label = "line" if number == 0 else ""
        kind = "" if frame.user else DIM
        within = f" in {frame.function}" if frame.function else ""
        yield _labelled(label, (frame.where, kind or TITLE), (within, DIM), (f"  {frame.code}", kind))


def _partners(partners: Sequence[Partner], why: str, number: int) -> Iterator[Line]:
    told = f"  seq_nr {number}" if number >= 0 else ""  # even where nobody shares it
    for place, partner in enumerate(partners[:MOST]):
        label = "partner" if place == 0 else ""
        how = f"  {partner.graph}  {partner.how}" + (f" {number}" if partner.how == NUMBER else "")
        yield _labelled(label, link(partner.name, partner.graph), (how, DIM))
    if len(partners) > MOST:
        yield _labelled("", (f"and {len(partners) - MOST} more", DIM))
    if not partners and (why or told):
        yield _labelled("partner", (why or "not looked up", DIM), (told, DIM))


def _near(label: str, nodes: Sequence[Near], most: int) -> Iterator[Line]:
    if not nodes:
        yield _labelled(label, ("none", DIM))
    width = max((len(node.name) for node in nodes[:most]), default=0)
    for number, node in enumerate(nodes[:most]):
        pad = " " * (width - len(node.name) + 2)
        pieces = link(node.name), f"{pad}{node.value}", (f"  {node.target}", DIM)
        yield _labelled(f"{label} {len(nodes)}" if number == 0 else "", *pieces)
    if len(nodes) > most:
        yield _labelled("", (f"and {len(nodes) - most} more", DIM))


def _origin(detail: NodeDetail) -> Iterator[Line]:
    if detail.original_aten or detail.from_node:
        yield _labelled("made of", ", ".join([*detail.from_node, *([detail.original_aten] if detail.original_aten else [])]))
    for key, text in detail.meta.items():
        yield _labelled("meta", (f"{key} = {text[:200]}", DIM))
