"""Tests downloads of envtest's archive from a server on this machine."""

import hashlib
import io
import platform
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from controlplane import ControlPlaneError
from controlplane.build import SERVER_PROGRAMS, cache_root
from controlplane.envtest import (
    FOLDER,
    LOCK,
    URL_VARIABLE,
    chosen_programs,
    downloaded_programs,
)
from controlplane.progress import Progress
from controlplane.releases import NEWEST, RELEASES, VARIABLE, chosen_release
from http_servers import answering, served_by_thread

MINOR = f"v{chosen_release().minor}"


def archive(version: str = f"{MINOR}.0", *, without: str = "", link: bool = False) -> bytes:
    """Return an archive of programs that report this version."""
    content = io.BytesIO()
    script = f"#!/bin/sh\necho Kubernetes {version}\n".encode()
    with tarfile.open(fileobj=content, mode="w:gz") as members:
        for name in ("../../outside", *SERVER_PROGRAMS):
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(script)
            if link and name == "etcd":
                member.type, member.linkname, member.size = tarfile.SYMTYPE, "/bin/sh", 0
            if name != without:
                members.addfile(member, io.BytesIO(script[: member.size]))
    return content.getvalue()


@dataclass
class Releases:
    """A server for releases; `lock` is the lock file for its archives."""

    lock: Path
    content: bytes
    asked: list[str] = field(default_factory=list)

    def locks(self, content: bytes) -> None:
        """Serve this content, and write its hash into the lock file."""
        self.content = content
        machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
        name = f"envtest-{MINOR}.0-{platform.system().lower()}-{machine}.tar.gz"
        self.lock.write_text(f"# a comment\n{hashlib.sha512(content).hexdigest()}  {name}\n")


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    found = Releases(tmp_path / "envtest.lock", b"")
    found.locks(archive())

    async def answer(request: web.Request) -> web.Response:
        found.asked.append(request.path)
        return web.Response(body=found.content, status=200 if found.content else 404)

    monkeypatch.setenv("MOORING_CACHE", str(tmp_path / "cache"))
    with served_by_thread(answering(answer)) as port:
        monkeypatch.setenv(URL_VARIABLE, f"http://127.0.0.1:{port}/releases/")
        yield found


def downloaded(releases: Releases) -> tuple[Path | None, str]:
    said = io.StringIO()
    return downloaded_programs(Progress(said), releases.lock), said.getvalue()


def test_each_release_has_all_locked_archives_or_none_and_the_newest_has_them() -> None:
    names = [line.split("  ")[1] for line in LOCK.read_text().splitlines() if line[0] != "#"]
    counts = [sum(f"-v{release.minor}." in name for name in names) for release in RELEASES]
    assert set(counts) <= {0, 4}
    assert counts[RELEASES.index(NEWEST)] == 4
    assert sum(counts) == len(names)


def test_the_archive_is_that_of_the_chosen_release(
    releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = next(release for release in RELEASES if release is not chosen_release())
    monkeypatch.setenv(VARIABLE, other.minor)
    assert downloaded(releases) == (None, "")
    assert releases.asked == []


def test_an_archive_is_downloaded_once_and_only_its_programs_are_taken(
    releases: Releases, tmp_path: Path
) -> None:
    folder, said = downloaded(releases)
    assert folder is not None
    assert folder.is_relative_to(cache_root())
    assert sorted(path.name for path in folder.iterdir()) == sorted(SERVER_PROGRAMS)
    assert f"downloading envtest-{MINOR}.0" in said
    assert downloaded(releases) == (folder, "")
    assert len(releases.asked) == 1
    assert releases.asked[0].startswith(f"/releases/envtest-{MINOR}.0/envtest-{MINOR}.0-")
    assert list(tmp_path.rglob("outside")) == []


def test_an_archive_with_another_hash_is_not_used(releases: Releases) -> None:
    releases.content += b" "
    folder, said = downloaded(releases)
    assert folder is None
    assert "not used: its SHA-512 is " in said
    assert [path.name for path in (cache_root() / "envtest").iterdir()] == [
        f"{path.name}" for path in (cache_root() / "envtest").glob("*.lock")
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (archive("v1.30.2"), f"has Kubernetes v1.30.2, and {MINOR} is wanted (KUBERNETES)"),
        (archive(without="etcd"), "the archive cannot be read"),
        (archive(link=True), "etcd in it is no program"),
        (b"no archive", "the archive cannot be read"),
    ],
    ids=["version", "missing", "link", "garbage"],
)
def test_an_archive_without_the_right_programs_is_not_used(
    content: bytes, why: str, releases: Releases
) -> None:
    releases.locks(content)
    folder, said = downloaded(releases)
    assert folder is None
    assert why in said


def test_a_server_that_does_not_have_it_is_one_line(releases: Releases) -> None:
    releases.content = b""
    folder, said = downloaded(releases)
    assert folder is None
    assert "not used: HTTP Error 404" in said


def test_a_server_that_cannot_be_reached_is_one_line(
    releases: Releases, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, f"http://127.0.0.1:{unused_tcp_port}")
    folder, said = downloaded(releases)
    assert folder is None
    assert "not used: Connection refused" in said


@pytest.mark.parametrize(("url", "why"), [("", ""), ("file:///tmp", "must start with https://")])
def test_nothing_is_downloaded_from_nowhere_or_from_a_file(
    url: str, why: str, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, url)
    folder, said = downloaded(releases)
    assert folder is None
    assert why in said
    assert releases.asked == []


def test_nothing_is_downloaded_for_a_system_without_an_archive(releases: Releases) -> None:
    releases.lock.write_text("# nothing\n")
    assert downloaded(releases) == (None, "")


def test_a_chosen_folder_must_have_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert chosen_programs() is None
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(ControlPlaneError, match="has no program etcd; unset it"):
        chosen_programs()
