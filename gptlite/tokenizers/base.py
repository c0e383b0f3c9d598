"""Building a tokenizer, loading one from a folder, and tiktoken's encodings gpt2, cl100k_base, o200k_base; ids as text.

The files of these encodings are kept in tiktoken's cache folder, and are downloaded the first time that one is asked
for. A tokenizer built from them is saved like every other, and then needs neither.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlite.download import download
from gptlite.errors import Problem, StorageError
from gptlite.formatting import Say, say_nothing
from gptlite.storage import files
from gptlite.storage.sealed import read_sealed
from gptlite.tokenizers.bpe import PATTERNS, BpeTokenizer, read_foreign, train_bpe
from gptlite.tokenizers.char import CharTokenizer
from gptlite.tokenizers.folder import END_OF_TEXT, META_FILE
from gptlite.tokenizers.folder import Tokenizer as Tokenizer

if TYPE_CHECKING:
    from gptlite.config.schema import TokenizerSection

Texts = Callable[[], Iterable[str]]

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
_MAX_BYTES = 16 << 20  # the largest file has 4 MB
_WHERE = "tokenizer.kind"
FOREIGN_FILE = "tokenizer.json"


def build(section: TokenizerSection, characters: str, train_texts: Texts, say: Say = say_nothing) -> Tokenizer:
    """Build the tokenizer that a config asks for, or load the one in the folder `from`, which reads no text.

    char takes the `characters` of all text, so that none of the validation text is unknown; bpe learns from
    `train_texts` alone. A named encoding reads neither, and is downloaded if it is missing (StorageError);
    `say` gets the progress of that.
    """
    if section.from_ is not None:
        return load(Path(section.from_))
    if section.kind == "char":
        return CharTokenizer(characters)
    if section.kind == "bpe":
        return train_bpe(train_texts(), section.bpe_vocab_size, PATTERNS[section.bpe_pattern])
    return load_named(section.kind, say)


def fingerprint_inputs(section: TokenizerSection) -> dict[str, Any]:
    """Return everything but the text that decides which tokenizer `build` makes, as plain JSON values."""
    inputs: dict[str, Any] = {"kind": section.kind}
    if section.from_ is not None:  # the tokenizer itself decides, wherever it lies
        found = load(Path(section.from_))
        inputs |= {"fingerprint": found.fingerprint, "requested_vocab_size": found.requested_vocab_size}
    elif section.kind == "bpe":
        # Another release may break ties between equally frequent pairs differently.
        trainer = f"tokenizers {importlib.metadata.version('tokenizers')}"
        pattern = PATTERNS[section.bpe_pattern]
        inputs |= {"vocab_size": section.bpe_vocab_size, "pattern": pattern, "trainer": trainer}
    return inputs


def load_named(kind: str, say: Say = say_nothing) -> BpeTokenizer:
    """Return a named encoding, with tiktoken's ids. Of its special tokens only end-of-text is kept, so that it is last.

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


def is_foreign(folder: Path) -> bool:
    """Return whether a folder has a tokenizer that another program wrote."""
    return not os.path.lexists(folder / META_FILE) and os.path.isfile(folder / FOREIGN_FILE)


def load(folder: Path) -> Tokenizer:
    """Load the tokenizer whose `files` are in `folder`, without a network or a cache; or that of a GPT-2.

    Raise Damaged if the file that describes it is missing or was changed, RunError if it has another format version,
    DataError if it is no tokenizer like that of GPT-2.
    """
    if is_foreign(folder):
        return read_foreign(folder / FOREIGN_FILE)[0]
    fields = read_sealed(folder / META_FILE)
    is_char = fields["kind"] == CharTokenizer.kind
    return CharTokenizer(fields["characters"]) if is_char else BpeTokenizer.read(fields)


def readable(piece: bytes) -> str:
    """Return the text of a token, with newlines, tabs and blanks as they are.

    Parts of characters, control characters and marks that change the direction of writing become escape sequences.

    >>> readable(b"a\\n"), readable(b"\\xe6\\x97"), readable("\\u202e".encode())
    ('a\\n', '\\\\xe6\\\\x97', '\\\\u202e')
    """
    text = piece.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def label(piece: bytes) -> str:
    """Return the text of a token on one line, with a symbol for each blank, newline and tab.

    >>> label(b" the\\n")
    '␣the↵'
    """
    return readable(piece).translate({ord(" "): "␣", ord("\n"): "↵", ord("\t"): "⇥"})


def labels(pieces: Sequence[bytes], ids: Iterable[int], end: int) -> dict[int, str]:
    """Return labels by id. `end` is the id of end-of-text."""
    return {i: "end of text" if i == end else label(pieces[i]) or "no text" for i in ids}
