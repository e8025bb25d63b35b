"""The loading side of the capture matrix: in a fresh process, every recorded graph is loaded, run eagerly, replayed on
Inductor.

Prints one JSON object a line for each graph: its row, stage and what does not hold (empty: all does). Run by
capture_matrix.py.

    python -m tests.matrix.capture_load FOLDER NAME...
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from graphdbg.dumps import live
from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.schema import InputsRecord, TensorValue
from graphdbg.dumps.store import SavedGraph, load_graph, open_run
from graphdbg.toolkit.isolation import JUDGING, ForkServer, default_memory_bytes
from graphdbg.toolkit.live.case import Case
from graphdbg.toolkit.live.spec import FULL_STAGES, in_force
from graphdbg.toolkit.replaying.fidelity import SAME
from graphdbg.toolkit.replaying.replay import replay
from tests.matrix.capture_live import REFERENCES, facts, named, results_of

API = "api"


def eager_difference(saved: SavedGraph, reference: Path, server: ForkServer) -> str:
    """Why the loaded graph does not compute what the live one did; empty where every bit is the same."""
    case = Case(saved).live(seed=0) if saved.rank is None else None
    if case is None:
        saved.module(), saved.inputs()  # refuses what cannot be loaded
    reported = reference.with_suffix(".txt")
    if reported.exists():
        return reported.read_text()
    if not reference.exists():
        return "it never ran in the recorded program"
    result = synthesised(saved)
    if result:
        return f"no stored value for {', '.join(result)}"
    wanted = torch.load(reference, weights_only=False)
    if case is None:  # it needs the other ranks: all replay together, in processes of the fork server
        outcome = replay(saved, "eager", server=server, limit_s=240)
        if not outcome.ok or outcome.outputs is None:
            return f"eager: {outcome.text.splitlines()[0]}"
        results = [named(value) for value in outcome.outputs]
        return _first_difference(wanted[: len(results)], results)
    ambient = case.spec.ambient
    with in_force(case.spec):
        backward = case.spec.stage in FULL_STAGES and ambient.grad and not ambient.inference_mode
        results = results_of(case.gm, case.inputs, backward=backward)
    return _first_difference(wanted, results)


def _first_difference(wanted: Sequence[Any], sequence: Sequence[Any]) -> str:
    if len(wanted) != len(sequence):
        return f"{len(sequence)} results, the live graph had {len(wanted)}"
    for index, (item, other) in enumerate(zip(wanted, sequence, strict=True)):
        if not same(item, other):
            return f"eager, result {index} differs from the live graph's: {_short(item)} and {_short(other)}"
    return ""


def input_difference(saved: SavedGraph, path: Path) -> str:
    """What the loaded inputs are not, and the live ones were; those that are made up from `--inputs index` alone
    included."""
    if not path.exists() or saved.inputs_record is None:
        return ""
    kept = msgspec.json.decode(path.read_bytes())
    full = saved.record.stage in FULL_STAGES
    wanted = kept["facts"][full]
    index = msgspec.convert(kept["index"], InputsRecord)
    for what, result in (("loaded", saved.inputs()), ("made up", live.inputs(saved.record, index, saved.tensors))):
        for number, (item, other) in enumerate(
            zip(wanted, msgspec.to_builtins(facts(result, autograd=full)), strict=True)
        ):
            if item != other:
                return f"{what} input {number} is {other}, in the run it was {item}"
    return ""


def synthesised(saved: SavedGraph) -> list[str]:
    """Names of the tensor inputs whose values were not stored."""
    seen = {item.name: item for item in saved.inputs_record.inputs} if saved.inputs_record is not None else {}
    return [
        node.name
        for node in saved.record.graph.nodes
        if node.op == "placeholder"
        and isinstance(node.value, TensorValue)
        and (node.name not in seen or seen[node.name].stored is None)
    ]


def same(item: Any, other: Any) -> bool:
    """Whether two results are the same to the last bit, with the same dtype, shape and strides."""
    if not isinstance(item, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(item) is type(other) and (item == other or item != item)
    facts = [
        (x.dtype, x.shape, x.layout, x.layout is not torch.strided or x.stride(), x.is_quantized) for x in (item, other)
    ]
    return facts[0] == facts[1] and _bytes(item) == _bytes(other)


def _bytes(value: torch.Tensor) -> bytes:
    value = value.detach()
    if value.is_quantized:
        value = value.int_repr()
    if value.layout is not torch.strided:
        value = value.to_dense()
    plain = value.resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)} {value.detach().reshape(-1)[:2].tolist()}".removeprefix("torch.")
    return repr(value)[:60]


def compiled_difference(
    saved: SavedGraph, server: ForkServer, live: dict[str, Any] | None, imports: Sequence[str]
) -> str:
    """Why the replay on Inductor is not what was recorded; empty where the verdict is good and the fidelity line says
    "same"."""
    outcome = replay(saved, "inductor", server=server, outputs=False, limit_s=240, imports=imports)
    first = outcome.text.splitlines()[0]
    if not outcome.ok or first.startswith("skipped"):
        return f"inductor: {first}"
    fidelity = outcome.fidelity
    if live is not None:
        fidelity = _against_live(saved, live)
    return "" if fidelity == SAME else f"fidelity: {fidelity}"


def _against_live(saved: SavedGraph, live: dict[str, Any]) -> str:
    """A captured case has no recorded compile: it is compared with the compile of the live graph, in the same normal
    form."""
    from graphdbg.toolkit.judging.judge import judge
    from graphdbg.toolkit.replaying.fidelity import CompiledArtifacts

    case = Case(saved).live(seed=0)
    watched = CompiledArtifacts()
    judge(case, "inductor", check="crash", watch=watched.compiling)
    for what, reported in (("graphs", watched.graphs), ("code", watched.code)):
        lines = [[line for part in parts for line in part] for parts in (live[what], reported)]
        if lines[0] != lines[1]:
            return "\n".join([f"different {what}:", *list(difflib.unified_diff(*lines, lineterm="", n=0))[:12]])
    return SAME


def cells(name: str, folder: Path, server: ForkServer, imports: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One object for each graph of a program, and one for what was not recorded."""
    failed = folder / "failed.txt"
    if failed.exists():
        yield {"row": name, "stage": "", "why": f"the program fails: {failed.read_text().strip().splitlines()[-1]}"}
        return
    graphs = []
    if (folder / "case").exists():
        graphs = [(load_graph(folder / "case"), API, folder / REFERENCES / "case.pt")]
    else:
        for error in filter(None, (folder / "errors.txt").read_text().splitlines()):
            yield {"row": name, "stage": "", "why": f"not recorded: {error}"}
        for saved in open_run(folder / "run").graphs():
            if saved.status != "skipped":
                graphs.append((saved, saved.stage, _reference(folder, saved)))
    for saved, stage, reference in graphs:
        why = ""
        try:
            reported = reference.with_suffix(".json")
            why = input_difference(saved, reference.with_suffix(".inputs.json"))
            why = why or eager_difference(saved, reference, server)
            why = why or compiled_difference(
                saved, server, json.loads(reported.read_text()) if reported.exists() else None, imports
            )
        except GraphdbgError as error:
            why = f"refused: {error}"
        except Exception as error:  # noqa: BLE001  a row that says so
            why = f"{type(error).__name__}: {error}"
        yield {"row": name, "stage": stage, "id": saved.local_id if stage != API else stage, "why": why}


def _reference(folder: Path, saved: SavedGraph) -> Path:
    rank = "" if saved.rank is None else f"rank{saved.rank}"
    return folder / REFERENCES / rank / f"{saved.local_id.replace('/', '-')}.pt"


def main(folder: Path, names: Sequence[str]) -> None:
    for program in (name.partition("=") for name in names):
        __import__(program[2]) if program[2] else None
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    with ForkServer(
        cache_dir=cache,
        threads=torch.get_num_threads(),
        memory_bytes=default_memory_bytes(),
        warm="inductor",
        preload=JUDGING,
    ) as server:
        for name, _, imported in (name.partition("=") for name in names):
            for cell in cells(name, folder / name, server, [imported] if imported else []):
                print(json.dumps(cell), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
