"""A wrong setting is told in the words of whoever wrote it: the flag, the variable, or the file and the place in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recalld_server import embedded
from recalld_server.settings import SettingsError, load_settings

Refusal = Callable[..., str]


@pytest.fixture
def refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """What is said of settings, given as flags, variables and a file `F`."""
    monkeypatch.chdir(tmp_path)

    def say(flags: dict[str, Any] | None = None, file: str | None = None, **variables: str) -> str:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        config = Path("F") if file is not None else None
        if file is not None:
            Path("F").write_text(file, "utf-8")
        with pytest.raises(SettingsError) as caught:
            load_settings(flags or {}, config)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return say


def test_a_flag_is_called_a_flag(refusal: Refusal) -> None:
    assert refusal({"grace": "soon"}) == "--grace: must be a number, not 'soon'"
    assert refusal({"open_tables": "0"}) == "--open-tables: must be at least 1, not '0'"


def test_a_variable_is_called_by_its_name(refusal: Refusal) -> None:
    assert refusal(RECALLD_GRACE="soon") == "RECALLD_GRACE: must be a number, not 'soon'"


def test_also_by_another_spelling_that_counts(refusal: Refusal) -> None:
    assert refusal(file="grace = 3", recalld_grace="-1") == "recalld_grace: must be at least 0, not '-1'"


def test_a_line_of_the_file_is_called_by_file_and_key(refusal: Refusal) -> None:
    assert refusal(file='grace = "soon"') == "F: grace: must be a number, not 'soon'"


def test_what_comes_first_is_at_fault_and_not_what_it_hides(refusal: Refusal) -> None:
    assert refusal({"grace": "-3"}, "grace = -1", RECALLD_GRACE="-2") == "--grace: must be at least 0, not '-3'"
    assert refusal({}, "grace = -1", RECALLD_GRACE="-2") == "RECALLD_GRACE: must be at least 0, not '-2'"


def test_an_argument_of_embedded_is_called_as_there() -> None:
    with pytest.raises(SettingsError, match=r"^path: must have at least 1 character"):
        embedded("")
    with pytest.raises(SettingsError, match=r"^model: /no/such/model does not exist"):
        embedded("data", model=Path("/no/such/model"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("grace = -1", "grace: must be at least 0, not -1"),
        ("grace = 601", "grace: must be at most 600, not 601"),
        ("grace = nan", "grace: must be at most 600, not nan"),
        ("grace = []", "grace: must be a number, not []"),
        ("demo_data = []", "demo_data: must be true or false, not []"),
        ("receipt_days = 0", "receipt_days: must be more than 0, not 0"),
        ("open_tables = 1.5", "open_tables: must be a whole number, not 1.5"),
        ('open_tables = "x"', "open_tables: must be a whole number, not 'x'"),
        ("open_tables = []", "open_tables: must be a whole number, not []"),
        ('demo_data = "perhaps"', "demo_data: must be true or false, not 'perhaps'"),
        ("name = 5", "name: must be a text, not 5"),
        ('name = ""', "name: must have at least 1 character(s), not ''"),
        ('durability = "some"', "durability: must be 'fsync' or 'commit', not 'some'"),
        ('listen = "nowhere"', "listen: must be HOST:PORT, not 'nowhere'"),
        ('listen = "a:99999"', "listen: the port is over 65535"),
        ('model = "/no/such"', "model: /no/such does not exist"),
        ("model = 5", "model: must be a path, not 5"),
        ("granc = 1", "granc is not a setting"),
        (f'name = "{"x" * 65}"', "name: must have at most 64 character(s)"),
        (f'tls_cert = "{__file__}"', "tls_cert: needs tls_key as well"),
        (f'tls_key = "{__file__}"', "tls_key: needs tls_cert as well"),
        ("sources = 5", "sources: must be a list of tables, not 5"),
        ('sources = ["x"]', "sources[0]: must be a table, not 'x'"),
    ],
)
def test_each_kind_of_mistake(refusal: Refusal, line: str, said: str) -> None:
    assert refusal(file=line) == f"F: {said}"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('name = "a"', "sources[0].type: is missing"),
        ('type = "file"\nname = "a"', "sources[0].type: must be one of 'lancedb', 'files', 'remote', not 'file'"),
        ('type = "lancedb"', "sources[0].name: is missing"),
        ('type = "lancedb"\nname = "a"\npath = "x"', "sources[0].path: is not a setting"),
        ('type = "files"\nname = "a"', "sources[0].path: is missing"),
        ('type = "files"\nname = "a"\npath = "/no/such"', "sources[0].path: /no/such is not a directory"),
        ('type = "files"\nname = "a"\npath = "."\norg_id = "o"', "sources[0]: org_id and domain_id go together"),
        ('type = "files"\nname = "a"\npath = "."\ndomain_id = "d"', "sources[0]: org_id and domain_id go together"),
        ('type = "remote"\nname = "a"\ntarget = ""', "sources[0].target: must have at least 1 character(s), not ''"),
        ('type = "remote"\nname = "a"\ntarget = "h:1"\ntimeout = 0', "sources[0].timeout: must be more than 0, not 0"),
        ('type = "remote"\nname = "a"\ntarget = "h:1"\nsources = [1]', "sources[0].sources[0]: must be a text, not 1"),
        ('type = "remote"\nname = "a"\ntarget = "h:1"\nsources = "x"', "sources[0].sources: must be a list, not 'x'"),
        (
            'type = "lancedb"\nname = "a"\nread_only = "yes"',
            "sources[0].read_only: must be 'refuse' or 'ignore', not 'yes'",
        ),
        (
            'type = "lancedb"\nname = "a b"',
            "sources[0].name: must be 1 to 64 ASCII letters, digits, `_`, `.` and `-`, the first a letter or digit, "
            "not 'a b'",
        ),
    ],
)
def test_the_place_in_a_source_is_told_without_what_nobody_wrote(refusal: Refusal, table: str, said: str) -> None:
    assert refusal(file=f"[[sources]]\n{table}\n") == f"F: {said}"


def test_the_second_source_is_the_second(refusal: Refusal) -> None:
    file = '[[sources]]\ntype = "lancedb"\nname = "a"\n'
    assert refusal(file=file + "[[sources]]\n").startswith("F: sources[1].type: is missing")
    assert refusal(file=file * 2) == "F: sources: two are named 'a'"


def test_sources_of_the_environment(refusal: Refusal) -> None:
    assert refusal(RECALLD_SOURCES="notes") == "RECALLD_SOURCES: is not JSON; use [[sources]] tables of the file"
    said = refusal(RECALLD_SOURCES='[{"type": "lancedb"}]')
    assert said == "RECALLD_SOURCES[0].name: is missing"


def test_every_mistake_is_told(refusal: Refusal) -> None:
    said = refusal({"grace": "soon"}, "open_tables = -3", RECALLD_CACHE_MIB="much")
    assert sorted(said.split("; ")) == [
        "--grace: must be a number, not 'soon'",
        "F: open_tables: must be at least 1, not -3",
        "RECALLD_CACHE_MIB: must be a whole number, not 'much'",
    ]


def test_a_long_value_is_cut(refusal: Refusal) -> None:
    assert len(refusal({"durability": "x" * 500})) < 200
