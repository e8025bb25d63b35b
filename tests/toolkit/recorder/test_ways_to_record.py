"""GRAPHDBG=RUN without a wrapper, `with graphdbg.record(...)`, `-m module`, and requests that make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

import graphdbg

SCRIPTS = Path(__file__).parent / "scripts"
ENDS = str(SCRIPTS / "ends.py")


@pytest.mark.long
def test_environment_alone_records_and_never_overwrites(runner):
    (runner.folder / "alone").mkdir()
    (runner.folder / "alone" / "run.json").write_text("an earlier one")
    done = runner.python(ENDS, "exit", GRAPHDBG="alone")
    assert (done.code, float(done.stdout)) == (3, pytest.approx(5.524413))
    assert "recorded 5 graphs of 1 process in alone-2:" in done.stderr
    assert graphdbg.open_run(runner.folder / "alone-2").graph("0_0/inference").status == "ran"
    assert [path.read_text() for path in (runner.folder / "alone").iterdir()] == ["an earlier one"]


@pytest.mark.slow
def test_environment_alone_takes_the_name_and_then_the_next(runner):
    for name in ("twice", "twice-2"):
        done = runner.python(ENDS, "exit", GRAPHDBG="twice")
        assert done.code == 3
        assert f"recorded 5 graphs of 1 process in {name}:" in done.stderr


@pytest.mark.slow  # `recorded_script` records by it in most tests
def test_record_block(runner):
    done = runner.script("blocks.py")
    assert done.code == 0, done.stderr
    assert done.stdout.splitlines() == [b"inside", b"unpatched True", b"outside", b"taken", b"again"]
    assert graphdbg.open_run(runner.folder / "block").graph("0_0/inference").inputs_record.policy == "first"
    assert not (runner.folder / "block").joinpath("never").exists()
    assert "compiled before the recording began" in done.stderr
    assert len(graphdbg.open_run(runner.folder / "block").graphs()) == 5


@pytest.mark.slow
def test_module_and_python_words(runner):
    done = runner.dump("module", "--stages", "inference,post_grad", "-m", "ends", "exit", PYTHONPATH=str(SCRIPTS))
    assert done.code == 3, done.stderr
    assert done.graphs() == {"0_0/inference", "0_0/post_grad_inference"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--inputs", "some", "x.py"], "unknown inputs policy"),
        (["--stages", "frontend", "x.py"], "unknown stage"),
        (["--when", "nan,often", "x.py"], "unknown word 'often' for --when: it takes nan and error"),
        (["--held-limit", "much", "x.py"], "'much' is not a size"),
        (["nowhere.py"], "cannot run nowhere.py: there is no such script"),
        (["nowhere"], "there is no such script or program"),
        ([], "nothing to run"),
    ],
)
def test_senseless_requests_are_one_sentence_and_exit_2(runner, words, text):
    done = runner.dump("senseless", *words)
    assert done.code == 2
    assert done.stderr.startswith("graphdbg: ") and text in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (runner.folder / "senseless").exists()


def test_a_misspelled_option_is_not_taken_for_the_program(runner):
    done = runner.dump("misspelled", "--max_disk=3G", "--", ENDS, "exit")
    assert done.code == 2
    assert "No such option '--max_disk'. Did you mean '--max-disk'? [GD02]" in done.stderr


def test_an_existing_folder_is_refused(runner):
    (runner.folder / "mine").mkdir()
    (runner.folder / "mine" / "thesis.tex").write_text("years of work")
    done = runner.dump("mine", ENDS, "exit")
    assert done.code == 2
    assert "not empty" in done.stderr
    assert [path.name for path in (runner.folder / "mine").iterdir()] == ["thesis.tex"]
