"""Two minutes of the fuzzer, each time anew; `make hostile` goes on for longer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from graphdbg.dumps import names
from graphdbg.dumps.errors import UnreadableError
from graphdbg.dumps.validate import check_graph

from ..dumps.graphs import chain
from . import mutations
from .counts import Counts

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_damaged_dumps_are_read_or_refused(tmp_path: Path) -> None:
    words = ["--minutes", "1.5", "--seed", "1001", "--counts", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.fuzz", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads((tmp_path / "1001.json").read_text())
    assert counts["wrong"] == {}
    assert counts["stages"]["replayed"] > 0
    assert counts["done"] == sum(counts["stages"].values())


@pytest.mark.slow
def test_killed_recordings_and_minifications_lose_nothing(tmp_path: Path) -> None:
    words = ["--kills-dump", "5", "--kills-minify", "1", "--no-inductor", "--seed", "1001", "--counts", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.kills", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for of, count in (("dump", 5), ("minify", 1)):
        counts = json.loads((tmp_path / f"1001-{of}.json").read_text())
        assert counts["wrong"] == {} and sum(counts["stages"].values()) >= count


def test_one_number_is_one_dump(tmp_path: Path) -> None:
    built: list[bytes] = []
    for name in ("a", "b"):
        dump = tmp_path / name / "case"
        dump.mkdir(parents=True)
        (dump / "graph.json").write_text(json.dumps({"format": 1, "graph": {"nodes": [{"name": "x"}, {"name": "y"}]}}))
        mutations.OUTSIDE = tmp_path
        mutations._json(dump / "graph.json", Random("1:7"))
        built.append((dump / "graph.json").read_bytes())
    assert built[0] == built[1]


def test_what_is_the_same_is_counted_once(tmp_path: Path) -> None:
    counts = Counts(3, tmp_path)
    text = f'Traceback\n  File "{ROOT}/dumps/x.py", line 3, in f\nKeyError: 1\n'
    for number in range(2):
        wrong = [{"kind": "code 70", "what": "ls R", "text": text}]
        counts.add({"number": number, "stage": "opened", "codes": {"70": 1}, "wrong": wrong})
    counts.keep()
    again = Counts(3, tmp_path)
    assert again.wrong == {"code 70 · x.py:3 · KeyError: 1": [0, 1]}
    assert (again.done, again.codes["70"]) == (2, 2)


@pytest.mark.parametrize(
    "meta", [{"dict": [[]]}, {"dict": [["outputs", 5]]}, {"dict": [["outputs", [["x"]]]]}, {"dict": 1}, {"odd": []}]
)
def test_names_of_no_form_are_refused(meta: object) -> None:
    """The fuzzer's: a graph's own metadata was not checked, and ended a replay in a ValueError."""
    record = chain()
    record.graph.meta[names.NAMES] = meta  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnreadableError):
        check_graph(record, "graph.json")
        names.outputs(record)
