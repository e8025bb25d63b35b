"""Planted failures in small models, as a user goes about them: dump, minify, the repro. A row per case is appended;
resumable.

    python -m tests.matrix.planted_repros [--only 'transformer|nan'] [--rows FILE] [--minutes 60] [--jobs N] [--keep
    FOLDER]
                                         [--table]

14 kinds of fault x 6 models (planted_programs.py). The run is minified by `minify RUN --import FAULT --max-time 60`. A
repro is run three times by `python -I` with graphdbg not importable, and once with --without-fault. Cases are asked for
along the diagonals, so that what was run so far is a fair part of all. --table runs nothing and prints the page
docs/planted-repros.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PLANTED = HERE.parent / "planted"
PROGRAM = HERE.parent / "models" / "planted_programs.py"
MODELS = ("transformer", "convnet", "recurrent", "embedding", "experts", "dynamic")

KINDS: dict[str, tuple[str, ...]] = {
    "pass raises": ("planted_raising_pass",),
    "lowering raises": ("planted_crash",),
    "code does not compile": ("planted_codegen_error",),
    "wrong decomposition": ("planted_decomposition",),
    "wrong pass": ("planted_pre_grad_pass", "planted_post_grad_pass"),
    "wrong lowering": ("planted_lowering",),
    "wrong when fused": ("planted_fusion",),
    "wrong partition": ("planted_partition",),
    "wrong write": ("planted_write",),
    "wrong strides": ("planted_strides",),
    "wrong dtype": ("planted_wide_decomposition",),
    "NaN": ("planted_nan_decomposition",),
    "hang": ("planted_hang",),
    "wrong dropout": ("planted_dropout",),
}
"""Kind -> the modules that plant it, in turn."""

HEAD = """# Planted failures, minified, and their repros

Fourteen kinds of fault planted in a training step of six small models, as a user goes about them: `graphdbg dump`,
`graphdbg
minify RUN --import FAULT`, and then its repro alone. Made by `python -m tests.matrix.planted_repros --table` from the
rows of the
cases that were run so far; the others say "not run".

* good: the case fails 3 of 3 times in fresh processes, `python -I repro.py` with graphdbg not importable ends with 1
  three times
  of three and with 0 with `--without-fault`, and the repro names the signature that `minify` printed;
* no fault: the fault does not strike in that model: loss, gradients and what is written are those of the program
  without it;
* none: `minify` verified no case; repro, without: the exit codes that were seen in place of 1, 1, 1 and 0.

In `dynamic`, which computes in bfloat16, eager's own error (0.3 to 0.4 per cent) hides a fault of 1 per cent in a
value, and that
of the partition, which changes its gradients by 0.3 per cent.

Behind the word stand the nodes of the graph that was minified, and those of the case.
"""

FLAGS = {"hang": ["--check", "hang", "--hangs", "15"], "wrong strides": ["--rung", "debug_nop", "--check", "metadata"]}
"""What `minify` is told beside the fault."""

ALONE = """import runpy, sys
sys.modules["graphdbg"] = None
sys.path.insert(0, sys.argv.pop(1))
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")"""


def cases() -> list[tuple[str, str, str]]:
    """Model, kind and module, along the diagonals: every kind among the first 17."""
    results = []
    for step in range(len(KINDS)):
        for at, model in enumerate(MODELS):
            kind = list(KINDS)[(step * 5 + at) % len(KINDS)]
            results.append((model, kind, KINDS[kind][at % len(KINDS[kind])]))
    return results


def environment(kind: str, folder: Path, *, alone: bool = False) -> dict[str, str]:
    """One thread, the planted modules where Python finds them; `alone`: torch does not look for our entry point."""
    path = [str(PLANTED), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    own = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)}
    own |= {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}  # a plant is in no cache's key
    own |= {"DROPOUT": "0.2" if kind == "wrong dropout" else "0"}
    return os.environ | own | ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if alone else {})


def ran(command: list[str], folder: Path, name: str, limit_s: float, kind: str) -> tuple[int | None, str]:
    """The exit code (None: over its time) and standard output; both streams are kept in the folder."""
    with (folder / f"{name}.out").open("w") as out, (folder / f"{name}.err").open("w") as err:
        env = environment(kind, folder, alone="-I" in command)
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=err, env=env, start_new_session=True)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            code = None
    return code, (folder / f"{name}.out").read_text(errors="replace")


def judged(model: str, kind: str, module: str, folder: Path, seconds: int) -> dict[str, Any]:
    """One case, from the recording to the repro."""
    began = time.monotonic()
    graphdbg = [sys.executable, "-m", "graphdbg"]
    row: dict[str, Any] = {
        "model": model,
        "kind": kind,
        "module": module,
        "max_time": seconds,
        "torch": version("torch"),
    }
    # a program that hangs is ended by the limit, and what it recorded is there
    dump = [*graphdbg, "dump", "-o", "run", "--inputs", "first", "--", sys.executable, str(PROGRAM), model, module]
    row["dump"], ends = ran(dump, folder, "dump", 40 if kind == "hang" else 300, kind)
    words = ["--import", module, "--max-time", str(seconds), *FLAGS.get(kind, []), "--json", "--full", "-o", "out"]
    row["minify"], reported = ran([*graphdbg, "minify", *words, "run"], folder, "minify", seconds + 600, kind)
    done: dict[str, Any] = {}
    for line in reported.splitlines():
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            done = event if event.get("event") == "done" else done
    names = ("verdict", "kind", "signature", "signature_id", "nodes", "original_nodes", "verified", "repro")
    row |= {name: done.get(name) for name in names}
    row |= {"failure": row["kind"], "kind": kind, "why": done.get("reason") or ""}
    if not row["verified"] and kind != "wrong strides":  # which change no number
        _, right = ran([sys.executable, str(PROGRAM), model, "json"], folder, "right", 300, kind)
        row["strikes"] = not right or right != ends
    repro = folder / "out" / "repro.py"
    if repro.exists():
        limit = 60 if kind == "hang" else 300
        alone = [sys.executable, "-I", "-c", ALONE, str(PLANTED), str(repro)]
        flags: list[list[str]] = [[], [], [], ["--without-fault"]]
        with ThreadPoolExecutor(2) as pool:
            asked = [
                pool.submit(ran, [*alone, *more], folder, f"repro{at}", limit, kind) for at, more in enumerate(flags)
            ]
            runs = [item.result() for item in asked]
        row["codes"], row["without"] = [code for code, _ in runs[:3]], runs[3][0]
        row["says"] = next((line for line in reversed(runs[0][1].splitlines()) if line.strip()), "")[:200]
        row["entry"] = (re.search(r"\(entered ([^)]*)\)", repro.read_text()) or [""])[0]
        row["id_in_repro"] = (re.search(r"Signature (\w{8})", repro.read_text()) or ["", ""])[1]
    row["seconds"] = round(time.monotonic() - began)
    return row


def word(row: dict[str, Any]) -> str:
    """What a row comes to: good; none (minify did not verify a case); no fault (there was none); or what is wrong."""
    if not row["verified"] or row["verified"][0] == 0:
        return "none" if row.get("strikes", True) else "no fault"
    if row.get("codes") != [1, 1, 1]:
        return f"repro {row.get('codes', 'none')}"
    if row["without"] != 0:
        return f"without {row['without']}"
    return "good" if row["signature_id"] == row["id_in_repro"] else "another id"


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Kinds down, models across, and the sums."""
    known = {(row["kind"], row["model"]): row for row in rows}
    lines = [f"| kind | {' | '.join(MODELS)} |", "|---" * (len(MODELS) + 1) + "|"]
    for kind in KINDS:
        cells = [known.get((kind, model)) for model in MODELS]
        messages = [
            f"{word(row)} {row['original_nodes'] or '-'}→{row['nodes'] or '-'}" if row else "not run" for row in cells
        ]
        lines.append(f"| {kind} | {' | '.join(messages)} |")
    sums = Counter(map(word, known.values()))
    counts = ", ".join(f"{count} {item}" for item, count in sums.most_common())
    bad = [row for row in known.values() if word(row) not in ("good", "no fault")]
    odd = [f"* {row['model']}, {row['kind']}: {row['why'] or row.get('says', '')}" for row in bad]
    limits = ", ".join(f"{limit} s" for limit in sorted({row["max_time"] for row in known.values()}))
    alike = sum(row["nodes"] == row["original_nodes"] for row in known.values())
    on = Counter(row["torch"].partition("+")[0] for row in known.values())
    where = ", ".join(f"{count} on torch {item}" for item, count in on.items())
    messages = (
        f"{len(known)} of {len(KINDS) * len(MODELS)} cases were run ({where}): {counts or 'none'}. A search had "
        "`--max-time`"
    )
    again = [row for row in rows if known[row["kind"], row["model"]] is not row and word(row) != "good"]
    before = "; ".join(f"{row['model']}, {row['kind']} ({word(row)} on torch {row['torch']})" for row in again)
    lines += ["", messages, f"{limits}, within which {alike} of them found nothing smaller."]
    return [*lines, *(["", f"Run again: {before}."] if again else []), *([""] if odd else []), *odd]


def main() -> int:
    """Runs what the rows do not have."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", help="a pattern that 'MODEL KIND' has to match")
    options.add_argument("--rows", type=Path, default=Path(".cache/planted_repros.jsonl"))
    options.add_argument("--minutes", type=float, default=600.0, help="no new case after so long")
    options.add_argument("--max-time", type=int, default=60, help="of each minification")
    options.add_argument("--jobs", type=int, default=1, help="so many cases at the same time")
    options.add_argument("--keep", type=Path, help="leave the folders of the cases here")
    options.add_argument("--table", action="store_true", help="run nothing, print the page")
    chosen = options.parse_args()
    chosen.rows.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in chosen.rows.read_text().splitlines()] if chosen.rows.exists() else []
    there, until = {(row["model"], row["kind"]) for row in rows}, time.monotonic() + 60 * chosen.minutes

    def one(model: str, kind: str, module: str) -> None:
        if time.monotonic() > until:
            return
        with tempfile.TemporaryDirectory(prefix="graphdbg-planted-") as temporary:
            folder = (chosen.keep or Path(temporary)).resolve() / f"{model}-{kind.replace(' ', '-')}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            row = judged(model, kind, module, folder, chosen.max_time)
        rows.append(row)
        with chosen.rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        sizes = f"({row['original_nodes']} -> {row['nodes']})"
        print(f"{model} {kind}: {word(row)} {sizes} {row['seconds']} s {row['why'][:120]}", flush=True)

    wanted = [case for case in cases() if case[:2] not in there and re.search(chosen.only, " ".join(case[:2]))]
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for asked in [pool.submit(one, *case) for case in ([] if chosen.table else wanted)]:
            asked.result()
    print("\n".join([*([HEAD] if chosen.table else []), *table(rows)]))
    return int(any(word(row) not in ("good", "none", "no fault") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
