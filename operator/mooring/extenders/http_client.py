"""Calls one extender over HTTP(S); limits the size of answers and the simultaneous calls."""

import asyncio
import logging
import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from yarl import URL

from mooring.extenders.protocol import AnswerError
from mooring.extenders.verdicts import ExtenderError
from mooring.kube.connecting import client_context, failure_text
from mooring.kube.exchange import (
    BrokenExchangeError,
    Exchange,
    NoConnectionError,
    NotSentError,
)
from mooring.observe.tls import as_file
from mooring.policy.extender import Extender, TLSConfig

logger = logging.getLogger(__name__)

MOST_CALLS: Final = 32
"""The most calls to an extender at the same time; other calls wait. Time-outs lower this limit."""
MOST_ANSWER: Final = 4 * 1024**2
"""The most bytes of an answer beyond twice the request's size; a larger answer is an error."""
_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "mooring",
}

Observe = Callable[[str, str, str, float], None]
"""Gets the extender's name, the verb, the result and the seconds of each call."""
_Result = TypeVar("_Result")


class NotLeading(ExtenderError):  # noqa: N818 - says why nothing was sent
    """Raised if a call was not made, because this replica does not lead any more."""


@dataclass(eq=False, repr=False)
class ExtenderClient:
    """Calls one extender; connections are opened when needed, and stay open for a while."""

    extender: Extender
    observe: Observe
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._exchange: Exchange | None = None
        self._places = asyncio.Semaphore(MOST_CALLS)
        self._bound = MOST_CALLS
        self._answers = 0
        """The number of successful answers since the limit of calls last changed."""
        self._ignored = ""

    async def call(
        self,
        what: str,
        verb: str,
        body: bytes,
        decode: Callable[[bytes], _Result],
        may_send: Callable[[], bool] | None = None,
    ) -> _Result:
        """POST the body and return the decoded answer; `what` names the call in errors and metrics.

        Raises ExtenderError if no valid answer comes in time. `may_send` is called just before the
        request; if it returns False, NotLeading is raised.
        """
        result, blamed = "error", f'extender "{self.extender.name}" failed to {what}'
        await self._places.acquire()
        # One try only, as in kube-scheduler; its time begins after the wait for other calls.
        began = self.clock()
        try:
            answer = await self._post(verb, body, may_send)
            result = "success"
        except TimeoutError:
            result = "timeout"
            seconds = self.extender.timeout.total_seconds()
            raise ExtenderError(f"{blamed}: no answer within {seconds:g} seconds") from None
        except NotSentError:
            result = ""
            raise NotLeading(f"{blamed}: this replica does not lead any more") from None
        except asyncio.CancelledError:
            result = ""  # the extender has done nothing wrong
            raise
        except NoConnectionError as error:
            text = failure_text(error.__cause__ or error)
            raise ExtenderError(f"{blamed}: {text}") from error
        except (BrokenExchangeError, ValueError, AnswerError) as error:
            raise ExtenderError(f"{blamed}: {failure_text(error)}") from error
        finally:
            self._leave(result)
            if result:
                self.observe(self.extender.name, what, result, self.clock() - began)
        try:
            return decode(answer)
        except AnswerError as error:
            self.observe(self.extender.name, what, "invalid", 0.0)
            raise ExtenderError(f"{blamed}: {error}") from None

    def _leave(self, result: str) -> None:
        """Adapt how many calls may run at a time, and let waiting calls begin."""
        self._answers += result == "success"
        # The extender may be able to serve only one call at a time.
        if result == "timeout" and self._bound > 1:
            self._bound, self._answers = self._bound - 1, 0
            return
        self._places.release()
        if self._bound < MOST_CALLS and self._answers >= self._bound:
            self._bound, self._answers = self._bound + 1, 0
            self._places.release()

    def ignored(self, error: ExtenderError) -> None:
        """Log an error that does not end the attempt, unless the last logged error was the same."""
        if str(error) != self._ignored:
            logger.warning("%s; pods are scheduled without it", error)
        self._ignored = str(error)

    async def close(self) -> None:
        """Close the connections; the next call opens new connections."""
        if self._exchange is not None:
            await self._exchange.close()
        self._exchange = None

    async def _post(self, verb: str, body: bytes, may_send: Callable[[], bool] | None) -> bytes:
        url = URL(f"{self.extender.url_prefix.rstrip('/')}/{verb}")
        async with asyncio.timeout(self.extender.timeout.total_seconds()):
            answer = await self._connected(url).ask(
                "POST",
                url.raw_path_qs,
                {},
                body,
                seconds=None,
                most=MOST_ANSWER + 2 * len(body),
                may_send=may_send,
            )
        if answer.status != 200:
            raise AnswerError(f"it answered with status {answer.status}")
        return answer.body

    def _connected(self, url: URL) -> Exchange:
        if self._exchange is None:
            tls = self.extender.tls_config
            self._exchange = Exchange(
                str(url.origin()),
                {**_HEADERS, **_authorization(url)},
                tls=tls_context(self.extender),
                server_name=(tls.server_name or None) if tls is not None else None,
                pool=MOST_CALLS,
            )
        return self._exchange


def _authorization(url: URL) -> dict[str, str]:
    if url.user is None and url.password is None:
        return {}
    user = b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()
    return {"Authorization": f"Basic {user}"}


def changed_at(extender: Extender) -> tuple[int, ...]:
    """Return the time of each certificate file's last change (ns); 0 for a missing file."""
    tls = extender.tls_config
    if tls is None:
        return ()
    times: list[int] = []
    for path in filter(None, (tls.ca_file, tls.cert_file, tls.key_file)):
        try:
            times.append(Path(path).stat().st_mtime_ns)
        except OSError:
            times.append(0)
    return tuple(times)


def tls_context(extender: Extender) -> ssl.SSLContext | bool:
    """Return the TLS context for the extender's URL; True means Python's defaults.

    Raises ValueError with the name of an unusable certificate or key.
    """
    tls = extender.tls_config
    if not extender.url_prefix.lower().startswith("https:"):
        return True
    if tls is None:
        if not extender.enable_https:
            return True
        tls = TLSConfig()
    # Without trusted certificates, `enableHTTPS` turns verification off, as in kube-scheduler
    # (makeTransport in extender.go).
    trusted = bool(tls.ca_data or tls.ca_file)
    verified = not tls.insecure and (trusted or not extender.enable_https)
    try:
        if tls.ca_data:
            context = client_context(ca_data=tls.ca_data.decode("ascii"), verified=verified)
        else:
            context = client_context(tls.ca_file or None, verified=verified)
    except (OSError, ValueError) as error:
        source = "caData" if tls.ca_data else f"caFile {tls.ca_file}"
        nothing = isinstance(error, ssl.SSLError) and not error.reason
        why = "it contains no certificate" if nothing else failure_text(error)
        raise ValueError(f"{source} cannot be used: {why}") from None
    if tls.cert_data or tls.cert_file:
        _load_client_certificate(tls, context)
    return context


def _load_client_certificate(tls: TLSConfig, context: ssl.SSLContext) -> None:
    with ExitStack() as files:

        def path(data: bytes, given: str) -> str:
            return files.enter_context(as_file(data)) if data else given

        try:
            # Python reads certificates only from files.
            certificate = path(tls.cert_data, tls.cert_file)
            context.load_cert_chain(certificate, path(tls.key_data, tls.key_file))
        except (OSError, ValueError) as error:
            text = f"the client certificate or its key cannot be used: {failure_text(error)}"
            raise ValueError(text) from None
