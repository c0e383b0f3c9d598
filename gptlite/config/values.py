"""The types of the values in a config: counts, fractions, paths and texts, each with its range.

The range is part of the type, so that validation, JSON Schema and messages share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Accepted:
    """Annotation of a type: what messages say it accepts, instead of a text made from its parts."""

    description: str


def key(default: Any, description: str, name: str | None = None) -> Any:
    """Declare a key of a section. name: of the key, where it is a word of Python, which no field can be called."""
    return Field(default=default, description=description, alias=name)


def _utf8_text(text: str) -> str:
    text.encode("utf-8")  # UnicodeEncodeError, a ValueError, on a lone surrogate, which no file can hold
    return text


def _usable_path(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError("no path")
    return text


def _known_encoding(name: str) -> str:
    try:
        "a".encode(name)
    except (LookupError, ValueError) as error:
        raise ValueError("no text encoding") from error
    return name


Auto = Literal["auto"]
Switch = Annotated[Auto | bool, Accepted("auto, true or false")]
Count = Annotated[int, Field(ge=1, le=INT64_MAX)]
Natural = Annotated[int, Field(ge=0, le=INT64_MAX)]
Positive = Annotated[float, Field(gt=0)]
Epochs = Annotated[float, Field(gt=0, le=1_000_000)]  # so that the updates of any text are an int64
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
DropoutRate = Annotated[float, Field(ge=0, le=0.99)]  # what is kept is scaled up, at most a hundredfold
Text = Annotated[str, AfterValidator(_utf8_text)]
Name = Annotated[Text, Field(min_length=1)]
PathText = Annotated[Text, AfterValidator(_usable_path)]
FolderPath = Annotated[PathText, Accepted("the path of a folder")]
Encoding = Annotated[
    Text, AfterValidator(_known_encoding), Accepted("a text encoding Python knows, such as utf-8, cp1252 or utf-16")
]
Source = Annotated[
    PathText | Annotated[list[PathText], Field(min_length=1)],
    Accepted("a file, folder, glob or data set name, or a list of these"),
]
OptionalSource = Annotated[
    PathText | Annotated[list[PathText], Field(min_length=1)] | None,
    Accepted("a file, folder, glob or data set name, a list of these, or null"),
]
TokenizerSource = Annotated[
    PathText | None,
    Accepted("a run, the folder of a checkpoint, of a prepared text or of a GPT-2, or null"),
]
WeightsSource = Annotated[
    PathText | None,
    Accepted("a run, the folder of a checkpoint or of a GPT-2 in Hugging Face's format, gpt2, or null"),
]
Part = Annotated[Text, Field(pattern=r"^(embeddings|blocks? \d{1,6}(-\d{1,6})?)$")]
Frozen = Annotated[
    Annotated[list[Part], Field(min_length=1)] | None,
    Accepted("null, or a list of embeddings and blocks, counted from 0, such as [embeddings, block 0, blocks 2-5]"),
]
# Where a model may add a learned vector: after Q, K and V, after the heads' projection, in the feed-forward, in norms.
BiasPlace = Literal["qkv", "proj", "mlp", "norm"]
Biases = Annotated[
    bool | Annotated[list[BiasPlace], Field(min_length=1)],
    Accepted("true, false or a list of qkv, proj, mlp and norm"),
]
StopTexts = Annotated[list[Annotated[Text, Field(min_length=1)]], Accepted("a list of texts, none of them empty")]
StopTokens = Annotated[list[Natural], Accepted("a list of token ids")]
