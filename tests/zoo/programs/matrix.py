"""A row of the capture matrix, run once.

python matrix.py cond
"""

from __future__ import annotations

import sys

import torch

from tests.models.capture_programs import PROGRAMS

if __name__ == "__main__":
    torch.manual_seed(0)
    PROGRAMS[sys.argv[1]].run()
