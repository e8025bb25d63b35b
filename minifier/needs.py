"""What each part of a finished case is needed for: each part is replaced by others, one at a time, and the result is
judged as any candidate is. Also finds the nearest passing case.

Knows no FX: what could be asked comes as rows from `passes.probes`. Must never change the case (where it fails the same
way without a part after all, `less` names that case, and the session goes on from there), nor claim more than was
asked: "needed" only where something in its place passed and nothing failed the same way. Most single cuts were asked by
the search; `certify` asks those that are missing, the smallest and cheapest queries of all, and so finds a pass that
was believed by mistake.

For example:

    needs = of_rows(rows, case)
    needs.ask(engine, most=24)
    needs.rows(engine)[0]
    # {'what': 'dim', 'name': 'x.shape[0]', 'value': '8', 'verdict': 'needed', 'tried': [{'value': '9', 'verdict':
    # 'pass', ...}], ...}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..dumps.wording import counted, flat
from ..toolkit.verdicts.verdict_words import NEEDS, query_words
from .agenda import SearchStopped
from .passes import NEUTRAL
from .passes import unneeded as lost_by
from .search.problem import Answer, Candidate, Ruling

if TYPE_CHECKING:
    from .engine import Engine

MOST = 24
"""Most queries for the probes of one case."""
MOST_FLAKY = 8
"""The same for a flaky failure, where each passing candidate is asked several times."""
MOST_SLOW = {"hang": 4, "slow": 8, "memory": 8, "command": 8}
"""The same for kinds of failure whose every query may take long."""
TIED = "tied to other parts: eager fails when only this one changes"
NOTHING_LIKE_IT = "the search has nothing of the same form to put in its place"
MOST_TOLD = 100
"""Characters of another failure's text in a sentence."""
MOST_NAMED = 5
"""Parts in one line of a terminal; issue.md has all of them."""
NOT_RUN = "not asked: it fails before anything is run"
OTHER_REFERENCE = "another dtype is compared with another tolerance, so a pass proves nothing"
OTHER_VALUES = "other values may still fail: a few random draws prove nothing"
"""Values are never called needed: a real bug passed with two draws and failed with most."""
KINDS = ("setting", "dim", "dtype", "values", "strides", "constant", "node")
"""The order in which parts are reported: what surprises first."""
LEFT_OUT, LEFT_OUT_BEFORE = "left out", "left out, before shapes and values were changed"
IN_PLACE = " in its place"
NEEDED, REPLACEABLE, UNKNOWN = "needed", "replaceable", "unknown"


@dataclass(frozen=True)
class Probe:
    """One question about a part of a case. `soon`: "0" and "1" are asked in this order, "2" is reported where known,
    "-" cannot be asked."""

    soon: str
    edit: str
    what: str
    name: str
    value: str
    tried: str

    @property
    def part(self) -> tuple[str, str, str]:
        """The part that is asked about: what, name and value."""
        return self.what, self.name, self.value


@dataclass
class Needs:
    """The questions about one case. `base` is the case before its nodes were renamed, `names` what they are called
    now."""

    base: Candidate
    probes: list[Probe] = field(default_factory=list[Probe])
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: str = ""
    """Why some questions were not asked."""
    kind: str = ""
    stage: str = ""

    def candidate(self, probe: Probe) -> Candidate:
        """The case with one part changed."""
        return replace(self.base, edits=(*self.base.edits, probe.edit))

    def less(self, engine: Engine) -> Candidate | None:
        """The smallest case without one node that failed the same way, after shapes or values were changed; None where
        there is none smaller."""
        cuts = [self.candidate(probe) for probe in self.probes if probe.what == "node" and probe.tried == LEFT_OUT]
        known = [(answer.size, case) for case in cuts if (answer := engine.answer(case)) and answer.verdict.accepted]
        size, case = min(known, key=lambda row: row[0], default=(None, None))
        before = engine.answer(engine.case)
        return case if size is not None and before is not None and size < before.size else None

    def changed(self, edit: str) -> str:
        """The edit of a probe in words; empty for an edit of no probe."""
        probe = next((probe for probe in self.probes if probe.edit == edit), None)
        if probe is None:
            return ""
        name = probe.name.format_map(_PresentNames(self.names))
        if probe.what == "node" and probe.tried.endswith(IN_PLACE):
            return f"with {probe.tried.removesuffix(IN_PLACE)} in place of {name}"
        return f"without {name}" if probe.what == "node" else f"with {name} = {probe.tried} in place of {probe.value}"

    def ask(self, engine: Engine, most: int = MOST) -> None:
        """Asks the probes that have no answer yet, the most telling first, within `most` queries and the budget. Raises
        what the user's orders raise."""
        most = min(most, MOST_SLOW.get(self.kind, most), MOST_FLAKY if engine.repeats > 1 else most)
        try:
            for soon in ("0", "1"):
                wanted = self._wanted(engine, soon)
                if len(wanted) > most:
                    self.left_out = f"not asked: more than {counted(len(wanted), 'question')}, {most} were left"
                engine.inspect(wanted[:most])
                most -= len(wanted[:most])
        except SearchStopped as stop:
            self.left_out = f"not asked: {stop}"
            if type(stop) is not SearchStopped:
                raise

    def _wanted(self, engine: Engine, soon: str) -> list[Candidate]:
        """The candidates to ask now, without those about a part that is known to be replaceable."""
        replaceable = {probe.part for probe in self.probes if probe.edit and engine.fails(self.candidate(probe))}
        probes = [probe for probe in self.probes if probe.soon == soon and not self._pointless(probe)]
        wanted = [self.candidate(probe) for probe in probes if not _within(probe.part, replaceable)]
        return [candidate for candidate in dict.fromkeys(wanted) if not engine.known(candidate)]

    def _pointless(self, probe: Probe) -> bool:
        """Whether a probe changes values although the failure is at compile time, which sees no values."""
        return probe.what == "values" and self.stage == "compile"

    def rows(self, engine: Engine, parts: Sequence[tuple[AtomNeed, Sequence[str]]] = ()) -> list[dict[str, Any]]:
        """A row for each part: what, name, value, verdict, tried (value, verdict, signature), signature, why.

        `parts`: the nodes of the case's atoms by name, with what is known of their cuts.
        """
        groups: dict[tuple[str, str, str], list[Probe]] = {}
        for probe in self.probes:
            groups.setdefault(probe.part, []).append(probe)
        asked = {probe.part for probe in self.probes if probe.edit and engine.known(self.candidate(probe))}
        every = set(groups)
        groups = {part: probes for part, probes in groups.items() if part in asked or not _within(part, every - {part})}
        cuts = {name: part for part, nodes in parts for name in nodes[:1]}
        rows = [self._row(engine, probes, cuts) for probes in groups.values()]
        rows = [row for row in rows if not _explained_by_others(row, rows)]
        order = list(NEEDS)
        return sorted(rows, key=lambda row: (order.index(row["verdict"]), KINDS.index(row["what"])))

    def _row(self, engine: Engine, probes: list[Probe], cuts: Mapping[str, AtomNeed]) -> dict[str, Any]:
        first = probes[0]
        tried: list[dict[str, Any]] = []
        for probe in probes:
            answer = engine.answer(self.candidate(probe)) if probe.edit else None
            if answer is not None and probe.tried not in [attempt["value"] for attempt in tried]:
                tried.append({"value": probe.tried, **_answered(answer)})
        if first.what == "node":
            node = first.name.strip("{}")
            part = cuts.get(node)
            asked = any(attempt["value"] == LEFT_OUT for attempt in tried)
            if part is not None and part.verdict in ("same", "pass", "other") and not asked:
                tried.append({"value": LEFT_OUT_BEFORE, "verdict": part.verdict, "signature": part.signature})
            tried += [
                {"value": f"{edit.split(' ')[1]}, as it was", "verdict": "same", "signature": ""}
                for edit in self.base.edits
                if edit.startswith(f"operators {node} to ")
            ]
        verdict, why = self._verdict(first, tried, tied=any(probe.soon == "-" for probe in probes))
        signature = next((attempt["signature"] for attempt in tried if attempt["signature"]), "")
        about = {"what": first.what, "name": first.name.format_map(_PresentNames(self.names)), "value": first.value}
        return {**about, "verdict": verdict, "tried": tried, "signature": signature, "why": why}

    def _verdict(self, probe: Probe, tried: list[dict[str, Any]], *, tied: bool) -> tuple[str, str]:
        verdicts = {attempt["verdict"] for attempt in tried}
        if Ruling.SAME.value in verdicts:
            return REPLACEABLE, ""
        if Ruling.PASS.value in verdicts:
            inexact = probe.value.startswith(("float", "bfloat", "complex"))
            if probe.what == "dtype" and inexact and self.kind in ("accuracy", "nan"):
                return UNKNOWN, OTHER_REFERENCE
            return (UNKNOWN, OTHER_VALUES) if probe.what == "values" else (NEEDED, "")
        if tried:
            return UNKNOWN, "nothing in its place could be compared"
        if tied:
            return UNKNOWN, NOTHING_LIKE_IT if probe.what == "node" else TIED
        return UNKNOWN, NOT_RUN if self._pointless(probe) else self.left_out or "not asked"


def _within(part: tuple[str, str, str], others: set[tuple[str, str, str]]) -> bool:
    """Whether another part has the same kind and value, and names all that this part names (a part may name several
    dimensions)."""
    what, name, value = part
    return any(
        (what, value) == (other[0], other[2]) and set(name.split(", ")) <= set(other[1].split(", ")) for other in others
    )


def _explained_by_others(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a row about several dimensions adds nothing: rows about fewer of them cover all, and one of these has the
    same verdict."""
    names = set(row["name"].split(", "))
    fewer = [other for other in rows if (other["what"], other["value"]) == ("dim", row["value"])]
    fewer = [other for other in fewer if set(other["name"].split(", ")) < names]
    explained = {name for other in fewer for name in other["name"].split(", ")}
    return row["what"] == "dim" and explained == names and any(other["verdict"] == row["verdict"] for other in fewer)


class _PresentNames(dict[str, str]):
    """Old name of a node -> its present name; a name without an entry stands for itself."""

    def __missing__(self, key: str) -> str:
        return key


def _answered(answer: Answer) -> dict[str, Any]:
    return {"verdict": answer.verdict.value, "signature": answer.signature if answer.verdict is Ruling.OTHER else ""}


def of_rows(rows: Sequence[Sequence[str]], case: Candidate) -> Needs:
    """What `passes.probes` proposed for `base_of(case)`, as questions."""
    base = base_of(case)
    if not rows:
        return Needs(base)
    (_, *names), *rest = rows
    renamed = dict(zip(names[::2], names[1::2], strict=True)) if base != case else {}
    return Needs(base, [Probe(*row) for row in rest], renamed)


def base_of(case: Candidate) -> Candidate:
    """The case without edits that change names alone (`NEUTRAL`): the passes were asked about that one, and their
    answers hold for both."""
    return replace(case, edits=tuple(edit for edit in case.edits if edit.partition(" ")[0] not in NEUTRAL))


def unneeded(edits: Sequence[str]) -> list[str]:
    """What the original had and the case has not, by the edits that were kept."""
    lost = [lost_by(edit) for edit in edits]
    settings = [edit.split(" ") for edit in edits if edit.startswith("switches config")]
    lost += ["all non-default settings" if len(words) == 2 else f"{words[2]}.{words[3]}" for words in settings]
    lost += [edit.split(" ")[1] for edit in edits if edit.startswith("dtypes ")]
    return [text for text in dict.fromkeys(lost) if text]


def facts(row: Mapping[str, Any]) -> str:
    """What was tried in the place of a part, in words: "9, 16: fails the same way; 4: passes"."""
    values_of: dict[str, list[str]] = {}
    for attempt in row["tried"]:
        failure = f" ({flat(attempt['signature'], MOST_TOLD)})" if attempt["signature"] else ""
        values_of.setdefault(query_words(attempt["verdict"]).does + failure, []).append(str(attempt["value"]))
    said = "; ".join(f"{', '.join(values)}: {text}" for text, values in values_of.items())
    return "; ".join(part for part in (said, row.get("why", "")) if part)


def part_words(row: Mapping[str, Any]) -> str:
    """A part by name: "x.shape[0] = 8"."""
    return f"{row['name']} ({row['value']})" if row["what"] == "node" else f"{row['name']} = {row['value']}"


def sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """At most three lines for a terminal: what is needed, what is not, what is unknown."""
    lines: list[str] = []
    for verdict, (head, _) in NEEDS.items():
        alike = [row for row in rows if row["verdict"] == verdict]
        texts = [f"{part_words(row)} [{facts(row)}]" for row in alike if row["tried"] or verdict != UNKNOWN]
        untried: dict[str, list[str]] = {}
        for row in alike if verdict == UNKNOWN else ():
            if not row["tried"]:
                untried.setdefault(row["why"] or "nothing was asked", []).append(part_words(row))
        texts += [f"{', '.join(parts)} [{why}]" for why, parts in untried.items()]
        texts[MOST_NAMED:] = [f"and {more} more"] if (more := len(texts) - MOST_NAMED) > 0 else []
        lines += [f"{head}: {'; '.join(texts)}"] if texts else []
    return lines


MOST_EXPLAINED = 6
"""Most atoms of a case whose single cuts are all asked; of a larger case, what the search happened to ask is
reported."""
SAMPLES = 4
"""Cuts of a larger case that are tried."""
TELLING = (
    "probes size",
    "dims",
    "probes constant",
    "symbols",
    "probes operator",
    "operators",
    "probes transposed",
    "strides",
    "dtypes",
    "values",
    "probes fill",
    "probes cut",
    "switches",
)
"""Changes that may end a failure, from the one that tells most about it (a size one larger) to the one that tells least
(a setting at its default)."""
NEAR = 3
"""Most changes between a passing case and the failing one for it to say something about the failure."""


@dataclass(frozen=True)
class AtomNeed:
    """One atom of a finished case, and what happened without it: a verdict, and the other failure's text where there
    was one."""

    atom: int
    verdict: str
    signature: str = ""


@dataclass(frozen=True)
class Neighbour:
    """A passing case and its difference to the failing one. `plain`: to the failing case as it was before its edits."""

    candidate: Candidate
    dropped: tuple[int, ...] = ()
    edits: tuple[str, ...] = ()
    plain: bool = False


def without(case: Candidate, atom: int) -> Candidate | None:
    """The case less one atom; None where nothing is left of it."""
    keep = case.keep - {atom}
    returned = None if case.returned is None else (case.returned - {atom}) or None
    return replace(case, keep=keep, returned=returned) if keep else None


def certify(engine: Engine, state: Candidate) -> Candidate:
    """Asks each single cut of a small case that was not asked yet; goes on with one that fails after all.

    Cuts that are implied by what passed are asked too: were one of those passes an accident, it shows here.
    """
    return _certified(engine, engine.best or state)


def _certified(engine: Engine, state: Candidate) -> Candidate:
    if len(state.keep) > MOST_EXPLAINED:
        return _sampled(engine, state)
    position = 0
    while position < len(state.keep):
        smaller = without(state, sorted(state.keep)[position])
        if smaller is not None and engine.ask(smaller, afresh=True):
            state, position = smaller, 0
        else:
            position += 1
    return state


def _sampled(engine: Engine, state: Candidate) -> Candidate:
    """Asks only a few cuts of a larger case: where passes were accidents, most of its atoms are not needed, and a few
    cuts show it."""
    atoms = sorted(state.keep)
    for place in range(SAMPLES):
        smaller = without(state, atoms[place * (len(atoms) - 1) // (SAMPLES - 1)])
        if smaller is not None and engine.ask(smaller, afresh=True):
            return _certified(engine, smaller)
    return state


def parts(engine: Engine, case: Candidate) -> list[AtomNeed]:
    """What is known of each atom: the answer to the case without it, or to the same atoms without edits."""
    needs: list[AtomNeed] = []
    for atom in sorted(case.keep):
        if (smaller := without(case, atom)) is None:
            needs.append(AtomNeed(atom, "all"))
        elif answer := engine.answer(smaller) or engine.answer(replace(smaller, edits=(), returned=None)):
            needs.append(AtomNeed(atom, **_answered(answer)))
        else:
            needs.append(AtomNeed(atom, "unknown"))
    return needs


def neighbour(engine: Engine, case: Candidate) -> Neighbour | None:
    """The passing case with the fewest changes to `case`, at most NEAR: the most telling (TELLING), then what was asked
    last.

    Where there is none, the one nearest to the same atoms before their shapes, values and outputs were changed.
    """
    plain = replace(case, edits=(), returned=None)
    return _nearest(engine, case) or (_nearest(engine, plain, plain=True) if engine.fails(plain) else None)


def _nearest(engine: Engine, case: Candidate, *, plain: bool = False) -> Neighbour | None:
    best: tuple[tuple[int, int, int], Neighbour] | None = None
    for number, (candidate, answer) in enumerate(engine.answered()):
        if answer.verdict is not Ruling.PASS or candidate.bypass != case.bypass:
            continue
        changed = tuple(sorted(candidate.keep ^ case.keep))
        edits = (*_beyond(candidate.edits, case.edits), *_beyond(case.edits, candidate.edits))
        distance = len(changed) + len(edits)
        probe = any(edit.startswith("probes ") for edit in edits)  # of those the most telling was asked first
        place = max((_place(edit) for edit in edits), default=TELLING.index("probes cut"))
        order = distance, place, number if probe else -number
        if 0 < distance <= NEAR and (best is None or order < best[0]):
            best = order, Neighbour(candidate, changed, edits, plain)
    return best and best[1]


def _place(edit: str) -> int:
    """How telling it is that a case passes with this edit."""
    places = (place for place, name in enumerate(TELLING) if f"{edit} ".startswith(f"{name} "))
    return next(places, TELLING.index("values"))


def _beyond(edits: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """The edits that are not among the others, without those that only rename (NEUTRAL)."""
    return tuple(edit for edit in edits if edit not in others and edit.partition(" ")[0] not in NEUTRAL)
