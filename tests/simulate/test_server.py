import pytest

from mooring.model.manifest_error import ManifestError
from mooring.simulate.manifests import Manifest
from mooring.simulate.server import is_server, server_object, version_of
from mooring.testing.builders import node


def test_the_version_that_was_written_is_read() -> None:
    written = Manifest("a dump", server_object("1.36"))
    assert is_server(written)
    assert version_of(written) == "1.36"
    assert version_of(Manifest("a dump", server_object("v1.36.3-eks"))) == "1.36"
    assert not is_server(Manifest("a dump", node("n1")))


@pytest.mark.parametrize("version", ["", "newest", 1.36, "9" * 1000])
def test_what_is_no_version_is_a_mistake(version: object) -> None:
    raw = {**server_object("1.36"), "status": {"version": version}}
    with pytest.raises(ManifestError, match=r"^status\.version: must be ") as caught:
        version_of(Manifest("a dump", raw))
    assert len(str(caught.value)) < 100
