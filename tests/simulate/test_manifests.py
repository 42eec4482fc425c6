import io
import json
from pathlib import Path
from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from mooring.simulate.manifests import (
    STDIN,
    InputError,
    Limits,
    Manifest,
    NoObjectError,
    RepeatedKey,
    manifests_in,
    read_manifests,
)
from mooring.testing.builders import pod


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "objects.yaml"


def read(path: Path) -> list[Manifest]:
    return list(read_manifests([str(path)]))


def problem_of(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    return str(caught.value)


def test_every_document_of_a_file_is_an_object_and_empty_documents_are_skipped(
    written: Path,
) -> None:
    written.write_text("kind: Pod\n---\n---\n# nothing\n---\nkind: Node\n")
    assert [m.kind for m in read(written)] == ["Pod", "Node"]


def test_an_object_knows_the_file_and_document_it_came_from(written: Path) -> None:
    written.write_text("kind: Pod\n---\nkind: Node\n")
    assert [m.source for m in read(written)] == [
        f"{written}, document 1",
        f"{written}, document 2",
    ]


def test_the_items_of_a_kubectl_list_come_one_by_one(written: Path) -> None:
    written.write_text(json.dumps({"kind": "List", "items": [pod("a"), pod("b")]}))
    found = read(written)
    assert [m.raw["metadata"]["name"] for m in found] == ["a", "b"]
    assert found[1].source == f"{written}, document 1, items[1]"


def test_the_items_of_the_apis_own_lists_get_kind_and_version_from_the_list(
    written: Path,
) -> None:
    written.write_text(
        "kind: StorageClassList\napiVersion: storage.k8s.io/v1\nitems: [{metadata: {name: s}}]"
    )
    (found,) = read(written)
    assert (found.group, found.kind) == ("storage.k8s.io", "StorageClass")


def test_dates_stay_text_and_keys_become_text_as_in_json(written: Path) -> None:
    written.write_text("kind: Pod\nmetadata: {creationTimestamp: 2026-01-01T00:00:00Z, 1: x}\n")
    (found,) = read(written)
    assert found.raw["metadata"] == {"creationTimestamp": "2026-01-01T00:00:00Z", "1": "x"}


@pytest.mark.parametrize(
    "value", ["22:00", "12:30:45", "-1:30", "1:30.5", "=", "71e9999", "1.0e+999", "ye", "1e", "e3"]
)
def test_what_only_old_yaml_takes_for_a_number_is_text_as_for_kubectl(value: str) -> None:
    (found,) = manifests_in(f"kind: Pod\nvalue: {value}\n", "a.yaml")
    assert found.raw["value"] == value


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("y", True),
        ("N", False),
        ("1e3", 1000),
        ("129e6", 129_000_000),
        ("1.5E3", 1500),
        ("2.0", 2),
        ("15e-1", 1.5),
        ("-.5", -0.5),
        ("0o17", 15),
        ("089", 89),
        ("'y'", "y"),
        ('"1e3"', "1e3"),
    ],
)
def test_what_kubectl_takes_for_a_value_is_one(scalar: str, value: Any) -> None:
    """The API server rejects such a value in a label, unless it is quoted."""
    (found,) = manifests_in(f"kind: Pod\nvalue: {scalar}\n", "a.yaml")
    assert (type(found.raw["value"]), found.raw["value"]) == (type(value), value)


@pytest.mark.parametrize(
    "value",
    ["!!int a", "!!float a", "!!bool a", "!!timestamp a", ".inf", ".nan", "1" * 5000],
)
def test_a_scalar_that_is_no_value_of_its_kind_is_a_mistake_with_its_line(value: str) -> None:
    with pytest.raises(InputError, match=r"^a.yaml: line 2, column 8: .* no meaning in JSON as"):
        list(manifests_in(f"kind: Pod\nvalue: {value}\n", "a.yaml"))


@pytest.mark.parametrize(
    "text", ['{"kind": "Pod"}\n{"kind": "Node"}\n', "kind: Pod\n---\nkind: Node\n"]
)
def test_a_file_may_begin_with_the_mark_of_programs_of_windows(written: Path, text: str) -> None:
    written.write_text(text, encoding="utf-8-sig")
    assert [m.kind for m in read(written)] == ["Pod", "Node"]


def test_standard_input_is_utf_8_whatever_the_locale_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(content: bytes) -> None:
        raw = io.BytesIO(content)
        stdin = io.TextIOWrapper(raw, encoding="ascii", errors="surrogateescape")
        monkeypatch.setattr("sys.stdin", stdin)

    given("kind: Pod\nvalue: ä\n".encode())
    (found,) = read_manifests([STDIN])
    assert found.raw["value"] == "ä"
    given(b"kind: Pod\nvalue: \xff\n")
    with pytest.raises(InputError, match=r"^standard input: is not UTF-8 text"):
        list(read_manifests([STDIN]))


def test_standard_input_that_is_closed_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="standard input: is closed"):
        list(read_manifests([STDIN]))


def test_a_dash_stands_for_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("kind: Pod\n"))
    (found,) = read_manifests([STDIN])
    assert found.source == "standard input, document 1"


def test_a_file_that_starts_like_json_may_be_yaml(written: Path) -> None:
    written.write_text("{kind: Pod}\n---\nkind: Node\n")
    assert [m.kind for m in read(written)] == ["Pod", "Node"]


def test_a_file_may_have_one_object_of_json_per_line(written: Path) -> None:
    written.write_text('{"kind": "Pod"}\n{"kind": "NodeList", "items": [{}]}\n\n')
    found = read(written)
    assert [m.kind for m in found] == ["Pod", "Node"]
    assert found[1].source == f"{written}, line 2, items[0]"


def test_json_objects_with_dashes_between_them_are_yaml(written: Path) -> None:
    written.write_text('{"kind": "Pod"}\n---\n{"kind": "Node"}\n')
    assert [m.kind for m in read(written)] == ["Pod", "Node"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Pod\n  bad: 1\n", "line 2, column 6: is neither YAML nor JSON"),
        ('{"kind": "Pod"}\n{"kind": }\n', "line 2: is not JSON"),
        ('{"kind": "Pod",, }', "column 16: is neither YAML nor JSON"),
        ("- 1\n", "document 1: must be an object with apiVersion and kind, is a list"),
        ("metadata: {}\n", "document 1: kind: is required"),
        ("kind: PodList\nitems: [3]\n", "items[0]: must be an object"),
        ("kind: Pod\nspec: !!binary aGk=\n", "document 1: has no meaning in JSON"),
    ],
)
def test_a_document_that_is_not_an_object_is_named_with_its_place(
    written: Path, text: str, problem: str
) -> None:
    written.write_text(text)
    line = problem_of(written)
    assert line.startswith(str(written))
    assert problem in line
    assert "\n" not in line


def test_a_file_that_cannot_be_read_is_named(written: Path) -> None:
    assert problem_of(written) == f"{written}: no such file or directory"
    written.write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in problem_of(written)


REPEATED = """\
kind: Pod
metadata:
  name: a
  labels: &labels {app: x}
spec:
  priority: 1
  nodeSelector: {<<: *labels, app: y}
  priority: 2
"""


def test_a_key_that_is_there_twice_is_a_mistake_with_its_line(written: Path) -> None:
    written.write_text(REPEATED)
    assert problem_of(written) == (
        f'{written}: line 8, column 3: the key "priority" is there twice'
    )


def test_a_caller_may_collect_the_repeated_keys_of_yaml_and_json() -> None:
    found = list[RepeatedKey]()
    (manifest,) = manifests_in(REPEATED, "a.yaml", found)
    assert manifest.raw["spec"]["priority"] == 2
    list(manifests_in('{"kind": "Pod",\n "kind": "Node"}', "a.json", found))
    assert found == [RepeatedKey("priority", 8, 3), RepeatedKey("kind", 2, 2)]


def test_an_object_knows_its_document_and_its_path_in_it() -> None:
    text = "kind: Pod\n---\nkind: List\nitems: [{kind: PodList, items: [{}]}]\n"
    assert [(m.document, m.path) for m in manifests_in(text, "a.yaml")] == [
        (0, ""),
        (1, ".items[0].items[0]"),
    ]


def test_what_is_no_object_is_told_from_what_is_no_yaml(written: Path) -> None:
    written.write_text("replicas: 3\n")
    with pytest.raises(NoObjectError):
        read(written)
    written.write_text("a: [\n")
    with pytest.raises(InputError) as caught:
        read(written)
    assert not isinstance(caught.value, NoObjectError)
    assert caught.value.line == 2


def limited(text: str, **limits: Any) -> list[Manifest]:
    return list(manifests_in(text, "objects.yaml", limits=Limits(**limits)))


@pytest.mark.parametrize("nested", [251, 200_000])
def test_yaml_that_would_exhaust_the_stack_is_refused(written: Path, nested: int) -> None:
    """The YAML library recurses for each level, and once a signal killed the process."""
    written.write_text("kind: Pod\nx: " + "[" * nested + "]" * nested)
    assert problem_of(written) == f"{written}: is nested deeper than 250 levels"
    written.write_text("kind: Pod\nx: " + "[" * 249 + "]" * 249)
    assert len(read(written)) == 1


@pytest.mark.parametrize("text", ["kind: Pod\nx: [[1]]", '{"kind": "Pod", "x": [[1]]}'])
def test_depth_and_values_are_limited_alike_in_yaml_and_in_json(text: str) -> None:
    assert len(limited(text, depth=3, values=7)) == 1
    with pytest.raises(InputError, match=r"objects\.yaml: is nested deeper than 2 levels"):
        limited(text, depth=2, values=7)
    with pytest.raises(InputError, match=r"objects\.yaml: is too long; it has more than 6 values"):
        limited(text, depth=3, values=6)


def test_objects_are_limited_by_their_number_in_all_documents() -> None:
    text = "kind: PodList\nitems: [{}, {}]\n---\nkind: Node\n"
    assert len(limited(text, objects=3)) == 3
    with pytest.raises(InputError, match="has more than 2 objects"):
        limited(text, objects=2)


def test_aliases_are_read_in_own_files_and_not_where_that_is_forbidden() -> None:
    text = "kind: Pod\na: &x [1]\nb: *x"
    assert limited(text)[0].raw["b"] == [1]
    with pytest.raises(InputError, match="YAML aliases are not read here"):
        limited(text, aliases=False)


def test_a_mistake_in_a_field_names_the_objects_place() -> None:
    manifest = Manifest("objects.yaml, document 1", {"kind": "Pod"})
    with (
        pytest.raises(InputError, match=r"objects\.yaml, document 1: spec\.x: is wrong"),
        manifest.locating_errors(),
    ):
        raise ManifestError("spec.x", "is wrong")
