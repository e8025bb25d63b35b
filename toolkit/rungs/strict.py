"""`strict`: Inductor under torch's mode of that name, which asks for eager's numerics; see `lite`."""

from .lite import Mode

RUNG = Mode("strict", order=90, words="torch's mode of that name: eager's numerics", layer="inductor", is_side=True)
"""The one instance that the registry hands out."""
