from contextlib import closing

import pytest

from controlplane import ApiError, ControlPlane


def test_a_watch_gives_events_as_they_come_and_its_client_goes_on(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    with control_plane.access.client() as client, control_plane.access.client() as other:
        before = other.post(path, {"metadata": {"name": "before"}})
        since = before["metadata"]["resourceVersion"]
        with closing(client.watch(f"{path}?watch=1&resourceVersion={since}")) as events:
            for name in ("one", "two"):
                other.post(path, {"metadata": {"name": name}})
                event = next(events)
                assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", name)
        assert client.get(f"{path}/one")["kind"] == "ConfigMap"


def test_a_watch_ends_when_the_server_ends_it(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets?watch=1&timeoutSeconds=1"
    with control_plane.access.client() as client:
        assert list(client.watch(path)) == []


def test_a_watch_that_is_refused_says_why(control_plane: ControlPlane) -> None:
    path = "/api/v1/nothings?watch=1"
    with control_plane.access.client() as client, pytest.raises(ApiError, match="404"):
        next(client.watch(path))
