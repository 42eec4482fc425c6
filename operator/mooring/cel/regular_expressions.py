"""Regular expressions with the syntax and the meaning of Go's, which are RE2's.

Python's own go back, so that some take for ever. These run all alternatives side by side: the time
is at most the length of the text times the size of the pattern, and is taken from the work that an
evaluation may do.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from mooring.cel.values import work
from mooring.model.bounded_cache import cached

__all__ = ["Pattern", "PatternError", "compile_pattern"]

_PER_STEP: Final = 2
_MOST_REPEATED: Final = 1_000
_MOST_SIZE: Final = 10_000
_MOST_LEVELS: Final = 60

Range = tuple[int, int]
_LAST: Final = 0x10FFFF


class PatternError(ValueError):
    """A text is not a regular expression; the message is Go's."""


@dataclass(frozen=True, slots=True)
class _Set:
    """Characters: some ranges of codes, and some categories of Unicode."""

    ranges: tuple[Range, ...] = ()
    categories: tuple[tuple[str, bool], ...] = ()
    negated: bool = False
    folded: bool = False

    def has(self, character: str) -> bool:
        """Return whether the character is in the set."""
        if self.folded:
            upper, lower = character.upper(), character.lower()
            variants = {character, lower, upper, upper.lower(), lower.upper()}
            return any(self._has(each) for each in variants if len(each) == 1) != self.negated
        return self._has(character) != self.negated

    def _has(self, character: str) -> bool:
        code = ord(character)
        if any(first <= code <= last for first, last in self.ranges):
            return True
        category = unicodedata.category(character) if self.categories else ""
        return any(category.startswith(name) != negated for name, negated in self.categories)


_Instruction = _Set | tuple[Any, ...] | None
"""A set to match, an assertion, a split into two ways, the better first, a jump; None: the end."""


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A compiled regular expression."""

    _program: Sequence[_Instruction]

    @property
    def size(self) -> int:
        """How many instructions it has."""
        return len(self._program)

    def matches(self, text: str) -> bool:
        """Return whether some part of the text matches."""
        return self._search(text, 0, any_match=True) is not None

    def find(self, text: str) -> str:
        """Return the first part that matches, "" if none does."""
        found = self._search(text, 0)
        return "" if found is None else text[found[0] : found[1]]

    def find_all(self, text: str, most: int) -> Iterator[str]:
        """Yield the parts that match, at most so many, all if it is negative."""
        at, last_end = 0, -1
        while most and at <= len(text):
            found = self._search(text, at)
            if found is None:
                return
            start, end = found
            if end > start or end != last_end:  # nothing empty right behind a match
                yield text[start:end]
                most -= 1
            last_end = end
            at = end if end > start else end + 1

    def _search(self, text: str, at: int, any_match: bool = False) -> tuple[int, int] | None:
        """Return where the first match from `at` begins and ends."""
        found: tuple[int, int] | None = None
        threads: dict[int, int] = {}
        for position in range(at, len(text) + 1):
            if found is None:
                self._follow(threads, 0, position, text, position)
            if not threads:
                if found is not None:
                    break
                continue
            work.spend(_PER_STEP * len(threads))
            following: dict[int, int] = {}
            for index, start in threads.items():
                instruction = self._program[index]
                if instruction is None:
                    found = (start, position)
                    if any_match:
                        return found
                    break
                if (
                    isinstance(instruction, _Set)
                    and position < len(text)
                    and instruction.has(text[position])
                ):
                    self._follow(following, index + 1, start, text, position + 1)
            threads = following
        return found

    def _follow(
        self, threads: dict[int, int], index: int, start: int, text: str, position: int
    ) -> None:
        """Add what an instruction leads to without a character, the preferred ways first."""
        left = [index]
        while left:
            index = left.pop()
            if index in threads:
                continue
            instruction = self._program[index]
            if isinstance(instruction, tuple):
                threads[index] = start  # seen; it matches no character
                match instruction:
                    case ("split", preferred, other):
                        left += (other, preferred)
                    case ("jump", to):
                        left.append(to)
                    case ("assert", kind):
                        if _holds(kind, text, position):
                            left.append(index + 1)
            else:
                threads[index] = start


def _is_word(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at].isascii() and (text[at].isalnum() or text[at] == "_")


def _holds(kind: str, text: str, at: int) -> bool:
    """Return whether an assertion holds between two characters."""
    match kind:
        case "text begins":
            return at == 0
        case "text ends":
            return at == len(text)
        case "line begins":
            return at == 0 or text[at - 1] == "\n"
        case "line ends":
            return at == len(text) or text[at] == "\n"
        case "word ends or begins":
            return _is_word(text, at - 1) != _is_word(text, at)
    return _is_word(text, at - 1) == _is_word(text, at)


@cached(4 * 2**20)
def _compiled(pattern: str) -> Pattern | str:
    try:
        node = _Parser(pattern).whole()
        program = list[_Instruction]()
        _emit(node, program)
        program.append(None)
    except PatternError as error:
        return str(error)
    return Pattern(program)


def compile_pattern(pattern: str) -> Pattern:
    """Return the compiled pattern; its size is taken from the work, whether it was kept or not.

    Raises:
        PatternError: it is not a regular expression.
    """
    found = _compiled(pattern)
    if isinstance(found, str):
        raise PatternError(found)
    work.spend(found.size)
    return found


_Tree = Any
"""A _Set, or a tuple whose first part says what it is.

These are an assertion with its kind, "all" with parts, "any" with alternatives, and "repeat" with a
part, its least and its most number, which is None without a bound, and whether more is better.
"""


def _emit(node: _Tree, program: list[_Instruction]) -> None:
    """Append the instructions of a tree."""
    if len(program) > _MOST_SIZE:
        raise PatternError("error parsing regexp: expression too large")
    match node:
        case _Set() | ("assert", _):
            program.append(node)
        case ("all", parts):
            for part in parts:
                _emit(part, program)
        case ("any", alternatives):
            _emit_choice(alternatives, program)
        case ("repeat", part, least, most, greedy):
            for _ in range(least - (most is None and least > 0)):
                _emit(part, program)
            if most is None:
                _emit_unbounded(part, least > 0, greedy, program)
            else:
                _emit_optional(part, most - least, greedy, program)


def _emit_optional(part: _Tree, most: int, greedy: bool, program: list[_Instruction]) -> None:
    """Append what repeats a part at most so many times."""
    splits = list[int]()
    for _ in range(most):
        splits.append(len(program))
        program.append(None)
        _emit(part, program)
    for index in splits:
        program[index] = _split(index + 1, len(program), greedy)


def _emit_unbounded(
    part: _Tree, at_least_once: bool, greedy: bool, program: list[_Instruction]
) -> None:
    """Append what repeats a part without a bound; which way is tried first is Go's."""
    skips = None if at_least_once else len(program)
    if skips is not None:
        program.append(None)
    start = len(program)
    _emit(part, program)
    if skips is None or _may_be_empty(part):
        program.append(_split(start, len(program) + 1, greedy))
    else:
        program.append(("jump", skips))
    if skips is not None:
        program[skips] = _split(start, len(program), greedy)


def _may_be_empty(tree: _Tree) -> bool:
    match tree:
        case _Set():
            return False
        case ("all", parts):
            return all(map(_may_be_empty, parts))
        case ("any", parts):
            return any(map(_may_be_empty, parts))
        case ("repeat", part, least, _, _):
            return not least or _may_be_empty(part)
    return True


def _split(inner: int, after: int, greedy: bool) -> tuple[str, int, int]:
    return ("split", inner, after) if greedy else ("split", after, inner)


def _emit_choice(alternatives: Sequence[_Tree], program: list[_Instruction]) -> None:
    ends = list[int]()
    for alternative in alternatives[:-1]:
        split = len(program)
        program.append(None)
        _emit(alternative, program)
        ends.append(len(program))
        program.append(None)
        program[split] = ("split", split + 1, len(program))
    _emit(alternatives[-1], program)
    for end in ends:
        program[end] = ("jump", len(program))


_DIGITS: Final = ((0x30, 0x39),)
_SPACES: Final = ((0x9, 0xA), (0xC, 0xD), (0x20, 0x20))
_WORDS: Final = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_PERL: Final = {"d": _DIGITS, "s": _SPACES, "w": _WORDS}
_POSIX: Final = {
    "alnum": ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    "alpha": ((0x41, 0x5A), (0x61, 0x7A)),
    "ascii": ((0, 0x7F),),
    "blank": ((0x9, 0x9), (0x20, 0x20)),
    "cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGITS,
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x9, 0xD), (0x20, 0x20)),
    "upper": ((0x41, 0x5A),),
    "word": _WORDS,
    "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
}
_ESCAPES: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_NUMERIC_ESCAPE: Final = re.compile(
    r"(0[0-7]{0,2}|[1-7][0-7]{1,2})|x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]{1,8})\})"
)
_REPEAT: Final = re.compile(r"\{([0-9]++)(,?)([0-9]*+)\}")
_FLAGS: Final = re.compile(r"\(\?([imsU]*+)(-?)([imsU]*+)([:)])")
_NAMED_GROUP: Final = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_CATEGORIES: Final = frozenset(
    [
        "L",
        "Lu",
        "Ll",
        "Lt",
        "Lm",
        "Lo",
        "M",
        "Mn",
        "Mc",
        "Me",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Ps",
        "Pe",
        "Pi",
        "Pf",
        "Po",
        "S",
        "Sm",
        "Sc",
        "Sk",
        "So",
        "Z",
        "Zs",
        "Zl",
        "Zp",
        "C",
        "Cc",
        "Cf",
        "Co",
        "Cs",
    ]
)


def _complement(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """Return the codes that are in none of the ordered ranges."""
    made, after = list[Range](), 0
    for first, last in sorted(ranges):
        if first > after:
            made.append((after, first - 1))
        after = max(after, last + 1)
    if after <= _LAST:
        made.append((after, _LAST))
    return tuple(made)


class _Parser:
    """Reads a pattern; flags change while it does."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._levels = 0
        self._flags = frozenset[str]()

    def whole(self) -> _Tree:
        """Return the tree of the whole pattern."""
        tree = self._alternatives()
        if self._at < len(self._pattern):
            self._fail("unexpected )", self._pattern)
        return tree

    def _fail(self, what: str, part: str) -> NoReturn:
        raise PatternError(f"error parsing regexp: {what}: `{part}`")

    def _peek(self, count: int = 1) -> str:
        return self._pattern[self._at : self._at + count]

    def _alternatives(self) -> _Tree:
        self._levels += 1
        if self._levels > _MOST_LEVELS:
            self._fail("expression nests too deeply", self._pattern)
        alternatives = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            alternatives.append(self._sequence())
        self._levels -= 1
        return alternatives[0] if len(alternatives) == 1 else ("any", alternatives)

    def _sequence(self) -> _Tree:
        parts = list[_Tree]()
        repeated_at: int | None = None
        while self._peek() not in {"", "|", ")"}:
            begins = self._at
            repeat = self._repeat()
            if repeat is None:
                repeated_at = None
                parts += self._atom()
                continue
            if not parts:
                self._fail("missing argument to repetition operator", self._since(begins))
            if repeated_at is not None:
                self._fail("invalid nested repetition operator", self._since(repeated_at))
            repeated_at = begins
            least, most, greedy = repeat
            tree = ("repeat", parts[-1], least, most, greedy)
            if _repeats(tree) > _MOST_REPEATED:
                self._fail("invalid repeat count", self._since(begins))
            parts[-1] = tree
        return parts[0] if len(parts) == 1 else ("all", parts)

    def _since(self, begins: int) -> str:
        return self._pattern[begins : self._at]

    def _repeat(self) -> tuple[int, int | None, bool] | None:
        """Return the bounds of a repetition operator, and whether it prefers more."""
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        bounds = simple.get(self._peek())
        begins = self._at
        if bounds is not None:
            self._at += 1
        else:
            found = _REPEAT.match(self._pattern, self._at)
            if found is None or (found[3] and not found[2]):
                return None
            least = int(found[1][:5])
            most = least if not found[2] else int(found[3][:5]) if found[3] else None
            self._at = found.end()
            if least > _MOST_REPEATED or (most or 0) > _MOST_REPEATED or least > (most or least):
                self._fail("invalid repeat count", self._since(begins))
            bounds = (least, most)
        greedy = "U" not in self._flags
        if self._peek() == "?":
            self._at += 1
            greedy = not greedy
        return (*bounds, greedy)

    def _atom(self) -> list[_Tree]:
        """Return what stands at this place; flags are nothing, a quotation is many."""
        character = self._peek()
        match character:
            case "(":
                return self._group()
            case "[":
                return [self._class()]
            case ".":
                self._at += 1
                return [_Set(((0, _LAST),) if "s" in self._flags else ((0, 9), (11, _LAST)))]
            case "^" | "$":
                self._at += 1
                kind = "line" if "m" in self._flags else "text"
                return [("assert", f"{kind} {'begins' if character == '^' else 'ends'}")]
            case "\\":
                return self._escaped()
        self._at += 1
        return [self._literal(ord(character))]

    def _literal(self, code: int) -> _Set:
        return _Set(((code, code),), folded="i" in self._flags)

    def _group(self) -> list[_Tree]:
        opened, before = self._at, self._flags
        flags = _FLAGS.match(self._pattern, self._at)
        if self._peek(2) == "(?":
            named = _NAMED_GROUP.match(self._pattern, self._at)
            if named is not None:
                self._at = named.end()
            elif flags is not None and not (flags[2] and not flags[3]):
                self._flags = (self._flags | {*flags[1]}) - {*flags[3]}
                self._at = flags.end()
                if flags[4] == ")":
                    return []
            elif self._peek(3) == "(?<" or self._peek(4) == "(?P<":
                self._fail("invalid named capture", self._pattern[opened:])
            else:
                self._fail("invalid or unsupported Perl syntax", self._peek(3))
        else:
            self._at += 1
        tree = self._alternatives()
        if self._peek() != ")":
            self._fail("missing closing )", self._pattern)
        self._at += 1
        self._flags = before
        return [tree]

    def _escaped(self) -> list[_Tree]:
        following = self._pattern[self._at + 1 : self._at + 2]
        assertion = {
            "A": "text begins",
            "z": "text ends",
            "b": "word ends or begins",
            "B": "word goes on",
        }.get(following)
        if assertion is not None:
            self._at += 2
            return [("assert", assertion)]
        if following == "Q":
            quoted, _, _rest = self._pattern[self._at + 2 :].partition("\\E")
            self._at = min(self._at + 4 + len(quoted), len(self._pattern))
            return [self._literal(ord(each)) for each in quoted]
        known = self._known_set()
        return [known if known is not None else self._literal(self._escape())]

    def _known_set(self) -> _Set | None:
        """Return the set of an escape for digits or letters, None for other escapes."""
        following = self._pattern[self._at + 1 : self._at + 2]
        if following.lower() in _PERL and following:
            self._at += 2
            ranges: tuple[Range, ...] = _PERL[following.lower()]
            return _Set(ranges if following.islower() else _complement(ranges))
        if following not in {"p", "P"} or not following:
            return None
        begins = self._at
        self._at += 2
        name = self._peek()
        if name == "{":
            name, closing, _rest = self._pattern[self._at + 1 :].partition("}")
            self._at += len(name) + 2
            if not closing:
                self._at = len(self._pattern)
                self._fail("invalid character class range", self._since(begins))
        else:
            self._at += 1
        negated = (following == "P") != name.startswith("^")
        name = name.removeprefix("^")
        if name == "Any":
            return _Set(() if negated else ((0, _LAST),))
        if name not in _CATEGORIES:
            self._fail("invalid character class range", self._since(begins))
        return _Set((), ((name, negated),))

    def _escape(self) -> int:
        """Return the code of an escape that stands for one character."""
        begins = self._at
        self._at += 1
        character = self._peek()
        self._at += 1
        if not character:
            raise PatternError("error parsing regexp: trailing backslash at end of expression: ``")
        if character in _ESCAPES:
            return _ESCAPES[character]
        if ord(character) < 0x80 and not character.isalnum():
            return ord(character)
        found = _NUMERIC_ESCAPE.match(self._pattern, self._at - 1)
        if found is not None:
            code = int(found[1], 8) if found[1] else int(found[2] or found[3], 16)
            if code <= _LAST:
                self._at = found.end()
                return code
        return self._fail("invalid escape sequence", self._since(begins))

    def _class(self) -> _Set:
        """Return the set in square brackets."""
        begins = self._at
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        ranges, categories, first = list[Range](), list[tuple[str, bool]](), True
        while self._peek() != "]" or first:
            if not self._peek():
                self._fail("missing closing ]", self._pattern[begins:])
            first = False
            known = self._posix() if self._peek(2) == "[:" else None
            if known is None and self._peek() == "\\":
                known = self._known_set()
            if known is not None:
                ranges += known.ranges
                categories += known.categories
                continue
            ranges.append(self._range())
        self._at += 1
        return _Set(tuple(ranges), tuple(categories), negated, "i" in self._flags)

    def _posix(self) -> _Set | None:
        closing = self._pattern.find(":]", self._at + 2)
        if closing < 0:
            return None
        name = self._pattern[self._at + 2 : closing]
        begins, self._at = self._at, closing + 2
        ranges: Sequence[Range] | None = _POSIX.get(name.removeprefix("^"))
        if ranges is None:
            self._fail("invalid character class range", self._since(begins))
        return _Set(_complement(ranges) if name.startswith("^") else tuple(ranges))

    def _range(self) -> Range:
        begins = self._at
        low = self._one()
        high = low
        if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in {"]", ""}:
            self._at += 1
            high = self._one()
        if high < low:
            self._fail("invalid character class range", self._since(begins))
        return low, high

    def _one(self) -> int:
        if self._peek() == "\\":
            return self._escape()
        if not self._peek():
            self._fail("missing closing ]", self._pattern)
        self._at += 1
        return ord(self._pattern[self._at - 1])


def _repeats(tree: _Tree) -> int:
    """Return how often a part of the tree occurs at most, as the operators multiply it."""
    match tree:
        case ("repeat", part, least, most, _):
            return int(max(least, most or 0, 1)) * _repeats(part)
        case ("all" | "any", parts):
            return max((_repeats(part) for part in parts), default=1)
    return 1
