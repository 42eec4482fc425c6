"""A real browser without a window: Debian's chromium, driven over playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_WAIT_MILLISECONDS = 30_000.0


@dataclass
class Tab:
    """A tab of the browser, with the errors and the requested hosts that a test must not find."""

    page: Page
    errors: list[str] = field(default_factory=list)
    """Errors of scripts, and violations of the content security policy."""
    hosts: set[str] = field(default_factory=set)
    """Hosts, with their ports, that requests went to."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield the browser; the test fails if chromium is not installed."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.fail("no chromium: run make browser, or say where one is: CHROMIUM=PATH")
    # Root has no user namespaces of its own in containers, and without them there is no sandbox.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=_WAIT_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser) -> Iterator[Tab]:
    """Yield a new tab, which does not verify certificates and cannot reach other hosts."""
    context = browser.new_context(
        ignore_https_errors=True,
        viewport={"width": 1280, "height": 900},
        color_scheme="light",
    )
    context.set_default_timeout(_WAIT_MILLISECONDS)
    tab = Tab(context.new_page())

    def note(request: Request) -> None:
        if not request.url.startswith("data:"):
            tab.hosts.add(request.url.split("/")[2])

    def stop(route: Route) -> None:
        host = route.request.url.split("/")[2]
        if host.startswith(("127.0.0.1:", "localhost:")):
            route.continue_()
        else:
            route.abort()

    tab.page.on("request", note)
    tab.page.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.page.on(
        "console",
        lambda message: (
            tab.errors.append(message.text) if "Content Security Policy" in message.text else None
        ),
    )
    context.route("https://**/*", stop)
    try:
        yield tab
    finally:
        context.close()
