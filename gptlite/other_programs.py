"""Names and values that nanoGPT, Hugging Face, llama.cpp and PyTorch code use, and what they are here: one table.

A meaning is a key of the config, an option, a value, or a sentence (it has spaces): what to do instead. In sentences
{value} is what was given and {command} the command. Names are written with _, and match with - too.
"""

from __future__ import annotations

WEIGHTS = "Every run starts from random weights. gptlite train --resume RUN continues a run."
NO_CHAT = "The model continues your text; it is not trained to answer."
RUN = "Name the run without an option: gptlite {command} {value}."
KEPT = "Leave it out: a run keeps its config. --set changes a key."

# By scope: "key" for keys of the config, "section" for its sections, "value" for values, and the commands.
MEANINGS: dict[str, dict[str, str]] = {
    "key": {
        "dataset data data_path data_dir train_file train_data input_file input file path corpus text": "data.source",
        "validation_file validation_data val_file val_data eval_file test_file": "data.val_source",
        "text_field json_field": "data.field",
        "text_column column_name": "data.column",
        "val_split validation_split test_size split": "data.val_fraction",
        "tokenizer tokenizer_type tokenizer_name tokenizer_class type": "tokenizer.kind",
        "pretrained_tokenizer tokenizer_path tokenizer_file": "tokenizer.from",
        "n_layers num_layers num_hidden_layers depth": "model.n_layer",
        "n_heads num_heads nhead num_attention_heads": "model.n_head",
        "d_model hidden_size hidden_dim embed_dim embedding_dim width": "model.n_embd",
        "seq_len seq_length max_seq_len max_seq_length context context_length n_ctx n_positions": "model.block_size",
        "embd_pdrop embd_dropout": "model.embedding_dropout",
        "attn_pdrop attn_dropout": "model.attention_dropout",
        "resid_pdrop resid_dropout": "model.residual_dropout",
        "activation_function hidden_act act_fn": "model.activation",
        "norm_first pre_norm": "model.norm",
        "tie_word_embeddings weight_tying": "model.tie_weights",
        "max_iters iters num_iters n_iters steps num_steps n_steps iterations num_train_steps": "train.max_steps",
        "max_epochs num_epochs n_epochs num_train_epochs": "train.epochs",
        "minutes max_time time_limit": "train.max_minutes",
        "per_device_train_batch_size": "train.micro_batch_size",
        "optim": "train.optimizer",
        "learning_rate max_lr": "train.lr",
        "warmup warmup_iters num_warmup_steps": "train.warmup_steps",
        "scheduler lr_scheduler lr_scheduler_type lr_schedule": "train.schedule",
        "max_grad_norm max_norm clip_grad_norm gradient_clip_val": "train.grad_clip",
        "early_stopping early_stopping_patience": "train.patience",
        "eval_every eval_interval eval_steps val_check_interval": "eval.every",
        "eval_batch_size per_device_eval_batch_size": "eval.batch_size",
        "save_every save_interval save_steps checkpoint_interval": "save.every",
        "save_total_limit": "save.keep",
        "log_every log_interval logging_steps": "log.every",
        "out_dir output_dir": "run.dir",
        "random_seed manual_seed": "run.seed",
        "dtype torch_dtype": "run.precision",
        "torch_compile": "run.compile",
        "attn_implementation flash_attention flash": "run.attention",
        "num_threads num_workers": "run.threads",
        "accelerator": "run.device",
        "max_tokens max_length length tokens num_tokens n_predict max_gen_len": "sample.max_new_tokens",
        "temp": "sample.temperature",
        "repeat_penalty penalty": "sample.repetition_penalty",
        "num_samples n_samples samples num_return_sequences count": "sample.n",
        "stop_strings stop_sequences reverse_prompt": "sample.stop",
        "num_beams": "sample.beams",
        "teacher_forcing teacher_forcing_ratio": "train.scheduled_sampling is the opposite, the fraction of inputs "
        "that are not the text's own: a teacher forcing ratio of 0.75 is 0.25 there.",
        "fp16 half bf16 amp mixed_precision": "Use run.precision=bf16 or run.precision=fp32. There is no fp16.",
        "cpu use_cpu no_cuda": "Use run.device=cpu.",
        "cuda use_cuda gpu use_gpu": "Use run.device=cuda.",
        "wandb wandb_log wandb_project wandb_run_name use_wandb report_to": "Metrics go to TensorBoard, which is on by "
        "default (log.tensorboard), and to metrics.jsonl.",
        "gradient_accumulation_steps grad_accum_steps grad_accum": "train.batch_size counts the sequences of an "
        "update, train.micro_batch_size those of a forward pass, and accumulation follows from the two.",
        "betas adam_betas adam_beta1 adam_beta2": "Use train.beta1=0.9 and train.beta2=0.95, say.",
        "min_lr eta_min": "train.min_lr_ratio is the final rate as a fraction of train.lr, such as 0.1.",
        "decay_lr lr_decay": "Use train.schedule=constant and train.decay_fraction=0 for a rate that does not fall.",
        "lr_decay_iters lr_decay_steps": "train.schedule ends with the training, at train.min_lr_ratio of train.lr.",
        "warmup_ratio": "train.warmup_steps counts updates: a ratio of 0.1 is a tenth of train.max_steps.",
        "eval_iters": "Each evaluation reads all of the validation text, which data.val_max_bytes limits.",
        "n_inner d_ff ffn_dim intermediate_size": "The feed-forward layers are four times as wide as model.n_embd.",
        "rope rotary rope_theta alibi": "model.position is learned, sinusoidal or none.",
    },
    "section": {
        "runtime environment": "run",
        "network architecture gpt transformer": "model",
        "optim optimizer": "train",
        "evaluation validation val": "eval",
        "checkpoint checkpoints checkpointing": "save",
        "logger wandb tensorboard": "log",
        "generate generation inference": "sample",
    },
    "value": {
        "float16 bfloat16 half 16_mixed bf16_mixed": "bf16",
        "float32 float full": "fp32",
        "gpu": "cuda",
        "tiktoken": "gpt2",
        "character chars": "char",
        "gelu_new gelu_pytorch_tanh": "gelu",
        "adam adamw_torch adamw_torch_fused": "adamw",
    },
    "gptlite": {
        "export convert save": "A checkpoint folder opens in Hugging Face transformers as it is.",
        "generate complete write inference infer": "Use gptlite sample --prompt TEXT.",
        "chat talk repl": f"Use gptlite sample --interactive. {NO_CHAT}",
        "finetune fine_tune": WEIGHTS,
        "serve server api": "From Python, gptlite.load(RUN).generate(PROMPT) writes text.",
        "resume continue": "Use gptlite train --resume RUN.",
        "evaluate score test benchmark": "Use gptlite eval.",
        "tokenize preprocess data": "Use gptlite prepare.",
        "sweep search tune": "Use gptlite train --sweep KEY=A,B.",
        "list ls compare": "Use gptlite runs.",
        "init configs": "gptlite config lists the shipped configs and prints one.",
    },
    "train": {
        "init_from from_pretrained pretrained finetune": WEIGHTS,
        "model model_name model_name_or_path": f"{WEIGHTS} The keys of section model give its size.",
        "resume_from resume_from_checkpoint load checkpoint ckpt": "--resume",
        "run_name experiment exp_name n": "--name",
        "config_name config_file cfg": "--config",
        "gpus devices n_gpu num_gpus nproc_per_node num_processes": "torchrun starts a process for each of N GPUs: "
        "torchrun --nproc-per-node N --no-python gptlite train.",
        "eval_only do_eval": "Use gptlite eval RUN. Training evaluates every eval.every updates.",
        "overwrite overwrite_output_dir force": "No run is overwritten. Choose another --name, or remove the run with "
        "gptlite runs rm RUN.",
    },
    "prepare": {
        "out output out_dir output_dir": "data.dir",
        "lines": "Use data.documents=lines.",
        "threads workers num_workers num_proc": "It uses all cores. GPTLITE_THREADS=N in the environment limits them.",
    },
    "sample": {
        "start": "Use --prompt {value}; instead of FILE:NAME, use --prompt-file NAME.",
        "text input": "--prompt",
        "file f": "--prompt-file",
        "N": "--max-new-tokens",
        "logprobs top_logprobs": "Use --explain: it shows the five likeliest tokens at each step.",
        "c ctx_size n_ctx context_length max_seq_len": "--context",
        "ckpt": "--checkpoint",
        "model m run out_dir model_path": RUN,
        "init_from": "gptlite sample RUN takes a run of gptlite. No other weights are loaded.",
        "do_sample": "Leave it out: tokens are drawn unless the temperature is 0.",
        "chat instruct conversation": f"Use --interactive. {NO_CHAT}",
        "dtype precision fp16 compile": "Leave it out: a run is sampled as it was trained, without a compiler.",
        "config": KEPT,
    },
    "eval": {
        "text input data dataset eval_file input_file": "--file",
        "ctx_size n_ctx context_length max_length block_size": "--context",
        "ckpt": "--checkpoint",
        "model m run out_dir model_path": RUN,
        "config c": KEPT,
        "eval_iters limit split": "All of the validation text is scored, or a text that --file names.",
    },
}
_MEANING = {scope: {n: m for names, m in table.items() for n in names.split()} for scope, table in MEANINGS.items()}


def meaning(scope: str, name: str) -> str | None:
    """Return what `name` of another program means in a scope; None for an unknown one.

    >>> meaning("key", "learning-rate"), meaning("sample", "file")
    ('train.lr', '--prompt-file')
    """
    return _MEANING.get(scope, {}).get(name.strip().replace("-", "_"))
