"""Whether a replay compiles what the live run compiled: compares post-grad graphs and generated code with the recorded
ones.

Both sides are written in one normal form: nodes numbered in order, no stacks, comments, provenance, kernel names,
hashes, paths or addresses. Everything else must be equal: targets, arguments, constants, dtypes, shapes, strides,
symbols, and each line of code. Reads no more of torch than `dumps.live.encode` needs.

For example:

    watched = Watched(saved)
    outcome = judge(case, "inductor", watch=watched.compiling)
    watched.compare()  # -> 'same'
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ...dumps.errors import GraphdbgError, NotStoredError
from ...dumps.schema import GraphBody, GraphRecord, SequenceValue, Value
from ...dumps.store import SavedGraph
from ...dumps.tensors import Bytes, hash_bytes
from ...dumps.wording import counted
from .. import torch_private as t

if TYPE_CHECKING:
    from torch import fx

    from ...dumps.index import ListedGraph
    from ..verdicts.outcome import Outcome

Apart = Literal["", "graph", "code"]
SAME = "same"
_SHOWN = 120
"""Characters of a line that a sentence shows."""
_SHOWN_LINES = 24
_PADDING = "aten.constant_pad_nd"
_CODE = "output_code.py"


class CompiledArtifacts:
    """What one replay compiled, in order: post-grad graphs and generated code in normal form; with `saved`, beside the
    recorded ones (nothing is collected where there are none). After `compare`: `same`; else `apart` (what differs) and
    `said` (a sentence); `padded`: whether only one of the two pads products."""

    def __init__(self, saved: SavedGraph | None = None) -> None:
        self.graphs: list[list[str]] = []
        self.code: list[list[str]] = []
        self.same = False
        self.apart: Apart = ""
        self.said = ""
        self.padded = False
        self.recorded = [] if saved is None else _siblings(saved)

    def compiling(self) -> contextlib.AbstractContextManager[None]:
        """Records what is compiled inside the block."""
        if isinstance(self.recorded, str):
            return contextlib.nullcontext()
        return watching_compiles(self._post_grad, self._source)

    def _post_grad(self, gm: fx.GraphModule) -> None:
        from ...dumps import live

        stage = "post_grad_forward"
        self.graphs.append(graph_lines(live.encode(gm, id=f"x0_0/{stage}", stage=stage, sink=_Hashes())))

    def _source(self, text: str) -> None:
        self.code += [code_lines(text)] if text else []  # "" for a graph without kernels, of which a run has no file

    def compare(self, outcome: Outcome | None = None) -> str | None:
        """ "same"; or "not compared: why"; or "different ..." with a short unified diff, recorded against replayed.

        `outcome`: of the replay. Where its compile failed, the graphs compiled until then are compared, if any.
        """
        from ..rungs.inductor import RETRACED

        seen = outcome.signature if outcome is not None else None
        stage = seen.stage if seen is not None else ""
        skipped = outcome is not None and outcome.verdict.skipped
        if stage == "eager" or skipped or (stage == "compile" and not self.graphs):
            return None
        if isinstance(self.recorded, str):
            return f"not compared: {self.recorded}"
        if outcome is not None and any(note.startswith(RETRACED) for note in outcome.notes):
            return "not comparable: the graph was re-traced"
        try:
            text = self._compared(self.recorded, whole=stage not in ("compile", "run"), code=stage != "compile")
        except GraphdbgError as error:
            return f"not compared: {error}"
        self.same = not self.apart
        return text

    def _compared(self, produced: list[tuple[str, SavedGraph]], *, whole: bool, code: bool) -> str:
        """The comparison in words. `whole`: the graph was compiled and run to its end; `code`: code was generated for
        each graph."""
        graphs = [graph for stage, graph in produced if stage.startswith("post_grad")]
        text = ""
        if len(graphs) < len(self.graphs) or (whole and len(graphs) > len(self.graphs)):
            compiled = counted(len(self.graphs), "graph was", "graphs were")
            text = f"different: {compiled} compiled, the recording has {len(graphs)}"
            if not graphs or graphs[0].stage.endswith("backward"):
                return text  # the graphs cannot be matched
            if len(graphs) > len(self.graphs):
                self.apart, self.said = "graph", text.removeprefix("different: ")
            else:  # the run never reached its backward
                text = f"same as far as the run got: {counted(len(graphs), 'graph')} of {len(self.graphs)}"
        for graph, lines in zip(graphs, self.graphs, strict=False):
            recorded = graph_lines(graph.record)
            if recorded != _as_kept(lines, recorded):
                return self._in_words("graph", f"post-grad graph of {graph.id}", recorded, lines)
        holders = [graph for stage, graph in produced if not stage.startswith("post_grad")]
        codes = [(graph.id, file) for graph in holders for file in graph.code_files() if file.name == _CODE]
        for (name, file), lines in zip(codes, self.code if code else [], strict=False):
            recorded = code_lines(file.read_text())
            if recorded != lines:
                return self._in_words("code", f"code of {name}", recorded, lines)
        if not code or (not codes and any(self.code)):
            why = "the recording holds none" if code else "the compile ended before code generation"
            return text or f"same graph; code not compared: {why}"
        return text or SAME

    def _in_words(self, what: Apart, name: str, recorded: Sequence[str], replayed: Sequence[str]) -> str:
        """The diff in words; keeps the first difference."""
        pairs = itertools.zip_longest(recorded, replayed, fillvalue="nothing")
        self.padded = sum(_PADDING in line for line in recorded) != sum(_PADDING in line for line in replayed)
        there, here = next((before.strip(), after.strip()) for before, after in pairs if before != after)
        self.apart, self.said = what, f"{name} differs: {there[:_SHOWN]} in the run, {here[:_SHOWN]} here"
        return _different(name, recorded, replayed)


def _siblings(saved: SavedGraph) -> list[tuple[str, SavedGraph]] | str:
    """What was recorded of this graph's compile: (stage, graph) for the post-grad graphs and the graphs that hold their
    code, in order of compilation; or a sentence why there is nothing.
    """
    if saved.run is None:
        return "a case folder holds no recorded compile"
    local = saved.local_id
    compile_id = local.partition("/")[0]
    rows = [row for row in saved.run.rows if row.saved and row.process == saved.process]
    mine = [row for row in rows if row.local.partition("/")[0] == compile_id]
    by_id = {row.local: row for row in mine}
    produced: list[tuple[str, ListedGraph]] = []
    for kind, number in sorted(_compiles(by_id[local], mine), key=lambda pair: pair[0] == "backward"):
        for name in (f"post_grad_{kind}", kind):
            if (row := by_id.get(f"{compile_id}/{name}{number}")) is not None:
                produced.append((name, row))
    if not any(name.startswith("post_grad") for name, _ in produced):
        return "the recording has no post-grad graph of this compile"
    return [(name, SavedGraph(row.path, saved.run, row)) for name, row in produced]


def _compiles(row: ListedGraph, mine: Sequence[ListedGraph]) -> list[tuple[str, str]]:
    """The inner compiles that a graph leads to: (forward | backward | inference, ".N" or "").

    Numbers count per stage, so a Dynamo graph and its forward may have different ones: they are joined by the order of
    capture. A backward has its forward's number.
    """
    kind = row.stage.removeprefix("post_grad_")
    if kind in ("forward", "backward", "inference"):
        return [(kind, _number(row))]
    at = mine.index(row)
    if row.stage == "joint_passed":
        before = next((other for other in reversed(mine[:at]) if other.stage in ("joint", "inference")), None)
        if before is not None and before.stage == "inference":
            return [("inference", _number(before))]
    compiles: list[tuple[str, str]] = []
    for other in mine[at + 1 :]:
        if other.stage == row.stage or (compiles and row.stage.startswith("joint")):
            break
        if other.stage in ("forward", "inference"):
            compiles.append((other.stage, _number(other)))
            if other.stage == "forward":
                compiles.append(("backward", _number(other)))
    return compiles


def _number(row: ListedGraph) -> str:
    """The ".N" of a graph's id."""
    return "".join(row.local.partition("/")[2].partition(".")[1:])


def _different(what: str, recorded: Sequence[str], replayed: Sequence[str]) -> str:
    lines = list(difflib.unified_diff(recorded, replayed, "recorded", "replayed", lineterm="", n=1))
    more = [f"... {counted(len(lines) - _SHOWN_LINES, 'more line')}"] if len(lines) > _SHOWN_LINES else []
    return "\n".join([f"different {what}:", *lines[:_SHOWN_LINES], *more])


def graph_lines(record: GraphRecord) -> list[str]:
    """A graph's nodes, one line each, in normal form; subgraphs follow indented under their names."""
    seen: dict[str, str] = {}
    return [
        _UNBACKED.sub(lambda match: seen.setdefault(match.group(), f"u_{len(seen)}"), line)
        for line in _body_lines(record.graph, "")
    ]


_UNBACKED = re.compile(r"\b(?:u|zuf)\d+\b")
"""Unbacked symbols, numbered per process: renumbered here in order of appearance."""


def _body_lines(body: GraphBody, indent: str) -> list[str]:
    numbers = {node.name: f"%{index}" for index, node in enumerate(body.nodes)}
    lines = []
    for node in body.nodes:
        target = "" if node.op in ("placeholder", "output") else f" {_attribute(body, node.target)}"
        arguments = [_text(arg, numbers) for arg in node.args]
        arguments += [f"{name}={_text(arg, numbers)}" for name, arg in sorted(node.kwargs.items())]
        value = "" if node.op == "output" else f" : {_value(node.value, given=node.op == 'placeholder')}"
        lines.append(f"{indent}{numbers[node.name]} = {node.op}{target}({', '.join(arguments)}){value}")
    for name, inner in body.subgraphs.items():
        lines += [f"{indent}{name}:", *_body_lines(inner, indent + "    ")]
    return lines


def _attribute(body: GraphBody, target: str) -> str:
    """A constant described by its content, since its name differs between compiles."""
    stored = body.attrs.get(target)
    return target if stored is None else f"constant {_value(stored.value)} {stored.storage[:12]}"


class _Hashes:
    """A sink that stores nothing: constants are compared by their hashes."""

    def accepts(self, size_bytes: int) -> bool:
        return True

    def put(self, data: Bytes) -> str:
        return hash_bytes(data)

    def get(self, name: str) -> Bytes:
        raise NotStoredError(name, "only its hash was taken")


_HASHED = re.compile(r"( = get_attr constant .*) [0-9a-f]{12}\(\)")


def _as_kept(lines: Sequence[str], recorded: Sequence[str]) -> list[str]:
    """Lines of a replay, without hashes of constants whose bytes the run did not keep."""
    pairs = itertools.zip_longest(lines, recorded[: len(lines)])
    return [there if _HASHED.sub(r"\1 ()", here) == there else here for here, there in pairs]


def _text(value: Any, numbers: dict[str, str]) -> str:
    if isinstance(value, dict) and len(value) == 1 and "node" in value:
        return numbers.get(value["node"], str(value["node"]))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(item, numbers)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(item, numbers) for item in value) + "]"
    return repr(value)


def _value(value: Value | None, *, given: bool = True) -> str:
    """A value as text. `given`: it is an input or constant, not a node's fake result: the latter's storage offset is
    left out, since torch's cache of fake results does not distinguish a `copy` of a view from one of a whole; the code
    shows it."""
    if value is None:
        return "?"
    if isinstance(value, SequenceValue):
        return f"{value.kind}({', '.join(_value(item, given=given) for item in value.items)})"
    plain = msgspec.to_builtins(value)
    for transient in ("storage", "requires_grad", "hint", "base", "leaf", *(() if given else ("offset",))):
        plain.pop(transient, None)
    return " ".join(f"{key}={item}" for key, item in plain.items() if key != "value_kind")


_CPP_DIRECTIVE = re.compile(r"\s*#\s*(?:include|pragma|define|undef|if|ifdef|ifndef|else|elif|endif)\b")
_NAMES = re.compile(
    r"\b(?:cpp_fused|triton_(?:poi|red|per|tem|for|unk|mm|bmm)_fused|cpp_CppMicroGemm|cpp)_[A-Za-z0-9_]+"
)
_RULES = (
    (re.compile(r"\bc[a-z2-7]{50,}\b"), "<hash>"),
    (re.compile(r"0x[0-9a-fA-F]{6,}"), "<address>"),
    (re.compile(r"(?:/[\w.+\-@<>]+){2,}"), "<path>"),
    (re.compile(r"(?<= = None  # )(.*) -?[0-9a-f]+$"), r"\1 <address>"),  # a constant tensor's address
    (re.compile(r"'(?:backend_hash|kernel_name|inductor_meta_hash)': '[^']*'"), "'<name>'"),
)


_GIVEN = re.compile(r"\s+((?:\w+, )*\w+,?) = args\s*")
"""The line in which a Python wrapper unpacks its arguments: their names come from nodes, whose numbers vary with what
tracing dropped."""
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_BENCHMARK = "\ndef get_args():"
"""From here on a Python wrapper only benchmarks itself on synthesised inputs; the program does not run that."""


def _renamed(names: dict[str, str], match: re.Match[str]) -> str:
    return names.get(match.group(), match.group())


def code_lines(text: str) -> list[str]:
    """Lines of generated code without its benchmark, comments, provenance, hashes, paths and addresses; kernels and
    arguments are renumbered."""
    kernels: dict[str, str] = {}
    given: dict[str, str] = {}
    lines = []
    for line in text.partition(_BENCHMARK)[0].splitlines():
        bare = line.strip()
        if not bare or bare.startswith("//") or (bare.startswith("#") and not _CPP_DIRECTIVE.match(line)):
            continue
        if unpacked := _GIVEN.fullmatch(line):
            given = {name: f"argument_{index}" for index, name in enumerate(re.findall(r"\w+", unpacked[1]))}
        if given:
            line = _WORD.sub(partial(_renamed, given), line)
        line = _NAMES.sub(lambda match: kernels.setdefault(match.group(), f"kernel_{len(kernels)}"), line.rstrip())
        for pattern, replacement in _RULES:
            line = pattern.sub(replacement, line)
        lines.append(line)
    return lines


@contextlib.contextmanager
def watching_compiles(post_grad: Callable[[fx.GraphModule], None], code: Callable[[str], None]) -> Iterator[None]:
    """Within the block, calls back with each post-grad graph and each piece of generated code that is compiled.

    `inductor.config.post_grad_custom_post_pass` is public but belongs to the user, and runs before the last rewrites.
    """
    passes, inner = t.recursive_post_grad_passes, t.compile_inner_whole
    depth = 0

    def watched_passes(gm: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            return passes(gm, *args, **kwargs)
        finally:
            depth -= 1
            if depth == 0:
                post_grad(gm)

    def watched_inner(*args: Any, **kwargs: Any) -> Any:
        compiled = inner(*args, **kwargs)
        code(getattr(compiled, "source_code", "") or "")
        return compiled

    with t.swapped("recursive_post_grad_passes", watched_passes), t.swapped("compile_inner_whole", watched_inner):
        yield
