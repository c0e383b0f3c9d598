"""tiktoken's ready-made encodings: gpt2, cl100k_base, o200k_base.

Their files are kept in tiktoken's cache folder, and are downloaded the first time that one is asked for. A tokenizer
built from them is saved like every other, and then needs neither.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from gptlite.download import download
from gptlite.errors import Problem, StorageError
from gptlite.formatting import Say, say_nothing
from gptlite.storage import files
from gptlite.tokenizers.bpe import BpeTokenizer
from gptlite.tokenizers.folder import END_OF_TEXT

_HOST = "https://openaipublic.blob.core.windows.net/"
# Each file's path on the host, and its sha256.
_FILES = {
    "gpt2": {
        "gpt-2/encodings/main/vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
        "gpt-2/encodings/main/encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    },
    "cl100k_base": {
        "encodings/cl100k_base.tiktoken": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
    },
    "o200k_base": {"encodings/o200k_base.tiktoken": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"},
}
NAMES = tuple(_FILES)
_MAX_BYTES = 16 << 20  # the largest file has 4 MB
_WHERE = "tokenizer.kind"


def load_named(kind: str, say: Say = say_nothing) -> BpeTokenizer:
    """Return one of NAMES, with tiktoken's ids. Of its special tokens only end-of-text is kept, so that it is last.

    Raise StorageError, a line per missing file, when they are neither cached nor downloadable.
    """
    from tiktoken_ext.openai_public import ENCODING_CONSTRUCTORS  # type: ignore[import-untyped]

    _fill_cache(kind, say)
    parts = ENCODING_CONSTRUCTORS[kind]()
    ranks = sorted(parts["mergeable_ranks"], key=parts["mergeable_ranks"].__getitem__)
    vocab_size = parts["special_tokens"][END_OF_TEXT] + 1
    return BpeTokenizer(kind, parts["pat_str"], tuple(ranks), vocab_size, vocab_size)


def _fill_cache(kind: str, say: Say) -> None:
    """Put the encoding's files into tiktoken's cache folder, checked, so that tiktoken itself downloads nothing."""
    default = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", default))
    if not folder:
        raise StorageError(
            f"TIKTOKEN_CACHE_DIR is empty, which leaves no folder for the files of {kind}. Set it to a folder.", _WHERE
        )
    problems: list[Problem] = []
    for name, sha256 in _FILES[kind].items():
        url = _HOST + name
        path = Path(folder) / hashlib.sha1(url.encode()).hexdigest()  # as tiktoken names it
        with files.storage_errors(path, "read"):
            if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
                continue
        try:
            download([url], path, sha256, max_bytes=_MAX_BYTES, where=_WHERE, say=say)
        except StorageError as error:
            problems += error.problems
    if problems:
        advice = f"the files of {kind} are kept in {folder}. Set TIKTOKEN_CACHE_DIR to keep them elsewhere."
        raise StorageError([*problems, Problem(advice, _WHERE)])
