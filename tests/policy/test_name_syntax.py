import pytest
from pydantic import TypeAdapter, ValidationError

from mooring.policy.name_syntax import ExtendedResource, LabelValue, QualifiedName, is_object_name


@pytest.mark.parametrize(
    "name", ["zone", "topology.kubernetes.io/zone", "a", "A_b.c-d", "x" * 63, "a.b/" + "x" * 63]
)
def test_a_qualified_name_is_accepted(name: str) -> None:
    assert TypeAdapter(QualifiedName).validate_python(name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "a b", "a/b/c", "/a", "A.B/c", "x" * 64, "a/", f"{'x' * 254}/a"]
)
def test_any_other_name_is_an_error_that_states_the_rule(name: str) -> None:
    with pytest.raises(ValidationError, match="is not a qualified name"):
        TypeAdapter(QualifiedName).validate_python(name)


def test_a_label_value_may_be_empty() -> None:
    assert TypeAdapter(LabelValue).validate_python("") == ""


@pytest.mark.parametrize("value", ["a/b", "-a", "x" * 64])
def test_an_invalid_label_value_is_an_error(value: str) -> None:
    with pytest.raises(ValidationError, match="is not a label value"):
        TypeAdapter(LabelValue).validate_python(value)


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "aliyun.com/gpu-mem"])
def test_a_resource_of_another_domain_is_extended(name: str) -> None:
    assert TypeAdapter(ExtendedResource).validate_python(name) == name


@pytest.mark.parametrize("name", ["cpu", "kubernetes.io/batch", "a.kubernetes.io/b"])
def test_a_native_resource_is_not_extended(name: str) -> None:
    with pytest.raises(ValidationError, match="is not an extended resource"):
        TypeAdapter(ExtendedResource).validate_python(name)


@pytest.mark.parametrize(
    ("text", "fits"), [("default-scheduler", True), ("a.b", True), ("My_One", False), ("", False)]
)
def test_an_object_name_is_a_dns_subdomain(text: str, *, fits: bool) -> None:
    assert is_object_name(text) is fits
