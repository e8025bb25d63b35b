"""Writes a ring's contents as a run: the graphs of the last step, or the graph that raised, with the inputs of their
last calls.

Each input is the copy where it was small; else the tensor itself if it still exists; else its value recomputed by the
graph that produced it, from that graph's own inputs. An input written to since the call is reported, with the likely
writer.

For example:

    save(session, None, None).notes
    # ['0_0/dynamo: fc.weight was written to (version 3, now 4) after execution 3, by 1_0/dynamo']
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ....dumps import errors, live
from ....dumps.atomic import free_path, write_file
from ....dumps.errors import ExistsAlreadyError, GraphdbgError, NoGraphError
from ....dumps.graph_folder import GRAPHS_FOLDER, INPUTS_FILE, TENSORS_FOLDER, encode
from ....dumps.held import packed_state
from ....dumps.output import say
from ....dumps.schema import GraphRecord, InputsRecord
from ....dumps.store import load_graph
from ....dumps.tensors import TensorStore
from ....dumps.wording import counted, error_line, shown_path, size_text
from ...live.torch_state import ambient, undisturbed
from . import rings

if TYPE_CHECKING:
    from .calls import ArmedGraph, Newest
    from .entry import Armed

_MOST_BYTES = 4 << 30
_MOST_DEEP = 4
_TORCH, _INNER = str(Path(torch.__file__).parent), "inner external_utils.py"
"""torch's own source folder, and the Dynamo function in which a callable of torch's (a bare torch.nn.Linear) is
compiled."""
_MISSING = object()


class Saved(NamedTuple):
    """A run that was written. `graphs`: ids, the likeliest culprit first; `notes`: inputs that were overwritten since;
    `why`: what went wrong."""

    path: Path
    graphs: list[str]
    notes: list[str]
    why: str


def save(session: Armed, fn: Callable[..., Any] | None, path: Path | None) -> Saved:
    """Writes a run; see `entry.save_repro`."""
    calls = session.calls
    if calls is None and not session.unfit:
        raise NoGraphError(
            "cannot save a repro", "nothing was compiled since graphdbg.arm()", "arm before the first compiled call"
        )
    new = sorted(local for local in session.unfit - session.saved if _is_of(session, local, fn))
    failure = calls.failure if calls is not None else None
    pairs: list[tuple[ArmedGraph, Newest]] = []
    if failure is not None and failure.kept.local in new:
        pairs = [(failure.kept, failure.newest)]
    elif calls is not None and not new:
        held = [(graph, graph.newest) for graph in calls.last_step() if _is_of(session, graph.local, fn)]
        pairs = [(graph, newest) for graph, newest in held if newest is not None]
    graphs = [kept.local for kept, _ in pairs]
    unran = [local for local in new if local not in graphs]
    if not graphs and not unran:
        known = ", ".join(sorted(set(session.functions.values()))) or "nothing"
        raise NoGraphError(
            "cannot save a repro", "no call of this function is kept", f"compiled since graphdbg.arm(): {known}"
        )
    if path is not None and path.exists():
        raise ExistsAlreadyError(
            f"cannot write {path}", "it exists, and runs are never overwritten", "give run= another name"
        )
    path = path or free_path("graphdbg-armed", bare=False)
    if calls is not None:
        calls.mark.state(rings.IDLE)
    why = session.went_wrong()
    with undisturbed():
        read = [_inputs(kept, newest, {}) for kept, newest in pairs]
    notes = [note for read_graph in read for note in read_graph.notes]
    writer = session.writer()
    events = [{"kind": "note", "message": note} for note in notes]
    run = rings.to_run(session.path, writer.name, path, {*graphs, *unran}, events)
    notes += _write(run / writer.name, TensorStore(run / TENSORS_FOLDER), graphs, read)
    session.saved |= {*graphs, *unran}
    session.written = calls.sequence if calls is not None else 0
    return Saved(run, [*unran, *graphs], notes, why)


def _is_of(session: Armed, local: str, fn: Callable[..., Any] | None) -> bool:
    if fn is None:
        return True
    inner = getattr(fn, "_orig_mod", fn)
    inner = getattr(inner, "_torchdynamo_orig_callable", inner)
    codes = [getattr(function, "__code__", None) for function in (inner, getattr(inner, "forward", None))]
    text = session.functions.get(local.partition("/")[0], "")
    for code in codes:
        if code is None:
            continue
        if code.co_filename.startswith(_TORCH) and text.startswith(_INNER):
            return True
        file = Path(code.co_filename).name
        name, _, where = text.rpartition(" ")
        if (name == code.co_name and where == f"{file}:{code.co_firstlineno}") or (
            f"torch_dynamo_resume_in_{code.co_name}_at" in name and where.startswith(f"{file}:")
        ):
            return True
    return False


class _Read(NamedTuple):
    """The inputs of one call as they are now."""

    record: GraphRecord
    first: InputsRecord | None
    values: list[Any]
    notes: list[str]
    newest: Newest


def _inputs(kept: ArmedGraph, newest: Newest, known: dict[ArmedGraph, Any], depth: int = 0) -> _Read:
    producers = dict(zip(kept.activations, newest.producers, strict=True))
    number = {place: index for index, place in enumerate(kept.tensors)}
    values: list[Any] = []
    notes: list[str] = []
    looked = bool(newest.seen.versions) or not kept.tensors
    if not looked:
        what = "was not checked, because its calls are short: its inputs may have changed since the call"
        notes.append(f"{kept.local}: execution {newest.execution} {what}")
    for place, value in enumerate(kept.values(newest)):
        name = kept.names[place]
        if kept.small is not None and torch.is_tensor(value):
            copied = kept.small.value(place, value, newest.execution)
            if copied is not None:
                values.append(copied)
                continue
        if value is None:
            value = _made_again(producers.get(place), known, depth)
            how = "is synthesised" if value is _MISSING else "was computed again by the graph before"
            notes.append(f"{kept.local}: {_called(kept, name)} was freed, and {how}")
        elif looked and isinstance(value, torch.Tensor) and place in number:
            word = newest.seen.word(number[place], value)
            if word:
                when = f"after execution {newest.execution}"
                by = _by(kept, place, value) if "was written to (" in word else ""
                notes.append(f"{kept.local}: {_called(kept, name)} {word} {when}{by}")
                value = _MISSING if "released its memory" in word else value
        values.append(value)
    return _Read(kept.record, kept.first, values, notes, newest)


def _called(kept: ArmedGraph, name: str) -> str:
    item = next((item for item in kept.record.inputs if item.name == name), None)
    return item.source if item is not None and item.source else name


def _by(kept: ArmedGraph, place: int, tensor: torch.Tensor) -> str:
    """The likely writer of a tensor, in words: a graph that is known to write to it, or an optimizer that has it as a
    parameter."""
    if place in kept.written:
        return f", by {kept.local} itself"
    for other in kept.calls.kept:
        newest = other.newest
        if newest is not None and any(other.values(newest)[written_place] is tensor for written_place in other.written):
            return f", by {other.local}"
    for holder in gc.get_objects():
        if issubclass(type(holder), torch.optim.Optimizer) and any(
            tensor is parameter for group in holder.param_groups for parameter in group["params"]
        ):
            return f", most likely by {type(holder).__name__}.step, whose parameter it is"
    return ", by code that is not compiled"


def _made_again(producer: Any, known: dict[ArmedGraph, Any], depth: int) -> Any:
    """Recomputes an activation in eager: runs the graph that produced it on that graph's own last inputs. _MISSING
    where these are gone."""
    if producer is None or depth > _MOST_DEEP:
        return _MISSING
    kept, execution, place = producer
    newest = kept.newest
    if newest is None or newest.execution != execution:
        return _MISSING
    if kept not in known:
        known[kept] = None
        with contextlib.suppress(Exception):  # optional: an input that cannot be recomputed is synthesised
            read = _inputs(kept, newest, known, depth + 1)
            if _MISSING not in read.values:
                saved = load_graph(kept.calls.session.writer().graph_path(kept.local))
                module = live.module(saved.record, saved.tensors)
                with torch.random.fork_rng(devices=[]):
                    for device, state in newest.states:
                        if device == "cpu":
                            torch.set_rng_state(state)
                    known[kept] = module(
                        *[value.detach().clone() if isinstance(value, torch.Tensor) else value for value in read.values]
                    )
    outputs = known[kept]
    return outputs[place] if isinstance(outputs, (list, tuple)) and place < len(outputs) else _MISSING


def _write(process: Path, tensors: TensorStore, graphs: Sequence[str], read: Sequence[_Read]) -> list[str]:
    """Writes inputs.json of each graph, with values while they fit in _MOST_BYTES; returns a sentence for each that has
    none."""
    left, notes = _MOST_BYTES, list[str]()
    for local, reading in zip(graphs, read, strict=True):
        plain = [value for value in reading.values if type(value) in (torch.Tensor, torch.nn.Parameter)]
        size = sum(value.untyped_storage().nbytes() for value in plain)
        policy = "last" if size <= left else "index"
        if policy == "index":
            notes.append(f"{local}: its inputs are {size_text(size)}, and are synthesised")
        file = process / GRAPHS_FOLDER / local / INPUTS_FILE
        try:
            write_file(file, encode(_record(reading, policy, tensors)))
            left -= size if policy == "last" else 0
        except (RuntimeError, OSError, GraphdbgError) as error:
            notes.append(f"{local}: its inputs could not be read: {error_line(error)}")
            if reading.first is not None:
                with contextlib.suppress(OSError, GraphdbgError):
                    write_file(file, encode(reading.first))
    return notes


def _record(reading: _Read, policy: str, tensors: TensorStore) -> InputsRecord:
    values = [0 if value is _MISSING else value for value in reading.values]
    with undisturbed():
        seen = live.observe(reading.record, values, policy, tensors)
    if reading.first is not None:
        old = {item.name: item for item in reading.first.inputs}
        given = zip(seen.inputs, reading.values, strict=True)
        seen.inputs = [old[item.name] if value is _MISSING else item for item, value in given]
        seen.ambient = reading.first.ambient
    seen.ambient = seen.ambient or ambient()
    if reading.newest.states:
        states = reading.newest.states
        seen.ambient.rng_state = " ".join(f"{device}:{packed_state(bytes(state.tolist()))}" for device, state in states)
    seen.execution = reading.newest.execution
    return seen


def said(session: Armed) -> list[str]:
    """Writes a run of the failure when the process ends; returns the sentences why it could not, none where it
    could."""
    try:
        saved = save(session, None, None)
        said_of(session, saved, minify=session.minify, max_time=session.max_time)
    except (GraphdbgError, OSError, RuntimeError) as error:
        return [
            f"graphdbg: what went wrong could not be saved here: {errors.said(error)}",
            "graphdbg: next: graphdbg ls  (where files can be written: what was compiled is kept until then)",
        ]
    return []


def said_of(session: Armed, saved: Saved, *, minify: bool, max_time: float) -> None:
    """Reports what was saved and what to do with it, and minifies it where asked."""
    name = shown_path(saved.path)
    why = f": {saved.why}" if saved.why else ""
    say(f"graphdbg: {counted(len(saved.graphs), 'graph')} of the last step and their inputs are in {name}{why}")
    for note in saved.notes[:5]:
        say(f"graphdbg: {note}")
    out = saved.path.with_name(saved.path.name + "-minified")
    only = f"/{saved.graphs[0]}" if len(saved.graphs) == 1 else ""
    limit = f"--max-time {max_time:.0f}"
    say(f"graphdbg: {'' if minify else 'next: '}graphdbg minify {name}{only} -o {shown_path(out)} {limit}")
    if minify:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GRAPHDBG")}
        words = ["minify", f"{saved.path}{only}", "-o", str(out), *limit.split()]
        command = [sys.executable, "-m", "graphdbg", *words]
        subprocess.run(command, env=environment, stdout=sys.stderr, stdin=subprocess.DEVNULL, check=False)
