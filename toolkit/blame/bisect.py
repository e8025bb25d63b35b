"""Names what makes a saved graph fail: a setting of the run's own, the node, or the pass, lowering, decomposition or
setting.

Each probe is a child of one fork server, whose cache folder is private: the user's own Inductor cache and bisect state
are never touched. Order: reproduce; the run's own settings; by node (`by_node`); by pass (`by_pass`). It stops at the
first conviction that a run confirms: the graph is right with only that changed.

For example:

    found = bisect(load_graph("myrun/0_0/forward"))
    found.verdict.verdict, found.sentence
    # ('fails', 'Pass `post_grad_custom_post_pass` of post_grad_passes ...')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from ...dumps.errors import GraphdbgError
from ..isolation import ForkServer, opened
from ..replaying.replay import DEFAULT_LIMIT_S, How
from ..rungs import rung as known
from ..rungs import warmth
from ..verdicts.verdict import abandoned
from . import bisect_words as words
from . import node_asking
from .bisect_asking import TASKS, BisectQuestions
from .bisect_narrowing import own_settings
from .bisect_records import Bisection, Clock, OutOfTime
from .by_node import by_node

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph


from ..live.rung import LADDER
from ..verdicts.verdict_words import PROBES
from .bisect_narrowing import explained_below, narrow, setting_finding, worked_around
from .bisect_records import Culprit, Off, Subsystem, Trial, Verdict

DECOMPOSED = "decomposed"
"""The rung that stands for torch's backend aot_eager_decomp_partition."""
PASSES = ("pre_grad_passes", "joint_graph_passes", "post_grad_passes")
_BARE = {name for name, facts in LADDER.items() if not facts.has_passes} - {DECOMPOSED}
"""Rungs of which nothing can be switched off."""


def by_pass(asking: BisectQuestions, result: Bisection) -> None:
    """Adds findings and rows to the result of a graph whose failure was reproduced. Raises OutOfTime."""
    if result.rung in _BARE:
        return
    before = _backend(asking, result)
    if before:
        result.findings += before
    else:
        _inductor(asking, result)
    for finding in result.findings:
        worked_around(asking, finding)
    if before or any(
        culprit.workaround and culprit.workaround.verified and culprit.kind != "lowering" for culprit in result.findings
    ):
        reason = "not tried: what was found explains the failure"
        result.rows += [Subsystem("fusion", 0, None, reason), Subsystem("settings", 0, None, reason)]
        return
    lowered = any(row.subsystem == "lowerings" and row.verdict in ("gone", "other") for row in result.rows)
    result.findings += _fusion(asking, result)
    result.findings += setting_finding(asking, generated_code=lowered)


def _backend(asking: BisectQuestions, result: Bisection) -> list[Culprit]:
    """The finding where the failure is there before Inductor: a decomposition, or AOTAutograd; [] otherwise."""
    verdict = asking.probe_rung(DECOMPOSED)
    result.backend = "aot_eager_decomp_partition" if verdict == "same" else "inductor"
    if verdict != "same":
        state = "is right" if verdict == "gone" else PROBES["other"][1]
        reason = asking.reason if verdict is None else f"the decomposed graph {state}"
        result.rows.append(Subsystem("decomposition", 0, None, reason))
        return []
    applied = asking.applications("decomposition")
    whole = asking.probe(Trial(f"no op decomposed ({len(applied)})", [Off("decomposition", keep=[])], rung=DECOMPOSED))
    result.rows.append(Subsystem("decomposition", len(applied), whole))
    culprits = narrow(asking, ["decomposition"], whole=whole, rung=DECOMPOSED) if whole != "same" else []
    result.rows.append(Subsystem("Inductor's passes and lowerings", 0, None, "the graph is wrong before they see it"))
    return culprits or [Culprit("aot", "aot_eager_decomp_partition", "AOTAutograd", words.AOT, alone=False)]


def _inductor(asking: BisectQuestions, result: Bisection) -> None:
    verdicts: dict[str, Verdict | None] = {
        name: _whole(asking, result, name) for name in asking.subsystems() if name != "decomposition"
    }
    gone = [name for name, verdict in verdicts.items() if verdict == "gone"]
    guilty = [name for name in PASSES if name in gone][:1] or _together(asking, result, verdicts)
    if "lowerings" in gone:
        result.findings += narrow(asking, ["lowerings"])
    if guilty:
        culprits = narrow(asking, guilty)
        if culprits and "pattern_matches" in gone:
            explained_below(culprits[0], narrow(asking, ["pattern_matches"]))
        result.findings += culprits
    rest = sorted(
        (pair for pair in verdicts.items() if pair[1] in ("gone", "other")), key=lambda pair: pair[1] == "other"
    )
    for name, verdict in rest:
        if not result.findings:
            result.findings += narrow(asking, [name], whole=verdict)


def _together(asking: BisectQuestions, result: Bisection, verdicts: dict[str, Verdict | None]) -> list[str]:
    """Switches all kinds of passes off at once, since one function may run in several; returns their names if that
    helps."""
    tried = [name for name in PASSES if verdicts.get(name) == "same"]
    if len(tried) < 2:
        return []
    verdict = asking.probe(Trial("all passes off", [Off(name, keep=[]) for name in tried]))
    result.rows.append(Subsystem(f"any of {', '.join(tried)}", 0, verdict))
    return tried if verdict == "gone" else []


def _whole(asking: BisectQuestions, result: Bisection, name: str) -> Verdict | None:
    """Switches one subsystem off as a whole, except for what must run, and adds its row either way."""
    applied = asking.applications(name)
    free = [application for application in applied if not application.required]
    if not free:
        reason = words.not_run(name, asking.saved, bool(applied))
        result.rows.append(Subsystem(name, len(applied), None, reason))
        return None
    kept = f", {len(applied) - len(free)} that must run are kept" if len(free) < len(applied) else ""
    verdict = asking.probe(Trial(f"all of {name} off ({len(free)}{kept})", [Off(name, keep=[])]))
    result.rows.append(Subsystem(name, len(applied), verdict, kept.removeprefix(", ")))
    return verdict


def _fusion(asking: BisectQuestions, result: Bisection) -> list[Culprit]:
    """Whether the failure needs fusion, by the rung that compiles each node to a kernel of its own, with no optional
    passes."""
    verdict = asking.probe_rung("inductor_nofuse")
    if verdict == "gone":
        bare = {"use_pre_grad_passes": False, "use_joint_graph_passes": False, "pattern_matcher": False}
        off = [Off(name, keep=[]) for name in PASSES]
        verdict = asking.probe(Trial("all optional passes off, fusion on", off, settings={"inductor": bare}))
        verdict = "gone" if verdict == "same" else None
        asking.reason = "" if verdict else "undecided: without optional passes it is right already"
    result.rows.append(Subsystem("fusion", 0, verdict, asking.reason))
    return [Culprit("fusion", "fusion", "fusion", words.FUSION, alone=True)] if verdict == "gone" else []


Narrate = Callable[[str], None]
By = Literal["node", "pass"]

INTERRUPTED = "interrupted"
"""`stopped` of a result after Ctrl-C."""


def bisect(
    saved: SavedGraph,
    *,
    by: By | None = None,
    rung: str = "inductor",
    seed: int = 0,
    device: str | None = None,
    limit_s: float = DEFAULT_LIMIT_S,
    check: str = "auto",
    imports: Sequence[str] = (),
    max_time_s: float | None = None,
    narrate: Narrate = lambda _: None,
    server: ForkServer | None = None,
) -> Bisection:
    """Finds who is to blame for a graph that fails under a rung, and says what that means.

    `by`: search only by node, or only by pass. `seed`, `device`, `limit_s` (of one probe), `check` and `imports` as in
    `replay`; with `check` "rounding" that is looked for as a failure is. `max_time_s`: stop after so long with what was
    found. `narrate` gets a sentence per probe. `server`: a fork server to use; everything is compiled in its cache
    folder. After Ctrl-C what was found so far is returned, `stopped` is INTERRUPTED. Raises GraphdbgError for a graph
    that cannot be loaded.
    """
    known(rung)  # a wrong name is the caller's mistake, reported before anything starts
    result = Bisection(saved.id, saved.stage, rung)
    if saved.status == "skipped":
        result.verdict = abandoned(saved.error)
        result.sentence = result.verdict.reason
        return result
    clock, how = Clock(max_time_s), How(seed, device, limit_s, imports)
    with opened(server, warmth(rung), *TASKS, node_asking.TASKS) as used:
        asking = BisectQuestions(saved, used, result, narrate, how, check, clock)

        def search_nodes() -> None:
            result.by_node = searched = by_node(saved, used, rung, how, check, clock, narrate)
            result.notes += [note for note in searched.notes if note not in result.notes]

        try:
            if by == "node":
                search_nodes()
                searched = result.by_node
                result.reproduced = searched is not None and searched.fails
            else:
                _search(asking, result, search_nodes if by is None else None)
        except OutOfTime as stop:
            result.stopped = str(stop)
        except KeyboardInterrupt:
            result.stopped = INTERRUPTED
        finally:
            result.seconds = clock.elapsed()
            asking.close()
    words.conclude(result, saved, by)
    return result


def _search(asking: BisectQuestions, result: Bisection, search_nodes: Callable[[], None] | None) -> None:
    asking.reproduce()
    if not result.reproduced:
        return
    if result.verdict.fault != "model":
        result.findings += own_settings(asking)
    if result.findings:
        return
    if search_nodes is not None:
        try:
            search_nodes()
        except GraphdbgError as error:
            result.notes.append(f"not searched by node: {error}")
    searched = result.by_node
    if result.verdict.fault != "model" and not (searched is not None and searched.convicted):
        by_pass(asking, result)
