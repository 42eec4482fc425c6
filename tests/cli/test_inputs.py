from pathlib import Path

import pytest

from mooring.cli.inputs import live_manifests
from mooring.cli.progress import Progress
from mooring.simulate.manifests import InputError


def test_a_kubeconfig_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        live_manifests(str(tmp_path / "none"), None, Progress())
