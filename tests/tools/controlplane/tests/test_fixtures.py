from collections.abc import Callable

import pytest

from controlplane import ApiError, ControlPlane, namespaces
from controlplane.namespaces import Baseline, create_namespace, delete_namespace
from controlplane.nodes import create_nodes


def _pod(name: str) -> dict[str, object]:
    container = {"name": "main", "image": "pause"}
    metadata = {"name": name, "finalizers": ["example.com/held"]}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def test_a_deleted_namespace_is_gone_with_a_pod_that_a_finalizer_held(
    control_plane: ControlPlane,
) -> None:
    access = control_plane.access
    namespace = create_namespace(access)
    with access.client() as client:
        client.post(f"/api/v1/namespaces/{namespace}/pods", _pod("held"))
        delete_namespace(access, namespace)
        assert client.get(f"/api/v1/namespaces/{namespace}/pods")["items"] == []
        with pytest.raises(ApiError, match="404"):
            client.get(f"/api/v1/namespaces/{namespace}")


def test_a_deleted_namespace_is_gone_with_more_held_pods_than_one_request_deletes(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "DELETED_AT_ONCE", 2)
    access = control_plane.access
    namespace = create_namespace(access)
    with access.client() as client:
        for number in range(5):
            client.post(f"/api/v1/namespaces/{namespace}/pods", _pod(f"held-{number}"))
        delete_namespace(access, namespace)
        assert client.get(f"/api/v1/namespaces/{namespace}/pods")["items"] == []


def test_a_restored_server_holds_what_it_held_before(control_plane: ControlPlane) -> None:
    access = control_plane.access
    with access.client() as client:
        kept = client.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "kept"}})
        baseline = Baseline(access)
        client.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "other"}})
        client.post("/api/v1/namespaces/default/pods", _pod("held"))
        client.post(f"/api/v1/namespaces/{create_namespace(access)}/pods", _pod("held"))
        create_nodes(access, 2)
        baseline.restore()
        left = client.get("/api/v1/namespaces/default/configmaps")["items"]
        assert kept["metadata"]["uid"] in {item["metadata"]["uid"] for item in left}
        assert "other" not in {item["metadata"]["name"] for item in left}
        assert client.get("/api/v1/pods")["items"] == client.get("/api/v1/nodes")["items"] == []
        client.delete("/api/v1/namespaces/default/configmaps/kept")


def test_a_fresh_control_plane_is_another_server(
    control_plane: ControlPlane, fresh_control_plane: Callable[..., ControlPlane]
) -> None:
    fresh = fresh_control_plane(users={"dora": ["developers"]})
    assert fresh.access.url != control_plane.access.url
    with fresh.access.client("dora") as client, pytest.raises(ApiError, match=r"403.*dora"):
        client.get("/api/v1/nodes")
