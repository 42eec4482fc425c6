"""The documents agree with the code: the tests read, load or run every example in them."""

import ast
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from deciding import Deciding
from device_builders import allocated, device_result
from mooring.__main__ import main
from mooring.claims.claim_report import ExplainsClaims
from mooring.cli.explanation_text import claim_lines, remedy_lines
from mooring.framework.registry import ENTRY_POINT_GROUP, Registry
from mooring.gpu_cards.model.cards import CardFormat, node_cards
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.observe.collector import StateCollector
from mooring.observe.documents import plain
from mooring.observe.metrics import Metrics
from mooring.plugins import SHIPPED
from mooring.policy.defaults import DEFAULT_WEIGHTS
from mooring.policy.points import Point
from mooring.policy.profile import KIND
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.rebalancing import Rebalancing
from mooring.policy.resolve import load_profile
from mooring.policy.rules.expressions import check
from mooring.scheduling.outcome import FitError
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.suggestions import suggestions
from mooring.scheduling.what_if import WhatIf
from mooring.simulate.expectations import run_case
from mooring.simulate.policy_tests import KIND as POLICY_TEST
from mooring.simulate.policy_tests import Expectation, read_policy_tests
from mooring.testing.builders import node, pod, uid_of
from mooring.testing.contract import PluginContract, Scenario
from website.reference import with_settings

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "operator" / "mooring"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:[\w.-]+/)*[\w.-]+\.(?:py|md|yaml|toml|lock)|(?:[\w.-]+/)+")
_METRIC = re.compile(r"`((?:scheduler|mooring|leader|dynamic)_[a-z_]+?)(?:\{[^`]*\})?`")
_SEPARATORS = {"|", "||", "&", "&&", ";", ">", ">>", "<", ";;"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    document: Path
    language: str
    text: str

    def __str__(self) -> str:
        first = self.text.strip().splitlines()[0]
        return f"{self.document.relative_to(ROOT)}: {first}"


def _blocks(language: str) -> list[Block]:
    return [
        Block(document, found[1], found[2])
        for document in DOCUMENTS
        for found in _FENCE.finditer(document.read_text())
        if found[1] == language
    ]


def _table_rows(document: str) -> Iterator[list[str]]:
    """Yield the cells of every table row whose first cell begins with code."""
    for line in (ROOT / document).read_text().splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line[1:-1].split("|")]


def _anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    for link in _LINK.findall(document.read_text()):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def _sections() -> Iterator[tuple[str, str]]:
    """Yield each section of ARCHITECTURE.md, and the folder for its file names without a folder."""
    for section in (ROOT / "ARCHITECTURE.md").read_text().split("\n## "):
        folder = re.search(r"^Files without a folder are in `(.+)`\.$", section, re.MULTILINE)
        yield section, folder[1] if folder is not None else ""


def _resolved(path: str, folder: str) -> str:
    return path if "/" in path else folder + path


def test_every_file_that_architecture_names_exists() -> None:
    named = {
        _resolved(code, folder)
        for section, folder in _sections()
        for code in _CODE.findall(section)
        if _PATH.fullmatch(code)
    }
    assert "scheduling/cycle.py" in named
    assert {n for n in named if not ((SOURCE / n).exists() or (ROOT / n).exists())} == set()


def _hops() -> Iterator[tuple[str, str]]:
    """Yield file and name of every function in the walks of ARCHITECTURE.md."""
    for section, folder in _sections():
        _, _, table = section.partition("\n| hop |")
        file = ""
        for line in table.split("\n\n")[0].splitlines()[2:]:
            for code in _CODE.findall(line.split("|")[1]):
                if _PATH.fullmatch(code):
                    file = _resolved(code, folder)
                else:
                    yield file, code


def test_every_walk_in_architecture_goes_through_functions_that_exist() -> None:
    hops = set(_hops())
    assert ("scheduling/schedule_one.py", "_commit") in hops
    defined = {
        (file, node.name)
        for file in {file for file, _ in hops}
        for node in ast.walk(ast.parse((SOURCE / file).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    assert [hop for hop in hops if not {(hop[0], n) for n in hop[1].split(".")} <= defined] == []


def test_architecture_names_every_package() -> None:
    named = set(_CODE.findall((ROOT / "ARCHITECTURE.md").read_text()))
    packages = {f"{path.name}/" for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert packages - named == set()


def test_rules_md_names_every_example_of_rules() -> None:
    named = set(_LINK.findall((ROOT / "docs" / "rules.md").read_text()))
    examples = sorted((ROOT / "manifests" / "examples").glob("rules-*.yaml"))
    assert len(examples) == 11
    assert {f"../manifests/examples/{path.name}" for path in examples} <= named


def test_every_expression_in_the_text_of_rules_md_is_one() -> None:
    text = _FENCE.sub("", (ROOT / "docs" / "rules.md").read_text())
    named = [code for code in _CODE.findall(text) if re.search(r"\b(node|pod)\.[a-z]", code)]
    [mistake] = [code for code in named if code.startswith("spec.rules[0].filter: ")]
    for expression in named:
        if expression != mistake:
            check(expression)
    with pytest.raises(ProfileInvalid) as wrong:
        check("!has(node.lables.team)")
    assert mistake == f"spec.rules[0].filter: {wrong.value}"


def test_the_topology_of_gpus_md_is_read_as_two_linked_cards() -> None:
    [block] = [block for block in _blocks("json") if block.document.name == "gpus.md"]
    raw = node("n1")
    raw["metadata"]["annotations"] = {CardFormat().topology_annotation: block.text}
    cards = node_cards(parse_node(raw), CardFormat())
    assert cards.memory == (81920, 81920)
    assert cards.products == ("NVIDIA-A100-SXM4-80GB",) * 2
    assert cards.links[0][1] == cards.links[1][0] > 0


def test_the_scrape_config_of_metrics_md_finds_the_port_of_the_deployment() -> None:
    [block] = [b for b in _blocks("yaml") if "scrape_configs" in b.text]
    [job] = yaml.safe_load(block.text)["scrape_configs"]
    [deployment] = [
        document
        for document in yaml.safe_load_all((ROOT / "manifests" / "deployment.yaml").read_text())
        if document["kind"] == "Deployment"
    ]
    pods = deployment["spec"]["template"]
    [container] = pods["spec"]["containers"]
    of_label, of_port = (rule["regex"] for rule in job["relabel_configs"])
    assert pods["metadata"]["labels"]["app.kubernetes.io/name"] == of_label
    assert [port["name"] for port in container["ports"]] == [of_port]
    namespaces = job["kubernetes_sd_configs"][0]["namespaces"]["names"]
    assert namespaces == [deployment["metadata"]["namespace"]]


def test_every_kustomization_in_the_documents_names_folders_that_exist() -> None:
    blocks = [b for b in _blocks("yaml") if re.search("^components:", b.text, re.MULTILINE)]
    assert {block.document.name for block in blocks} == {"installing.md", "metrics.md"}
    for block in blocks:
        given = yaml.safe_load(block.text)
        for kind, key in (("Kustomization", "resources"), ("Component", "components")):
            for named in given[key]:
                _, _, folder = f"/{named}".partition("/manifests")
                found = ROOT / "manifests" / folder.lstrip("/") / "kustomization.yaml"
                assert yaml.safe_load(found.read_text())["kind"] == kind


def test_decisions_are_numbered_and_named_by_their_files() -> None:
    records = sorted((ROOT / "docs" / "adr").iterdir())
    for number, record in enumerate(records, start=1):
        assert record.name.startswith(f"{number:04}-")
        assert record.read_text().startswith(f"# {number}. ")


def _commands(block: Block) -> Iterator[list[str]]:
    """Yield the words after each `mooring` that a shell block runs as a program."""
    for line in block.text.replace("\\\n", "").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        for word in (*lexer, ";"):
            if word not in _SEPARATORS:
                command.append(word)
                continue
            if command[:1] == ["mooring"]:
                yield command[1:]
            command = []


@pytest.mark.parametrize("block", _blocks("sh"), ids=str)
def test_every_command_line_is_one_that_mooring_accepts(block: Block) -> None:
    for words in _commands(block):
        _parse(main, words)


def _parse(command: click.Command, words: list[str]) -> None:
    """Let the command parse the words without running it; raise UsageError if it cannot."""
    if isinstance(command, click.Group):
        _, found, rest = command.resolve_command(click.Context(command), words)
        assert found is not None
        _parse(found, rest)
    else:
        command.make_context(command.name, words)


_SESSION = re.compile(r"^```\n\$ mooring (rebalance .+)\n((?:.*\n)+?)^```$", re.MULTILINE)


def test_rebalancing_md_prints_what_its_commands_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ((words, printed),) = _SESSION.findall((ROOT / "docs" / "rebalancing.md").read_text())
    result = CliRunner().invoke(main, shlex.split(words))
    assert (result.stdout, result.exit_code) == (printed, 0)


def test_the_picture_of_rebalancing_is_the_one_that_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    drawn = tmp_path / "moves.svg"
    words = ["rebalance", "docs/half-empty-nodes.jsonl", "--goal", "Pack", "--plot", str(drawn)]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert drawn.read_text() == (ROOT / "docs" / "images" / "rebalancing.svg").read_text()


def test_command_lines_are_found_wherever_a_shell_would_run_them() -> None:
    text = (
        "kubectl get pods -o json | mooring simulate - > out.json\n# mooring x\nmooring a \\\n b\n"
    )
    block = Block(ROOT / "README.md", "sh", text)
    assert list(_commands(block)) == [["simulate", "-"], ["a", "b"]]


def test_commands_named_in_sentences_exist() -> None:
    known = {*main.list_commands(click.Context(main))}
    for document in DOCUMENTS:
        named = re.findall(r"`mooring ([a-z]+)[^`]*`", document.read_text())
        assert {*named} - known == set(), document


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Return the shipped plugins and the first plugin of plugins.md, installed from its text."""
    plugin, test = (b.text for b in _blocks("python") if "AvoidSpot" in b.text)
    (tmp_path / "acme_spot.py").write_text(plugin)
    (tmp_path / "test_acme_spot.py").write_text(test)
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("AvoidSpot", "acme_spot:AvoidSpot", ENTRY_POINT_GROUP)
    return Registry(SHIPPED, {"AvoidSpot": entry})


def test_every_profile_is_valid(registry: Registry) -> None:
    profiles = [
        (block, document)
        for block in _blocks("yaml")
        for document in yaml.safe_load_all(block.text)
        if document.get("kind") == KIND
    ]
    assert {block.document.name for block, _ in profiles} == {
        "plugins.md",
        "devices.md",
        "profiles.md",
        "rules.md",
        "extenders.md",
        "shadow.md",
    }
    for _, document in profiles:
        load_profile(document, registry)


def test_every_policy_test_passes(tmp_path: Path) -> None:
    blocks = [block for block in _blocks("yaml") if f"kind: {POLICY_TEST}\n" in block.text]
    assert [block.document.name for block in blocks] == ["policy-tests.md"]
    for block in blocks:
        (tmp_path / "test.yaml").write_text(block.text)
        (file,) = read_policy_tests([str(tmp_path)])
        beside = replace(file, path=str(ROOT / "manifests" / "examples" / "test.yaml"))
        for number in range(len(file.test.cases)):
            assert run_case(beside, number, Registry(SHIPPED)).passed


def test_policy_tests_lists_every_field_of_an_expectation() -> None:
    named = {code for row in _table_rows("docs/policy-tests.md") for code in _CODE.findall(row[0])}
    fields = {str(field.alias) for field in Expectation.model_fields.values()}
    assert fields - named == {"pod", "pods"}


@pytest.mark.usefixtures("registry")
def test_the_package_of_the_first_plugin_installs_and_announces_it(tmp_path: Path) -> None:
    (project,) = (b.text for b in _blocks("toml"))
    (tmp_path / "pyproject.toml").write_text(project)
    offline = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *offline, "--target", "installed", "."],
        cwd=tmp_path,
        check=True,
    )
    (installed,) = distributions(path=[str(tmp_path / "installed")])
    (entry,) = installed.entry_points
    assert entry.group == ENTRY_POINT_GROUP
    assert entry.load().name == entry.name == "AvoidSpot"


def _keep(contract: type[PluginContract]) -> int:
    """Check each rule of the contract; return the number of rules."""
    rules = [name for name, _ in inspect.getmembers(contract) if name.startswith("test_")]
    for rule in rules:
        getattr(contract(), rule)()
    return len(rules)


@pytest.mark.usefixtures("registry")
def test_the_first_plugin_passes_its_own_test() -> None:
    module = importlib.import_module("test_acme_spot")
    assert _keep(module.TestAvoidSpot)


def test_the_plugins_of_the_guide_keep_the_contract(tmp_path: Path) -> None:
    found: dict[str, Any] = {}
    for block in _blocks("python"):
        if block.document.name == "plugins.md" and "AvoidSpot" not in block.text:
            path = tmp_path / "guide.py"
            path.write_text(block.text)
            spec = importlib.util.spec_from_file_location("guide", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            found |= vars(module)
    newer = {"acme.example/generation": "3"}
    ten = tuple(pod(f"p{i}", node="n1") for i in range(10))
    scenario = Scenario((node("n1", labels=newer), node("n2")), pod("web"), ten)
    for plugin in ("Generation", "FewPods"):
        members = {"plugin": found[plugin], "scenarios": (scenario,)}
        assert _keep(type(f"Test{plugin}", (PluginContract,), members))


def test_the_tables_of_settings_are_made_of_the_settings() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    again = ".venv/bin/python -m website --settings writes them anew"
    assert with_settings(page) == page, again


def _exported() -> set[str]:
    """Return the names of Mooring's own metrics in a scrape."""
    metrics = Metrics()
    nothing: dict[str, Any] = {field.name: dict for field in fields(StateCollector)}
    metrics.read_from(StateCollector(**nothing))
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in metrics.collect()
    }


def test_metrics_lists_every_metric_and_no_other() -> None:
    named = {*_METRIC.findall((ROOT / "docs" / "metrics.md").read_text())}
    assert named == _exported()


_SCORED = (Point.SCORE, Point.PLACEMENT_SCORE)


def _points(plugin: type[Any], catalog: Registry) -> str:
    """Return the extension points of a plugin, and its score's weight if it is on by default."""
    served = [point for point in Point if point in (catalog.points(plugin.name) or ())]
    weight = DEFAULT_WEIGHTS.get(plugin.name)
    scored = _SCORED if weight is not None else ()
    return ", ".join(f"{p} {weight or 1}" if p in scored else p for p in served)


def test_profiles_lists_every_plugin_in_order_with_points_weight_and_arguments() -> None:
    catalog = Registry(SHIPPED, {})
    rows = [row for row in _table_rows("docs/profiles.md") if len(row) == 3]
    expected = []
    for plugin in SHIPPED:
        model = catalog.args_model(plugin.name)
        aliases = (str(field.alias) for field in model.model_fields.values()) if model else ()
        expected.append([f"`{plugin.name}`", _points(plugin, catalog), ", ".join(aliases)])
    assert rows == expected


def test_profiles_shows_every_field_of_rebalancing_with_its_default() -> None:
    [block] = [b for b in _blocks("yaml") if "  name: tidy\n" in b.text]
    shown = yaml.safe_load(block.text)["spec"]["rebalancing"]
    assert {*shown.pop("windows")[0]} == {"days", "start", "end"}
    defaults = Rebalancing().model_dump(mode="json", by_alias=True, exclude={"windows"})
    for name in ("namespaceSelector", "podSelector"):
        del defaults["pods"][name]
    assert shown == defaults


def test_the_pod_of_devices_md_is_explained_as_it_prints() -> None:
    text = (ROOT / "docs" / "devices.md").read_text()
    _, first, second = (yaml.safe_load_all(t) for lang, t in _FENCE.findall(text) if lang == "yaml")
    objects = [each for each in (*first, *second) if each["kind"] != "Pod"]
    for raw in objects:
        raw["metadata"] |= {"namespace": "default", "uid": raw["metadata"]["name"]}
        if raw["metadata"]["name"] == "large-gpu":
            used = device_result("gpu-0", request="gpu", pool="node-02")
            user = {"resource": "pods", "name": "train", "uid": uid_of("train")}
            raw["status"] = {
                "allocation": allocated(used, node="node-02"),
                "reservedFor": [user],
            }
    nodes = [node(f"node-{number:02}") for number in range(1, 21)]
    claims = [{"name": "gpu", "resourceClaimName": "second-large-gpu"}]
    deciding = Deciding(*nodes, pod("train", node="node-02"), *objects)
    waiting = parse_pod(pod("tune", spec={"resourceClaims": claims}))
    (plugin,) = (each for each in deciding.pipeline.filters if isinstance(each, ExplainsClaims))
    report = plugin.explain_claims(waiting)
    assert report is not None
    lines = [*claim_lines(plain(report), None)]
    assert len(lines) == 6
    what_if = WhatIf(ResultCache(deciding.cluster))
    found = suggestions([waiting], deciding.pipeline, what_if)
    changes = [
        {
            "change": plain(each.change),
            "nodes": each.nodes,
            "examples": each.examples,
            "ended": each.ended,
        }
        for each in sorted(found, key=lambda each: each.cost)
    ]
    outcome = deciding.outcome(pod("tune", spec={"resourceClaims": claims}))
    assert isinstance(outcome, FitError)
    lines += remedy_lines({"cause": outcome.cause, "suggestions": changes})
    assert len(lines) == 11
    assert "\n".join(lines) in text
