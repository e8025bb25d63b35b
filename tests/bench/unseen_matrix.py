"""Whether Dynamo sees the recorder: what it counts in a program that is not recorded, recorded, and with --compiled-autograd.

    python tests/bench/unseen_matrix.py                                  # every program under three backends: an hour on 2 cores
    python tests/bench/unseen_matrix.py --only 'inside|cond' --backends aot_eager,inductor

Each run is a child forked from one process, so that all begin alike, with torch's caches of graphs off: a recording turns them
off too. Compared: graph breaks by reason, graphs and calls in them, frames, compiles, recompiles; and no code of graphdbg may
have come to Dynamo. Exit code: 0 all equal, 1 some differ.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
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
        "breaks": breaks, "frames": dict(utils.counters["frames"]), "graphs": dict(utils.counters["stats"]),
        "compiles": len(utils.compilation_time_metrics.get("_compile.compile_inner", ())),
        "recompiles": sum(map(len, utils.guard_failures.values())),
        "ours": sorted({getattr(code, "co_qualname", code.co_name) for code in codes if code.co_filename.startswith(ours)}),
        "error": error,
    }  # fmt: skip


def in_child(name: str, backend: str, way: str, folder: Path) -> dict[str, Any]:
    """What Dynamo counts of a program in a forked child; `told` is the child's last words where it died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            with contextlib.redirect_stderr(io.StringIO()):
                found = _counted_program(name, backend, way, folder)
            os.write(writing, json.dumps(found).encode())
        except BaseException:  # noqa: BLE001 - of a child that must not go on as its parent
            os.write(writing, json.dumps({"told": traceback.format_exc()[-2000:]}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"told": "the process died"}


def _counted_program(name: str, backend: str, way: str, folder: Path) -> dict[str, Any]:
    import torch
    from capture_programs import HOOKED, PROGRAMS

    import graphdbg

    torch.manual_seed(0)
    recording = contextlib.nullcontext()
    if way != WAYS[0]:
        recording = graphdbg.record(folder / f"{name}-{backend}-{WAYS.index(way)}", compiled_autograd=way == WAYS[2])
    with recording:
        return counted(lambda: {**PROGRAMS, **{one.name: one for one in HOOKED}}[name].run(backend))


def differences(name: str, backend: str, folder: Path) -> list[str]:
    """What a recording changes, a line each; empty where Dynamo counts the same."""
    plain, *others = [in_child(name, backend, way, folder) for way in WAYS]
    lines = [f"{plain['told']}"] if "told" in plain else []
    for way, found in zip(WAYS[1:], others, strict=True):
        keys = [key for key in {**plain, **found} if found.get(key) != plain.get(key)]
        lines += [f"{way}: {key} {found.get(key)}, not {plain.get(key)}" for key in keys]
        lines += [f"{way}: Dynamo saw {found['ours']}"] if found.get("ours") else []
    return lines


def prepare() -> None:
    """Imports all that the children need, and makes what is random repeatable. To be called before the first child."""
    os.environ.update(TORCHINDUCTOR_FX_GRAPH_CACHE="0", TORCHINDUCTOR_AUTOGRAD_CACHE="0", TORCHINDUCTOR_COMPILE_THREADS="1")
    import sympy.core.random
    import torch

    import graphdbg  # noqa: F401

    torch.set_num_threads(1)
    sympy.core.random.seed(0)  # the order in which sympy asks for properties, of which Dynamo sees some frames
    import capture_programs  # noqa: F401
    import torch._dynamo.convert_frame
    import torch._inductor.compile_fx


def matrix(names: Sequence[str], backends: Sequence[str]) -> dict[str, list[str]]:
    """Program and backend -> what differs, for those where something does; a line each on stderr."""
    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="graphdbg-unseen-") as folder:
        for name in names:
            for backend in backends:
                lines = differences(name, backend, Path(folder))
                print(f"{name} under {backend}: {'; '.join(lines) or 'equal'}", file=sys.stderr, flush=True)
                if lines:
                    found[f"{name} under {backend}"] = lines
    return found


def main() -> int:
    """Prints how many are equal, and what differs."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", metavar="REGEX", default="", help="programs whose name matches")
    options.add_argument("--backends", default=",".join(BACKENDS))
    chosen = options.parse_args()
    prepare()
    from capture_programs import HOOKED, ROWS

    names = [one.name for one in [*ROWS, *HOOKED] if not one.api and one.ranks == 1 and re.search(chosen.only, one.name)]
    backends = chosen.backends.split(",")
    found = matrix(names, backends)
    print(json.dumps({"runs": len(names) * len(backends), "different": found}, indent=1))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
