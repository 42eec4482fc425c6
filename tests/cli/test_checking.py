import io
from base64 import b64encode
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from certificates import Authority
from mooring.cli.checking import Report, check_files
from mooring.framework.registry import ENTRY_POINT_GROUP, Registry
from mooring.plugins import SHIPPED

REGISTRY = Registry(SHIPPED, {})
PROFILE = """\
apiVersion: scheduling.mooring.dev/v1alpha1
kind: SchedulingProfile
metadata:
  name: {name}
spec: {spec}
"""


def profile(name: str = "mine", spec: str = "{}") -> str:
    return PROFILE.format(name=name, spec=spec)


def report_of(text: str, tmp_path: Path, name: str = "p.yaml") -> Report:
    path = tmp_path / name
    path.write_text(text)
    return check_files([str(path)], REGISTRY)


def places(report: Report) -> list[tuple[int | None, str]]:
    return [(mistake.line, mistake.path) for mistake in report.mistakes]


def test_every_document_and_every_item_of_a_list_is_checked(tmp_path: Path) -> None:
    items = "kind: List\nitems:\n- kind: SchedulingProfile\n  metadata: {}\n  spec:\n    a: 1\n"
    report = report_of(f"{profile('a', '{x: 1}')}---\n{items}", tmp_path)
    assert places(report) == [
        (5, "spec.x"),
        (9, "apiVersion"),
        (10, "metadata.name"),
        (12, "spec.a"),
    ]


@pytest.mark.parametrize(
    ("managed", "which"),
    [
        ("", "pod groups do not preempt"),
        (
            ", managedResources: [{name: example.com/a}]",
            "pod groups that request a managed resource do not preempt",
        ),
    ],
)
def test_that_no_preemption_is_made_for_groups_with_a_preempt_verb_is_said(
    managed: str, which: str, tmp_path: Path
) -> None:
    extender = f"{{urlPrefix: http://x/y, preemptVerb: preempt{managed}}}"
    (checked,) = report_of(profile(spec=f"{{extenders: [{extender}]}}"), tmp_path).profiles
    (said,) = checked.notes
    assert said.path == "spec.extenders"
    assert said.message.startswith(which)


def test_nothing_is_said_of_extenders_where_the_profile_schedules_no_groups(tmp_path: Path) -> None:
    extenders = "[{urlPrefix: http://x/y, preemptVerb: preempt}]"
    disabled = "{multiPoint: {disabled: [{name: GangScheduling}]}}"
    spec = f"{{extenders: {extenders}, plugins: {disabled}}}"
    (checked,) = report_of(profile(spec=spec), tmp_path).profiles
    assert not checked.notes


def test_nothing_is_said_of_extenders_that_do_not_take_part_in_preemption(tmp_path: Path) -> None:
    spec = "{extenders: [{urlPrefix: http://x/y, filterVerb: filter}]}"
    (checked,) = report_of(profile(spec=spec), tmp_path).profiles
    assert not checked.notes


def test_certificates_in_files_are_valid_with_a_note_that_they_are_not_looked_at(
    tmp_path: Path,
) -> None:
    tls = "{caFile: /etc/x/ca.crt, certFile: /etc/x/tls.crt, keyFile: /etc/x/tls.key}"
    extenders = f"[{{urlPrefix: http://x}}, {{urlPrefix: https://x, tlsConfig: {tls}}}]"
    (checked,) = report_of(profile(spec=f"{{extenders: {extenders}}}"), tmp_path).profiles
    (said,) = checked.notes
    assert str(said) == (
        "spec.extenders[1].tlsConfig: the files /etc/x/ca.crt, /etc/x/tls.crt and /etc/x/tls.key "
        "are not looked at: they are in Mooring's container; if they cannot be used there, the "
        "profile's status says so"
    )


def test_certificates_that_nothing_reads_need_no_note(tmp_path: Path) -> None:
    """Certificate files are not read without TLS, or if the profile has the data itself."""
    data = b64encode(Authority().certificate).decode()
    plain = "{urlPrefix: http://x, tlsConfig: {caFile: /etc/x/ca.crt}}"
    both = f"{{urlPrefix: https://x, tlsConfig: {{caFile: /etc/x/ca.crt, caData: {data}}}}}"
    (checked,) = report_of(profile(spec=f"{{extenders: [{plain}, {both}]}}"), tmp_path).profiles
    assert not checked.notes


def test_certificates_in_the_profile_that_cannot_be_used_are_a_mistake(tmp_path: Path) -> None:
    data = b64encode(b"no certificate").decode()
    tls = f"{{urlPrefix: https://x, tlsConfig: {{caData: {data}}}}}"
    report = report_of(profile(spec=f"{{extenders: [{tls}]}}"), tmp_path)
    assert places(report) == [(5, "spec.extenders[0].tlsConfig")]
    assert "caData cannot be used" in report.mistakes[0].message


def test_a_field_that_is_missing_has_the_line_of_its_object(tmp_path: Path) -> None:
    report = report_of(profile(spec="\n  pluginConfig:\n  - args: {}\n"), tmp_path)
    assert places(report) == [(7, "spec.pluginConfig[0].name")]


def test_a_repeated_key_is_a_mistake_beside_all_others(tmp_path: Path) -> None:
    text = profile(spec="{a: 1}") + "spec: {b: 2}\n"
    report = report_of(text, tmp_path)
    assert places(report) == [(6, ""), (5, "spec.b")] or places(report) == [(6, ""), (6, "spec.b")]
    assert report.mistakes[0].message == 'the key "spec" is there twice'


def test_a_repeated_key_of_json_is_a_mistake_too(tmp_path: Path) -> None:
    text = '{"kind": "SchedulingProfile", "apiVersion": "scheduling.mooring.dev/v1alpha1",\n'
    text += '"metadata": {"name": "a"},\n"spec": {},\n"spec": {}}'
    assert places(report_of(text, tmp_path, "p.json")) == [(4, "")]


def test_a_name_can_be_given_once_in_all_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(profile())
    second.write_text(profile())
    report = check_files([str(first), str(second)], REGISTRY)
    assert [str(mistake) for mistake in report.mistakes] == [
        f'{second}:4: metadata.name: there is a profile "mine" already, in {first}, document 1'
    ]


def test_profiles_that_may_match_the_same_pods_are_valid_with_a_note(tmp_path: Path) -> None:
    shared = "{match: {schedulerNames: [x]}}"
    report = report_of(f"{profile('a', shared)}---\n{profile('b', shared)}", tmp_path)
    a, b = (str(said) for checked in report.profiles for said in checked.notes)
    assert a.startswith("a: outranks b: both may match the same pods, with the same precedence")
    assert b.startswith("b: outranked by a: ")


def test_a_folder_is_searched_without_hidden_files_and_templates_of_charts(
    tmp_path: Path,
) -> None:
    inner = tmp_path / "team"
    inner.mkdir()
    (inner / "b.yml").write_text(profile("b"))
    (tmp_path / "a.yaml").write_text(profile("a"))
    (tmp_path / ".c.yaml").write_text(profile("c"))
    (tmp_path / "notes.txt").write_text("no YAML: [")
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    templates = tmp_path / "chart" / "templates"
    templates.mkdir(parents=True)
    (templates.parent / "Chart.yaml").write_text("name: chart\n")
    (templates / "d.yaml").write_text("{{ if .Values.d }}\nkind: [\n{{ end }}\n")
    report = check_files([str(tmp_path)], REGISTRY)
    assert [checked.loaded.profile.name for checked in report.profiles] == ["a", "b"]
    assert not report.unreadable


def test_standard_input_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(profile(spec="{x: 1}")))
    (mistake,) = check_files(["-"], REGISTRY).mistakes
    assert (mistake.file, mistake.line) == ("standard input", 5)


def test_a_plugin_that_cannot_be_imported_is_a_mistake_of_the_field_that_names_it(
    tmp_path: Path,
) -> None:
    broken = EntryPoint("Broken", "no_such_package:Broken", ENTRY_POINT_GROUP)
    path = tmp_path / "p.yaml"
    path.write_text(profile(spec="{plugins: {multiPoint: {enabled: [{name: Broken}]}}}"))
    report = check_files([str(path)], Registry(SHIPPED, {"Broken": broken}))
    (mistake,) = report.mistakes
    assert mistake.path == "spec.plugins.multiPoint.enabled[0].name"
    assert mistake.message.startswith("plugin Broken (no_such_package:Broken of an unknown")


def test_json_that_is_no_yaml_has_no_lines(tmp_path: Path) -> None:
    text = '{"kind": "SchedulingProfile", "spec": {"\\ud83d\\ude00": 1}}'
    assert {line for line, _ in places(report_of(text, tmp_path, "p.json"))} == {None}


def test_the_shipped_manifests_are_valid() -> None:
    report = check_files(["manifests"], REGISTRY)
    assert not report.mistakes
    assert not report.unreadable
    assert {checked.loaded.profile.name for checked in report.profiles} >= {"mooring", "spread"}
