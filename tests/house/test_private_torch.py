"""Private torch names live in one module per room, which says the missing public alternative and the versions tried."""

from __future__ import annotations

import ast

import pytest

from .source_tree import ROOT, Module, modules

HOMES = (
    "dumps/torchside/_torch.py", "toolkit/_torch.py", "toolkit/recorder/_torch.py", "toolkit/compilers/_torch.py",
    "toolkit/rungs/_torch.py", "toolkit/blame/_torch.py", "toolkit/debug_nop/_torch.py", "minifier/_torch.py",
    "toolkit/compile_fx/_torch.py", "toolkit/compile_fx/passes/_torch.py",
    "toolkit/capture/_torch.py",
    "toolkit/capture/compiled_autograd/_torch.py",
    "toolkit/triton/_torch.py",
)  # fmt: skip
"""One per room, and one for each part of toolkit that is used apart: the recorder and the compilers run in the user's process and
load nothing that they do not need; rungs and blame reach into passes that the others never touch."""

ALLOWED: dict[str, set[str]] = {}
"""module -> private names it may use all the same. Empty is best; a row needs a reason beside it."""


def is_private(name: str) -> bool:
    """True for torch._inductor.x and torch.fx.graph._y; false for torch.ops.aten._softmax and torch.__version__."""
    parts = name.split(".")
    if parts[0] != "torch" or parts[:2] == ["torch", "ops"]:
        return False
    return any(part.startswith("_") and not part.startswith("__") for part in parts[1:])


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` of an attribute chain on a plain name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def private_names(module: Module) -> list[tuple[int, str]]:
    """(line, name) of each private torch name that the module's code uses."""
    found = [(item.line, item.module) for item in module.imports if not item.ours and is_private(item.module)]
    for node in ast.walk(module.tree):
        name = dotted(node) if isinstance(node, ast.Attribute) else None
        if name and is_private(name):
            found.append((node.lineno, name))
    return found


def test_private_torch_names_stay_in_their_home() -> None:
    wrong = [
        f"{module.path}:{line} uses {name}"
        for module in modules()
        if str(module.path.relative_to(ROOT)) not in HOMES
        for line, name in private_names(module)
        if name not in ALLOWED.get(module.name, set())
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("home", HOMES)
def test_a_home_of_private_names_says_which_versions_were_tried(home: str) -> None:
    path = ROOT / home
    if path.exists():
        text = path.read_text(encoding="utf-8")
        assert "2.13.0" in text
        assert "public" in text.lower()


def test_the_scan_tells_private_from_public() -> None:
    assert is_private("torch._inductor.config")
    assert is_private("torch.fx.graph._Namespace")
    assert not is_private("torch.ops.aten._softmax.default")
    assert not is_private("torch.__version__")
    assert not is_private("click._compat")
