"""Counts the steps that Python's `re` takes, so that tests of its cost need no clock.

`re` tries one alternative after the other, and goes back when the rest does not match. This module
does the same on the parse tree of `re` itself, and counts each try.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

# The parse tree that `re` compiles has no public name.
from re import _compiler, _constants as ops, _parser  # type: ignore[attr-defined] # isort: skip


Matcher = Callable[[str, int], Iterator[int]]
"""Yields each end of a match that begins at a position, in the order in which `re` tries them."""
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)
_ONE_CHARACTER = (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN)
_MOST_SAMPLES = 8
_LONGEST_SAMPLE = 40
_MOST_PAIRS = 40
_OTHERS = "0aZ_ \n"


class TooManyStepsError(Exception):
    """A match took more steps than the limit allows."""


class Backtracking:
    """A pattern, and the number of steps that its methods have taken."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern, self.flags = pattern, flags
        self.tree = _parser.parse(pattern, flags)
        self.steps = 0
        self.most = 10**9
        self._whole = self._sequence(self.tree, self.tree.state.flags)

    def ends(self, method: str, text: str) -> list[int]:
        """Return the ends of the matches that a method of `re.Pattern` finds.

        The method `scan` calls `match` repeatedly, each time at the end of the last match.
        """
        match method:
            case "match":
                return [*islice(self._whole(text, 0), 1)]
            case "fullmatch":
                return [*islice((e for e in self._whole(text, 0) if e == len(text)), 1)]
            case "search":
                return [*islice(self._found(text, everywhere=True), 1)]
            case _:
                return [*self._found(text, everywhere=method != "scan")]

    def _found(self, text: str, *, everywhere: bool) -> Iterator[int]:
        at = 0
        while at <= len(text):
            end = next(self._whole(text, at), None)
            if end is not None:
                yield end
            elif not everywhere:
                return
            at = at + 1 if end is None or end == at else end

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self.most:
            raise TooManyStepsError

    def _sequence(self, items: Sequence[Any], flags: int) -> Matcher:
        parts = [self._node(op, argument, flags) for op, argument in items]

        def run(text: str, at: int) -> Iterator[int]:
            if not parts:
                yield at
                return
            tried = [parts[0](text, at)]
            while tried:
                end = next(tried[-1], None)
                if end is None:
                    tried.pop()
                elif len(tried) == len(parts):
                    yield end
                else:
                    tried.append(parts[len(tried)](text, end))

        return run

    def _node(self, op: Any, argument: Any, flags: int) -> Matcher:
        if op in _ONE_CHARACTER:
            return self._character(op, argument, flags)
        if op is ops.AT:
            compiled = _compiled(self.tree.state, op, argument, flags)
            return lambda text, at: iter([at] if compiled.match(text, at) else [])
        if op is ops.SUBPATTERN:
            flags = (flags | argument[1]) & ~argument[2]
        bodies = [self._sequence(each, flags) for each in _children(op, argument)]
        if not bodies:
            raise NotImplementedError(f"write the pattern without {op}")
        if op in _REPEATS:
            least, most, _body = argument
            repeat = self._repeat(least, most, bodies[0], lazy=op is ops.MIN_REPEAT)
            return _first(repeat) if op is ops.POSSESSIVE_REPEAT else repeat
        if op in {ops.ASSERT, ops.ASSERT_NOT}:
            back = argument[1].getwidth()[0] if argument[0] < 0 else 0
            return self._look(bodies[0], back, wanted=op is ops.ASSERT)
        branch = self._branch(bodies)
        return _first(branch) if op is ops.ATOMIC_GROUP else branch

    def _character(self, op: Any, argument: Any, flags: int) -> Matcher:
        accepts = cache(_compiled(self.tree.state, op, argument, flags).match)

        def run(text: str, at: int) -> Iterator[int]:
            self._step()
            if at < len(text) and accepts(text[at]):
                yield at + 1

        return run

    def _branch(self, branches: Sequence[Matcher]) -> Matcher:
        def run(text: str, at: int) -> Iterator[int]:
            for branch in branches:
                self._step()
                yield from branch(text, at)

        return run

    def _look(self, body: Matcher, back: int, *, wanted: bool) -> Matcher:
        def run(text: str, at: int) -> Iterator[int]:
            self._step()
            found = at >= back and next(body(text, at - back), None) is not None
            if found is wanted:
                yield at

        return run

    def _repeat(self, least: int, most: int, body: Matcher, *, lazy: bool) -> Matcher:
        def run(text: str, at: int) -> Iterator[int]:
            tried = [(at, body(text, at))]
            if lazy and not least:
                yield at
            while tried:
                self._step()
                times, (begin, ends) = len(tried) - 1, tried[-1]
                end = next(ends, None) if times < most else None
                if end is None:
                    tried.pop()
                    if not lazy and times >= least:
                        yield begin
                elif end > begin or times < least:
                    tried.append((end, body(text, end)))
                    if lazy and times + 1 >= least:
                        yield end

        return run


def _first(matcher: Matcher) -> Matcher:
    """Return the matcher reduced to its first success."""
    return lambda text, at: islice(matcher(text, at), 1)


def _compiled(state: Any, op: Any, argument: Any, flags: int) -> re.Pattern[str]:
    """Return the pattern for one node of a parse tree."""
    one = _parser.SubPattern(state, [(op, argument)])
    found: re.Pattern[str] = _compiler.compile(one, flags | state.flags)
    return found


# --- what may take many steps


def inputs(tree: Any) -> Iterator[tuple[str, str, str]]:
    """Yield beginnings, parts to repeat, and ends of texts for which a pattern may need many steps.

    The parts are texts that the pattern repeats, pairs of these texts, texts before a repeat, and
    single characters. A text with one of the ends does not match.
    """
    alphabet = [*dict.fromkeys((*sorted(_characters(tree)), *_OTHERS))]
    samples = _Samples(tree.state, alphabet)
    repeats = [*samples.repeats(tree, "")]
    bodies = dict.fromkeys(part for _, parts in repeats for part in parts)
    pairs = [one + other for one in bodies for other in bodies if one != other]
    led = [begin + part for begin, parts in repeats for part in ("", *parts[:2])]
    anywhere = (*led, *bodies, *samples.of(tree), *pairs[:: len(pairs) // _MOST_PAIRS + 1])
    parts_after = {"": dict.fromkeys((*anywhere, *alphabet))}
    for begin, parts in repeats:
        parts_after.setdefault(begin, dict.fromkeys(alphabet)).update(dict.fromkeys(parts))
    for begin, following in parts_after.items():
        for part in following:
            if 0 < len(part) <= _LONGEST_SAMPLE:
                yield begin, part, ""
                yield begin, part, "\0"


def _characters(items: Any) -> set[str]:
    """Return the characters that a parse tree names; of a range, the first and the last."""
    found = set[str]()
    for op, argument in items:
        match op:
            case ops.LITERAL | ops.NOT_LITERAL:
                found.add(chr(argument))
            case ops.RANGE:
                found |= {chr(argument[0]), chr(argument[1])}
            case ops.IN:
                found |= _characters(argument)
            case _:
                found |= {each for tree in _children(op, argument) for each in _characters(tree)}
    return {each for each in found if each.isprintable() or each.isspace()}


def _children(op: Any, argument: Any) -> list[Any]:
    if op in _REPEATS:
        return [argument[2]]
    if op is ops.SUBPATTERN:
        return [argument[3]]
    if op is ops.ATOMIC_GROUP:
        return [argument]
    if op is ops.BRANCH:
        return [*argument[1]]
    return [argument[1]] if op in {ops.ASSERT, ops.ASSERT_NOT} else []


class _Samples:
    """Makes texts that match a part of a pattern, the shortest first."""

    def __init__(self, state: Any, alphabet: Sequence[str]) -> None:
        self._state, self._alphabet = state, alphabet

    def of(self, items: Any) -> list[str]:
        """Return texts that match a sequence of nodes."""
        each = [self._node(op, argument) for op, argument in items]
        firsts = [found[0] for found in each]
        made = ["".join(firsts)]
        for at, found in enumerate(each):
            made += ["".join((*firsts[:at], other, *firsts[at + 1 :])) for other in found[1:]]
        return [*dict.fromkeys(made)][:_MOST_SAMPLES]

    def repeats(self, items: Any, begin: str) -> Iterator[tuple[str, list[str]]]:
        """Yield for each repeat the text before it, and texts that it may repeat."""
        for op, argument in items:
            if op in _REPEATS and argument[1] > 1:
                yield begin, self.of(argument[2])
            if op is not ops.ASSERT_NOT:
                for tree in _children(op, argument):
                    yield from self.repeats(tree, begin)
            begin += self._node(op, argument)[0]

    def _node(self, op: Any, argument: Any) -> list[str]:
        if op in _ONE_CHARACTER:
            one = _compiled(self._state, op, argument, 0)
            accepted = [each for each in self._alphabet if one.match(each)]
            return [*dict.fromkeys((*accepted[:2], *accepted[-1:]))] or [""]
        if op in _REPEATS:
            least, most, body = argument
            found = self.of(body)
            return [found[0] * least, *(each * max(1, least) for each in found if most)]
        if op in {ops.AT, ops.ASSERT, ops.ASSERT_NOT}:
            return [""]
        children = _children(op, argument)
        return [each for tree in children for each in self.of(tree)[:3]] or [""]
