"""Makes the TLS context of the endpoints, and a new one whenever its files change.

Without files, this module makes a certificate at the start, as kube-scheduler does. Clients cannot
verify this certificate.
"""

import os
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from mooring.model.access import ReviewError

SELF_SIGNED_DAYS: Final = 365
_RENEW: Final = timedelta(days=SELF_SIGNED_DAYS / 2)


class TlsError(Exception):
    """Raised if the TLS files cannot be used; the text is one line for users."""


class _Material(NamedTuple):
    """A certificate with its chain, its key, and clients' CAs, all PEM."""

    certificate: bytes
    key: bytes
    client_ca: bytes


@dataclass(eq=False, repr=False, kw_only=True)
class ServingTls:
    """Makes the TLS context, and a new one whenever the files have changed.

    Args:
        cert_file: The served certificate with its chain, PEM; None makes a self-signed one.
        key_file: The certificate's key, PEM; None if `cert_file` is None.
        client_ca_file: The CAs that sign client certificates, PEM; replaces `client_ca`.
        client_ca: Returns the CAs as PEM, None if there are none; raises ReviewError.
        names: Host names and IP addresses in the self-signed certificate.
        now: The clock that decides when the self-signed certificate is replaced.
    """

    cert_file: str | None = None
    key_file: str | None = None
    client_ca_file: str | None = None
    client_ca: Callable[[], Awaitable[str | None]] | None = None
    names: tuple[str, ...] = ("localhost",)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._served: _Material | None = None
        self._context: ssl.SSLContext | None = None
        self._made: tuple[datetime, bytes, bytes] | None = None
        self.trouble = ""
        """Why the current CAs of client certificates could not be read; "" if they could be
        read."""

    @property
    def certificate(self) -> str:
        """The served certificate (PEM) without its chain; "" before the first context is made."""
        text = self._served.certificate.decode(errors="replace") if self._served else ""
        begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
        body = text.partition(begin)[2].partition(end)[0]
        return f"{begin}{body}{end}\n" if body else ""

    async def context(self) -> ssl.SSLContext:
        """Return a context for the current files; return the same object until they change.

        Raises TlsError if a file cannot be read, or if certificate and key do not match.
        """
        certificate, key = self._certificate()
        material = _Material(certificate, key, await self._client_cas())
        if self._context is not None and material == self._served:
            return self._context
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A resumed session would bring along a client certificate verified with earlier CAs.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        try:
            with as_file(certificate + b"\n" + key) as path:
                context.load_cert_chain(path, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise TlsError(
                f"the certificate {self.cert_file} and the key {self.key_file} cannot be used: "
                f"{_reason(error)}; check that both are PEM and belong together"
            ) from error
        if material.client_ca:
            try:
                context.load_verify_locations(cadata=material.client_ca.decode())
            except (ssl.SSLError, ValueError) as error:
                raise TlsError(
                    f"the CAs of client certificates ({self._client_ca_source}) cannot be used: "
                    f"{_reason(error)}; check that they are PEM"
                ) from error
            context.verify_mode = ssl.CERT_OPTIONAL
        self._served, self._context = material, context
        return context

    @property
    def _client_ca_source(self) -> str:
        return self.client_ca_file or "ConfigMap kube-system/extension-apiserver-authentication"

    def _certificate(self) -> tuple[bytes, bytes]:
        if self.cert_file is not None and self.key_file is not None:
            return _read(self.cert_file), _read(self.key_file)
        if self._made is None or self.now() - self._made[0] > _RENEW:
            self._made = (self.now(), *self_signed(self.names, self.now()))
        return self._made[1], self._made[2]

    async def _client_cas(self) -> bytes:
        if self.client_ca_file is not None:
            return _read(self.client_ca_file)
        if self.client_ca is None:
            return b""
        try:
            found = await self.client_ca()
        except ReviewError as error:
            self.trouble = f"{self._client_ca_source} cannot be read: {error}"
            return self._served.client_ca if self._served is not None else b""
        self.trouble = ""
        return (found or "").encode()


def self_signed(names: tuple[str, ...], now: datetime) -> tuple[bytes, bytes]:
    """Return a certificate for these names, valid for a year from `now`, and its key, in PEM."""
    from cryptography import x509  # noqa: PLC0415 - with files never loaded
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - with files never loaded
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - with files never loaded
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415 - with files never loaded

    key = ec.generate_private_key(ec.SECP256R1())
    # A common name has room for 64 characters; clients read the alternative names.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    alternatives = [
        x509.IPAddress(ip_address(name)) if _is_address(name) else x509.DNSName(name)
        for name in names
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # for clients whose clock is behind
        .not_valid_after(now + timedelta(days=SELF_SIGNED_DAYS))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise TlsError(f"cannot read {path}: {reason}; correct the flag or the file") from error


def _no_password() -> str:
    # Without this function, OpenSSL would ask for a password on the terminal.
    raise ValueError("the key is encrypted")


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).lower().replace("_", " ")


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Yield the path of a temporary file with this content, in memory if the system supports it."""
    # The ssl module loads keys only from files; a container's file system may be read-only.
    if sys.platform == "linux":
        descriptor = os.memfd_create("mooring-tls")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
