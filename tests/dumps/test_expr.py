"""Symbol expressions: the meaning torch gives them, and that nothing but arithmetic can be asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.dumps import expr
from graphdbg.dumps.errors import RefusedError, UnreadableError
from graphdbg.dumps.expr import Apply, SymbolName, evaluate, parse

VALUES = {"s0": 8, "s1": 3, "u0": -5}

numbers = st.integers(0, 10**6) | st.floats(0, 1e6, allow_nan=False, allow_infinity=False) | st.booleans()
names = st.sampled_from(["s0", "s1", "u0", "zf3", "int_oo"]).map(SymbolName)


def unparse(tree: expr.Expr) -> str:
    """Text that parses to the same expression; functions are written by name."""
    if isinstance(tree, SymbolName):
        return tree.name
    if isinstance(tree, Apply):
        args = [unparse(arg) for arg in tree.args]
        if tree.function == "Piecewise":
            args = [f"({value}, {condition})" for value, condition in zip(args[::2], args[1::2], strict=True)]
        return f"{tree.function}({', '.join(args)})"
    return repr(tree)


def applications(inner: st.SearchStrategy[expr.Expr]) -> st.SearchStrategy[expr.Expr]:
    def arguments(function: str) -> st.SearchStrategy[expr.Expr]:
        least, most = expr.ARITY[function]
        sizes = st.just(4) if function == "Piecewise" else st.integers(least, min(most, 3))
        return sizes.flatmap(lambda n: st.tuples(*[inner] * n)).map(lambda args: Apply(function, args))

    return st.sampled_from(sorted(expr.ARITY)).flatmap(arguments)


expressions = st.recursive(numbers | names, applications, max_leaves=12)


@given(expressions)
def test_what_is_written_parses_to_the_same(tree: expr.Expr) -> None:
    assert parse(unparse(tree)) == tree


@given(expressions)
def test_evaluation_gives_a_number_or_a_sentence(tree: expr.Expr) -> None:
    try:
        assert isinstance(evaluate(tree, VALUES), (int, float))
    except UnreadableError as error:
        assert "cannot evaluate an expression" in str(error)


@given(st.one_of(st.text(), st.text("s01+-*/%()<>=&|^~,. eE", max_size=30)))
def test_any_text_parses_or_is_refused_in_a_sentence(text: str) -> None:
    try:
        tree = parse(text)
    except UnreadableError as error:
        assert "expression" in str(error)
    else:
        assert parse(unparse(tree)) == tree


operators = st.recursive(
    st.integers(0, 50).map(str) | st.sampled_from(["s0", "s1", "u0"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" + ", " - ", "*", "//", " % "]), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-{text}"),
    ),
    max_leaves=10,
)


@given(operators)
def test_operators_bind_as_in_python(text: str) -> None:
    try:
        wanted = eval(text, {"__builtins__": {}}, dict(VALUES))
    except ZeroDivisionError:
        return
    assert evaluate(text, VALUES) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2*(((s0 + 1)//s1))", 6),
        ("Eq(Mod(s0, 2), 0)", True),
        ("(s1 >= 3) & (s0 < 5)", False),
        ("s0**2/2", 32),
        ("Piecewise((s0, s0 < 3), (1, True))", 1),
        ("1/s0", 0.125),
        ("s0*s1/4", 6),
        ("-((s0//2))", -4),
        ("2**s0", 256),
        ("-s0**2", -64),
        ("Max(5, s0, s1)", 8),
        ("(s0 < 5) ^ (s1 < 4)", True),
        ("1.0e-3*s0", 0.008),
        ("s0/3*3", 8),
        ("ModularIndexing(s0, 2, 3)", 1),
        ("PythonMod(u0, 3)", 1),
        ("CeilToInt(0.3*s0)", 3),
        ("IntTrueDiv(s0, 16)", 0.5),
        ("Where(s0 < 5, s0, s1)", 3),
        ("TruncToInt(1.5*s1)", 4),
        ("BitwiseFn_bitwise_and(s0, 12)", 8),
        ("s0 <= int_oo", True),
        ("OpaqueUnaryFn_sqrt(16)", 4.0),
        ("RoundDecimal(ToFloat(s0/3), 2)", 2.67),
        ("~(s0 < 5)", True),
        ("not s0 < 5 and s1 < 5", True),
        ("IsNonOverlappingAndDenseIndicator(4, 8, 8, 1)", 1),
        ("FloatPow(ToFloat(s0), 0.5)", 8**0.5),
        ("Ne(s0, 1) | Eq(s1, 3)", True),
    ],
)
def test_torchs_expressions(text: str, wanted: object) -> None:
    assert evaluate(text, VALUES) == pytest.approx(wanted)


@pytest.mark.parametrize(
    "text",
    [
        "__import__(os)",
        "eval(s0)",
        "s0.x",
        "s0[0]",
        "lambda: 1",
        "'a'",
        "(s0 for s0 in s1)",
        "f()",
        "exec(1)",
        "s0; s1",
        "s0 = 1",
        "\u0660",
        "1\n2",
        "{s0}",
        "`s0`",
        "@",
        "Max(*s0)",
        "Max(x=1)",
        "a < b < c",
        "0x10",
        "1_0",
        "0.E1_0",
        "1j",
        "...",
        "None",
        "s0 if s1 else 1",
        "s0 in s1",
        "(s0, s1)",
        "Max(s0,)",
        "(Max)(s0)",
        "Max(**s0)",
        "(s0 := 1)",
    ],
)
def test_nothing_but_arithmetic_parses(text: str) -> None:
    with pytest.raises(UnreadableError):
        parse(text)


def test_an_unknown_function_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match="'getattr', which a size expression may not call"):
        parse("1 + getattr(s0, s1)")


@pytest.mark.parametrize(
    "text", ["(" * 5000, "-" * 5000 + "1", "1" + "/1" * 3000, "9" * 5000, "1" + "+1" * 20000, "Max(" * 300]
)
def test_size_and_depth_are_bounded(text: str) -> None:
    with pytest.raises(UnreadableError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("s0 + s1 - u0", "Add(s0, s1, Neg(u0))"),
        ("(s0 + s1) + u0", "Add(Add(s0, s1), u0)"),
        ("s0 | s1 or u0", "Or(s0, s1, u0)"),
        ("s0*s1/2*u0", "Mul(Div(Mul(s0, s1), 2), u0)"),
        ("s0 -\n 1 ", "Add(s0, Neg(1))"),
    ],
)
def test_only_parentheses_keep_a_sum_from_coming_out_flat(text: str, written: str) -> None:
    assert unparse(parse(text)) == written


def test_depth_is_bounded_in_what_is_unexpected() -> None:
    with pytest.raises(UnreadableError, match="unexpected"):
        parse("s0 if 1" + "+1" * 900 + " else s1")


@pytest.mark.parametrize(
    "text", ["10**10**10", "2**(2**20)", "LShift(1, 99999999)", "1/(s0 - 8)", "unknown + 1", "Mod(s0, 0)"]
)
def test_results_are_bounded_and_told(text: str) -> None:
    with pytest.raises(UnreadableError, match="cannot evaluate"):
        evaluate(text, VALUES)


def test_symbols_leave_out_constants() -> None:
    assert expr.symbols("Max(s0, s1*2) <= int_oo") == {"s0", "s1"}
