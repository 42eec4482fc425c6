import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cli.running import ask, serving
from deciding import keep
from live_cluster import LiveCluster
from mooring.cli.simulate import simulate
from mooring.framework.decision import Decision, PodRef
from mooring.model.wording import plural
from mooring.observe.records import DecisionLog
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.simulate.server import server_object
from mooring.testing.builders import api_object, node, pod, queue_object, uid_of


def dump(path: Path, *objects: dict[str, Any]) -> str:
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return str(path)


def invoke(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(simulate, list(words), input=stdin)


def test_the_table_aligns_pod_node_score_and_why(tmp_path: Path) -> None:
    cluster = dump(
        tmp_path / "cluster.json", node("n1"), pod("web", cpu="1"), pod("large", cpu="9")
    )
    result = invoke(cluster)
    head, web, large, _, summary = result.stdout.splitlines()
    assert head.split() == ["POD", "NODE", "SCORE", "WHY"]
    assert web.split(maxsplit=3)[:3] == ["default/web", "n1", "-"]
    assert large.index("0/1 nodes are available") == head.index("WHY")
    assert summary == "1 of 2 placed; 1: Insufficient cpu"
    assert result.exit_code == 1


def test_a_tenants_text_cannot_control_the_terminal(tmp_path: Path) -> None:
    waiting = pod("web")
    waiting["spec"]["schedulerName"] = "my\x1b]0;title\x07"
    result = invoke(dump(tmp_path / "a.json", node("n1"), waiting))
    assert result.stdout.count(r'schedulerName "my\x1b]0;title\x07"') == 2
    assert all(line.isprintable() for line in result.stdout.splitlines())


def test_the_exit_code_is_0_if_every_pod_is_scheduled(tmp_path: Path) -> None:
    assert invoke(dump(tmp_path / "a.json", node("n1"), pod())).exit_code == 0


def test_json_has_the_form_of_the_decision_record(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", node("n1"), node("n2", cpu="1"), pod("web", cpu="2"))
    result = invoke(cluster, "-o", "json")
    (decision,) = json.loads(result.stdout)["decisions"]
    assert decision == {
        "pod": "default/web",
        "profile": "default-scheduler",
        "profileGeneration": 0,
        "kubernetesVersion": "1.37",
        "node": "n1",
        "nominatedNode": None,
        "victims": [],
        "scores": None,
        "rejections": {
            "n2": {
                "plugin": "NodeResourcesFit",
                "reasons": ["Insufficient cpu"],
                "resolvable": False,
            }
        },
        "message": None,
    }


def test_the_same_input_and_seed_print_the_same_bytes(tmp_path: Path) -> None:
    nodes, pods = [node(f"n{i}") for i in range(9)], [pod(f"p{i}") for i in range(9)]
    cluster = dump(tmp_path / "a.json", *nodes, *pods)
    first = invoke(cluster, "-o", "json", "--seed", "4").stdout
    assert first == invoke(cluster, "-o", "json", "--seed", "4").stdout
    assert first != invoke(cluster, "-o", "json", "--seed", "5").stdout


def test_a_dash_means_standard_input_also_beside_files(tmp_path: Path) -> None:
    nodes = dump(tmp_path / "nodes.json", node("n1"))
    result = invoke(nodes, "-", stdin=json.dumps(pod()))
    assert "default/web" in result.stdout
    assert result.exit_code == 0


def test_profile_option_replaces_the_defaults(tmp_path: Path) -> None:
    profile = tmp_path / "config.yaml"
    profile.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "parallelism: 4\n"
        "profiles: [{schedulerName: mine}]\n"
    )
    cluster = dump(tmp_path / "a.json", node("n1"), pod(spec={"schedulerName": "mine"}))
    result = invoke(cluster, "--profile", str(profile))
    assert result.exit_code == 0
    assert f"note: {profile}: parallelism: is left out" in result.stderr


@pytest.mark.parametrize("named", ["empty.yaml", ""])
def test_the_defaults_do_not_stand_in_for_a_profile_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.yaml").touch()
    result = invoke(dump(tmp_path / "a.json", node("n1"), pod()), "--profile", named)
    assert (result.stdout, result.exit_code) == ("", 2)
    assert result.stderr.startswith("error: ")


def test_ignored_kinds_are_named_on_standard_error(tmp_path: Path) -> None:
    file = dump(tmp_path / "a.json", api_object("ConfigMap", "c"), pod())
    for words in ((), ("--compare", *policies(tmp_path)), ("deployment/web",)):
        result = invoke(file, *words)
        assert "ignored objects of kinds that no decision reads: ConfigMap (1)" in result.stderr


def test_the_exit_code_is_2_if_there_is_nothing_to_schedule(tmp_path: Path) -> None:
    stored = api_object("Deployment", "web") | {"apiVersion": "apps/v1"}
    result = invoke(dump(tmp_path / "a.json", node("n1"), stored))
    assert "note: Deployment default/web: a cluster has stored it" in result.stderr
    assert "error: there is no pod without a node to schedule" in result.stderr
    assert (result.stdout, result.exit_code) == ("", 2)


def test_bad_input_is_one_line_and_the_exit_code_is_2(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", pod(cpu="1x"))
    result = invoke(cluster)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        f"error: {cluster}, document 1, items[0]: Pod default/web "
        "spec.containers[0].resources.requests.cpu: '1x' is not a quantity"
    )


@pytest.mark.parametrize("output", ["wide", "yaml"])
def test_a_wide_table_and_yaml_show_the_best_nodes(tmp_path: Path, output: str) -> None:
    nodes = [node(f"n{i}") for i in range(6)]
    cluster = dump(tmp_path / "a.json", *nodes, pod("web", cpu="1"))
    result = invoke(cluster, "-o", output, *(["--top", "2"] if output == "yaml" else []))
    if output == "yaml":
        (decision,) = yaml.safe_load(result.stdout)["decisions"]
        assert len(decision["scores"]) == 2
    else:
        head, row, *_ = result.stdout.splitlines()
        assert head.split()[:5] == ["POD", "NODE", "SCORE", "FEASIBLE", "PROFILE"]
        assert row.split()[3] == "6"


def test_files_may_be_given_as_for_kubectl(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", node("n1"), pod("web"))
    assert invoke("-f", cluster).stdout == invoke(cluster).stdout


def owned(name: str, kind: str, owner: str, **fields: Any) -> dict[str, Any]:
    return pod(name, owner={"kind": kind, "name": owner, "uid": "u"}, **fields)


def test_a_type_and_a_name_choose_the_pods(tmp_path: Path) -> None:
    replica_set = api_object("ReplicaSet", "web-1", namespace="default")
    replica_set["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "web"}]
    pods = [owned("a", "ReplicaSet", "web-1"), owned("b", "Job", "night-28"), pod("c")]
    cluster = dump(tmp_path / "a.json", node("n1"), replica_set, *pods)
    for words, names in {
        ("deploy/web",): "a",
        ("cronjob/night", "pod/c"): "bc",
        ("job/night-28",): "b",
        ("rs/web-1",): "a",
    }.items():
        result = invoke(cluster, *words, "-o", "json")
        decisions = json.loads(result.stdout)["decisions"]
        assert "".join(d["pod"].removeprefix("default/") for d in decisions) == names
    result = invoke(cluster, "sts/web", "pod/c")
    assert (result.stdout, result.exit_code) == ("", 2)
    assert (
        result.stderr
        == "error: there is no pod of statefulset/web among the objects that were read\n"
    )


def test_a_namespace_chooses_its_pods(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", node("n1"), pod("a"), pod("b", namespace="shop"))
    result = invoke(cluster, "-n", "shop", "-o", "json")
    assert [d["pod"] for d in json.loads(result.stdout)["decisions"]] == ["shop/b"]
    result = invoke(cluster, "-n", "shp")
    assert result.stderr == "error: there is no pod without a node to schedule in namespace shp\n"


def test_running_pods_are_scheduled_anew_with_all_pods(tmp_path: Path) -> None:
    small = node("n1", cpu="1"), node("n2", cpu="1")
    running = pod("a", cpu="1", node="n1"), pod("b", cpu="1", node="n2")
    terminating = pod("c", node="n1", terminating=True)
    static = pod("d", node="n1", annotations={"kubernetes.io/config.mirror": "x"})
    cluster = dump(tmp_path / "a.json", *small, *running, terminating, static)
    result = invoke(cluster, "--all-pods", "-o", "json")
    decisions = json.loads(result.stdout)["decisions"]
    assert {d["pod"] for d in decisions} == {"default/a", "default/b"}
    assert {d["node"] for d in decisions} == {"n1", "n2"}
    without = invoke(cluster)
    assert "; 4 running pods could be with --all-pods" in without.stderr
    assert without.exit_code == 2


def test_a_profile_can_be_put_on_pods_that_it_does_not_match(tmp_path: Path) -> None:
    profile = tmp_path / "packed.yaml"
    profile.write_text(
        "apiVersion: scheduling.mooring.dev/v1alpha1\n"
        "kind: SchedulingProfile\n"
        "metadata: {name: packed}\n"
    )
    cluster = dump(tmp_path / "a.json", node("n1"), pod("web"))
    rest = ("--profile", str(profile))
    assert "no profile takes pods of schedulerName" in invoke(cluster, *rest).stdout
    assert invoke(cluster, *rest, "--as", "packed").exit_code == 0
    result = invoke(cluster, *rest, "--as", "spread")
    assert result.stderr == 'error: there is no profile "spread"; there are packed\n'
    assert result.exit_code == 2


async def test_without_a_file_the_live_cluster_is_read_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    live = LiveCluster(node("n1"), pod("web", cpu="1"), pod("large", cpu="9"))
    result = await live.invoke(simulate, tmp_path)
    assert "1 of 2 placed; 1: Insufficient cpu" in result.stdout
    assert "note: Mooring is not installed in the cluster" in result.stderr
    assert live.methods == {"GET"}


async def test_a_saved_cluster_is_decided_as_the_live_one(tmp_path: Path) -> None:
    live = LiveCluster(*(node(f"n{i}") for i in range(5)), *(pod(f"p{i}") for i in range(9)))
    saved = tmp_path / "cluster.jsonl"
    result = await live.invoke(simulate, tmp_path, "-o", "json", "--save", str(saved))
    assert invoke(str(saved), "-o", "json").stdout == result.stdout


async def test_files_may_be_tried_beside_the_live_cluster(tmp_path: Path) -> None:
    new = tmp_path / "pod.yaml"
    new.write_text("{apiVersion: v1, kind: Pod, metadata: {name: new}, spec: {containers: [")
    new.write_text(new.read_text() + "{name: c, image: a}]}}")
    live = LiveCluster(node("n1"), pod("web"))
    result = await live.invoke(simulate, tmp_path, str(new), "pod/new", "--cluster", "-o", "json")
    assert [d["node"] for d in json.loads(result.stdout)["decisions"]] == ["n1"]


def test_a_context_that_files_make_no_use_of_is_wrong_usage(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", node("n1"), pod())
    for option in ("--context=none", "--kubeconfig=none"):
        result = invoke(cluster, option)
        assert result.exit_code == 2
        assert "--kubeconfig and --context need --cluster beside FILEs" in result.stderr


def test_a_cluster_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    result = invoke("--kubeconfig", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: kubeconfig")
    assert len(result.stderr.splitlines()) == 1


def test_a_dump_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", node("n1"), pod("web"))
    result = invoke(cluster, "--save", str(tmp_path / "no" / "dump"))
    assert result.stderr == f"error: {tmp_path}/no/dump: no such file or directory\n"
    assert result.exit_code == 2


def test_a_file_that_is_read_is_not_written_over(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", node("n1"), pod())
    before = Path(cluster).read_text()
    (tmp_path / "link.json").symlink_to(cluster)
    for saved in (cluster, str(tmp_path / "link.json")):
        result = invoke(cluster, "--save", saved)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"error: {saved}: is read and cannot be written meanwhile")
    assert Path(cluster).read_text() == before


def test_it_says_whose_extenders_were_not_called(tmp_path: Path) -> None:
    profile = api_object(
        "SchedulingProfile", "gpu", spec={"extenders": [{"urlPrefix": "http://gpu"}]}
    )
    profile["apiVersion"] = "scheduling.mooring.dev/v1alpha1"
    cluster = dump(tmp_path / "a.json", node("n1"), pod("web"), profile)
    assert invoke(cluster).stderr.splitlines()[0] == (
        "note: extenders were not called (--extenders calls them): those of gpu"
    )
    assert "extenders" not in invoke(cluster, "--extenders").stderr


def test_a_rule_is_shown_with_its_name_and_its_message(tmp_path: Path) -> None:
    rules = [
        {"name": "ssd", "filter": "has(node.labels.disk)", "message": "node(s) had no ssd"},
        {"name": "cheap", "score": "70", "weight": 2},
    ]
    profile = api_object("SchedulingProfile", "default-scheduler", spec={"rules": rules})
    nodes = [node(f"n{i}", labels={"disk": "ssd"} if i else {}) for i in range(3)]
    cluster = dump(tmp_path / "a.json", profile, *nodes, pod("web"))
    (decision,) = json.loads(invoke(cluster, "-o", "json").stdout)["decisions"]
    assert decision["rejections"]["n0"] == {
        "plugin": "Rules/ssd",
        "reasons": ["node(s) had no ssd"],
        "resolvable": False,
    }
    assert decision["scores"]["n1"]["plugins"]["Rules/cheap"] == 140


def policies(folder: Path) -> list[str]:
    text = (
        "apiVersion: scheduling.mooring.dev/v1alpha1\n"
        "kind: SchedulingProfile\n"
        "metadata: {name: %s}\n"
        "spec: {pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: %s}}}]}\n"
    )
    files = []
    for name, strategy in (("old", "LeastAllocated"), ("new", "MostAllocated")):
        path = folder / f"{name}.yaml"
        path.write_text(text % (name, strategy))
        files.append(str(path))
    return files


def test_two_policies_are_compared_on_the_pods_of_a_dump(tmp_path: Path) -> None:
    running = [pod(f"p{i}", cpu="1", node="n0") for i in range(3)]
    cluster = dump(tmp_path / "a.json", *(node(f"n{i}") for i in range(3)), *running)
    plot = str(tmp_path / "p.svg")
    result = invoke(cluster, "--compare", *policies(tmp_path), "--plot", plot)
    assert "3 pods: " in result.stdout
    assert result.exit_code == 0
    assert Path(plot).exists()
    records = tmp_path / "records.json"
    records.write_text('{"decisions": [{"pod": "default/p1"}]}')
    replayed = invoke(cluster, "--compare", *policies(tmp_path), "--replay", str(records))
    assert "1 pod: " in replayed.stdout


def test_other_quotas_are_compared_with_the_profiles_of_the_cluster(tmp_path: Path) -> None:
    labels = {QUEUE_LABEL: "team"}
    waiting = [pod(f"p{i}", cpu="1", labels=labels) for i in range(3)]
    cluster = dump(tmp_path / "a.json", node("n"), queue_object("team", {"cpu": 3}), *waiting)
    files = [tmp_path / f"{cpus}.yaml" for cpus in (2, 1)]
    for file in files:
        file.write_text(yaml.safe_dump(queue_object("team", {"cpu": int(file.stem)})))
    result = invoke(cluster, "--compare", *map(str, files), "-o", "json")
    assert result.exit_code == 1
    (lost,) = json.loads(result.stdout)["moves"]
    assert (lost["old"], lost["new"]) == ("n", None)
    assert (
        lost["reason"]
        == "queue team: 1 of 1 cpu used, 1 asked, and it has no parent to borrow from"
    )
    files[1].write_text(yaml.safe_dump(queue_object("team", {"cpu": "-1"})))
    wrong = invoke(cluster, "--compare", *map(str, files))
    assert wrong.exit_code == 2
    assert "spec.resources[0].nominalQuota: -1 is negative" in wrong.stderr


async def test_the_pods_that_a_running_scheduler_decided_last_are_replayed_as_they_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DecisionLog()
    for second, name in enumerate(("p0", "p1", "waits", "p2")):
        log.seen(f"default/{name}", uid_of(name), second)
        if name != "waits":
            decision = Decision(
                PodRef.of_key(f"default/{name}"), "old", "n1", None, (), None, {}, None
            )
            keep(log, uid_of(name), decision, second)
    pods = (pod(f"p{number}", node="n1", cpu="1") for number in range(3))
    cluster = dump(tmp_path / "a.json", node("n1"), *pods)
    words = (cluster, "--compare", *policies(tmp_path), "--replay")
    async with serving(tmp_path, decisions=log) as running:
        # With --kubeconfig the live cluster would be read too.
        monkeypatch.setenv("KUBECONFIG", running.kubeconfig())
        connect = (f"--server={running.url}", f"--certificate-authority={running.ca}")
        for more, number in (((), 3), (("--last", "1"), 1), (("--last", "3"), 2)):
            result = await ask(simulate, *words, *connect, *more)
            assert f"{plural(number, 'pod')}: " in result.stdout, result.output
        none = await ask(simulate, *words, *connect, "-n", "other")
    assert none.exit_code == 2
    assert "has decided no pod yet; there is nothing to replay" in none.stderr


@pytest.mark.deep
def test_a_comparison_of_3000_pods_on_500_nodes_takes_a_tenth_of_the_memory_it_may(
    tmp_path: Path,
) -> None:
    """The limit is 1.5 GiB for 5,000 nodes and 30,000 pods, beside the interpreter's memory."""
    names = [f"node-{number}.eu-central-1.compute.internal" for number in range(500)]
    nodes = map(node, names)
    pods = (
        pod(f"app-{n // 20}-{n}", cpu="100m", labels={"app": f"app-{n // 20}"}, node=names[n % 500])
        for n in range(3_000)
    )
    path = tmp_path / "dump.jsonl"
    path.write_text("".join(json.dumps(raw) + "\n" for raw in (*nodes, *pods)))
    used = peak_mebibytes(str(path), "--compare", *policies(tmp_path))
    without = peak_mebibytes("--help")
    assert used - without < 150


def peak_mebibytes(*words: str) -> float:
    """Return the peak memory in MiB of a process that runs the command, with its children."""
    script = (
        "import atexit, resource, sys\n"
        "from mooring.cli.simulate import simulate\n"
        "def peak():\n"
        "    who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN\n"
        "    print(sum(resource.getrusage(w).ru_maxrss for w in who), file=sys.stderr)\n"
        "atexit.register(peak)\n"
        "simulate(sys.argv[1:])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert ended.returncode in {0, 1}, ended.stderr
    return int(ended.stderr.split()[-1]) / 1024


def test_options_of_a_comparison_need_one(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", node("n1"), pod("web"))
    assert "need --compare" in invoke(cluster, "--plot", "p.svg").stderr
    last = invoke(cluster, "--compare", *policies(tmp_path), "--last", "3")
    assert "--last goes with --replay" in last.stderr
    both = invoke(cluster, "--compare", *policies(tmp_path), "--profile", "x.yaml")
    assert "--compare goes without --profile" in both.stderr


def test_the_version_is_that_of_the_dump_unless_it_is_given_or_pinned(tmp_path: Path) -> None:
    pinned = api_object("SchedulingProfile", "pinned", spec={"kubernetesVersion": "1.35"})
    pods = [pod("new", spec={"schedulerName": name}, cpu="9") for name in ("new", "pinned")]
    follows = api_object("SchedulingProfile", "new")
    file = dump(tmp_path / "dump", server_object("1.36"), pinned, follows, node("n1"), *pods[:1])
    assert "no new claims to deallocate" in invoke(file).stdout
    assert "no new claims to deallocate" not in invoke(file, "--kubernetes", "1.37").stdout
    file = dump(tmp_path / "dump", server_object("1.37"), pinned, follows, node("n1"), *pods[1:])
    assert "no new claims to deallocate" in invoke(file, "--kubernetes", "1.37").stdout


def test_a_gang_of_koordinators_own_kind_is_placed_whole_or_not_at_all() -> None:
    """The node has room for one of the gang's two members."""
    result = invoke(str(Path(__file__).parent.parent / "cases/76-koordinator-podgroup.yaml"))
    assert "0 of 2 placed" in result.stdout


def test_a_gang_without_room_names_only_the_resource_that_is_short() -> None:
    """The node has no free cpu, but 108 free pod slots."""
    result = invoke(str(Path(__file__).parent.parent / "cases/73-group-says-pod-slots.yaml"))
    assert "0 of 2 members fit, needs 2 CPUs more. 0/1 nodes" in result.stdout
