"""Asks children for the values of a graph's nodes and passes their rows on as they come. Imports no torch.

eager: one child, every value beside float64. Another rung: the graph is judged once as it is, then compiled with its
values as extra outputs, at most BATCH_BYTES of them in one program. A child reports rows as it has them, so that those
from before a segfault, a hang or a kill are there.

For example:

    [event["event"] for event in node_values(saved, "eager")]  # -> ['start', 'stage', 'stage', 'value', ..., 'end']
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...dumps import temporary
from ..isolation import Answer, ForkServer, ask, opened
from ..replaying.after_failure import saw_nan
from ..replaying.replay import DEFAULT_LIMIT_S, How, replay
from ..rungs import WHOLE, warmth
from ..verdicts.ladder_words import address
from ..verdicts.own_passes import passes
from ..verdicts.signature import Signature, from_answer
from ..verdicts.verdict import Verdict, skipped
from ..verdicts.verdict_words import RELATIONS, headline, text
from .words import NO_PROGRAM, THE_MODELS, Relation, finding, first_bad_of_eager, first_bad_of_rung, largest, relation

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

TASK = f"{__package__}.child:task"
BATCH_BYTES = 2 << 30
PARTITIONED = ("joint", "joint_passed")

Event = dict[str, Any]


def node_values(
    saved: SavedGraph,
    rung: str = "inductor",
    seed: int = 0,
    device: str | None = None,
    *,
    limit_s: float = DEFAULT_LIMIT_S,
    imports: Sequence[str] = (),
    server: ForkServer | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[Event]:
    """The events of one reading, "start" first and "end" last; see docs/json-lines.md.

    `limit_s` bounds each child. Raises UsageError for a rung of another name, and GraphdbgError for a graph that cannot
    be loaded or where the fork server itself ended.
    """
    from ..rungs import rung as known

    known(rung)
    with ExitStack() as stack:
        used = stack.enter_context(opened(server, warmth(rung), TASK))
        work = stack.enter_context(temporary.folder("graphdbg-values-"))
        yield from _Reading(saved, used, work, rung, How(seed, device, limit_s, imports), batch_bytes).events()


def partitioned(saved: SavedGraph, rung: str) -> str:
    """Why no program of this rung could return the values of a graph as it is; "" where one could."""
    if saved.stage in PARTITIONED and rung not in WHOLE and "num_fwd_outputs" in saved.record.compile_kwargs:
        family = f"{saved.id.rpartition('/')[0]}/forward and /backward"
        return f"a joint graph is split in two before it is compiled: look at {family}"
    return ""


class _Reading:
    """One graph under one rung, and what is known of it so far."""

    def __init__(
        self, saved: SavedGraph, server: ForkServer, work: Path, rung: str, how: How, batch_bytes: int
    ) -> None:
        self.saved, self.server, self.work, self.rung = saved, server, work, rung
        self.how, self.batch_bytes = how, batch_bytes
        self.rows: list[Event] = []
        self.wrong: list[dict[str, Any]] = []
        self.relations: list[Relation] = []
        self.plain: Signature | None = None
        self.refused: Verdict | None = None
        """Why the rung cannot run the graph."""
        self.end: Event = {
            "event": "end",
            "rung": rung,
            "rows": 0,
            "stopped": "",
            "no_reference": "",
            "outputs": 0,
            "notes": [],
        }

    def events(self) -> Iterator[Event]:
        """All events of the reading."""
        began = time.monotonic()
        table = self.saved.table
        inputs = {place for place, text in enumerate(table.strings) if text in ("placeholder", "get_attr", "output")}
        sizes = {
            name: 0 if op in inputs else size or 0
            for name, op, size in zip(table.name, table.op, table.size_bytes, strict=True)
        }
        yield {
            "event": "start",
            "graph": address(self.saved),
            "rung": self.rung,
            "nodes": len(sizes),
            "seed": self.how.seed,
            "device": self.how.device,
        }
        shared = self.server.scratch_file(".pt")
        try:
            if self.rung == "eager":
                yield from self._child(None, sum(sizes.values()), shared)
            else:
                yield from self._compiled(sizes, shared)
        finally:
            shared.unlink(missing_ok=True)
        self._conclude(time.monotonic() - began)
        yield self.end

    def _compiled(self, sizes: dict[str, int], shared: Path) -> Iterator[Event]:
        if why := partitioned(self.saved, self.rung):
            self.refused = skipped(why)
            self.end["stopped"] = text(self.refused)
            return
        yield {"event": "stage", "stage": "as it is"}
        outcome = replay(self.saved, self.rung, **self.how._asdict(), outputs=False, server=self.server, shared=shared)
        self.plain = outcome.signature
        yield {
            "event": "plain",
            "text": headline(outcome.verdict),
            "seconds": outcome.seconds,
            "ok": outcome.ok,
            "signature": msgspec.to_builtins(outcome.signature),
            **outcome.verdict.flat(),
        }
        if outcome.verdict.skipped:
            self.refused, self.end["stopped"] = outcome.verdict, outcome.text
        elif outcome.signature is not None and outcome.signature.kind in NO_PROGRAM:
            self.end["stopped"] = f"{outcome.signature.text()}: there is no program whose values could be read"
        else:
            batches = _batches(sizes, self.batch_bytes)
            for number, names in enumerate(batches, 1):
                yield {"event": "batch", "number": number, "of": len(batches), "nodes": len(names)}
                everything = None if len(batches) == 1 else names
                yield from self._child(everything, sum(sizes[name] for name in names), shared)

    def _child(self, names: list[str] | None, size: int, shared: Path) -> Iterator[Event]:
        payload = {
            **self.how.payload(self.saved),
            "rung": self.rung,
            "names": names,
            "bytes": size,
            "work": str(self.work),
            "shared": str(shared),
        }
        asked = ask(TASK, payload, self.how.limit_s, server=self.server)
        for event in asked:
            if event["event"] == "value":
                self.rows.append(event)
            yield event
        self._take(asked.end())

    def _take(self, answer: Answer) -> None:
        end = self.end
        signature = from_answer(answer)
        if answer.status != "done":
            assert signature is not None
            end["stopped"] = f"the process that read the values ended: {signature.text()}"
            return
        value: dict[str, Any] = answer.value
        if "refused" in value:
            end["stopped"] = value["refused"]
            return
        end["no_reference"] = value.get("no_reference", "") or end["no_reference"]
        end["notes"] += [note for note in value["notes"] if note not in end["notes"]]
        if self.rung == "eager":
            return
        if not value["outputs"]:
            return  # nothing of this part of the graph can be returned
        how = relation(self.plain, signature)
        self.relations.append(how)
        end["outputs"] = max(end["outputs"], value["outputs"])
        if signature is not None and signature.kind in NO_PROGRAM:
            end["stopped"] = f"with the extra outputs: {signature.text()}"
        if how not in ("gone", "unknown"):
            self.wrong += value.get("wrong") or []

    def _conclude(self, seconds: float) -> None:
        end = self.end
        end |= {"rows": len(self.rows), "seconds": seconds, "relation": None}
        if self.rung == "eager":
            end["first_bad"] = first_bad_of_eager(self.rows)
        else:
            known = [how for how in RELATIONS if how in self.relations]
            end["relation"] = known[0] if known else None
            end["first_bad"] = first_bad_of_rung(self.rows, self.wrong)
        end["wrong"] = [row["name"] for row in self.wrong]
        end["largest"] = largest(self.rows)
        bad = end["first_bad"]
        if bad is not None and bad["text"].endswith(THE_MODELS) and (users := passes(self.saved)):
            left = f"it is in the graph that the run's own pass {' and '.join(user.text for user in users)} left"
            bad["text"] = bad["text"].replace(THE_MODELS, left)
        own = bad is not None and bad["kind"] == "nan" and "on_right_inputs" not in bad and not saw_nan(self.saved)
        died = bool(end["stopped"]) and self.refused is None
        end["failed"] = self.plain is not None or died or (bad is not None and not own)
        end["next"] = self._next()
        end["sentence"] = finding(end)

    def _next(self) -> list[str]:
        """The command to go on with: bisect by node, where there is a failure that values alone do not explain."""
        if self.rung == "eager" or self.plain is None or self.plain.undecided or self.plain.stage == "eager":
            return []
        command = f"graphdbg bisect {address(self.saved)} --by node" + (
            "" if self.rung == "inductor" else f" --rung {self.rung}"
        )
        return [command]


def _batches(sizes: dict[str, int], most: int) -> list[list[str]]:
    """The nodes in graph order, so many at a time that their values have at most `most` bytes; a larger value stands
    alone."""
    batches: list[list[str]] = [[]]
    held = 0
    for name, size in sizes.items():
        if batches[-1] and held + size > most:
            batches.append([])
            held = 0
        batches[-1].append(name)
        held += size
    return batches
