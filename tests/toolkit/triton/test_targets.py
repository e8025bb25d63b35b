"""GPUs by name, the assembler's report, and whether two sources are one kernel: plain text, no torch."""

from __future__ import annotations

import pytest

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.triton.emission import resources_of
from graphdbg.toolkit.triton.targets import CHIPS, DEFAULT, target_of

REPORT = """ptxas info    : 11 bytes gmem
ptxas info    : Compiling entry function 'kernel' for 'sm_90a'
ptxas info    : Function properties for kernel
    40 bytes stack frame, 36 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 40 bytes cumulative stack size, 16 bytes smem"""


@pytest.mark.parametrize("text", ["cuda:90", "sm_90", "sm90", "90", "compute_90", "CUDA:90", "sm_90a"])
def test_a_chip_is_named_in_several_ways(text: str) -> None:
    target = target_of(text)
    assert (target.name, target.chip.name) == ("cuda:90", "H100")
    assert target.text() == "cuda:90 (H100, 132 SMs)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cuda:0", "a target is cuda: and a compute capability"),
        ("hip:gfx942", "NVIDIA GPUs only"),
        ("cuda:99", "9.9"),
        ("", "is not a target"),
    ],
)
def test_what_is_no_chip_is_told_with_those_that_are(text: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        target_of(text)
    said = str(raised.value)
    assert why in said and "cuda:80 (A100)" in said


def test_the_default_is_a_known_chip() -> None:
    assert target_of(DEFAULT).capability in CHIPS


def test_the_assemblers_report_is_read() -> None:
    assert resources_of(REPORT, shared=1000) == {
        "registers": 255,
        "stack": 40,
        "spill_stores": 36,
        "spill_loads": 24,
        "shared": 1016,
    }
    assert resources_of("ptxas fatal   : Unresolved extern function 'foo'") == {}
