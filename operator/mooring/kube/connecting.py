"""The TLS of a client's connections, and messages about connections that fail."""

import os
import ssl


def client_context(
    ca_file: str | None = None, ca_data: str | None = None, *, verified: bool = True
) -> ssl.SSLContext:
    """Return a TLS context that trusts only the given CAs; without any, the system's CAs.

    `ca_data` is PEM. If `verified` is False, every certificate is accepted. Raises OSError or
    ValueError if the CAs cannot be read or used.
    """
    context = ssl.create_default_context(cafile=ca_file, cadata=ca_data)
    # Python 3.13 demands extensions that cluster CAs often lack and Go's clients do not ask for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def failure_text(error: BaseException) -> str:
    """Return in few words why a connection failed, without URLs, reprs and file contents."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message or error.reason}"
    if isinstance(error, ssl.SSLError):
        return error.reason or "TLS failed"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)  # asyncio adds addresses
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, TimeoutError):
        return "it took too long"
    return " ".join(str(error).split())[:200] or type(error).__name__
