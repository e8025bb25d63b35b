"""Keeps a copy of each of the user's files that a captured graph names, as Python knows it: the text that the stacks quote.

Files of torch, of installed packages and of Python itself are left out. What cannot be had is passed over.

>>> keep(writer, record)
"""

from __future__ import annotations

import linecache
import re
from typing import TYPE_CHECKING

from ...dumps.pack.places import is_absolute, known

if TYPE_CHECKING:
    from ...dumps.schema import GraphRecord
    from ...dumps.writer import ProcessWriter

_FILE = re.compile(r'^\s*File "([^"\n]+)", line \d+', re.MULTILINE)


def keep(writer: ProcessWriter, record: GraphRecord) -> None:
    """Keeps the files that the record's stacks name and that were not kept yet, where there is room."""
    files = {file for text in record.strings if 'File "' in text for file in _FILE.findall(text)}
    for file in sorted(files - writer.sources.known):
        if is_absolute(file) and known(file) is not None:
            writer.sources.known.add(file)
            continue
        text = "".join(linecache.getlines(file))  # also of notebook cells, which are no files
        if not text or (writer.gate is not None and not writer.gate.admit_more(len(text), record.id)):
            continue
        writer.sources.keep(file, text)
