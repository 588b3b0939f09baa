"""Containers that look like dict and list and refuse to change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from datetime import datetime
from typing import Any, NoReturn, Self, cast

from recalld.errors import FrozenValue


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise FrozenValue(
        f"{type(self).__name__} is frozen; build a new one, for example "
        "dataclasses.replace(item, metadata={**item.metadata, 'key': value})"
    )


class FrozenDict(dict[str, Any]):
    """A dict whose content is fixed, all the way down; copy, deepcopy and pickle keep it so.

    Equal to the dict that it was made of. `{**frozen}` and `dict(frozen)` give a plain dict to change.
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        dict[str, Any].update(made, *args, **kwargs)
        if not _SETTLED.issuperset(map(type, made.values())):
            dict[str, Any].update(made, [(key, freeze(value)) for key, value in made.items()])
        return made

    # `dict.__init__` adds to what is there: calling it once more would be a way to change the content.
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    __setitem__ = __delitem__ = __ior__ = _refuse  # pyright: ignore[reportAssignmentType]
    clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore[reportAssignmentType]

    def copy(self) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


class FrozenList(list[Any]):
    """A list whose content is fixed; see FrozenDict."""

    __slots__ = ()

    def __new__(cls, members: Iterable[Any] = ()) -> Self:
        made = super().__new__(cls)
        list[Any].extend(made, members)
        if not _SETTLED.issuperset(map(type, made)):
            list[Any].__setitem__(made, slice(None), [freeze(member) for member in made])
        return made

    def __init__(self, members: Iterable[Any] = ()) -> None: ...

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # pyright: ignore[reportAssignmentType]
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse  # pyright: ignore[reportAssignmentType]

    def copy(self) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)


#: Types whose values are frozen as they are. Most of what is frozen is of these, and asking the type alone is quick.
_SETTLED = frozenset[type]((str, int, float, bool, type(None), datetime, FrozenDict, FrozenList))


def freeze(value: Any) -> Any:
    """An equal value in which no container can change: dict, list, set and bytearray become their frozen kind, a
    tuple keeps its type. What is no container stays the same object."""
    if type(value) in _SETTLED or isinstance(value, (FrozenDict, FrozenList)):
        return value
    if isinstance(value, Mapping):
        return FrozenDict(cast("Mapping[str, Any]", value))
    if isinstance(value, list):
        return FrozenList(cast("list[Any]", value))
    if isinstance(value, tuple):
        return _freeze_tuple(cast("tuple[Any, ...]", value))
    if isinstance(value, Set) and not isinstance(value, frozenset):
        return frozenset(cast("Set[Any]", value))
    if isinstance(value, bytearray):
        return bytes(value)
    return cast("Any", value)


def _freeze_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    members = [freeze(member) for member in value]
    if all(new is old for new, old in zip(members, value, strict=True)):
        return value
    make = getattr(type(value), "_make", type(value))  # a named tuple takes its members one by one
    return make(members)
