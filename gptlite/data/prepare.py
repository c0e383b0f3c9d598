"""Making a prepared folder: three passes over the text, then all of it appears at once under its final name."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gptlite import files
from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data import manifest
from gptlite.data.baselines import BaselineMeter, Baselines
from gptlite.data.corpus import Corpus, changed_while_read, scan
from gptlite.data.fingerprint import Recipe, read_recipe
from gptlite.data.hashes import HashCache
from gptlite.data.manifest import Manifest, SourceRecord, SplitRecord, TokenizerRecord
from gptlite.data.prepared import TOKENIZER_FOLDER, Prepared
from gptlite.data.shards import Shard, ShardWriter
from gptlite.errors import RunError, StorageError
from gptlite.formatting import counted
from gptlite.tokenizers.base import Tokenizer, build

Report = Callable[[str], None]
_WAIT = 0.2  # seconds between looks at a lock


def _say_nothing(line: str) -> None:
    pass


def fingerprint(data: DataSection, tokenizer: TokenizerSection) -> str:
    """What the manifest of this text and these keys says, or would say. DataError where the text is not there."""
    return read_recipe(data, tokenizer, HashCache(data.folder)).fingerprint


def prepare(
    data: DataSection, tokenizer: TokenizerSection, report: Report = _say_nothing, *, name: str | None = None
) -> Prepared:
    """The prepared folder of this text and these keys: the finished one, or a new one.

    The fingerprint that ends a folder's name decides; before it stands `name`, or what the text is called. Beside
    the folders, data.dir holds two kinds of hidden files: the remembered hashes, and a lock per folder.
    `report` gets lines for the user. DataError for text that cannot be used, before anything is written; StorageError
    for disk and network. A killed build leaves nothing under the final name, and the next one starts over.
    """
    cache = HashCache(data.folder)
    recipe = read_recipe(data, tokenizer, cache)
    prepared = _finished(recipe, data.folder)
    if prepared is None:
        prepared = _build(data.folder / recipe.folder_name(name), recipe, data, tokenizer, cache, report)
    if name is not None and prepared.path.name != recipe.folder_name(name):
        report(f"the text is prepared already, as {prepared.path.name}: the name {name} is not used")
    try:
        cache.save()
    except StorageError as error:  # a prepared folder may be shared and read-only
        report(f"warning: {error}; the text is read again next time")
    return prepared


def _finished(recipe: Recipe, parent: Path) -> Prepared | None:
    found = sorted(path.parent for path in parent.glob(f"[!.]*-{recipe.short}/{manifest.FILE_NAME}"))
    return Prepared(found[0]) if found else None


def _build(
    folder: Path,
    recipe: Recipe,
    data: DataSection,
    section: TokenizerSection,
    cache: HashCache,
    report: Report,
) -> Prepared:
    corpus = scan(recipe.sources, data.val_fraction, data.val_max_bytes)
    report(_describe(corpus))
    if left_out := [name for source in corpus.sources for name in source.left_out]:
        report(f"left out, since gptlite wrote it: {', '.join(left_out[:3])}{', ...' * (len(left_out) > 3)}")
    tokenizer = build(section, corpus.texts, corpus.training_texts)
    if tokenizer.vocab_size < tokenizer.requested_vocab_size:
        report(
            f"warning: tokenizer.vocab_size = {tokenizer.requested_vocab_size}: the training text has merges for "
            f"{tokenizer.vocab_size}, and the tokenizer has only these; give more text to get more"
        )
    files.make_dirs(folder.parent)
    with _turn(folder, report):
        if (finished := _finished(recipe, folder.parent)) is not None:
            return finished  # made by the process that had the lock
        for leftover in (folder, *folder.parent.glob(f"{folder.name}{files.TEMP_MARK}*")):
            files.remove_tree(leftover)
        temp = files.temp_name(folder)
        try:
            _write(temp, recipe, corpus, tokenizer, data)
            if read_recipe(data, section, cache).fingerprint != recipe.fingerprint:
                raise changed_while_read(recipe.sources)
            files.publish(temp, folder)
        except BaseException:
            with contextlib.suppress(StorageError):  # the first error is the one to show
                files.remove_tree(temp)
            raise
    return Prepared(folder)


@contextlib.contextmanager
def _turn(folder: Path, report: Report) -> Iterator[None]:
    """Hold the lock of one prepared folder, after waiting for a process that has it."""
    path = folder.with_name(f".{folder.name}.lock")
    with contextlib.ExitStack() as held:
        waiting = False
        while True:
            try:
                held.enter_context(files.lock(path, "gptlite prepare"))
                break
            except RunError as error:
                if not path.exists():
                    raise  # not taken: this system has no locks
                if not waiting:
                    report(f"waiting: {error}")
                waiting = True
                time.sleep(_WAIT)
        yield


def _write(folder: Path, recipe: Recipe, corpus: Corpus, tokenizer: Tokenizer, data: DataSection) -> None:
    """All files of a prepared folder, manifest.json last."""
    files.make_dirs(folder / TOKENIZER_FOLDER)
    for name, content in sorted(tokenizer.files().items()):
        files.write_new(folder / TOKENIZER_FOLDER / name, content)
    files.sync_dir(folder / TOKENIZER_FOLDER)
    encoded = _encode(folder, corpus, tokenizer)
    described = Manifest(
        format_version=manifest.FORMAT_VERSION,
        fingerprint=recipe.fingerprint,
        sources=tuple(
            SourceRecord(source.name, files, text_bytes, sha256, source.python)
            for source, files, text_bytes, sha256 in zip(
                recipe.sources, corpus.files, corpus.text_bytes, recipe.sha256s, strict=True
            )
        ),
        encoding=data.encoding,
        normalize=data.normalize,
        tokenizer=TokenizerRecord(
            tokenizer.kind, tokenizer.fingerprint, tokenizer.vocab_size, tokenizer.requested_vocab_size
        ),
        start_id=encoded.start_id,
        split_rule=corpus.plan.rule,
        train=encoded.train,
        val=encoded.val,
        reference=encoded.reference,
    )
    files.write_new(folder / manifest.FILE_NAME, described.to_json())


@dataclass(frozen=True)
class _Encoded:
    train: SplitRecord
    val: SplitRecord
    reference: Baselines
    start_id: int


def _encode(folder: Path, corpus: Corpus, tokenizer: Tokenizer) -> _Encoded:
    """Write the ids of both splits, document by document."""
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
            if corpus.is_several:
                ids = np.concatenate([end_of_text, ids])
            elif split == "train":
                counts += np.bincount(ids, minlength=len(counts))
            (train if split == "train" else val).add(ids)
        start_id = tokenizer.eot_id if corpus.is_several else _start_id(counts, tokenizer)
        return _Encoded(
            _record(train.finish(), text_bytes["train"]),
            _record(val.finish(), text_bytes["val"]),
            meter.lines(),
            start_id,
        )


def _record(shards: tuple[Shard, ...], text_bytes: int) -> SplitRecord:
    tokens, documents = sum(shard.tokens for shard in shards), sum(shard.documents for shard in shards)
    return SplitRecord(tokens, text_bytes, documents, shards)


def _start_id(counts: np.ndarray, tokenizer: Tokenizer) -> int:
    """Where one document is all there is: the newline if it is a token of the training text, else its commonest id."""
    newline = next((i for i, piece in enumerate(tokenizer.token_bytes()) if piece == b"\n"), None)
    return newline if newline is not None and counts[newline] else int(counts.argmax())


def _describe(corpus: Corpus) -> str:
    names = ", ".join(source.name for source in corpus.sources[:3])
    skipped = "".join(f", {count} {kind} skipped" for kind, count in sorted(corpus.skipped.items()))
    return f"{names}: {counted(sum(corpus.files), 'file')}, {sum(corpus.text_bytes):,} bytes of text{skipped}"
