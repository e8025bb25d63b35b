# pyright: basic
"""Parts of a saved graph that run by themselves: values are recorded once into a folder, then any subset of atoms is built
from there in another process, with recorded values where it was cut.

The folder `work` holds the index of values, their tensors and the atoms. Must not compile or judge anything.

>>> atoms = keep_values(case, work, seed=0)
>>> part_of(Case.at("case"), work, keep={3, 4}).gm
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import fx

from ..dumps import live
from . import process_groups
from .atoms import Atoms
from .case import Case, Live
from .eager_values import record_values
from .live import moved
from .prune import prune
from .relaid import as_reshapes
from .settings import settings
from .spec import ReplaySpec
from .spill import load_values, save_values
from .subgraph import build, until
from .subspec import candidate_spec
from .surroundings import in_force
from .values import Held, Values

if TYPE_CHECKING:
    from ..dumps.store import SavedGraph

ATOMS = "atoms.json"


class Invalid(Exception):
    """A part that cannot be built."""


def keep_values(case: Live, work: Path, *, seed: int, ends_at: str = "", running: Path | None = None) -> Atoms:
    """Runs the case eagerly once, spills every value to `work` and returns the atoms of the graph: those up to the node that
    raises, where one does, or that is not to be run (`ends_at`, `running`: see `record_values`).
    """
    with settings(case.spec.config), in_force(case.spec):
        torch.manual_seed(seed)
        values = record_values(case.gm, case.inputs, work, errors=True, ends_at=ends_at, running=running)
    return keep_atoms(until(case.gm, values.raised) if values.raised else case.gm, values, work)


def keep_atoms(gm: fx.GraphModule, values: Values, work: Path) -> Atoms:
    """Writes recorded values and the atoms of their graph to `work`."""
    atoms = Atoms.of(gm, values)
    save_values(values, work)
    (work / ATOMS).write_bytes(msgspec.json.encode(atoms.to_json()))
    return atoms


def atoms_in(work: Path) -> Atoms:
    """The atoms that `keep_values` left."""
    return Atoms.from_json(msgspec.json.decode((work / ATOMS).read_bytes()))


def part_of(
    case: Case, work: Path, keep: Collection[int], *, bypass: Collection[int] = (),
    returned: Collection[int] | None = None, device: str | None = None,
) -> Live:  # fmt: skip
    """The graph of the kept atoms, its inputs and how it enters the compiler; see `subgraph.build`. Raises Invalid."""
    atoms, saved = atoms_in(work), case.saved
    names = {name for atom in keep for name in atoms.nodes[atom]}
    names |= {name for atom in keep if (name := atoms.returns[atom]) in atoms.carried.numbers and name is not None}
    names |= atoms.carried.needed(names, atoms.order) | {name for atom in bypass for name in atoms.nodes[atom]}
    given_back = {atoms.order[position] for position in returned or ()}
    given_back |= {name for atom in keep if (name := atoms.returns[atom]) is not None}
    record = prune(saved.record, names, given_back)
    gm, _, mode = live.fake_module(record, saved.tensors, where=str(saved.path))
    values = load_values(work, mode)
    mode.allow_non_fake_inputs |= any(isinstance(value, Held) and value.fake is not None for value in values.inputs)
    if all(facts["world_size"] == 1 for facts in process_groups.groups_of(record).values()):  # else nothing is run here
        process_groups.join(record)
    as_reshapes(gm, set(atoms.reshaped))
    there = {item.name for item in record.graph.nodes if item.op == "placeholder"}
    values.inputs = [value for name, value in zip(inputs_of(saved), values.inputs, strict=True) if name in there]
    spec = ReplaySpec.of(saved.record, device=device)
    if device is not None:
        moved(gm, [], torch.device(device))
        spec.dynamic = False
    try:
        module, inputs = build(gm, atoms, values, keep, bypass=bypass, returned=returned, joint=spec.training_joint)
    except (RuntimeError, ValueError) as error:
        raise Invalid(str(error)) from error
    return Live(module, inputs, candidate_spec(spec, inputs_of(saved), module))


def inputs_of(saved: SavedGraph) -> list[str]:
    """The names of a graph's placeholders."""
    return [node.name for node in saved.record.graph.nodes if node.op == "placeholder"]
