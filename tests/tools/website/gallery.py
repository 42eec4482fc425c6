"""Makes the gallery of example profiles with pictures of their decisions in policy tests."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.expectations import inputs_of_case
from mooring.simulate.policy_tests import PolicyTestFile, read_policy_tests
from mooring.simulate.simulation import simulate

_NO_NODE: Final = "no node"
_MOST_NODES: Final = 12
_MOST_PODS: Final = 8
"""The most pods drawn on one node; the picture states the number of the others."""
_PER_ROW: Final = 6
_WIDTH: Final = 132
_LINE: Final = 20
_MOST_CHARACTERS: Final = 17
_HEAD: Final = """# Gallery

What the profiles in `manifests/examples/` decide. The pictures are drawn from their policy tests in
`manifests/tests/`, which `make test` runs: a box is a node, a grey bar a pod that runs there
already, a blue one a pod that this profile has placed.
"""


def gallery(root: Path) -> tuple[str, dict[str, str]]:
    """Return the page as Markdown, and the pictures as SVG by the names of their files."""
    parts, pictures = [_HEAD], dict[str, str]()
    for file in read_policy_tests([str(root / "manifests" / "tests")]):
        of_cases = [path for case in file.test.cases for path in (*case.profiles, *case.files)]
        for path in dict.fromkeys((*file.test.profiles, *file.test.files, *of_cases)):
            example = (Path(file.path).parent / path).resolve()
            if example.parent.name == "examples":
                drawn = dict(_pictures(file, example.stem))
                pictures |= {name: picture for name, (_, picture) in drawn.items()}
                parts.append(_section(example, {name: title for name, (title, _) in drawn.items()}))
    return "\n".join(parts), pictures


def _section(example: Path, pictures: Mapping[str, str]) -> str:
    """Return the section about a profile: its purpose, its pictures and its YAML."""
    lines = example.read_text().splitlines()
    comment = [line.lstrip("# ") for line in lines if line.startswith("#")]
    shown = [f"{title}:\n\n![{title}](gallery/{name})\n" for name, title in pictures.items()]
    manifest = "\n".join(line for line in lines if not line.startswith("#"))
    text = " ".join(comment)
    return "\n".join([f"## {example.stem}\n", f"{text}\n", *shown, f"```yaml\n{manifest}\n```\n"])


def _pictures(file: PolicyTestFile, name: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield for each case the name of its picture, and a pair: the case's name, and the picture."""
    registry = Registry(SHIPPED)
    for number, case in enumerate(file.test.cases):
        inputs = inputs_of_case(file, number, registry)
        running = {placed.pod.key for placed in inputs.state.pods}
        nodes: dict[str, list[tuple[str, bool]]] = {
            node.name: [] for node in inputs.state.nodes.nodes if node is not None
        }
        attempts = [*simulate(inputs, registry, seed=case.seed)]
        for placed in inputs.state.pods:
            on = inputs.state.nodes.nodes[placed.row]
            if on is not None:
                nodes[on.name].append((placed.pod.name, placed.pod.key not in running))
        left_out = [a.decision.pod.key.partition("/")[2] for a in attempts if not a.decision.node]
        if left_out:
            nodes[_NO_NODE] = [(pod, True) for pod in left_out]
        yield f"{name}-{number}.svg", (case.name, _drawn(nodes))


def _drawn(nodes: Mapping[str, Sequence[tuple[str, bool]]]) -> str:
    """Return an SVG of nodes and their pods; True marks the pods that were placed in the case."""
    shown = [*nodes.items()][:_MOST_NODES]
    if len(nodes) > len(shown):
        shown.append((f"{len(nodes) - len(shown)} more nodes", ()))
    height = _LINE * (min(max(len(pods) for _, pods in shown), _MOST_PODS + 1) + 2)
    rows = -(-len(shown) // _PER_ROW)
    width = _WIDTH * min(len(shown), _PER_ROW)
    boxes = (
        part
        for index, (name, pods) in enumerate(shown)
        for part in _box(name, pods, index % _PER_ROW * _WIDTH, index // _PER_ROW * height, height)
    )
    size = f'width="{width}" height="{rows * height}"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">',
            f'<rect {size} rx="6" fill="#f6f8fa"/>',
            '<g font-size="12">',
            *boxes,
            "</g>",
            "</svg>",
        )
    )


def _box(name: str, pods: Sequence[tuple[str, bool]], x: int, y: int, height: int) -> Iterator[str]:
    dashes = ' stroke-dasharray="4"' if name == _NO_NODE else ""
    yield (
        f'<rect x="{x + 4}" y="{y + 4}" width="{_WIDTH - 8}" height="{height - 8}" rx="4" '
        f'fill="#ffffff" stroke="#8c959f"{dashes}/>'
    )
    yield f'<text x="{x + 10}" y="{y + 20}" fill="#1f2328">{_short(name)}</text>'
    for line, (pod, is_new) in enumerate(pods[:_MOST_PODS]):
        top = y + 27 + _LINE * line
        fill, ink = ("#0969da", "#ffffff") if is_new else ("#d0d7de", "#1f2328")
        yield (
            f'<rect x="{x + 9}" y="{top}" width="{_WIDTH - 18}" height="{_LINE - 3}" rx="3" '
            f'fill="{fill}"/><text x="{x + 13}" y="{top + 13}" fill="{ink}">{_short(pod)}</text>'
        )
    if len(pods) > _MOST_PODS:
        words = f"and {len(pods) - _MOST_PODS} more"
        yield f'<text x="{x + 13}" y="{y + 40 + _LINE * _MOST_PODS}" fill="#1f2328">{words}</text>'


def _short(name: str) -> str:
    """Return the name; leave out its middle if it is too long, as names differ at their ends."""
    if len(name) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        name = f"{name[:half]}…{name[-half:]}"
    return escape(name)
