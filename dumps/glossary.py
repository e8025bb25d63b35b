"""The words of graphdbg that a user meets, with their meanings: docs/glossary.md and the last lines of a command's help
come from `WORDS`. No torch.

>>> words_in("Seconds that one rung may take.")
['rung']
>>> print(page().splitlines()[0])
# Words
"""

from __future__ import annotations

import re

WORDS: dict[str, str] = {
    "run": "one recorded command: a folder with its processes, graphs, tensors and journals.",
    "graph": "one saved FX graph of a run, named RUN/ID, or a case folder.",
    "stage": "where in the compiler stack a graph was taken: dynamo, pre_grad, joint, forward, backward, inference, "
    "post_grad_forward and the like.",
    "rung": "a way to execute a graph, from eager over decomposed to inductor; each adds a part of the compiler.",
    "ladder": "the rungs in order of trust. The first that fails names the layer at fault.",
    "lazy": "the rung that runs a graph through torch's lazy tensors and TorchScript.",
    "lite": "the rung with Inductor's settings for torch's mode `lite`: each operator stays eager's own kernel. It is "
    "beside the ladder, so it is never the first that fails.",
    "verdict": "what a judgement came to: ok, fails, rounding, nondeterministic or cannot_tell, with where and why.",
    "rounding": "compiled and eager differ by more than the tolerance, and nothing shows that the compiler is wrong.",
    "signature": "what makes two failures the same one: kind, layer, error class and words, without names, sizes and "
    "paths.",
    "fidelity": "whether this compile made the same post-grad graph and the same code as the recorded one.",
    "origin": "a value whose own node gives it metadata that it does not have.",
    "inherited": "wrong metadata that only follows from another value's: mend the origin and it is gone.",
    "case": "a folder with one graph, its inputs and its settings: what is minified, and what is left of it.",
    "atom": "nodes that are kept or dropped as one: mostly one node, or one with the getitems that read it.",
    "candidate": "a smaller case that may fail the same way.",
    "query": "one candidate compiled, run and judged in a process of its own.",
    "polish": "the last step on nodes: each one that is left is bypassed or cut alone, until none can go.",
    "needs": "the last step of a minification: other sizes, dtypes and settings are tried in place of the case's, to "
    "say which of them the failure needs.",
    "probe": "one trial of a search: one thing changed, and whether it still fails.",
    "repro": "a Python program that shows the failure and needs torch alone.",
    "ring": "the last graphs and inputs that an armed process keeps, to write them as a run after a failure.",
    "plant": "a bug put into the compiler on purpose, to try graphdbg.",
}
"""Word -> its meaning, in the order in which a user meets the words."""
EVERYDAY = frozenset(
    ("run", "graph", "case", "candidate", "needs", "query", "origin", "plant", "repro", "ring", "rounding")
)
"""Words that help texts also use in their plain meaning, or that explain themselves."""


def words_in(text: str) -> list[str]:
    """The words of `WORDS` that a help text uses, singular or plural, without the EVERYDAY ones."""
    used = {word.removesuffix("s") for word in re.findall(r"[a-z_]+", text.lower())}
    return [word for word in WORDS if word not in EVERYDAY and word.removesuffix("s") in used]


def help_line(text: str) -> str:
    """One paragraph that explains the words of a help text; empty where it uses none."""
    return " ".join(["Words:", *(f"{word}: {WORDS[word]}" for word in words)]) if (words := words_in(text)) else ""


def page() -> str:
    """docs/glossary.md."""
    rows = "".join(f"| {word} | {meaning[0].upper()}{meaning[1:]} |\n" for word, meaning in WORDS.items())
    return f"# Words\n\nMade from `dumps/glossary.py`, which help pages quote.\n\n| word | meaning |\n|---|---|\n{rows}"
