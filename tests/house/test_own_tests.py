"""The tests' house: `tests` is a package beside `graphdbg`; its files are imported by their full names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from .source_tree import ROOMS, ROOT

SEARCHED = {
    "conftest.py": "puts it back after each test",
    "one_server.py": "compares it with what the shared server searches",
    "bench/bench_by_node.py": "modules for --import, which commands of this process look for",
    "bench/bench_pytest.py": "in the text of a user's test",
    "hostile/corpus.py": "a checkout that is not installed",
    "house/results.py": "its models are programs that a checkout without these tests may record",
    "house/walk.py": "walks another checkout",
    "matrix/minify_matrix.py": "modules for --import, which commands of this process look for",
    "matrix/planted_repros.py": "in the text that runs a repro under -I",
    "matrix/unseen_matrix.py": "a checkout that is not installed",
    "minifier/in_pytest/case_suite.py": "in the text of a user's test",
    "minifier/report/property_run.py": "modules for --import; and in the text that runs a repro alone",
    "minifier/report/test_bare.py": "is about it",
    "toolkit/recorder/scripts/gpu.py": "a user's script",
    "toolkit/test_command_options.py": "is about it",
}
"""The files that look at or change where Python searches, and why."""
TESTS = ROOT / "tests"
FILES = {
    path.relative_to(TESTS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(TESTS.rglob("*.py"))
    if path.name != "test_own_tests.py"
}


def test_where_python_searches_is_left_alone() -> None:
    assert {name for name, text in FILES.items() if "sys.path" in text} == set(SEARCHED)


def test_what_is_ours_is_imported_as_graphdbg_alone() -> None:
    """The root is searched for `tests`, so `import dumps` would be a second module of the same file."""
    wrong = [
        f"tests/{name}:{node.lineno}"
        for name, text in FILES.items()
        if re.search(rf"^\s*(?:from|import)\s+(?:{'|'.join(ROOMS)})\b", text, re.MULTILINE)
        for node in ast.walk(ast.parse(text))
        for module in _imported(node)
        if module.partition(".")[0] in ROOMS
    ]
    assert not wrong, "\n".join(wrong)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [item.name for item in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


def test_benches_are_alone_in_their_folder() -> None:
    """With what they share, and a client that measures."""
    assert {path.name for path in (TESTS / "bench").glob("*.py") if not path.name.startswith("bench_")} == {
        "agent_client.py",
        "peers_page.py",
        "self_time.py",
    }


def test_a_program_of_results_finds_its_models_from_anywhere(tmp_path: Path) -> None:
    """Behind a name that is none: the models were imported, and none was compiled."""
    command = [sys.executable, str(TESTS / "house/results.py"), "model", "no such model"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.rstrip().endswith("KeyError: 'no such model'"), done.stderr
