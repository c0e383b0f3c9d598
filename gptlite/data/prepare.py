"""Preparing a data set: text to token ids on disk in three passes. The folder appears complete under its name."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gptlite import files, locks
from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data import manifest
from gptlite.data.baselines import BaselineMeter, Baselines
from gptlite.data.corpus import Corpus, changed_meanwhile, scan
from gptlite.data.describe_reading import describe_reading
from gptlite.data.find import find_finished
from gptlite.data.fingerprint import CACHE_FILE, FingerprintedSources, HashCache, fingerprint_sources
from gptlite.data.manifest import FileRecord, Manifest, SourceRecord, SplitRecord, TokenizerRecord
from gptlite.data.prepared import TOKENIZER_FOLDER, Prepared
from gptlite.data.sealing import seal
from gptlite.data.shards import Shard, ShardWriter
from gptlite.data.sources import describe_skipped
from gptlite.errors import RunError, StorageError
from gptlite.formatting import counted
from gptlite.json_files import SEALED_VERSION
from gptlite.tokenizers.base import Tokenizer, build

Report = Callable[[str], None]
_HOLDER = "gptlite prepare"
_POLL_SECONDS = 0.2
# What `files.temp_name` makes of the name of a folder, or of the cache; data.dir may hold other things.
_LEFTOVER = re.compile(rf"(.+-[0-9a-f]{{12}}|{re.escape(CACHE_FILE)}){re.escape(files.TEMP_MARK)}[0-9]+-[0-9a-f]{{8}}")


def _ignore(line: str) -> None:
    pass


def prepare(
    data: DataSection, tokenizer: TokenizerSection, report: Report = _ignore, *, name: str | None = None
) -> Prepared:
    """Return the prepared data set of this text and these keys, made now or earlier.

    The fingerprint at the end of a folder's name identifies it; before it is `name` or the name of the text. Beside the
    folders, data.dir has hidden files: a cache of hashes, and locks of the cache and of each folder. `report`
    gets lines for the user.

    DataError for unusable text, before anything is written; StorageError for disk and network. A killed process leaves
    nothing under the final name, and the next one starts again. A folder without a seal, of an older version, is read
    whole, and gets one.
    """
    cache = HashCache(data.folder)
    sources = fingerprint_sources(data, tokenizer, cache)
    prepared = find_finished(sources, data.folder)
    if prepared is None:
        prepared = _build(data.folder / sources.folder_name(name), sources, data, tokenizer, cache, report)
    if not prepared.sealed:
        prepared = _seal(prepared, report)
    if name is not None and prepared.path.name != sources.folder_name(name):
        report(f"this text is already prepared as {prepared.path.name}; the name {name} is not used")
    try:
        cache.save()
    except StorageError as error:  # data.dir may be shared and read-only
        report(f"warning: the text will be read again next time, because its hashes could not be saved: {error}")
    return prepared


def _seal(prepared: Prepared, report: Report) -> Prepared:
    prepared.verify()
    outcome = "and it has one now"
    try:
        with _lock(prepared.path, report):
            prepared = seal(prepared)
    except (StorageError, RunError) as error:  # data.dir may be shared and read-only
        outcome = f"and it could not get one: {error}"
    report(f"warning: {prepared.path} had no seal against changes; all of it was checked, {outcome}")
    return prepared


def _build(
    folder: Path,
    sources: FingerprintedSources,
    data: DataSection,
    section: TokenizerSection,
    cache: HashCache,
    report: Report,
) -> Prepared:
    corpus = scan(sources.sources, data.val_fraction, data.val_max_bytes, deduplicate=data.deduplicate)
    report(_describe(corpus))
    for source in corpus.sources:
        for line in describe_reading(source.files, source.reading, asked=data.documents):
            report(line)
    if excluded := [name for source in corpus.sources for name in source.excluded]:
        report(f"left out, because gptlite wrote it: {', '.join(excluded[:3])}{', ...' * (len(excluded) > 3)}")
    if corpus.copies:
        report(
            f"{counted(corpus.copies, 'document')} of {len(corpus.sizes):,} equal an earlier one; "
            "data.deduplicate=true leaves them out"
        )
    tokenizer = build(section, corpus.texts, corpus.training_texts)
    if tokenizer.vocab_size < tokenizer.requested_vocab_size:
        report(
            f"warning: tokenizer.vocab_size is {tokenizer.requested_vocab_size}, but the training text has only merges "
            f"for {tokenizer.vocab_size} ids. Give more text to get more."
        )
    files.make_dirs(folder.parent)
    with _lock(folder, report):
        if (finished := find_finished(sources, folder.parent)) is not None:
            return finished  # by the process that had the lock
        for leftover in (folder, *folder.parent.glob(f"{folder.name}{files.TEMP_MARK}*")):
            files.remove_tree(leftover)
        _remove_other_leftovers(folder.parent)
        temp = files.temp_name(folder)
        try:
            _write(temp, sources, corpus, tokenizer, data)
            if fingerprint_sources(data, section, cache).fingerprint != sources.fingerprint:
                raise changed_meanwhile(sources.sources)
            files.publish(temp, folder)
        except BaseException:
            with contextlib.suppress(StorageError):  # the first error is the one to report
                files.remove_tree(temp)
            raise
    return Prepared(folder)


def _remove_other_leftovers(parent: Path) -> None:
    """Remove what killed processes left of other texts: what is unfinished and whose lock is free."""
    for path in parent.iterdir():
        if match := _LEFTOVER.fullmatch(path.name):
            with contextlib.suppress(RunError, StorageError), locks.lock(_lock_path(parent / match[1]), _HOLDER):
                files.remove_tree(path)


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name.removeprefix('.')}.lock")


@contextlib.contextmanager
def _lock(folder: Path, report: Report) -> Iterator[None]:
    """Wait for the lock of a prepared folder, and hold it."""
    path = _lock_path(folder)
    with contextlib.ExitStack() as held:
        waiting = False
        while True:
            try:
                held.enter_context(locks.lock(path, _HOLDER))
                break
            except RunError as error:
                if not path.exists():
                    raise  # nobody has it: this system has no locks
                if not waiting:
                    report(f"waiting: {error}")
                waiting = True
                time.sleep(_POLL_SECONDS)
        yield


def _write(
    folder: Path, sources: FingerprintedSources, corpus: Corpus, tokenizer: Tokenizer, data: DataSection
) -> None:
    """Write all files of a prepared data set, manifest.json last."""
    files.make_dirs(folder / TOKENIZER_FOLDER)
    tokenizer_files = {
        name: FileRecord(*files.write_new(folder / TOKENIZER_FOLDER / name, content))
        for name, content in sorted(tokenizer.files().items())
    }
    files.sync_dir(folder / TOKENIZER_FOLDER)
    encoded = _encode(folder, corpus, tokenizer)
    described = Manifest(
        format_version=SEALED_VERSION,
        fingerprint=sources.fingerprint,
        sources=tuple(
            # a name may have bytes that are not UTF-8, which Python keeps as surrogates and JSON cannot
            SourceRecord(
                source.name.encode(errors="backslashreplace").decode(), n_files, text_bytes, sha256, source.python
            )
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
            tokenizer_files,
        ),
        start_id=encoded.start_id,
        split_rule=corpus.plan.rule,
        train=encoded.train,
        val=encoded.val,
        baselines=encoded.baselines,
    )
    files.write_new(folder / manifest.FILE_NAME, described.to_json())


@dataclass(frozen=True)
class _Encoded:
    train: SplitRecord
    val: SplitRecord
    baselines: Baselines
    start_id: int


def _encode(folder: Path, corpus: Corpus, tokenizer: Tokenizer) -> _Encoded:
    """Write the ids of both splits, document by document, and compute what the manifest says about them."""
    meter, text_bytes = BaselineMeter(), Counter[str]()
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    end_of_text = np.array([tokenizer.eot_id], np.uint32)
    with (
        ShardWriter(folder, "train", tokenizer.vocab_size) as train,
        ShardWriter(folder, "val", tokenizer.vocab_size) as val,
    ):
        for split, text in corpus.parts():
            raw, ids = text.encode(), tokenizer.encode(text)
            text_bytes[split] += len(raw)
            if split == "val":
                meter.feed(raw)
            if corpus.has_several_documents:
                ids = np.concatenate([end_of_text, ids])
            elif split == "train":
                counts += np.bincount(ids, minlength=len(counts))
            (train if split == "train" else val).add(ids)
        start_id = tokenizer.eot_id if corpus.has_several_documents else _start_id(counts, tokenizer)
        return _Encoded(
            _record(train.finish(), text_bytes["train"]),
            _record(val.finish(), text_bytes["val"]),
            meter.finish(),
            start_id,
        )


def _record(shards: tuple[Shard, ...], text_bytes: int) -> SplitRecord:
    tokens, documents = sum(shard.tokens for shard in shards), sum(shard.documents for shard in shards)
    return SplitRecord(tokens, text_bytes, documents, shards)


def _start_id(counts: np.ndarray, tokenizer: Tokenizer) -> int:
    """For a single document: the newline if it is a token of the training text, else the most frequent id."""
    newline = next((i for i, piece in enumerate(tokenizer.token_bytes()) if piece == b"\n"), None)
    return newline if newline is not None and counts[newline] else int(counts.argmax())


def _describe(corpus: Corpus) -> str:
    names = ", ".join(source.name for source in corpus.sources[:3])
    skipped = describe_skipped(corpus.skipped)
    files, documents = sum(corpus.files), len(corpus.sizes)
    found = [counted(files, "file"), *([counted(documents, "document")] if documents != files else [])]
    return f"{names}: {', '.join(found)}, {sum(corpus.text_bytes):,} bytes of text{skipped}"
