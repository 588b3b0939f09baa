"""What a setting says reaches the part that it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalld_server.ports import ModelIdentity
from recalld_server.settings import Settings, SettingsError, load_settings, unknown_variables
from recalld_server.wiring import _embedder_config, _lance_config


def test_prefixes_are_the_model_s_own_unless_set():
    config = _embedder_config(Settings())
    assert (config.query_prefix, config.document_prefix) == (None, None)
    config = _embedder_config(Settings(model_query_prefix="query: ", model_document_prefix=""))
    assert (config.query_prefix, config.document_prefix) == ("query: ", "")


def test_each_further_source_has_a_folder_of_its_own():
    settings = Settings(data="/var/lib/recalld")
    roots = {
        name: _lance_config(settings, name, ModelIdentity("m", 8, "0" * 64, 16)).root
        for name in ("memory", "registry", "archive")
    }
    assert roots == {
        "memory": "/var/lib/recalld",
        "registry": "/var/lib/recalld/sources/registry",
        "archive": "/var/lib/recalld/sources/archive",
    }


@pytest.mark.parametrize("half", ['org_id = "acme"', 'domain_id = "x"', 'org_id = ""\ndomain_id = ""'])
def test_a_files_source_of_half_a_tenant_is_refused(half, tmp_path: Path):
    file = tmp_path / "recalld.toml"
    file.write_text(f'[[sources]]\ntype = "files"\nname = "notes"\npath = "{tmp_path}"\n{half}\n')
    with pytest.raises(SettingsError, match="sources"):
        load_settings({}, file)


def test_a_slip_in_a_variable_s_name_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RECALLD_LISTN", "x")
    monkeypatch.setenv("RECALLD_CONFIG", "y")
    monkeypatch.setenv("RECALLD_LISTEN", "z")
    assert "RECALLD_LISTN" in unknown_variables()
    assert {"RECALLD_CONFIG", "RECALLD_LISTEN"}.isdisjoint(unknown_variables())


def test_every_problem_is_told_on_one_line(tmp_path: Path):
    file = tmp_path / "recalld.toml"
    file.write_text("grace = -1\nopen_tables = -3\n")
    with pytest.raises(SettingsError) as failure:
        load_settings({}, file)
    assert "grace" in str(failure.value)
    assert "open_tables" in str(failure.value)
    assert "\n" not in str(failure.value)
