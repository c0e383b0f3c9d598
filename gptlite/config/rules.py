"""The conditions between keys of one section, as one function for each section.

A function takes the section's values by key and yields, for each condition that they break, the keys that it is between
and a sentence: why, and what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.fields import FieldInfo

from gptlite.config.yaml import shown

DEFAULT_VALIDATION = DEFAULT_VAL_FRACTION, DEFAULT_VAL_MAX_BYTES = 0.1, 10_000_000
LEFT_OUT = {"no_feed_forward": "mlp", "no_norm": "norm"}  # by model.variant: the place of model.bias that is gone
# What a model that training begins with decides.
SHAPE_KEYS = (
    *("n_layer", "n_head", "n_embd", "activation", "norm", "position", "scale_embeddings", "scale_attention"),
    *("bias", "tie_weights", "variant"),
)
DROPOUT_PLACES = ("embedding_dropout", "attention_dropout", "residual_dropout")

Values: TypeAlias = Mapping[str, Any]
Broken: TypeAlias = Iterator[tuple[Sequence[str], str]]


class Section(BaseModel):
    """A section of the config. Its rules are conditions between its own keys."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_by_name=True, serialize_by_alias=True
    )
    replaces: ClassVar[Mapping[str, Collection[str]]] = {}  # by key: those of earlier sources that it replaces

    @staticmethod
    def rules(values: Values) -> Broken:
        """Yield what is wrong between the values of the section, which holds every key."""
        return iter(())

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """Return the fields by their keys in a config file."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}

    def given(self) -> dict[str, Any]:
        """Return the values by key that did not come from defaults."""
        return self.model_dump(exclude_unset=True)

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for _, sentence in self.rules(dict(self)):
            raise ValueError(sentence)
        return self


def clash(names: str, values: Values, reason: str, advice: str) -> tuple[Sequence[str], str]:
    """Return the problem "section.key is VALUE, but other is VALUE REASON. ADVICE" of keys "section.key other"."""
    section, _, rest = names.partition(".")
    keys = rest.split()
    facts = [f"{key} is {shown(values[key])}" for key in keys]
    return keys, f"{section}.{facts[0]}, but {' and '.join(facts[1:])}{reason}. {advice}"


def requires(name: str, setting: str, reason: str, values: Values) -> Broken:
    """Refuse the key "section.key", which null switches off, without `setting`, such as "kind=bpe"."""
    section, _, key = name.partition(".")
    other, _, instead = setting.partition("=")
    advice = f"Use {name}=null or {section}.{setting}."
    if section == "sample":  # where another override does not replace what the user gave
        advice = f"Set {key} to null, or {other} to {instead}."
    yield clash(f"{name} {other}", values, reason, advice)


def data_rules(values: Values) -> Broken:
    """Yield what is wrong between keys of section data."""
    if values["separator"] is not None and values["documents"] not in (None, "files"):
        yield from requires("data.separator", "documents=files", ", which says what a document is", values)
    if values["val_source"] is not None and (values["val_fraction"], values["val_max_bytes"]) != DEFAULT_VALIDATION:
        advice = "Leave these two out, or use data.val_source=null."
        yield clash("data.val_source val_fraction val_max_bytes", values, ", which then do nothing", advice)


def tokenizer_rules(values: Values) -> Broken:
    """Yield what is wrong between keys of section tokenizer."""
    for key, what in (("vocab_size", "size"), ("pattern", "pieces")):
        if values[key] is not None and values["kind"] != "bpe":
            yield from requires(f"tokenizer.{key}", "kind=bpe", f", which determines its own {what}", values)


def model_rules(values: Values) -> Broken:
    """Yield what is wrong between keys of section model."""
    width, heads, variant, bias = (values[key] for key in ("n_embd", "n_head", "variant", "bias"))
    if width % heads != 0:
        near = " or ".join(str(heads * times) for times in (width // heads, width // heads + 1) if times)
        sentence = f"model.n_embd is {width}, which is not a multiple of n_head ({heads}). Use {near}."
        yield ("n_embd", "n_head"), sentence
    if values["dropout"] != 0 and all(values[place] is not None for place in DROPOUT_PLACES):
        advice = f"Use model.dropout=0, or set one of {', '.join(DROPOUT_PLACES)} to null."
        sentence = f"model.dropout is {values['dropout']}, but every place has a dropout of its own. {advice}"
        yield ("dropout", *DROPOUT_PLACES), sentence
    if variant is not None and values["norm"] != "pre":
        yield from requires("model.variant", "norm=pre", ", and the variants are those of pre-LN", values)
    if variant == "no_residual" and values["init"] in ("zero", "previous"):
        reason = ", so every block would put out zeros and learn nothing"
        yield clash("model.variant init", values, reason, "Use model.init=gpt2 or model.init=torch.")
    if not isinstance(bias, bool) and LEFT_OUT.get(variant) in bias:
        yield clash(
            "model.bias variant", values, ", which has no such place", f"Take {LEFT_OUT[variant]} off the list."
        )
    if variant == "no_feed_forward" and values["activation"] != "relu":
        yield clash("model.activation variant", values, ", which has none", "Leave activation out.")


def train_rules(values: Values) -> Broken:
    """Yield what is wrong between keys of section train."""
    micro, batch = values["micro_batch_size"], values["batch_size"]
    if micro != "auto" and batch % micro != 0:
        sentence = f"train.batch_size is {batch}, which is not a multiple of micro_batch_size ({micro})."
        advice = f"Use a multiple of {micro} or train.micro_batch_size=auto."
        yield ("micro_batch_size", "batch_size"), f"{sentence} {advice}"
    lengths = [key for key in ("max_steps", "epochs", "max_minutes") if values[key] is not None]
    if len(lengths) > 1:
        facts = " and ".join(
            f"{key} is {values[key]:{'g' if isinstance(values[key], float) else ''}}" for key in lengths
        )
        yield lengths, f"train.{facts}, but only one of them can end the training. Keep one."
    if values["decay_fraction"] is not None and values["schedule"] != "constant":
        yield from requires("train.decay_fraction", "schedule=constant", ", which does not use it", values)
    if values["optimizer"] == "adamw":
        if values["adamw_lr"] not in ("auto", None):
            yield from requires("train.adamw_lr", "optimizer=muon", ", which takes train.lr for all parameters", values)
        if values["momentum"] is not None:
            yield from requires("train.momentum", "optimizer=muon", ", which uses beta1 and beta2 instead", values)
    if values["vocab_sample"] not in ("auto", None) and values["ngram_teacher"] > 0:
        yield from requires("train.vocab_sample", "ngram_teacher=0", ", which is about all ids", values)
    yield from scheduled_sampling_rules(values)


def scheduled_sampling_rules(values: Values) -> Broken:
    """Yield what is wrong between the keys of scheduled sampling."""
    keys = [f"scheduled_sampling{end}" for end in ("", "_decay", "_start", "_until")]
    last, decay, first, until = (values[key] for key in keys)
    if last == 0 and (decay, first, until) != ("linear", 0, 1):
        sentence = "train.scheduled_sampling is 0, so scheduled_sampling_decay, _start and _until do nothing."
        yield keys, f"{sentence} Leave them out, or set scheduled_sampling above 0."
    if 0 < last < first:
        reason = ", and the fraction of replaced inputs only rises"
        yield clash("train.scheduled_sampling_start scheduled_sampling", values, reason, f"Use at most {last}.")
    if last == 1 and decay != "linear":
        reason = ", with which the text's own inputs never vanish"
        advice = "Use less than 1, or linear."
        yield clash("train.scheduled_sampling scheduled_sampling_decay", values, reason, advice)
    if decay == "inverse_sigmoid" and first == 0:
        reason = ", whose curve begins above 0"
        yield clash(f"train.{keys[2]} {keys[1]}", values, reason, "Use 0.01, say.")


def sample_rules(values: Values) -> Broken:
    """Yield what is wrong between keys of section sample."""
    n, beams = values["n"], values["beams"]
    for key in ("top_k", "top_p", "min_p", "repetition_penalty"):
        if values[key] is not None and beams is not None:
            yield from requires(f"sample.{key}", "beams=null", ", and beam search does not sample", values)
    if beams is not None and n > beams:
        sentence = f"sample.n is {n}, but beam search with {beams} beams finds at most {beams} texts."
        yield ("n", "beams"), f"{sentence} Set beams to {n} or more."
    if values["length_penalty"] is not None and beams is None:
        yield from requires("sample.length_penalty", "beams=a number", ", and only beam search uses it", values)
