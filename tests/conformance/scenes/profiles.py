"""The scheduling profiles of the recorded cases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

Profile = Mapping[str, Any]

_KNOWN: Final = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
PROFILES: Final[tuple[Profile, ...]] = tuple(_KNOWN["any"])
DEFAULT: Final = PROFILES[0]
BY_RESOURCES: Final[tuple[Profile, ...]] = tuple(
    profile
    for profile in PROFILES
    if profile["schedulerName"] in {"default-scheduler", "binpack", "disks", "fallingratio"}
)
"""Score nodes by resources, with a strategy each."""
STORAGE_PROFILES: Final[tuple[Profile, ...]] = tuple(_KNOWN["storage"])
"""For kube-scheduler 1.37 and newer, which may run beside the others."""
