from collections import Counter

from bench.requests import attempts, parse, requests_so_far, writes
from controlplane import ControlPlane

METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",group="",resource="pods",subresource="binding",verb="POST"} 30
apiserver_request_total{code="201",group="",resource="pods",subresource="binding",verb="POST",x="y"} 2
apiserver_request_total{code="409",group="",resource="pods",subresource="binding",verb="POST"} 1
apiserver_request_total{code="201",group="events.k8s.io",resource="events",subresource="",verb="POST"} 1e+01
apiserver_request_total{code="200",group="",resource="pods",subresource="",verb="LIST"} 4
apiserver_request_total{code="200",group="resource.k8s.io",resource="resourceclaims",subresource="status",verb="PUT"} 7
apiserver_request_total{code="200",group="",resource="leases",subresource="",verb="PUT"} 5
apiserver_request_terminations_total{code="429"} 9
"""  # noqa: E501 - lines as the server writes them


def test_requests_are_counted_by_verb_resource_and_code() -> None:
    assert parse(METRICS) == {
        "POST pods/binding 201": 32,
        "POST pods/binding 409": 1,
        "POST events 201": 10,
        "LIST pods 200": 4,
        "PUT resourceclaims/status 200": 7,
        "PUT leases 200": 5,
    }


def test_writes_are_those_that_a_scheduler_makes_for_a_pod() -> None:
    assert writes(parse(METRICS)) == Counter(
        {"POST pods/binding": 33, "POST events": 10, "PUT resourceclaims/status": 7}
    )


def test_attempts_of_all_results_and_profiles_are_counted() -> None:
    name = "scheduler_schedule_attempts_total"
    lines = (
        f"# TYPE {name} counter",
        f'{name}{{profile="a",result="scheduled"}} 12',
        f'{name}{{profile="b",result="unschedulable"}} 3e+01',
        'scheduler_podgroup_schedule_attempts_total{profile="a",result="scheduled"} 5',
    )
    assert attempts("\n".join(lines)) == 42


def test_a_real_server_counts_a_binding(control_plane: ControlPlane, namespace: str) -> None:
    before = requests_so_far(control_plane.access)
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    with control_plane.access.client() as client:
        client.post(f"/api/v1/namespaces/{namespace}/pods", pod)
    counted = writes(requests_so_far(control_plane.access) - before)
    assert counted == {"POST pods": 1}
