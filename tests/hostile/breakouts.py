"""Ways out of a text into the code around it: each edits a graph's JSON so that compiling or calling it would touch a
file.

>>> WAYS["a message, in C++"].edit(graph, "/tmp/ran")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Graph = dict[str, Any]


class Way(NamedTuple):
    """A way out: the text, made of the path to touch, where it is put, and how the graph is compiled."""

    text: Callable[[str], str]
    put: Callable[[Graph, str], object]
    backend: str = "cpp"

    def edit(self, graph: Graph, path: str) -> None:
        """Puts the text into the graph."""
        self.put(graph, self.text(path))


def _argument(target: str, at: int) -> Callable[[Graph, str], object]:
    def put(graph: Graph, text: str) -> None:
        _node(graph, target)["args"][at] = text

    return put


def _node(graph: Graph, target: str) -> Graph:
    return next(node for node in graph["graph"]["nodes"] if node["target"] == target)


def _settings(graph: Graph, **values: Any) -> None:
    room = graph.setdefault("config", {}).setdefault("inductor", {})
    room.update({name.replace("__", "."): item for name, item in values.items()})


def _function(key: str) -> Callable[[Graph, str], object]:
    def put(graph: Graph, text: str) -> None:
        _node(graph, "aten.sin.default")["meta"] = {key: [["f", text]]}
        _settings(graph, cpp__descriptive_names="torch")

    return put


def _stack(graph: Graph, text: str) -> None:
    graph["strings"][0] = f'  File "model.py", line 1, in forward\n    {text}\n'
    _settings(graph, cpp__enable_kernel_profile=True)


def _source_node(graph: Graph, text: str) -> None:
    _node(graph, "aten.sin.default")["from_node"] = [text]


def _table(graph: Graph, text: str) -> None:
    graph["strings"][2] = text
    _node(graph, MESSAGE)["args"][1] = {"string": 2}


def _flat_name(graph: Graph, text: str) -> None:
    for pair in graph["graph"]["meta"]["dynamo_flat_name_to_original_fqn"]["dict"]:
        pair[1] = text


MESSAGE, WORDS, GROUP = "aten._assert_async.msg", "hostile.tell.default", "_c10d_functional.all_reduce.default"
_message, _words = _argument(MESSAGE, 1), _argument(WORDS, 1)
_cpp_message = '"), 0)); system("touch {0}"); (0 ? 0 : (throw std::runtime_error("'
_python_raw = "''') if [__import__('os').system('touch {0}')] else print('''"
_python_triple = ' """ if [__import__("os").system("touch {0}")] else r""" '
_name = "x = [__import__('os').system('touch {0}')]; y"
WAYS = {
    "a message, in C++": Way(_cpp_message.format, _message),
    "a message out of the table of strings, in C++": Way(_cpp_message.format, _table),
    "a message, in the Python around C++": Way(_python_raw.format, _message),
    "a message, in the Python around Triton": Way(_python_raw.format, _message, "triton"),
    "a message, in a comment above Triton": Way('x\n__import__("os").system("touch {0}") #'.format, _message, "triton"),
    "the name of a function, in that of a C++ kernel": Way(_name.format, _function("source_fn_stack")),
    "the name of a backward's function, in that of a C++ kernel": Way(_name.format, _function("fwd_source_fn_stack")),
    "the node that a node came from, in a comment": Way(
        'x\n        __import__("os").system("touch {0}") #'.format, _source_node
    ),
    "an operator's text, in a C++ wrapper": Way(
        '"))); system("touch {0}"); (c10::IValue(std::string("'.format, _words, "cpp_wrapper"
    ),
    "an operator's text, in the Python around a C++ wrapper": Way(_python_triple.format, _words, "cpp_wrapper"),
    "the name of a group, in a C++ wrapper": Way(
        '" + (system("touch {0}") ? 0 : 0) + 0 ? "0" : "0'.format, _argument(GROUP, 2), "cpp_wrapper"
    ),
    "a stack, in a C++ wrapper": Way(
        ')"); system("touch {0}"); KernelContextGuard _more("x", R"('.format, _stack, "cpp_wrapper"
    ),
    "a stack, in the Python around a C++ wrapper": Way(_python_triple.format, _stack, "cpp_wrapper"),
    "the name of a parameter, in a compiled library": Way(
        '"; system("touch {0}"); constants_info_[0].original_fqn = "'.format, _flat_name, "aoti"
    ),
}

ARGUMENTS = {
    "the words of a reduction of several": "_c10d_functional.all_reduce_coalesced.default).1",
    "the group of a reduction of several": "_c10d_functional.all_reduce_coalesced.default).2",
    "the group of a gathering": "_c10d_functional.all_gather_into_tensor.default).2",
    "the words of a scattered reduction": "_c10d_functional.reduce_scatter_tensor.default).1",
    "the group of a scattered reduction": "_c10d_functional.reduce_scatter_tensor.default).3",
    "the group of a broadcast": "_c10d_functional.broadcast.default).2",
    "a text by its place": "hostile.more.default).1",
    "a text by its keyword": "hostile.more.default).last",
}
"""Arguments that Inductor writes into code as they are, unless they are made inert."""


def _of(nodes: str, field: str) -> Callable[[Graph, str], object]:
    def put(graph: Graph, text: str) -> None:
        next(node for node in graph["graph"]["nodes"] if node["op"] == nodes)[field] = text

    return put


def _value(field: str) -> Callable[[Graph, str], object]:
    def put(graph: Graph, text: str) -> None:
        graph["graph"]["nodes"][0]["value"][field] = text if field != "shape" else [text, 16]

    return put


def _symbol(graph: Graph, text: str) -> None:
    graph["symbols"][0]["name"] = text


def _guard(graph: Graph, text: str) -> None:
    graph["guards"] = [{"expr": text, "kind": "assert", "message": text}]


NAMES: dict[str, Callable[[Graph, str], object]] = {
    "a placeholder's name": _of("placeholder", "name"),
    "a placeholder's target": _of("placeholder", "target"),
    "the name of a call": _of("call_function", "name"),
    "the target of a call": _of("call_function", "target"),
    "a dtype": _value("dtype"),
    "a device": _value("device"),
    "a size": _value("shape"),
    "a symbol's name": _symbol,
    "an expression": _guard,
}
"""Names that stand in code as code: nothing but a plain one is taken."""

ENDINGS = {
    "C++": '0); system("touch {0}"); (0',
    "Python": "x; __import__('os').system('touch {0}')",
    "a comment": "*/ system(1); /*",
    "quotes": "'''\"\"\"\\",
    "a line": "x\n__import__('os').system('touch {0}')",
}
