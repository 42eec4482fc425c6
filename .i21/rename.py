#!/usr/bin/env python3
"""Rename what issue 21 lists, in the worktree whose root is the first argument.

Run it once, on a clean worktree: `python3 rename.py ROOT`. It changes operator/, tests/, docs/ (not
docs/adr, whose pages are dated), the Markdown files at the root, .importlinter, and the top of
CHANGELOG.md. What a rename does not find is listed as "not found": another part has renamed or
removed it already. What it must not do by itself is listed as "by hand". RENAMES.txt explains.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(sys.argv[1]).resolve()
RUFF = "/work/main/.venv/bin/ruff"
SOURCE = "operator/mooring"

MODULES = {  # file below operator/mooring -> new file; tests follow
    "state/snapshot.py": "state/cluster_view.py",
    "engine/extenders/two_halves.py": "engine/extenders/extender_attempts.py",
    "engine/intake.py": "engine/pod_enqueuer.py",
    "engine/reports.py": "engine/pod_status_reporter.py",
    "engine/groups/reports.py": "engine/groups/pod_group_status_reporter.py",
    "observe/readings.py": "observe/collector.py",
}
NAMES = {  # identifiers that mean one thing: everywhere, in code and in texts
    "row_local": "depends_on_node_only",
    "ignores_pods": "depends_on_node_object_only",
    "Snapshot": "ClusterView",
    "TwoHalves": "ExtenderAttempts",
    "two_halves": "extender_attempts",
    "_two_halves": "_extender_attempts",
    "Intake": "PodEnqueuer",
    "intake": "pod_enqueuer",
    "_intake": "_pod_enqueuer",
    "GroupReports": "PodGroupStatusReporter",
    "PodReports": "PodReportBuilder",
    "_Beside": "_PlacedMembers",
    "ExtendedNodes": "ExtenderResults",
    "CardsLeft": "RemainingCards",
    "left_without": "remaining_without",
}
CODE_ONLY = {  # identifiers that are also English words or values: in code, `...` and __all__ only
    "snapshot": "cluster_view",
    "_snapshot": "_cluster_view",
}
CLASSES = [  # old, new, part of the path of the defining module: there and where it is imported
    ("Reports", "PodStatusReporter", "engine/"),
    ("Search", "NodeSearch", "engine/"),
    ("PodState", "PlacedPod", "state/"),
    ("Trials", "WhatIfRunner", ""),
    ("Tried", "TryRequest", ""),
    ("Compared", "CompareRequest", "page/"),
    ("Compared", "CompareRequest", "whatif/"),
    ("Compared", "CompareRequest", "what_if/"),
    ("Compared", "WatchedResource", "mirroring/"),
    ("Slices", "Pausing", "engine/"),
    ("Slices", "TimeSlices", "kube/"),
    ("Effective", "ResolvedProfile", "policy/"),
    ("InForce", "ActiveProfile", "engine/"),
    ("Readings", "StateCollector", "observe/"),
    ("_Wanted", "_LabelConstraint", "policy/match.py"),
    ("_Wanted", "_ExclusiveVolumes", "plugins/volume_restrictions.py"),
    ("_Wanted", "_RequestedCards", "plugins/gpu_fragmentation.py"),
    ("_Wanted", "_CSIVolumes", "plugins/node_volume_limits.py"),
    ("_Wanted", "_Selectors", "plugins/node_affinity.py"),
    ("_Wanted", "_CloudDisks", "plugins/cloud_volume_counts.py"),
    ("_Wanted", "_RequiredLabels", "plugins/service_affinity.py"),
    ("_Trial", "_ChangedPodTrial", "engine/"),
    ("_Trial", "_PluginInScenario", "testing/contract.py"),
    ("_Left", "_Remaining", "engine/groups/"),
]
# After a dot or `def`, or as the target of `self.`: these methods and attributes.
ATTRIBUTES = [  # regular expression of code, replacement, glob of files
    (r"(?<=reflectors\.)lacking\b|(?<=kopf\.)lacking\b|(?<=operator\.)lacking\b|(?<=def )lacking(?=\(self)",
     "problem", "**/*.py"),
    # `pipeline.row_local` is a set of names; a plugin's or weighted plugin's is True or False.
    (r"(?<=pipeline\.)depends_on_node_only\b", "plugins_of_node_only", "**/*.py"),
    (r"(?<=with_racks\(\)\.)depends_on_node_only\b", "plugins_of_node_only", "**/*.py"),
    (r"depends_on_node_only(?=: frozenset\[str\]|=frozenset\()", "plugins_of_node_only",
     "operator/mooring/framework/pipeline.py"),
    # left: what remains free of the cards
    (r"(?<=def )left(?=\(self, rows: IntArray\) -> RemainingCards)", "remaining", "**/cards.py"),
    (r"(?<=cards\.)left(?=\()|(?<=books\.)left(?=\()", "remaining", "**/*.py"),
    (r"(?<=\.)left(?=\.free)", "remaining", "**/gpu_share/*.py"),
    # left: what remains free on the rows, and of the budget of a search
    (r"(?<=def )left(?=\(self, slots)|(?<=self\.)left(?=\()|(?<=search\.)left(?=\()",
     "remaining", "operator/mooring/engine/**/*.py"),
    (r"(?<=udget\.)left\b", "remaining", "**/*.py"),
    (r"(?<=attempt\.)left\b", "remaining_seconds", "operator/mooring/engine/**/*.py"),
    (r"\bleft(?=: float = _CALLING_SECONDS)", "remaining_seconds", "**/*.py"),
    # left: how many members of a group have left their nodes
    (r"(?<=group\.)left\b", "departed_pods_count", "**/*.py"),
    (r'"left"(?=,)', '"departed_pods_count"', "operator/mooring/state/pod_groups.py"),
    (r"(?<=self\.)left(?= = 0)", "departed_pods_count", "operator/mooring/state/pod_groups.py"),
    # left: a pod that is not pending any more
    (r"\bleft=(?=self\._pod_left|(self\.)?_?reports\.|lambda _: None|self\.left\.append)", "not_pending=",
     "**/*.py"),
    (r"(?<=made\[0\]\.)left(?=\()|(?<=shadow\.)left(?=\()|(?<=shadow\.)left(?=,|\))", "forget", "**/*.py"),
    (r"(?<=def )left(?=\(self, uid: str\))", "forget", "operator/mooring/engine/shadow.py"),
]
LOCALS = {  # file -> renames of local names in the whole file, in this order
    "operator/mooring/state/devices/cards.py": {"left": "remaining"},
    "operator/mooring/state/devices/fragmentation.py": {"left": "remaining"},
    "operator/mooring/plugins/gpu_fragmentation.py": {"left": "remaining"},
    "operator/mooring/plugins/gpu_topology/plugin.py": {"left": "remaining"},
    "operator/mooring/plugins/gpu_share/placing.py": {
        "remaining": "free_after", "left": "remaining"
    },
    "operator/mooring/engine/pod_enqueuer.py": {"left": "not_pending", "_left": "_not_pending"},
    "tests/state/devices/test_fragmentation.py": {"left": "remaining"},
    "tests/plugins/gpu_share/test_placing.py": {"left": "remaining"},
    "operator/mooring/engine/groups/packing.py": {"left": "remaining"},
    "operator/mooring/engine/groups/slices.py": {"left": "remaining"},
    "operator/mooring/engine/groups/calls.py": {"left": "remaining"},
}
TEXTS = [  # exact texts, which no rule above makes right; (old, new)
    ("does not say whether it is depends_on_node_only", "does not set depends_on_node_only"),
    ('("ignore_pods", "depends_on_node_object_only")',
     '("depend_on_node_object_only", "depends_on_node_object_only")'),
    ('    "depends_on_node_object_only",\n)\n"""What else',
     '    "depends_on_node_only",\n    "depends_on_node_object_only",\n)\n"""What else'),
    ("the plugin `depends_on_node_object_only`.", "the plugin sets `depends_on_node_object_only`."),
    ("PodEnqueuer looks it up", "`PodEnqueuer` looks it up"),
    ("PodEnqueuer, loop and preemption", "The pod enqueuer, the loop and the preemption"),
    ("A plugin with `depends_on_node_only = True` promises", "A node-only plugin (`depends_on_node_only = True`) promises"),
    ("A node-only plugin may also set", "Such a node-only plugin may also set"),
]
TEXTS += [
    ("depends_on_node_only: ClassVar[bool] = True  # a node's results depend on the pod's spec and that node",
     "depends_on_node_only: ClassVar[bool] = True  # results depend on the pod's spec and that node"),
]
PROSE = [  # "row-local" in texts
    (r"\brow-local plugins\b", "node-only plugins"),
    (r"\bRow-local plugins\b", "Node-only plugins"),
    (r"\b([Aa]) row-local\b", r"\1 node-only"),
    (r"\brow-local\b", "node-only"),
]

log: Counter[str] = Counter()
by_hand: list[str] = []


def files(*patterns: str) -> list[Path]:
    found = {p for pattern in patterns for p in ROOT.glob(pattern) if p.is_file()}
    return sorted(p for p in found if ".venv" not in p.parts and "__pycache__" not in p.parts)


def python() -> list[Path]:
    return files("operator/**/*.py", "tests/**/*.py")


def texts() -> list[Path]:
    return files("*.md", "docs/*.md", ".importlinter", "Makefile", "tests/**/*.md")


def word(name: str) -> str:
    return rf"(?<![\w]){re.escape(name)}(?![\w])"


def change(path: Path, edit) -> None:  # type: ignore[no-untyped-def]
    """Edit the file; of CHANGELOG.md the part before the first release alone."""
    old = path.read_text()
    head, rest = old, ""
    if path.name == "CHANGELOG.md":
        cut = re.search(r"^## \[\d", old, re.M)
        head, rest = (old[: cut.start()], old[cut.start() :]) if cut else (old, "")
    new = edit(head) + rest
    if new != old:
        path.write_text(new)


def renamed_tokens(source: str, names: dict[str, str], in_texts) -> str:  # type: ignore[no-untyped-def]
    """Rename the identifiers of Python source; strings and comments go through `in_texts`."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    pieces, at = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and token.string in names:
            new = names[token.string]
            log[token.string] += 1
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            new = in_texts(token.string)
        else:
            continue
        begin = starts[token.start[0] - 1] + token.start[1]
        end = starts[token.end[0] - 1] + token.end[1]
        pieces += [source[at:begin], new]
        at = end
    return "".join(pieces) + source[at:]


def in_backticks(names: dict[str, str]):  # type: ignore[no-untyped-def]
    """Rename in `...`, in a text that is a name or a type alone, and in parts {...} of f-strings."""

    def edit(text: str) -> str:
        for old, new in names.items():
            whole = rf"""^[rf]*["']+[\w\[\], |.]*{word(old)}[\w\[\], |.]*["']+$"""
            if re.match(whole, text) and (text.strip("\"'") == old or "|" in text or "[" in text):
                text = re.sub(word(old), new, text)
            text = re.sub(
                r"`[^`\n]*`", lambda m, o=old, n=new: re.sub(word(o), n, m[0]), text
            )
            if text[:1] in "fF" or text[:2].lower() in ("rf", "fr"):
                text = re.sub(
                    r"\{[^{}]*\}", lambda m, o=old, n=new: re.sub(word(o), n, m[0]), text
                )
        return text

    return edit


def everywhere(names: dict[str, str]):  # type: ignore[no-untyped-def]
    pattern = re.compile("|".join(word(old) for old in sorted(names, key=len, reverse=True)))

    def edit(text: str) -> str:
        def one(match: re.Match[str]) -> str:
            log[match[0]] += 1
            return names[match[0]]

        return pattern.sub(one, text)

    return edit


def git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)


def move_modules() -> None:
    for old, new in MODULES.items():
        if not (ROOT / SOURCE / old).exists():
            by_hand.append(f"module not found: {old}")
            continue
        if (ROOT / SOURCE / new).exists():
            by_hand.append(f"module exists already, {old} was not moved: {new}")
            continue
        test, new_test = (str(Path("tests", p).with_name(f"test_{Path(p).name}")) for p in (old, new))
        git("mv", f"{SOURCE}/{old}", f"{SOURCE}/{new}")
        if (ROOT / test).exists():
            git("mv", test, new_test)
        dotted = [p.removesuffix(".py").replace("/", ".") for p in (old, new)]
        pairs = [
            (rf"\bmooring\.{re.escape(dotted[0])}\b", f"mooring.{dotted[1]}"),
            (rf"(?<![\w/]){re.escape(old)}\b|(?<=mooring/){re.escape(old)}\b", new),
            (re.escape(test), new_test),
        ]
        for path in python() + texts():
            change(path, lambda t: [t := re.sub(a, b, t) for a, b in pairs][-1])
        name, new_name = Path(old).stem, Path(new).stem
        package = dotted[0].rpartition(".")[0]
        for path in files(".importlinter"):  # a bare name in a list of layers of its package
            def contract(text: str) -> str:
                parts = re.split(r"(?m)^(?=\[importlinter)", text)
                return "".join(
                    re.sub(rf"(?m)^( .*?){word(name)}", rf"\g<1>{new_name}", part)
                    if re.search(rf"(?m)^    mooring\.{re.escape(package)}$", part) else part
                    for part in parts
                )
            change(path, contract)
        for path in python():  # from mooring.engine import intake
            change(path, lambda t: re.sub(
                rf"(from mooring\.{re.escape(package)} import [^\n]*){word(name)}",
                rf"\g<1>{new_name}", t))


def rename_classes() -> None:
    for old, new, where in CLASSES:
        defining = [
            p for p in files(f"{SOURCE}/**/*.py")
            if where in str(p.relative_to(ROOT / SOURCE))
            and re.search(rf"(?m)^(class {old}\b|{old}(: TypeAlias)? *=)", p.read_text())
        ]
        if not defining:
            log[old] += 0
            continue
        modules = {
            "mooring." + ".".join(p.relative_to(ROOT / SOURCE).with_suffix("").parts)
            for p in defining
        }
        for path in python():
            source = path.read_text()
            imports = {
                (node.module, alias.name)
                for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            here = path in defining
            uses = here or any((module, old) in imports for module in modules)
            if not uses and not any(f"{m.rpartition('.')[2]}.{old}" in source for m in modules):
                continue
            others = {m for m, name in imports if name == old} - modules
            if others:
                by_hand.append(f"{path.relative_to(ROOT)}: {old} of {modules} and of {others}")
                continue
            names = {old: new}
            path.write_text(renamed_tokens(source, names, in_backticks(names)))
        for path in python() + texts():  # mooring.page.trials.Tried, mooring.engine.reports:Reports
            for module in modules:
                change(path, lambda t: re.sub(
                    rf"({re.escape(module)}[.:]){word(old)}", rf"\g<1>{new}", t))
        for path in texts():
            if old not in ("Compared", "Reports", "Search", "PodState", "InForce", "Slices"):
                change(path, lambda t: re.sub(rf"(?<=`){old}(?=[`.])", new, t))


def inline_about(path: Path) -> None:
    """Write the arguments of `f(*about)` where they are used."""
    source = path.read_text()
    if "*about" not in source:
        return
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    raw = source.encode()

    def span(node: ast.AST) -> tuple[int, int]:
        return (
            starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    edits: list[tuple[int, int, bytes]] = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for name in ("about", "about_all"):
            given = [
                n for n in ast.walk(function)
                if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
                and n.targets[0].id == name and isinstance(n.value, ast.Tuple)
            ]
            loads = [
                n for n in ast.walk(function)
                if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
            ]
            stars = [
                n for n in ast.walk(function)
                if isinstance(n, ast.Starred) and isinstance(n.value, ast.Name) and n.value.id == name
            ]
            if len(given) != 1 or not stars or len(loads) != len(stars):
                if stars:
                    by_hand.append(f"{path.relative_to(ROOT)}:{function.lineno}: *{name}")
                continue
            value = given[0].value
            assert isinstance(value, ast.Tuple)
            arguments = b", ".join(raw[slice(*span(e))] for e in value.elts)
            edits += [(*span(star), arguments) for star in stars]
            first = starts[given[0].lineno - 1]
            edits.append((first, starts[given[0].end_lineno or 0], b""))
            log["*about"] += 1
    for begin, end, new in sorted(set(edits), reverse=True):
        raw = raw[:begin] + new + raw[end:]
    path.write_text(raw.decode())


def clashes() -> None:
    """List files where a new local name was there before."""
    new = {*NAMES.values(), *CODE_ONLY.values()}
    for path in python():
        names = {
            t.string for t in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
            if t.type == tokenize.NAME
        }
        for name in sorted(names & new):
            by_hand.append(f"{path.relative_to(ROOT)}: has {name} already")


def filled(words: list[str], first: str, follow: str, width: int) -> list[str]:
    out, current, empty = [], first, True
    for item in words:
        if not empty and len(current) + 1 + len(item) > width:
            out.append(current)
            current, empty = follow, True
        current += item if empty else " " + item
        empty = False
    return [*out, current]


def rewrap_python(path: Path, numbers: set[int]) -> None:
    """Wrap the comments and paragraphs of docstrings with these lines, which are too wide."""
    source = path.read_text()
    lines = source.split("\n")
    inside: dict[int, ast.Expr] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number in range(node.lineno, (node.end_lineno or 0) + 1):
                inside[number] = node
    for number in sorted(numbers, reverse=True):
        line = lines[number - 1]
        lead = re.match(r" *(?:# )?", line)[0]  # type: ignore[index]
        comment = lead.endswith("# ")
        node = inside.get(number)
        if not comment and (node is None or node.lineno == number and ast.get_docstring is None):
            by_hand.append(f"{path.relative_to(ROOT)}:{number}: too wide: {line.strip()}")
            continue
        if node is not None and node.lineno == number and number != node.end_lineno and not lines[number].strip():
            by_hand.append(f"{path.relative_to(ROOT)}:{number}: first line too wide: {line.strip()}")
            continue
        last = len(lines) if comment else (node.end_lineno or 0)  # type: ignore[union-attr]
        attribute = node is not None and node.lineno == number == node.end_lineno
        if attribute and re.match(r"\s*(async )?(def|class) ", lines[number - 2]):
            by_hand.append(f"{path.relative_to(ROOT)}:{number}: first line too wide: {line.strip()}")
            continue
        end = number
        while end < last and lines[end].startswith(lead) and lines[end][len(lead):][:1] not in ("", " ", "-", '"'):
            end += 1
        text = " ".join([line[len(lead):], *(n[len(lead):] for n in lines[number:end])])
        closing = ""
        if node is not None and end == node.end_lineno and text.endswith('"""'):
            text, closing = text[:-3], '"""'
        bullet = re.match(r"(?:[-*] |\d+\. |)", text)[0]  # type: ignore[index]
        out = filled(text[len(bullet):].split(), lead + bullet, lead + " " * len(bullet), 100 - (3 if closing and attribute else 0))
        if closing:
            out[-1] += closing
        lines[number - 1 : end] = out
    path.write_text("\n".join(lines))


def rewrap_markdown(path: Path, known: set[str], width: int = 120) -> None:
    """Wrap the paragraphs that are too wide now."""
    lines = path.read_text().split("\n")
    fence, number = False, 0
    while number < len(lines):
        line = lines[number]
        if line.lstrip().startswith("```"):
            fence = not fence
        if len(line) <= width or line in known or fence or line.lstrip().startswith(("|", "#")):
            number += 1
            continue
        lead, bullet = re.match(r"( *)((?:[-*] |\d+\. )?)", line).groups()  # type: ignore[union-attr]
        follow = lead + " " * len(bullet)
        end = number + 1
        while end < len(lines) and lines[end].strip() and lines[end].startswith(follow):
            rest = lines[end][len(follow):]
            if rest[:1] == " " or re.match(r"([-*] |\d+\. |\||#|```|>)", rest):
                break
            end += 1
        text = " ".join([line[len(lead + bullet):], *(n[len(follow):] for n in lines[number + 1 : end])])
        text = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", lambda m: m[0].replace(" ", "\0"), text)
        out = filled(text.split(), lead + bullet, follow, width)
        lines[number:end] = [o.replace("\0", " ") for o in out]
        number += len(out)
    path.write_text("\n".join(lines))


def rewrap() -> None:
    found = subprocess.run(
        [RUFF, "check", "--select", "E501", "--output-format", "json", "operator", "tests"],
        cwd=ROOT, capture_output=True, text=True,
    ).stdout
    wide: dict[Path, set[int]] = {}
    for item in json.loads(found):
        wide.setdefault(Path(item["filename"]), set()).add(item["location"]["row"])
    for path, numbers in wide.items():
        rewrap_python(path, numbers)
    for path in texts():
        if path.suffix == ".md" and path.name != "CHANGELOG.md":
            before = subprocess.run(
                ["git", "-C", str(ROOT), "show", f"HEAD:{path.relative_to(ROOT)}"],
                capture_output=True, text=True,
            ).stdout
            if before != path.read_text():
                rewrap_markdown(path, set(before.split("\n")))


SPEC_NAMES = {
    "PodShape": "PodSpec", "pod_shape": "pod_spec", "ShapeCache": "PodSpecCache",
    "TestShapeCache": "TestPodSpecCache", "ShapeResults": "SpecResults",
    "ShapeEvaluations": "SpecEvaluations", "shape": "spec", "shapes": "specs",
    "_shapes": "_specs", "_shape": "_parsed", "_SHAPES": "_SPECS", "_shape_key": "_spec_key",
    "by_shape": "by_spec", "by_shapes": "by_specs", "_by_shapes": "_by_specs",
    "decided_by_shapes": "decided_by_specs", "depends_on_shape_alone": "depends_on_spec_alone",
    "unscheduled_shapes": "unscheduled_specs", "_unscheduled_shapes": "_unscheduled_specs",
    "_MOST_SHAPES": "_MOST_SPECS", "_BYTES_PER_SHAPE": "_BYTES_PER_SPEC", "shape_of": "spec_of",
    "of_shape": "of_spec", "_shapes_that_go": "_specs_that_go",
    "_shapes_that_come": "_specs_that_come",
}
NOT_SPECS = (  # here a shape is that of an array, a drawing, an answer or a utilization curve
    "operator/mooring/policy/", "tests/policy/", "tests/conformance/",
    "operator/mooring/simulate/picture.py", "operator/mooring/framework/runtime.py",
    "operator/mooring/kube/", "tests/plugins/test_allocation_scores.py",
    "tests/property/test_scores_of_few_nodes.py", "tests/state/test_view.py",
    "tests/cli/test_simulate_terminal.py",
)
ARRAYS = {"free", "shares", "number", "total", "np", "bits", "padded", "mask", "args", "found",
          "requested_to_capacity_ratio", "array", "column", "raw", "answer", "counts", "values"}
CURVES = ("operator/mooring/plugins/node_resources_fit.py", "tests/plugins/test_node_resources_fit.py")  # only attributes of pods are specs
NOT_IN_TEXT = re.compile(r"dtype|numpy|arrays? (?!and the shape)|utilization|requestedToCapacity|types of `mooring|^ *shape:")


def spec_in_text(text: str) -> str:
    lines = []
    for line in text.split("\n"):
        if not NOT_IN_TEXT.search(line):
            line = re.sub(r"\bPodShape\b", "PodSpec", line)
            line = re.sub(r"\b(pod\.)?shape(s?)\b", r"\1spec\2", line)
            for old in ("by_shapes", "decided_by_shapes", "unscheduled_shapes", "pod_shape"):
                line = re.sub(word(old), SPEC_NAMES[old], line)
            line = line.replace("ShapeEvaluations", "SpecEvaluations").replace("ShapeResults", "SpecResults").replace("ShapeCache", "PodSpecCache")
        lines.append(line)
    return "\n".join(lines)


def spec_tokens(path: Path) -> None:
    source, relative = path.read_text(), str(path.relative_to(ROOT))
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    pieces, at = [], 0
    for number, token in enumerate(tokens):
        new = token.string
        before = [t.string for t in tokens[max(0, number - 2) : number]]
        after = tokens[number + 1].string if number + 1 < len(tokens) else ""
        if token.type == tokenize.NAME:
            attribute = before[-1:] == ["."]
            of_array = attribute and (before[0] in ARRAYS or (token.string == "shape" and after == "[" and before[0] not in ("pod",)))
            if relative in CURVES and not attribute:
                of_array = True
            if token.string in SPEC_NAMES and not of_array:
                new = SPEC_NAMES[token.string]
            elif token.string.startswith("test_") and "shape" in token.string:
                new = re.sub(r"(?<![a-z])shape(s?)(?![a-z])", r"spec\1", token.string)
        elif token.type == tokenize.COMMENT:
            new = spec_in_text(new)
        elif token.type == tokenize.STRING:
            if '"""' in new[:4]:
                new = spec_in_text(new)
            elif re.fullmatch(r'"\w+"', new) and new.strip('"') in SPEC_NAMES and new not in ('"shape"', '"_shape"', '"shapes"'):
                new = f'"{SPEC_NAMES[new.strip(chr(34))]}"'
            elif new[:1] == "f":
                for old, spec in SPEC_NAMES.items():
                    new = re.sub(r"\{[^{}]*\}", lambda m: re.sub(rf"(?<!\")" + word(old), spec, m[0]), new)
            new = new.replace("PodShape", "PodSpec")
        if new != token.string:
            begin = starts[token.start[0] - 1] + token.start[1]
            pieces += [source[at:begin], new]
            at = starts[token.end[0] - 1] + token.end[1]
    path.write_text("".join(pieces) + source[at:])


def pod_spec() -> None:
    """PodShape -> PodSpec, `pod.shape` -> `pod.spec`, and the word shape in texts -> spec."""
    if not (ROOT / SOURCE / "model/shape.py").exists():
        by_hand.append("module not found: model/shape.py")
        return
    MODULES.clear()
    MODULES["model/shape.py"] = "model/pod_spec.py"
    move_modules()
    module, test = ROOT / SOURCE / "model/pod_spec.py", ROOT / "tests/model/test_pod_spec.py"
    source = module.read_text()
    head, mark, rest = source.partition("def _shape(key: bytes)")
    body, end, tail = rest.partition("\n\n\n")
    body = renamed_tokens(mark + body, {"shape": "parsed"}, str)
    module.write_text(head + body + end + tail)
    if test.exists():
        test.write_text(re.sub(r'(?<![.\w"\-])shape(?= = |\.|\))', "parsed", test.read_text()).replace(
            "test_the_shape_has_the_fields_of_the_spec", "test_a_parsed_spec_has_the_fields_of_the_raw_one"))
    for path in python():
        if not str(path.relative_to(ROOT)).startswith(NOT_SPECS):
            spec_tokens(path)
    for path in texts():
        if path.suffix == ".md" and path.name not in ("CHANGELOG.md", "CONTRIBUTING.md", "profiles.md"):
            change(path, spec_in_text)
    exact = [
        ("equal specs share a spec.", "equal specs are one object."),
        ("Return the spec of a pod with this spec;", "Return the parsed spec of a pod;"),
        ("(`pod.spec`, what\ndecisions read of the spec)", "(`pod.spec`, what\ndecisions read of it)"),
        ("(`pod.spec`,\nwhat decisions read of the spec)", "(`pod.spec`,\nwhat decisions read of it)"),
        ("The fields of a pod's spec that decisions read; equal pods share one object.",
         "What decisions read of a pod's spec; pods that are equal in it share one object."),
        ("types, specs and dtypes", "types, shapes and dtypes"),
    ]
    for path in python() + texts():
        change(path, lambda t: [t := t.replace(a, b) for a, b in exact][-1])


CHANGED = """- For authors of plugins: names of the plugin protocol say what they mean. A plugin that still has
  `row_local` is not loaded, and the condition Ready of its profiles says so.

  | until now | from now on |
  |---|---|
  | `row_local = True` | `depends_on_node_only = True` |
  | `ignores_pods = True` | `depends_on_node_object_only = True` |
  | `mooring.state.snapshot.Snapshot` | `mooring.state.cluster_view.ClusterView` |
"""
CHANGED_SPEC = """  | `pod.shape` (`mooring.model.shape.PodShape`) | `pod.spec` (`mooring.model.pod_spec.PodSpec`) |
"""


def write_changelog() -> None:
    path, text = ROOT / "CHANGELOG.md", CHANGED
    if (ROOT / SOURCE / "model/pod_spec.py").exists():
        text += CHANGED_SPEC
    log_text = path.read_text()
    before, mark, after = log_text.partition("### Changed\n\n")
    assert mark and "## [0" not in before, "CHANGELOG.md has no Changed at its top"
    path.write_text(before + mark + text + after)


def main() -> None:
    clashes()
    move_modules()
    rename_classes()
    in_glob = {where: set(files(where)) for _, _, where in ATTRIBUTES}
    code_edit, both = in_backticks(CODE_ONLY), {**NAMES, **CODE_ONLY}
    prose = {k: v for k, v in NAMES.items() if k not in ("intake", "_intake")}
    text_edit = everywhere(prose)
    for path in python():
        change(path, lambda t: renamed_tokens(t, both, lambda s: code_edit(text_edit(s))))
        relative = str(path.relative_to(ROOT))
        for pattern, replacement, where in ATTRIBUTES:
            if path in in_glob[where]:
                def edit(t: str) -> str:
                    new, count = re.subn(pattern, replacement, t)
                    log[f"/{pattern}/"] += count
                    return new
                change(path, edit)
        for old, new in LOCALS.get(relative, {}).items():
            change(path, lambda t: renamed_tokens(t, {old: new}, in_backticks({old: new})))
        inline_about(path)
    for path in texts():
        if path.name == ".importlinter":
            continue
        change(path, text_edit)
    for path in python() + texts():
        def prose_edit(t: str) -> str:
            for pattern, replacement in PROSE:
                t = re.sub(pattern, replacement, t)
            for old, new in TEXTS:
                t = t.replace(old, new)
            return t
        change(path, prose_edit)
    if "--keep-shape" not in sys.argv:
        pod_spec()
    write_changelog()
    subprocess.run([RUFF, "check", "-q", "--select", "I,RUF022,RUF023", "--fix", "operator", "tests"], cwd=ROOT)
    subprocess.run([RUFF, "format", "-q", "operator", "tests"], cwd=ROOT)
    rewrap()
    for name in (*NAMES, *CODE_ONLY, *(f"/{a[0]}/" for a in ATTRIBUTES), *(c[0] for c in CLASSES)):
        if not log[name]:
            print("not found:", name)
    print("\n".join(f"by hand: {line}" for line in by_hand))
    subprocess.run([RUFF, "check", "operator", "tests", "--output-format", "concise"], cwd=ROOT)


main()
