"""The seal that a prepared folder of version 1 gets."""

from __future__ import annotations

import dataclasses
import hashlib

from gptlite.data.dataset.manifest import FILE_NAME, MAX_FILE_BYTES, FileRecord
from gptlite.data.dataset.prepared import TOKENIZER_FOLDER, Prepared
from gptlite.storage import files
from gptlite.storage.json_files import SEALED_VERSION


def seal(prepared: Prepared) -> Prepared:
    """Give a verified folder of version 1 a manifest with a seal, which lists the files of its tokenizer, too.

    StorageError when it cannot be written. Call it only while holding the folder's lock.
    """
    folder, found = prepared.path / TOKENIZER_FOLDER, {}
    for name in prepared.tokenizer().files():
        path = folder / name
        if path.exists():  # other versions may write other files
            with files.storage_errors(path, "read"):
                content = files.read_own(path, MAX_FILE_BYTES)
            found[name] = FileRecord(len(content), hashlib.sha256(content).hexdigest())
    manifest = dataclasses.replace(
        prepared.manifest,
        format_version=SEALED_VERSION,
        tokenizer=dataclasses.replace(prepared.manifest.tokenizer, files=found),
    )
    files.remove_leftovers(prepared.path)
    files.replace(prepared.path / FILE_NAME, manifest.to_json())
    return Prepared(prepared.path)
