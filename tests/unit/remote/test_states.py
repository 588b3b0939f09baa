"""Commit tokens of several calls as one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld.scope import Scope
from recalld_server.adapters.remote.states import merged
from recalld_server.application import tokens

SCOPE = Scope("acme", "support")

states = st.dictionaries(st.sampled_from(["memory", "notes", "a.b"]), st.integers(1, 2**63), min_size=1)


def token(state: Mapping[str, int]) -> str:
    return tokens.join({name: tokens.encode(SCOPE, revision) for name, revision in state.items()})


def named(text: str) -> dict[str, int]:
    return {name: tokens.decode(SCOPE, part) for name, part in tokens.split(text).items()}


@given(made=st.lists(states, min_size=1, max_size=5))
def test_of_each_source_the_highest_revision_counts(made: list[dict[str, int]]) -> None:
    highest: dict[str, int] = {}
    for state in made:
        for name, revision in state.items():
            highest[name] = max(revision, highest.get(name, 0))
    assert named(merged(map(token, made))) == highest


def test_also_of_the_sources_behind_a_source() -> None:
    first, second = (tokens.join({"far": token(state)}) for state in ({"memory": 9, "notes": 2}, {"memory": 3}))
    assert named(tokens.split(merged([first, second]))["far"]) == {"memory": 9, "notes": 2}


@pytest.mark.parametrize(
    "made", [["opaque", "other"], [token({"memory": 3}), "other"], ["a.zz", "other"], ["", "other"]]
)
def test_tokens_of_a_kind_that_does_not_read_give_the_last(made: list[str]) -> None:
    assert merged(made) == "other"


def test_where_nothing_was_made_there_is_none() -> None:
    assert merged([]) == merged([""]) == ""
    assert merged(["other", ""]) == "other"


def test_revisions_of_two_scopes_do_not_compare() -> None:
    mine, other = tokens.encode(SCOPE, 9), tokens.encode(Scope("acme", "sales"), 3)
    assert tokens.split(merged([tokens.join({"m": mine}), tokens.join({"m": other})])) == {"m": other}
