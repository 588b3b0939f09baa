"""Whose table it is, and whether the served model may search its vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recalld.engine.ports import ModelIdentity
from recalld.errors import EmbeddingModelMismatch
from recalld.scope import Scope
from recalld_server.adapters.lancedb.schema import table_schema, verify

SCOPE = Scope("acme", "support")
MODEL = ModelIdentity("tiny", 8, "0" * 64, 16, "f" * 64, {"sha256": "0" * 64, "dimensions": "8", "pooling": "mean"})


def refusal(stored: Any, served: ModelIdentity) -> EmbeddingModelMismatch:
    with pytest.raises(EmbeddingModelMismatch) as caught:
        verify(stored, SCOPE, served, where="table")
    return caught.value


def test_the_name_of_a_model_is_a_label_only() -> None:
    verify(table_schema(SCOPE, MODEL), SCOPE, replace(MODEL, name="other"), where="table")


@pytest.mark.parametrize(
    ("trait", "value", "said"),
    [
        ("pooling", "cls", "compared: pooling was 'mean' and is 'cls'. Serve"),
        ("sha256", "1" * 64, "sha256 was"),
        ("invented later", "x", "invented later was '' and is 'x'"),
    ],
)
def test_another_fingerprint_is_refused_and_what_differs_is_told(trait: str, value: str, said: str) -> None:
    served = replace(MODEL, fingerprint="e" * 64, traits={**MODEL.traits, trait: value})
    error = refusal(table_schema(SCOPE, MODEL), served)
    assert said in error.message
    assert "new data directory" in error.message
    assert error.details["storedModel"] == "tiny (8 dimensions, sha256 000000000000)"


def test_a_difference_that_this_version_cannot_tell_is_refused_all_the_same() -> None:
    error = refusal(table_schema(SCOPE, replace(MODEL, fingerprint="e" * 64)), MODEL)
    assert "their fingerprints differ" in error.message


class TestTablesOfEarlierVersions:
    """They tell a name, dimensions and the digest of the weights."""

    @pytest.fixture
    def stored(self) -> Any:
        schema = table_schema(SCOPE, MODEL)
        later = (b"recalld.model.fingerprint", b"recalld.model.traits")
        return schema.with_metadata({key: value for key, value in schema.metadata.items() if key not in later})

    @pytest.mark.parametrize("change", [{}, {"name": "other"}, {"fingerprint": "e" * 64}, {"max_tokens": 8}])
    def test_are_served_with_the_same_weights(self, stored: Any, change: dict[str, Any]) -> None:
        verify(stored, SCOPE, replace(MODEL, **change), where="table")

    @pytest.mark.parametrize("change", [{"sha256": "1" * 64}, {"dimensions": 4}])
    def test_are_refused_with_others(self, stored: Any, change: dict[str, Any]) -> None:
        assert f"{next(iter(change))} was" in refusal(stored, replace(MODEL, **change)).message


@pytest.mark.parametrize("change", [{"sha256": "1" * 64}, {"dimensions": 4}])
def test_embedders_without_a_fingerprint_are_told_apart_by_weights_and_dimensions(change: dict[str, Any]) -> None:
    bare = ModelIdentity("tiny", 8, "0" * 64, 16)
    verify(table_schema(SCOPE, bare), SCOPE, bare, where="table")
    assert f"{next(iter(change))} was" in refusal(table_schema(SCOPE, bare), replace(bare, **change)).message
