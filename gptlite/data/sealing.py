"""Prepared folders of version 1, whose manifest has no seal: what can be checked of it, and the seal it gets."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import numpy.typing as npt

from gptlite import files
from gptlite.data.checked_files import damaged
from gptlite.data.fingerprint import FingerprintedSources
from gptlite.data.manifest import FILE_NAME, MAX_FILE_BYTES, FileRecord
from gptlite.data.prepared import TOKENIZER_FOLDER, Prepared, Split
from gptlite.data.tokens import start_of_one_document
from gptlite.json_files import SEALED_VERSION

_PIECE = 1 << 20  # ids that are counted at a time


def verify_unsealed(prepared: Prepared, sources: FingerprintedSources) -> None:
    """Read every byte, and check values of the manifest that follow from the ids and the text. DataError for damage."""
    prepared.verify()
    manifest, tokenizer = prepared.manifest, prepared.tokenizer()
    lengths = np.array([len(piece) for piece in tokenizer.token_bytes()])
    train, val = (_count(prepared.split(name), tokenizer.vocab_size) for name in ("train", "val"))
    several = manifest.split_rule.rule != "tail_of_the_document"
    texts = [
        [source.name, source.python, sha256] for source, sha256 in zip(sources.sources, sources.sha256s, strict=True)
    ]
    for key, stated, found in (
        ("sources", [[record.name, record.python, record.sha256] for record in manifest.sources], texts),
        ("train.bytes", manifest.train.bytes, int(train @ lengths)),
        ("val.bytes", manifest.val.bytes, int(val @ lengths)),
        ("start_id", manifest.start_id, tokenizer.eot_id if several else start_of_one_document(train, tokenizer)),
    ):
        if stated != found:
            raise damaged(prepared.path / FILE_NAME, f"{key} is {str(stated)[:99]}, and should be {str(found)[:99]}")


def _count(split: Split, vocab_size: int) -> npt.NDArray[np.int64]:
    """How often each id occurs: (vocab_size,)."""
    counts = np.zeros(vocab_size, np.int64)
    for start in range(0, split.n_tokens, _PIECE):
        counts += np.bincount(split.read(start, min(_PIECE, split.n_tokens - start)), minlength=vocab_size)
    return counts


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
