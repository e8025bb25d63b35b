"""The version, defined only here: pyproject.toml, `graphdbg --version` and reports read it.

>>> __version__.count(".")
2
"""

__version__ = "0.1.0"
