"""Preparing a data set: text to token ids on disk. The folder appears complete under its name.

The text is read four times: to hash it, to plan its split, and to encode each of the two parts. A BPE reads the
training text once more to learn.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gptlite.compute.limits import available_threads
from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.manifest import Manifest, SourceRecord, TokenizerRecord
from gptlite.data.dataset.prepared import ADVICE, TOKENIZER_FOLDER, Prepared, Split
from gptlite.data.dataset.tokens import count_ids
from gptlite.data.preparing.blocks import learning_text
from gptlite.data.preparing.corpus import Corpus, changed_meanwhile, scan
from gptlite.data.preparing.encode import check_space, encode_corpus, remove_unlisted, replace_manifest
from gptlite.data.preparing.fingerprint import FingerprintedSources, find_finished, fingerprint_sources
from gptlite.data.preparing.hash_cache import CACHE_FILE, HashCache
from gptlite.data.preparing.report import choose_start_id, make_report, record_split, storable
from gptlite.data.sources.describe_reading import describe_reading
from gptlite.data.sources.sources import describe_skipped
from gptlite.errors import DataError, RunError, StorageError, UserError
from gptlite.formatting import Say, and_more, counted, say_nothing
from gptlite.storage import files, locks
from gptlite.storage.sealed import SealedFolder, write_file
from gptlite.tokenizers.base import Tokenizer, build, load

_HOLDER = "gptlite prepare"
_SHOWN = 5  # unknown characters that an error names
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
    if name is not None and prepared.path.name != sources.folder_name(name):
        say(f"this text is already prepared as {prepared.path.name}; the name {name} is not used")
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
        _check_characters(load(Path(section.from_)), corpus)
    with locks.wait_for_lock(_lock_path(folder), _HOLDER, say):
        if (finished := find_finished(sources, folder.parent)) is not None:
            return finished  # by the process that had the lock
        files.remove_tree(folder)
        _remove_other_leftovers(folder.parent)
        if (unfinished := _unfinished(folder)) is not None:
            say("continuing where an earlier preparation of this text was stopped")
        else:
            tokenizer = build(section, corpus.characters, partial(learning_text, corpus), say)
            check_space(folder, corpus, tokenizer)
            unfinished = _begin(folder, tokenizer)
        try:
            _finish(unfinished, sources, corpus, data, say, workers)
            if fingerprint_sources(data, section, cache).fingerprint != sources.fingerprint:
                raise changed_meanwhile(sources.sources)
            files.publish(unfinished.path, folder)
        except Exception:  # but not Ctrl-C: then the next preparation continues
            with contextlib.suppress(StorageError):  # the first error is the one to report
                files.remove_tree(unfinished.path)
            raise
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


def _check_characters(tokenizer: Tokenizer, corpus: Corpus) -> None:
    """DataError that names the characters of the text without an id."""
    if tokenizer.kind != "char":
        return  # the others know every byte
    unknown = sorted(set(corpus.characters).difference(tokenizer.known(corpus.characters)))
    if unknown:
        names = and_more([f"{character!r} (U+{ord(character):04X})" for character in unknown], _SHOWN)
        raise DataError(
            f"it does not know {counted(len(unknown), 'character')} of this text: {names}. Use a tokenizer of kind "
            "bpe, which knows all, or a text without them.",
            "tokenizer.from",
        )


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name.removeprefix('.')}.lock")


def _remove_other_leftovers(parent: Path) -> None:
    """Remove what killed processes left of other texts: what is unfinished and whose lock is free."""
    for path in parent.iterdir():
        if match := _LEFTOVER.fullmatch(path.name):
            with contextlib.suppress(RunError, StorageError), locks.lock(_lock_path(parent / match[1]), _HOLDER):
                files.remove_tree(path)


def _leftovers(folder: Path) -> list[Path]:
    return sorted(folder.parent.glob(f"{glob.escape(folder.name)}{files.TEMP_MARK}*"))


def _unfinished(folder: Path) -> SealedFolder | None:
    """Return the folder of a killed process that can be continued: what it wrote is still the same."""
    for path in _leftovers(folder):
        try:
            found = SealedFolder.open(path, ADVICE)
            for name in found.files:
                found.check(name)
        except UserError:
            continue
        if "done" in found.fields:
            remove_unlisted(path, found.files)
            return found
    return None


def _begin(folder: Path, tokenizer: Tokenizer) -> SealedFolder:
    """Make an unfinished folder with a tokenizer, instead of those that cannot be continued."""
    for leftover in _leftovers(folder):
        files.remove_tree(leftover)
    temp = files.temp_name(folder)
    files.make_dirs(temp / TOKENIZER_FOLDER)
    contents = {f"{TOKENIZER_FOLDER}/{name}": content for name, content in sorted(tokenizer.files().items())}
    written = {name: write_file(temp, name, content) for name, content in contents.items()}
    files.sync_dir(temp / TOKENIZER_FOLDER)
    replace_manifest(temp, {"done": {"train": 0, "val": 0}}, written)
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
    encoded = encode_corpus(folder.path, corpus, tokenizer, folder.files, folder.fields["done"], workers=workers)
    whole = SealedFolder.open(folder.path, ADVICE)
    train, val = (Split(whole, name, tokenizer.vocab_size) for name in ("train", "val"))
    end = tokenizer.eot_id if corpus.has_several_documents else None
    count = functools.cache(partial(count_ids, train, tokenizer.vocab_size, exact=True))
    manifest = Manifest(
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
            tokenizer.kind, tokenizer.fingerprint, tokenizer.vocab_size, tokenizer.requested_vocab_size
        ),
        start_id=choose_start_id(corpus, encoded, tokenizer, count),
        split_rule=corpus.plan.rule,
        train=record_split(train, encoded.text_bytes["train"], end),
        val=record_split(val, encoded.text_bytes["val"], end),
        baselines=encoded.baselines,
        report=make_report(corpus, encoded, tokenizer, count),
    )
    replace_manifest(folder.path, dataclasses.asdict(manifest), encoded.files)
