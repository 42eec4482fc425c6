import pytest

from mooring.model.errors import ManifestError
from mooring.simulate.manifests import Manifest
from mooring.simulate.server import is_server, server_object, version_of
from mooring.testing.builders import node


def test_the_version_that_was_written_is_read() -> None:
    written = Manifest("a dump", server_object("1.36"))
    assert is_server(written)
    assert version_of(written) == "1.36"
    assert not is_server(Manifest("a dump", node("n1")))


@pytest.mark.parametrize("version", ["", "newest", 1.36])
def test_what_is_no_version_is_a_mistake(version: object) -> None:
    raw = {**server_object("1.36"), "status": {"version": version}}
    with pytest.raises(ManifestError, match=r"^status\.version: must be "):
        version_of(Manifest("a dump", raw))
