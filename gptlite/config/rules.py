"""The conditions between keys of one section, as one table for each section."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.fields import FieldInfo

from gptlite.config.yaml import shown

DEFAULT_VAL_FRACTION, DEFAULT_VAL_MAX_BYTES = 0.1, 10_000_000


@dataclass(frozen=True)
class Rule:
    """A condition between keys.

    `holds` takes the values of `keys` in order; where it is false, `sentence`, which takes the same, says why and what
    to do.
    """

    keys: tuple[str, ...]
    holds: Callable[..., bool]
    sentence: Callable[..., str]

    def problem(self, values: Mapping[str, Any]) -> str | None:
        """Return the sentence where `values`, which holds every key, breaks the rule."""
        own = [values[key] for key in self.keys]
        return None if self.holds(*own) else self.sentence(*own)


class Section(BaseModel):
    """A section of the config. Its rules are conditions between its own keys."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_by_name=True, serialize_by_alias=True
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    alternatives: ClassVar[frozenset[str]] = frozenset()  # an override of one replaces the others of the file
    decides: ClassVar[Mapping[str, Sequence[str]]] = {}  # an override of such a key replaces these of the file

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """The fields by their keys in a config file."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}

    def given(self) -> dict[str, Any]:
        """The values by key that did not come from defaults."""
        return self.model_dump(exclude_unset=True)

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.rules:
            if (problem := rule.problem(dict(self))) is not None:
                raise ValueError(problem)
        return self


def known_home(name: str) -> Rule:
    """Refuse a path that begins with ~ and a user who does not exist, or whose home is unknown."""

    def holds(path: str) -> bool:
        try:
            Path(path).expanduser()
        except RuntimeError:
            return False
        return True

    def sentence(path: str) -> str:
        return f"{name} is {shown(path)}, but the home of this user is unknown. Write the path in full."

    return Rule((name.partition(".")[2],), holds, sentence)


def requires(
    name: str,
    other: str,
    allowed: Callable[[Any], bool],
    reason: str,
    instead: str,
    unset: Sequence[Any] = (None, False),
) -> Rule:
    """Allow the key "section.key" to be set only where `other` has an allowed value, such as `instead`.

    unset: the values that count as not set.
    """
    section, _, key = name.partition(".")

    def sentence(value: Any, found: Any) -> str:
        unset = "false" if value is True else "null"
        advice = f"Use {name}={unset} or {section}.{other}={instead}."
        if section == "sample":  # where another override does not replace what the user gave
            advice = f"Set {key} to {unset}, or {other} to {instead}."
        return f"{name} is {shown(value)}, but {other} is {shown(found)}, {reason}. {advice}"

    def holds(value: Any, found: Any) -> bool:
        return allowed(found) or any(type(value) is type(each) and value == each for each in unset)

    return Rule((key, other), holds, sentence)


def only_one(section: str, keys: tuple[str, ...], effect: str) -> Rule:
    """Allow at most one of the keys to have a value; `effect` is what each of them alone would do."""

    def holds(*values: Any) -> bool:
        return sum(value is not None for value in values) <= 1

    def sentence(*values: Any) -> str:
        given = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
        facts = [f"{key} is {value:g}" if isinstance(value, float) else f"{key} is {value}" for key, value in given]
        others = "the other" if len(given) == 2 else "the others"
        listed = f"{', '.join(facts[:-1])} and {facts[-1]}"
        return f"{section}.{listed}, but only one of them can {effect}. Set {others} to null."

    return Rule(keys, holds, sentence)


DATA_RULES = (
    known_home("data.dir"),
    requires(
        "data.separator",
        "documents",
        lambda documents: documents in (None, "files"),
        "which says what a document is",
        "files",
    ),
    Rule(
        ("val_source", "val_fraction", "val_max_bytes"),
        lambda source, *part: source is None or part == (DEFAULT_VAL_FRACTION, DEFAULT_VAL_MAX_BYTES),
        lambda source, fraction, most: (
            f"data.val_source is {shown(source)}, and all of it is used, so val_fraction ({fraction}) and "
            f"val_max_bytes ({most}) do nothing. Leave these two out, or use data.val_source=null."
        ),
    ),
)

TOKENIZER_RULES = (
    requires("tokenizer.vocab_size", "kind", lambda kind: kind == "bpe", "which determines its own size", "bpe"),
)

LEFT_OUT = {"no_feed_forward": "mlp", "no_norm": "norm"}  # by model.variant: the place of model.bias that is gone
DROPOUT_PLACES = ("embedding_dropout", "attention_dropout", "residual_dropout")

MODEL_RULES = (
    Rule(
        ("n_embd", "n_head"),
        lambda width, heads: width % heads == 0,
        lambda width, heads: (
            f"model.n_embd is {width}, which is not a multiple of n_head ({heads}). Use "
            + " or ".join(str(heads * times) for times in (width // heads, width // heads + 1) if times)
            + "."
        ),
    ),
    Rule(
        ("dropout", *DROPOUT_PLACES),
        lambda everywhere, *places: everywhere == 0 or None in places,
        lambda everywhere, *_: (
            f"model.dropout is {everywhere}, but every place has a dropout of its own. Use model.dropout=0, or set one "
            f"of {', '.join(DROPOUT_PLACES)} to null."
        ),
    ),
    requires("model.variant", "norm", lambda norm: norm == "pre", "and the variants are those of pre-LN", "pre"),
    Rule(
        ("variant", "init"),
        lambda variant, init: variant != "no_residual" or init not in ("zero", "previous"),
        lambda _, init: (
            f"model.variant is no_residual, but init is {init}, so every block would put out zeros and learn nothing. "
            "Use model.init=gpt2 or model.init=torch."
        ),
    ),
    Rule(
        ("variant", "bias"),
        lambda variant, bias: isinstance(bias, bool) or LEFT_OUT.get(variant) not in bias,
        lambda variant, _: (
            f"model.bias names {LEFT_OUT[variant]}, but variant is {variant}, which has none. Take it off the list."
        ),
    ),
    Rule(
        ("variant", "activation"),
        lambda variant, activation: variant != "no_feed_forward" or activation == "relu",
        lambda _, activation: (
            f"model.activation is {activation}, but variant is no_feed_forward, which has none. Leave activation out."
        ),
    ),
)

TRAIN_RULES = (
    Rule(
        ("micro_batch_size", "batch_size"),
        lambda micro, batch: micro == "auto" or batch % micro == 0,
        lambda micro, batch: (
            f"train.batch_size is {batch}, which is not a multiple of micro_batch_size ({micro}). "
            f"Use a multiple of {micro} or train.micro_batch_size=auto."
        ),
    ),
    only_one("train", ("max_steps", "epochs", "max_minutes"), "end the training"),
    requires("train.decay_fraction", "schedule", lambda name: name == "constant", "which does not use it", "constant"),
    requires(
        "train.adamw_lr",
        "optimizer",
        lambda name: name != "adamw",
        "which takes train.lr for all parameters",
        "muon",
        unset=("auto", None),
    ),
    Rule(
        ("scheduled_sampling", "scheduled_sampling_decay", "scheduled_sampling_start", "scheduled_sampling_until"),
        lambda last, *curve: last > 0 or curve == ("linear", 0, 1),
        lambda *_: (
            "train.scheduled_sampling is 0, so no input is replaced, and scheduled_sampling_decay, _start and _until "
            "do nothing. Leave them out, or set scheduled_sampling above 0."
        ),
    ),
    Rule(
        ("scheduled_sampling", "scheduled_sampling_start"),
        lambda last, first: first <= last or last == 0,
        lambda last, first: (
            f"train.scheduled_sampling_start is {first}, above scheduled_sampling ({last}), but the fraction of "
            f"replaced inputs only rises. Use at most {last}."
        ),
    ),
    Rule(
        ("scheduled_sampling", "scheduled_sampling_decay"),
        lambda last, decay: decay == "linear" or last < 1,
        lambda _, decay: (
            f"train.scheduled_sampling is 1, but with scheduled_sampling_decay {decay} the text's own inputs never "
            "vanish. Use less than 1, or linear."
        ),
    ),
    Rule(
        ("scheduled_sampling_decay", "scheduled_sampling_start"),
        lambda decay, first: decay != "inverse_sigmoid" or first > 0,
        lambda *_: (
            "train.scheduled_sampling_start is 0, but the curve of inverse_sigmoid begins above 0, at 1 / (k + 1) for "
            "its k of at least 1. Use 0.01, say."
        ),
    ),
    requires("train.momentum", "optimizer", lambda name: name != "adamw", "which uses beta1 and beta2 instead", "muon"),
)

SAMPLE_RULES = (
    *(
        requires(f"sample.{key}", "beams", lambda beams: beams is None, "and beam search does not sample", "null")
        for key in ("top_k", "top_p", "min_p", "repetition_penalty")
    ),
    Rule(
        ("n", "beams"),
        lambda n, beams: beams is None or n <= beams,
        lambda n, beams: (
            f"sample.n is {n}, but beam search with {beams} beams finds at most {beams} texts. "
            f"Set beams to {n} or more."
        ),
    ),
    requires(
        "sample.length_penalty", "beams", lambda beams: beams is not None, "and only beam search uses it", "a number"
    ),
)

LOG_RULES = ()
