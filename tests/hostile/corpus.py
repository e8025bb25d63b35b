"""What the fuzzer starts from: a recorded run, a case, a pack and the folder of a minification, all made by the tools
themselves.

>>> made = corpus(Path(".cache/hostile/corpus"))
>>> sorted(made)
['case', 'out', 'pack', 'run', 'small']
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "tui/tour.zip"

SMALL = """
import sys
import torch
import graphdbg

x, y = torch.ones(5, 5), torch.ones(5, 5)
with graphdbg.record(sys.argv[1], inputs="first"):
    torch.compile(lambda x, y: torch.where(x > 0, x @ y, x.sum(-1, keepdim=True)) * 2.0, dynamic=True)(x, y)
"""
SCRIPT = """
import sys
import torch
import graphdbg

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)
        self.table = torch.nn.Embedding(11, 6)

    def forward(self, tokens, scale):
        hidden = torch.relu(self.up(self.table(tokens))) * scale
        return self.down(hidden.view(-1, 8)).softmax(-1)

torch.manual_seed(0)
model = Model()
compiled = torch.compile(model, dynamic=True)
with graphdbg.record(sys.argv[1], inputs="first"):
    for rows in (4, 7):
        compiled(torch.randint(0, 11, (rows, 5)), 2.5).square().sum().backward()
    torch.compile(lambda x: torch.cat([x.sin(), x.cos()]).sum())(torch.ones(5, 2))

def case(x, y):
    return torch.where(x > 0, x @ y, x.sum(-1, keepdim=True)) * 2.0

from torch.fx.experimental.proxy_tensor import make_fx
x, y = torch.randn(4, 4), torch.randn(4, 4)
graphdbg.save_graph(make_fx(case, tracing_mode="symbolic")(x, y), [x, y], sys.argv[2])
"""


def corpus(folder: Path) -> dict[str, Path]:
    """The dumps by kind; made once in a folder."""
    built = {
        "run": folder / "run",
        "case": folder / "case",
        "small": folder / "small",
        "pack": folder / "pack.zip",
        "out": folder / "out",
    }
    whole = folder / f"whole-{zlib.crc32((SMALL + SCRIPT).encode()):x}"
    if not whole.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        subprocess.run([sys.executable, "-c", SCRIPT, built["run"], built["case"]], check=True, cwd=folder)
        subprocess.run([sys.executable, "-c", SMALL, built["small"]], check=True, cwd=folder)
        words = ["pack", built["small"], "-o", built["pack"], "--tensors"]
        subprocess.run([sys.executable, "-m", "graphdbg", *words], check=False, cwd=folder, capture_output=True)
        with zipfile.ZipFile(TOUR) as packed:
            packed.extractall(folder / "tour")
        out = next(path.parent for path in (folder / "tour").rglob("case.json") if path.parent.name == "case").parent
        shutil.copytree(out, built["out"])
        shutil.copytree(built["case"], built["out"] / "case", dirs_exist_ok=True)  # the tour's own has no tensors
        whole.touch()
    return built


def importable(home: Path) -> None:
    """This checkout is what `import graphdbg` gives, here and in what is started, where it was not installed either."""
    result = importlib.util.find_spec("graphdbg")
    if result is not None and result.origin and Path(result.origin).resolve().parent == ROOT:
        return
    place = home / "path"
    place.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (place / "graphdbg").symlink_to(ROOT)
    sys.path.insert(0, str(place))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))
