"""What recording costs: against no recording, `TORCH_TRACE` and `TORCH_COMPILE_DEBUG=1`, as ratios of runs made in
turn.

    python -m tests.bench.bench_recorder                          # all of it: about 15 minutes on 2 cores
    python -m tests.bench.bench_recorder --layers 2 --rounds 1 --steps 50 --recompiles 40

* cold: seconds of the first step with a cache folder of its own for each run; the order is turned round from round to
  round.
* warm kernels: the same where the machine code of the kernels is cached already, which makes any share of ours larger.
* steady: two processes, one recorded, make one step each in turn, first one and then the other first.
* disk: bytes of the run (each file once, and in blocks) against the trace's text, compressed.
* recompiles: one function compiled again and again, recorded with and without a limit on disk.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "models" / "recorded_training.py"
PLAIN, OURS, TRACE, DEBUG = "no recording", "graphdbg dump", "TORCH_TRACE", "TORCH_COMPILE_DEBUG=1"
MAX_DISK = 2_000_000


def command(
    kind: str, folder: Path, *arguments: str, options: tuple[str, ...] = ()
) -> tuple[list[str], dict[str, str]]:
    """The command line and environment of one run; `folder` receives its cache and what it writes."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    script = [str(SCRIPT), *arguments]
    if kind == OURS:
        return [
            sys.executable,
            "-m",
            "graphdbg",
            "dump",
            "-o",
            str(folder / "run"),
            *options,
            "--",
            *script,
        ], environment
    if kind == TRACE:
        environment["TORCH_TRACE"] = str(folder / "trace")
    if kind == DEBUG:
        environment.update(TORCH_COMPILE_DEBUG="1", TORCH_COMPILE_DEBUG_DIR=str(folder / "debug"))
    return [sys.executable, *script], environment


def seconds(kind: str, folder: Path, *arguments: str, options: tuple[str, ...] = ()) -> float:
    """The first number that a run prints."""
    words, environment = command(kind, folder, *arguments, options=options)
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return float(done.stdout.split()[0])


def compile_times(work: Path, rounds: int, layers: int, *, warm: bool) -> None:
    """Prints the compile seconds of each kind, and ratios within each round."""
    kinds = [PLAIN, OURS, TRACE, DEBUG]
    ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
    if warm:
        seconds(PLAIN, made(work / "warm"), "--layers", str(layers))
    for number in range(rounds):
        results: dict[str, float] = {}
        for kind in kinds if number % 2 == 0 else kinds[::-1]:
            folder = made(work / f"{'warm' if warm else 'cold'}-{number}-{kinds.index(kind)}")
            if warm:
                shutil.copytree(work / "warm/cache", folder / "cache")
                shutil.rmtree(folder / "cache/fxgraph", ignore_errors=True)
                shutil.rmtree(folder / "cache/aotautograd", ignore_errors=True)
            results[kind] = seconds(kind, folder, "--layers", str(layers))
        for kind in kinds:
            ratios[kind].append(results[kind] / results[PLAIN])
        print(f"  round {number + 1}: " + ", ".join(f"{kind} {results[kind]:.1f} s" for kind in kinds), flush=True)
    for kind in kinds[1:]:
        print(f"  {kind}: {statistics.median(ratios[kind]):.3f} of no recording (median of {rounds})", flush=True)


def steady(work: Path, layers: int, steps: int) -> None:
    """Prints the ratio of step times of two processes that take turns."""
    runs = {kind: _paced(kind, made(work / f"steady-{i}"), layers) for i, kind in enumerate((PLAIN, OURS))}
    times: dict[str, list[float]] = {kind: [] for kind in runs}
    for number in range(-5, steps):
        for kind in list(runs) if number % 2 == 0 else list(runs)[::-1]:
            elapsed = _one_step(runs[kind])
            if number >= 0:
                times[kind].append(elapsed)
    for process in runs.values():
        process.communicate()
    middle = {kind: statistics.median(result) for kind, result in times.items()}
    pairs = statistics.median(ours / plain for ours, plain in zip(times[OURS], times[PLAIN], strict=True))
    print(f"  {steps} steps in turn: {middle[PLAIN] * 1e3:.2f} ms and {middle[OURS] * 1e3:.2f} ms")
    print(
        f"  ratio of medians {middle[OURS] / middle[PLAIN]:.4f}, median of the ratios of neighbours {pairs:.4f}",
        flush=True,
    )


def _paced(kind: str, folder: Path, layers: int) -> subprocess.Popen[str]:
    words, environment = command(kind, folder, "--layers", str(layers), "--paced")
    process = subprocess.Popen(
        words,
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _one_step(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def disk(work: Path, layers: int) -> None:
    """Prints the size of a run against the compressed text of the trace of the same training."""
    for kind in (OURS, TRACE):
        if not made(work / "disk").joinpath("run" if kind == OURS else "trace").exists():
            seconds(kind, work / "disk", "--layers", str(layers))
    text = b"".join(path.read_bytes() for path in sorted((work / "disk/trace").iterdir()))
    small = len(gzip.compress(text))
    size, blocks = sizes(work / "disk/run")
    print(f"  trace {len(text):,} bytes, compressed {small:,}; run {size:,} bytes, {blocks:,} in blocks")
    print(f"  ratio {size / small:.2f}, in blocks {blocks / small:.2f}", flush=True)


def recompiles(work: Path, times: int) -> None:
    """Prints the seconds and bytes of many recompiles: plain, recorded, recorded within a limit."""
    arguments = ("--recompiles", str(times))
    plain = seconds(PLAIN, made(work / "recompiles-plain"), *arguments)
    print(f"  no recording {plain:.1f} s", flush=True)
    for title, options in ((OURS, ()), (f"with --max-disk {MAX_DISK}", ("--max-disk", str(MAX_DISK)))):
        folder = made(work / f"recompiles-{len(options)}")
        result = seconds(OURS, folder, *arguments, options=options)
        size, blocks = sizes(folder / "run")
        print(
            f"  {title}: {result:.1f} s, ratio {result / plain:.3f}; {size:,} bytes, {blocks:,} in blocks", flush=True
        )


def sizes(folder: Path) -> tuple[int, int]:
    """Bytes of the files under a folder, each counted once however many names it has; and of the blocks they take."""
    results = {status.st_ino: status for path in folder.rglob("*") if (status := path.lstat())}
    files = {path.lstat().st_ino: path.lstat().st_size for path in folder.rglob("*") if path.is_file()}
    return sum(files.values()), sum(status.st_blocks * 512 for status in results.values())


def made(path: Path) -> Path:
    """The folder, made when it is not there."""
    path.mkdir(parents=True, exist_ok=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--recompiles", type=int, default=500)
    parser.add_argument("--only", default="cold,warm,steady,disk,recompiles")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    with tempfile.TemporaryDirectory(prefix="bench-recorder-") as folder:
        work = Path(folder)
        for name in wanted:
            print(f"{name}:", flush=True)
            if name in ("cold", "warm"):
                compile_times(work, arguments.rounds, arguments.layers, warm=name == "warm")
            elif name == "steady":
                steady(work, arguments.layers, arguments.steps)
            elif name == "disk":
                disk(work, arguments.layers)
            elif name == "recompiles":
                recompiles(work, arguments.recompiles)
            else:
                raise SystemExit(f"unknown part {name!r}")


if __name__ == "__main__":
    main()
