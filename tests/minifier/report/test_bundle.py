"""Which program is chosen, what is written and never overwritten, what is said when nothing fails. Processes are
stand-ins."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from graphdbg.cli import run as graphdbg
from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.pack.redact import Redactor
from graphdbg.dumps.schema import FORMAT, GraphRecord, InputRecord, InputsRecord
from graphdbg.dumps.store import SavedGraph, load_graph
from graphdbg.dumps.tensors import TensorStore
from graphdbg.minifier import casefile
from graphdbg.minifier.report import bundle, trying, verify
from graphdbg.minifier.report.bundle import search_link
from graphdbg.toolkit.isolation import fresh
from graphdbg.toolkit.verdicts import verdict
from graphdbg.toolkit.verdicts.identity import of_record
from graphdbg.toolkit.verdicts.signature import Signature

from .cases import ACCURACY, CRASH, call, record_of, relu_record, stored, tensor

Judge = Callable[[str], int]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[[Judge], list[str]]:
    """Puts a function of the program's text in the place of fresh processes, which end with 0 without the fault; the
    list gathers the programs that were run with it."""
    seen: list[str] = []

    def install(judge: Judge) -> list[str]:
        def run_once(program: Path, *flags: str, **_: object) -> fresh.FreshRun:
            if flags:
                return fresh.FreshRun(0, "", 0.1)
            seen.append(program.read_text())
            return fresh.FreshRun(judge(seen[-1]), f"{CRASH.error}: {CRASH.raw}", 0.1)

        monkeypatch.setattr(fresh, "run_once", run_once)
        monkeypatch.setattr(verify, "probe", lambda program, **_: {"eager": 0, "aot_eager": 0})
        monkeypatch.setattr(trying, "toolchain_seed", lambda: None)
        return seen

    return install


def case_folder(path: Path, record: GraphRecord, *, inputs: bool = False) -> SavedGraph:
    """A case folder on disk."""
    path.mkdir(parents=True)
    (path / "graph.json").write_bytes(msgspec.json.encode(record))
    if inputs:
        held = stored(TensorStore(path / "tensors"), bytes(128), tensor(4, 8))  # type: ignore[arg-type]
        seen = InputsRecord(format=FORMAT, inputs=[InputRecord(name="x", value=tensor(4, 8), stored=held)])
        (path / "inputs.json").write_bytes(msgspec.json.encode(seen))
    return load_graph(path)


def quiet(_: str) -> None:
    """Narrates nothing."""


def test_the_plainest_program_that_fails_is_written(tmp_path: Path, judged: Callable[[Judge], list[str]]) -> None:
    seen = judged(lambda text: 1)
    report = bundle.emit_report(
        case_folder(tmp_path / "case", relu_record()), tmp_path / "out", signature=ACCURACY, original=318, narrate=quiet
    )
    assert (report.rate, report.verified, report.entry, report.inputs) == (
        "3 of 3 fresh processes",
        True,
        "torch.compile",
        "seeded",
    )
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert report.repro and report.repro.read_text() == seen[0]
    text = report.issue.read_text()
    assert "Minimised from 318 to 3 nodes" in text
    assert "in 3 of 3 fresh processes" in text
    assert "inductor (eager and aot_eager pass)" in text
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["issue.md", "repro.py"]
    failure = of_record(ACCURACY, relu_record(), reduced=True)
    assert (report.as_json()["signature_id"], report.signature_id) == (failure.id, failure.id)
    assert f"Signature {failure.id}." in seen[0]
    assert f"- Signature: `{failure.id}`" in text
    assert search_link(failure, "", Redactor()) in text.splitlines()[0]


def test_the_inner_compiler_and_stored_inputs_are_fallbacks(
    tmp_path: Path, judged: Callable[[Judge], list[str]]
) -> None:
    judged(lambda text: int("compile_fx_inner(" in text and "torch.zeros" not in text and "torch.tensor(" in text))
    record = relu_record()
    saved = case_folder(tmp_path / "case", record, inputs=True)
    report = bundle.emit_report(saved, tmp_path / "out", signature=ACCURACY, narrate=quiet)
    assert (report.entry, report.inputs, report.verified) == ("compile_fx_inner", "literal", True)
    assert "First failing layer: inductor." in report.issue.read_text()


def test_no_layer_is_named_where_none_was_asked(tmp_path: Path, judged: Callable[[Judge], list[str]]) -> None:
    judged(lambda text: int("compile_fx(symbolic_trace(" in text))
    record = msgspec.structs.replace(relu_record(), stage="dynamo")
    report = bundle.emit_report(
        case_folder(tmp_path / "case", record), tmp_path / "out", signature=ACCURACY, narrate=quiet
    )
    assert (report.entry, report.verified) == ("as recorded", True)
    assert "layer" not in report.issue.read_text()


BEHIND = ", behind the wall that is around runs of others (--trust: without it)"


def test_a_program_that_does_not_fail_is_no_proof(tmp_path: Path, judged: Callable[[Judge], list[str]]) -> None:
    judged(lambda text: 0)
    report = bundle.emit_report(
        case_folder(tmp_path / "case", relu_record()), tmp_path / "out", signature=ACCURACY, narrate=quiet
    )
    assert not report.verified
    assert "does not show it reliably:** it did in 0 of 1 fresh process" in report.issue.read_text()
    assert report.notes[-1].endswith(f"it ended with exit code 0: {CRASH.error}: {CRASH.raw}{BEHIND}")


def test_nothing_is_overwritten(tmp_path: Path, judged: Callable[[Judge], list[str]]) -> None:
    seen = judged(lambda text: 1)
    out = tmp_path / "out"
    out.mkdir()
    (out / "issue.md").write_text("mine")
    with pytest.raises(UsageError, match=r"issue\.md: it exists already"):
        bundle.emit_report(case_folder(tmp_path / "case", relu_record()), out, signature=ACCURACY, narrate=quiet)
    assert (out / "issue.md").read_text() == "mine"
    assert not seen


def test_what_has_no_plain_form_gives_an_issue_without_a_program(
    tmp_path: Path, judged: Callable[[Judge], list[str]]
) -> None:
    judged(lambda text: 1)
    saved = case_folder(tmp_path / "case", relu_record())
    report = bundle.emit_report(
        saved, tmp_path / "out", signature=Signature("nondeterministic", "eager"), narrate=quiet
    )
    assert report.repro is None
    assert (
        "no repro.py: no repro can be written for a failure of the kind 'nondeterministic' yet"
        in report.issue.read_text()
    )


def test_a_hostile_graph_is_refused_before_anything_runs(tmp_path: Path, judged: Callable[[Judge], list[str]]) -> None:
    from graphdbg.dumps.errors import RefusedError

    seen = judged(lambda text: 1)
    record = record_of({"x": tensor(2)}, [call("y", "torch.load", "x")], ["y"])
    saved = case_folder(tmp_path / "case", record)
    with pytest.raises(RefusedError, match=r"torch\.load"):
        bundle.emit_report(saved, tmp_path / "out", signature=ACCURACY, narrate=quiet)
    assert not seen
    assert not (tmp_path / "out").exists()


def test_home_folders_leave_the_program_too(tmp_path: Path, judged: Callable[[Judge], list[str]]) -> None:
    seen = judged(lambda text: 1)
    home = str(Path.home())
    failure = Signature("crash", "compile", "RuntimeError", f"cannot open {home}/x", raw=f"cannot open {home}/x")
    bundle.emit_report(
        case_folder(tmp_path / "case", relu_record()), tmp_path / "out", signature=failure, narrate=quiet
    )
    assert home not in seen[0]
    assert "cannot open <path>" in seen[0]


def test_the_command_takes_what_minify_left(
    tmp_path: Path, judged: Callable[[Judge], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    seen = judged(lambda text: 1)
    case_folder(tmp_path / "small" / "case", relu_record())
    left = {
        "signature": msgspec.to_builtins(ACCURACY),
        "rung": "inductor",
        "original": {"nodes": 318},
        "spec": {"more": 1},
    }
    (tmp_path / "small" / "case" / "case.json").write_text(json.dumps(left))
    (tmp_path / "small" / "journal.jsonl").write_text('{"case": "original"}\n')
    assert graphdbg(["report", str(tmp_path / "small"), "-o", str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rate"], document["original_nodes"]) == ("3 of 3 fresh processes", 318)
    assert len(seen) == 3
    assert (tmp_path / "out" / "artifacts.zip").exists()
    assert graphdbg(["report", str(tmp_path / "small"), "-o", str(tmp_path / "out")]) == 2
    assert "exists" in capsys.readouterr().err
    assert graphdbg(["report", str(tmp_path / "small"), "-o", str(tmp_path / "again"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rate"] == "4 of 4 fresh processes"
    assert len(seen) == 4


def test_a_damaged_case_file_is_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case_folder(tmp_path / "case", relu_record())
    (tmp_path / "case" / casefile.NAME).write_text("{")
    assert graphdbg(["report", str(tmp_path / "case"), "-o", str(tmp_path / "out")]) == 2
    assert "case.json" in capsys.readouterr().err


def test_a_graph_that_does_not_fail_has_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from graphdbg.toolkit.replaying import replay
    from graphdbg.toolkit.verdicts.outcome import Outcome

    case_folder(tmp_path / "case", relu_record())
    monkeypatch.setattr(replay, "replay", lambda saved, **_: Outcome())
    assert graphdbg(["report", str(tmp_path / "case"), "-o", str(tmp_path / "out")]) == 1
    assert "does not fail under inductor on this machine" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_graph_that_cannot_be_judged_has_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from graphdbg.toolkit.replaying import replay
    from graphdbg.toolkit.verdicts.outcome import Outcome

    case_folder(tmp_path / "case", relu_record())
    flaky = Signature("nondeterministic", "eager", raw="eager gives different results")
    monkeypatch.setattr(replay, "replay", lambda saved, **_: Outcome(verdict.judged(flaky), flaky))
    assert graphdbg(["report", str(tmp_path / "case"), "-o", str(tmp_path / "out")]) == 4
    assert "eager gives different results" in capsys.readouterr().err


def test_an_unminified_graph_says_so(
    tmp_path: Path,
    judged: Callable[[Judge], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from graphdbg.toolkit.replaying import replay
    from graphdbg.toolkit.verdicts.outcome import Outcome

    judged(lambda text: 1)
    case_folder(tmp_path / "case", relu_record())
    monkeypatch.setattr(replay, "replay", lambda saved, **_: Outcome(verdict.judged(ACCURACY), ACCURACY))
    assert graphdbg(["report", str(tmp_path / "case"), "-o", str(tmp_path / "out")]) == 0
    assert "is not minimised" in capsys.readouterr().err
    assert "as recorded, not minimised: 3 nodes" in (tmp_path / "out" / "issue.md").read_text()


def test_a_report_that_is_there_is_run_again_and_packed_and_nothing_is_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "small"
    case_folder(out / "case", relu_record())
    (out / "case" / "case.json").write_text(
        json.dumps({"signature": msgspec.to_builtins(ACCURACY), "rung": "inductor"})
    )
    (out / "repro.py").write_text("import sys\nsys.exit(1)\n")
    (out / "issue.md").write_text("it is wrong\n")
    assert graphdbg(["report", str(out)]) == 2  # nobody wrote this program here
    assert "--trust" in capsys.readouterr().err and not (out / "artifacts.zip").exists()
    for archive in ("written", "there already"):
        assert graphdbg(["report", str(out), "--trust", "--json"]) == 0, archive
        printed = capsys.readouterr()
        said = json.loads(printed.out)
        assert (said["repro"], said["shown"], said["times"]) == ("shows", 3, 3)
        assert ("there already" in printed.err) == (archive == "there already")
    with zipfile.ZipFile(out / "artifacts.zip") as packed:
        assert packed.read("issue.md") == b"it is wrong\n" and "case/graph.json" in packed.namelist()
    (out / "repro.py").write_text("import sys\nsys.exit(0)\n")
    assert graphdbg(["report", str(out), "--trust"]) == 1
