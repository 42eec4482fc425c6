"""Runs work in tasks beside a test."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def in_background(*works: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run the coroutines in tasks; cancel them at the end, and fail if one ended earlier."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks), tasks
