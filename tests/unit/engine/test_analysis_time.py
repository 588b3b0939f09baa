"""No content that a tenant may write keeps the server's one interpreter busy for long."""

from __future__ import annotations

import time

import pytest

from recalld.engine.analysis import index_text, query_text

#: Seconds; a content of 64 KiB takes hundredths of one, and took minutes where a pattern went back over what it read.
ENOUGH = 5.0


@pytest.mark.parametrize("unit", ["a", "1", "aB", "a-", "a.", "é", "a_", "a1-", "\u0316\u0301"])
@pytest.mark.parametrize("end", ["", "_", "-"])
def test_the_time_to_analyse_a_text_grows_with_its_length_only(unit, end):
    text = unit * (65_536 // len(unit.encode())) + end
    started = time.process_time()
    assert index_text(text)
    query_text(text[:8192])
    assert time.process_time() - started < ENOUGH


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("err-4271-xk", "err4271xk"),
        ("éab-1", "ab1"),
        ("a--1 b.2", "b2"),
        ("x-1-", "x1"),
        ("getUser42Name", "get User42 Name"),
    ],
)
def test_identifiers_and_humps_are_found_as_a_whole(text, joined):
    assert joined.casefold() in index_text(text).removeprefix(text.casefold())
