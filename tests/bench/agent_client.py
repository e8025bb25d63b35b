"""An agent with no ideas of its own: from a failing command to verdict, verified repro and what is to blame, in five
commands.

It knows the steps of SKILL.md, reads JSON alone, and takes commands of `next` where they fit; each is counted.

    python agent_client.py OUT [--max-time 90] -- python train.py
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MOST = 5


class Client:
    """Runs commands in a folder; `told` keeps each with its answer's verdict, bytes and seconds."""

    def __init__(self, folder: Path, max_time_s: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.most, self.told = folder, str(max_time_s), list[dict[str, Any]]()

    def run(self, *words: str) -> dict[str, Any]:
        """The answer of one command; {} where it prints none."""
        began = time.monotonic()
        with (self.folder / "stderr.txt").open("a") as said:
            said.write(f"$ graphdbg {shlex.join(words)}\n")
            said.flush()
            done = subprocess.run(
                [sys.executable, "-m", "graphdbg", *words],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        answer: dict[str, Any] = {}
        if "--json" in words and done.stdout.strip():
            answer = json.loads(done.stdout.splitlines()[-1])
        messages = {
            "command": shlex.join(["graphdbg", *words]),
            "code": done.returncode,
            "verdict": answer.get("verdict"),
        }
        self.told.append(messages | {"bytes": len(done.stdout.encode()), "seconds": round(time.monotonic() - began)})
        (self.folder / f"answer{len(self.told)}.json").write_text(done.stdout)
        return answer

    def step(self, command: str, answer: dict[str, Any], *more: str) -> list[str]:
        """The words of a command in `next` with options of our own; [] where there is none of that name."""
        named = [shlex.split(item)[1:] for item in answer.get("next") or [] if item.startswith(f"graphdbg {command} ")]
        return [*named[0][:1], *more, *named[0][1:]] if named else []

    def solve(self, program: list[str]) -> dict[str, Any]:
        """What came of it."""
        options = ("--json", "--max-time", self.most)
        self.run("dump", "-o", "run", "--inputs", "first", "--", *program)
        result = self.run("triage", *options, "run")
        shrink = self.step("minify", result, *options, "-o", "small")
        if result.get("verdict") == "fails":
            done = self.run(*(shrink or ["minify", *options, "-o", "small", "run"]))
        elif result.get("verdict") == "rounding" and shrink:
            done = self.run(*shrink)
        else:
            done = result = self.run("minify", *options, "-o", "small", "--", *program)
        blamed: dict[str, Any] = {}
        if why := self.step("bisect", done, *options) or self.step("bisect", result, *options):
            blamed = self.run(*why)
        return {
            "commands": len(self.told),
            "verdict": result.get("verdict"),
            "kind": result.get("kind"),
            "layer": result.get("layer"),
            "repro": done.get("repro"),
            "rate": done.get("report_rate") or done.get("repro_rate"),
            "nodes": [done.get("original_nodes"), done.get("nodes")],
            "blamed": blamed.get("sentence") or (done.get("workaround") if done.get("verdict") == "rounding" else None),
            "largest_answer": max(item["bytes"] for item in self.told if "--json" in item["command"]),
            "seconds": sum(item["seconds"] for item in self.told),
            "told": self.told,
        }


def main() -> int:
    """0: a verdict, a repro that shows it, and what is to blame (no pass of a layer above Inductor, of rounding the
    setting)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--max-time", type=int, default=90)
    parser.add_argument("program", nargs="+")
    asked = parser.parse_args()
    row = Client(asked.out, asked.max_time).solve(asked.program)
    print(json.dumps(row))
    blamed = bool(row["blamed"]) or row["layer"] in ("dynamo", "aot_autograd", "decomposition")
    return int(not (row["verdict"] and row["repro"] == "shows" and blamed and row["commands"] <= MOST))


if __name__ == "__main__":
    sys.exit(main())
