"""What decides the content of a prepared folder, and so its name."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data import manifest
from gptlite.data.charset import is_wide
from gptlite.data.hashes import HashCache
from gptlite.data.sources import Source, open_source
from gptlite.tokenizers.base import fingerprint_inputs

_SHOWN = 12  # hex digits of the fingerprint in the folder's name
_LONGEST_NAME = 40


@dataclass(frozen=True, eq=False)
class Recipe:
    """Opened sources, their content hashes, and the fingerprint over all that changes the output.

    Where the text lies does not change it, what its files are called on disk does.
    """

    sources: tuple[Source, ...]
    sha256s: tuple[str, ...]
    fingerprint: str

    @property
    def short(self) -> str:
        """As much of the fingerprint as stands in the folder's name."""
        return self.fingerprint[:_SHOWN]

    def folder_name(self, name: str | None = None) -> str:
        """`<name>-<fingerprint>`; without a name, that of the first source."""
        first, more = self.sources[0], len(self.sources) - 1
        called = Path(first.name).stem if first.one_file else Path(first.name).parts[0]
        called = re.sub(r"[^\w-]+", "-", unicodedata.normalize("NFC", name or called)).strip("-_")[:_LONGEST_NAME]
        and_more = f"-and-{more}-more" if more and name is None else ""
        return f"{called or 'data'}{and_more}-{self.short}"


def read_recipe(data: DataSection, tokenizer: TokenizerSection, cache: HashCache) -> Recipe:
    """Open and hash the sources. DataError for what cannot be opened or read, StorageError for a failed download."""
    sources = tuple(open_source(spec, data.encoding, data.normalize, leave_out=(data.folder,)) for spec in data.sources)
    sha256s = tuple(_sha256(source, cache) for source in sources)
    decides = {
        "format_version": manifest.FORMAT_VERSION,
        "sources": [[source.name, source.python, sha256] for source, sha256 in zip(sources, sha256s, strict=True)],
        "encoding": codecs.lookup(data.encoding).name,
        "normalize": data.normalize,
        "unicode": unicodedata.unidata_version if data.normalize == "nfc" else None,
        "val_fraction": data.val_fraction,
        "val_max_bytes": data.val_max_bytes,
        "tokenizer": fingerprint_inputs(tokenizer),
    }
    return Recipe(sources, sha256s, hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest())


def _sha256(source: Source, cache: HashCache) -> str:
    """Of a named file, its own; of a folder or glob, that of its text files' hashes, one a line, in their order."""
    if source.one_file:
        (path,) = source.files
        sha256 = cache.sha256(path)
        if source.card is not None:
            source.card.check(path, sha256)
        return sha256
    skip_binary = not is_wide(source.encoding)
    lines = [cache.text_sha256(path) if skip_binary else cache.sha256(path) for path in source.files]
    return hashlib.sha256("\n".join(line for line in lines if line is not None).encode()).hexdigest()
