"""`graphdbg show RUN/ID --node NAME`: one node as the tabs of the workbench show it. Not a command of its own.

>>> show_node(saved, "addmm_1", head={}, hops=None, code=False, as_json=False)
addmm_1  call_function  aten.addmm.default
call     aten.addmm.default(primals_5, mul_2, permute_1)
value    float32  [2, 4]  stride [4, 1]  offset 0  cpu  32 B
module   down  torch.nn.modules.linear.Linear
line     train.py:11 in forward  return self.down(torch.nn.functional.gelu(self.up(x)))
kernel   extern_kernels.addmm
partner  mm  0_0/backward  same seq_nr 14
         mm_1  0_0/backward  same seq_nr 14
         sum_1  0_0/backward  same seq_nr 14
         permute_2  0_0/backward  same seq_nr 14
         permute_3  0_0/backward  same seq_nr 14
         view  0_0/backward  same seq_nr 14
inputs 3 primals_5  f32[4]  placeholder
         mul_2      f32[2, 16]  aten.mul.Tensor
         permute_1  f32[16, 4]  aten.permute.default
users 1  output    output
made of  linear_1, aten.addmm.default
meta     partitioner_tag = 'is_forward'
<BLANKLINE>
train.py:11 in forward  myrun/pid.../sources/b97e38f18e404f6f29d9c2256cd6ddea4f07d50e.py
   8         self.down = torch.nn.Linear(16, 4)
   9
  10     def forward(self, x):
> 11         return self.down(torch.nn.functional.gelu(self.up(x)))
  12
  13 torch.manual_seed(0)
  14 compiled = torch.compile(Model())
<BLANKLINE>
at the other stages
dynamo              linear_1  f32[2, 4]  torch.nn.functional.linear  (it was made from this)
pre_grad            linear_1  f32[2, 4]  torch.nn.functional.linear  (it was made from this)
joint               addmm_1  f32[2, 4]  aten.addmm.default  (same name)
joint_passed        addmm_1  f32[2, 4]  aten.addmm.default  (same name)
forward             addmm_1  f32[2, 4]  aten.addmm.default
backward            the other side of autograd: the node's detail lists its partners
post_grad_forward   addmm_1  f32[2, 4]  aten.addmm.default  (same name)
post_grad_backward  the other side of autograd: the node's detail lists its partners
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from ..output import emit, say
from ..tables import on_terminal

if TYPE_CHECKING:
    from ..browse.about import About
    from ..browse.sheet import Sheet
    from ..store import SavedGraph

_AROUND_LINE, _WIDTH = 3, 80


def show_node(
    saved: SavedGraph, name: str, *, head: dict[str, Any], hops: int | None, code: bool, as_json: bool
) -> None:
    """Prints the detail of a node with its source lines and the other stages; with `hops` its neighbourhood, with
    `code` its kernels. Raises UsageError for a name that the graph does not have."""
    from ..browse import sheet
    from ..browse.about import About  # imported late: other views of `show` do not need it

    about = About(saved)
    index = about.position(name)
    if hops is not None:
        _show_near(about, index, hops, head, as_json)
        return
    if as_json:
        emit({**head, "node": _all(about, index)}, as_json=True)
        return
    if code:
        _show_code(about, index)
        return
    parts = [sheet.text(about.detail(index, everything=True))]
    source = about.source(index)
    if source.language:
        parts.append(_titled(f"{source.title}  {source.path}", source, around=_AROUND_LINE))
    if about.related.graphs:
        parts.append(_titled("at the other stages", about.stages(index)))
    emit("\n\n".join(parts), as_json=False)


def _titled(title: str, shown: Sheet, *, around: int | None = None) -> str:
    from ..browse import sheet

    return "\n".join([title, *(f"! {note}" for note in shown.notes), sheet.text(shown, around=around)])


def _show_code(about: About, index: int) -> None:
    from ..browse import sheet

    count = max(1, len(about.uses(index)))
    shown = [about.code(index, number) for number in range(count)]
    for code in shown:
        if not code.marked:
            say(sheet.text(code) if not code.language else code.notes[0])
    texts = [_titled(f"# {code.title}", code, around=0) for code in shown if code.marked]
    emit("\n\n".join(texts), as_json=False)


def _show_near(about: About, index: int, hops: int, head: dict[str, Any], as_json: bool) -> None:
    from ..browse import near, sheet
    from ..browse.near import ASCII

    if as_json:
        chosen, count = near.around(about.view, index, hops)
        names, inside = about.view.table.name, set(chosen)
        edges = [[names[used], names[at]] for at in chosen for used in about.view.inputs(at) if used in inside]
        near_it = {"around": names[index], "hops": hops, "within": count, "nodes": [names[at] for at in chosen]}
        emit({**head, **near_it, "edges": edges}, as_json=True)
        return
    width = max(_WIDTH, shutil.get_terminal_size().columns) if on_terminal() else _WIDTH
    text = sheet.text(about.near(index, hops, width))
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = text.translate(ASCII)
    emit(text, as_json=False)


def _all(about: About, index: int) -> dict[str, Any]:
    """All known data of the node, as one JSON object."""
    partners, why = about.partners(index)
    source = about.source(index)
    lines = [str(line) for line in source.lines] if source.language else []
    near_it = lines[max(0, source.top - _AROUND_LINE) : source.top + _AROUND_LINE + 1]
    return {
        **about.of(index).fixed(),
        "partners": [{"graph": row.graph, "name": row.name, "how": row.how} for row in partners],
        "no_partner": why or None,
        "kernels": [
            {"graph": graph.id, "kernel": use.kernel, "sure": use.sure, "line": max(use.start, use.call) + 1}
            for graph, use in about.uses(index)
        ],
        "stages": [msgspec.to_builtins(row) for row in about.related.of(about.view, index)],
        "source": {"path": source.path, "line": source.top + 1, "lines": near_it} if lines else None,
    }
