import pytest

from mooring.model.access import (
    ANONYMOUS,
    Attributes,
    NonResourceAttributes,
    User,
    pod_read,
)


def test_a_token_reviews_user_goes_whole_into_an_access_review() -> None:
    raw = {
        "username": "system:serviceaccount:monitoring:prometheus",
        "uid": "u1",
        "groups": ["system:serviceaccounts"],
        "extra": {"authentication.kubernetes.io/pod-name": ["p0"]},
    }
    assert User.parse(raw).spec() == {
        "user": "system:serviceaccount:monitoring:prometheus",
        "uid": "u1",
        "groups": ["system:serviceaccounts"],
        "extra": {"authentication.kubernetes.io/pod-name": ["p0"]},
    }


def test_a_certificates_user_is_its_common_name_with_its_organizations_as_groups() -> None:
    subject = ((("organizationName", "sre"),), (("commonName", "ann"),))
    assert User.of_certificate(subject) == User("ann", ("sre", "system:authenticated"))


def test_a_certificate_without_a_common_name_is_no_user() -> None:
    assert User.of_certificate(((("organizationName", "system:masters"),),)) is None
    assert User.of_certificate(((("commonName", ""),),)) is None


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (NonResourceAttributes("get", "/metrics"), 'get path "/metrics"'),
        (pod_read(), 'get resource "pods" in API group "" at the cluster scope'),
        (pod_read("shop"), 'get resource "pods" in API group "" in the namespace "shop"'),
        (pod_read("shop", "a"), 'get resource "pods" "a" in API group "" in the namespace "shop"'),
    ],
)
def test_what_is_forbidden_is_said_in_the_api_servers_words(
    attributes: Attributes, words: str
) -> None:
    assert str(attributes) == words


def test_users_and_attributes_are_keys_of_a_cache() -> None:
    assert len({ANONYMOUS, User("system:anonymous", ("system:unauthenticated",))}) == 1
    assert len({pod_read("a"), pod_read("a"), NonResourceAttributes("get", "/a")}) == 2
