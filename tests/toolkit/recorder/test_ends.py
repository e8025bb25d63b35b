"""However a recorded program ends, it ends as it would by itself, and what was recorded by then can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

import graphdbg

SCRIPT = str(Path(__file__).parent / "scripts" / "ends.py")
OUTPUT = pytest.approx(5.524413)


def _record(runner, way, **variables):
    return runner.dump(f"run-{way}", "--", SCRIPT, way, **variables)


@pytest.mark.slow  # test_ways_to_record has code 3 of a run recorded by the environment, test_deaths each way to die
@pytest.mark.parametrize(("way", "code"), [("exit", 3), ("kill", 137)])
def test_exit_code_is_the_programs_own(runner, way, code):
    done = _record(runner, way)
    assert (done.code, float(done.stdout)) == (code, OUTPUT), done.stderr
    run = graphdbg.open_run(done.run)
    assert run.graph("0_0/inference").status == "ran"
    assert run.graph("0_0/inference").record.graph.nodes


def test_a_failing_compile_names_graph_stage_and_error(runner):
    done = _record(runner, "planted")
    assert done.code == 1
    assert "CppCompileError" in done.stderr
    run = graphdbg.open_run(done.run)
    saved = run.graph("1_0/inference")
    assert saved.status == "failed"
    assert saved.error is not None and "CppCompileError" in saved.error
    assert "graphdbg minify run-planted/1_0/inference" in done.stderr


@pytest.mark.slow  # test_held has the user's exception at a step, which is as clean
def test_a_users_exception_shows_no_frame_of_ours(runner):
    done = _record(runner, "broken_run")
    assert done.code == 1
    assert "ZeroDivisionError" in done.stderr
    assert "observe.py" not in done.stderr and "dynamo_hooks.py" not in done.stderr
    assert graphdbg.open_run(done.run).graph("1_0/dynamo").status == "failed"


@pytest.mark.slow
def test_a_forked_child_gets_a_folder_of_its_own(runner):
    done = _record(runner, "fork")
    assert done.code == 0, done.stderr
    run = graphdbg.open_run(done.run)
    assert len(run.processes) == 2
    assert len({saved.process for saved in run.graphs()}) == 2


@pytest.mark.slow
def test_an_empty_run_says_why(runner):
    assert "nothing was compiled; wrap the model in torch.compile(model)" in _record(runner, "nothing").stderr
    done = runner.dump("run-disabled", "--", SCRIPT, "exit", TORCHDYNAMO_DISABLE="1")
    assert done.code == 3
    assert "TORCHDYNAMO_DISABLE is set" in done.stderr
    done = runner.dump("run-no-torch", "--", "-c", "print(1)")
    assert (done.code, done.stdout) == (0, b"1\n")
    assert "never imported torch" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("way", ["raise", "segv", "broken_backend", "exit", "fork"])
def test_output_and_exit_code_equal_a_plain_run(runner, way):
    plain = runner.script("ends.py", way)
    done = runner.dump(f"slow-{way}", "--", SCRIPT, way)
    assert (done.code, done.stdout) == (plain.code, plain.stdout)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_failing_recorder_changes_nothing_and_is_told(runner, backend):
    done = runner.dump(f"sabotage-{backend}", "--", str(Path(SCRIPT).with_name("sabotage.py")), backend)
    assert (done.code, float(done.stdout)) == (0, pytest.approx(1.620907)), done.stderr
    assert "not recorded, 0_0/dynamo and" in done.stderr and "a defect of the recorder" in done.stderr


@pytest.mark.slow
def test_a_run_that_cannot_be_written_changes_nothing(runner):
    (runner.folder / "file").touch()
    done = runner.python(SCRIPT, "exit", GRAPHDBG="file/run")
    assert (done.code, float(done.stdout)) == (3, OUTPUT)
    assert "nothing could be recorded" in done.stderr
