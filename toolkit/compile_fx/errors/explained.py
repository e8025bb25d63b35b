"""The account of one failure of a compile, as a record and as text. Must not import torch: reports cross processes.

>>> print(Explained("recursion", "stage joint failed", "it recursed too deep", "raise the limit").text())
stage joint failed: it recursed too deep. Raise the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

_NODES_SHOWN = 12


class NodeAt(NamedTuple):
    """A node of the graph: its name, its operator, and the user's line ("model.py:12") with its code, "" where none is known."""

    node: str
    op: str
    line: str = ""
    code: str = ""


@dataclass
class Explained:
    """What is known of a failure.

    `kind` is a few words for the family ("C++ compile error", "unsupported operator", ...). `what` failed, `why`, and what to
    do (`fix`). `nodes`: those that failed, innermost first, or that stand behind `kernel`. `excerpt`: source around `line` of
    `file` with a marker. `compiler_line`: the compiler's own first error. `pass_name`: the pass that raised. `message`: the
    original text, whole.
    """

    kind: str
    what: str
    why: str = ""
    fix: str = ""
    stage: str = ""
    part: str = ""
    error_type: str = ""
    message: str = ""
    nodes: list[NodeAt] = field(default_factory=list[NodeAt])
    kernel: str = ""
    file: str = ""
    line: int | None = None
    column: int | None = None
    excerpt: str = ""
    compiler_line: str = ""
    pass_name: str = ""
    notes: list[str] = field(default_factory=list[str])

    def summary(self) -> str:
        """One paragraph: what failed, why, what to do."""
        said = f"{self.what}: {self.why.rstrip('.')}" if self.why else self.what
        return f"{said}. {self.fix[:1].upper()}{self.fix[1:].rstrip('.')}." if self.fix else said

    def text(self) -> str:
        """The account for people: the summary, then nodes, the compiler's line and the source around it."""
        lines = [self.summary()]
        if self.nodes:
            lines.append("nodes behind the kernel:" if self.kernel else "nodes:")
            width, op_width = (max(len(node[i]) for node in self.nodes[:_NODES_SHOWN]) for i in (0, 1))
            for node in self.nodes[:_NODES_SHOWN]:
                seen = f"{node.line or 'no user line is known'}  {node.code}".rstrip()
                lines.append(f"  {node.node:{width}}  {node.op:{op_width}}  {seen}")
            if more := len(self.nodes) - _NODES_SHOWN:
                lines += [f"  ... {more} more"] if more > 0 else []
        if self.compiler_line:
            lines.append(self.compiler_line)
        if self.excerpt:
            lines.append(self.excerpt)
        return "\n".join([*lines, *self.notes])

    def behind(self) -> str:
        """Kernel or pass, and nodes with their user lines, in one line; "" where none is known."""
        nodes = [f"{node.node} ({node.line})" if node.line else node.node for node in self.nodes]
        more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
        told = ", ".join(nodes[:4]) + more
        if self.kernel:
            return f"in the kernel {self.kernel}" + (f", made of {told}" if nodes else "")
        if self.pass_name:
            return f"in the pass {self.pass_name}" + (f", at {told}" if nodes else "")
        return f"at {told}" if nodes else ""
