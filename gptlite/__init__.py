"""Train small GPTs on your own text.

    import gptlite
    m = gptlite.load("runs/small")
    m.generate("def "), m.score("some text"), m.tokenizer.encode("some text")
    gptlite.train(data="book.txt", minutes=3), gptlite.compare("small", "small-2")

Importing gptlite is quick: torch is imported with the first use of `load` or `train`.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gptlite.compute.limits import set_short_spin
from gptlite.version import __version__

if TYPE_CHECKING:
    from gptlite.cli.python import compare as compare
    from gptlite.cli.python import train as train
    from gptlite.inference.load import load as load

__all__ = ["__version__", "compare", "load", "train"]

_LAZY = {"load": "gptlite.inference.load", "train": "gptlite.cli.python", "compare": "gptlite.cli.python"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gptlite' has no attribute {name!r}")
    set_short_spin(os.environ, sys.modules)  # before the module imports torch
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
