from mooring.claims.plugin.allocation_error import AllocationError


def test_an_error_is_about_all_nodes_unless_it_says_otherwise() -> None:
    assert not AllocationError("claim ns/c: no such key").on_node
    error = AllocationError("invalid resource pools were encountered", on_node=True)
    assert error.on_node
    assert str(error) == error.text == "invalid resource pools were encountered"
