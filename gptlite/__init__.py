"""Train small GPTs on your own text.

    import gptlite
    m = gptlite.load("runs/small")
    m.generate("def "), m.score("some text"), m.tokenizer.encode("some text")

Importing gptlite loads nothing heavy: torch comes with the first call.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gptlite.compute.openmp import set_short_spin
from gptlite.version import __version__

if TYPE_CHECKING:
    from gptlite.inference.load import load as load
    from gptlite.training.launch import train as train

__all__ = ["__version__", "load", "train"]

_LAZY = {"load": "gptlite.inference.load", "train": "gptlite.training.launch"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gptlite' has no attribute {name!r}")
    set_short_spin(os.environ, sys.modules)  # torch comes with the module
    return getattr(import_module(_LAZY[name]), name)
