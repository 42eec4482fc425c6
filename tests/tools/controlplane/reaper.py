"""Ends a process group when the program that owns it is gone, however that program ended.

Run as a script in a group of its own, holding the read end of a pipe whose write end only the
owner has. The kernel closes the pipe with the owner, even after SIGKILL. A parent-death signal
would not do: Linux sends it when the *thread* that started the child ends.
"""

import os
import shutil
import signal
import sys
import time

GRACE = 1.0
"""Seconds the programs have to leave after SIGTERM before they get SIGKILL."""


def main() -> None:
    """Wait for the owner's end, then end the group and remove the folder given as argument."""
    if os.getpgrp() != os.getpid():
        sys.exit("reaper: must lead a process group of its own")
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.buffer.read()
    os.killpg(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    if len(sys.argv) > 1:
        shutil.rmtree(sys.argv[1], ignore_errors=True)
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
