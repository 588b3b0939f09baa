"""What a setting says reaches the part that it is about."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from recalld.engine.ports import ModelIdentity
from recalld_server.settings import LanceSource, Settings, unknown_variables
from recalld_server.wiring import _lance_config as lance_config
from recalld_server.wiring import embedder_config, open_served


def test_prefixes_are_the_model_s_own_unless_set():
    config = embedder_config(Settings())
    assert (config.query_prefix, config.document_prefix) == (None, None)
    config = embedder_config(Settings(model_query_prefix="query: ", model_document_prefix=""))
    assert (config.query_prefix, config.document_prefix) == ("query: ", "")


def test_how_long_things_are_kept_is_the_store_s_to_hold_to():
    identity = ModelIdentity("tiny", 8, "0" * 64, 16)
    config = lance_config(Settings(receipt_days=2, expired_days=0.5), "memory", "data", identity)
    assert (config.receipt_retention, config.expired_retention) == (timedelta(days=2), timedelta(hours=12))


async def test_each_further_source_has_a_folder_of_its_own(tmp_path: Path):
    further = [LanceSource(type="lancedb", name=name) for name in ("registry", "archive")]
    async with open_served(Settings(data=f"{tmp_path}/data/", sources=[*further])):
        marked = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("recalld.json")}
    assert marked == {"data", "data/sources/registry", "data/sources/archive"}


def test_a_slip_in_a_variable_s_name_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RECALLD_LISTN", "x")
    monkeypatch.setenv("RECALLD_CONFIG", "y")
    monkeypatch.setenv("RECALLD_LISTEN", "z")
    assert "RECALLD_LISTN" in unknown_variables()
    assert {"RECALLD_CONFIG", "RECALLD_LISTEN"}.isdisjoint(unknown_variables())
