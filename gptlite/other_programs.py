"""Names and values that nanoGPT, Hugging Face, llama.cpp and PyTorch code use, and what they are here: one table.

A meaning is a key of the config, an option, a value, or a sentence (it has spaces): what to do instead. In sentences
{command} is the command. Names are written with _, and match with - too.
"""

from __future__ import annotations

NO_CHAT = "The model continues your text; it is not trained to answer."
RUN = "Name the run without an option: gptlite {command} VALUE."

# By scope: "key" for keys of the config, "section" for its sections, "value" for values, and the commands.
MEANINGS: dict[str, dict[str, str]] = {
    "key": {
        "dataset data data_path data_dir train_file input_file input file text": "data.source",
        "validation_file val_data val_file": "data.val_source",
        "tokenizer tokenizer_type tokenizer_name type": "tokenizer.kind",
        "n_layers num_layers num_hidden_layers depth": "model.n_layer",
        "n_heads num_heads nhead num_attention_heads": "model.n_head",
        "d_model hidden_size hidden_dim embed_dim": "model.n_embd",
        "seq_len max_seq_len context_length n_ctx n_positions": "model.block_size",
        "max_iters iters num_iters steps num_steps iterations": "train.max_steps",
        "max_epochs num_epochs num_train_epochs": "train.epochs",
        "per_device_train_batch_size": "train.micro_batch_size",
        "optim": "train.optimizer",
        "learning_rate max_lr": "train.lr",
        "warmup warmup_iters num_warmup_steps": "train.warmup_steps",
        "lr_scheduler lr_scheduler_type": "train.schedule",
        "eval_interval eval_steps": "eval.every",
        "save_steps": "save.every",
        "log_interval logging_steps": "log.every",
        "out_dir output_dir": "run.dir",
        "dtype torch_dtype": "run.precision",
        "max_tokens max_length length n_predict": "sample.max_new_tokens",
        "temp": "sample.temperature",
        "repeat_penalty": "sample.repetition_penalty",
        "num_samples n_samples num_return_sequences": "sample.n",
        "num_beams": "sample.beams",
        "teacher_forcing teacher_forcing_ratio": "train.scheduled_sampling is the opposite, the fraction of inputs "
        "that are not the text's own: a teacher forcing ratio of 0.75 is 0.25 there.",
        "fp16 bf16 amp": "Use run.precision=bf16, fp16 or fp32.",
        "cpu use_cpu no_cuda cuda gpu": "Use run.device=cpu or run.device=cuda.",
        "wandb wandb_log wandb_project wandb_run_name report_to": "Metrics go to TensorBoard, which is on by default "
        "(log.tensorboard), and to metrics.jsonl.",
        "gradient_accumulation_steps grad_accum": "train.batch_size counts the sequences of an update, "
        "train.micro_batch_size those of a forward pass, and accumulation follows from the two.",
        "min_lr lr_decay_iters": "train.schedule ends with the training, at train.min_lr_ratio (0.1, say) of train.lr.",
        "decay_lr": "Use train.schedule=constant and train.decay_fraction=0 for a rate that does not fall.",
        "eval_iters": "Each evaluation reads all of the validation text, which data.val_max_bytes limits.",
    },
    "section": {
        "network architecture gpt transformer": "model",
        "optim optimizer": "train",
        "evaluation validation val": "eval",
        "checkpoint": "save",
        "logger wandb tensorboard": "log",
        "generate generation inference": "sample",
    },
    "value": {
        "bfloat16": "bf16",
        "float16 half": "fp16",
        "float32 float": "fp32",
        "character chars": "char",
        "adam adamw_torch adamw_torch_fused": "adamw",
    },
    "gptlite": {
        "convert": "Use gptlite export.",
        "generate": "Use gptlite sample --prompt TEXT.",
        "chat": f"Use gptlite sample --interactive. {NO_CHAT}",
        "finetune": "Use gptlite train --data TEXT --init RUN.",
        "serve": "From Python, gptlite.load(RUN).generate(PROMPT) writes text.",
        "evaluate test": "Use gptlite eval.",
    },
    "train": {
        "init_from pretrained": "--init",
        "model model_name_or_path": "--init begins with another model. Keys of section model size a new one.",
        "resume_from_checkpoint": "--resume",
        "run_name": "--name",
        "gpus nproc_per_node": "torchrun starts a process for each of N GPUs: "
        "torchrun --nproc-per-node N --no-python gptlite train.",
        "eval_only": "Use gptlite eval RUN. Training evaluates every eval.every updates.",
    },
    "prepare": {
        "out_dir output_dir": "data.dir",
    },
    "sample": {
        "start": "Use --prompt VALUE; instead of FILE:NAME, use --prompt-file NAME.",
        "file f": "--prompt-file",
        "c ctx_size": "--context",
        "model m run out_dir": RUN,
    },
    "eval": {
        "data dataset": "--file",
        "model m run out_dir": RUN,
    },
}
_MEANING = {scope: {n: m for names, m in table.items() for n in names.split()} for scope, table in MEANINGS.items()}


def meaning(scope: str, name: str) -> str | None:
    """Return what `name` of another program means in a scope; None for an unknown one.

    >>> meaning("key", "learning-rate"), meaning("sample", "file")
    ('train.lr', '--prompt-file')
    """
    return _MEANING.get(scope, {}).get(name.strip().replace("-", "_"))
