"""SIGKILL at random moments of recordings and minifications: what the journal calls captured loads; resumed it ends the
same.

Most recordings are those of a fork of one warm parent (`graphdbg.record` around a small training loop), one in ten is
`graphdbg dump`; minifications are real command lines. The moment is a random time, or just after a random line of the
journal. What was done stands in SEED-dump.json and SEED-minify.json below .cache/hostile, and the next call with that
seed goes on there.

    python -m tests.hostile.kills --kills-dump 1000 --kills-minify 200 --jobs 2 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from .corpus import ROOT, importable
from .counts import Counts, go_on
from .sandbox import Told, wrong

HOME = ROOT / ".cache" / "hostile"
LIMIT_S = 600.0
"""Of a minification that is resumed, and of any other command."""
TRAINING = """
import torch

def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    step = torch.compile(model)
    other = torch.compile(lambda x: torch.where(x > 0, x.sin(), x.exp()).sum(), dynamic=True)
    for rows in (4, 4, 7):
        x = torch.randn(rows, 6)
        (step(x).square().mean() + other(x)).backward()
"""
CASE = """
import sys
import torch
import torch._inductor.config as inductor_config
from torch.fx.experimental.proxy_tensor import make_fx
from graphdbg.dumps.live import save_graph
from graphdbg.minifier.minify import _with_settings

def f(x, *weights):
    for weight in weights[:3]:
        x = torch.tanh(x @ weight) * 0.5 + x
    x = torch.relu(x)
    for weight in weights[3:]:
        x = torch.tanh(x @ weight) * 0.5 + x
    return (x,)

torch.manual_seed(0)
inputs = [torch.randn(6, 12), *(torch.randn(12, 12) / 3 for _ in range(6))]
with inductor_config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
    _with_settings(save_graph(make_fx(f)(*inputs), inputs, sys.argv[1]))
"""
CHECKS = {"command": ("--check", "cmd: ! grep -q aten.relu {case}/graph.json"), "inductor": ("--check", "auto")}
SAME = ("nodes", "input_bytes", "queries", "history", "verified", "verdicts")


def prepare(home: Path, checks: tuple[str, ...]) -> dict[str, Any]:
    """The script, the case, and what calm runs say: how long they take, how many lines they write, how they end. Each
    gets its name when it is whole, as several drivers may prepare at once."""
    home.mkdir(parents=True, exist_ok=True)
    script, case = home / "training.py", home / "case"
    _write(script, TRAINING + "\ntrain()\n")
    if not case.exists():
        with _folder(home) as place:
            subprocess.run([sys.executable, "-c", CASE, place / "case"], check=True)
            with contextlib.suppress(OSError):  # another was quicker
                (place / "case").rename(case)
    calm: dict[str, Any] = {}
    for name in checks:
        file = home / f"calm-{name}.json"
        if not file.exists():
            with _folder() as place:
                begun = time.monotonic()
                done = _asked(["minify", case, "-o", place / "out", *CHECKS[name], "--json", "--full"], place)
                ended = json.loads(done.stdout.splitlines()[-1])
                lines = (place / "out" / "events.jsonl").read_bytes().count(b"\n")
            known = {"seconds": time.monotonic() - begun, "lines": lines, "ended": {item: ended[item] for item in SAME}}
            _write(file, json.dumps(known, indent=1))
        calm[name] = json.loads(file.read_text())
    return {"script": script, "case": case, "calm": calm}


def _write(path: Path, text: str) -> None:
    with _folder(path.parent) as place:
        (place / path.name).write_text(text)
        (place / path.name).replace(path)


def warm(known: dict[str, Any]) -> None:
    """Imports what a recording needs by the names that a fork tells, looks at the machine as Inductor does, and makes
    the kernels that forks will find again: these asked a compiler, and a Python, each time. Nothing is traced or run in
    this process."""
    import torch
    from torch._inductor import codecache, compile_fx, cpu_vec_isa  # noqa: F401

    torch.set_num_threads(1)
    cpu_vec_isa.valid_vec_isa_list()
    codecache.torch_key()
    with contextlib.suppress(ImportError):
        from torch._inductor.runtime.triton_compat import triton_key

        triton_key()
    from graphdbg import record  # noqa: F401
    from graphdbg.dumps import live  # noqa: F401
    from graphdbg.toolkit.recorder import starting  # noqa: F401

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(HOME / "kernels")
    with _folder() as place:
        os.waitpid(_recording(place / "warming", place / "modules"), 0)
        for name in (place / "modules").read_text().split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        gc.freeze()
        begun = time.monotonic()
        os.waitpid(_recording(place / "run"), 0)
        known["dump_s"] = time.monotonic() - begun
        known["dump_lines"] = sum(_lines(path) for path in (place / "run").glob("*/journal.jsonl"))


def _recording(run: Path, modules: Path | None = None) -> int:
    """A fork that records the training, and may write what it imported for that."""
    known = set(sys.modules)
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setpgid(0, 0)
        import torch

        from graphdbg import record

        torch.set_num_threads(1)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        room: dict[str, Any] = {}
        exec(compile(TRAINING, "training.py", "exec"), room)
        with record(run, inputs="first"):
            room["train"]()
        if modules:
            modules.write_text(
                "\n".join(name for name in sys.modules if name not in known and not name.startswith("triton"))
            )
        code = 0
    finally:
        os._exit(code)


def of_dump(seed: int, known: dict[str, Any], number: int) -> Told:
    """One recording that is killed."""
    random = Random(f"dump {seed}:{number}")
    real = random.random() < 0.1
    with _folder() as place:
        run = place / "run"
        lines = lambda: sum(map(_lines, run.glob("*/journal.jsonl")))  # noqa: E731
        limit_s = 60 + 10 * known["dump_s"]
        moment = _moment(random, known["dump_s"] * (4 if real else 1), known["dump_lines"])
        if real:
            words = [sys.executable, "-m", "graphdbg", "dump", "-o", run, "--", known["script"]]
            process = subprocess.Popen(
                words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
            whom = functools.partial(_script, run) if random.random() < 0.5 else None
            killed = _kill(process.pid, moment, lines, functools.partial(_over, process), limit_s, whom)
            with contextlib.suppress(ProcessLookupError):
                process.wait(LIMIT_S)
                os.killpg(process.pid, signal.SIGKILL)
        else:
            child = _recording(run)
            look = os.WEXITED | os.WNOHANG | os.WNOWAIT
            killed = _kill(child, moment, lines, lambda: os.waitid(os.P_PID, child, look) is not None, limit_s)
            os.waitpid(child, 0)
        stage, result = lost(run) if run.exists() else ("nothing was written yet", [])
        if killed and run.exists():
            done = _asked(["ls", run], place) if random.random() < 0.1 else None
            result += (
                [wrong(f"ls: code {done.returncode}", text=done.stderr)]
                if done and done.returncode not in (0, 2)
                else []
            )
    stage = stage if killed else "it had ended before"
    return {"number": number, "stage": stage, "codes": {}, "wrong": result, "asked": real}


def lost(run: Path) -> tuple[str, list[Told]]:
    """How far the recording had got, and what the journals call captured that does not load."""
    claimed: set[str] = set()
    for path in run.glob("*/journal.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            event = json.loads(line)
            if event.get("graph") and event["kind"] == "captured":
                claimed.add(f"{path.parent.name} {event['graph']}")
            elif event["kind"] == "left_out":
                claimed.discard(f"{path.parent.name} {event['graph']}")
    if not (run / "run.json").exists():
        return "nothing was written yet", [wrong("lost", "run.json")] if claimed else []
    from graphdbg import open_run

    results: list[Told] = []
    there: set[str] = set()
    try:
        for graph in open_run(run).graphs():
            there.add(f"{graph.process} {graph.local_id}")
            if graph.status == "skipped" or not graph.record.graph.nodes:
                continue
            graph.table  # noqa: B018 - read
            graph.module()
            for value in graph.inputs(seed=0):
                repr(value)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is lost
        results.append(wrong("lost", f"{type(error).__name__}: {str(error).replace(str(run), '')[:200]}"))
    results += [wrong("lost", f"{item.partition(' ')[2]} is not listed") for item in sorted(claimed - there)]
    return "some graphs were captured" if claimed else "no graph was captured yet", results


def of_minify(seed: int, known: dict[str, Any], number: int) -> Told:
    """One minification that is killed once or more, and resumed."""
    random = Random(f"minify {seed}:{number}")
    name = "inductor" if "inductor" in known["calm"] and random.random() < 0.2 else "command"
    calm, result, kills, resumed = known["calm"][name], [], 0, 0
    with _folder() as place:
        out, journal = place / "out", place / "out" / "events.jsonl"
        for _ in range(random.choice((1, 1, 2, 3))):
            before, again = journal.read_bytes() if journal.exists() else b"", _begun(journal)
            if out.exists() and not again:
                break
            words = ["--resume", "-o", out] if again else [known["case"], "-o", out]
            asked = [sys.executable, "-m", "graphdbg", "minify", *map(str, words), *CHECKS[name], "--json", "--full"]
            with (place / "said").open("wb") as said:
                process = subprocess.Popen(asked, stdout=said, stderr=said, cwd=place, start_new_session=True)
            moment = _moment(random, calm["seconds"], calm["lines"])
            whom = None if random.random() < 0.3 else functools.partial(int, process.pid)
            over, lines = functools.partial(_over, process), functools.partial(_lines, journal)
            killed = _kill(process.pid, moment, lines, over, LIMIT_S, whom)
            process.wait()
            if not killed:
                break
            kills, resumed = kills + 1, resumed + again
            kept = journal.read_bytes() if journal.exists() else b""
            if not kept.startswith(before[: before.rfind(b"\n") + 1]):
                result.append(wrong("lost", "lines of the journal"))
        if not kills:
            return {"number": number, "stage": "it had ended before", "codes": {}, "wrong": result}
        begun = _begun(journal)
        if begun:
            done = _asked(["minify", "--resume", "-o", out, *CHECKS[name], "--json", "--full"], place)
            result += _differs(done, calm["ended"], journal)
        else:
            done = _asked(["minify", "--resume", "-o", out, "--json"], place)
            if done.returncode != 2 or "Traceback" in done.stderr:
                result.append(wrong(f"resume: code {done.returncode}", "with no journal", done.stderr))
    stage = f"{name}, {kills} killed, {resumed} of them in --resume" if begun else "the journal was not begun yet"
    return {"number": number, "stage": stage, "codes": {str(done.returncode): 1}, "wrong": result}


def _differs(done: subprocess.CompletedProcess[str], calm: dict[str, Any], journal: Path) -> list[Told]:
    if done.returncode != 0:
        return [wrong(f"resume: code {done.returncode}", text=done.stderr)]
    ended = json.loads(done.stdout.splitlines()[-1])
    results = [
        wrong("differs", f"{item}: {ended[item]!r:.80}, calm {calm[item]!r:.80}")
        for item in SAME
        if ended[item] != calm[item]
    ]
    asked = [(line["case"], line["run"]) for line in _objects(journal) if line.get("event") == "answer"]
    return results + ([wrong("asked twice")] if len(asked) != len(set(asked)) else [])


def _over(process: subprocess.Popen[Any]) -> bool:
    return process.poll() is not None


def _begun(journal: Path) -> bool:
    return journal.exists() and b"\n" in journal.read_bytes()


def _objects(path: Path) -> list[dict[str, Any]]:
    """Its lines without those that a kill tore."""
    from graphdbg.dumps import lines

    return list(lines.objects(path.read_bytes().splitlines()))


def _lines(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.read_bytes().count(b"\n")
    return 0


def _moment(random: Random, seconds: float, lines: int) -> tuple[str, float, float]:
    """A time, or so long after so many lines."""
    if random.random() < 0.3:
        return "time", random.random() * seconds, 0.0
    return "line", random.randrange(lines), random.random() ** 2 * 0.3


def _kill(
    pid: int,
    moment: tuple[str, float, float],
    lines: Callable[[], int],
    ended: Callable[[], bool],
    limit_s: float,
    whom: Callable[[], int | None] | None = None,
) -> bool:
    """Kills a process, or its whole group, at a moment, or after so many seconds; False where it ended before."""
    kind, what, after = moment
    begun = time.monotonic()
    while (
        (time.monotonic() - begun < what) if kind == "time" else (lines() < what and time.monotonic() - begun < limit_s)
    ):
        if ended():
            return False
        time.sleep(0.005)
    time.sleep(after)
    if ended():
        return False
    alone = whom() if whom else None
    with contextlib.suppress(ProcessLookupError):
        os.kill(alone, signal.SIGKILL) if alone else os.killpg(pid, signal.SIGKILL)
    return True


def _script(run: Path) -> int | None:
    """The process of the script that is recorded, once it has a folder."""
    for path in run.glob("*pid*"):
        with contextlib.suppress(ValueError):
            return int(path.name.rpartition("pid")[2])
    return None


def _asked(words: list[Any], place: Path) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, "-m", "graphdbg", *map(str, words)]
    return subprocess.run(asked, cwd=place, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@contextlib.contextmanager
def _folder(below: Path | None = None) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="hostile-", dir=below))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def text(counts: Counts, of: str) -> str:
    """For people."""
    lines = [f"{of}: {killed(counts)} killed in {counts.seconds:.0f} s"]
    lines += [f"  {count:>6}  {stage}" for stage, count in sorted(counts.stages.items())]
    lines += [f"WRONG {what}: {len(numbers)}, first {min(numbers)}" for what, numbers in sorted(counts.wrong.items())]
    return "\n".join([*lines, f"  {sum(map(len, counts.wrong.values())):>6}  wrong"])


def killed(counts: Counts) -> int:
    """How many tries were killed before they ended."""
    return counts.all - counts.stages["it had ended before"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills-dump", type=int, default=20, metavar="N", help="until so many recordings were killed")
    parser.add_argument("--kills-minify", type=int, default=4, metavar="N", help="until so many minifications were")
    parser.add_argument("--jobs", type=int, default=1, help="so many at the same time")
    parser.add_argument("--minutes", type=float, default=1e6, help="no try begins later")
    parser.add_argument("--counts", type=Path, default=HOME, metavar="DIR", help="where the counts lie")
    parser.add_argument("--no-inductor", action="store_true", help="minify only by a command, which compiles nothing")
    parser.add_argument("--only", metavar="dump:N|minify:N", help="this try alone")
    asked = parser.parse_args()
    importable(HOME)
    threads = ("TORCHINDUCTOR_COMPILE_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    os.environ |= dict.fromkeys(threads, "1")  # there are many of them at once, and what forks has no other thread
    until = time.monotonic() + 60 * asked.minutes
    known = prepare(HOME / "kills", ("command",) if asked.no_inductor else tuple(CHECKS))
    dumps, minifies = (Counts(f"{asked.seed}-{of}", asked.counts) for of in ("dump", "minify"))
    if asked.kills_dump > killed(dumps) or (asked.only or "").startswith("dump"):
        warm(known)
    tries = {
        "dump": functools.partial(of_dump, asked.seed, known),
        "minify": functools.partial(of_minify, asked.seed, known),
    }
    if asked.only:
        of, _, number = asked.only.partition(":")
        print(json.dumps(tries[of](int(number)), indent=1))
        return 0
    for of, counts, most in (("dump", dumps, asked.kills_dump), ("minify", minifies, asked.kills_minify)):
        left = lambda counts=counts, most=most: most - killed(counts)  # noqa: E731
        go_on(counts, tries[of], (until - time.monotonic()) / 60, left, asked.jobs)
        print(text(counts, of), flush=True)
    return bool(dumps.wrong or minifies.wrong)


if __name__ == "__main__":
    sys.exit(main())
