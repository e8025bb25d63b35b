"""OUT: what a minification leaves there. case/ is the result, also/ other failures, passes/ the nearest case that does
not fail.

Also: `difference`, a unified diff of two cases: of their plain programs, inputs and settings.

case/, passes/ and each folder in also/ are case folders that every command opens, with a case.json that says how they
fail or that they pass. OUT/atoms.jsonl says what the numbers of a candidate stand for, one line per atom: its nodes by
name, what they call, the user's line, the atoms that it reads. Nothing is judged here. No torch.

For example: `Results(oracle, Path("small"), MinifyOptions()).case` gives `PosixPath('small/case')`.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..dumps import opening
from ..dumps.atomic import write_file
from ..dumps.errors import GraphdbgError, NotStoredError
from ..dumps.names import outputs
from ..dumps.program.case import GRAD_STAGES
from ..dumps.program.function import FunctionText, program_of
from ..dumps.program.inputs import SMALL_ELEMENTS, Slot, slots_of, source_of
from ..dumps.schema import GraphRecord, NodeRecord, TensorValue
from ..dumps.store import SavedGraph, load_graph
from ..dumps.walk import user_frame
from ..dumps.why.wording import ADDRESS
from ..dumps.wording import counted, joined
from ..toolkit.live.spec import FULL_STAGES
from ..toolkit.verdicts.identity import OWN_PASS
from ..toolkit.verdicts.signature import Signature
from ..toolkit.verdicts.verdict import Verdict, Where
from ..toolkit.verdicts.verdict_words import without
from .casefile import NAME, FailureRate
from .minified import Also, Minified
from .needs import Needs, Neighbour, neighbour, parts, unneeded
from .options import MinifyOptions
from .passes import NEUTRAL, edit_words
from .search.problem import Answer, Candidate

if TYPE_CHECKING:
    from .engine import Engine
    from .minified import Other
    from .oracle import Oracle

CONTEXT = 3
STORED = "stored["
"""In the text of an input whose values would be stored in a file beside a program."""
_LONGEST = 160


def difference(
    failing: SavedGraph, passing: SavedGraph, names: tuple[str, str] = ("case (fails)", "passes (passes)")
) -> str:
    """The diff from the failing case to the passing one; empty where their texts are the same.

    Small inputs are written with their values, unless one has no such form: then all are described by how a program
    would make them.
    """
    exact = lines(failing, exact=True), lines(passing, exact=True)
    formed = lines(failing), lines(passing)
    plain = not any(STORED in line for text in exact for line in text)
    texts = exact if plain or formed[0] == formed[1] else formed
    return "\n".join(difflib.unified_diff(*texts, *names, n=CONTEXT, lineterm=""))


def lines(saved: SavedGraph, *, exact: bool = False) -> list[str]:
    """A case as text: settings that are not the default, inputs (`exact`: with their values), the program."""
    record = saved.record
    named = [(f"{room}.{name}", value) for room, values in record.config.items() for name, value in values.items()]
    settings = [ADDRESS.sub("…", f"# {name} = {value!r}") for name, value in named]
    if record.stage in FULL_STAGES:
        ambient = record.ambient
        settings += [] if ambient.grad else ["# without gradients"]
        settings += [f"# autocast on {device}: {dtype}" for device, dtype in ambient.autocast.items()]
    dynamic = [f"# dynamic: {row.name} = {row.hint}" for row in record.symbols if row.input or row.backed]
    try:
        program = program_of(record)
        text = program.source.splitlines()
    except GraphdbgError:
        program, text = None, saved.program().splitlines()
    return [*settings, *dynamic, *_inputs(saved, program, exact), *text]


def _inputs(saved: SavedGraph, program: FunctionText | None, exact: bool) -> list[str]:
    """A line per input: how a program would make it, else its form."""
    record = saved.record
    if program is None:
        return []
    slots, _ = slots_of(record, saved.inputs_record, program.constants, grad=record.stage in GRAD_STAGES)
    names = [*program.parameters, *program.constants][: len(slots)]
    return [f"{name} = {_made(saved, slot, exact)}" for name, slot in zip(names, slots, strict=False)]


def _made(saved: SavedGraph, slot: Slot, exact: bool) -> str:
    small = exact and isinstance(slot.value, TensorValue) and _elements(slot.value.shape) <= SMALL_ELEMENTS
    hints = {symbol.name: symbol.hint for symbol in saved.record.symbols if symbol.hint is not None}
    try:
        text = " ".join(source_of([slot], "literal" if small else "seeded", saved.kept, hints).expressions)
    except GraphdbgError:
        return f"... ({slot.value})"[:_LONGEST]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _elements(shape: Sequence[int | str]) -> int:
    return prod(dim for dim in shape if isinstance(dim, int))


def output_in(record: GraphRecord, text: str) -> tuple[NodeRecord | None, str]:
    """The output that a failure's text begins with, and the name that users know; None where it names none of the
    graph's own."""
    node_name, name = next((output for output in outputs(record) if text.startswith(f"{output[1]}: ")), ("", ""))
    return next((node for node in record.graph.nodes if node.name == node_name), None), name


def place_of(record: GraphRecord, text: str) -> str:
    """The output that the text begins with, as a node and a user line; empty where it names none of the graph's own."""
    node, name = output_in(record, text)
    if node is None:
        return ""
    where, code = user_frame(record.strings[node.stack]) if node.stack >= 0 else ("", "")
    line = f", {where}" + (f": {code}" if code else "") if where else ""
    called = "" if name.partition(",")[0] == node.name else f"{name} is "
    return f"{called}{node.name} ({node.target}){line}"


def blamed(verdict: Verdict, needs: Sequence[dict[str, Any]], case: Path) -> Verdict:
    """The verdict on the case in a folder; a pass of the user's is at fault where the case fails with it and passes
    without."""
    needed = [row["name"] for row in needs if row["what"] == "setting" and row["verdict"] == "needed"]
    name = next((name for name in needed if name.endswith(OWN_PASS)), "")
    if verdict.fault != "compiler" or not name:
        return verdict
    rows = (row for row in load_graph(case).record.definitions if name in row.values)
    node, line = next(((row.values[name], Path(row.file).name) for row in rows), ("", ""))
    where = Where(node, verdict.where.graph if verdict.where else "", line, name)
    return msgspec.structs.replace(verdict, fault="custom_pass", layer=None, where=where)


ATOMS_FILE = "atoms.jsonl"
WORK = ".work"
LIVE = "live"
"""In the work folder: a file per candidate with the stage and the output of its running query, for whoever watches."""
ALSO, PASSES = "also", "passes"
RESULT_FILES = ("repro.py", "repro.safetensors", "issue.md", "artifacts.zip")
"""Files that a report leaves beside the case; they are all about the case that was best at that time."""
MOST_OTHERS = 6
"""Other failures that are written as cases; more are only listed."""


class Results:
    """Writes the folder of one minification."""

    def __init__(self, subject: Oracle, out: Path, options: MinifyOptions) -> None:
        self.subject, self.out, self.options = subject, out, options
        self.case = out / "case"

    def digest(self) -> str:
        """A hash of the atoms: of their number, their labels, and what they read."""
        subject = self.subject
        atoms = [
            [repr(subject.label(atom)), list(subject.parents(atom)), list(subject.bypasses(atom))]
            for atom in range(subject.size)
        ]
        return hashlib.blake2b(msgspec.json.encode(atoms), digest_size=16).hexdigest()

    def write_case(self, best: Candidate | None, whole: Answer, rate: FailureRate) -> None:
        """Writes the best case, in place of an earlier one and of all files about that."""
        clear(self.out)
        spec = self.subject.emit(best, self.case)
        original = {"nodes": whole.nodes, "input_bytes": whole.input_bytes, "failing": rate.failing, "runs": rate.runs}
        self._describe(self.case, self.subject.signature, spec, original=original)

    def write_rest(
        self, minified: Minified, engine: Engine, needs: Needs | None = None, *, brief: bool = False
    ) -> None:
        """Writes other failures and the passing neighbour as cases, and adds to `minified` what each part is needed
        for. Notes what could not be written. `brief`: only lists the other failures."""
        merged, best = _merged(minified.others), engine.best
        if brief:
            minified.also = [Also(other.signature, other.count, other.nodes) for other in merged]
            return
        for number, other in enumerate(merged, 1):
            minified.also.append(self._write_other(number, other, minified.notes))
        if best is not None:
            passing = parts(engine, best)
            minified.parts = [{**asdict(part), "name": self.subject.name(part.atom)} for part in passing]
            minified.unneeded = unneeded(best.edits)
            if needs is not None:
                nodes = [(part, self.subject.about(part.atom)["nodes"]) for part in passing]
                minified.needs = needs.rows(engine, nodes)
                minified.verdict = blamed(minified.verdict, minified.needs, self.case)
            if (near := neighbour(engine, best)) is not None:
                renaming = [edit for edit in best.edits if edit.partition(" ")[0] in NEUTRAL]
                self._write_passing(near, minified, needs, renaming)
        self._tell(minified)

    def _tell(self, minified: Minified) -> None:
        """Adds to the case.json what is known of the case now; a report shows it."""
        texts = [] if minified.needs else needed(minified.parts)
        texts += [f"the nearest case that passes: {minified.difference}"] if minified.passing else []
        for also in minified.also:
            texts.append(f"met on the way and not followed ({counted(also.count, 'time')}): {also.signature}")
        more = {name: getattr(minified, name) for name in ("verified", "needs", "unneeded", "neighbour")}
        add_to_case(self.case, told=texts, **more, record=minified.verdict.plain())

    def _write_other(self, number: int, other: Other, notes: list[str]) -> Also:
        also = Also(other.signature, other.count, other.nodes)
        signature = None if other.failure is None else msgspec.convert(other.failure, Signature)
        if signature is None or number > MOST_OTHERS:
            return also
        path = self.out / ALSO / f"{number}-{signature.kind}"
        try:
            spec = self.subject.emit(other.candidate, path)
        except GraphdbgError as error:
            notes.append(f"another failure was not saved: {_in_a_line(error)}")
            return also
        self._describe(path, signature, spec, count=other.count)
        asked, check = self.options, self.options.check if self.options.command else "auto"
        options = MinifyOptions(check, asked.rung, asked.seed, imports=asked.imports)
        words = ["graphdbg", "minify", str(path), "-o", f"{self.out}-also-{number}", *options.words()]
        also.path, also.command = path, shlex.join(words)
        return also

    def _write_passing(self, near: Neighbour, minified: Minified, needs: Needs | None, renaming: Sequence[str]) -> None:
        path = self.out / PASSES
        missing = [edit for edit in renaming if edit not in near.candidate.edits]
        try:
            spec = self._emit_renamed(near.candidate, missing, path)
        except GraphdbgError as error:
            minified.notes.append(f"the passing neighbour was not saved: {error}")
            return
        minified.passing, minified.difference = path, self._difference(near, needs)
        self._describe(path, None, spec, passes=True, difference=minified.difference)
        minified.neighbour = {"path": str(path), "difference": minified.difference, "diff": self._diff(path)}

    def _emit_renamed(self, candidate: Candidate, renaming: list[str], path: Path) -> Any:
        """Writes a case with its nodes called as those of the failing case; with their own names where that cannot
        be."""
        if renaming:
            try:
                return self.subject.emit(replace(candidate, edits=(*candidate.edits, *renaming)), path)
            except GraphdbgError:
                shutil.rmtree(path, ignore_errors=True)
        return self.subject.emit(candidate, path)

    def _diff(self, path: Path) -> str:
        """The lines in which the two cases differ; empty where one of them is no graph."""
        try:
            return difference(load_graph(self.case), load_graph(path))
        except (GraphdbgError, OSError):
            return ""

    def _difference(self, near: Neighbour, needs: Needs | None) -> str:
        """What differs from the failing case, in words."""
        if needs is not None and len(near.edits) == 1 and not near.dropped and (texts := needs.changed(near.edits[0])):
            return texts
        gone = [atom for atom in near.dropped if atom not in near.candidate.keep]
        more = [atom for atom in near.dropped if atom in near.candidate.keep]
        texts = [f"without {joined([self.subject.name(atom) for atom in gone])}"] if gone else []
        texts += [f"with {joined([self.subject.name(atom) for atom in more])}"] if more else []
        texts += [f"with {edit_words(edit)}" for edit in near.edits if edit in near.candidate.edits]
        texts += [f"without {edit_words(edit)}" for edit in near.edits if edit not in near.candidate.edits]
        return " and ".join(texts) + (", shapes and values as they were" if near.plain else "")

    def _describe(self, path: Path, signature: Signature | None, spec: Any, **more: Any) -> None:
        """Writes case.json: what a report, or another command that opens the case, needs besides graph and inputs."""
        plain = self.options.to_json()
        asked = {name: plain[name] for name in ("rung", "check", "seed", "match")}
        data = {"signature": msgspec.to_builtins(signature), **asked, "options": plain, "spec": spec, **more}
        write_file(path / NAME, msgspec.json.format(msgspec.json.encode(data), indent=1))


def add_to_case(folder: Path, **more: Any) -> None:
    """Sets fields in the case.json of a folder."""
    path = folder / NAME
    data: dict[str, Any] = msgspec.json.decode(opening.read(path))
    write_file(path, msgspec.json.format(msgspec.json.encode(data | more), indent=1))


def _in_a_line(error: GraphdbgError) -> str:
    """The text of an error; where that holds a traceback, the line that names the exception."""
    raised = re.search(r"^\w[\w.]*(?:Error|Exception): .*", error.why, re.M)
    return f"{error.what}: {raised[0]}" if raised and "Traceback (most" in error.why else str(error)


def _merged(others: list[Other]) -> list[Other]:
    """One entry per failure: texts may differ in a number where the failure is the same."""
    merged: list[tuple[Signature | None, Other]] = []
    for other in others:
        signature = None if other.failure is None else msgspec.convert(other.failure, Signature)
        twin = next((known for kind, known in merged if signature and kind and kind.same_as(signature)), None)
        if twin is None:
            merged.append((signature, other))
        else:
            twin.add(other)
    return sorted((other for _, other in merged), key=lambda other: -other.count)


def needed(parts: list[dict[str, Any]]) -> list[str]:
    """Sentences on what happens without each node that is left, where that was asked."""
    return [
        f"without {part['name']} it {does}" + (f": {part['signature']}" if part["signature"] else "")
        for part in parts
        if (does := without(part["verdict"]))
    ]


def clear(out: Path) -> None:
    """Removes the result of an earlier, unfinished minification into the same folder; its journal stays."""
    for name in ("case", ALSO, PASSES):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in RESULT_FILES:
        (out / name).unlink(missing_ok=True)


def write_atoms(out: Path, subject: Oracle) -> None:
    """Writes OUT/atoms.jsonl, once, before the first candidate is asked. Raises EnvironmentLackError where the disk
    refuses."""
    path = out / ATOMS_FILE
    if not path.exists():
        write_file(path, _lines(subject))


def _lines(subject: Oracle) -> Iterator[bytes]:
    for atom in range(subject.size):
        links = {"label": str(subject.label(atom)), "parents": list(subject.parents(atom))}
        yield msgspec.json.encode({"atom": atom, **subject.about(atom), **links}) + b"\n"


class AtomLines:
    """The lines of OUT/atoms.jsonl, each decoded when it is asked for: reading 100,000 of them at once takes no
    time."""

    def __init__(self, data: bytes) -> None:
        self._lines = data.split(b"\n")[:-1]

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, atom: int) -> dict[str, Any]:
        return msgspec.json.decode(self._lines[atom], type=dict[str, Any])


def read_atoms(out: Path) -> AtomLines:
    """Reads OUT/atoms.jsonl. Raises UnreadableError where there is no such file, as in the folder of an older
    version."""
    path = out / ATOMS_FILE
    try:
        return AtomLines(opening.read(path))
    except OSError as error:
        fix = "minify the graph again to write it"
        raise NotStoredError(f"cannot read {path}", error.strerror or str(error), fix) from error
