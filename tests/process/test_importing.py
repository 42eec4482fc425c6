import gc
import sys
from pathlib import Path

import pytest

from mooring.process.importing import import_module_quickly


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_garbage_is_not_searched_for_while_a_module_is_imported(folder: Path) -> None:
    (folder / "notes_the_collector.py").write_text("import gc\nSEARCHED = gc.isenabled()\n")
    module = import_module_quickly("notes_the_collector")
    del sys.modules[module.__name__]
    assert not module.SEARCHED
    assert gc.isenabled()


def test_garbage_is_searched_for_again_after_an_import_that_fails() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module_quickly("mooring.no_such_module")
    assert gc.isenabled()
