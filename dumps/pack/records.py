"""The records of a run without what reveals a person or a machine: which of their fields are free text is known here
alone.

Names that FX and the file system read (nodes, targets, ids, expressions) stay. The given records, which are the store's
own, are not changed.

For example: `graph(saved.record, texts, keep=False).strings[0]` gives `'  File "train.py", line 76, in forward\\n'`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from msgspec.structs import replace

from ..environment import shareable
from ..journal import Event
from ..process import ProcessRecord
from ..schema import (
    Arg,
    ConstValue,
    DefinitionRecord,
    GraphBody,
    GraphRecord,
    InputRecord,
    InputsRecord,
    ModuleRecord,
    NodeRecord,
    OpaqueValue,
    RunRecord,
    SequenceValue,
    StoredTensor,
    TensorValue,
    TritonKernel,
    Value,
)
from ..walk import contents, map_argument, nodes, tag_of
from .texts import Texts

Keep = Callable[[str], bool]
"""Whether the bytes of the storage of that name are packed."""

_FRAME_LENGTH = 4
_PRESENT = "now"
_KERNEL_SOURCE = "triton_source"


def run(record: RunRecord, texts: Texts) -> RunRecord:
    """run.json: no variable that is off the list or holds more than a setting, and the command without its paths."""
    environment = {name: value for name, value in shareable(record.environment).items() if texts.text(value) == value}
    return replace(
        record,
        command=texts.command(record.command),
        versions=_texts(record.versions, texts),
        environment=environment,
        config=tree(record.config, texts),
        job="",
    )


def process(record: ProcessRecord, texts: Texts, *, gone: bool) -> ProcessRecord:
    """process.json: the host has a stand-in, the pid stays; `gone` says that the process is known to be dead."""
    return replace(
        record,
        host=texts.host(record.host),
        argv=texts.command(record.argv),
        start_ticks=0,
        where="",
        gone=gone or record.gone,
    )


def event(recorded: Event, texts: Texts) -> Event:
    """A journal line whose fields are redacted; state, graph and time stay."""
    return Event(recorded.time, recorded.kind, recorded.graph, cast("dict[str, Any]", tree(recorded.fields, texts)))


def graph(record: GraphRecord, texts: Texts, *, keep: Keep) -> GraphRecord:
    """graph.json; parameters and constants of which nothing is kept have their shapes only."""
    programs = set[int]() if texts.source else set(_programs(record.graph))
    strings = ["" if number in programs else texts.text(text) for number, text in enumerate(record.strings)]
    texts.changed["source lines"] += sum(record.strings[number].count("\n") + 1 for number in programs)
    kernels = [_kernel(kernel, texts) for kernel in record.kernels]
    return replace(
        record,
        versions=_texts(record.versions, texts),
        graph=_body(record.graph, texts, keep),
        inputs=[_input(item, texts, keep) for item in record.inputs],
        symbols=[replace(symbol, source=texts.text(symbol.source)) for symbol in record.symbols],
        guards=[replace(guard, message=texts.text(guard.message)) for guard in record.guards],
        shape_env=tree(record.shape_env, texts),
        strings=strings,
        kernels=kernels,
        definitions=[_definition(definition, texts) for definition in record.definitions],
        compile_kwargs={texts.text(name): _argument(arg, texts) for name, arg in record.compile_kwargs.items()},
        config={room: _arguments(settings, texts) for room, settings in record.config.items()},
    )


def _kernel(kernel: TritonKernel, texts: Texts) -> TritonKernel:
    """A kernel of the user's; its source stays only where sources do."""
    path, _, line = kernel.file.rpartition(":")
    kernel = replace(
        kernel,
        file=f"{texts.file(path)}:{line}" if path else "",
        missing=[texts.text(text) for text in kernel.missing],
        dropped=[texts.text(text) for text in kernel.dropped],
    )
    if texts.source:
        return kernel
    texts.changed["source lines"] += (kernel.decorators + kernel.program).count("\n")
    return replace(kernel, program="", decorators="")


def _definition(definition: DefinitionRecord, texts: Texts) -> DefinitionRecord:
    """A definition cut from the user's program; its source stays only where sources do."""
    texts.changed["source lines"] += 0 if texts.source else definition.program.count("\n")
    missing = [texts.text(text) for text in definition.missing]
    if definition.program and not texts.source:
        passes = [f"{what.removesuffix('()')} ({name.rpartition('.')[2]})" for name, what in definition.values.items()]
        texts.left_out |= dict.fromkeys([*(f"operators of {space}" for space in definition.spaces), *passes])
    return replace(
        definition,
        file=texts.file(definition.file),
        program=definition.program if texts.source else "",
        missing=missing,
    )


def _programs(body: GraphBody) -> Iterator[int]:
    """The strings that hold the source of a user's own kernel."""
    return (place for node in nodes(body) for place in contents(node.meta.get(_KERNEL_SOURCE), "string"))


def inputs(record: InputsRecord, texts: Texts, *, keep: Keep) -> InputsRecord:
    """inputs.json: shapes, strides, scalars and statistics; values only of tensors that are kept."""
    return replace(
        record, inputs=[_input(item, texts, keep) for item in record.inputs], reason=texts.text(record.reason)
    )


def tree(value: Any, texts: Texts) -> Any:
    """Any JSON value with all its texts redacted; a frame [file, line, function, code] as a stack's frame is."""
    if isinstance(value, str):
        return texts.remark(value)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if _is_frame(items):
            file, code = texts.frame(items[0], items[3])
            return [file, items[1], items[2], code]
        return [tree(item, texts) for item in items]
    if isinstance(value, dict):
        return {texts.text(key): _field(key, item, texts) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _field(key: str, value: Any, texts: Texts) -> Any:
    if isinstance(value, str) and key in ("file", "filename", "path", "where"):
        return texts.file(value)
    if isinstance(value, str) and key in ("code", "source_line"):
        return texts.line("", value)
    if (
        key == _PRESENT and isinstance(value, dict) and not texts.source
    ):  # values of the user's variables, where a guard failed
        held = cast("dict[str, Any]", value)
        return {name: "<text>" if isinstance(item, str) else item for name, item in held.items()}
    return tree(value, texts)


def _is_frame(items: list[Any]) -> bool:
    return len(items) == _FRAME_LENGTH and [type(item) for item in items] == [str, int, str, str]


def _texts(mapping: dict[str, str], texts: Texts) -> dict[str, str]:
    return {key: texts.text(value) for key, value in mapping.items()}


def _body(body: GraphBody, texts: Texts, keep: Keep) -> GraphBody:
    return replace(
        body,
        nodes=[_node(node, texts) for node in body.nodes],
        attrs={name: _stored(item, keep) for name, item in body.attrs.items()},
        modules={name: _module(module, texts, keep) for name, module in body.modules.items()},
        subgraphs={name: _body(inner, texts, keep) for name, inner in body.subgraphs.items()},
        meta=_arguments(body.meta, texts),
    )


def _node(node: NodeRecord, texts: Texts) -> NodeRecord:
    return replace(
        node,
        args=[_argument(arg, texts) for arg in node.args],
        kwargs=_arguments(node.kwargs, texts),
        value=_value(node.value, texts),
        meta=_arguments(node.meta, texts),
    )


def _module(module: ModuleRecord, texts: Texts, keep: Keep) -> ModuleRecord:
    return replace(
        module,
        arguments=_arguments(module.arguments, texts),
        repr=texts.text(module.repr),
        state={name: _stored(item, keep) for name, item in module.state.items()},
    )


def _input(item: InputRecord, texts: Texts, keep: Keep) -> InputRecord:
    return replace(
        item,
        source=texts.text(item.source),
        value=_value(item.value, texts),
        stored=None if item.stored is None else _stored(item.stored, keep),
    )


def _stored(item: StoredTensor, keep: Keep) -> StoredTensor:
    item = replace(item, inner={name: _stored(part, keep) for name, part in item.inner.items()}) if item.inner else item
    return item if not item.storage or keep(item.storage) else replace(item, storage="")


def _value(value: Value | None, texts: Texts) -> Value | None:
    if isinstance(value, SequenceValue):
        return replace(value, items=[cast("Value", _value(item, texts)) for item in value.items])
    if isinstance(value, ConstValue):
        return replace(value, value=_argument(value.value, texts))
    if isinstance(value, TensorValue) and value.context is not None:
        return replace(value, context=_argument(value.context, texts))
    if isinstance(value, OpaqueValue):
        return replace(value, type=texts.text(value.type))
    return value


def _arguments(mapping: dict[str, Arg], texts: Texts) -> dict[str, Arg]:
    return {name: _argument(arg, texts) for name, arg in mapping.items()}


def _argument(arg: Arg, texts: Texts) -> Arg:
    """An encoded argument, redacted but for what its tag makes a name."""
    return map_argument(arg, lambda leaf: _leaf(leaf, texts))


def _leaf(arg: Arg, texts: Texts) -> Arg:
    if isinstance(arg, str):
        return texts.text(arg)
    tag, content = tag_of(arg)
    return {tag: tree(content, texts)} if tag == "opaque" else arg
