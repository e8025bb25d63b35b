"""What is plainer is kept though its inputs take more bytes, and later passes go on from there. No torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphdbg.minifier.search.problem import Answer, Candidate
from tests.minifier.abstract import Abstract, run
from tests.minifier.generated import needs, transformer


class Wider(Abstract):
    """Each edit of `dtypes` makes the inputs 8 bytes larger; one of `names` changes no size."""

    seen: tuple[Candidate, ...] = ()

    def together(self, candidate: Candidate) -> tuple[list[str], list[str]]:
        return [], ["dtypes", "names"]

    def propose(self, name: str, candidate: Candidate) -> list[list[str]]:
        return {"dtypes": [["dtypes a b", "dtypes c d"]], "names": [["names canonical"]]}.get(name, [])

    def test(self, candidate: Candidate) -> Answer:
        answer = super().test(candidate)
        wider = sum(edit.startswith("dtypes") for edit in candidate.edits)
        self.seen = (*self.seen, candidate)
        if "dtypes c d" in candidate.edits:  # the failure needs c
            return Answer(type(answer.verdict).PASS, nodes=answer.nodes, input_bytes=answer.input_bytes)
        return replace(answer, input_bytes=answer.input_bytes + 8 * wider)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_plainer_case_is_kept_and_gone_on_from(tmp_path: Path, jobs: int) -> None:
    problem = Wider(transformer(60), needs([30]))
    result = run(problem, tmp_path / "out", jobs=jobs)
    assert problem.seen[-1].edits == ("dtypes a b", "names canonical")
    assert result.verified[0] == result.verified[1]
    bytes_ = [size for _, _, size in result.history]
    assert bytes_[-1] == bytes_[-3] + 8, "one dtype was taken, the names after it"
    again = run(Wider(transformer(60), needs([30])), tmp_path / "out", jobs=jobs, resume=True)
    assert (again.history, again.queries) == (result.history, result.queries)
