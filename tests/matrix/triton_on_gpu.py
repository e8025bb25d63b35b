"""The twenty models' Triton kernels, written with no GPU, on a real one: results, PTX and source against what stock
makes here.

    python -m tests.matrix.triton_on_gpu OUT [--models gru,unet] [--jobs 8] [--time 3]

1. Children that see no GPU interpret every graph and save launches, wrappers, and PTX for the pretended GPU.
2. This process launches each saved launch on the GPU and compares it with the interpreter and with eager.
3. It compiles the same sources for the same configurations with the real driver, and compares PTX (without debug
  sections).
4. Stock Inductor compiles the same graphs for the real GPU, and its kernels' sources are compared with those of 1.

OUT gets a folder for each model, `results.json` and `results.txt`. Exits with 1 where something differs or died, 3
without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from graphdbg.dumps.output import emit
from graphdbg.toolkit.launching.alone import bench, launched, restricted
from graphdbg.toolkit.launching.asking import Ceilings, JudgedLaunch, measured, report
from graphdbg.toolkit.launching.launches import Launch, Launches, is_launches, open_launches
from graphdbg.toolkit.launching.saving_child import saved_launches
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.eager import copy_graph
from graphdbg.toolkit.live.entries import shared_fakes
from graphdbg.toolkit.live.spec import ReplaySpec, no_caches
from graphdbg.toolkit.replaying.fidelity import watching_compiles
from graphdbg.toolkit.rungs import rung
from graphdbg.toolkit.triton import pretended as t
from graphdbg.toolkit.triton.emission import loaded, triton_sources
from graphdbg.toolkit.triton.pretended import pretending
from graphdbg.toolkit.triton.retarget import retargeted
from graphdbg.toolkit.triton.targets import target_of
from tests.models.compile_models import MODELS
from tests.models.triton_graphs import Graph, graphs_of

INNER = ("forward", "backward", "inference")
SETTINGS = ("backend_hash", "autotune_local_cache", "autotune_remote_cache", "store_cubin")
"""Parts of a kernel's source that say on which machine it was written, or how it is kept."""


def inner_graphs(model: str) -> list[Graph]:
    """Those that the inner compiler gets."""
    return [item for item in graphs_of(model) if item.stage in INNER]


def save(model: str, target: str, out: Path) -> None:
    """Step 1 for one model, in a process that sees no GPU."""
    for place, graph in enumerate(inner_graphs(model)):
        folder = out / model / f"{place}_{graph.stage}"
        folder.mkdir(parents=True)
        codes: list[str] = []
        began = time.perf_counter()
        error = ""
        try:
            case = Live(graph.gm, graph.inputs, ReplaySpec(graph.stage, graph.kwargs), [])
            with watching_compiles(lambda gm: None, codes.append):
                saved_launches(
                    case, folder / "launches", target, lambda kernel, call: True, graph=f"{model} {graph.stage}"
                )
        except Exception:  # noqa: BLE001  the other graphs go on
            error = traceback.format_exc()
        (folder / "wrapper.py").write_text("\n".join(codes))
        (folder / "saved.json").write_text(json.dumps({"error": error, "seconds": time.perf_counter() - began}))
        if is_launches(folder / "launches"):
            known = open_launches(folder / "launches")
            with pretending(target_of(target)):
                write_ptx(known, folder / "pretended")


def write_ptx(known: Launches, folder: Path) -> None:
    """PTX of each kernel in each configuration that it was launched in, under the driver that is active."""
    folder.mkdir()
    for name, launch in different(known).items():
        try:
            with tempfile.TemporaryDirectory() as sources:
                kernel = restricted(loaded(launch.kernel, known.source(launch), Path(sources)), launch)
                text = t.compile_config(kernel, kernel.configs[0]).asm["ptx"]
        except Exception:  # noqa: BLE001  told as a difference
            text = "// not compiled\n" + traceback.format_exc()
        (folder / f"{name}.ptx").write_text(text)


def different(known: Launches) -> dict[str, Launch]:
    """One launch for each source and configuration, by a name for its file."""
    results: dict[tuple[str, str], Launch] = {}
    for launch in known.launches:
        results.setdefault((launch.source, launch.config_text()), launch)
    return {item.folder: item for item in results.values()}


def bare_ptx(text: str) -> list[str]:
    """PTX without what debuggers read: locations, files, sections, labels of theirs, comments; and without the source's
    path in what a failing assertion says."""
    kept, depth = [], 0
    for line in text.splitlines():
        bare = line.split("//")[0].strip()
        if bare.startswith(".section"):
            depth = 1
        if depth:
            depth = 0 if bare.startswith("}") else depth
            continue
        if re.match(r"\.global .* assertFile_\d+\[\d+\] = ", bare):
            bare = bare.partition("[")[0]
        if not bare or bare.startswith((".loc", ".file")) or re.fullmatch(r"\$L__(tmp|func_begin|func_end)\d+:", bare):
            continue
        kept.append(bare)
    return kept


def bare_source(text: str) -> list[str]:
    """A kernel's source without comments, paths and `SETTINGS`."""
    for name in SETTINGS:
        text = re.sub(rf"'{name}': (?:'[^']*'|[\w.]+),? ?", "", text)
    lines = [line.split("  # ")[0].rstrip() for line in text.strip().splitlines()]
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def first_difference(ours: Sequence[str], other: Sequence[str]) -> str:
    """The first lines that differ, of two texts."""
    for mine, theirs in zip(ours, other, strict=False):
        if mine != theirs:
            at = next((place for place, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), 0)
            cut = slice(max(0, at - 60), at + 140)
            return f"    pretended: {mine[cut]}\n    real:      {theirs[cut]}"
    return f"    {len(ours)} lines against {len(other)}"


def stock_sources(graph: Graph) -> dict[str, str]:
    """Kernel -> source, of stock Inductor's compile for the GPU here. Kernels are written, not compiled."""
    gm = copy_graph(graph.gm)
    fakes, mode = shared_fakes(gm, graph.inputs, False)
    codes: list[str] = []
    with no_caches(), t.kernels_made_by(lambda name, source: None):
        result = retargeted(gm, fakes, mode)
        with watching_compiles(lambda gm: None, codes.append):
            rung("inductor").build(result.gm, result.fakes, ReplaySpec(graph.stage, graph.kwargs))
    return triton_sources("\n".join(codes))


class Results:
    """What was found, as rows and as text."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.total: Counter[str] = Counter()

    def tell(self, text: str) -> None:
        """A line for both."""
        self.lines.append(text)
        emit(text, as_json=False)

    def add(self, row: dict[str, Any]) -> None:
        """One graph."""
        self.rows.append(row)
        self.total.update({key: value for key, value in row.items() if isinstance(value, int)})
        parts = [f"{row['model']:<24} {row['stage']:<10} {row['launches']:>4} launches {row['agree']:>4} agree"]
        parts += [f"interpreter {row['interpreter']:8.1e}", f"eager {row['eager']:8.1e}"]
        parts += [f"ptx {row['ptx_same']}/{row['ptx']}", f"sources {row['sources_same']}/{row['sources']}"]
        self.tell("  ".join([*parts, f"{row['seconds']:6.1f} s"]))


def launch_all(known: Launches, row: dict[str, Any], results: Results, limits: Ceilings, timed: int) -> None:
    """Step 2 for one graph."""
    by_size = sorted(known.launches, key=lambda item: -((item.bytes_read or 0) + (item.bytes_written or 0)))
    largest = {item.folder for item in by_size[:timed]}
    for launch in known.launches:
        try:
            with tempfile.TemporaryDirectory() as folder:
                judged = launched(launch, known, Path(folder), limits if launch.folder in largest else None)
        except Exception as error:  # noqa: BLE001  the other launches go on, where CUDA still can
            said = (str(error).splitlines() or [""])[0]
            judged = JudgedLaunch(
                launch.kernel, launch.number, launch.call, launch.calls, launch.grid, launch.config_text()
            )
            judged.died = f"{type(error).__name__}: {said}"
        for argument in judged.arguments:
            for way in ("interpreter", "eager"):
                result = getattr(argument, way)
                row[f"{way}_compared"] += result is not None
                row[way] = max(row[way], result.error or 0.0 if result is not None else 0.0)
        row["launches"] += 1
        row["agree"] += judged.ok
        row["died"] += bool(judged.died)
        if not judged.ok or judged.place is not None:
            results.tell("\n".join(f"    {line}" for line in report(judged, limits).splitlines()))


def compare_ptx(known: Launches, folder: Path, row: dict[str, Any], results: Results) -> None:
    """Step 3 for one graph."""
    write_ptx(known, folder / "real")
    for name in different(known):
        ours, theirs = (bare_ptx((folder / kind / f"{name}.ptx").read_text()) for kind in ("pretended", "real"))
        row["ptx"] += 1
        row["ptx_same"] += ours == theirs
        if ours != theirs:
            results.tell(f"    PTX of {name} differs:\n{first_difference(ours, theirs)}")


def compare_sources(graph: Graph, wrapper: str, row: dict[str, Any], results: Results) -> None:
    """Step 4 for one graph."""
    ours, stock = triton_sources(wrapper), stock_sources(graph)
    for name in sorted({*ours, *stock}):
        row["sources"] += 1
        if name not in ours or name not in stock:
            results.tell(f"    {name} is written only {'for the pretended GPU' if name in ours else 'by stock'}")
            continue
        mine, theirs = bare_source(ours[name]), bare_source(stock[name])
        row["sources_same"] += mine == theirs
        if mine != theirs:
            results.tell(f"    source of {name} differs:\n{first_difference(mine, theirs)}")


def on_gpu(models: Sequence[str], out: Path, limits: Ceilings, timed: int) -> Results:
    """Steps 2 to 4."""
    results = Results()
    for model in models:
        for place, graph in enumerate(inner_graphs(model)):
            began = time.perf_counter()
            folder = out / model / f"{place}_{graph.stage}"
            row: dict[str, Any] = {"model": model, "stage": graph.stage, "interpreter": 0.0, "eager": 0.0}
            row |= dict.fromkeys(
                ("graphs", "launches", "agree", "died", "failed", "interpreter_compared", "eager_compared"), 0
            )
            row |= dict.fromkeys(("ptx", "ptx_same", "sources", "sources_same"), 0)
            row["graphs"] = 1
            note = folder / "saved.json"
            saved = json.loads(note.read_text()) if note.exists() else {"error": "the process that saved ended"}
            if saved["error"]:
                row["failed"] = 1
                results.tell(f"    {model} {graph.stage} was not interpreted:\n{saved['error'].strip()[-1500:]}")
            if is_launches(folder / "launches"):
                known = open_launches(folder / "launches")
                launch_all(known, row, results, limits, timed)
                compare_ptx(known, folder, row, results)
            try:
                compare_sources(graph, (folder / "wrapper.py").read_text() if note.exists() else "", row, results)
            except Exception:  # noqa: BLE001  the other graphs go on
                row["failed"] += 1
                results.tell(f"    stock did not compile {model} {graph.stage}:\n{traceback.format_exc()[-1500:]}")
            row["seconds"] = time.perf_counter() - began
            results.add(row)
    return results


def save_all(models: Sequence[str], target: str, out: Path, jobs: int) -> None:
    """Step 1, a process for each model."""

    def model_in_child(model: str) -> None:
        cache = str(out / "caches" / model)
        hidden = {"CUDA_VISIBLE_DEVICES": "", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        env = {**os.environ, **hidden, "TRITON_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}-inductor"}
        command = [sys.executable, "-m", "tests.matrix.triton_on_gpu", str(out), "--save", model, "--target", target]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            emit(f"saving {model} ended with {done.returncode}:\n{done.stderr[-2000:]}", as_json=False)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(model_in_child, models))


def main() -> int:
    """Runs all of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--time", type=int, default=1, help="how many launches of each graph are timed, the largest first"
    )
    parser.add_argument("--target", default="")
    parser.add_argument("--save", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    out = given.out.absolute()
    if given.save:
        save(given.save, given.target, out)
        return 0
    if not torch.cuda.is_available():
        emit("there is no GPU here", as_json=False)
        return 3
    major, minor = torch.cuda.get_device_capability(0)
    target = target_of(given.target or f"cuda:{10 * major + minor}").name
    out.mkdir(parents=True)
    models = given.models.split(",")
    began = time.perf_counter()
    save_all(models, target, out, given.jobs)
    emit(
        f"saved the launches of {len(models)} models for {target} in {time.perf_counter() - began:.0f} s", as_json=False
    )
    with contextlib.ExitStack() as stack:  # a cache of its own: what the children compiled must not be found
        os.environ["TRITON_CACHE_DIR"] = stack.enter_context(tempfile.TemporaryDirectory())
        limits = measured(bench)
        emit(
            f"{limits.device}: {limits.bandwidth / 1e12:.3g} TB/s, launch {limits.launch_s * 1e6:.1f} us, "
            + ", ".join(f"{kind} {peak / 1e12:.3g} TFLOP/s" for kind, peak in limits.peaks.items()),
            as_json=False,
        )
        results = on_gpu(models, out, limits, given.time)
    total = results.total
    results.tell("total: " + ", ".join(f"{key} {value}" for key, value in total.items()))
    (out / "results.txt").write_text("\n".join(results.lines) + "\n")
    (out / "results.json").write_text(json.dumps({"total": total, "graphs": results.rows}, indent=1))
    same = total["ptx"] == total["ptx_same"] and total["sources"] == total["sources_same"]
    return 0 if same and total["agree"] == total["launches"] and not total["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
