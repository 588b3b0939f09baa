"""What is wrong with settings, in the words of whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

#: How a rule over several settings says which of them it is about; it has no place of its own.
_ABOUT = "setting"

_LONGEST_VALUE = 60

#: What each kind of mistake is called; `{...}` are the values that pydantic has beside it. Any other kind is told in
#: pydantic's words.
_MISTAKES: Mapping[str, str] = {
    "missing": "is missing",
    "extra_forbidden": "is not a setting",
    "union_tag_not_found": "is missing",
    "union_tag_invalid": "must be one of {expected_tags}",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "string_too_short": "must have at least {min_length} character(s)",
    "string_too_long": "must have at most {max_length} character(s)",
    "path_type": "must be a path",
    "list_type": "must be a list of tables",
    "tuple_type": "must be a list",
    "model_attributes_type": "must be a table",
}
#: Kinds whose value says nothing: there is none, or it is not the mistake, or the message has it.
_VALUE_UNTOLD = frozenset({"missing", "extra_forbidden", "union_tag_not_found", "value_error", "string_too_long"})


def about(setting: str, problem: str) -> PydanticCustomError:
    """What a validator over several settings raises to say which one is at fault."""
    return PydanticCustomError("value_error", "{problem}", {"problem": problem, _ABOUT: setting})


def tell_problems(error: ValidationError, spell: Callable[[str], str]) -> str:
    """Every problem, on one line. spell: gives the name of a setting as it was written."""
    return "; ".join(_problem(each, spell) for each in error.errors())


def _problem(details: ErrorDetails, spell: Callable[[str], str]) -> str:
    # Bounds of numbers that need not be whole come as floats: 0.0 is written 0.
    context: Mapping[str, Any] = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in (details.get("ctx") or {}).items()
    }
    kind = details["type"]
    place = [context[_ABOUT]] if _ABOUT in context else list(details["loc"])
    if place[:1] == ["sources"]:
        del place[2:3]  # the kind of the source, which pydantic puts there; nobody wrote it at this place
    if kind.startswith("union_tag"):
        place.append("type")
    text = _MISTAKES[kind].format_map(context) if kind in _MISTAKES else details["msg"].removeprefix("Value error, ")
    if kind not in _VALUE_UNTOLD:
        text += f", not {_value(details, context)}"
    return f"{_where(place, spell)}: {text}"


def _where(place: Sequence[str | int], spell: Callable[[str], str]) -> str:
    first, *rest = place
    return spell(str(first)) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)


def _value(details: ErrorDetails, context: Mapping[str, Any]) -> str:
    written = repr(context.get("tag", details["input"]))
    return written if len(written) <= _LONGEST_VALUE else written[: _LONGEST_VALUE - 3] + "..."
