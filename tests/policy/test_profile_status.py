from mooring.policy.points import Point
from mooring.policy.profile_status import EffectivePolicy, PluginInForce, SchedulingProfileStatus


def test_the_status_names_extension_points_as_the_spec_does() -> None:
    policy = EffectivePolicy(
        scheduler_names=("a",),
        plugins={
            Point.PRE_BIND: (PluginInForce(name="VolumeBinding"),),
            Point.SCORE: (PluginInForce(name="ImageLocality", weight=2),),
        },
    )
    status = SchedulingProfileStatus(observed_generation=2, effective=policy)
    assert status.model_dump(mode="json", by_alias=True, exclude_none=True) == {
        "observedGeneration": 2,
        "inForceGeneration": 0,
        "conditions": [],
        "effective": {
            "schedulerNames": ["a"],
            "percentageOfNodesToScore": 100,
            "plugins": {
                "preBind": [{"name": "VolumeBinding"}],
                "score": [{"name": "ImageLocality", "weight": 2}],
            },
        },
    }
