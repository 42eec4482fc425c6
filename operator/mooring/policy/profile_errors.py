"""The mistakes in a profile, each with the path of its field.

The validators of models raise `ProfileInvalid` with paths relative to their model.
`mooring.policy.reading` adds the path of the model in front.
"""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

_MOST_NAMED: Final = 20
_STEP: Final = re.compile(r"\[([^\]]*+)\]?|([^.\[\]]+)")


@dataclass(frozen=True, slots=True)
class FieldError:
    """One mistake: the field, and the correct form.

    Attributes:
        path: The field, such as `spec.pluginConfig[0].args.hardPodAffinityWeight`.
        message: One line; users see it as "<path>: <message>".
        plugin: The name of a plugin that cannot be imported or built.
    """

    path: str
    message: str
    plugin: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message

    def under(self, parent: str) -> "FieldError":
        """Return the same mistake with `parent` in front of its path."""
        return FieldError(join_path(parent, self.path), self.message, self.plugin)

    def lies_in_any(self, paths: Container[str]) -> bool:
        """Return whether the mistake is in one of these fields, or inside of such a field."""
        above = (self.path[:end] for end, char in enumerate(self.path) if char in ".[")
        return self.path in paths or any(path in paths for path in above)


class ProfileInvalid(ValueError):  # noqa: N818 - it is a verdict about the profile, with many errors
    """Raised if a profile has mistakes; `errors` has all of them, at least one.

    The text is one line for the log: it has the first mistakes and the number of the others.
    """

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        named = [str(error) for error in self.errors[:_MOST_NAMED]]
        if more := len(self.errors) - len(named):
            named.append(f"and {more} more mistake{'s' * (more > 1)}")
        super().__init__("; ".join(named))


class PluginLoadError(Exception):
    """Raised if a plugin cannot be used; the text names the plugin, its distribution and why."""


def join_path(parent: str, child: str) -> str:
    """Return the path of `child` inside `parent`; an index (`[1].name`) gets no dot."""
    if not parent or not child:
        return parent or child
    return f"{parent}{child}" if child.startswith("[") else f"{parent}.{child}"


def split_path(path: str) -> tuple[str, ...]:
    """Return the fields, indexes and map keys of a path: `a.b[0][x.y/z]` is a, b, 0 and x.y/z."""
    return tuple(in_brackets or name for in_brackets, name in _STEP.findall(path))


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return `, did you mean X?` with the choice most similar to `word`; "" if none is similar."""
    folded = {choice.casefold(): choice for choice in choices}
    near = get_close_matches(word.casefold(), folded, n=1, cutoff=0.75)
    return f", did you mean {folded[near[0]]}?" if near else ""
