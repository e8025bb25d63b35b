"""A row of the capture matrix, run once.

python matrix.py cond
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from capture_programs import PROGRAMS

if __name__ == "__main__":
    torch.manual_seed(0)
    PROGRAMS[sys.argv[1]].run()
