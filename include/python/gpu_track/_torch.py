"""PyTorch, as far as the program itself uses it on a GPU. To ask imports nothing, and makes it use no GPU."""

from __future__ import annotations

import sys
from typing import Any


def cuda() -> Any | None:  # noqa: ANN401 (PyTorch)
    """`torch.cuda`. None: the program has not begun to use a GPU by it."""
    found = getattr(sys.modules.get("torch"), "cuda", None)
    return found if found is not None and found.is_initialized() else None
