import pytest

from mooring.plugins.image_locality import ImageLocality
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers

MIB = 2**20


def test_a_node_that_has_the_image_scores_by_its_size_and_spread() -> None:
    """The score is (500 MiB * 1/2 of the nodes - 23) / (1000 - 23) in percent."""
    asking = PluginAnswers(ImageLocality, node("has", images={"app:v1": 500 * MIB}), node("lacks"))
    assert asking.scores(pod(images=["app:v1"])) == {"has": (250 - 23) * 100 // 977, "lacks": 0}


def test_an_image_on_every_node_counts_in_full() -> None:
    images = {"app:v1": 500 * MIB}
    asking = PluginAnswers(ImageLocality, node("n1", images=images), node("n2", images=images))
    expected = (500 - 23) * 100 // 977
    assert asking.scores(pod(images=["app:v1"])) == {"n1": expected, "n2": expected}


def test_images_below_23_mib_do_not_count_and_above_1000_per_container_no_more() -> None:
    asking = PluginAnswers(
        ImageLocality, node("n1", images={"small:v1": 23 * MIB, "huge:v1": 9000 * MIB})
    )
    assert asking.scores(pod(images=["small:v1"])) == {"n1": 0}
    assert asking.scores(pod(images=["huge:v1"])) == {"n1": 100}
    assert asking.scores(pod(images=["huge:v1", "none:v1"])) == {"n1": 100}


def test_the_images_of_all_containers_add_up_on_a_scale_for_as_many() -> None:
    asking = PluginAnswers(ImageLocality, node("n1", images={"a:v1": 400 * MIB, "b:v1": 300 * MIB}))
    assert asking.scores(pod(images=["a:v1", "b:v1"])) == {"n1": (700 - 23) * 100 // (2000 - 23)}


def test_an_untagged_image_of_a_pod_is_the_latest_and_one_of_a_node_is_not() -> None:
    asking = PluginAnswers(
        ImageLocality,
        node("tagged", images={"app:latest": 2000 * MIB}),
        node("untagged", images={"app": 2000 * MIB}),
    )
    for image in ("app", "app:latest"):
        assert asking.scores(pod(images=[image])) == {"tagged": 100, "untagged": 0}


@pytest.mark.parametrize(
    ("kubernetes", "score"),
    [
        ("1.35", 0),
        ("1.36", (700 - 23) * 100 // (1000 - 23)),
        ("1.37", (700 - 23) * 100 // (2000 - 23)),
    ],
)
def test_an_image_volume_adds_its_size_since_1_36_and_counts_as_an_image_since_1_37(
    kubernetes: str, score: int
) -> None:
    stored = node("n1", images={"model:v1": 700 * MIB})
    volumes = [{"name": "m", "image": {"reference": "model:v1"}}, {"name": "e", "emptyDir": {}}]
    asking = PluginAnswers(ImageLocality, stored, kubernetes=kubernetes)
    assert asking.scores(pod(images=["app:v1"], spec={"volumes": volumes})) == {"n1": score}
