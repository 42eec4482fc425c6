"""`make near` runs the tests nearest to the changed files."""

import subprocess
from pathlib import Path

import pytest

from near import MOST, changed, mirror, nearest

FILES = {
    "docs/queue.md": "The queue.",
    "operator/mooring/model/pod.py": "",
    "operator/mooring/model/__init__.py": "from mooring.model import pod\n",
    "operator/mooring/queueing/_heap.py": "from mooring.model.pod import Pod\n",
    "operator/mooring/queueing/queue.py": "import json\nimport mooring.queueing._heap\n",
    "tests/builders.py": "from mooring.model.pod import (\n    Pod,\n)\n",
    "tests/conftest.py": "",
    "tests/model/conftest.py": "",
    "tests/model/test_names.py": "import builders\nimport mooring.model.pod\n",
    "tests/model/test_pod.py": "import mooring.model.pod\n",
    "tests/property/test_pods.py": "import mooring.model.pod\n",
    "tests/queueing/test_heap.py": "",
    "tests/queueing/test_queue.py": "def test() -> None:\n    from mooring.queueing import queue\n",
    "tests/test_documents.py": "",
    "tests/test_links.py": 'PAGE = "docs/queue.md"\n',
}


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def near(root: Path, *touched: str) -> list[str]:
    found = nearest(root, {Path(name) for name in touched}, ["tests/property"])
    return [str(path.relative_to("tests")) for path in found]


def test_the_mirror_comes_first_then_what_imports_it_then_what_imports_that(root: Path) -> None:
    assert near(root, "operator/mooring/model/pod.py") == [
        "model/test_pod.py",
        "model/test_names.py",
        "queueing/test_queue.py",
    ]


def test_what_is_imported_in_a_function_or_through_a_package_counts(root: Path) -> None:
    assert near(root, "operator/mooring/queueing/queue.py") == ["queueing/test_queue.py"]
    assert near(root, "operator/mooring/queueing/_heap.py") == [
        "queueing/test_heap.py",
        "queueing/test_queue.py",
    ]


def test_a_file_that_is_gone_chooses_what_still_imports_it(root: Path) -> None:
    (root / "tests/builders.py").unlink()
    assert near(root, "tests/builders.py") == ["model/test_names.py"]


def test_a_conftest_chooses_the_tests_of_its_folder(root: Path) -> None:
    assert near(root, "tests/model/conftest.py") == ["model/test_pod.py", "model/test_names.py"]


def test_in_a_folder_that_is_left_out_only_a_test_that_has_changed_is_chosen(root: Path) -> None:
    assert near(root, "tests/property/test_pods.py") == ["property/test_pods.py"]


def test_a_document_chooses_the_tests_of_documents_and_those_that_name_it(root: Path) -> None:
    assert near(root, "docs/queue.md") == ["test_documents.py", "test_links.py"]


def test_other_files_choose_the_tests_in_their_folder(root: Path) -> None:
    assert near(root, "tests/queueing/data.json") == [
        "queueing/test_heap.py",
        "test_documents.py",
        "queueing/test_queue.py",
    ]


def test_only_so_many_run_but_all_that_have_changed(root: Path) -> None:
    names = [f"tests/plugins/test_{number:02}.py" for number in range(MOST + 5)]
    (root / "tests/plugins").mkdir()
    for name in names:
        (root / name).write_text("import builders\n")
    assert len(near(root, "tests/builders.py")) == MOST
    assert near(root, *names) == [name.removeprefix("tests/") for name in names]


def test_changed_is_what_differs_from_main_committed_or_not(root: Path) -> None:
    def git(*words: str) -> None:
        ann = ("-c", "user.name=ann", "-c", "user.email=ann@example.com")
        subprocess.check_call(["git", *ann, *words], cwd=root)

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "first")
    assert changed(root) == set()
    git("switch", "-qc", "branch")
    (root / "docs/queue.md").write_text("Three queues.")
    git("commit", "-qam", "second")
    (root / "tests/builders.py").unlink()
    (root / "new.md").touch()
    assert changed(root) == {Path("docs/queue.md"), Path("tests/builders.py"), Path("new.md")}


def test_the_mirror_of_a_source_file_has_its_name_without_underscores() -> None:
    assert mirror(Path("operator/mooring/cli/_parser.py")) == Path("tests/cli/test_parser.py")
    assert mirror(Path("operator/mooring/run/replica.py")) == Path("tests/run/test_replica.py")
