"""Commit tokens name a state of one scope and survive the way through a composition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld.errors import InvalidField
from recalld.scope import Scope
from recalld_server.application import tokens

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)


@given(st.integers(0, 2**62))
def test_a_token_gives_its_revision_back(revision):
    scope = Scope("acme", "support")
    assert tokens.decode(scope, tokens.encode(scope, revision)) == revision


@pytest.mark.parametrize("other", [Scope("acme", "sales"), Scope("Acme", "support"), Scope("acmes", "upport")])
def test_a_token_of_another_scope_is_refused(other):
    with pytest.raises(InvalidField, match="min_commit_token"):
        tokens.decode(other, tokens.encode(Scope("acme", "support"), 7))


@given(st.dictionaries(NAMES, st.text(min_size=1)))
def test_joined_tokens_split_again(by_source):
    assert tokens.split(tokens.join(by_source)) == by_source


def test_a_token_of_a_server_nests_in_that_of_another():
    inner = tokens.join({"memory": tokens.encode(Scope("a", "b"), 3)})
    assert tokens.split(tokens.join({"remote": inner, "memory": "x"}))["remote"] == inner


@pytest.mark.parametrize("garbage", ["x", "memory:", ":abc", "memory:@@", "a:eA,a:eA", "memory:\u00e9"])
def test_garbage_is_refused_by_name(garbage):
    with pytest.raises(InvalidField, match="min_commit_token"):
        tokens.split(garbage)


@pytest.mark.parametrize("garbage", ["", "x", "0.zz", "."])
def test_a_garbage_revision_is_refused(garbage):
    with pytest.raises(InvalidField):
        tokens.decode(Scope("a", "b"), garbage)
