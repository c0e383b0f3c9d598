"""Preparing a data set: text to token ids on disk. The folder appears complete under its name.

The text is read four times: to hash it, to plan its split, and to encode each of the two parts. A BPE reads the
training text once more to learn.
"""

from __future__ import annotations

import dataclasses
import glob
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gptlite.compute.limits import available_threads
from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.manifest import Manifest, SourceRecord, SplitRecord, TextReport, TokenizerRecord
from gptlite.data.dataset.prepared import ADVICE, TOKENIZER_FOLDER, Prepared, Split
from gptlite.data.dataset.tokens import Tokens, count_ids, find_id
from gptlite.data.preparing.corpus import Corpus, changed_meanwhile, scan
from gptlite.data.preparing.encode import Encoded, encode_corpus, learning_text
from gptlite.data.preparing.fingerprint import FingerprintedSources, HashCache, find_finished, fingerprint_sources
from gptlite.data.sources.documents import describe_reading, describe_skipped
from gptlite.errors import DataError, StorageError, UserError
from gptlite.formatting import Say, counted, say_nothing
from gptlite.storage import files, locks
from gptlite.storage.sealed import MANIFEST, SealedFolder, write_folder, write_manifest
from gptlite.tokenizers.base import Tokenizer, build, label, load

_MERGES, _CHARACTERS = 8, 20  # that the report names


def prepare(
    data: DataSection,
    tokenizer: TokenizerSection,
    say: Say = say_nothing,
    *,
    name: str | None = None,
    workers: int | None = None,
) -> Prepared:
    """Return the prepared data set of this text and these keys, made now or earlier.

    The fingerprint at the end of a folder's name identifies it; before it is `name` or the name of the text. Beside the
    folders, data.dir has hidden files: a cache of hashes, and locks of the cache and of each folder. `say`
    gets lines for the user. workers: threads that encode a BPE, which change nothing in the result; None takes the
    cores that this process may use.

    DataError for unusable text, before anything is written; StorageError for disk and network. A killed process leaves
    nothing under the final name, and the next one continues after its last finished shard.
    """
    cache = HashCache(data.folder)
    sources = fingerprint_sources(data, tokenizer, cache)
    prepared = find_finished(sources, data.folder)
    if prepared is None:
        for source in sources.sources:
            source.fetch(say)
        workers = workers or available_threads().value
        prepared = _build(data.folder / sources.folder_name(name), sources, data, tokenizer, cache, say, workers)
    try:
        cache.save()
    except StorageError as error:  # data.dir may be shared and read-only
        say(f"warning: the text will be read again next time, because its hashes could not be saved: {error}")
    return prepared


def _build(
    folder: Path,
    sources: FingerprintedSources,
    data: DataSection,
    section: TokenizerSection,
    cache: HashCache,
    say: Say,
    workers: int,
) -> Prepared:
    corpus = scan(sources.sources, data.val_fraction, data.val_max_bytes, deduplicate=data.deduplicate)
    for line in _describe(corpus, data):
        say(line)
    if section.from_ is not None:
        try:
            load(Path(section.from_)).encode(corpus.characters)
        except DataError as error:  # it names those without an id
            own = "Or give the new model a tokenizer of its own, such as --set tokenizer.kind=char."
            raise DataError(f"{error.problems[0].sentence} {own}", "tokenizer.from") from error
    with locks.lock(folder.with_name(f".{folder.name}.lock"), "gptlite prepare", say):
        if (finished := find_finished(sources, folder.parent)) is not None:
            return finished  # by the process that had the lock
        files.remove_tree(folder)
        if (unfinished := _unfinished(folder)) is not None:
            say("continuing where an earlier preparation of this text was stopped")
        else:
            tokenizer = build(section, corpus.characters, partial(learning_text, corpus), say)
            unfinished = _begin(folder, tokenizer)
        # Not after Ctrl-C: then the next preparation continues.
        with files.removed_on_error(unfinished.path, Exception):
            _finish(unfinished, sources, corpus, data, say, workers)
            if fingerprint_sources(data, section, cache).fingerprint != sources.fingerprint:
                raise changed_meanwhile(sources.sources)
            files.publish(unfinished.path, folder)
    return Prepared(folder)


def _describe(corpus: Corpus, data: DataSection) -> Iterator[str]:
    """Say what was read, and how."""
    names = ", ".join(source.name for source in corpus.sources[:3])
    n_files, documents = sum(corpus.files), len(corpus.sizes)
    found = [counted(n_files, "file"), *([counted(documents, "document")] if documents != n_files else [])]
    skipped = describe_skipped(corpus.skipped)
    yield f"{names}: {', '.join(found)}, {sum(corpus.text_bytes):,} bytes of text{skipped}"
    for source in corpus.sources:
        yield from describe_reading(source.files, source.reading, asked=data.documents)
    if corpus.withheld:
        yield f"skipped {counted(corpus.withheld, 'training document')} that the validation text has, too"
    if corpus.copies:
        yield (
            f"{counted(corpus.copies, 'document')} of {documents:,} equal an earlier one; "
            "use data.deduplicate=true to leave them out"
        )


def _leftovers(folder: Path) -> list[Path]:
    return sorted(folder.parent.glob(f"{glob.escape(folder.name)}{files.TEMP_MARK}*"))


def _unfinished(folder: Path) -> SealedFolder | None:
    """Return the folder of a killed process that can be continued: what it wrote is still the same."""
    for path in _leftovers(folder):
        try:
            found = SealedFolder.open(path, ADVICE).verified()
        except UserError:
            continue
        if "done" in found.fields:
            for file in path.iterdir():  # that it was about to write
                if file.name not in (MANIFEST, *found.files) and not file.is_dir():
                    files.remove_tree(file)
            return found
    return None


def _begin(folder: Path, tokenizer: Tokenizer) -> SealedFolder:
    """Make an unfinished folder with a tokenizer, instead of those that cannot be continued."""
    for leftover in _leftovers(folder):
        files.remove_tree(leftover)
    temp = files.temp_name(folder)
    contents = ((f"{TOKENIZER_FOLDER}/{name}", content) for name, content in sorted(tokenizer.files().items()))
    write_folder(temp, {"done": {"train": 0, "val": 0}}, contents)
    return SealedFolder.open(temp, ADVICE)


def _finish(
    folder: SealedFolder, sources: FingerprintedSources, corpus: Corpus, data: DataSection, say: Say, workers: int
) -> None:
    """Write what is missing of a prepared data set, its manifest last."""
    tokenizer = load(folder.path / TOKENIZER_FOLDER)
    if tokenizer.vocab_size < tokenizer.requested_vocab_size:
        say(
            f"warning: tokenizer.vocab_size is {tokenizer.requested_vocab_size}, but the training text has only merges "
            f"for {tokenizer.vocab_size} ids. Give more text to get more."
        )
    encoded = encode_corpus(folder, corpus, tokenizer, workers=workers)
    whole = SealedFolder.open(folder.path, ADVICE)
    train, val = (Split(whole, name, tokenizer.vocab_size) for name in ("train", "val"))
    end = tokenizer.eot_id if corpus.has_several_documents else None
    counts = count_ids(train, tokenizer.vocab_size, exact=True)
    manifest = Manifest(
        fingerprint=sources.fingerprint,
        sources=tuple(
            SourceRecord(storable(source.name), n_files, text_bytes, source.sha256, source.python)
            for source, n_files, text_bytes in zip(sources.sources, corpus.files, corpus.text_bytes, strict=True)
        ),
        encoding=data.encoding,
        normalize=data.normalize,
        tokenizer=TokenizerRecord(
            tokenizer.kind, tokenizer.fingerprint, tokenizer.vocab_size, tokenizer.requested_vocab_size
        ),
        start_id=choose_start_id(corpus, tokenizer, counts),
        split_rule=corpus.plan.rule,
        train=record_split(train, encoded.text_bytes["train"], end),
        val=record_split(val, encoded.text_bytes["val"], end),
        baselines=encoded.baselines,
        report=make_report(corpus, encoded, tokenizer, counts),
    )
    write_manifest(folder.path, dataclasses.asdict(manifest), encoded.files)


def record_split(tokens: Tokens, text_bytes: int, end: int | None) -> SplitRecord:
    """Return the sizes of a split. end: the id before each document; None for a single document."""
    starts = np.zeros(1, np.int64) if end is None else find_id(tokens, end)
    lengths = np.sort(np.diff(starts, append=tokens.n_tokens))
    half = np.searchsorted(2 * np.cumsum(lengths), tokens.n_tokens, "right")
    return SplitRecord(tokens.n_tokens, text_bytes, len(lengths), int(lengths[half]))


def choose_start_id(corpus: Corpus, tokenizer: Tokenizer, counts: npt.NDArray[np.int64]) -> int:
    """Return the id that sampling starts from: end-of-text if there are several documents. counts: of ids, (V,).

    For a single one the newline if it is a token of the training text, else the most frequent id.
    """
    if corpus.has_several_documents:
        return tokenizer.eot_id
    newline = next((i for i, piece in enumerate(tokenizer.token_bytes()) if piece == b"\n"), None)
    return newline if newline is not None and counts[newline] else int(counts.argmax())


def make_report(corpus: Corpus, encoded: Encoded, tokenizer: Tokenizer, counts: npt.NDArray[np.int64]) -> TextReport:
    """Return the report on a corpus that was encoded. counts: of the ids of the training text, (V,)."""
    val_only = "".join(sorted(set(corpus.characters).difference(encoded.trained.sorted())))
    return TextReport(
        copies=corpus.copies,
        longest=tuple((storable(place), size) for place, size in corpus.longest),
        used_ids=int((counts > 0)[:-1].sum()),  # without end-of-text
        val_only=val_only[:_CHARACTERS],
        n_val_only=len(val_only),
        merges=() if tokenizer.kind == "char" else _merges(counts, tokenizer),
        forced_cuts=encoded.forced_cuts,
        withheld=corpus.withheld,
    )


def _merges(counts: npt.NDArray[np.int64], tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the tokens by which the training text has most fewer tokens than bytes."""
    pieces = tokenizer.token_bytes()
    saved = counts * np.array([max(0, len(piece) - 1) for piece in pieces], np.int64)
    return tuple(label(pieces[i]) for i in np.argsort(-saved, kind="stable")[:_MERGES].tolist() if saved[i])


def storable(name: str) -> str:
    """Return a name for JSON: it may have bytes that are not UTF-8, which Python keeps as surrogates."""
    return name.encode(errors="backslashreplace").decode()
