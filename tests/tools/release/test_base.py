import io
import tarfile
from pathlib import Path

from release.base import DebianPackage, debian_packages

LIBC = (
    "Package: libc6\nVersion: 2.41-12+deb13u1\nArchitecture: amd64\nDescription: library\n text\n"
)
TZDATA = "Package: tzdata\nVersion: 1:2026a-1\nArchitecture: all\n"


def test_the_packages_of_a_base_are_read_from_what_scanners_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "base.tar", "w") as tar:
        for name, text in (("tzdata", TZDATA), ("libc6", LIBC)):
            member = tarfile.TarInfo(f"./var/lib/dpkg/status.d/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
        tar.addfile(tarfile.TarInfo("./etc/passwd"))
    assert debian_packages(tmp_path / "base.tar") == (
        DebianPackage("libc6", "2.41-12+deb13u1", "amd64"),
        DebianPackage("tzdata", "1:2026a-1", "all"),
    )


def test_a_package_url_escapes_what_versions_of_debian_have() -> None:
    assert DebianPackage("tzdata", "1:2026a-1", "all").purl == (
        "pkg:deb/debian/tzdata@1%3A2026a-1?arch=all&distro=trixie"
    )
    assert "@2.41-12%2Bdeb13u1?" in DebianPackage("libc6", "2.41-12+deb13u1", "amd64").purl
