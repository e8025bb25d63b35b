"""The minifier's public function: a graph, its inputs, and what "fails" means; the smallest case that fails the same
way.

Also: the oracle that asks a command of the user's (`--check 'cmd: ./test.sh {case}'`). Imports no torch.

With a check by name every query runs in a child of its own (`oracle`): sanity, search, other axes, verification, case
on disk. With a callable the caller's process runs it, one call after the other. Imports torch only where a live graph
is given or wanted.

"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from ..dumps import trust
from ..dumps.answers import KEPT_ELSEWHERE
from ..dumps.atomic import write_file
from ..dumps.errors import CannotStartError, GraphdbgError, OptionsExcludeError, UsageError
from ..dumps.store import load_graph
from ..dumps.wording import shown_path
from ..toolkit.isolation import ForkServer, Servers, default_memory_bytes, fork_server, heartbeat, raise_refusal
from ..toolkit.isolation import TaskResult as Reply
from ..toolkit.isolation.processes import owned
from ..toolkit.replaying import replay
from ..toolkit.replaying.checked import of_operator
from ..toolkit.replaying.replay import How, own, own_pass
from ..toolkit.rungs import known
from ..toolkit.triage.ladder import eased
from ..toolkit.verdicts.signature import VERSION as SIGNATURE_VERSION
from ..toolkit.verdicts.signature import Signature
from ..toolkit.verdicts.verdict import WHOLE, cannot_tell, judged
from .events import Ended, Follow, Happening, QueryAnswered, Started
from .executors import executor_for
from .executors.elsewhere import Elsewhere, WorkerSettings
from .log import Life
from .minified import Interrupted, Minified
from .options import MEASURES, MinifyOptions
from .oracle import PRELOAD, PREPARED, Oracle, first_limit_s
from .results import LIVE, WORK, add_to_case
from .search.problem import Answer, Candidate, CannotJudgeError, DoesNotFailError, NothingToReduceError, Ruling
from .session import SANITY, Minification
from .steering import Steering

if TYPE_CHECKING:
    from torch import fx

    from ..dumps.store import SavedGraph

TASK = f"{__package__}.tasks:run"
PASSES, FAILS, IGNORED = 0, 1, 2
CANNOT_RUN = {126: "it cannot be executed", 127: "it was not found"}
_SIGNALLED = 128


@dataclass
class CommandOracle(Oracle):
    """Judges by a command. `output`: where what it prints is kept, a file per query. `directory`: where it runs."""

    output: Path = Path("output")
    directory: str = field(default_factory=os.getcwd)
    _lock: Lock = field(default_factory=Lock)
    _sizes: dict[str, int] = field(default_factory=dict[str, int])

    def judge(
        self, candidate: Candidate | None, case: Path | None = None, **more: bool
    ) -> tuple[Answer, Signature | None]:
        """Runs the command once on a candidate; None: on the whole case, or on the case folder `case`."""
        number, folder = self._place()
        payload = self._payload(candidate) | {
            "command": self.options.command,
            "folder": str(folder),
            "directory": self.directory,
            "environment": _environment(),
            "ready": None if case is None else str(case.absolute()),
            "input_bytes": self._sizes.get(str(case), 0),
        }
        try:
            reply = self.asking.ask(TASK, payload)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if candidate is None and case is None:
            raise_refusal(reply)
        named = candidate.text() if candidate else "original" if case is None else str(case)
        write_file(self.output / f"{number:04}.txt", f"# {_end_of(reply)}: {named}\n{reply.output}".encode())
        size = (reply.event["nodes"], reply.event["input_bytes"]) if reply.event else self._size(candidate)
        answer = self._answer(reply)
        if reply.event is None and answer.verdict is not Ruling.INFRA:
            answer = Answer(Ruling.INVALID, detail=answer.detail)
        answer = replace(answer, nodes=size[0], input_bytes=size[1], seconds=reply.seconds)
        return answer, None

    def whole(self) -> Answer:
        """The command on the whole case. Raises UsageError where it cannot be run."""
        answer = super().whole()
        if answer.verdict is Ruling.INFRA and answer.detail.startswith("the command"):
            fix = f"try it yourself with sh in {self.directory}"
            raise CannotStartError(f"cannot run the check {self.options.command!r}", answer.detail, fix)
        return answer

    def refusal(self, answers: Any) -> NothingToReduceError:
        """The error for an original that the command does not call failing."""
        if answers[0].verdict is Ruling.OTHER and self.options.match is not None:
            return super().refusal(answers)
        why = answers[0].detail or answers[0].signature
        fix = "it must exit with 1 where a case fails, with 0 where it passes"
        if answers[0].verdict is not Ruling.PASS:
            return CannotJudgeError(f"{self.options.command!r} does not judge the case", why, fix, cannot_tell(why))
        return DoesNotFailError(f"the case does not fail under {self.options.command!r}", why, fix)

    def place(self) -> str:
        """Empty: a command does not say where its failure is."""
        return ""

    def find_hints(self) -> None:
        """Sets no hints: a command names no atoms."""
        self.must_be_prepared()

    def emit(self, candidate: Candidate | None, path: Path) -> Any:
        """Writes a candidate as a case folder; remembers its size, which the folder alone does not tell."""
        emitted = self.ask("emit", candidate, out=str(path))
        self._sizes[str(path)] = emitted["input_bytes"]
        return emitted["spec"]

    def _answer(self, reply: Reply) -> Answer:
        """The verdict of one run; its size is filled in later."""
        if reply.status == "lost":
            return Answer(Ruling.INFRA, detail="the fork server ended")
        if reply.status == "done":
            value: dict[str, Any] = reply.value or {}
            return Answer(Ruling.INVALID, detail=str(value.get("invalid", "")))
        if reply.status == "exception" and not _ended_itself(reply):
            return Answer(Ruling.INVALID, detail=reply.error.message if reply.error else "")
        code, tail = reply.exit_code if reply.status == "exception" else None, _last_line(reply.output)
        if code in CANNOT_RUN:
            return Answer(Ruling.INFRA, detail=f"the command ended with {code}, {CANNOT_RUN[code]}: {tail}")
        if code in (PASSES, IGNORED):
            ruling = Ruling.PASS if code == PASSES else Ruling.INVALID
            return Answer(ruling, detail=f"exit code {code}, it printed: {tail}")
        if reply.status == "timeout":
            signature = Signature("hang", "command", raw=f"the limit was {self.asking.limit_s:g} s")
        elif reply.status == "memory":
            signature = Signature("memory", "command")
        else:
            signature = Signature("command", detail=ending(code, reply.signal), raw=reply.output.strip()[-1000:])
        same = self.signature is not None and self._same(signature, self.signature)
        verdict = Ruling.SAME if same else Ruling.TIMEOUT if signature.kind == "hang" else Ruling.OTHER
        text = f"the command: {signature.detail or signature.kind}"
        record, failure = judged(signature, reason=text, detail=WHOLE).plain(), msgspec.to_builtins(signature)
        return Answer(verdict, text, detail=_last_line(reply.output), failure=failure, record=record)

    def _place(self) -> tuple[int, Path]:
        """The number of a query, and a fresh folder for its case."""
        with self._lock:
            self.output.mkdir(parents=True, exist_ok=True)
            number = next(number for number in count(1) if not (self.output / f"{number:04}.txt").exists())
            (self.output / f"{number:04}.txt").touch()
        folder = self.work.parent / "commands" / f"{number:04}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return number, folder.absolute()


def ending(code: int | None, name: str = "") -> str:
    """How a command ended, in words; the same whether its shell or the command itself was killed by a signal."""
    if code is not None and code > _SIGNALLED and code - _SIGNALLED in set(signal.Signals):
        name = signal.Signals(code - _SIGNALLED).name
    return f"signal {name}" if name else f"exit code {code}"


def _end_of(reply: Reply) -> str:
    ended = ending(reply.exit_code, reply.signal) if reply.status in ("exception", "signal") else reply.status
    return f"{ended} after {reply.seconds:.1f} s"


def _ended_itself(reply: Reply) -> bool:
    return reply.error is not None and reply.error.type == "ProcessExit" and reply.stage == "command"


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1][:300] if lines else "nothing"


def _environment() -> dict[str, str]:
    """The user's environment without variables that have no JSON form, and with KEPT_ELSEWHERE: what graphdbg finds of
    a candidate is not worth keeping."""
    printable = {name: value for name, value in os.environ.items() if (name + value).isprintable() or value.isascii()}
    return printable | {KEPT_ELSEWHERE: "1"}


def minify(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    check: str | Callable[[fx.GraphModule, Sequence[Any]], Any] = "auto",
    rung: str = "inductor",
    jobs: int = 1,
    seed: int = 0,
    max_time: float | None = None,
    max_queries: int | None = None,
    match: str | None = None,
    imports: Sequence[str] = (),
    hangs: float | None = None,
    slower_than: float | None = None,
    memory_over: int | None = None,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    out: str | Path | None = None,
    executor: Executor | str = "local",
    on_event: Callable[[QueryAnswered], None] = lambda event: None,
) -> Minified:
    """Reduces a failing graph and its inputs to the smallest case that fails the same way; returns a Minified.

    `gm` takes `inputs` one by one. `check`: one of options.CHECKS or "cmd: COMMAND {case}", judged in isolation under
    `rung`, or a predicate `(module, inputs) -> fails` that is called in this process and whose exceptions propagate (it
    too is asked about other sizes, dtypes and the like, which the drop-in `graphdbg.minifier.minifier` leaves alone).
    `match`: a regular expression that the failure's text must match, in place of the signature. `imports`: modules with
    custom ops. `max_time` in seconds. `hangs`, `slower_than` (seconds) and `memory_over` (bytes) say what counts as
    failing in place of `check`; `time_limit` and `memory_limit` are what a query may take (see the flags of `graphdbg
    minify`). `executor`: where queries run, `jobs` at a time: "local", "ray", or any concurrent.futures.Executor, each
    of whose worker processes then keeps a warm fork server of its own; it stays the caller's, and which one it is never
    changes the result. `out`: a folder for the case and the log; must not exist. Raises UsageError where the
    original does not fail, Interrupted (with the best so far) on Ctrl-C.

    >>> result = minify(gm, inputs, check=lambda gm, inputs: "erf" in gm.code)
    >>> [node.name for node in result.module.graph.nodes if node.op == "call_function"]
    ['erf']
    """

    def tell(event: Happening) -> None:
        if isinstance(event, QueryAnswered):
            on_event(event)

    if callable(check):
        if executor != "local":
            what = "executor and a function as check cannot be used together"
            raise OptionsExcludeError(
                what, "the function runs in this process", "leave executor out, or give the name of a check"
            )
        from .dropin import minify_here

        return minify_here(gm, list(inputs), check, max_time=max_time, max_queries=max_queries, tell=tell)
    from ..dumps.live import save_graph

    options = MinifyOptions(
        check,
        rung,
        seed,
        match,
        tuple(imports),
        hangs,
        slower_than,
        memory_over,
        time_limit,
        memory_limit,
        jobs=jobs,
        max_time=max_time,
        max_queries=max_queries,
        executor=executor if isinstance(executor, str) else "local",
    ).checked()
    with owned("graphdbg-minify-") as folder:
        saved = load_graph(_with_settings(save_graph(gm, list(inputs), folder / "original")))
        trust.vouch(saved.path)
        try:
            result = minify_saved(
                saved,
                out=folder / "out" if out is None else Path(out),
                options=options,
                tell=tell,
                executor=None if isinstance(executor, str) else executor,
            )
        except Interrupted as interrupted:
            _keep(interrupted.minified, out is None)
            raise
        return _keep(result, out is None)


def _keep(result: Minified, temporary: bool) -> Minified:
    """The result with its module and inputs in memory, since a temporary folder is about to go."""
    result.live = (result.module, result.inputs)
    if temporary:  # no path of it is reported
        result.path = result.passing = None
        result.also = [replace(other, path=None, command="") for other in result.also]
    return result


def _with_settings(path: Path) -> Path:
    """Writes the compiler settings of this thread into the case, whose child processes do not inherit them; returns its
    path."""
    from ..dumps.graph_folder import GRAPH_FILE, encode
    from ..toolkit.live.torch_state import encoded_settings

    record = load_graph(path).record
    now = encoded_settings()
    record.config = {room: {**now.get(room, {}), **record.config.get(room, {})} for room in {*now, *record.config}}
    write_file(path / GRAPH_FILE, encode(record))
    return path


EASING_S = 20.0
"""Seconds that looking for a work-around may take."""
COMMAND_TASKS = TASK.partition(":")[0]
OUTPUT = "output"
"""In OUT: what a command of the user's printed, a file per query."""
VALUES = "values"
"""In the work folder: what candidates are built from."""


def minify_saved(
    saved: SavedGraph,
    *,
    out: Path,
    options: MinifyOptions | None = None,
    resume: bool = False,
    named: str = "",
    directory: str = "",
    narrate: Callable[[str], None] = lambda text: None,
    tell: Follow = lambda event: None,
    life: Life | None = None,
    executor: Executor | None = None,
) -> Minified:
    """Reduces a saved graph; `out` receives case/ and events.jsonl. Raises as `minify` does.

    `named`: the graph as the user names it. `directory`: where a command of the user's runs; default: here. `life`:
    held by a caller who has something to do in OUT afterwards. `executor`: its workers judge, each by a fork server of
    its own (see `executors`), `options.jobs` at a time; else `options.executor` names one. What candidates are built
    from lies in OUT/.work until all is done, so that an interrupted minification needs to record it only once.
    """
    if life is None:
        more: dict[str, Any] = {"directory": directory, "narrate": narrate, "tell": tell, "executor": executor}
        with Life(out, resume=resume, complain=narrate) as own:
            return minify_saved(saved, out=out, options=options, resume=resume, named=named, life=own, **more)
    options = (options or MinifyOptions()).checked()
    known(options.rung)
    if options.slower_than is not None and options.jobs > 1:
        options = replace(options, jobs=1)
        narrate("-j is 1: what is timed runs alone (--slower-than)")
    if executor is not None and options.command is not None:
        why = "your command is on this machine"
        raise OptionsExcludeError("executor and check 'cmd: ...' cannot be used together", why, "leave executor out")
    work = out / WORK
    directory = directory or str(Path.cwd())
    path = saved.path.absolute()
    useless, log = False, life.log

    def publish(event: Happening) -> None:
        log.tell(event)
        tell(event)

    def said(text: str) -> None:
        log.say(text)
        narrate(text)

    if life.made and trust.trusted(path):
        trust.bind(out)
    try:
        with ExitStack() as stack, heartbeat.beating(said, times=False):
            about = {"graph": str(path), "options": options.to_json(), "directory": directory}
            log.begin(_header(saved, options), about, resume=resume)
            publish(Started(named or shown_path(path), str(out), options.to_json(), log.known))
            # The pool is left after the server is closed, which resolves whatever its threads still wait for.
            pool = stack.enter_context(ThreadPoolExecutor(max(options.jobs, SANITY + 1)))
            memory = options.memory_limit or default_memory_bytes(options.jobs)
            server = stack.enter_context(fork_server(threads=1, memory_bytes=memory, **_warmth(options)))
            if not (work / VALUES / PREPARED).exists():
                shutil.rmtree(work / VALUES, ignore_errors=True)
            for folder in (work / VALUES, work / LIVE):
                folder.mkdir(parents=True, exist_ok=True)
            servers: Servers = server
            if (pool_of_workers := executor or stack.enter_context(executor_for(options, saved, said))) is not None:
                settings = WorkerSettings(options.jobs, options.memory_limit, path=tuple(sys.path), **_warmth(options))
                servers = stack.enter_context(Elsewhere(server, pool_of_workers, settings))
            place, called = (path, work / VALUES, servers, options, first_limit_s(options)), named or shown_path(path)
            if options.command is None:
                oracle = Oracle(*place, named=called)
            else:
                oracle = CommandOracle(*place, named=called, output=out / OUTPUT, directory=directory)
            steering = stack.enter_context(Steering(out, log, publish, without=options.without, abort=oracle.abort))
            session = Minification(oracle, log, out, options, narrate=said, tell=publish, steering=steering)
            try:
                result = session.run(pool)
                _ease(result, saved, server, options, said)
                result.notes += oracle.asking.deaths()
            except Interrupted as interrupted:
                interrupted.minified.notes += oracle.asking.deaths()
                life.end(_ended("interrupted", interrupted.minified))
                raise
            except GraphdbgError as error:  # it does not fail, or cannot be asked: nothing to go on with
                useless = not resume and (isinstance(error, UsageError) or not session.originals)
                raise
    finally:
        if useless:  # only now, that the pool is left: its threads write into OUT
            shutil.rmtree(out)
    shutil.rmtree(work, ignore_errors=True)
    life.end(_ended("reduced", result))
    return result


def _ease(
    minified: Minified, saved: SavedGraph, server: ForkServer, options: MinifyOptions, say: Callable[[str], object]
) -> None:
    """Adds to the verdict of a small case, also in its folder, whose pass is at fault, or the cheapest change that
    makes the failure go away."""
    measured = any(getattr(options, name) is not None for name in MEASURES)
    if options.command or measured or options.rung != "inductor" or minified.path is None or minified.stopped:
        return
    how = How(options.seed, None, EASING_S, options.imports)
    case, users = load_graph(minified.path), own(saved)
    record = own_pass(case, minified.verdict, options.rung, how, server, users)
    record = of_operator(case, record, how, server)
    record = eased(case, server, how, record, 0.0, EASING_S, report=say)
    if record != minified.verdict:
        minified.verdict = record
        add_to_case(minified.path, record=record.plain())


def _ended(verdict: str, result: Minified) -> Ended:
    return Ended(verdict, result.stopped or "", str(result.path), result.nodes, result.input_bytes, result.queries)


def _warmth(options: MinifyOptions) -> dict[str, Any]:
    """What the fork server imports: less for a command, which compiles by itself, if at all."""
    if options.command is None:
        return {"preload": PRELOAD}
    return {"warm": "torch", "preload": (COMMAND_TASKS,)}


def _header(saved: SavedGraph, options: MinifyOptions) -> dict[str, Any]:
    return {"case": replay.digest(saved), **options.asked(), "torch": version("torch"), "signature": SIGNATURE_VERSION}
