"""Containers that look like dict and list and refuse to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, cast


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__} is frozen; build a new one, for example "
        "dataclasses.replace(item, metadata={**item.metadata, 'key': value})"
    )


class FrozenDict(dict[str, Any]):
    """A dict whose content is fixed, all the way down; copy, deepcopy and pickle keep it so."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def copy(self) -> FrozenDict:
        return self

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, _memo: object) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """A list whose content is fixed; see FrozenDict."""

    __slots__ = ()

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse  # type: ignore[assignment]

    def copy(self) -> FrozenList:
        return self

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, _memo: object) -> FrozenList:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


def freeze(value: Any) -> Any:
    """`value` with every dict and list in it frozen; anything else, also a tuple or set, as it is."""
    if isinstance(value, (FrozenDict, FrozenList)):
        return cast("Any", value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value)
        return FrozenDict({key: freeze(member) for key, member in pairs.items()})
    if isinstance(value, list):
        return FrozenList(freeze(member) for member in cast("list[Any]", value))
    return value
