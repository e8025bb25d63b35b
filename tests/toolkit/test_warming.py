"""The probes of the toolchain: made side by side, and once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from graphdbg.toolkit import torch_private as t
from graphdbg.toolkit.isolation import warming


def test_instruction_sets_are_tried_side_by_side_and_not_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpu_vec_isa

    together, asked = threading.Barrier(2), []

    class Set(cpu_vec_isa.VecAVX2):
        def __init__(self, name: str) -> None:
            self.name = name

        def __str__(self) -> str:
            return self.name

        def __hash__(self) -> int:
            return hash(self.name)

        def __bool__(self) -> bool:
            return self.check_build("code")

    def probe(self: Any, code: str) -> bool:
        together.wait(20)  # broken, and an error, where one waits for the other's end
        asked.append(f"{self} {code}")
        return True

    sets = [Set("one"), Set("two"), Set("absent")]
    monkeypatch.setattr(warming.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(cpu_vec_isa, "supported_vec_isa_list", sets)
    monkeypatch.setattr(cpu_vec_isa, "x86_isa_checker", lambda: ["one", "two"])
    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", probe)
    monkeypatch.setattr(cpu_vec_isa, "pick_vec_isa", lambda: all(sets[:2]) and sets[0])
    with t.swapped("compile_fx_inner", lambda gm, inputs: lambda inputs: None):
        works = warming.compile_probe_kernels({})
    assert sorted(asked) == ["one code", "two code"] and len(works) == 2
    warming.warm_toolchain(tmp_path, works)
    warming.warm_toolchain(tmp_path)  # as of the next server
    assert len(asked) == 2
