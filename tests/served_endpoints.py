"""The endpoints of a scheduler, served on loopback, with user rights that a test chooses."""

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from certificates import insecure
from mooring.model.access import Attributes, ReviewError, User
from mooring.observe.http import Endpoints
from mooring.observe.metrics import Metrics
from mooring.observe.records import DecisionLog
from mooring.observe.tls import ServingTls
from mooring.page.queue_view import Queue
from scheduler_states import scheduler_state

EVERYTHING: Final = "everything"
LOOPBACK: Final = "127.0.0.1"


class Rights:
    """Answers reviews like an API server: a token is a user's name; `rights` has its rights.

    Attributes:
        users: The users whose rights were requested.
        down: Whether all requests fail.
    """

    def __init__(self, **rights: Iterable[str]) -> None:
        self.rights = {user: set(allowed) for user, allowed in rights.items()}
        self.users: list[User] = []
        self.down = False

    async def user_of(self, token: str) -> User | None:
        """Return the user of this name; None if `rights` lacks the user."""
        self._answer()
        return User(token) if token in self.rights else None

    async def allows(self, user: User, attributes: Attributes) -> bool:
        """Return whether the user has this right, or every right."""
        self._answer()
        self.users.append(user)
        rights = self.rights.get(user.name, set())
        return EVERYTHING in rights or str(attributes) in rights

    def _answer(self) -> None:
        if self.down:
            raise ReviewError("no answer from the API server")


def endpoints(**given: Any) -> Endpoints:
    """Return endpoints with these arguments; by default without data, and admin has every right."""

    async def no_report(_pod: str) -> None:
        return None

    async def no_groups(_namespace: str, _name: str) -> list[Any]:
        return []

    default = {
        "live": {"ping": lambda: None},
        "ready": {"ping": lambda: None},
        "metrics": Metrics(),
        "decisions": DecisionLog(),
        "pod_report": no_report,
        "pod_groups": no_groups,
        "queue": Queue(scheduler_state(), bound=lambda: 0, clock=lambda: 0.0, now=lambda: 0.0),
        "shadow": lambda _namespace: {"profiles": {}, "pods": []},
        "rebalancing": list,
        "cache_dump": lambda: iter(()),
        "configuration": dict,
        "tls": ServingTls(),
        "reviews": Rights(admin=[EVERYTHING]),
        "always_allow_paths": ("/healthz", "/readyz", "/livez"),
    }
    return Endpoints(**{**default, **given})


@asynccontextmanager
async def served(
    serving: Endpoints, *, user: str | None = "admin", context: ssl.SSLContext | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of the endpoints on a free port; without `user` it sends no token."""
    port = await serving.start(LOOPBACK, 0)
    headers = {} if user is None else {"Authorization": f"Bearer {user}"}
    connector = aiohttp.TCPConnector(ssl=context or insecure(), force_close=True)
    base = f"https://{LOOPBACK}:{port}"
    try:
        async with aiohttp.ClientSession(base, headers=headers, connector=connector) as client:
            yield client
    finally:
        await serving.stop()
