"""What an unknown key was probably meant to be."""

from __future__ import annotations

import difflib

from gptlite.config.accepted import SECTIONS

# Names of the field at large, and of other trainers, for what has one spelling here.
SYNONYMS = {
    "model.n_layer": "num_layers n_layers num_hidden_layers layers depth n_blocks num_blocks",
    "model.n_head": "num_heads n_heads num_attention_heads heads",
    "model.n_embd": "d_model hidden_size n_embed n_embedding embedding_size embed_dim dim width hidden_dim",
    "model.block_size": "seq_len seq_length max_seq_len sequence_length max_seq_length context_length context_size "
    "context n_ctx n_positions max_position_embeddings ctx_len",
    "model.dropout": "dropout_rate resid_pdrop attn_pdrop embd_pdrop p_dropout hidden_dropout",
    "model.activation": "activation_function act act_fn hidden_act nonlinearity",
    "model.norm": "norm_first pre_norm prenorm layer_norm layernorm norm_position",
    "model.position": "position_embedding positional_encoding pos_embd pos_emb positions",
    "model.scale_attention": "scale_attn_weights attention_scale scale_attn",
    "model.bias": "use_bias linear_bias qkv_bias",
    "model.tie_weights": "tie_word_embeddings tied_embeddings weight_tying tie_embeddings",
    "train.max_steps": "max_iters steps num_steps n_steps iterations num_iterations train_steps total_steps updates "
    "epochs max_epochs num_epochs n_epochs num_train_epochs num_train_steps",
    "train.max_minutes": "minutes max_time time_limit time_budget duration max_seconds max_hours",
    "train.batch_size": "global_batch_size total_batch_size train_batch_size bs",
    "train.micro_batch_size": "gradient_accumulation_steps grad_accum_steps grad_accum accumulation accumulation_steps "
    "per_device_train_batch_size device_batch_size microbatch microbatch_size",
    "train.optimizer": "optim optimiser",
    "train.lr": "learning_rate max_lr peak_lr base_lr eta",
    "train.warmup_steps": "warmup warmup_iters num_warmup_steps lr_warmup_steps",
    "train.schedule": "lr_schedule scheduler lr_scheduler lr_scheduler_type lr_decay decay_lr",
    "train.min_lr_ratio": "min_lr final_lr lr_min eta_min final_lr_frac",
    "train.decay_fraction": "decay_ratio warmdown warmdown_ratio cooldown cooldown_frac decay_steps lr_decay_iters",
    "train.weight_decay": "wd decay l2",
    "train.beta1": "betas adam_beta1",
    "train.beta2": "adam_beta2",
    "train.momentum": "muon_momentum",
    "train.grad_clip": "clip gradient_clip gradient_clipping max_grad_norm clip_grad clip_grad_norm max_norm",
    "train.scheduled_sampling": "teacher_forcing teacher_forcing_ratio sampling_probability",
    "train.patience": "early_stopping early_stop early_stopping_patience",
    "eval.every": "eval_interval eval_every eval_steps eval_freq val_interval val_every",
    "eval.batch_size": "eval_batch_size per_device_eval_batch_size val_batch_size",
    "save.every": "save_interval save_every save_steps checkpoint_every checkpoint_interval ckpt_every",
    "save.keep": "save_total_limit keep_last n_checkpoints max_checkpoints",
    "log.every": "log_interval log_every logging_steps log_freq",
    "log.grad_norms": "log_grad_norm gradient_norms track_grad_norm",
    "log.tensorboard": "tb use_tensorboard report_to",
    "data.source": "path file files dataset data data_path data_dir train_file input input_file corpus text",
    "data.val_fraction": "val_split validation_split test_size valid_fraction val_ratio",
    "data.order": "shuffle sampler",
    "data.normalize": "normalization unicode_normalization normal_form",
    "tokenizer.kind": "type tokenizer_type tokenizer_name",
    "tokenizer.vocab_size": "n_vocab vocabulary_size num_tokens vocab",
    "run.dir": "out_dir output_dir run_dir runs_dir save_dir log_dir checkpoint_dir",
    "run.seed": "random_seed manual_seed",
    "run.precision": "dtype mixed_precision amp fp16 bf16 half torch_dtype",
    "run.compile": "torch_compile use_compile",
    "run.attention": "flash flash_attention attn_implementation use_flash_attention attention_backend",
    "run.threads": "num_threads n_threads num_workers workers cpus",
    "run.device": "accelerator gpu cuda use_cuda",
    "sample.max_new_tokens": "max_tokens max_length length num_tokens_to_generate",
    "sample.temperature": "temp",
    "sample.n": "num_samples num_return_sequences n_samples samples",
    "sample.stop": "stop_sequences stop_strings stop_words",
}
SECTION_SYNONYMS = {
    "run": "runtime system compute environment general",
    "data": "dataset datasets dataloader corpus",
    "tokenizer": "tokeniser tokenization vocab bpe",
    "model": "network architecture gpt transformer net",
    "train": "training trainer optim optimizer optimizers optimization optimiser",
    "eval": "evaluation validation val evaluate",
    "save": "checkpoint checkpoints checkpointing saving",
    "log": "logging logger metrics wandb tensorboard",
    "sample": "sampling generate generation inference",
}
KEYS = {f"{section}.{key}": key for section, model in SECTIONS.items() for key in model.model_fields}
_FIELD_WORDS = {word: name for name, words in SYNONYMS.items() for word in words.split()}
_SECTION_WORDS = {word: name for name, words in SECTION_SYNONYMS.items() for word in words.split()}


def suggest_key(section: str | None, key: str) -> list[str]:
    """Full names that `key`, unknown in `section` (None: written outside any), may stand for; likeliest first.

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
    if word in _FIELD_WORDS:
        return [_FIELD_WORDS[word]]
    return _near_spelling(section, word)


def suggest_section(name: str) -> str | None:
    """The section that an unknown one may stand for."""
    word = name.strip().lower().replace("-", "_")[:64]
    if word in SECTIONS or word in _SECTION_WORDS:
        return _SECTION_WORDS.get(word, word)
    return next(iter(difflib.get_close_matches(word, SECTIONS, n=1, cutoff=0.6)), None)


def _near_spelling(section: str | None, word: str) -> list[str]:
    here = {leaf: name for name, leaf in KEYS.items() if name.startswith(f"{section}.")}
    words = {leaf: name for name, leaf in reversed(KEYS.items())} | _FIELD_WORDS
    for candidates, cutoff in ((here, 0.7), (words, 0.8), (here, 0.6)):
        close = difflib.get_close_matches(word, candidates, n=1, cutoff=cutoff)
        if close:
            return [candidates[close[0]]]
    return []
