"""Saved launches: what is in the folder, that it is enough to run a kernel again, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from graphdbg.dumps.errors import GraphdbgError, UsageError
from graphdbg.toolkit.launching.alone import arguments, beside_eager, flat, restricted
from graphdbg.toolkit.launching.launches import Launch, Launches, Storage, open_launches
from graphdbg.toolkit.triton.emission import loaded
from graphdbg.toolkit.triton.interpreting.session import Interpretation
from graphdbg.toolkit.triton.pretended import pretending
from graphdbg.toolkit.triton.targets import target_of

from .saved_run import example, example_inputs, saved


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    return saved(example, example_inputs(), tmp_path_factory.mktemp("saved") / "launches")


def test_each_launch_is_there_with_what_it_touches(launches: Launches) -> None:
    assert [(launch.kernel, launch.call, launch.calls, launch.grid) for launch in launches.launches] == [
        ("triton_poi_fused_0", 1, 2, (16, 1, 1)),
        ("triton_poi_fused_0", 2, 2, (16, 1, 1)),
        ("triton_per_fused_1", 1, 1, (64, 1, 1)),
    ]
    total = launches.launches[-1]
    assert (total.bytes_read, total.bytes_written, total.flops) == (64 * 63 * 4, 64 * 4, 64 * 63)
    assert [(item.argument, item.node, bool(item.eager), bool(item.truth)) for item in total.written] == [
        ("out_ptr0", "sum_1", True, True)
    ]
    in_place = launches.launches[0]
    assert (in_place.bytes_read, in_place.bytes_written) == (64 * 64 * 4, 64 * 64 * 4)
    assert in_place.storages[0].before != in_place.storages[0].after != ""


def test_the_interpreter_agrees_with_eager(launches: Launches) -> None:
    judged = [beside_eager(launch, launches) for launch in launches.launches]
    assert [row.node for item in judged for row in item.arguments] == ["relu", "relu_1", "sum_1"]
    assert all(row.eager is not None and 0 < row.eager.error < 1e-6 for item in judged for row in item.arguments)
    assert all(item.ok for item in judged)


def test_the_folder_alone_runs_a_kernel_again_to_the_last_bit(launches: Launches) -> None:
    launch = launches.launches[-1]
    given, storages = arguments(launch, launches, device="cpu")
    session = Interpretation()
    with pretending(target_of("cuda:90")), session.open():
        session.make(launch.kernel, launches.source(launch)).run(*given, stream=0)
    after = [launches.tensors.get(storage.after or storage.before) for storage in launch.storages]
    assert [bytes(storages[place].numpy()) for place in range(len(after))] == [bytes(item) for item in after]


def test_arguments_keep_strides_offsets_and_shared_storages(tmp_path: Path) -> None:
    base = torch.arange(200, dtype=torch.float32)
    inputs = [base[8:136].view(8, 16).t(), base[72:200].view(8, 16).t()]
    known = saved(lambda a, b: [a * 2 + b], inputs, tmp_path / "launches")
    (launch,) = known.launches
    views = {name: item for name, item in launch.tensors.items() if name.startswith("in_")}
    assert len({view.storage for view in views.values()}) == 1
    given, storages = arguments(launch, known, device="cpu")
    built = {name: value for name, value in zip(launch.passed, given, strict=True) if isinstance(name, str)}
    assert {built[name].data_ptr() - storages[item.storage].data_ptr() for name, item in views.items()} == {
        8 * 4,
        72 * 4,
    }
    assert torch.equal(built["in_ptr0"], inputs[0]) and built["in_ptr0"].stride() == inputs[0].stride()


def test_a_buffer_that_is_filled_and_then_scattered_into_holds_its_node_at_the_end(tmp_path: Path) -> None:
    def scattered(x: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
        return [torch.zeros(8, 6).scatter_add(0, index, x) * 2]

    torch.manual_seed(0)
    known = saved(scattered, [torch.randn(5, 6), torch.randint(0, 8, (5, 6))], tmp_path / "launches")
    first, last = [launch for launch in known.launches if any(row.buffer == "buf0" for row in launch.written)]
    assert [row.node for row in first.written] == [""]
    assert "scatter_add" in [row.node for row in last.written]
    assert all(beside_eager(launch, known).ok for launch in known.launches)


def test_an_input_that_is_written_to_is_compared_with_what_eager_leaves_in_it(tmp_path: Path) -> None:
    def counted(x: torch.Tensor, seen: torch.Tensor) -> list[torch.Tensor]:
        total = torch.ops.aten.add.Tensor(seen, torch.ops.aten.sum.dim_IntList(x, [0]))
        return [torch.ops.aten.copy_.default(seen, total)]

    torch.manual_seed(0)
    known = saved(counted, [torch.randn(5, 6), torch.randn(6)], tmp_path / "launches")
    (row,) = [row for launch in known.launches for row in beside_eager(launch, known).arguments]
    assert (row.buffer, row.node) == ("seen_1", "seen_1") and row.name.startswith("out_ptr")
    assert row.eager is not None and row.eager.ok and row.eager.error < 1e-6


def test_a_single_wrong_integer_differs_from_eager(tmp_path: Path) -> None:
    known = saved(lambda x: [x + 1], [torch.tensor([41])], tmp_path / "launches")
    (launch,) = known.launches
    assert beside_eager(launch, known).ok
    place = launch.tensors[launch.written[0].argument].storage
    wrong = memoryview(torch.tensor([43]).view(torch.uint8).numpy())
    launch.storages[place] = Storage(8, launch.storages[place].before, known.tensors.put(wrong))
    assert not beside_eager(launch, known).ok


def test_the_saved_configuration_is_the_only_one(launches: Launches, tmp_path: Path) -> None:
    launch = launches.launches[0]
    with pretending(target_of("cuda:90")):
        assert [config.kwargs for config in restricted(_loaded(launches, launch, tmp_path), launch).configs] == [
            {"XBLOCK": 256}
        ]
        launch.blocks = {"XBLOCK": 64}  # one that Inductor would not choose
        (config,) = restricted(_loaded(launches, launch, tmp_path), launch).configs
    launch.blocks = {"XBLOCK": 256}
    assert (config.kwargs, config.num_warps) == ({"XBLOCK": 64}, 4)


def _loaded(launches: Launches, launch: Launch, folder: Path) -> Any:
    return loaded(launch.kernel, launches.source(launch), folder)


def test_only_what_is_named_is_kept(tmp_path: Path) -> None:
    known = saved(example, example_inputs(), tmp_path / "launches", "triton_per_fused_1")
    assert [launch.folder for launch in known.launches] == ["0002_triton_per_fused_1"]


def test_random_values_are_not_compared_with_eager(tmp_path: Path) -> None:
    def noisy(x: torch.Tensor) -> list[torch.Tensor]:
        seed = torch.ops.prims.inductor_seeds(1, torch.device("cpu"))
        drawn = torch.ops.prims.inductor_random(list(x.shape), torch.ops.prims.inductor_lookup_seed(seed, 0), "rand")
        return [x + drawn, torch.sin(x)]

    known = saved(noisy, [torch.randn(64)], tmp_path / "launches")
    assert {item.node for launch in known.launches for item in launch.written if item.eager} == {"sin"}
    assert any("behind random numbers" in note for note in known.index.notes)


def test_one_that_is_not_there_is_told_with_those_that_are(launches: Launches) -> None:
    assert [item.call for item in launches.named("triton_poi_fused_0")] == [1, 2]
    assert [item.call for item in launches.named("triton_poi_fused_0#2")] == [2]
    with pytest.raises(UsageError, match=r"no kernel 'triton_poi_fused_0#3'.*fused_0 \(#1 to #2\), triton_per_fused_1"):
        launches.named("triton_poi_fused_0#3")


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


ODD = {
    "a kernel with a path for a name": (_set("kernel", value="../x"), "calls itself"),
    "an argument that is no name": (_set("names", 0, value="a b"), "not a name"),
    "an argument that is no tensor": (_set("passed", 0, value="other"), "not one of its tensors"),
    "a size beyond its storage": (_set("tensors", "out_ptr0", "shape", value=[65]), "reaches beyond its storage"),
    "a negative offset": (_set("tensors", "out_ptr0", "offset", value=-1), "offset -1"),
    "a storage that is not there": (_set("tensors", "out_ptr0", "storage", value=9), "in storage 9"),
    "a dtype that is none": (_set("tensors", "out_ptr0", "dtype", value="Storage"), "dtype 'Storage'"),
    "a tensor by a path": (_set("storages", 0, "before", value="../../x"), "not a tensor name"),
    "a grid of nothing": (_set("grid", value=[0, 1, 1]), "cannot be launched"),
    "another type": (_set("num_warps", value="many"), "num_warps"),
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_launch_is_refused(what: str, launches: Launches, tmp_path: Path) -> None:
    change, said = ODD[what]
    folder = tmp_path / "launches"
    shutil.copytree(launches.folder, folder)
    path = folder / launches.launches[-1].folder / "launch.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(GraphdbgError, match=said):
        open_launches(folder)


def test_a_changed_source_and_changed_values_are_refused(launches: Launches, tmp_path: Path) -> None:
    folder = tmp_path / "launches"
    shutil.copytree(launches.folder, folder)
    known = open_launches(folder)
    launch = known.launches[0]
    (folder / launch.folder / "kernel.py").write_text("raise SystemExit\n")
    with pytest.raises(GraphdbgError, match="not the source that was saved"):
        known.source(launch)
    file = folder / "tensors" / launch.storages[0].before
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(GraphdbgError, match="the file is damaged"):
        known.tensors.get(launch.storages[0].before)
    (folder / "launches.json").write_text(
        '{"version": 9, "graph": "", "target": "", "torch": "", "triton": "", "which": []}'
    )
    with pytest.raises(GraphdbgError, match="version 9"):
        open_launches(folder)


def test_a_wrong_result_of_the_interpreter_differs_from_eager(launches: Launches, tmp_path: Path) -> None:
    folder = tmp_path / "launches"
    shutil.copytree(launches.folder, folder)
    known = open_launches(folder)
    launch = known.launches[-1]
    place = launch.tensors["out_ptr0"].storage
    wrong = flat(known.tensors.get(launch.storages[place].after), torch.float32)
    wrong[3] *= 1.01
    path = folder / launch.folder / "launch.json"
    document = json.loads(path.read_text())
    document["storages"][place]["after"] = known.tensors.put(memoryview(wrong.view(torch.uint8).numpy()))
    path.write_text(json.dumps(document))
    known = open_launches(folder)
    judged = beside_eager(known.launches[-1], known)
    assert not judged.ok and judged.arguments[0].eager is not None
    assert "1 of 64 elements far off" in judged.arguments[0].eager.why
