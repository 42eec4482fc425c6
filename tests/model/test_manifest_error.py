import pickle

from mooring.model.manifest_error import ManifestError


def test_the_text_is_one_line_that_names_the_field_and_the_problem() -> None:
    assert str(ManifestError("spec.replicas", "must be a number")) == (
        "spec.replicas: must be a number"
    )


def test_without_a_field_the_text_is_the_problem_alone() -> None:
    assert str(ManifestError("", "must be a number")) == "must be a number"


def test_under_puts_the_object_before_the_field() -> None:
    error = ManifestError("spec.replicas", "must be a number").under("Pod team-a/web")
    assert str(error) == "Pod team-a/web spec.replicas: must be a number"
    assert (error.where, error.problem) == ("Pod team-a/web spec.replicas", "must be a number")


def test_under_on_an_error_without_a_field_leaves_the_object_alone() -> None:
    assert str(ManifestError("", "is empty").under("Pod web")) == "Pod web: is empty"


def test_the_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(ManifestError("a", "b")))  # noqa: S301 - our own bytes
    assert (error.where, error.problem) == ("a", "b")
