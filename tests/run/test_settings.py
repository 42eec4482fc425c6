from dataclasses import FrozenInstanceError

import pytest

from mooring.run.settings import RunSettings


def test_settings_do_not_change_while_the_scheduler_runs() -> None:
    with pytest.raises(FrozenInstanceError):
        RunSettings().qps = 1.0  # type: ignore[misc] # that it fails is what is tested


def test_by_default_a_leader_gives_up_before_its_lease_may_be_taken() -> None:
    settings = RunSettings()
    assert settings.lease_duration > settings.renew_deadline > settings.retry_period
