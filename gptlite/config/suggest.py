"""Suggest the key or section that an unknown name was probably meant to be."""

from __future__ import annotations

import difflib

from gptlite.config.schema import SECTIONS

# Names that nanoGPT, Hugging Face's Trainer and models, and PyTorch code use for these keys.
SYNONYMS = {
    "data.source": "dataset data data_path data_dir train_file train_data input_file input file path corpus text_file",
    "data.val_source": "validation_file validation_data val_file val_data eval_file test_file",
    "data.field": "text_field json_field",
    "data.column": "text_column column_name",
    "data.val_fraction": "val_split validation_split test_size",
    "tokenizer.kind": "tokenizer tokenizer_type tokenizer_name tokenizer_class type",
    "tokenizer.from": "pretrained_tokenizer tokenizer_path tokenizer_file",
    "model.n_layer": "n_layers num_layers num_hidden_layers depth",
    "model.n_head": "n_heads num_heads nhead num_attention_heads",
    "model.n_embd": "d_model hidden_size hidden_dim embed_dim embedding_dim width",
    "model.block_size": "seq_len seq_length sequence_length max_seq_len max_seq_length context context_length "
    "context_size ctx_size n_ctx n_positions max_position_embeddings",
    "model.embedding_dropout": "embd_pdrop embd_dropout",
    "model.attention_dropout": "attn_pdrop attn_dropout",
    "model.residual_dropout": "resid_pdrop resid_dropout",
    "model.init": "initialization initialisation init_method weight_init",
    "model.activation": "activation_function hidden_act act_fn",
    "model.norm": "norm_first pre_norm",
    "model.position": "position_embedding positional_encoding pos_emb",
    "model.tie_weights": "tie_word_embeddings weight_tying",
    "train.max_steps": "max_iters iters num_iters n_iters steps num_steps n_steps total_steps iterations "
    "num_train_steps",
    "train.epochs": "max_epochs num_epochs n_epochs num_train_epochs",
    "train.max_minutes": "minutes max_time time_limit",
    "train.micro_batch_size": "per_device_train_batch_size",
    "train.optimizer": "optim",
    "train.lr": "learning_rate max_lr",
    "train.vocab_sample": "sampled_softmax",
    "train.warmup_steps": "warmup warmup_iters num_warmup_steps",
    "train.schedule": "scheduler lr_scheduler lr_scheduler_type lr_schedule",
    "train.beta1": "adam_beta1",
    "train.beta2": "adam_beta2",
    "train.grad_clip": "max_grad_norm max_norm clip_grad_norm gradient_clip_val",
    "train.patience": "early_stopping early_stopping_patience",
    "eval.every": "eval_every eval_interval eval_steps val_check_interval",
    "eval.batch_size": "eval_batch_size per_device_eval_batch_size",
    "save.every": "save_every save_interval save_steps checkpoint_interval ckpt_interval",
    "save.keep": "save_total_limit",
    "log.every": "log_every log_interval logging_steps",
    "run.dir": "out_dir output_dir",
    "run.seed": "random_seed manual_seed",
    "run.precision": "dtype torch_dtype",
    "run.compile": "torch_compile",
    "run.attention": "attn_implementation flash_attention flash",
    "run.threads": "num_threads num_workers",
    "run.device": "accelerator",
    "sample.max_new_tokens": "max_tokens max_length length tokens num_tokens n_predict num_predict max_gen_len",
    "sample.temperature": "temp",
    "sample.repetition_penalty": "repeat_penalty penalty",
    "sample.n": "num_samples n_samples samples num_return_sequences count",
    "sample.stop": "stop_strings stop_sequences reverse_prompt",
    "sample.beams": "num_beams",
}
# Names of other programs that no key stands for as it is, and what to do instead.
EXPLAINED = {
    "teacher_forcing teacher_forcing_ratio teacher_forcing_rate teacher_forcing_prob": "train.scheduled_sampling is "
    "the opposite, the fraction of inputs that are not the text's own: a teacher forcing ratio of 0.75 is 0.25 there.",
    "fp16 float16 half bf16 bfloat16 amp use_amp mixed_precision autocast": "Use run.precision=bf16 or "
    "run.precision=fp32. There is no fp16.",
    "cpu use_cpu no_cuda": "Use run.device=cpu.",
    "cuda use_cuda gpu use_gpu": "Use run.device=cuda.",
    "wandb wandb_log wandb_project wandb_run_name use_wandb report_to": "Metrics go to TensorBoard, which is on by "
    "default (log.tensorboard), and to metrics.jsonl.",
    "gradient_accumulation_steps grad_accum_steps grad_accum accumulate_grad_batches": "train.batch_size counts the "
    "sequences of an update, train.micro_batch_size those of a forward pass, and accumulation follows from the two.",
    "betas adam_betas": "Use train.beta1=0.9 and train.beta2=0.95, say.",
    "min_lr eta_min": "train.min_lr_ratio is the final rate as a fraction of train.lr, such as 0.1.",
    "decay_lr lr_decay": "Use train.schedule=constant and train.decay_fraction=0 for a rate that does not fall.",
    "lr_decay_iters lr_decay_steps": "train.schedule ends with the training; train.min_lr_ratio says at which rate.",
    "warmup_ratio warmup_fraction": "train.warmup_steps counts updates: a ratio of 0.1 is a tenth of train.max_steps.",
    "eval_iters limit_val_batches max_eval_samples": "Each evaluation reads all of the validation text, which "
    "data.val_max_bytes limits.",
    "always_save_checkpoint": "A checkpoint is saved every save.every updates and at each best score.",
    "n_inner d_ff ffn_dim ffn_mult mlp_ratio intermediate_size dim_feedforward": "The feed-forward layers are four "
    "times as wide as model.n_embd.",
    "rope rotary rope_theta alibi": "model.position is learned, sinusoidal or none.",
}
SECTION_SYNONYMS = {
    "run": "runtime environment",
    "data": "dataset",
    "tokenizer": "tokenization",
    "model": "network architecture gpt transformer",
    "train": "training trainer optim optimizer",
    "eval": "evaluation validation val",
    "save": "checkpoint checkpoints checkpointing",
    "log": "logging logger wandb tensorboard",
    "sample": "sampling generate generation inference",
}
KEYS = {f"{section}.{key}": key for section, model in SECTIONS.items() for key in model.fields()}
_KEY_OF = {synonym: name for name, synonyms in SYNONYMS.items() for synonym in synonyms.split()}
_SECTION_OF = {synonym: name for name, synonyms in SECTION_SYNONYMS.items() for synonym in synonyms.split()}


def suggest_key(section: str | None, key: str) -> list[str]:
    """Return the full names that `key`, unknown in `section` (None: outside any), may stand for, likeliest first.

    >>> suggest_key("train", "n_layer"), suggest_key("model", "d_model"), suggest_key("train", "warmup_step")
    (['model.n_layer'], ['model.n_embd'], ['train.warmup_steps'])
    """
    word = key.rpartition(".")[2].strip().lower().replace("-", "_")[:64]
    own = [name for name, leaf in KEYS.items() if leaf == word and name.startswith(f"{section}.")]
    if own or key.lower() in KEYS:
        return own or [key.lower()]
    same_leaf = [name for name, leaf in KEYS.items() if leaf == word]
    if same_leaf:
        return same_leaf[:3]
    if word in _KEY_OF:
        return [_KEY_OF[word]]
    return _near_spelling(section, word)


def explain_key(key: str) -> str | None:
    """Return what to do instead of a key that no key of the config stands for as it is; None for all others."""
    word = key.rpartition(".")[2].strip().lower().replace("-", "_")
    return next((advice for names, advice in EXPLAINED.items() if word in names.split()), None)


def suggest_section(name: str) -> str | None:
    """Return the section that an unknown one may stand for."""
    word = name.strip().lower().replace("-", "_")[:64]
    if word in SECTIONS or word in _SECTION_OF:
        return _SECTION_OF.get(word, word)
    return next(iter(difflib.get_close_matches(word, SECTIONS, n=1, cutoff=0.6)), None)


def _near_spelling(section: str | None, word: str) -> list[str]:
    here = {leaf: name for name, leaf in KEYS.items() if name.startswith(f"{section}.")}
    words = {leaf: name for name, leaf in reversed(KEYS.items())} | _KEY_OF
    for candidates, cutoff in ((here, 0.7), (words, 0.8), (here, 0.6)):
        close = difflib.get_close_matches(word, candidates, n=1, cutoff=cutoff)
        if close:
            return [candidates[close[0]]]
    return []
