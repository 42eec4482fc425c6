"""Ends a process group when the program that owns it has ended, however it ended.

The script runs in its own group and has the read end of a pipe; only the owner has the write end.
The kernel closes the pipe when the owner ends, even after SIGKILL. A parent-death signal does not
work: Linux sends it when the *thread* that started the child ends.
"""

import os
import shutil
import signal
import sys
import time

GRACE = 1.0
"""The seconds between SIGTERM and SIGKILL for the programs."""


def main() -> None:
    """Wait for the owner's end, then end the group and remove the folder in the arguments."""
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
