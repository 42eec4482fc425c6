"""Mistakes in expressions, reported in the form of cel-go."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpressionMistake:
    """A mistake, and its position in the source in characters; the position is -1 if unknown."""

    at: int
    text: str


class CompileError(Exception):
    """Raised if an expression cannot be compiled; the text is kube-scheduler's."""

    def __init__(self, text: str, mistakes: Sequence[ExpressionMistake] = ()) -> None:
        super().__init__(text)
        self.mistakes = mistakes


def compile_error(source: str, mistakes: Iterable[ExpressionMistake]) -> CompileError:
    """Return one error with the first 100 mistakes, each with its line of the source."""
    ordered = sorted(mistakes, key=lambda mistake: mistake.at)[:100]
    return CompileError(
        "compilation failed: " + "\n".join(_shown(source, mistake) for mistake in ordered), ordered
    )


def _shown(source: str, mistake: ExpressionMistake) -> str:
    before = source[: max(mistake.at, 0)]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1)
    text = source.split("\n")[line - 1].replace("\t", " ")
    dots = "".join("．" if ord(each) > 127 else "." for each in text[:column])  # noqa: RUF001 # as cel-go draws
    mark = "＾" if ord(text[column : column + 1] or "^") > 127 else "^"  # noqa: RUF001 # as cel-go draws
    return f"ERROR: <input>:{line}:{column + 1}: {mistake.text}\n | {text}\n | {dots}{mark}"
