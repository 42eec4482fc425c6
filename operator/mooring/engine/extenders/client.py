"""One extender over HTTP(S): kept connections, bounded answers, and a bound on calls in flight."""

import asyncio
import logging
import ssl
import time
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from yarl import URL

from mooring.engine.extenders.protocol import AnswerError
from mooring.kube.connecting import client_context, failure_text
from mooring.kube.exchange import (
    BrokenExchangeError,
    Exchange,
    NoConnectionError,
    NotSentError,
)
from mooring.observe.tls import as_file
from mooring.policy.extender import Extender, TLSConfig

__all__ = ["ExtenderClient", "ExtenderError", "NotLeading", "tls_context"]

logger = logging.getLogger(__name__)

MOST_CALLS: Final = 32
"""Calls in flight to one extender; fewer after time-outs, because it may not serve so many."""
MOST_ANSWER: Final = 4 * 1024**2
"""Bytes of an answer, beside twice those of the request: an answer names what was sent."""
_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "mooring",
}

Observe = Callable[[str, str, str, float], None]
"""Called after each call with the extender's name, the verb, the result and the seconds."""


class ExtenderError(Exception):
    """A call of an extender failed; the text names the extender and the verb."""


class NotLeading(ExtenderError):  # noqa: N818 - says why nothing was sent
    """The call was not made, because this replica must not write any more."""


class ExtenderClient:
    """Calls one extender. Connections are made when they are needed, and kept.

    `in_all` bounds the calls in flight to all extenders.
    """

    def __init__(
        self,
        extender: Extender,
        observe: Observe,
        in_all: asyncio.Semaphore,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._extender = extender
        self._observe = observe
        self._in_all = in_all
        self._clock = clock
        self._exchange: Exchange | None = None
        self._changed: tuple[int, ...] = ()
        self._old: list[Exchange] = []
        self._calls = _Calls(MOST_CALLS)
        self._ignored = ""

    async def call(
        self,
        what: str,
        verb: str,
        body: bytes,
        may_send: Callable[[], bool] | None = None,
        *,
        for_group: bool = False,
    ) -> bytes:
        """Return the body of the answer to one POST; `what` is the verb's purpose, such as filter.

        One attempt, as kube-scheduler makes it. The time limit counts from the sending.
        `may_send` is called immediately before that. Calls about members of groups (`for_group`)
        and others take turns where both wait.

        Raises:
            ExtenderError: without an answer in time, for a status other than 200, or for an answer
                that is too large.
            NotLeading: nothing was sent, because `may_send` returned False.
        """
        try:
            return await self._call(what, verb, body, may_send, for_group=for_group)
        finally:
            while self._old and not self._calls.running:
                await self._old.pop().close()

    async def _call(
        self,
        what: str,
        verb: str,
        body: bytes,
        may_send: Callable[[], bool] | None,
        *,
        for_group: bool,
    ) -> bytes:
        async with self._calls.turn(for_group=for_group), self._in_all:
            began = self._clock()
            result = "error"
            try:
                answer = await self._post(verb, body, may_send)
                result = "success"
            except TimeoutError:
                result = "timeout"
                self._calls.timed_out()
                seconds = self._extender.timeout.total_seconds()
                text = f"{self._blamed(what)}: no answer within {seconds:g} seconds"
                raise ExtenderError(text) from None
            except NotSentError:
                result = ""
                text = f"{self._blamed(what)}: this replica does not lead any more"
                raise NotLeading(text) from None
            except NoConnectionError as error:
                why = failure_text(error.__cause__ or error)
                raise ExtenderError(f"{self._blamed(what)}: {why}") from error
            except asyncio.CancelledError:
                result = ""  # the extender has done nothing wrong
                raise
            except (BrokenExchangeError, ValueError, AnswerError) as error:
                raise ExtenderError(f"{self._blamed(what)}: {failure_text(error)}") from error
            finally:
                if result:
                    self._observe(self._extender.name, what, result, self._clock() - began)
        self._calls.answered()
        return answer

    def wrong(self, what: str, error: AnswerError) -> ExtenderError:
        """Return the error for an answer that cannot be used, or that reports an error."""
        self._observe(self._extender.name, what, "invalid", 0.0)
        return ExtenderError(f"{self._blamed(what)}: {error}")

    def ignored(self, error: ExtenderError) -> None:
        """Log an error that does not end the attempt; the same one again is not logged."""
        if str(error) != self._ignored:
            logger.warning("%s; pods are scheduled without it", error)
        self._ignored = str(error)

    @property
    def in_use(self) -> bool:
        """Whether a call is in flight."""
        return self._calls.running > 0

    async def close(self) -> None:
        """Close the connections; a further call makes new ones."""
        exchanges = [*self._old, *((self._exchange,) if self._exchange is not None else ())]
        self._old.clear()
        self._exchange = None
        for exchange in exchanges:
            await exchange.close()

    async def _post(
        self, verb: str, body: bytes, may_send: Callable[[], bool] | None = None
    ) -> bytes:
        url = URL(f"{self._extender.url_prefix.rstrip('/')}/{verb}")
        async with asyncio.timeout(self._extender.timeout.total_seconds()):
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
        """Return the connections, made anew when a file of the certificates has changed."""
        changed = _changed_at(self._extender)
        if self._exchange is not None and changed != self._changed:
            self._old.append(self._exchange)
            self._exchange = None
        if self._exchange is None:
            self._changed = changed
            tls = self._extender.tls_config
            self._exchange = Exchange(
                str(url.origin()),
                {**_HEADERS, **_authorization(url)},
                tls=tls_context(self._extender),
                server_name=(tls.server_name or None) if tls is not None else None,
                pool=MOST_CALLS,
            )
        return self._exchange

    def _blamed(self, what: str) -> str:
        return f'extender "{self._extender.name}" failed to {what}'


class _Calls:
    """A bound on calls in flight; first come first served among those of groups, and the others.

    Where both wait they take turns, because a group has many members.

    A time-out halves the bound, because an extender that serves one call after the other lets each
    wait for all before it. Answers raise it again, one at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = self._bound = most
        self._running = 0
        self._answers = 0
        self._waiting = {of_group: deque[asyncio.Future[None]]() for of_group in (False, True)}
        self._group_is_next = False

    @asynccontextmanager
    async def turn(self, *, for_group: bool = False) -> AsyncIterator[None]:
        """Wait for a turn; inside, one call is in flight."""
        await self._enter(for_group=for_group)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, *, for_group: bool) -> None:
        if self._running < self._bound and not any(self._waiting.values()):
            self._running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[for_group].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the turn came, and nothing will be called
            raise

    @property
    def running(self) -> int:
        """How many calls are in flight."""
        return self._running

    def timed_out(self) -> None:
        """Note that a call got no answer in time."""
        self._bound, self._answers = max(1, self._bound // 2), 0

    def answered(self) -> None:
        """Note that a call got its answer."""
        self._answers += 1
        if self._bound < self._most and self._answers >= self._bound:
            self._bound, self._answers = self._bound + 1, 0

    def _leave(self) -> None:
        self._running -= 1
        while self._running < self._bound and any(self._waiting.values()):
            of_group = self._group_is_next
            if not self._waiting[of_group]:
                of_group = not of_group
            turn = self._waiting[of_group].popleft()
            if not turn.done():
                self._group_is_next = not of_group
                self._running += 1
                turn.set_result(None)


def _authorization(url: URL) -> dict[str, str]:
    """Return the header for a user and a password in the URL, as Go's client sends it."""
    if url.user is None and url.password is None:
        return {}
    user = b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()
    return {"Authorization": f"Basic {user}"}


def _changed_at(extender: Extender) -> tuple[int, ...]:
    """Return when each file of the certificates was changed, in nanoseconds; 0 if it is absent."""
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
    """Return the TLS context of an https URL; True means Python's defaults.

    Without trusted certificates, `enableHTTPS` turns verification off, as in kube-scheduler
    (makeTransport in extender.go).

    Raises:
        ValueError: if a certificate or key cannot be read or used; the text says which.
    """
    tls = extender.tls_config
    if not extender.url_prefix.lower().startswith("https:"):
        return True
    if tls is None:
        if not extender.enable_https:
            return True
        tls = TLSConfig()
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
    """Load the client certificate; data goes through a file, as Python reads files only."""
    with ExitStack() as files:

        def path(data: bytes, given: str) -> str:
            return files.enter_context(as_file(data)) if data else given

        try:
            certificate = path(tls.cert_data, tls.cert_file)
            context.load_cert_chain(certificate, path(tls.key_data, tls.key_file))
        except (OSError, ValueError) as error:
            text = f"the client certificate or its key cannot be used: {failure_text(error)}"
            raise ValueError(text) from None
