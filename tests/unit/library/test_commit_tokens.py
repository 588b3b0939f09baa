"""Commit tokens name a state of one scope and survive the way through a composition."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld.commit_tokens import decode, encode, join, merge, split
from recalld.errors import InvalidField
from recalld.scope import Scope

SCOPE = Scope("acme", "support")

# A remote memory without a name is called by its target, `host:port`.
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True) | st.text(min_size=1)

STATES = st.dictionaries(st.sampled_from(["memory", "notes", "a.b"]), st.integers(1, 2**63), min_size=1)


@given(st.integers(0, 2**62))
def test_a_token_gives_its_revision_back(revision):
    scope = Scope("acme", "support")
    assert decode(scope, encode(scope, revision)) == revision


@pytest.mark.parametrize("other", [Scope("acme", "sales"), Scope("Acme", "support"), Scope("acmes", "upport")])
def test_a_token_of_another_scope_is_refused(other):
    with pytest.raises(InvalidField, match="min_commit_token"):
        decode(other, encode(Scope("acme", "support"), 7))


@given(st.dictionaries(NAMES, st.text(min_size=1)))
def test_joined_tokens_split_again(by_source):
    assert split(join(by_source)) == by_source


def test_a_token_of_a_server_nests_in_that_of_another():
    inner = join({"memory": encode(Scope("a", "b"), 3)})
    assert split(join({"remote": inner, "memory": "x"}))["remote"] == inner


@pytest.mark.parametrize("garbage", ["x", "memory:", ":abc", "memory:@@", "a:eA,a:eA", "memory:\u00e9"])
def test_garbage_is_refused_by_name(garbage):
    with pytest.raises(InvalidField, match="min_commit_token"):
        split(garbage)


@pytest.mark.parametrize("garbage", ["", "x", "0.zz", "."])
def test_a_garbage_revision_is_refused(garbage):
    with pytest.raises(InvalidField):
        decode(Scope("a", "b"), garbage)


def token(state: Mapping[str, int]) -> str:
    return join({name: encode(SCOPE, revision) for name, revision in state.items()})


def named(text: str) -> dict[str, int]:
    return {name: decode(SCOPE, part) for name, part in split(text).items()}


@given(made=st.lists(STATES, min_size=1, max_size=5))
def test_of_each_source_the_highest_revision_counts(made: list[dict[str, int]]) -> None:
    highest: dict[str, int] = {}
    for state in made:
        for name, revision in state.items():
            highest[name] = max(revision, highest.get(name, 0))
    assert named(merge(map(token, made))) == highest


def test_also_of_the_sources_behind_a_source() -> None:
    first, second = (join({"far": token(state)}) for state in ({"memory": 9, "notes": 2}, {"memory": 3}))
    assert named(split(merge([first, second]))["far"]) == {"memory": 9, "notes": 2}


@pytest.mark.parametrize(
    "made", [["opaque", "other"], [token({"memory": 3}), "other"], ["a.zz", "other"], ["", "other"]]
)
def test_tokens_of_a_kind_that_does_not_read_give_the_last(made: list[str]) -> None:
    assert merge(made) == "other"


def test_where_nothing_was_made_there_is_none() -> None:
    assert merge([]) == merge([""]) == ""
    assert merge(["other", ""]) == "other"


def test_revisions_of_two_scopes_do_not_compare() -> None:
    mine, other = encode(SCOPE, 9), encode(Scope("acme", "sales"), 3)
    assert split(merge([join({"m": mine}), join({"m": other})])) == {"m": other}
