"""`strict`: Inductor under torch's mode of that name, which asks for eager's numerics; see `lite`."""

from .lite import Mode

RUNG = Mode("strict")
"""The one instance that the registry hands out."""
