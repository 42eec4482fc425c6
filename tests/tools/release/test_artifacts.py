import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from mooring import __version__
from release.artifacts import (
    NAMESPACE,
    Source,
    archive,
    checksums,
    provenance,
    python_packages,
    sign,
)
from release.commands import ReleaseError
from supply_chain import LOCK

EPOCH = "1700000000"
SOURCE = Source("0" * 40, EPOCH)


def git(folder: Path, *words: str) -> None:
    ann = ("-c", "user.name=ann", "-c", "user.email=ann@example.com")
    subprocess.check_call(["git", *ann, *words], cwd=folder)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("content")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_release_is_made_of_a_commit(repository: Path) -> None:
    source = Source.of(repository)
    assert len(source.commit) == 40
    assert int(source.epoch) > 0


def test_a_file_that_is_not_committed_stops_the_release(repository: Path) -> None:
    (repository / "file").write_text("changed")
    with pytest.raises(
        ReleaseError, match=r"^file is not committed; a release is made of a commit"
    ):
        Source.of(repository)


def test_a_tag_of_another_version_stops_the_release(repository: Path) -> None:
    git(repository, "tag", "v99.0.0")
    with pytest.raises(ReleaseError, match=r"^the tag v99.0.0 is not this commit's version"):
        Source.of(repository)


def test_an_archive_depends_on_its_files_alone(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        folder = tmp_path / name
        (folder / "docs").mkdir(parents=True)
        (folder / "docs" / "page.html").write_text("<html>")
        (folder / "index.html").write_text("<html>")
        made.append(archive(folder, tmp_path / f"{name}.tar.gz", "site", EPOCH).read_bytes())
    assert made[0] == made[1]
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert tar.getnames() == ["site/docs/page.html", "site/index.html"]
        assert tar.getmember("site/index.html").mtime == int(EPOCH)


def test_wheel_and_sdist_hold_the_program_and_no_time_but_that_of_the_commit(
    tmp_path: Path,
) -> None:
    wheel, sdist = python_packages(tmp_path, EPOCH)
    with zipfile.ZipFile(wheel) as packed:
        assert {"mooring/__main__.py", "mooring/page/bundle/index.html"} <= {*packed.namelist()}
        assert {member.date_time for member in packed.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    with tarfile.open(sdist) as tar:
        names = tar.getnames()
        assert {member.mtime for member in tar} == {int(EPOCH)}
    assert any(name.endswith("/operator/mooring/__main__.py") for name in names)
    assert int.from_bytes(sdist.read_bytes()[4:8], "little") == int(EPOCH)
    assert __version__ in wheel.name


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """Return the path of an SSH key; its public half is beside it."""
    file = tmp_path / "key"
    subprocess.check_call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file])
    return file


def verified(sums: Path, signature: Path, key: Path) -> bool:
    """Return whether the commands in docs/releasing.md accept the signature and the checksums."""
    signers = key.with_name("allowed_signers")
    signers.write_text(f"releases@example.com {key.with_suffix('.pub').read_text()}")
    user = ["-I", "releases@example.com", "-n", NAMESPACE]
    verify = ["ssh-keygen", "-Y", "verify", "-f", str(signers), *user, "-s", str(signature)]
    with sums.open() as signed:
        accepted = subprocess.run(verify, stdin=signed, check=False, capture_output=True)
    check = ["sha256sum", "--check", "--strict", "--quiet", sums.name]
    same = subprocess.run(check, cwd=sums.parent, check=False, capture_output=True)
    return accepted.returncode == same.returncode == 0


def test_a_signature_vouches_for_every_file(tmp_path: Path, key: Path) -> None:
    dist = tmp_path / "dist"
    dist.mkdir()
    files = [dist / "a", dist / "b"]
    for file in files:
        file.write_text(file.name)
    sums = checksums(files)
    signature = sign(sums, key)
    assert verified(sums, signature, key)
    files[0].write_text("another")
    assert not verified(sums, signature, key)
    checksums(files)
    assert not verified(sums, signature, key)


def test_a_key_that_is_missing_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(ReleaseError, match="ssh-keygen failed"):
        sign(checksums([tmp_path / "a"]), tmp_path / "nowhere")


def test_the_provenance_names_files_image_commit_base_and_locks(tmp_path: Path) -> None:
    file, base = tmp_path / "mooring.tgz", tmp_path / "base.tar"
    file.touch()
    base.touch()
    parameters = {"image": "registry.example.com/mooring", "lock": LOCK.name}
    statement = provenance([file], SOURCE, f"sha256:{'1' * 64}", parameters, base)
    assert json.loads(json.dumps(statement)) == statement
    assert [subject["name"] for subject in statement["subject"]] == [
        "mooring.tgz",
        f"registry.example.com/mooring:{__version__}",
    ]
    assert statement["subject"][1]["digest"] == {"sha256": "1" * 64}
    made_of = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert made_of[0]["digest"] == {"gitCommit": SOURCE.commit}
    assert [entry["name"] for entry in made_of[1:]] == ["base.tar", "requirements.lock", LOCK.name]
