"""Each page of a symptom shows at least two planted programs: recorded, judged under that symptom, and the line of the
verdict."""

from __future__ import annotations

import re

import pytest

from graphdbg.toolkit.triage.symptoms import SYMPTOMS
from tests.docs.blocks import ROOT, blocks

PAGES = ROOT / "docs" / "symptoms"
VERDICT = re.compile(r"(FAILS|ROUNDING|NONDETERMINISTIC|CANNOT TELL)\b.*: ")
"""A verdict line; OK would be no answer to a planted fault."""


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_the_page_of_a_symptom_shows_two_runs_or_more_with_their_verdicts(symptom):
    shown = blocks((PAGES / f"{symptom}.md").read_text(encoding="utf-8"))
    scripts = [block.title for block in shown if block.language == "python" and block.title]
    commands = [command for block in shown if block.language == "console" for command in block.commands]
    recorded = [command.line for command in commands if "graphdbg dump " in command.line]
    judged = [command for command in commands if command.line.startswith("graphdbg triage ")]
    assert len(scripts) == len(set(scripts)) == len(recorded) == len(judged) >= 2
    for script, dump, triage in zip(scripts, recorded, judged, strict=True):
        run = triage.line.split()[2]
        assert f"-o {run} " in dump and dump.endswith(script)
        assert f"--symptom {symptom}" in triage.line
        lines = [line for line in triage.shown if VERDICT.match(line)]
        assert len(lines) == 1 and triage.exits == (4 if lines[0].startswith("CANNOT TELL") else 1)


def test_the_first_page_leads_to_each_symptom():
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    assert [name for name in SYMPTOMS if f"({name}.md)" not in text] == []
