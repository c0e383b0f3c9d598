"""A run's settings for the HParams tab of TensorBoard, which lists all runs with their settings and last figures."""

from __future__ import annotations

from collections.abc import Mapping

from gptlite.loggers.events import Values

Setting = str | bool | int | float | None


def hparams(settings: Mapping[str, Setting]) -> Values:
    """What stands in the run's own events, so that no further run appears; None is a number that this run has not.

    Nothing is said of the experiment: TensorBoard then puts what differs between the runs first, and sorts figures by
    their tags, best/bits_per_byte before all others.
    """
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2  # type: ignore[import-untyped]

    session = plugin_data_pb2.SessionStartInfo()
    for name, value in settings.items():
        if isinstance(value, bool):
            session.hparams[name].bool_value = value
        elif isinstance(value, str):
            session.hparams[name].string_value = value
        elif value is not None:
            session.hparams[name].number_value = value
    about = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_start_info=session))
    return [{"tag": metadata.SESSION_START_INFO_TAG, "metadata": about, "tensor": metadata.NULL_TENSOR}]
