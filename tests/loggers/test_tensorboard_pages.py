"""The HParams page of TensorBoard, asked through its back end without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard import context
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, list_session_groups
from tensorboard.plugins.hparams.backend_context import Context

from gptlite.loggers.tensorboard import TensorBoardSink


def told_of(folder: Path) -> TBContext:
    """What a plugin of a TensorBoard that was started on `folder` works with."""
    multiplexer = EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    return TBContext(data_provider=MultiplexerDataProvider(multiplexer, str(folder)), logdir=str(folder))


def a_run(folder: Path, values: list[float], **settings: Any) -> None:
    sink = TensorBoardSink(folder, hparams={"model.n_layer": 2, "train.momentum": None, **settings})
    for step, bits_per_byte in enumerate(values, start=1):
        sink.log(step, "val", {"bits_per_byte": bits_per_byte, "tokens": step}, {"elapsed": float(step)})
    sink.close()


def session_groups(folder: Path) -> list[tuple[str, dict[str, Any], float]]:
    """(run, settings, best bits per byte), as the HParams tab sorts by it."""
    tag = {"tag": "best/bits_per_byte"}
    request = api_pb2.ListSessionGroupsRequest(
        slice_size=10,
        allowed_statuses=[api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_SUCCESS],
        col_params=[{"metric": tag, "order": api_pb2.ORDER_ASC}],
        include_metrics=True,
    )
    backend = Context(told_of(folder))
    ctx = context.RequestContext()
    answer = list_session_groups.Handler(ctx, backend, "", request).run()
    return [
        (
            group.sessions[0].name,
            {name: getattr(value, value.WhichOneof("kind")) for name, value in group.hparams.items()},
            next(m.value for m in group.metric_values if m.name.tag == "best/bits_per_byte"),
        )
        for group in answer.session_groups
    ]


def test_runs_sort_by_their_best_bits_per_byte_beside_their_settings(tmp_path: Path) -> None:
    a_run(tmp_path / "a" / "tb", [3.0, 2.0, 2.5], **{"tokenizer.kind": "char", "model.bias": True})
    a_run(tmp_path / "b" / "tb", [1.5, 1.75], **{"tokenizer.kind": "bpe", "train.momentum": 0.9})
    assert session_groups(tmp_path) == [
        ("b/tb", {"model.n_layer": 2.0, "tokenizer.kind": "bpe", "train.momentum": 0.9}, 1.5),
        ("a/tb", {"model.n_layer": 2.0, "tokenizer.kind": "char", "model.bias": True}, 2.0),
    ]
