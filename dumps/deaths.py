"""How the processes of a run ended, and one line for each that did not end well.

Three sources are read: the journal (an `end`, or the exception that ended the process), exit.json (the exit code that
`graphdbg dump` saw from outside), and whether the process still lives. The caller reads the files; a signal is never
guessed.

>>> lines(processes(Path("myrun")))
[]
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from .index import Process
from .journal import Event
from .wording import counted, in_short, shortened, without_advice

Status = Literal["running", "ended", "failed", "killed", "died", "unknown"]
"""failed: by an exception or with an exit code; killed: by a signal; died: gone, with no record of how; unknown: on
another host."""

_MOST = 12
_SAME_MOMENT_S = 0.05


class ProcessEnding(msgspec.Struct):
    """How one process ended. `leader`: the process of the same restart with the newest event; `behind_s`: seconds
    between this process's last event and the leader's (None for the leader, and without events)."""

    process: Process
    status: Status
    code: int | None = None
    signal: str | None = None
    leader: Process | None = None
    behind_s: float | None = None

    def fixed(self) -> dict[str, Any]:
        """The process as `ls --json` prints it."""
        process, last = self.process, self.process.last
        return {
            "process": process.name,
            "rank": process.rank,
            "restart": process.record.restart,
            "pid": process.record.pid,
            "host": process.record.host,
            "status": self.status,
            "exit_code": self.code,
            "signal": self.signal,
            "error": process.uncaught,
            "graphs": len(process.states),
            "last": None if last is None else {"graph": last.graph, "event": last.kind, "time": last.time},
            "seconds_behind": self.behind_s,
        }


def endings(processes: Sequence[Process]) -> list[ProcessEnding]:
    """Returns one Ending per process, in the given order. `leader` is searched among the processes of the same restart
    of the job."""
    leaders: dict[int, Process] = {}
    for process in processes:
        leader = leaders.get(process.record.restart)
        if process.last is not None and (leader is None or _moment(leader.last) < process.last.time):
            leaders[process.record.restart] = process
    return [_ending(process, leaders.get(process.record.restart)) for process in processes]


def lines(processes: Sequence[Process]) -> list[str]:
    """A line for each process that did not end well, by time of end, and one line for all processes on other hosts,
    whose state is unknown here."""
    bad = [ending for ending in endings(processes) if ending.status in ("failed", "killed", "died")]
    bad.sort(key=lambda ending: ending.process.exit.time if ending.process.exit else _moment(ending.process.last))
    hosts = {process.record.host for process in processes}
    sentences = [sentence(ending, processes, with_host=len(hosts) > 1) for ending in bad[:_MOST]]
    if len(bad) > _MOST:
        sentences.append(f"and {counted(len(bad) - _MOST, 'more process')} that did not end well; ls --json lists them")
    unknown = [process for process in processes if process.liveness == "unknown"]
    if unknown:
        where = ", ".join(sorted({process.record.host for process in unknown})[:4])
        many = (
            f"{_name(unknown[0])} has" if len(unknown) == 1 else counted(len(unknown), "process has", "processes have")
        )
        sentences.append(f"{many} no end in the journal so far; only their host knows whether they still run ({where})")
    return sentences


def signal_name(number: int) -> str:
    """The name of a signal: SIGKILL for 9; "signal 99" for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ended_badly(processes: Sequence[Process]) -> bool:
    """Whether a process did not end well: by an exception, an exit code or a signal, or without a recorded end."""
    return any(ending.status in ("failed", "killed", "died") for ending in endings(processes))


def _ending(process: Process, leader: Process | None) -> ProcessEnding:
    code, name = None, None
    if process.exit is not None:
        code, name = (process.exit.code, None) if process.exit.code >= 0 else (None, signal_name(-process.exit.code))
    if name is not None:
        status: Status = "killed"
    elif code or process.uncaught is not None:
        status = "failed"
    elif process.liveness == "ended" or code == 0:
        status = "ended"
    else:
        status = {"alive": "running", "dead": "died"}.get(process.liveness, "unknown")  # type: ignore[assignment]
    behind = None
    if leader is not None and leader is not process and process.last is not None:
        behind = round(_moment(leader.last) - process.last.time, 3)
    return ProcessEnding(process, status, code, name, leader, behind)


def _moment(event: Event | None) -> float:
    return event.time if event is not None else 0.0


def sentence(ending: ProcessEnding, processes: Sequence[Process], *, with_host: bool = False) -> str:
    """One line about a process that did not end well."""
    process = ending.process
    facts = [f"pid {process.record.pid}"] if process.rank is not None else []
    facts += [f"on {process.record.host}"] if with_host else []
    who = _name(process, processes) + (f" ({' '.join(facts)})" if facts else "")
    if ending.signal is not None:
        hint = " (by kill -9, or by the kernel for lack of memory)" if ending.signal == "SIGKILL" else ""
        how = f"was killed by {ending.signal}{hint}"
    elif process.uncaught is not None:
        code = f" with exit code {ending.code}" if ending.code and ending.code != 1 else ""
        how = f"ended by {shortened(in_short(without_advice(process.uncaught)), 200)}{code}"
    elif ending.code:
        how = f"ended with exit code {ending.code}"
    else:
        how = "ended, and its journal does not say how"
    return who + " " + how + _last(ending, processes)


def _last(ending: ProcessEnding, processes: Sequence[Process]) -> str:
    last = ending.process.last
    if last is None:
        return ", before its first graph"
    text = f", last event {last.graph} {last.kind}"
    if ending.leader is not None and ending.behind_s is not None and ending.behind_s > _SAME_MOMENT_S:
        text += f", {ending.behind_s:.1f} s before that of {_name(ending.leader, processes)}"
    return text


def _name(process: Process, processes: Sequence[Process] = ()) -> str:
    if process.rank is None:
        return f"process {process.name.removeprefix('pid')}"
    again = Counter(other.rank for other in processes)[process.rank] > 1
    return f"rank {process.rank}" + (f", restart {process.record.restart}" if again else "")
