"""The number that breaks ties, from the pod and the attempt: a placement can be replayed."""

from zlib import crc32

__all__ = ["seed_of"]


def seed_of(uid: str, attempt: int, salt: int = 0) -> int:
    """The same for the same pod, attempt and salt; spread evenly over 32 bits."""
    return crc32(f"{uid}/{attempt}/{salt}".encode())
