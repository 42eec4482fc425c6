"""Makes the plugin `kubectl mooring` for krew: an archive for all platforms, and its manifest."""

import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from mooring import __version__
from release.artifacts import ROOT, archive, sha256

LAUNCHER: Final = Path(__file__).parent / "kubectl-mooring"
_CAVEATS: Final = "It needs Python 3.11 or newer, and installs its packages at the first call."


def krew_plugin(dist: Path, wheel: Path, url: str, epoch: str) -> list[Path]:
    """Write the plugin's archive and manifest; `url` is the address of the release's files."""
    with tempfile.TemporaryDirectory(prefix="mooring-krew-") as name:
        folder = Path(name)
        launcher = folder / LAUNCHER.name
        launcher.write_text(LAUNCHER.read_text().replace("@VERSION@", __version__))
        launcher.chmod(0o755)
        for path in (wheel, ROOT / "requirements-run.lock", ROOT / "LICENSE"):
            shutil.copy(path, folder)
        file = archive(folder, dist / f"kubectl-mooring-{__version__}.tar.gz", "mooring", epoch)
    manifest = dist / f"kubectl-mooring-{__version__}.krew.yaml"
    manifest.write_text(yaml.safe_dump(_manifest(f"{url}/{file.name}", file), sort_keys=False))
    return [file, manifest]


def _manifest(uri: str, file: Path) -> dict[str, Any]:
    """Return the Plugin object for krew."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": system}},
            "uri": uri,
            "sha256": sha256(file),
            "bin": LAUNCHER.name,
            "files": [{"from": "mooring/*", "to": "."}],
        }
        for system in ("linux", "darwin")
    ]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "mooring"},
        "spec": {
            "version": f"v{__version__}",
            "shortDescription": "Explain and simulate scheduling decisions",
            "description": (
                "Say why a pod runs where it does or what it waits for, try policies on a live "
                "cluster or a dump, and test them. For the scheduler Mooring.\n"
            ),
            "caveats": f"{_CAVEATS}\n",
            "platforms": platforms,
        },
    }
