"""The command `mooring plugin new`: writes a package for a new plugin."""

import builtins
import re
import sys
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Final

import click

from mooring.cli.console import mistakes_reported
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.manifests import InputError

_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]{1,52}")
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@click.group(
    epilog="""\b
Example:
  mooring plugin new RackAware"""
)
def plugin() -> None:
    """Start a plugin of your own."""


@plugin.command(
    epilog="""\b
Examples:
  mooring plugin new RackAware
  mooring plugin new RackAware --per-node --out ~/plugins"""
)
@click.argument("name")
@click.option(
    "--out", default=".", show_default=True, help="Where to write the directory of the package."
)
@click.option(
    "--per-node", is_flag=True, help="Filter and score one node at a time, not columns of nodes."
)
def new(name: str, out: str, *, per_node: bool) -> None:
    """Write an installable package with a plugin NAME and its test.

    NAME, for example RackAware, is the plugin's name in profiles and the name of its class. The
    package is then called rack-aware, and is imported as rack_aware.
    """
    code = Template(_PER_NODE if per_node else _COLUMNS)
    with mistakes_reported():
        module = _module_of(name, code)
        package = module.replace("_", "-")
        target = Path(out) / package
        texts = {
            "pyproject.toml": Template(_PYPROJECT),
            "README.md": Template(_README),
            f"{module}/__init__.py": code,
            f"{module}/py.typed": Template(""),
            f"tests/test_{module}.py": Template(_TEST),
        }
        words = {"name": name, "module": module, "package": package}
        _write(target, {path: text.substitute(words) for path, text in texts.items()})
    click.echo(f"{target}: the package of the plugin {name}")
    for path in texts:
        click.echo(f"  {path}")
    click.echo(f"test it: pip install -e '{target}[test]' && pytest {target}")


def _module_of(name: str, code: Template) -> str:
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be the name of a plugin: it must be 2 to 53 letters and digits as in "
            "the name of a Python class, such as RackAware"
        )
    if name in Registry(SHIPPED).names():
        raise InputError(f"there is a plugin {name} already; choose another name")
    in_use = re.findall(r"\w+", code.template)
    if iskeyword(name) or hasattr(builtins, name) or name in in_use:
        raise InputError(f"{name} means something else in the plugin's code; choose another name")
    module = _WORDS.sub("_", name).lower()
    if iskeyword(module) or module in sys.stdlib_module_names or find_spec(module) is not None:
        raise InputError(f"{name} would be the module {module}, which exists; choose another name")
    return module


def _write(target: Path, texts: dict[str, str]) -> None:
    try:
        if target.exists():
            raise InputError(f"{target} exists; choose another --out, or another name")
        for path, text in texts.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(text)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from None


_PYPROJECT: Final = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$package"
version = "0.1.0"
description = "$name, a plugin for the Kubernetes scheduler Mooring."
readme = "README.md"
requires-python = ">=3.11"
# Mooring is not listed: the plugin is installed beside the Mooring that loads it.
dependencies = []

[project.optional-dependencies]
test = ["pytest>=9", "ruff", "mypy"]

[project.entry-points."mooring.plugins"]
$name = "$module:$name"

[tool.setuptools]
packages = ["$module"]

[tool.setuptools.package-data]
$module = ["py.typed"]

[tool.ruff]
line-length = 100

[tool.ruff.lint]
extend-select = ["B", "I", "UP"]

[tool.mypy]
strict = true

[tool.pytest.ini_options]
testpaths = ["tests"]
"""

_README: Final = """\
# $name

A plugin for Mooring, the Kubernetes scheduler. It rejects nodes without the label
`example.com/$package`, and prefers nodes with few pods: replace this by what it is to do, in
`$module/__init__.py`. Mooring's docs/plugins.md says what a plugin may do.

In an environment in which Mooring can be imported:

    pip install -e '.[test]' && pytest && ruff check && mypy $module tests

In a profile:

    spec:
      plugins:
        multiPoint:
          enabled:
            - name: $name
      pluginConfig:
        - name: $name
          args:
            label: example.com/$package

In the image, with $$MOORING being your image of Mooring:

    ARG MOORING
    FROM python:3.13-slim AS build
    COPY . /src
    RUN pip install --no-deps --target /plugins /src

    FROM $$MOORING
    COPY --from=build /plugins /plugins
    ENV PYTHONPATH=/opt/mooring/operator:/plugins
"""

_HEAD: Final = """\
\"\"\"$name rejects nodes without a label, and prefers nodes with few pods.\"\"\"

from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint
"""

_CLASS: Final = """\
class $name:
    \"\"\"Rejects nodes without a label; prefers nodes with few pods.\"\"\"

    name: ClassVar[str] = "$name"
    depends_on_node_only: ClassVar[bool] = True  # results depend on the pod's spec and that node
    normalize: ClassVar[Normalize] = Normalize.REVERSED  # the highest becomes 0, and 0 becomes 100
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD), (Kind.NODE, Action.UPDATE)}
    )

    class Args(BaseModel):
        \"\"\"The plugin's arguments in a profile.\"\"\"

        model_config = ConfigDict(extra="forbid", frozen=True)

        label: str = "example.com/$package"

    def __init__(self, args: Args, handle: Handle) -> None:
        self._label = args.label

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> QueueingHint:
        \"\"\"QUEUE: a node that was added or changed may have the label.\"\"\"
        return QueueingHint.QUEUE

"""

_COLUMNS: Final = (
    _HEAD
    + """\
from mooring.framework.plugin import Normalize
from mooring.framework.verdicts import Explanation
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.model.selectors import Requirement
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from pydantic import BaseModel, ConfigDict

__all__ = ["$name"]


"""
    + _CLASS
    + '''\
    def filter(self, pod: Pod, nodes: NodeView, state: None) -> BoolArray:
        """True where the node has the label."""
        return nodes.meets(Requirement(self._label, "Exists", ()))

    def explain(self, pod: Pod, nodes: NodeView, state: None) -> Explanation:
        """One reason, against which evicting pods does not help."""
        reason = f"node(s) had no label {self._label}"
        return Explanation.single(reason, len(nodes), resolvable=False)

    def score(self, pod: Pod, nodes: NodeView, state: None) -> IntArray:
        """How many pods the node has."""
        return nodes.pod_count
'''
)

_PER_NODE: Final = (
    _HEAD
    + """\
from mooring.framework.per_node import NodeInfo, per_node
from mooring.framework.plugin import Normalize
from mooring.framework.verdicts import Unschedulable
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from pydantic import BaseModel, ConfigDict

__all__ = ["$name"]


@per_node
"""
    + _CLASS
    + '''\
    def filter(self, pod: Pod, node: NodeInfo) -> Unschedulable | None:
        """None if the node has the label; evicting pods does not help if it has not."""
        if self._label in node.labels:
            return None
        return Unschedulable(f"node(s) had no label {self._label}")

    def score(self, pod: Pod, node: NodeInfo) -> int:
        """How many pods the node has."""
        return node.pod_count
'''
)

_TEST: Final = '''\
"""$name keeps the rules of every plugin, and profiles can name it."""

from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.testing.builders import node, pod
from mooring.testing.contract import PluginContract, Scenario

from $module import $name

LABELS = {"example.com/$package": "true"}


class Test$name(PluginContract):
    """In some scenario nodes are rejected, and in some scenario their scores differ."""

    plugin = $name
    scenarios = (
        Scenario(
            nodes=(node("free", labels=LABELS), node("busy", labels=LABELS), node("bare")),
            pod=pod("web"),
            others=(pod("other", node="busy"),),
        ),
    )


def test_an_installed_package_announces_the_plugin() -> None:
    assert Registry(SHIPPED).plugin("$name") is $name
'''
