import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from certificates import Authority
from mooring.model.access import ReviewError
from mooring.observe.tls import ServingTls, TlsError, self_signed

CA = Authority()


class Files:
    """The files of a certificate, its key and a client CA."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key, self.ca = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self.replace()
        self.ca.write_bytes(CA.certificate)

    def replace(self) -> None:
        pair = CA.server()
        self.cert.write_bytes(pair.certificate)
        self.key.write_bytes(pair.key)

    def tls(self) -> ServingTls:
        return ServingTls(
            cert_file=str(self.cert), key_file=str(self.key), client_ca_file=str(self.ca)
        )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def test_there_is_a_new_context_only_when_a_file_has_changed(files: Files) -> None:
    tls = files.tls()
    first = await tls.context()
    assert await tls.context() is first
    files.replace()
    second = await tls.context()
    assert second is not first
    files.ca.write_bytes(Authority("another").certificate)
    third = await tls.context()
    assert third is not second
    assert await tls.context() is third


async def test_client_certificates_are_asked_for_only_where_a_ca_is_known(files: Files) -> None:
    with_ca = await files.tls().context()
    assert with_ca.verify_mode is ssl.CERT_OPTIONAL
    without = await ServingTls().context()
    assert without.verify_mode is ssl.CERT_NONE


async def test_versions_before_tls_1_2_and_resumed_sessions_are_off(files: Files) -> None:
    context = await files.tls().context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.num_tickets == 0


async def test_a_key_that_is_another_certificates_is_told_in_one_line(files: Files) -> None:
    files.key.write_bytes(CA.server().key)
    with pytest.raises(TlsError) as caught:
        await files.tls().context()
    (line,) = str(caught.value).splitlines()
    assert str(files.key) in line
    assert "key values mismatch" in line


async def test_after_a_mistake_the_next_good_files_are_taken(files: Files) -> None:
    tls = files.tls()
    first = await tls.context()
    good = files.cert.read_bytes()
    files.cert.write_text("half a certif")
    with pytest.raises(TlsError):
        await tls.context()
    files.cert.write_bytes(good)
    assert await tls.context() is first
    files.replace()
    assert await tls.context() is not first


async def test_a_missing_file_is_told_in_one_line(files: Files) -> None:
    files.key.unlink()
    with pytest.raises(TlsError, match=f"cannot read {files.key}: no such file or directory"):
        await files.tls().context()


async def test_a_ca_that_is_none_is_told_in_one_line(files: Files) -> None:
    files.ca.write_text("hello")
    with pytest.raises(TlsError, match=f"CAs of client certificates \\({files.ca}\\)"):
        await files.tls().context()


async def test_a_ca_that_cannot_be_looked_up_any_more_stays_and_is_told() -> None:
    answers: list[str | Exception] = [
        CA.certificate.decode(),
        ReviewError("no etcd"),
        CA.certificate.decode(),
    ]

    async def client_ca() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    tls = ServingTls(client_ca=client_ca)
    first = await tls.context()
    assert await tls.context() is first
    assert "no etcd" in tls.trouble
    assert await tls.context() is first
    assert tls.trouble == ""


async def test_a_self_signed_certificate_is_replaced_after_half_its_time() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    tls = ServingTls(now=lambda: now)
    first = await tls.context()
    now += timedelta(days=182)
    assert await tls.context() is first
    now += timedelta(days=1)
    assert await tls.context() is not first


def test_a_self_signed_certificate_names_hosts_and_addresses() -> None:
    certificate, key = self_signed(("mooring-0", "127.0.0.1", "::1"), datetime.now(UTC))
    assert b"PRIVATE KEY" in key
    loaded = x509.load_pem_x509_certificate(certificate)
    names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["mooring-0"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


async def test_the_served_certificate_is_told_without_its_chain(files: Files) -> None:
    tls = files.tls()
    assert tls.certificate == ""
    leaf = files.cert.read_text()
    files.cert.write_bytes(files.cert.read_bytes() + CA.certificate)
    await tls.context()
    assert tls.certificate == leaf
    made = ServingTls()
    await made.context()
    assert x509.load_pem_x509_certificate(made.certificate.encode())
