"""From a guilty subsystem to the one application in it, and from that to a work-around that a probe has shown to work.

The applications before the k-th are the same in every compile, so a binary search with the first k on can count; what
it finds is then switched off alone, by name, because later numbers shift once an earlier pass is off. Another failure
decides nothing and is stepped around. Each probe is a whole compile.

For example: `narrow(asking, ["post_grad_passes"])[0].name` gives `'remove_noop_ops'`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from ...dumps.wording import counted
from . import bisect_words as words
from .bisect_asking import BisectQuestions
from .bisect_records import Application, Culprit, Off, Subsystem, Trial, Verdict, Workaround
from .bisect_settings import Setting

T = TypeVar("T")

_STEPS_ASIDE = 6
"""How many neighbours are tried where the middle decides nothing."""


class NarrowedTo(NamedTuple):
    """The failure comes between `low` applications (gone) and `high` (same); they differ by one unless nothing
    decided."""

    low: int
    high: int


def last_needed(count: int, ask: Callable[[int], Verdict]) -> NarrowedTo:
    """With the first k of `count` applications on: from which k on it fails. Known before: gone with none, same with
    all."""
    low, high = 0, count
    while high - low > 1:
        for at in _middle_first(low, high):
            verdict = ask(at)
            if verdict != "other":
                break
        else:
            return NarrowedTo(low, high)
        low, high = (at, high) if verdict == "gone" else (low, at)
    return NarrowedTo(low, high)


def single(items: Sequence[T], ask: Callable[[Sequence[T]], Verdict], *, known: Verdict | None = None) -> T | None:
    """The first item whose change alone makes the failure go away, by halves; None where no single one does.

    `ask` changes a whole group. `known` is its answer for all of them. A group that makes another failure is searched
    inside.
    """
    verdict = known or ask(items)
    if verdict == "same" or not items:
        return None
    if len(items) == 1:
        return items[0] if verdict == "gone" else None
    middle = len(items) // 2
    found = single(items[:middle], ask)
    return found if found is not None else single(items[middle:], ask)


def _middle_first(low: int, high: int) -> list[int]:
    middle = (low + high) // 2
    inside = sorted(range(low + 1, high), key=lambda at: (abs(at - middle), at))
    return inside[: 1 + _STEPS_ASIDE]


_ROUNDS = 4
"""How many applications are looked for that must be off together."""

_KINDS = {
    "decomposition": "decomposition",
    "lowerings": "lowering",
    "pattern_matches": "pattern",
    "cudagraphs": "cudagraphs",
}
_SWITCHES = {"pattern": "pattern_matcher", "cudagraphs": "triton.cudagraphs"}
"""Kind of a finding -> the setting that does without it."""


def narrow(
    asking: BisectQuestions, subsystems: Sequence[str], whole: Verdict | None = "gone", rung: str = ""
) -> list[Culprit]:
    """The applications in some subsystems that must be off for the failure to go away; empty where nothing was decided.

    `whole`: the verdict with all of them off. After "other" they are switched off in groups instead.
    """
    free = [one for one in asking.log if one.subsystem in subsystems and not one.required]
    if whole == "other":
        hit = single(free, lambda group: _off(asking, group, rung), known=whole)
        return [] if hit is None else [_finding(asking, [hit], alone=True)]
    off: list[Application] = []
    for _ in range(_ROUNDS):
        rest = [one for one in free if one not in off]
        found = last_needed(len(rest), lambda on, rest=rest: _first(asking, subsystems, rest, on, rung))
        for one in rest[found.low : found.high]:
            if _off(asking, [*off, one], rung) == "gone":
                return [_finding(asking, [*off, one], alone=True)]
        off += [one for one in rest if one.name == rest[found.high - 1].name]
        verdict = _named(asking, off, rung)
        if verdict == "gone":
            return [_finding(asking, off, alone=True)]
        if verdict == "other" or len(off) == len(free):
            break
    return [_finding(asking, off[-1:], alone=False)] if off else []


def explained_below(finding: Culprit, matches: Sequence[Culprit]) -> None:
    """Adds to a pass which of its pattern matches it was."""
    for match in matches:
        if match.alone:
            finding.detail = words.match_text(match.applications)


def worked_around(asking: BisectQuestions, finding: Culprit) -> None:
    """Finds a setting or a line of Python that does without what was found, and verifies it by a probe with nothing
    else."""
    names = list(dict.fromkeys(one.name for one in finding.applications))
    if finding.kind == "pass":
        _without_passes(asking, finding, names)
    elif finding.kind == "lowering":
        verified = asking.probe(Trial(f"eager's kernel for {', '.join(names)}", fall_back=names)) == "gone"
        finding.workaround = Workaround(words.fallback_code(names), verified)
    elif finding.kind == "decomposition":
        verified = asking.probe(Trial(f"{', '.join(names)} not decomposed", undecomposed=names)) == "gone"
        finding.workaround = Workaround(words.undecomposed_code(names), verified)
    elif finding.kind in _SWITCHES:
        setting = Setting("inductor", _SWITCHES[finding.kind], False)
        if asking.probe(Trial(setting.text(), settings={setting.room: {setting.name: setting.value}})) == "gone":
            finding.workaround = Workaround(words.setting_code(setting), verified=True)


def own_settings(asking: BisectQuestions) -> list[Culprit]:
    """The setting of the run's own that makes the failure go away at torch's value; a pass of the user's is set by one,
    too."""
    lines = asking.own_settings()
    names = list(lines)

    def ask(group: Sequence[str]) -> Verdict:
        told = group[0] if len(group) == 1 else f"{counted(len(group), 'setting')} of the run's own"
        return asking.probe(Trial(f"{told} as torch has it", defaults=[*group]))

    whole = ask(names) if names else None
    if whole is not None:
        asking.result.rows.append(Subsystem("the run's own settings", len(names), whole))
    found = single(names, ask, known=whole) if whole is not None else None
    if found is None:
        return []
    name = found.partition(".")[2]
    off = [one for one in asking.log if one.label and one.name == name]  # only a pass of the user's has a label
    if off:
        made = _finding(asking, off, alone=True)
        made.workaround = Workaround(f"torch._inductor.config.{name} = None", verified=True)
        return [made]
    made = Culprit("own_setting", "settings", found, words.own_setting_text(found), alone=True)
    if "<" not in lines[found]:  # a value that Python can read
        made.workaround = Workaround(lines[found], verified=True)
    return [made]


def setting_finding(asking: BisectQuestions, *, generated_code: bool) -> list[Culprit]:
    """The first setting that alone makes the failure go away: all at once, then by halves.

    `generated_code`: try those as well that change how kernels are written, which costs seconds for a precompiled
    header.
    """
    settings = asking.settings()
    if not generated_code:
        settings = [one for one in settings if not one.name.startswith(("cpp.", "triton."))]

    def ask(group: Sequence[Setting]) -> Verdict:
        changed: dict[str, dict[str, object]] = {}
        for one in group:
            changed.setdefault(one.room, {})[one.name] = one.value
        told = (
            group[0].text()
            if len(group) == 1
            else f"{counted(len(group), 'setting')} changed ({group[0].name} ... {group[-1].name})"
        )
        return asking.probe(Trial(told, settings=changed))

    whole = ask(settings) if settings else None
    row = Subsystem("settings", len(settings), whole, "" if settings else "all have these values already")
    asking.result.rows.append(row)
    found = single(settings, ask, known=whole) if whole is not None else None
    if found is None:
        row.reason = "several together, none alone" if whole == "gone" else row.reason
        return []
    made = Culprit("setting", "settings", found.name, words.setting_text(found), alone=True)
    made.workaround = Workaround(words.setting_code(found), verified=True)
    return [made]


def _first(
    asking: BisectQuestions, subsystems: Sequence[str], rest: Sequence[Application], on: int, rung: str
) -> Verdict:
    """Everything off but the first `on` of `rest`."""
    what = words.plural(subsystems[0]) if len(subsystems) == 1 else "passes"
    kept = [Off(name, keep=[one.key for one in rest[:on] if one.subsystem == name]) for name in subsystems]
    return asking.probe(Trial(f"first {on} of {len(rest)} {what} on", kept, rung=rung))


def _off(asking: BisectQuestions, group: Sequence[Application], rung: str) -> Verdict:
    """Only these off."""
    names = list(dict.fromkeys(one.subsystem for one in group))
    off = [Off(name, off=[one.key for one in group if one.subsystem == name]) for name in names]
    return asking.probe(Trial(f"only {words.listed(group)} off", off, rung=rung))


def _named(asking: BisectQuestions, group: Sequence[Application], rung: str) -> Verdict:
    """These off, and what has their names and comes up only when they are off."""
    names = list(dict.fromkeys((one.subsystem, one.name) for one in group))
    off = [Off(one, names=[name for of, name in names if of == one]) for one in dict.fromkeys(of for of, _ in names)]
    return asking.probe(Trial(f"every {', '.join(name for _, name in names)} off", off, rung=rung))


def _finding(asking: BisectQuestions, off: list[Application], *, alone: bool) -> Culprit:
    subsystems = list(dict.fromkeys(one.subsystem for one in off))
    kind = _KINDS.get(subsystems[0], "pass")
    name = ", ".join(dict.fromkeys(one.name for one in off))
    made = asking.applications(subsystems[0])
    return Culprit(kind, ", ".join(subsystems), name, words.finding_text(kind, off, made, alone), alone, off)


def _without_passes(asking: BisectQuestions, finding: Culprit, names: Sequence[str]) -> None:
    users = [one.name for one in finding.applications if one.label]  # only a pass of the user's has a label
    users = list(dict.fromkeys(users))
    if users and len(users) == len(names):
        settings = {"inductor": dict[str, object](dict.fromkeys(users))}
        if asking.probe(Trial(f"{', '.join(users)} = None", settings=settings)) == "gone":
            code = "\n".join(f"torch._inductor.config.{name} = None" for name in users)
            finding.workaround = Workaround(code, verified=True)
            return
    before = str(asking.saved.record.config.get("inductor", {}).get("disabled_passes") or "")
    value = ",".join([*filter(None, [before]), *names])
    verdict = asking.probe(Trial(f"disabled_passes = {value!r}", settings={"inductor": {"disabled_passes": value}}))
    also = [
        f"{one.name} of {one.subsystem}" + (f" ({one.half})" if one.half else "")
        for one in asking.log
        if one.subsystem.endswith("_passes") and one not in finding.applications and one.name.upper() in value.upper()
    ]
    code = f"torch._inductor.config.disabled_passes = {value!r}"
    finding.workaround = Workaround(code, verdict == "gone", list(dict.fromkeys(also)))
