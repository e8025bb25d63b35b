"""Settings, compiler arguments and state of a dump reach torch by a list alone: payloads leave a file where they are
executed. And the list knows every setting of the torch that is installed."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.cli import run
from graphdbg.dumps import permitted
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.permitted import (
    Each,
    Number,
    NumberTable,
    PlainNames,
    Switch,
    Words,
    known,
    refusal,
    refused_by_name,
)
from graphdbg.dumps.program.entering import config_lines
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.validate import check_graph
from graphdbg.toolkit import torch_private
from graphdbg.toolkit.blame.bisect_asking import to_try
from graphdbg.toolkit.live.spec import settings
from graphdbg.toolkit.torch_private.names import CONFIGS

Told = Callable[..., tuple[int, str]]


def rooms() -> dict[str, ModuleType]:
    return {room: torch_private.look_up(f"{room}_config") for room in CONFIGS}


def entries() -> list[tuple[str, str, Any, str]]:
    """(room, name, torch's own value, its type as text) of every setting."""
    results: list[tuple[str, str, Any, str]] = []
    for room, module in rooms().items():
        for name, entry in vars(module)["_config"].items():
            value = entry.default if entry.alias is None else entry.value_type()
            results.append((room, name, value, str(entry.value_type)))
    return results


# -- the list


def test_every_setting_of_this_torch_is_listed_or_refused_by_name() -> None:
    result = entries()
    assert len(result) > 700
    new = [
        f"{room}.{name}: {kind}"
        for room, name, _, kind in result
        if f"{room}.{name}" not in known() and not refused_by_name(room, name)
    ]
    assert new == [], "look at each: a row of dumps/permitted.py, or a pattern of REFUSED there"


def test_what_the_list_takes_is_what_torch_has() -> None:
    here = {f"{room}.{name}": (room, name, value, kind) for room, name, value, kind in entries()}
    wrong: list[str] = []
    for setting, (kind, _) in known().items():
        if setting not in here:
            continue
        room, name, value, declared = here[setting]
        what = {
            Switch: "bool",
            Number: "int|float",
            Words: "str|Literal|bool",
            PlainNames: "str",
            Each: "list|tuple|str",
            NumberTable: "dict",
        }[type(kind)]
        declaration = declared + type(value).__name__
        unknown = "NoneType" in declaration and "|" not in declaration  # only None is known of it
        if refusal(room, name, value) or not (unknown or re.search(what, declaration)):
            wrong.append(f"{setting} = {value!r}: {declared}, where the list takes {kind.text()}")
    assert wrong == [], wrong


def test_no_text_of_a_listed_setting_is_a_path_a_command_a_flag_or_code() -> None:
    evil = (
        "./x.sh",
        "/bin/sh",
        "a b",
        "-O3 -wrapper /bin/sh,-c,x",
        "x;y",
        "$(x)",
        "lib.so\n",
        "exec",
        "os.system",
        "../x",
    )
    names = {"os.system", "exec"}  # plain names, which are compared with those of passes and operators alone
    for setting, (kind, _) in known().items():
        for text in evil:
            for value in (text, [text], {text: text}, {text: {text: 1}}, {"a": {"b": text}}, [[text]]):
                took = kind.takes(value)
                assert not took or text in names, f"{setting} = {value!r}"
                if took:
                    assert isinstance(kind, (PlainNames, NumberTable)) or isinstance(kind.of, PlainNames), setting  # type: ignore[union-attr]


def test_settings_whose_type_is_a_callable_take_only_names_that_are_written_down() -> None:
    called = [f"{room}.{name}" for room, name, _, kind in entries() if re.search("Callable|Pass", kind)]
    listed = {name: known()[name][0] for name in called if name in known()}
    assert len(called) > 10
    assert set(listed) == {
        "inductor.reorder_for_compute_comm_overlap_passes",
        "inductor._fuse_ddp_communication_passes",
    }
    assert all(isinstance(kind, Each) and isinstance(kind.of, Words) for kind in listed.values())


def test_what_we_try_ourselves_is_on_the_list() -> None:
    assert [item for item in to_try([]) if refusal(item.room, item.name, item.value)] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_autotune", True),
        ("emulate_precision_casts", True),
        ("triton.cudagraphs", True),
        ("cpp.simdlen", 256),
        ("cpp.simdlen", None),
        ("coordinate_descent_tuning", True),
        ("fallback_random", True),
        ("max_autotune", 1),
        ("max_autotune_gemm_backends", "ATEN, triton"),
        ("triton.multi_kernel", 1),
        ("disabled_passes", "a_pass,another.pass"),
        ("pre_grad_fusion_options", {"batch_linear": {"min_fuse_set_size": 5}}),
        ("reorder_prefetch_limit", 3),
        ("cpp.gemm_thread_factors", "4,1,10"),
        ("triton.cudagraph_capture_sizes", [1, [2, 3]]),
        ("shape_padding", False),
        ("reorder_for_compute_comm_overlap_passes", ["sink_waits", "raise_comms"]),
        ("cpp_wrapper", True),
        ("freezing", True),
    ],
)
def test_what_users_set_is_taken(name: str, value: Any) -> None:
    assert refusal("inductor", name, value) == ""
    assert config_lines({"inductor": {name: value}} if not isinstance(value, dict) else {})[1] == []


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("cpp.cxx", [None, "./x.sh"], "commands"),
        ("cpp.march", "native", "flags"),
        ("aot_inductor.output_path", "x", "paths"),
        ("aot_inductor.custom_op_libs", ["x.so"], "libraries"),
        ("cuda.cuda_cxx", "x", "commands"),
        ("rocm.rocm_home", "x", "libraries"),
        ("cutlass.cutlass_dir", "x", "paths"),
        ("post_grad_custom_post_pass", "x", "code"),
        ("trace.enabled", True, "written"),
        ("aot_inductor.serialized_in_spec", 'x"', "text for generated code"),
        ("fx_graph_remote_cache", True, "network"),
        ("reorder_for_compute_comm_overlap_passes", ["node_summary"], "it takes a list"),
        ("a_new_one", True, "does not know"),
        ("cpp.threads", 10**9, "-1 to 1024"),
        ("unbacked_symint_fallback", float("nan"), "a whole number"),
        ("max_autotune", "x", "true or false"),
        ("intra_node_bw", float("inf"), "a number"),
        ("max_autotune", None, "true or false"),
    ],
)
def test_what_is_refused_says_why(name: str, value: Any, why: str) -> None:
    assert why in refusal("inductor", name, value)


# -- the ways to torch


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def f(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x.sin() + 1,)

    case = tmp_path_factory.mktemp("plain") / "case"
    save_graph(make_fx(f)(torch.ones(8)), [torch.ones(8)], case, stage="inference")
    return case


@pytest.fixture
def graphdbg_said(capfd: pytest.CaptureFixture[str]) -> Told:
    def command(*words: object) -> tuple[int, str]:
        code = run([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out + err

    def caught(*words: object) -> tuple[int, str]:
        try:
            return command(*words)
        except SystemExit as end:
            out, err = capfd.readouterr()
            return int(end.code or 0), out + err

    return caught


@pytest.fixture
def hostile(plain: Path, tmp_path: Path) -> Callable[..., Path]:
    def case_with(name: str = "case", **changes: Any) -> Path:
        shutil.copytree(plain, tmp_path / name)
        path = tmp_path / name / "graph.json"
        path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))
        return tmp_path / name

    return case_with


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A compiler that leaves a file."""
    path = tmp_path / "x.sh"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/RAN\nexit 1\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.long
def test_a_compiler_a_flag_and_an_unknown_one_are_named_and_applied_only_with_trust(
    hostile: Callable[..., Path], script: Path, tmp_path: Path, graphdbg_said: Told
) -> None:
    ran, wrapped = tmp_path / "RAN", tmp_path / "WRAPPED"
    march = {"cpp.march": f"native -wrapper /bin/sh,-c,touch${{IFS}}{wrapped}"}
    config = {"cpp.cxx": {"tuple": [None, str(script)]}} | march
    has_march = hasattr(torch_private.inductor_config.cpp, "march")
    case = hostile(config={"inductor": config | {"cpp.simdlen": 0, "cpp": {"dict": [["cxx", str(script)]]}}})
    code, text = graphdbg_said("replay", case)
    assert code == 0, text
    named = "inductor.cpp.cxx, inductor.cpp.march, inductor.cpp" if has_march else "inductor.cpp.cxx, inductor.cpp"
    assert text.startswith(f"OK: judged without {named}\n"), text
    assert "inductor.cpp.march = 'native -wrapper" in text or not has_march
    assert "(it names commands)" in text
    assert not ran.exists()
    assert not wrapped.exists()
    graphdbg_said("replay", case, "--trust")
    assert ran.exists()
    graphdbg_said("replay", hostile("flags", config={"inductor": march}), "--trust")
    assert wrapped.exists() == has_march


def test_the_folder_of_a_package_is_not_written(hostile: Callable[..., Path], tmp_path: Path) -> None:
    config = {
        "inductor": {"aot_inductor.output_path": str(tmp_path / "outside"), "save_args": True, "trace.enabled": True}
    }
    inductor = rooms()["inductor"]
    with settings(config) as lost:
        assert not inductor.aot_inductor.output_path
        assert not inductor.save_args
    [note] = lost
    assert note.startswith("judged without inductor.aot_inductor.output_path, inductor.save_args, which")
    from graphdbg.dumps import trust

    with trust.granted(), settings(config) as lost:
        assert inductor.aot_inductor.output_path == str(tmp_path / "outside")
        assert inductor.save_args
        assert lost == []
        assert not inductor.trace.enabled  # of the process: in no replay


def test_torchs_own_value_is_put_back_whatever_it_names() -> None:
    inductor = rooms()["inductor"]
    with inductor.patch(joint_custom_post_pass=print), settings({"inductor": {"joint_custom_post_pass": None}}) as lost:
        assert inductor.joint_custom_post_pass is None
        assert lost == []


def test_a_repro_does_not_set_them(hostile: Callable[..., Path]) -> None:
    config = {
        "inductor": {"cpp.cxx": {"tuple": [None, "./x.sh"]}, "cpp.simdlen": 0, "trace.debug_dir": "/tmp/x", "novel": 1}
    }
    lines, notes = config_lines(config)
    assert lines == ["torch._inductor.config.cpp.simdlen = 0"]
    assert [note.partition(":")[0] for note in notes] == [
        "the setting torch._inductor.config.cpp.cxx",
        "the setting torch._inductor.config.novel",
    ]
    lines, notes = config_lines(config, trusted=True)
    assert "torch._inductor.config.cpp.cxx = (None, './x.sh',)" in [line.replace('"', "'") for line in lines]
    assert notes == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"compile_kwargs": {"cpp_wrapper": "x.so"}},
            "compile_kwargs, 'cpp_wrapper': 'x.so', where it takes true or false",
        ),
        ({"compile_kwargs": {"graph_id": '0"; x'}}, "compile_kwargs, 'graph_id'"),
        ({"compile_kwargs": {"static_input_idxs": ["x"]}}, "compile_kwargs, 'static_input_idxs'"),
        ({"ambient": {"threads": 10**7}}, "ambient, threads: 10000000 is not a number of threads (0 to 4096)"),
        ({"ambient": {"default_dtype": "_C; x"}}, "ambient, default_dtype"),
        ({"ambient": {"matmul_precision": "x"}}, "ambient, matmul_precision"),
        ({"ambient": {"autocast": {"cpu": "x y"}}}, "ambient, autocast"),
        ({"ambient": {"default_dtype": "3.12.3"}}, "ambient, default_dtype: '3.12.3' is none of float32, float64"),
        ({"config": {"inductor\nx": {"debug": True}}}, "config: 'inductor\\nx' is not a plain identifier"),
        ({"config": {"inductor": {"debug = 1\nx": True}}}, "config 'inductor'"),
    ],
)
def test_arguments_and_state_of_a_wrong_kind_are_refused(
    hostile: Callable[..., Path], graphdbg_said: Told, changes: dict[str, Any], why: str
) -> None:
    code, text = graphdbg_said("replay", hostile(**changes), "--rung", "nop")
    assert code == 2, text
    assert why in text
    assert "Traceback" not in text


def test_arguments_that_reach_no_compiler_and_those_of_a_run_are_taken(hostile: Callable[..., Path]) -> None:
    given = {
        "options": {"dict": [["cpp.cxx", "./x.sh"]]},
        "cpp_wrapper": False,
        "graph_id": 3,
        "static_input_idxs": [0],
        "boxed_forward_device_index": None,
        "extern_node_serializer": {"opaque": ["f", "f"]},
    }
    record = load_graph(hostile(compile_kwargs=given)).record
    check_graph(record, "here")
    entering = importlib.import_module("graphdbg.toolkit.live.entries")
    assert entering.inner_arguments(given) == {"static_input_idxs": [0], "graph_id": 3, "cpp_wrapper": False}


def test_long_values_and_many_settings_stay_one_short_sentence() -> None:
    note = permitted.without(
        {f"inductor.x{number}": ("\x1b]52;" + "y" * 10_000, "it names commands") for number in range(5000)}
    )
    assert len(note) < 1500
    assert note.isascii()
    assert "\x1b" not in note
    assert " and 4992 more, which" in note
