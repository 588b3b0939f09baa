"""Which directories count as empty, so that a server may start on them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recalld.errors import StorageCorrupt
from recalld_server.adapters.lancedb.layout import open_layout

BY_THEMSELVES = [
    ".cache",
    ".DS_Store",
    ".snapshot",
    "lost+found",
    "@eaDir",
    "#recycle",
    "$RECYCLE.BIN",
    "System Volume Information",
    "Thumbs.db",
    "sources",
]


@pytest.mark.parametrize("name", BY_THEMSELVES)
@pytest.mark.parametrize("folder", [True, False])
def test_what_systems_put_onto_a_volume_does_not_count(tmp_path: Path, name: str, folder: bool) -> None:
    if folder:
        (tmp_path / name).mkdir()
        (tmp_path / name / "inside").write_text("kept")
    else:
        (tmp_path / name).write_text("kept")
    open_layout(tmp_path)
    assert (tmp_path / "recalld.json").exists()
    assert (tmp_path / name / "inside" if folder else tmp_path / name).read_text() == "kept"


def test_all_of_it_at_once_does_not_count_either(tmp_path: Path) -> None:
    for name in BY_THEMSELVES:
        (tmp_path / name).mkdir()
    open_layout(tmp_path)
    open_layout(tmp_path)


@pytest.mark.parametrize("name", ["notes.txt", "tables", "lost+found and kept", "sources-of-mine", "cache"])
def test_anything_else_does(tmp_path: Path, name: str) -> None:
    for other in BY_THEMSELVES:
        (tmp_path / other).mkdir()
    (tmp_path / name).write_text("mine")
    with pytest.raises(StorageCorrupt, match=re.escape(f"it holds '{name}'")):
        open_layout(tmp_path)
    assert not (tmp_path / "recalld.json").exists()
