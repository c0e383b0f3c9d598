"""Finding the prepared folder of a text by its fingerprint, and checking all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.manifest import FILE_NAME, Manifest, read_manifest
from gptlite.data.dataset.prepared import Prepared, verify_files
from gptlite.data.preparing.fingerprint import FingerprintedSources, HashCache, fingerprint_sources
from gptlite.errors import DataError, UserError


def find_finished(sources: FingerprintedSources, parent: Path) -> Prepared | None:
    """Open the folder in `parent` that was made from these sources. DataError if only its name says so."""
    found = sorted(path.parent for path in parent.glob(f"[!.]*-{sources.short}/{FILE_NAME}"))
    if not found:
        return None
    prepared = Prepared(found[0])
    _check_fingerprint(found[0], prepared.manifest, sources)
    return prepared


def _check_fingerprint(folder: Path, manifest: Manifest, sources: FingerprintedSources) -> None:
    if manifest.fingerprint != sources.fingerprint:
        raise DataError(
            f"this folder is named after the text {sources.short}, but holds the text {manifest.fingerprint[:12]}. "
            "Rename or remove it, and prepare the text again.",
            str(folder),
        )


def check_prepared(
    data: DataSection, tokenizer: TokenizerSection
) -> tuple[Path, Iterator[tuple[str, UserError | None]]]:
    """The prepared folder of this text and these keys, and for each of its files what is wrong with it, if anything.

    The files are read as they are asked for, and nothing is written. DataError if the text is not prepared.
    """
    sources = fingerprint_sources(data, tokenizer, HashCache(data.folder))
    found = sorted(path for path in data.folder.glob(f"[!.]*-{sources.short}") if path.is_dir())
    if not found:
        raise DataError(
            f"the text is not prepared with these keys: there is no folder *-{sources.short}. Prepare it first.",
            str(data.folder),
        )
    folder = next((path for path in found if (path / FILE_NAME).exists()), found[0])
    return folder, _check_files(folder, sources)


def _check_files(folder: Path, sources: FingerprintedSources) -> Iterator[tuple[str, UserError | None]]:
    try:
        manifest = read_manifest(folder)
        _check_fingerprint(folder, manifest, sources)
    except UserError as error:
        yield FILE_NAME, error
        return
    yield FILE_NAME if manifest.sealed else f"{FILE_NAME} (no seal)", None
    yield from verify_files(folder, manifest)
