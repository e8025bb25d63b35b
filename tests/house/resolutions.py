"""Where `pip install` of this project resolves: Python 3.10 to 3.13 by torch 2.11 to 2.15, CPU and CUDA builds, by a
dry run.

The ordinary wheels' metadata are asked through `uv pip compile`; CUDA builds are those for Linux, CPU builds those for
macOS. `make resolutions` installs uv and prints the table. Exit code 1 where a combination that torch has wheels for
does not resolve.

    python -m tests.house.resolutions [--uv UV]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .pythons import NO_WHEEL, PYTHONS, TORCHES

ROOT = Path(__file__).resolve().parents[2]
BUILDS = {"CUDA": "x86_64-manylinux_2_28", "CPU": "aarch64-apple-darwin"}
WANTED = {
    "graphdbg": [],
    "graphdbg[triton]": ["--extra", "triton"],
    "-c constraints.txt graphdbg[dev]": ["--extra", "dev", "-c", "constraints.txt"],
}


def resolved(uv: str, python: str, platform: str, words: list[str], torch: str) -> tuple[bool, str]:
    """Whether it resolves, with the versions of torch and triton that come, or the first line of the reason."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as asked:
        asked.write(f"torch=={torch}.*\n" if torch else "torch\n")
        asked.flush()
        command = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-version", python]
        command += ["--python-platform", platform, *words, "pyproject.toml", asked.name]
        newest = {
            **os.environ,
            "MACOSX_DEPLOYMENT_TARGET": "15.0",
        }  # uv's default is older than what torch is built for
        done = subprocess.run(command, cwd=ROOT, env=newest, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return False, " ".join(lines)[:300]
    result = dict(re.findall(r"^(torch|triton|nvidia-nccl-cu\d+)==(\S+)", done.stdout, re.M))
    return True, ", ".join(f"{name} {version}" for name, version in sorted(result.items(), reverse=True))


def main() -> int:
    """Prints a row for each combination."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--uv", default=str(Path(sys.executable).with_name("uv")))
    uv = parser.parse_args().uv
    bad = 0
    print(f"{'python':8}{'torch':8}{'build':7}{'asked':36}resolves")
    for python in PYTHONS:
        for build, platform in BUILDS.items():
            for asked, words in WANTED.items():
                for torch in ("",) if "constraints" in asked else TORCHES:
                    ok, what = resolved(uv, python, platform, words, torch)
                    expected = (python, torch) not in NO_WHEEL
                    bad += ok != expected
                    reported = (
                        f"yes: {what}" if ok else f"no: {what}" if expected else "no wheel of torch for this Python"
                    )
                    print(f"{python:8}{torch or '2.13.0':8}{build:7}{asked:36}{reported}", flush=True)
    print(f"{bad} otherwise than expected")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
