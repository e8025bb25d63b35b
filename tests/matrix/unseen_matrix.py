"""Whether Dynamo sees the recorder: what it counts in a program that is not recorded, recorded, and with
--compiled-autograd.

    python -m tests.matrix.unseen_matrix --jobs 2         # every program under three backends: an hour on 2 cores;
    resumable
    python -m tests.matrix.unseen_matrix --only 'inside|cond' --backends aot_eager,inductor --anew
    python -m tests.matrix.unseen_matrix --only '^$' --write docs/unseen-matrix.md        # the page of all rows, from
    the rows

Each run is a child forked from one process, so that all begin alike, with torch's caches of graphs off: a recording
turns them off too. Compared: graph breaks by reason, graphs and calls in them, frames, compiles, recompiles; and no
code of graphdbg may have come to Dynamo. A row is appended for each program and backend. Needs torch and the checkout,
which need not be installed. Exit code: 0 all equal, 1 some differ.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ("inductor", "aot_eager", "aot_eager_decomp_partition")
WAYS = ("plain", "recorded", "with --compiled-autograd")


def counted(run: Any) -> dict[str, Any]:
    """Runs something and returns what Dynamo counted meanwhile. For a process of its own."""
    from torch._dynamo import convert_frame, utils

    error = ""
    try:
        run()
    except Exception as raised:  # noqa: BLE001 - a backend may refuse a program, with and without a recording
        error = f"{type(raised).__name__}: {str(raised).partition(chr(10))[0][:200]}"
    codes = [code for reference in convert_frame.input_codes.seen if (code := reference())]
    ours = (str(ROOT / "dumps"), str(ROOT / "toolkit"))
    breaks = {reason.partition("\n")[0]: times for reason, times in utils.counters["graph_break"].items()}
    return {
        "breaks": breaks,
        "frames": dict(utils.counters["frames"]),
        "graphs": dict(utils.counters["stats"]),
        "compiles": len(utils.compilation_time_metrics.get("_compile.compile_inner", ())),
        "recompiles": sum(map(len, utils.guard_failures.values())),
        "ours": sorted(
            {getattr(code, "co_qualname", code.co_name) for code in codes if code.co_filename.startswith(ours)}
        ),
        "error": error,
    }


def forked(function: Callable[[], Any], limit_s: int = 600) -> tuple[int, Any]:
    """A forked child that makes something: its number, and a pipe that is ready once it has."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(limit_s)
            os.close(reading)
            os.write(writing, json.dumps(function()).encode())
        except BaseException:  # noqa: BLE001 - of a child that must not go on as its parent
            os.write(writing, json.dumps({"told": traceback.format_exc()[-2000:]}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    return child, os.fdopen(reading, "rb")


def answer(child: int, pipe: Any) -> Any:
    """What a child made; `told` are its last words where it died."""
    with pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"told": f"the process died (signal {os.waitstatus_to_exitcode(status)})"}


def in_child(name: str, backend: str, way: str, folder: Path) -> dict[str, Any]:
    """What Dynamo counts of a program in a process of its own."""

    def made() -> dict[str, Any]:
        with contextlib.redirect_stderr(io.StringIO()):
            return _counted_program(name, backend, way, folder)

    return answer(*forked(made))


def _counted_program(name: str, backend: str, way: str, folder: Path) -> dict[str, Any]:
    import torch

    import graphdbg
    from tests.models.capture_programs import HOOKED, PROGRAMS

    torch.manual_seed(0)
    recording = contextlib.nullcontext()
    if way != WAYS[0]:
        recording = graphdbg.record(folder / f"{name}-{backend}-{WAYS.index(way)}", compiled_autograd=way == WAYS[2])
    with recording:
        return counted(lambda: {**PROGRAMS, **{item.name: item for item in HOOKED}}[name].run(backend))


def row_of(name: str, backend: str) -> dict[str, Any]:
    """The row of a program and a backend: what is counted without a recording, and what a recording changes, a line
    each."""
    with tempfile.TemporaryDirectory(prefix="graphdbg-unseen-") as folder:
        plain, *others = [in_child(name, backend, way, Path(folder)) for way in WAYS]
    lines = [f"{plain['told']}"] if "told" in plain else []
    for way, result in zip(WAYS[1:], others, strict=True):
        keys = [key for key in {**plain, **result} if result.get(key) != plain.get(key)]
        frames = [item.get("frames", {}).get("total", 0) for item in (result, plain)]
        if way == WAYS[2] and "frames" in keys and frames[0] < frames[1]:
            keys.remove(
                "frames"
            )  # of torch's own, around the backward of a compiled part, which is captured and not run
        lines += [f"{way}: {key} {result.get(key)}, not {plain.get(key)}" for key in keys]
        lines += [f"{way}: Dynamo saw {result['ours']}"] if result.get("ours") else []
    return {"program": name, "backend": backend, "different": lines, "plain": plain}


def prepare() -> None:
    """Imports all that the children need, and makes what is random repeatable. To be called before the first child."""
    os.environ.update(
        TORCHINDUCTOR_FX_GRAPH_CACHE="0", TORCHINDUCTOR_AUTOGRAD_CACHE="0", TORCHINDUCTOR_COMPILE_THREADS="1"
    )
    import sympy.core.random
    import torch

    if importlib.util.find_spec("graphdbg") is None:  # the checkout alone, which is the package
        folder = tempfile.mkdtemp(prefix="graphdbg-checkout-")
        (Path(folder) / "graphdbg").symlink_to(ROOT)
        sys.path.insert(0, folder)
    import graphdbg  # noqa: F401

    torch.set_num_threads(1)
    sympy.core.random.seed(0)  # the order in which sympy asks for properties, of which Dynamo sees some frames
    import torch._dynamo.convert_frame
    import torch._inductor.compile_fx

    from tests.models import capture_programs  # noqa: F401


def matrix(pairs: Sequence[tuple[str, str]], jobs: int = 1) -> Iterator[dict[str, Any]]:
    """A row for each program and backend, as they come; a line each on stderr."""
    waiting, running = list(pairs)[::-1], dict[Any, tuple[int, tuple[str, str]]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            pair = waiting.pop()
            child, pipe = forked(lambda pair=pair: row_of(*pair), 1800)
            running[pipe] = child, pair
        for pipe in connection.wait(list(running)):
            child, (name, backend) = running.pop(pipe)
            row = answer(child, pipe)
            if "told" in row:
                row = {"program": name, "backend": backend, "different": [row["told"]], "plain": row}
            print(f"{name} under {backend}: {'; '.join(row['different']) or 'equal'}", file=sys.stderr, flush=True)
            yield row


def page(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The Markdown page: what is counted, and what a recording changes."""
    import torch

    equal = sum(not row["different"] for row in rows)
    yield "# What a recording changes of what Dynamo counts"
    yield ""
    yield "Each program of the [capture matrix](capture-matrix.md) runs not recorded, recorded, and recorded with"
    yield (
        "`--compiled-autograd`, each time in a process of its own. Compared: graph breaks by reason, graphs, "
        "calls in them,"
    )
    yield (
        "frames, compiles and recompiles; no code of graphdbg may come to Dynamo. With `--compiled-autograd` "
        "there may be"
    )
    yield "fewer frames: those of torch around the backward of a compiled part, which is captured in place of them."
    yield "Made by `python -m tests.matrix.unseen_matrix --write docs/unseen-matrix.md`."
    yield ""
    yield f"{equal} of {len(rows)} are equal (torch {torch.__version__})."
    yield ""
    yield "| program | backend | breaks | graphs | frames | compiles | recompiles | recorded |"
    yield "|---" * 8 + "|"
    notes: list[str] = []
    for row in rows:
        plain = row["plain"]
        notes += [f"{row['program']} under {row['backend']}: {'; '.join(row['different'])}"] if row["different"] else []
        counts = [
            sum(plain.get("breaks", {}).values()),
            plain.get("graphs", {}).get("unique_graphs", 0),
            plain.get("frames", {}).get("total", 0),
            plain.get("compiles", ""),
            plain.get("recompiles", ""),
        ]
        reported = f"[{len(notes)}]" if row["different"] else "refused alike" if plain.get("error") else "equal"
        yield f"| {row['program']} | {row['backend']} | {' | '.join(map(str, counts))} | {reported} |"
    yield ""
    yield from (f"{number}. {' '.join(note.split())[:700]}" for number, note in enumerate(notes, 1))


def main() -> int:
    """Prints how many are equal, and what differs."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", metavar="REGEX", default="", help="programs whose name matches")
    options.add_argument("--backends", default=",".join(BACKENDS))
    options.add_argument("--jobs", "-j", type=int, default=1, help="programs at a time")
    options.add_argument("--anew", action="store_true", help="forget what was found of the chosen programs")
    options.add_argument("--out", type=Path, metavar="FILE", help="the rows (default: .cache/unseen-TORCH.jsonl)")
    options.add_argument("--write", type=Path, metavar="FILE", help="write the page of all rows")
    chosen = options.parse_args()
    prepare()
    import torch

    from tests.models.capture_programs import HOOKED, ROWS

    names = [item.name for item in [*ROWS, *HOOKED] if not item.api and item.ranks == 1]
    places = {(name, backend): at for at, (name, backend) in enumerate((a, b) for a in names for b in BACKENDS)}
    wanted = {
        (name, backend) for name in names if re.search(chosen.only, name) for backend in chosen.backends.split(",")
    }
    file: Path = chosen.out or ROOT / ".cache" / f"unseen-{torch.__version__}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = file.read_text() if file.exists() else ""
    results = {
        (row["program"], row["backend"]): row for row in map(json.loads, text[: text.rfind("\n") + 1].splitlines())
    }
    results = {pair: row for pair, row in results.items() if pair in places and not (chosen.anew and pair in wanted)}
    file.write_text("".join(json.dumps(row) + "\n" for row in results.values()))
    for row in matrix(sorted(wanted - set(results), key=places.__getitem__), chosen.jobs):
        results[row["program"], row["backend"]] = row
        with file.open("a") as rows:
            rows.write(json.dumps(row) + "\n")
    if chosen.write:
        chosen.write.write_text(
            "\n".join([*page([results[pair] for pair in sorted(results, key=places.__getitem__)]), ""])
        )
    different = {f"{a} under {b}": results[a, b]["different"] for a, b in sorted(wanted) if results[a, b]["different"]}
    print(json.dumps({"runs": len(wanted), "different": different}, indent=1))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
