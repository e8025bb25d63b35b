"""Which programs the zoo holds: a script, the words that it is given, and the flags that its commands need.

Names come from tables and from the text of the scripts: nothing here imports torch.

>>> programs()[0].name
'bench_transformer_encoder_train'
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS, MODELS = HERE / "programs", HERE.parent / "models"
VARIANTS = ("train", "infer", "dynamic", "bf16", "bfloat16", "float16")
NOT_HERE = {
    "cond_training": "torch's own fault: a compiled branch writes into the gradient that it is given",
    "nested": "graphs with a ragged size are refused, which the page of the capture matrix says",
    "bench_embedding_bag_bfloat16": "torch's own fault: _embedding_bag's fake function tells another size of "
    "offset2bag",
    "imaginary": "torch's own fault: generated code does not know the negative bit",
    "healthy_lstm": "torch's own fault: the compiled call of mkldnn_rnn_layer takes a list for a tensor",
}
"""Programs of the other tables that are no healthy programs of one process, and why."""
FLAGS = {"tiny_transformers_mixtral": ("--import", "transformers.integrations.moe")}
"""What a program's commands need to know operators that it does not define itself."""


@dataclass(frozen=True)
class Program:
    """One program: `python SCRIPT WORDS`, judged with `flags`."""

    name: str
    script: Path
    words: tuple[str, ...]
    flags: tuple[str, ...] = ()


@cache
def programs() -> tuple[Program, ...]:
    """All programs, in order. Names are unique."""
    built: list[Program] = []
    for model in _functions(MODELS / "compile_models.py", "model") + _functions(
        MODELS / "compile_models_more.py", "model"
    ):
        every = [
            Program(f"bench_{model}_{variant}", PROGRAMS / "bench_models.py", (model, variant)) for variant in VARIANTS
        ]
        built += [item for item in every if item.name not in NOT_HERE]
    for name in re.findall(r"\w+", _table(MODELS / "healthy_models.py", r"for make in \((.*?)\)")):
        if f"healthy_{name}" not in NOT_HERE:
            built.append(Program(f"healthy_{name}", PROGRAMS / "healthy.py", (name,)))
    rows = re.findall(r'^    Program\("(\w+)",(.*)\),?$', (MODELS / "capture_programs.py").read_text(), re.MULTILINE)
    for name, rest in rows:
        if (
            name not in NOT_HERE
            and "ranks=" not in rest
            and not re.search(r"\bSAVED\b|_graph\"|BACKWARD|whole=False", rest)
        ):
            flags = ("--import", "tests.models.capture_hops") if "imports=OPS" in rest else ()
            built.append(Program(f"matrix_{name}", PROGRAMS / "matrix.py", (name,), flags))
    for script in sorted(PROGRAMS.glob("*.py")):
        if script.stem not in ("bench_models", "healthy", "matrix"):
            named = ((f"{script.stem}_{name}", name) for name in _functions(script))
            built += [Program(full, script, (name,), FLAGS.get(full, ())) for full, name in named]
    assert len({item.name for item in built}) == len(built)
    return tuple(built)


def _functions(script: Path, decorator: str = "") -> list[str]:
    """Public functions of a script, or those with this decorator."""
    every = [item for item in ast.parse(script.read_text()).body if isinstance(item, ast.FunctionDef)]
    if decorator:
        return [item.name for item in every if any(decorator in ast.unparse(mark) for mark in item.decorator_list)]
    return [item.name for item in every if not item.name.startswith("_")]


def _table(path: Path, pattern: str) -> str:
    match = re.search(pattern, path.read_text(), re.DOTALL)
    assert match, path
    return match[1]
