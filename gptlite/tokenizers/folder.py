"""What all tokenizers share: the sealed JSON file that describes one, its fingerprint, and the check of ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gptlite.errors import Damaged, DataError
from gptlite.storage.sealed_json import seal

Ids: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]

END_OF_TEXT = "<|endoftext|>"
META_FILE = "gptlite_tokenizer.json"


def fingerprint(fields: Mapping[str, Any]) -> str:
    """Return the hex sha256 over those fields of META_FILE that decide ids."""
    return seal({key: value for key, value in fields.items() if key != "requested_vocab_size"})


def not_a_tokenizer(path: Path, reason: str) -> Damaged:
    """Return the error for a META_FILE that gptlite did not write, although its seal holds."""
    return Damaged(f"the file does not describe a tokenizer: {reason}. Restore it from a copy.", str(path))


def checked_ids(ids: Iterable[int], vocab_size: int) -> npt.NDArray[np.int64]:
    """Return the ids as an array, (n,). Raise DataError for one outside 0 .. vocab_size - 1."""
    array = np.asarray(ids, np.int64) if isinstance(ids, np.ndarray) else np.fromiter(ids, np.int64)
    outside = (array < 0) | (array >= vocab_size)
    if outside.any():
        raise DataError(
            f"{array[outside][0]} is not an id of this tokenizer, which has 0 to {vocab_size - 1}. "
            "Use the tokenizer that the ids came from."
        )
    return array
