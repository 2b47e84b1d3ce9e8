"""Which folders on the path can hold a package that brings records."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from specdec.config.records.announced import GROUP, packages_may_bring_records


@pytest.fixture(autouse=True)
def only_this_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "not-there")])
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if "pytest" not in type(f).__module__])
    packages_may_bring_records.cache_clear()
    yield
    packages_may_bring_records.cache_clear()


@pytest.mark.parametrize(
    ("folder", "text", "expected"),
    [
        ("drafts-1.0.dist-info", f"[{GROUP}]\nmine = drafts:records.yaml\n", True),
        ("drafts.egg-info", f"[{GROUP}]\nmine = drafts:records.yaml\n", True),
        ("other-1.0.dist-info", "[console_scripts]\nother = other:main\n", False),
        ("drafts", f"[{GROUP}]\nmine = drafts:records.yaml\n", False),
    ],
)
def test_metadata_folders_are_read(tmp_path: Path, folder: str, text: str, expected: bool) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "entry_points.txt").write_text(text)
    (tmp_path / "bare-1.0.dist-info").mkdir()
    assert packages_may_bring_records() is expected


def test_what_is_no_plain_folder_may_hold_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "packages.zip", "w"):
        monkeypatch.setattr(sys, "path", [str(tmp_path / "packages.zip")])
    assert packages_may_bring_records() is True


def test_another_finder_of_distributions_may_know_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        def find_distributions(self) -> None: ...

    assert packages_may_bring_records() is False
    packages_may_bring_records.cache_clear()
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert packages_may_bring_records() is True
