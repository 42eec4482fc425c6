"""The base of the image: Python and its dependencies, from Debian's packages.

mmdebstrap extracts the packages without running their scripts. So the base has no shell, no package
manager and no program except Python: programs that a scheduler does not need cannot be misused, and
cause no advisories. The base for building also has a shell and pip's wheel.
"""

import hashlib
import os
import shlex
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import Final

from release.commands import run

SUITE: Final = "trixie"
EPOCH: Final = "1754697600"
"""The day of the suite's release, which is the time of all new files."""

PYTHON: Final = "3.13"
"""The version of Python in the suite."""

PYTHON_LIBRARY: Final = f"/usr/lib/python{PYTHON}"
"""The folder of the library of the suite's Python."""

STATUS: Final = "var/lib/dpkg/status.d"
"""The folder with a file per package, for scanners of images without a package manager."""


@dataclass(frozen=True)
class Base:
    """The packages of a base besides their dependencies, and the programs to keep."""

    name: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]


RUNTIME: Final = Base(
    "base",
    (
        "base-files",
        "ca-certificates",
        "libpython3-stdlib",
        "libstdc++6",
        "python3-minimal",
        "tzdata",
    ),
    ("python3*",),
)
BUILDER: Final = Base(
    "builder",
    (*RUNTIME.packages, "dash", "python3-venv"),
    (*RUNTIME.programs, "dash", "sh"),
)

LEFT_OUT: Final = (
    "/usr/bin/*",
    "/usr/sbin/*",
    "/usr/share/doc/*",
    "/usr/share/locale/*",
    "/usr/share/man/*",
    "/usr/share/perl5/*",
)
KEPT: Final = ("/usr/share/doc/*/copyright",)

FINISH: Final = f"""\
set -eu
mkdir -p "$1/{STATUS}" "$1/etc/ssl/certs"
for package in "$1"/var/cache/apt/archives/*.deb; do
    name=$(dpkg-deb --field "$package" Package)
    dpkg-deb --field "$package" > "$1/{STATUS}/$name"
done
cat "$1"/usr/share/ca-certificates/mozilla/*.crt > "$1/etc/ssl/certs/ca-certificates.crt"
ln -s python3 "$1/usr/bin/python"
printf '%s\\n' root:x:0:0::/root:/sbin/nologin nonroot:x:65532:65532::/nonexistent:/sbin/nologin \\
    > "$1/etc/passwd"
printf '%s\\n' root:x:0: nonroot:x:65532: > "$1/etc/group"
"""
"""Does the work of the packages' scripts, as far as Mooring needs it."""


@dataclass(frozen=True)
class DebianPackage:
    """A Debian package in a base, with its version."""

    name: str
    version: str
    architecture: str

    @property
    def purl(self) -> str:
        """The package URL, by which databases identify the package."""
        version = self.version.replace(":", "%3A").replace("+", "%2B")
        where = f"arch={self.architecture}&distro={SUITE}"
        return f"pkg:deb/debian/{self.name}@{version}?{where}"


def make_base(base: Base, folder: Path, *, anew: bool) -> Path:
    """Return the tar file of the base; reuse the one in the folder, unless `anew` is set.

    The file is the same as long as Debian's packages are the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = _options(base)
    key = hashlib.sha256("\n".join(options).encode()).hexdigest()[:16]
    made = folder / f"{base.name}-{key}.tar"
    if anew or not made.exists():
        partial = made.with_suffix(".partial")
        command: list[str | Path] = [
            "mmdebstrap",
            "--quiet",
            "--format=tar",
            *options,
            SUITE,
            partial,
        ]
        run(command, env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH})
        for older in folder.glob(f"{base.name}-*.tar"):
            older.unlink()
        partial.rename(made)
    return made


def _options(base: Base) -> Sequence[str]:
    paths = [f"path-exclude={path}" for path in LEFT_OUT]
    paths += [f"path-include={path}" for path in KEPT]
    paths += [f"path-include=/usr/bin/{program}" for program in base.programs]
    return (
        "--variant=extract",
        f"--include={','.join(base.packages)}",
        *(f"--dpkgopt={path}" for path in paths),
        f'--extract-hook=sh -c {shlex.quote(FINISH)} finish "$1"',
    )


def debian_packages(base: Path) -> tuple[DebianPackage, ...]:
    """Return the packages of a base, sorted by name."""
    with tarfile.open(base) as files:
        found = [
            Parser().parsestr(content.read().decode())
            for member in files
            if member.isfile() and f"{STATUS}/" in member.name
            if (content := files.extractfile(member)) is not None
        ]
    packages = (DebianPackage(p["Package"], p["Version"], p["Architecture"]) for p in found)
    return tuple(sorted(packages, key=lambda package: package.name))
