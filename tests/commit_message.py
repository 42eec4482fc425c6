#!/usr/bin/env python3
"""Check the form of a commit message, so that `git log` can be searched by part and verb.

Git runs this as its hook commit-msg. The subject is `part: imperative`, of at most 72 characters;
the body says why. Messages that git makes itself (merges, reverts, fixups) pass. CONTRIBUTING.md
says how to install the hook.
"""

import re
import sys
from pathlib import Path
from typing import Final

LONGEST: Final = 72
_BY_GIT: Final = re.compile("(Merge|Revert|fixup!|squash!|amend!) ")
_SUBJECT: Final = re.compile(r"[a-z][\w./-]*(,? [\w./-]+)*: (?P<verb>[a-z]+)\b.*[^.\s]")
_NO_IMPERATIVE: Final = re.compile(
    "(a|an|the|no|all|some|it|we|they|this|that|not|now)$|.*([^su]s|[^e]ed|[^r]ing)$"
)
"""Articles and pronouns, `adds`, `added` and `adding`; but `pass`, `need` and `bring` are fine."""


def mistake(message: str) -> str | None:
    """Return the mistake in a commit message, as one line; None if the message is right."""
    written, _, _ = message.partition("\n# ------------------------ >8 ")
    lines = [line for line in written.splitlines() if not line.startswith("#")]
    subject, *body = "\n".join(lines).strip().splitlines() or [""]
    found = _SUBJECT.fullmatch(subject)
    if _BY_GIT.match(subject):
        return None
    if found is None:
        return "write the subject as `part: verb ...`, such as `queue: retry a pod`"
    if len(subject) > LONGEST:
        return f"shorten the subject by {len(subject) - LONGEST} characters, to {LONGEST}"
    if _NO_IMPERATIVE.match(found["verb"]):
        return f"write an imperative (`add`, not `adds` or `added`) in place of `{found['verb']}`"
    if not any(body):
        return "say why in a body, after an empty line"
    return "leave an empty line after the subject" if body[0] else None


if __name__ == "__main__":
    if found := mistake(Path(sys.argv[1]).read_text()):
        sys.exit(f"error: {found} (CONTRIBUTING.md, Commits and pull requests)")
