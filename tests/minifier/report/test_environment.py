"""Versions by allow-list: in the style of collect_env, without importing torch, without any variable that is not
named."""

from __future__ import annotations

import subprocess
import sys

from graphdbg.minifier.report import environment


def test_the_section_has_what_the_form_asks_for() -> None:
    text = environment.versions_text()
    for start in (
        "PyTorch version: 2.",
        "OS: ",
        "GCC version: ",
        "Python version: 3.",
        "CPU: ",
        "CUDA used to build PyTorch: ",
    ):
        assert any(line.startswith(start) for line in text.splitlines()), start
    assert "[pip3] torch==" in text
    assert "[pip3] graphdbg==" in text


def test_only_allow_listed_variables_are_told() -> None:
    seen = environment.settings(
        {
            "OMP_NUM_THREADS": "4",
            "TORCHINDUCTOR_SECRET_URL": "https://x",
            "TORCH_TOKEN": "abc",
            "TRITON_KEY": "abc",
            "TORCH_LOGS": "+dynamo",
            "HF_TOKEN": "hf_x",
        }
    )
    assert seen == {"OMP_NUM_THREADS": "4", "TORCH_LOGS": "+dynamo"}


def test_a_strange_value_is_not_told() -> None:
    assert environment.settings({"CUDA_VISIBLE_DEVICES": "0; secret\nvalue"}) == {"CUDA_VISIBLE_DEVICES": "<set>"}


def test_collecting_imports_no_torch() -> None:
    code = (
        "import sys; from graphdbg.minifier.report import environment\n"
        "environment.versions_text(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_torch_build_is_read_from_its_text() -> None:
    import torch

    result = environment.torch_build()
    assert result["git_version"] == torch.version.git_version
    assert result["cuda"] == str(torch.version.cuda)
