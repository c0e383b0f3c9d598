"""A run's place in the HParams tab of TensorBoard: its settings, and the figures that runs are sorted by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gptlite.runs.events import Values

Setting = str | bool | int | float | None

# tag -> heading, the first the most important.
METRICS = {
    "best/bits_per_byte": "best bits per byte",
    "val/bits_per_byte": "last bits per byte",
    "speed/tokens_per_second": "tokens/s",
    "memory/peak": "peak memory, MiB",
}


def hparams(settings: Mapping[str, Setting]) -> Values:
    """What stands in the run's own events, so that no further run appears. TensorBoard takes the list of settings and
    metrics from any one run; None is a number that this run does not have."""
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2  # type: ignore[import-untyped]

    experiment = api_pb2.Experiment(
        hparam_infos=[{"name": name, "type": _kind(value)} for name, value in settings.items()],
        metric_infos=[{"name": {"tag": tag}, "display_name": heading} for tag, heading in METRICS.items()],
    )
    session = plugin_data_pb2.SessionStartInfo()
    for name, value in settings.items():
        if value is not None:
            setattr(session.hparams[name], _FIELDS[_kind(value)], value)
    contents = {
        metadata.EXPERIMENT_TAG: plugin_data_pb2.HParamsPluginData(experiment=experiment),
        metadata.SESSION_START_INFO_TAG: plugin_data_pb2.HParamsPluginData(session_start_info=session),
    }
    return [_value(tag, metadata.create_summary_metadata(content), metadata) for tag, content in contents.items()]


_FIELDS = {"DATA_TYPE_STRING": "string_value", "DATA_TYPE_BOOL": "bool_value", "DATA_TYPE_FLOAT64": "number_value"}


def _kind(value: Setting) -> str:
    if isinstance(value, bool):
        return "DATA_TYPE_BOOL"
    return "DATA_TYPE_STRING" if isinstance(value, str) else "DATA_TYPE_FLOAT64"


def _value(tag: str, about: Any, metadata: Any) -> dict[str, Any]:
    return {"tag": tag, "metadata": about, "tensor": metadata.NULL_TENSOR}
