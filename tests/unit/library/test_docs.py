"""Every python snippet of docs/library.md runs; the snippets of one `##` section share their names."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from recalld.testing import MemorySourceContract

TEXT = (Path(__file__).parents[3] / "docs" / "library.md").read_text("utf-8")
SECTIONS = {
    section.splitlines()[0]: re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    for section in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
}
WITH_CODE = {title: "".join(blocks) for title, blocks in SECTIONS.items() if blocks}


def test_no_snippet_is_in_another_language_or_outside_a_section():
    assert TEXT.count("```") == 2 * sum(map(len, SECTIONS.values()))


@pytest.mark.parametrize("title", WITH_CODE)
def test_snippets_run(title: str):
    code = compile(WITH_CODE[title], f"docs/library.md: {title}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"__name__": "docs"}

    async def run() -> None:
        running = eval(code, names)  # noqa: S307 - our own text
        if inspect.isawaitable(running):
            await running

    asyncio.run(run())
    for value in list(names.values()):
        if inspect.isclass(value) and issubclass(value, MemorySourceContract) and value is not MemorySourceContract:
            for name in dir(value):
                if name.startswith("test_"):
                    getattr(value(), name)()


@pytest.mark.parametrize(
    "task", ["Compose", "Cache", "Keep tenants", "Ground a prompt", "Write your own", "partial commit"]
)
def test_every_task_has_a_section(task: str):
    assert any(task in title for title in WITH_CODE)
