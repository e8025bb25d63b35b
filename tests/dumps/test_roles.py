"""What inputs and outputs are for, from the text of AOTAutograd's descriptors."""

from __future__ import annotations

from typing import Any

import pytest

from graphdbg.dumps.names import OutputRole, inputs_of, kind_of, outputs_of
from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, InputRecord, NodeRecord


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("PlainAOTOutput(idx=2)", ("user", "output[2]")),
        ("GradAOTOutput(grad_of=ParamAOTInput(target='0.weight'))", ("gradient", "0.weight")),
        ("InputMutationAOTOutput(mutated_input=BufferAOTInput(target='seen'))", ("mutation", "seen")),
        (
            "InputMutationAOTOutput(mutated_input=SyntheticBaseAOTInput(base_of=PlainAOTInput(idx=0)))",
            ("mutation", "storage of args[0]"),
        ),
        (
            "SubclassGetAttrAOTOutput(base=GradAOTOutput(grad_of=PlainAOTInput(idx=1)), attr='scale')",
            ("gradient", "args[1].scale"),
        ),
        ("SubclassSizeAOTOutput(base=PlainAOTOutput(idx=0), idx=1)", ("user", "output[0].size(1)")),
        ("ForwardTokenAOTOutput(idx=0)", ("token", "")),
        ("SavedForBackwardsAOTOutput(idx=3)", ("saved", "")),
        ("PhiloxUpdatedForwardOffsetAOTOutput()", ("random state", "")),
        ("AnotherAOTOutput(x=1)", ("unknown", "")),
        ("GradAOTOutput()", ("gradient", "")),
        ("__import__('os').system('true')", ("unknown", "")),
        ("(" * 3000, ("unknown", "")),
        ("not python at all", ("unknown", "")),
        (None, ("unknown", "")),
    ],
)
def test_a_descriptor_in_words(text: str | None, reported: tuple[str, str]) -> None:
    assert kind_of(text) == reported


class Recorded:
    """Of a small record that is in memory."""

    def __init__(self, record: GraphRecord) -> None:
        self.inputs = {item.name: item for item in record.inputs}
        self.nodes = {node.name: node for node in record.graph.nodes}
        self.strings = record.strings

    def node(self, name: str, _after: str = "") -> NodeRecord | None:
        return self.nodes.get(name)

    def string(self, place: int) -> str:
        return self.strings[place]


@pytest.mark.parametrize(
    ("role", "source", "text"),
    [
        ("parameter", "self.get_parameter('0.weight')", "parameter 0.weight"),
        ("parameter", "self.get_parameter('w')._local_tensor", "parameter w._local_tensor"),
        ("parameter", "L['self']._modules['0']._parameters['weight']", "parameter 0.weight"),
        ("user", "args[0].scale", "user args[0].scale"),
        ("tangent", "__output_tangent(__intermediate_base(output[0])).a", "tangent of output[0].a"),
        ("token", "__forward_token0", "token"),
        ("buffer", "", "buffer"),
    ],
)
def test_inputs_in_words(role: Any, source: str, text: str) -> None:
    record = GraphRecord(
        format=FORMAT, id="a", stage="joint", graph=GraphBody([]), inputs=[InputRecord("x", role, source)]
    )
    assert inputs_of(Recorded(record)) == {"x": text}  # type: ignore[arg-type]


def test_outputs_name_the_users_own_sources() -> None:
    """A position is Dynamo's: it is named after what Dynamo says of that input; one that is not there by its forward's
    name."""
    descriptors = ["GradAOTOutput(grad_of=PlainAOTInput(idx=0))", {"string": 0}, None, "PlainAOTOutput(idx=0)"]
    nodes = [
        NodeRecord("primals_1", "placeholder", "primals_1", meta={"desc": "PlainAOTInput(idx=0)"}),
        NodeRecord(
            "output",
            "output",
            "output",
            args=[[{"node": "a"}, {"node": "b"}, None, {"node": "c"}]],
            meta={"desc": descriptors},
        ),
    ]
    inputs = [InputRecord("primals_1", "parameter", "L['self']._modules['0']._parameters['weight']")]
    record = GraphRecord(
        format=FORMAT,
        id="0_0/backward",
        stage="backward",
        graph=GraphBody(nodes),
        inputs=inputs,
        strings=["GradAOTOutput(grad_of=PlainAOTInput(idx=7))"],
    )
    recorded: object = Recorded(record)
    assert inputs_of(recorded) == {"primals_1": "parameter 0.weight"}  # type: ignore[arg-type]
    reported = outputs_of(recorded, "output")  # type: ignore[arg-type]
    assert reported == [
        OutputRole(0, "a", "gradient", "0.weight"),
        OutputRole(1, "b", "gradient", "primals_8"),
        OutputRole(3, "c", "user", "output[0]"),
    ]
    assert [item.text() for item in reported] == ["gradient of 0.weight", "gradient of primals_8", "output[0]"]
    assert outputs_of(recorded, "primals_1") == []  # type: ignore[arg-type]
