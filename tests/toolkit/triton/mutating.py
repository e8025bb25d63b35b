"""Puts a fault of a kind into the source of a kernel at a place that a seed chooses: the second proof of the checks.

>>> mutated(source, "mask dropped", seed=3)
'...tl.load(in_ptr0 + (x0), (xmask) | True)...'
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_BODY = "@triton.jit"
_ACCESS = re.compile(r"tl\.(?:load|store)\((?P<pointer>\w+) \+ \((?P<index>(?:[^()]|\([^()]*\))*)\), (?P<rest>.*)")


def _sites(body: str, pattern: str) -> list[re.Match[str]]:
    return list(re.finditer(pattern, body))


def _replaced(body: str, where: re.Match[str], group: str | int, new: str) -> str:
    return body[: where.start(group)] + new + body[where.end(group) :]


def _mask_dropped(body: str, choose: random.Random) -> str | None:
    result = _sites(body, r"tl\.(?:load|store)\(.*?, (?P<mask>(?:[xyr]0?_?mask)(?: & [xyr]0?_?mask)*)")
    if not result:
        return None
    where = choose.choice(result)
    return _replaced(body, where, "mask", f"({where['mask']}) | True")


def _index_shifted(body: str, choose: random.Random) -> str | None:
    result = _sites(body, _ACCESS.pattern)
    if not result:
        return None
    where = choose.choice(result)
    return _replaced(body, where, "index", f"{where['index']} + {choose.choice((1, 2, 7))}")


def _stride(body: str, choose: random.Random) -> str | None:
    result = _sites(body, r"tl\.load\(.*?(?P<stride>\d{2,})\*[xyr]\d")
    if not result:
        return None
    where = choose.choice(result)
    return _replaced(body, where, "stride", str(int(where["stride"]) + choose.choice((1, 3))))


def _low_precision(body: str, choose: random.Random) -> str | None:
    result = _sites(body, r"tl\.sum\((?P<what>\w+), ")
    if not result:
        return None
    where = choose.choice(result)
    return _replaced(body, where, "what", f"{where['what']}.to(tl.bfloat16)")


def _not_written(body: str, choose: random.Random) -> str | None:
    result = _sites(body, r"tl\.store\(.*, (?P<mask>xmask)(?= |\))")
    return (
        _replaced(body, choose.choice(result), "mask", f"xmask & (xindex % {choose.choice((2, 3, 5))} == 0)")
        if result
        else None
    )


def _one_address(body: str, choose: random.Random) -> str | None:
    result = _sites(body, r"tl\.store\(\w+ \+ \((?P<index>x\d)\)")
    return _replaced(body, choose.choice(result), "index", f"xindex % {choose.choice((3, 50, 64))}") if result else None


def _identity(body: str, choose: random.Random) -> str | None:
    result = _sites(body, r"tl\.where\([rx0_mask &]+, \w+, (?P<identity>0|float\(\"-inf\"\))\)")
    if not result:
        return None
    where = choose.choice(result)
    return _replaced(body, where, "identity", "1" if where["identity"] == "0" else 'float("inf")')


def _cast(body: str, choose: random.Random) -> str | None:
    result = _sites(body, r"tl\.store\(.*\), (?P<value>tmp\d+),")
    if not result:
        return None
    where = choose.choice(result)
    kind = choose.choice(("tl.int32", "tl.float8e5", "tl.int8"))
    return _replaced(body, where, "value", f"{where['value']}.to({kind}).to(tl.float32)")


MUTATIONS: dict[str, Callable[[str, random.Random], str | None]] = {
    "mask dropped": _mask_dropped,
    "index shifted": _index_shifted,
    "wrong stride": _stride,
    "accumulated in low precision": _low_precision,
    "a part is not written": _not_written,
    "two programs at one address": _one_address,
    "wrong identity of a reduction": _identity,
    "wrong cast": _cast,
}
"""Name -> what it does to the body of a kernel; None where there is no place for it."""


def mutated(source: str, name: str, seed: int) -> str:
    """The source with one fault of that kind; the same where it has no place for it."""
    head, mark, body = source.partition(_BODY)
    s = MUTATIONS[name](body, random.Random(seed))
    return source if s is None else head + mark + s
