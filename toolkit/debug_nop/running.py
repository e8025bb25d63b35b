"""One run of a checked graph: what the generated code calls when a comparison fails, or where one comparison is not
enough.

Also: symbols bound to the numbers of one set of inputs, and what every value must then be: one comparison per node.

Identity of memory is asked while both tensors are alive, or through weak references that keep an address from being
used again; contents are compared by bits. Changes no value, and looks further only where something differs.

For example:

    run = KernelExecution(owner, binding, deep=True)
    run.after(17, value, x, y)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...dumps.torchside.values import storage_key
from ...dumps.wording import counted, raised_line
from .. import torch_private as t
from ..cutting.atoms import fake_of
from ..live.execution import tensors_in
from ..verdicts.mismatches import NodeMismatch
from .blame import OWN, Blame
from .layout import Layout, differences, evaluate, layout_guard, layout_of
from .plan import Leaf, NodeStep, Place, Plan, parts_sharing

if TYPE_CHECKING:
    from .checking import CheckedGraph


@dataclass
class Binding:
    """What values must be for one layout of the inputs. `layouts[i]` is what step i must be (None: depends on data);
    `expected[i]` and `offsets[i]` are what generated code compares with: a guard made from a value that was found
    right, or a number.

    `runs`: how often it was used; `collector`: the list that a deep run was last made for. `known` remembers what a
    mismatch was found to be, so that repeated runs ask once. `guard`: says whether inputs are laid out like these.
    """

    seen: tuple[Any, ...]
    symbols: dict[str, Any]
    shifts: dict[Place, int]
    expected: list[Any]
    offsets: list[Any]
    layouts: list[list[Any] | None]
    runs: int = 0
    known: dict[Any, NodeMismatch | None] = field(default_factory=dict)
    late: dict[Any, list[Any]] = field(default_factory=dict)
    unbound: frozenset[str] = frozenset()
    collector: list[NodeMismatch] | None = None
    guard: Callable[..., bool] | None = None


def bind(
    plan: Plan, inputs: Sequence[Any], seen: tuple[Any, ...], outer: Mapping[str, Any], attribute: Callable[[str], Any]
) -> Binding:
    """The binding of these inputs. `outer`: symbols of the graph that calls this one."""
    values = list(inputs)
    symbols = {name: outer[name] for name in plan.free if name in outer}
    for name, read in plan.bound.items():
        try:
            symbols[name] = read(values)
        except (AttributeError, IndexError, RuntimeError, TypeError):
            continue  # not the tensor that was traced: a finding of its own
    shifts: dict[Place, int] = {}
    for step, value in zip(plan.inputs, values, strict=True):
        _shift(step, value, symbols, shifts)
    for step in plan.steps:
        if step.node.op == "get_attr" and step.leaves:
            _shift(step, attribute(str(step.node.target)), symbols, shifts)
    layouts = [at(step, symbols, shifts) for step in plan.steps]
    expected = [
        layout[0] if step.way == "number" and layout else differs
        for step, layout in zip(plan.steps, layouts, strict=True)
    ]
    unbound = frozenset(name for step in plan.steps for name in step.needs) - set(symbols)
    unbound -= {name for step in plan.steps for name, _ in step.binds}
    return Binding(seen, symbols, shifts, expected, [None] * len(expected), layouts, unbound=unbound)


def at(step: NodeStep, symbols: Mapping[str, Any], shifts: Mapping[Place, int]) -> list[Any] | None:
    """The leaves of a step under symbol values; None while a symbol of it has no value."""
    try:
        return [
            leaf.at(symbols, shifts.get(leaf.root, 0)) if isinstance(leaf, Leaf) else evaluate(leaf, symbols)
            for leaf in step.leaves
        ]
    except KeyError:
        return None


def _shift(step: NodeStep, value: Any, symbols: Mapping[str, Any], shifts: dict[Place, int]) -> None:
    """How far the storage of an input lies from where it was traced: a program may pass any slice of a tensor."""
    leaf = step.leaves[0] if len(step.leaves) == 1 else None
    if not isinstance(leaf, Leaf) or not isinstance(value, torch.Tensor) or leaf.layout is not torch.strided:
        return
    offset = layout_of(value).offset
    if leaf.offset is not None and offset is not None:
        with contextlib.suppress(KeyError):
            if offset != (traced := evaluate(leaf.offset, symbols)):
                shifts.setdefault(leaf.root, offset - traced)


def differs(*values: Any) -> bool:
    """The comparison of a value that has not been found right yet: False, so that every run looks at it more
    closely."""
    return False


def single(step: NodeStep) -> bool:
    """Whether a step's value is one value, not a tuple of them."""
    return not isinstance(fake_of(step.node), (tuple, list, dict))


class KernelExecution:
    """The state of one execution. `expected`, `offsets` and `is_alias_of` are what the generated code reads."""

    def __init__(self, owner: CheckedGraph, binding: Binding, *, deep: bool) -> None:
        self.owner = owner
        self.plan: Plan = owner.plan
        self.binding = binding
        self.deep = deep
        self.expected, self.offsets = binding.expected, binding.offsets
        self.is_alias_of = t.optional("is_alias_of", _share_storage)
        self.symbols = dict(binding.symbols)
        self.findings: list[NodeMismatch] = []
        self.wrong: dict[Place, NodeMismatch] = {}
        self.storages: dict[Place, int] = {}
        self.first: dict[int, Place] = {}
        self.references: list[Any] = []
        self.odd: set[int] = set()
        self.loose: set[str] = set()
        self.kept: dict[int, list[Contents | None]] = {}

    def inputs(self, values: list[Any]) -> None:
        """Compares the graph's inputs with what it was traced for, and takes note of their storages."""
        for step, value in zip(self.plan.inputs, values, strict=True):
            layouts = self.binding.layouts[step.index]
            if layouts is not None and len(layouts) == 1 and layouts[0] is not None:
                differing = differences(layouts[0], described(value))
                differing.pop("offset", None)
                if differing:
                    self._record(step, 0, differing, {}, value)
            if self.deep:
                self._note_storage(step, 0, value)

    def bad(self, index: int, value: Any, *arguments: Any) -> None:
        """Called when a comparison of the generated code failed: records what differs, or accepts such values from now
        on."""
        step = self.plan.steps[index]
        if isinstance(value, t.FakeTensor) or self._wrapped(index, value, *arguments):
            return
        given = dict(zip(step.node.all_input_nodes, arguments, strict=True))
        layouts = self._layouts(step)
        if layouts is None:
            return
        differing = differences(layouts[0], described(value))
        differing |= self._memory(step, value, given)
        if differing:
            self._record(step, 0, differing, given, value)
        elif isinstance(value, torch.Tensor):  # only what does not count differs, as the stride of a dimension of one
            self._accept(step, [value], given)

    def failed(self, step: NodeStep, error: Exception, arguments: Mapping[fx.Node, Any]) -> Any:
        """Called when a node could not be run: records it, and returns a value like the traced one so that the run can
        go on."""
        self._record(step, 0, {"run": ("a result", raised_line(error))}, arguments, None)
        stand_ins = [_like(layout) for layout in self._layouts(step) or ()]
        return stand_ins[0] if single(step) and stand_ins else stand_ins

    def before(self, index: int, *tensors: Any) -> None:
        """Keeps what the arguments hold, except those that the op may write to."""
        step = self.plan.steps[index]
        if self._wrapped(index, *tensors):
            return
        held = [(node, part) for node, value in zip(step.tensors, tensors, strict=True) for part in tensors_in(value)]
        written = {storage_key(part) for node, part in held if node in (step.written or ())}
        self.kept[index] = [None if storage_key(part) in written else contents(part) for _, part in held]

    def after(self, index: int, value: Any, *arguments: Any) -> None:
        """Compares every part of a value, and in a deep run its storages and the contents of the arguments."""
        step = self.plan.steps[index]
        given = dict(zip(step.node.all_input_nodes, arguments, strict=True))
        leaves = [value] if isinstance(value, torch.Tensor) else t.tree_leaves(value)
        if any(isinstance(leaf, t.FakeTensor) for leaf in leaves) or self._wrapped(index, *leaves, *arguments):
            return
        self._bind(step, value, leaves)
        changed = self._changed(step, given)
        layouts = self._layouts(step)
        if step.leaves and len(leaves) != len(step.leaves):
            expected = counted(len(step.leaves), "value")
            self._record(step, 0, {"kind": (expected, counted(len(leaves), "value")), **changed}, given, value)
            return
        clean = not changed
        for place, leaf in enumerate(leaves):
            differing: dict[str, Any] = dict(changed) if place == 0 else {}
            if layouts is not None and place < len(layouts) and layouts[place] is not None:
                differing |= differences(layouts[place], described(leaf))
            if single(step):
                differing |= self._memory(step, leaf, given)
            elif step.way == "parts":
                differing |= self._part(step, place, leaf, given)
            if (self.deep or not step.torchs) and "alias" not in differing:
                differing |= self._storage(step, place, leaf, given)
            if differing:
                clean = False
                self._record(step, place, differing, given, leaf)
        if clean and step.torchs and not step.late and layouts is not None:
            self._accept(step, leaves, given)

    def _accept(self, step: NodeStep, leaves: Sequence[Any], given: Mapping[fx.Node, Any]) -> None:
        """Lets the generated code compare with the layout that was just found right."""
        if step.way not in ("inline", "parts"):
            return
        tensors = [leaf for traced, leaf in zip(step.leaves, leaves, strict=True) if traced is not None]
        if not all(isinstance(part, torch.Tensor) and part.layout is torch.strided for part in tensors):
            return
        offsets = tuple(part.storage_offset() for part in tensors)
        asked = () if step.by_layout or step.way != "inline" else (*step.aliased, *step.apart)
        shared = tuple(_aliases(tensors[0], given[node]) for node in asked)
        self.offsets[step.index] = offsets[0] if step.way == "inline" and not asked else (*offsets, *shared)
        self.expected[step.index] = layout_guard(tensors)

    def _layouts(self, step: NodeStep) -> list[Any] | None:
        layouts = self.binding.layouts[step.index]
        if layouts is not None or not step.leaves:
            return layouts
        key = (step.index, *(self.symbols.get(name) for name in sorted(step.needs)))
        known = self.binding.late.get(key)
        if known is None:
            known = at(step, self.symbols, self.binding.shifts)
            if known is not None and len(self.binding.late) < 100_000:
                self.binding.late[key] = known
        return known

    def _bind(self, step: NodeStep, value: Any, leaves: list[Any]) -> None:
        """Gives the symbols that begin at this step their numbers; one that nothing binds is read from a size or number
        that is this symbol alone."""
        for name, path in step.binds:
            try:
                self.symbols[name] = int(t.key_get(value, tuple(path)))
            except (AttributeError, IndexError, KeyError, TypeError, ValueError):
                continue
        for name in step.needs - self.symbols.keys():
            for traced, leaf in zip(step.leaves, leaves, strict=False):
                if isinstance(traced, Leaf) and isinstance(leaf, torch.Tensor) and len(traced.shape) == leaf.dim():
                    for size, real in zip(traced.shape, leaf.shape, strict=True):
                        if getattr(size, "text", None) == name:
                            self.symbols.setdefault(name, real)
                elif getattr(traced, "text", None) == name and isinstance(leaf, (int, float)):
                    self.symbols.setdefault(name, leaf)

    def _memory(self, step: NodeStep, value: Any, given: Mapping[fx.Node, Any]) -> dict[str, Any]:
        """Whether a value shares memory with its arguments as it was traced to."""
        if not isinstance(value, torch.Tensor) or 0 in value.shape:
            return {}
        for node in step.aliased:
            if not _aliases(value, given[node]):
                return {"alias": (_memory_of(node), OWN)}
        for node in step.apart:
            joined = any(_aliases(given[argument], given[node]) for argument in step.aliased)
            if _aliases(value, given[node]) and not joined:
                return {"alias": (OWN, _memory_of(node))}
        return {}

    def _part(self, step: NodeStep, place: int, value: Any, given: Mapping[fx.Node, Any]) -> dict[str, Any]:
        """Whether one part of a tuple shares memory with the arguments that it was traced to share it with."""
        for part, node in parts_sharing(self.plan, step):
            if part == place and 0 not in value.shape and not _aliases(value, given[node]):
                return {"alias": (_memory_of(node), OWN)}
        return {}

    def _storage(self, step: NodeStep, place: int, value: Any, given: Mapping[fx.Node, Any]) -> dict[str, Any]:
        """Whether a value lies in the storage that it was traced in, among all storages seen so far."""
        leaf = step.leaves[place] if place < len(step.leaves) else None
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or not isinstance(leaf, Leaf):
            return {}
        key = self._note_storage(step, place, value)
        if 0 in value.shape or leaf.layout is not torch.strided or leaf.offset is None or key is None:
            return {}
        own = (step.index, place)
        wanted = OWN if leaf.root == own else self._memory_at(leaf.root)
        agree = self.first[key] == own if leaf.root == own else self.storages.get(leaf.root) in (None, key)
        return {} if agree else {"alias": (wanted, self._whose(key, own, given))}

    def _note_storage(self, step: NodeStep, place: int, value: Any) -> int | None:
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return None
        try:
            storage = value.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return None
        key = storage._cdata
        self.storages[step.index, place] = key
        if key not in self.first:
            self.first[key] = (step.index, place)
            self.references.append(t.StorageWeakRef(storage))
        return key

    def _whose(self, key: int, own: Place, given: Mapping[fx.Node, Any]) -> str:
        for node, value in given.items():
            if any(tensor.layout is torch.strided and storage_key(tensor) == key for tensor in tensors_in(value)):
                return _memory_of(node)
        return OWN if self.first[key] == own else self._memory_at(self.first[key])

    def _memory_at(self, place: Place) -> str:
        return _memory_of(self.plan.steps[place[0]].node)

    def _changed(self, step: NodeStep, given: Mapping[fx.Node, Any]) -> dict[str, Any]:
        """The mismatch where an argument changed that the op's schema does not write to; {} where none did."""
        kept = self.kept.pop(step.index, None)
        if kept is None:
            return {}
        pairs = [(node, tensor) for node in step.tensors for tensor in tensors_in(given[node])]
        for (node, tensor), old in zip(pairs, kept, strict=True):
            if old is not None and not old.same(tensor):
                return {"mutation": (f"`{node.name}` left as it is", f"`{node.name}` changed in place")}
        return {}

    def _record(
        self, step: NodeStep, place: int, differing: dict[str, Any], given: Mapping[fx.Node, Any], value: Any
    ) -> None:
        """Finds out whose fault a mismatch is, once for each way in which a value may be wrong."""
        tainted = self._tainted(step)
        key = (step.index, place, *((name, str(pair)) for name, pair in differing.items()), *sorted(tainted))
        if differing.keys() & {"kind", "layout"}:
            self.odd.add(step.index)
        if key not in self.binding.known:
            mismatches = [(name, mismatch) for name, finding in self._found_at(step) for mismatch in finding.mismatches]
            stale = {name for name, mismatch in mismatches if mismatch.cause == "stale"}
            foreign = "alias" in differing and differing["alias"][1] != OWN
            blame = Blame(self.plan, step, place, self.symbols, tainted, self.owner.path, stale, foreign)
            finding = blame.finding(differing, given, value)
            finding.where = self.owner.session.where
            self._drop_residue(finding)
            dropped = not finding.mismatches or self._counted_from_storage(step, place, finding)
            self.binding.known[key] = None if dropped else finding
        finding = self.binding.known[key]
        if finding is None:
            return
        self.wrong[step.index, place] = finding
        doubts = [mismatch for mismatch in finding.own if mismatch.cause in ("unknown", "loose")]
        for mismatch in doubts:
            if mismatch.property != "run":  # that the graph failed is reported by itself
                self.owner.session.left_out(mismatch.why, f"{mismatch.property} of {finding.name}")
        if len(doubts) == len(finding.own) and self.loose.issuperset(finding.under):
            self.loose.add(finding.name)
            return
        finding.mismatches = [mismatch for mismatch in finding.mismatches if mismatch not in doubts]
        finding.under = [name for name in finding.under if name not in self.loose]
        self.findings.append(finding)

    def _wrapped(self, index: int, *values: Any) -> bool:
        """Whether one of a step's values is a wrapper that vmap or grad made; counts them."""
        if not wrapped(values):
            return False
        self.owner.session.left_out(WRAPPED, f"{self.owner.path}{self.plan.steps[index].name}")
        return True

    def _drop_residue(self, finding: NodeMismatch) -> None:
        """After passes that replace nodes, a view may be recorded in the storage of a node that is gone. Where the op
        and its fake function agree on whose memory it returns, that is a note, not a finding."""
        rest = [each for each in finding.mismatches if (each.property, each.cause) != ("alias", "stale")]
        if len(rest) < len(finding.mismatches) and self.owner.session.rewritten:
            self.owner.session.left_out(REPLACED, f"alias of {finding.name}")
            finding.mismatches = rest

    def _counted_from_storage(self, step: NodeStep, place: int, finding: NodeMismatch) -> bool:
        """Whether an op (as_strided) counts its offset from the start of the storage: an input that lies elsewhere in
        its storage than when it was traced then moves nothing. The op itself says so."""
        leaf = step.leaves[place] if place < len(step.leaves) else None
        moved = isinstance(leaf, Leaf) and leaf.root in self.binding.shifts
        return moved and all((each.property, each.cause) == ("offset", "stale") for each in finding.mismatches)

    def _tainted(self, step: NodeStep) -> dict[str, list[str]]:
        """The arguments of a step that a finding was made at -> the origins of that finding."""
        tainted: dict[str, list[str]] = {}
        for name, finding in self._found_at(step):
            names = tainted.setdefault(name, [])
            origins = [finding.name] * finding.origin + finding.under
            names += [origin for origin in origins if origin not in names]
        return tainted

    def _found_at(self, step: NodeStep) -> Iterator[tuple[str, NodeMismatch]]:
        """The arguments of a step that a finding was made at, with it."""
        for node in step.node.all_input_nodes:
            source = self.plan.source(node)
            places = [(source[0].index, source[1])] if source is not None else []
            if source is None or source[0].node is node:
                own = self.plan.by_node[node]
                places = [(own.index, place) for place in range(max(len(own.leaves), 1))]
            for place in places:
                if (finding := self.wrong.get(place)) is not None:
                    yield node.name, finding


def described(value: Any) -> Any:
    """The layout of a tensor; a number, or anything else, as it is."""
    return layout_of(value) if isinstance(value, torch.Tensor) else value


def _like(layout: Any) -> Any:
    if not isinstance(layout, Layout):
        return layout
    if layout.layout is not torch.strided:
        return torch.zeros(layout.shape, dtype=layout.dtype, device=layout.device)
    return torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device=layout.device).zero_()


def _aliases(value: Any, other: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    if value.layout is not torch.strided or other.layout is not torch.strided:
        return False
    return t.optional("is_alias_of", _share_storage)(value, other)


def _memory_of(node: fx.Node) -> str:
    return f"the memory of `{node.name}`"


WRAPPED = "inside vmap or grad, a value is a wrapper that has no memory of its own"
REPLACED = "a pass replaced what it is a view of, and kept its record"


def wrapped(values: Any) -> bool:
    """Whether one of these is a wrapper that vmap or grad made: there is no memory of its own to compare."""
    is_wrapped = t.optional("is_functorch_wrapped_tensor", lambda value: False)
    return any(isinstance(leaf, torch.Tensor) and is_wrapped(leaf) for leaf in t.tree_leaves(values))


def _share_storage(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return storage_key(tensor) == storage_key(other)


COPIED_BYTES = 16 * 2**20
"""Up to this many bytes, contents are copied; of larger tensors sums are kept, which need no memory."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Contents:
    """The bits of one tensor at one time: a copy, or for a large one two sums over its bits.

    Version counters are not enough: kernels of custom ops write below them, and tensors of inference mode have none.
    Two sums miss a change that leaves both the same; that takes a large tensor and a great coincidence.
    """

    def __init__(self, bits: torch.Tensor) -> None:
        self.copied = bits.numel() * bits.element_size() <= COPIED_BYTES
        self.kept = bits.clone() if self.copied else _sums(bits)

    def same(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor still holds the same bits; True for one whose bits cannot be read any more."""
        bits = _bits(tensor)
        if bits is None:
            return True
        now = bits if self.copied else _sums(bits)
        return now.shape == self.kept.shape and now.dtype == self.kept.dtype and bool(torch.equal(now, self.kept))


def contents(tensor: torch.Tensor) -> Contents | None:
    """The contents of a tensor; None for one without readable data (meta, sparse, quantised)."""
    bits = _bits(tensor)
    return None if bits is None else Contents(bits)


def _bits(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.is_quantized or 0 in tensor.shape:
        return None
    with torch.no_grad():
        plain = tensor.detach()
        if plain.is_conj() or plain.is_neg():
            plain = plain.resolve_conj().resolve_neg()
        if plain.element_size() > 8:
            plain = torch.view_as_real(plain)
        return plain.view(_INTEGERS[plain.element_size()])


def _sums(bits: torch.Tensor) -> torch.Tensor:
    """The sum of all bits as integers, and that of the first half along the longest dimension."""
    longest = max(range(bits.dim()), key=bits.size)
    half = bits.narrow(longest, 0, (bits.size(longest) + 1) // 2)
    return torch.stack([bits.sum(dtype=torch.int64), half.sum(dtype=torch.int64)])
