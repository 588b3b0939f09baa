"""A package on demand imports its submodules at once and runs itself when it is used."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from recalld_server.adapters.lancedb.on_demand import import_on_demand


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "a_heavy_package"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("from a_heavy_package.part import VALUE\nRUN = True\n")
    (tmp_path / name / "part.py").write_text("VALUE = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module in (name, f"{name}.part"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return name


def test_a_submodule_imports_without_the_package_s_own_code(package):
    import_on_demand(package)
    assert importlib.import_module(f"{package}.part").VALUE == 7
    assert "RUN" not in vars(sys.modules[package])


def test_the_package_runs_when_a_name_of_it_is_used_and_lacks_what_it_lacks(package):
    import_on_demand(package)
    module = importlib.import_module(package)
    assert module.VALUE == 7
    assert module.RUN is True
    with pytest.raises(AttributeError):
        _ = module.NOTHING


def test_a_package_that_is_not_there_is_left_alone():
    import_on_demand("there_is_no_such_package")
    assert "there_is_no_such_package" not in sys.modules


def test_the_engine_does_not_run_the_rest_client():
    code = (
        "import sys; import recalld_server.adapters.lancedb.engine;"
        "sys.exit('lance_namespace_urllib3_client.api' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
