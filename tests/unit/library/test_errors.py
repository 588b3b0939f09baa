from __future__ import annotations

import pickle
import re

import pytest

from recalld import errors
from recalld.errors import AllSourcesFailed, CompositeWriteError, MemoryWriteRefused, RecalldError

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, RecalldError)]


def example(cls: type[RecalldError]) -> RecalldError:
    if cls is MemoryWriteRefused:
        return MemoryWriteRefused(source="notes", n=2)
    if cls is CompositeWriteError:
        return CompositeWriteError(accepted=["a"], refused=["b"], failed={"c": ValueError("broken")})
    if cls is AllSourcesFailed:
        return AllSourcesFailed({"c": ValueError("broken")})
    return cls("what went wrong", details={"source": "notes"})


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling(cls: type[RecalldError]):
    error = example(cls)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is cls
    assert (str(again), again.details) == (str(error), error.details)


def test_the_tree_in_the_docstring_names_every_class_once():
    drawn = re.findall(r"^[│├└─ ]*([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
    assert sorted(name for name in drawn if hasattr(errors, name)) == sorted(cls.__name__ for cls in CLASSES)


def test_built_in_bases_are_as_drawn():
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"[│├└─ ]+(\w+) \((\w+)\)", line):
            name, base = found.groups()
            assert issubclass(getattr(errors, name), getattr(__import__("builtins"), base)), line


def test_what_says_when_to_try_again_is_one_kind():
    timed = {cls for cls in CLASSES if hasattr(example(cls), "retry_after")}
    assert timed == {cls for cls in CLASSES if issubclass(cls, errors.Retryable)}
    assert timed == {errors.Retryable, errors.Overloaded, errors.SourceUnavailable}
    assert {cls for cls in CLASSES if cls.retryable} == timed | {errors.DeadlineExceeded, AllSourcesFailed}
    assert errors.Overloaded("busy", retry_after=2.5).retry_after == 2.5


def test_a_write_split_says_where_each_source_ended():
    error = CompositeWriteError(accepted=["a"], failed={"b": ValueError("broken"), "c": OSError("full")})
    assert isinstance(error, RuntimeError)
    assert (error.accepted, error.refused, sorted(error.failed)) == (["a"], [], ["b", "c"])
    assert "broken" in str(error)
    assert isinstance(error.__cause__, BaseExceptionGroup)
    assert [type(cause) for cause in error.__cause__.exceptions] == [ValueError, OSError]


def test_one_failed_source_is_the_cause_itself():
    broken = ValueError("broken")
    assert CompositeWriteError(accepted=[], failed={"b": broken}).__cause__ is broken


def test_a_failed_query_carries_a_group_that_names_each():
    error = AllSourcesFailed({"a": ValueError("one"), "b": OSError("two")})
    assert isinstance(error.group, ExceptionGroup)
    assert error.__cause__ is error.group
    assert "a (ValueError: one)" in str(error)
    assert "b (OSError: two)" in str(error)
