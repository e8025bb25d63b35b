"""`graphdbg bisect` and torch's own CompilerBisector on the same planted faults. Prints what each names, probes,
seconds, ratios.

    python -m tests.bench.bench_bisect [--faults planted_joint_pass,...] [--cli]

Both begin cold: ours with the start of its fork server, stock with `import torch`. Stock is
`CompilerBisector.do_bisect` on the model in one process; with --cli also `python -m torch._inductor.compiler_bisector
run`, a process per probe. Each has an Inductor cache folder as the user's with one file in it, and what became of that
is told."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PLANTED = Path(__file__).resolve().parents[1] / "planted"

FAULTS = {
    "planted_joint_pass": "inference",
    "planted_post_grad_pass": "inference",
    "planted_builtin_pass": "inference",
    "planted_pre_grad_pass": "dynamo",
    "planted_decomposition": "dynamo",
    "planted_pattern": "inference",
    "planted_lowering": "inference",
    "planted_crash": "inference",
    "planted_vectors": "inference",
}
"""Fault -> the narrowest stage of a recording that shows it."""

MODEL = """
import torch
from torch.nn import functional as F

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up = torch.nn.LayerNorm(width), torch.nn.Linear(width, 64)
        self.down = torch.nn.Linear(64, width)
    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))) * 1.25)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(*(Block(32) for _ in range(4)))
    def forward(self, x):
        return torch.tanh(self.blocks(x))

torch.manual_seed(0)
net, x = Net(), torch.randn(16, 32)
"""

RECORDED = MODEL + "\nwith torch.no_grad(): torch.compile(net)(x)\n"

STOCK = """
import importlib, json, os, sys, time
began = time.perf_counter()
exec(open("model.py").read())
importlib.import_module(sys.argv[1])
probes = 0

def right():
    global probes
    probes += 1
    torch._dynamo.reset()
    try:
        with torch.no_grad():
            return bool(torch.allclose(torch.compile(net, backend=BACKEND)(x), net(x), rtol=1e-4, atol=1e-5))
    except Exception:
        return False

BACKEND = os.environ.get("TORCH_COMPILE_BACKEND", "inductor")
if len(sys.argv) > 2:
    sys.exit(0 if right() else 1)
from torch._inductor.compiler_bisector import CompilerBisector
try:
    found = str(CompilerBisector.do_bisect(right))
except Exception as error:
    found = f"{type(error).__name__}: {error}"
print("RESULT", json.dumps({"found": found, "probes": probes, "seconds": time.perf_counter() - began}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--cli", action="store_true", help="stock's command line as well (minutes)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-bisect-") as name:
        folder = Path(name)
        for file, text in (("model.py", MODEL), ("recorded.py", RECORDED), ("stock.py", STOCK)):
            (folder / file).write_text(text)
        graphdbg = [sys.executable, "-m", "graphdbg"]
        subprocess.run([*graphdbg, "dump", "-o", "run", "--inputs", "first", "recorded.py"], cwd=folder, check=True)
        for fault in options.faults.split(","):
            rows = [ours(folder, fault), stock(folder, fault)] + ([stock_cli(folder, fault)] if options.cli else [])
            show(fault, rows)


def ours(folder: Path, fault: str) -> dict[str, Any]:
    words = ["bisect", f"run/0_0/{FAULTS[fault]}", "--by", "pass", "--import", fault, "--json"]
    command = [sys.executable, "-m", "graphdbg", *words]
    text, seconds, cache = run(folder, command)
    document = json.loads(text)
    first = document["findings"][0] if document["findings"] else {}
    work = first.get("workaround") or {}
    verified = f" [work-around {'verified' if work.get('verified') else 'none'}]"
    return {
        "who": "graphdbg",
        "found": document["sentence"] + verified,
        "probes": document["probe_count"] + 1,
        "seconds": seconds,
        "cache": cache,
    }


def stock(folder: Path, fault: str) -> dict[str, Any]:
    text, _, cache = run(folder, [sys.executable, "stock.py", fault])
    document = json.loads(text.rpartition("RESULT ")[2])
    return {"who": "do_bisect", **document, "cache": cache}


def stock_cli(folder: Path, fault: str) -> dict[str, Any]:
    (folder / "count").write_text("")
    probe = f"echo >> count; {sys.executable} stock.py {fault} once"
    text, seconds, cache = run(
        folder, [sys.executable, "-m", "torch._inductor.compiler_bisector", "run", "sh", "-c", probe]
    )
    last = [line for line in text.splitlines() if line.startswith("Bisection complete")]
    probes = len((folder / "count").read_text().splitlines())
    return {
        "who": "stock CLI",
        "found": last[-1] if last else "nothing",
        "probes": probes,
        "seconds": seconds,
        "cache": cache,
    }


def run(folder: Path, command: list[str]) -> tuple[str, float, str]:
    """stdout, seconds, and what happened to the user's Inductor cache."""
    cache = Path(tempfile.mkdtemp(dir=folder))
    mine = cache / "ab" / "kernel.py"
    mine.parent.mkdir()
    mine.write_text("kernel = None\n")
    env = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "PYTHONPATH": str(PLANTED),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    if not done.stdout:
        raise SystemExit(done.stderr)
    files = sum(path.is_file() for path in cache.rglob("*")) if cache.exists() else 0
    state = (
        "user's cache untouched"
        if mine.exists() and files == 1
        else "user's cache written to"
        if mine.exists()
        else "USER'S CACHE DELETED"
    )
    return done.stdout, seconds, state


def show(fault: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{fault}")
    for row in rows:
        ratio = f"{row['seconds'] / rows[0]['seconds']:5.2f} x" if row is not rows[0] else "   1   "
        print(f"  {row['who']:<10} {row['probes']:>3} probes {row['seconds']:7.1f} s {ratio}  {row['cache']}")
        print(f"             {row['found'][:260]}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
