"""Preparing a data set: text to token ids on disk. The folder appears complete under its name.

The text is read three times: to hash it, to plan its split, to encode it. The baselines read the
validation text once more, and a BPE some of the training text to learn.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gptlite.compute.threads import available_threads
from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset import manifest
from gptlite.data.dataset.manifest import FileRecord, Manifest, SourceRecord, SplitRecord, TokenizerRecord
from gptlite.data.dataset.prepared import TOKENIZER_FOLDER, Prepared
from gptlite.data.preparing.blocks import training_texts
from gptlite.data.preparing.corpus import Corpus, changed_meanwhile, scan
from gptlite.data.preparing.encode import (
    PROGRESS_FILE,
    EncodedCorpus,
    EncodedSplit,
    Progress,
    check_space,
    count_ids,
    encode_corpus,
    read_progress,
    write_progress,
)
from gptlite.data.preparing.find import find_finished
from gptlite.data.preparing.fingerprint import CACHE_FILE, FingerprintedSources, HashCache, fingerprint_sources
from gptlite.data.preparing.report import make_report, storable
from gptlite.data.preparing.sealing import seal
from gptlite.data.preparing.split import SPLITS
from gptlite.data.preparing.unknown_characters import check_characters
from gptlite.data.sources.describe_reading import describe_reading
from gptlite.data.sources.sources import describe_skipped
from gptlite.errors import DataError, RunError, StorageError
from gptlite.formatting import Say, counted, say_nothing
from gptlite.storage import files, locks
from gptlite.storage.json_files import SEALED_VERSION
from gptlite.tokenizers.base import Tokenizer, build, load

_HOLDER = "gptlite prepare"
# What `files.temp_name` makes of the name of a folder, or of the cache; data.dir may hold other things.
_LEFTOVER = re.compile(rf"(.+-[0-9a-f]{{12}}|{re.escape(CACHE_FILE)}){re.escape(files.TEMP_MARK)}[0-9]+-[0-9a-f]{{8}}")


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
    nothing under the final name, and the next one continues after its last finished shard. A folder without a seal, of
    an older version, is read whole, and gets one.
    """
    cache = HashCache(data.folder)
    sources = fingerprint_sources(data, tokenizer, cache)
    prepared = find_finished(sources, data.folder)
    if prepared is None:
        for source in sources.sources:
            source.fetch(say)
        workers = workers or available_threads().value
        prepared = _build(data.folder / sources.folder_name(name), sources, data, tokenizer, cache, say, workers)
    if not prepared.sealed:
        prepared = _seal(prepared, say)
    if name is not None and prepared.path.name != sources.folder_name(name):
        say(f"this text is already prepared as {prepared.path.name}; the name {name} is not used")
    try:
        cache.save()
    except StorageError as error:  # data.dir may be shared and read-only
        say(f"warning: the text will be read again next time, because its hashes could not be saved: {error}")
    return prepared


def _seal(prepared: Prepared, say: Say) -> Prepared:
    prepared.verify()
    outcome = "and it has one now"
    try:
        with locks.wait_for_lock(_lock_path(prepared.path), _HOLDER, say):
            prepared = seal(prepared)
    except (StorageError, RunError) as error:  # data.dir may be shared and read-only
        outcome = f"and it could not get one: {error}"
    say(f"warning: {prepared.path} had no seal against changes; all of it was checked, {outcome}")
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
    if (unfinished := _unfinished(folder)) is not None:
        _, tokenizer = unfinished
    else:
        tokenizer = build(section, corpus.characters, partial(training_texts, corpus), say)
    if section.from_ is not None:
        check_characters(tokenizer, corpus)
    elif tokenizer.vocab_size < tokenizer.requested_vocab_size:
        say(
            f"warning: tokenizer.vocab_size is {tokenizer.requested_vocab_size}, but the training text has only merges "
            f"for {tokenizer.vocab_size} ids. Give more text to get more."
        )
    with locks.wait_for_lock(_lock_path(folder), _HOLDER, say):
        if (finished := find_finished(sources, folder.parent)) is not None:
            return finished  # by the process that had the lock
        files.remove_tree(folder)
        _remove_other_leftovers(folder.parent)
        if (unfinished := _unfinished(folder)) is not None:
            temp, tokenizer = unfinished
            say("continuing where an earlier preparation of this text was stopped")
        else:
            check_space(folder, corpus, tokenizer)
            temp = _begin(folder, tokenizer)
        try:
            _finish(temp, tokenizer, sources, corpus, data, workers)
            if fingerprint_sources(data, section, cache).fingerprint != sources.fingerprint:
                raise changed_meanwhile(sources.sources)
            files.publish(temp, folder)
        except Exception:  # but not Ctrl-C: then the next preparation continues
            with contextlib.suppress(StorageError):  # the first error is the one to report
                files.remove_tree(temp)
            raise
    return Prepared(folder)


def _leftovers(folder: Path) -> list[Path]:
    return sorted(folder.parent.glob(f"{glob.escape(folder.name)}{files.TEMP_MARK}*"))


def _unfinished(folder: Path) -> tuple[Path, Tokenizer] | None:
    """The folder of a killed process that can be continued, and the tokenizer in it."""
    for path in _leftovers(folder):
        if (path / PROGRESS_FILE).exists():
            try:
                read_progress(path)
                return path, load(path / TOKENIZER_FOLDER)
            except (DataError, RunError):
                continue  # it is damaged
    return None


def _begin(folder: Path, tokenizer: Tokenizer) -> Path:
    """Make an unfinished folder with a tokenizer, instead of those that cannot be continued."""
    for leftover in _leftovers(folder):
        files.remove_tree(leftover)
    temp = files.temp_name(folder)
    files.make_dirs(temp / TOKENIZER_FOLDER)
    for name, content in sorted(tokenizer.files().items()):
        files.write_new(temp / TOKENIZER_FOLDER / name, content)
    files.sync_dir(temp / TOKENIZER_FOLDER)
    write_progress(temp, {name: Progress() for name in SPLITS})
    return temp


def _remove_other_leftovers(parent: Path) -> None:
    """Remove what killed processes left of other texts: what is unfinished and whose lock is free."""
    for path in parent.iterdir():
        if match := _LEFTOVER.fullmatch(path.name):
            with contextlib.suppress(RunError, StorageError), locks.lock(_lock_path(parent / match[1]), _HOLDER):
                files.remove_tree(path)


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name.removeprefix('.')}.lock")


def _finish(
    folder: Path,
    tokenizer: Tokenizer,
    sources: FingerprintedSources,
    corpus: Corpus,
    data: DataSection,
    workers: int,
) -> None:
    """Write what is missing of a prepared data set, manifest.json last."""
    encoded = encode_corpus(folder, corpus, tokenizer, workers=workers)
    count = functools.cache(partial(count_ids, folder, encoded.train.shards, tokenizer.vocab_size))
    start_id = tokenizer.eot_id if corpus.has_several_documents else _start_id(encoded, tokenizer, count)
    described = Manifest(
        format_version=SEALED_VERSION,
        fingerprint=sources.fingerprint,
        sources=tuple(
            SourceRecord(storable(source.name), n_files, text_bytes, sha256, source.python)
            for source, n_files, text_bytes, sha256 in zip(
                sources.sources, corpus.files, corpus.text_bytes, sources.sha256s, strict=True
            )
        ),
        encoding=data.encoding,
        normalize=data.normalize,
        tokenizer=TokenizerRecord(
            tokenizer.kind,
            tokenizer.fingerprint,
            tokenizer.vocab_size,
            tokenizer.requested_vocab_size,
            {
                path.name: FileRecord(path.stat().st_size, files.file_sha256(path))
                for path in sorted((folder / TOKENIZER_FOLDER).iterdir())
            },
        ),
        start_id=start_id,
        split_rule=corpus.plan.rule,
        train=_record(encoded.train),
        val=_record(encoded.val),
        baselines=encoded.baselines,
        report=make_report(corpus, encoded, tokenizer, count),
    )
    files.write_new(folder / manifest.FILE_NAME, described.to_json())
    files.remove_tree(folder / PROGRESS_FILE)


def _record(split: EncodedSplit) -> SplitRecord:
    tokens, documents = sum(shard.tokens for shard in split.shards), sum(shard.documents for shard in split.shards)
    return SplitRecord(tokens, split.text_bytes, documents, split.shards)


def _start_id(encoded: EncodedCorpus, tokenizer: Tokenizer, count: Callable[[], npt.NDArray[np.int64]]) -> int:
    """For a single document: the newline if it is a token of the training text, else the most frequent id."""
    newline = next((i for i, piece in enumerate(tokenizer.token_bytes()) if piece == b"\n"), None)
    if newline is not None and ("\n" not in encoded.val_only if tokenizer.kind == "char" else count()[newline]):
        return newline
    return int(count().argmax())


def _describe(corpus: Corpus, data: DataSection) -> Iterator[str]:
    """Say what was read, and how."""
    names = ", ".join(source.name for source in corpus.sources[:3])
    skipped = describe_skipped(corpus.skipped)
    files, documents = sum(corpus.files), len(corpus.sizes)
    found = [counted(files, "file"), *([counted(documents, "document")] if documents != files else [])]
    yield f"{names}: {', '.join(found)}, {sum(corpus.text_bytes):,} bytes of text{skipped}"
    for source in corpus.sources:
        yield from describe_reading(source.files, source.reading, asked=data.documents)
    if corpus.withheld:
        yield (
            f"{counted(corpus.withheld, 'document')} of data.source left out of training, because data.val_source has "
            "the same"
        )
    if corpus.copies:
        yield (
            f"{counted(corpus.copies, 'document')} of {documents:,} equal an earlier one; "
            "use data.deduplicate=true to leave them out"
        )
