"""PyTorch, as far as the program itself uses it on a GPU. To ask imports nothing, and makes it use no GPU."""

from __future__ import annotations

import sys
from typing import Any


def cuda() -> Any | None:  # noqa: ANN401 (PyTorch)
    """`torch.cuda`. None: the program has not begun to use a GPU by it."""
    found = getattr(sys.modules.get("torch"), "cuda", None)
    return found if found is not None and found.is_initialized() else None


def reserved_bytes(found: Any | None) -> int | None:  # noqa: ANN401 (PyTorch)
    """How much memory of all GPUs PyTorch's allocator has, by `cuda()`. None: it does not tell, or there is none."""
    try:
        return None if found is None else sum(map(found.memory_reserved, range(found.device_count())))
    except Exception:
        # Another allocator than PyTorch's own lacks the figure, and each raises an error of its own kind.
        return None
