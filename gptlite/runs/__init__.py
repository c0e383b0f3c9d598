"""What a training run leaves on disk and on the terminal: its folder, its checkpoints, its metrics.

    rundir.py        names, lifecycle and the lock of a run's folder
    records.py       the JSON files that carry a format_version
    manifest.py      what a checkpoint's folder must hold, sealed
    checkpoint.py    checkpoints: whole or absent, checked by sha256, pruned
    choosing.py      which checkpoint is meant: latest, best, a step, a folder
    metrics.py       MetricLog: one log call, several sinks; metrics.jsonl and samples.jsonl
    tensorboard.py   the TensorBoard sink
    console.py       the progress bar and the lines above it

The room takes mappings of named tensors and JSON values; it knows no model and no optimizer.
"""
