"""Writes `tui/tour.zip`, the run of the tour: `python -m tests.tui.record_tour DEMO`, with the folder of
`graphdbg demo --plant compile_error -o DEMO`. It is packed (redacted: no path, host or user of this machine is in it)
and small.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TARGET = Path(__file__).parent.parent.parent / "tui" / "tour.zip"
LIMIT = 200_000
KEPT = (
    "journal.jsonl",
    "events.jsonl",
    "atoms.jsonl",
    "issue.md",
    "repro.py",
    *(f"case/{name}" for name in ("case.json", "graph.json", "graph.py", "table.msgpack", "inputs.json", "repro.json")),
)
"""Of the folder of the minification: what its screens read; no tensors."""


def main(demo: Path) -> None:
    run, out = demo / "compile_error" / "run", demo / "compile_error" / "small"
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "gpt.packed"
        subprocess.run([sys.executable, "-m", "graphdbg", "pack", str(run), "-o", str(packed)], check=True)
        with zipfile.ZipFile(TARGET, "w", zipfile.ZIP_DEFLATED) as file:
            file.write(packed, packed.name)
            for name in KEPT:
                if (out / name).exists():
                    file.writestr(f"small/{name}", scrubbed((out / name).read_bytes(), demo))
    assert TARGET.stat().st_size < LIMIT, TARGET.stat().st_size


def scrubbed(data: bytes, demo: Path) -> bytes:
    """Without the folders of this machine."""
    whole = str(demo.resolve())
    short = whole.replace(tempfile.gettempdir(), "<tmp>")
    for path in (whole, short, str(Path(sys.prefix).resolve()), str(Path.home()), str(TARGET.parent.parent)):
        data = data.replace(path.encode() + b"/", b"").replace(path.encode(), b"")
    return data


if __name__ == "__main__":
    main(Path(sys.argv[1]))
