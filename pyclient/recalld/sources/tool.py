"""A tool as a source: whatever it returns, read as memories."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

from recalld.errors import WrongType
from recalld.item import MemoryItem
from recalld.scope import CtxLike
from recalld.source import check_query
from recalld.where import check_operators, copy_where


@runtime_checkable
class Tool(Protocol):
    """Something that can be invoked by name with a dict of arguments."""

    @property
    def name(self) -> str: ...

    async def invoke(self, args: dict[str, Any]) -> Any: ...


class FunctionTool:
    """A function as a `Tool`: `fn(**args)`, sync or async. A sync one runs on the event loop, so it must not block.

    name: the function's own by default.
    """

    def __init__(self, fn: Callable[..., Any], name: str | None = None) -> None:
        self.fn = fn
        self.name = name or getattr(fn, "__name__", "tool")

    async def invoke(self, args: dict[str, Any]) -> Any:
        result = self.fn(**args)
        return await result if inspect.isawaitable(result) else result


@dataclass(eq=False)
class ToolMemory:
    """Ask a tool and read its answer as items.

    The tool gets `{query_arg: query, "limit": k}` with the keys of `where` laid over it as they are, so a `where` can
    fill a parameter such as `site`, or set another `limit`; still no more than `k` items come back. Only operators that
    no filter has are refused. tool: a `Tool` or a bare callable. result_to_items: reads the answer, given it and the
    query; `default_parse` by default. Every item is stamped with this source's name. Read-only: as a memory a tool is
    only asked.
    """

    tool: Any
    query_arg: str = "query"
    result_to_items: Callable[[Any, str], list[MemoryItem]] | None = None
    name: str = "tool"

    accepts_writes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not hasattr(self.tool, "invoke"):
            if not callable(self.tool):
                raise WrongType(f"a tool has `invoke` or is callable, {type(self.tool).__name__} is neither")
            self.tool = FunctionTool(self.tool)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        check_query(query, k=k)
        given = copy_where(where)
        check_operators(given)
        if k <= 0:
            return []
        result = await self.tool.invoke({self.query_arg: query, "limit": k, **given})
        items = (self.result_to_items or default_parse)(result, query)
        return [replace(item, source=self.name) for item in items[:k]]

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        """Nothing."""


_CONTENT_KEYS = ("content", "text", "snippet")


def default_parse(result: Any, query: str) -> list[MemoryItem]:
    """Read what a search tool usually returns.

    A dict with `results`: those, read in turn. A list: its dicts as `{content, score, metadata}`, where `text` and
    `snippet` stand in for `content` and every other key becomes metadata; its strings as contents. A string: one item a
    paragraph, blank lines between. Anything else: one item of its `str`. `query` is there for parsers that use it.
    """
    if isinstance(result, str):
        return [_item(part.strip()) for part in re.split(r"\n[^\S\n]*\n", result) if part.strip()]
    if isinstance(result, Mapping):
        fields = cast("Mapping[str, Any]", result)
        return default_parse(fields["results"], query) if "results" in fields else [_record(fields)]
    if isinstance(result, (list, tuple)):
        return [_member(member) for member in cast("Iterable[Any]", result)]
    return [result if isinstance(result, MemoryItem) else _item(str(result))]


def _member(member: Any) -> MemoryItem:
    if isinstance(member, MemoryItem):
        return member
    return _record(cast("Mapping[str, Any]", member)) if isinstance(member, Mapping) else _item(str(member))


def _item(content: str) -> MemoryItem:
    return MemoryItem(content, "tool")


def _record(fields: Mapping[str, Any]) -> MemoryItem:
    rest = dict(fields)
    key = next((key for key in _CONTENT_KEYS if fields.get(key) is not None), None)
    content = str(fields) if key is None else str(rest.pop(key))
    score = rest.pop("score", None)
    if score is not None and (isinstance(score, bool) or not isinstance(score, (int, float))):
        rest["score"], score = score, None  # a score in words ranks nothing, but is not lost
    given = rest.pop("metadata", None)
    if isinstance(given, Mapping):
        rest.update(cast("Mapping[str, Any]", given))
    elif given is not None:
        rest["metadata"] = given
    return MemoryItem(content, "tool", None if score is None else float(score), rest)
