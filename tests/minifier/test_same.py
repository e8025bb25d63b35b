"""`graphdbg same`: cases, folders, programs and graphs of runs beside each other. Hardly any graph is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphdbg.cli import run as graphdbg
from graphdbg.minifier import sameness
from graphdbg.minifier.sameness import ComparedFailure, compared
from graphdbg.toolkit.verdicts.identity import identity
from graphdbg.toolkit.verdicts.signature import Signature

from .report.cases import ACCURACY, CRASH, call, node, record_of, relu_record, tensor

AMIN = record_of({"x": tensor(4, 8)}, [call("y", "torch.amin", node("x"), value=tensor())], ["y"])
ATEN = record_of(
    {"x": tensor(2)}, [call("y", "aten.amin.default", node("x"), value=tensor())], ["y"], stage="inference"
)


def case(path: Path, record: Any, signature: Signature, *, original: int | None = 318) -> Path:
    """A case folder as minify leaves it, inside of its OUT; `original` None: it was not minimised."""
    folder = path / "case"
    folder.mkdir(parents=True)
    (folder / "graph.json").write_bytes(msgspec.json.encode(record))
    about = {"signature": msgspec.to_builtins(signature), "rung": "inductor"}
    (folder / "case.json").write_text(json.dumps(about | ({"original": {"nodes": original}} if original else {})))
    return path


def same(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        graphdbg(["same", *map(str, words), "--json"])
    return int(end.value.code or 0), json.loads(capsys.readouterr().out)


def test_folders_cases_and_programs_of_one_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item, other = case(tmp_path / "a", AMIN, ACCURACY), case(tmp_path / "b", ATEN, ACCURACY)
    (other / "repro.py").write_text('"""It fails."""\n')
    alone = tmp_path / "repro.py"
    for name in (other, other / "case", other / "repro.py"):
        code, reported = same(capsys, item, name)
        assert (code, reported["says"], reported["a"]["signature_id"]) == (0, "same", reported["b"]["signature_id"])
    alone.write_text(f'"""Reduced by graphdbg. Signature {reported["a"]["signature_id"]}."""\n')
    assert same(capsys, alone, item)[0] == 0
    assert same(capsys, tmp_path, item)[0] == 0  # the folder that report wrote
    alone.write_text('"""Reduced by graphdbg. Signature 00000000."""\n')
    assert same(capsys, alone, item)[0] == 1
    alone.write_text('"""A graph of 50 nodes, not\nminimised. Signature\n00000000."""\n')
    assert same(capsys, alone, item)[0] == 4


def test_other_failures_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item = case(tmp_path / "a", AMIN, ACCURACY)
    code, reported = same(capsys, item, case(tmp_path / "b", relu_record(), ACCURACY))
    assert (code, reported["reason"]) == (1, "one needs amin, the other relu")
    code, reported = same(capsys, item, case(tmp_path / "c", AMIN, CRASH))
    assert (code, reported["reason"], reported["next"]) == (1, "the kind differs: accuracy and crash", [])


def test_what_is_not_minimised_is_to_be_minimised_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = record_of(
        {"x": tensor(4, 8)},
        [call("y", "torch.amin", node("x"), value=tensor()), call("z", "torch.relu", node("y"), value=tensor())],
        ["z"],
    )
    item, other = case(tmp_path / "a", AMIN, ACCURACY), case(tmp_path / "b", whole, ACCURACY, original=None)
    code, reported = same(capsys, item, other)
    assert (code, reported["says"]) == (4, "cannot_tell")
    assert reported["next"] == [f"graphdbg minify {other}"]


def test_what_cannot_be_read_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item = case(tmp_path / "a", AMIN, ACCURACY)
    (tmp_path / "mine.py").write_text("print(1)\n")
    assert graphdbg(["same", str(item), str(tmp_path / "mine.py")]) == 2
    assert "does not say which failure it shows" in capsys.readouterr().err
    assert graphdbg(["same", str(item), str(tmp_path / "none")]) == 2


def test_minified_cases_that_share_some_operations_cannot_be_told_apart() -> None:
    def side(*names: str) -> ComparedFailure:
        result = identity(ACCURACY, [("call_function", f"aten.{name}.default") for name in names], reduced=True)
        return ComparedFailure(" ".join(names), result.id, failure=result, signature=ACCURACY)

    result = compared(side("amin"), side("amin", "exp"))
    assert result.says == "cannot_tell"
    assert result.reason == "both are minimised and need amin, but their other operations differ"


def test_texts_that_are_alike_are_the_same_failure() -> None:
    frames = ("torch._inductor.ir:make", "torch._inductor.lowering:lower")
    sides: list[ComparedFailure] = []
    for text in (f"expected the size of a view to be known {when} it is lowered" for when in ("before", "when")):
        signature = Signature("crash", "compile", "RuntimeError", text, frames)
        failure = identity(signature, [], reduced=True)
        sides.append(ComparedFailure("x", failure.id, failure=failure, signature=signature))
    assert sides[0].id != sides[1].id
    assert compared(*sides).says == "same"


def test_the_rung_of_a_case_is_taken_for_a_graph_of_a_run(tmp_path: Path) -> None:
    item = case(tmp_path / "a", AMIN, ACCURACY)
    document = json.loads((item / "case" / "case.json").read_text())
    (item / "case" / "case.json").write_text(json.dumps(document | {"rung": "decomposed"}))
    assert [sameness.rung_of(str(name)) for name in (item, item / "case", item / "repro.py", tmp_path)] == [
        "decomposed"
    ] * 3 + [""]


@pytest.mark.slow
def test_a_graph_that_is_replayed_is_compared_with_a_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The planted bug needs a C++ compiler; the replay, its JSON and the case say one id."""
    item = case(tmp_path / "a", relu_record("compile_error"), CRASH)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "graph.json").write_bytes((item / "case" / "graph.json").read_bytes())
    (fresh / "case.json").write_text(json.dumps({"original": {"nodes": 9}}))
    code, reported = same(capsys, item, fresh)
    assert (code, reported["b"]["signature_id"]) == (0, reported["a"]["signature_id"])
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        graphdbg(["replay", str(fresh), "--json"])
    assert (end.value.code, json.loads(capsys.readouterr().out)["signature_id"]) == (1, reported["a"]["signature_id"])
