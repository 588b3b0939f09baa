from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from recalld import Ctx, Scope


class Observed(list[tuple[str, dict[str, Any]]]):
    """What a context's observer was told, in order."""

    def __call__(self, event: str, fields: Mapping[str, Any]) -> None:
        self.append((event, dict(fields)))


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
def ctx(observed: Observed) -> Ctx:
    return Ctx(Scope("acme", "support"), run_id="run-1", user_id="ada", observe=observed)
