"""Files from which the Projector of TensorBoard shows the vectors of tokens, each with its label."""

from __future__ import annotations

from pathlib import Path

from gptlite import files
from gptlite.loggers.media import Embeddings

VECTORS, LABELS, CONFIG = "embeddings.bytes", "embeddings.tsv", "projector_config.pbtxt"


def write_projector(folder: Path, embeddings: Embeddings) -> None:
    """Write or replace them. TensorBoard looks for CONFIG in the folders that hold events."""
    n_tokens, n_embd = embeddings.vectors.shape
    rows = ["token\tid", *(f"{label}\t{i}" for i, label in enumerate(embeddings.labels))]
    config = f"""\
embeddings {{
  tensor_name: "token embeddings"
  tensor_path: "{VECTORS}"
  tensor_shape: {n_tokens}
  tensor_shape: {n_embd}
  metadata_path: "{LABELS}"
}}
"""
    files.make_dirs(folder)
    files.replace(folder / VECTORS, embeddings.vectors.tobytes())
    files.replace(folder / LABELS, ("\n".join(rows) + "\n").encode())
    files.replace(folder / CONFIG, config.encode())
