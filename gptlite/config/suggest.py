"""Say what an unknown key or section was probably meant to be."""

from __future__ import annotations

import difflib

from gptlite.config.schema import SECTIONS
from gptlite.config.yaml import Value, shown
from gptlite.errors import ConfigError
from gptlite.other_programs import MEANINGS, meaning

KEYS = {f"{section}.{key}": key for section, model in SECTIONS.items() for key in model.fields()}
_WORDS = {word: key for names, key in MEANINGS["key"].items() if key in KEYS for word in names.split()}


def suggest_key(section: str | None, key: str) -> list[str]:
    """Return the full names that `key`, unknown in `section` (None: outside any), may stand for, likeliest first.

    >>> suggest_key("train", "n_layer"), suggest_key("model", "d_model"), suggest_key("train", "warmup_step")
    (['model.n_layer'], ['model.n_embd'], ['train.warmup_steps'])
    """
    if key.lower() in KEYS:
        return [key.lower()]
    word = _plain(key.rpartition(".")[2])
    named = [name for name, leaf in KEYS.items() if leaf == word]
    own = [name for name in named if name.startswith(f"{section}.")]
    if named or word in _WORDS:
        return own or named[:3] or [_WORDS[word]]
    here = {leaf: name for name, leaf in KEYS.items() if name.startswith(f"{section}.")}
    anywhere = {leaf: name for name, leaf in reversed(KEYS.items())} | _WORDS
    for names, cutoff in ((here, 0.7), (anywhere, 0.8), (here, 0.6)):
        if close := difflib.get_close_matches(word, names, n=1, cutoff=cutoff):
            return [names[close[0]]]
    return []


def explain_key(key: str) -> str | None:
    """Return what to do instead of a key that no key of the config stands for as it is; None for all others."""
    advice = meaning("key", _plain(key.rpartition(".")[2]))
    return None if advice in KEYS else advice


def suggest_section(name: str) -> str | None:
    """Return the section that an unknown one may stand for."""
    word = _plain(name)
    close = difflib.get_close_matches(word, SECTIONS, n=1, cutoff=0.6)
    return meaning("section", word) or (close[0] if close else None)


def _plain(word: str) -> str:
    return word.strip().lower().replace("-", "_")[:64]


def check_key(name: str) -> None:
    """Raise ConfigError unless `name` is a "section.key" of the config."""
    section, dot, key = name.partition(".")
    if section not in SECTIONS:
        raise ConfigError(explain_unknown_key(name, suggest_section(section) if dot else section))
    if not dot:
        meant = _WORDS.get(section)
        advice = f"Did you mean {meant}?" if meant else "Set one of its keys: section.key=value."
        raise ConfigError(f"{section} is a whole section. {advice}")
    if key not in SECTIONS[section].fields():
        raise ConfigError(explain_unknown_key(name, section))


def explain_unknown_key(name: str, section: str | None) -> str:
    """Say that "section.key" is unknown, and which key of a section was probably meant."""
    meant = suggest_key(section, name.partition(".")[2] or name)
    near = f"Did you mean {' or '.join(meant)}?" if meant else "The built-in small.yaml lists every key."
    return f"{shown(name)} is not a key of the config. {explain_key(name) or near}"


def explain_unknown_section(name: str, value: Value) -> str:
    """Say that a name at the top of a file is unknown there, and what was probably meant."""
    if isinstance(value, dict | None):
        meant = suggest_section(name)
        advice = f"Did you mean {meant}?" if meant else f"The sections are {', '.join(SECTIONS)}."
        return f"{shown(name)} is not a section of the config. {advice}"
    keys = [key.split(".") for key in suggest_key(None, name)]
    places = " or ".join(f"{key} in the section {section}" for section, key in keys)
    near = f"Did you mean {places}?" if keys else "The built-in small.yaml lists every section and key."
    return f"{shown(name)} is not inside a section. {explain_key(name) or near}"
