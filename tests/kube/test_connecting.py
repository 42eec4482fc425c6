import errno
import ssl

import pytest

from mooring.kube.connecting import client_context, failure_text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('::1', 1)"), "refused"),
        (OSError(-2, "Name or service not known"), "Name or service not known"),
        (TimeoutError(), "it took too long"),
        (TimeoutError(errno.ETIMEDOUT, ""), "Connection timed out"),
        (ValueError("a\n  b"), "a b"),
        (ValueError("x" * 1000), "x" * 200),
        (ValueError(), "ValueError"),
    ],
)
def test_a_failure_is_told_in_a_few_words(error: BaseException, text: str) -> None:
    assert failure_text(error).endswith(text)


def test_certificates_without_the_extensions_that_python_demands_are_accepted() -> None:
    assert not client_context().verify_flags & ssl.VERIFY_X509_STRICT


def test_an_unverified_context_takes_any_certificate_of_any_name() -> None:
    context = client_context(verified=False)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    assert (client_context().verify_mode, client_context().check_hostname) == (
        ssl.CERT_REQUIRED,
        True,
    )
