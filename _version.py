"""The version, stated here alone: pyproject.toml, `graphdbg --version` and what is written into reports read it.

>>> __version__.count(".")
2
"""

__version__ = "0.1.0"
