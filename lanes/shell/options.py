"""The options of a command, told apart from its operands as GNU getopt does it."""

from collections.abc import Mapping, Sequence

import msgspec

from laneway.lanes.shell.words import Word, literal


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a command that matter; all others are taken for flags.

    Letters are given together, names by what they take. Of an unknown option with a value that
    stands apart, the value counts as an operand.
    """

    values: str = ""
    """Letters that take a value of no interest."""
    reads: str = ""
    """Letters whose value is a file that is read."""
    writes: str = ""
    """Letters whose value is a file or folder that is written."""
    optional: str = ""
    """Letters that take a value only when it is attached."""
    opaque: str = ""
    """Letters with which nothing can be said."""
    long: Mapping[str, str] = {}
    """Names to `value`, `read`, `write`, `optional`, `opaque`, or the letter they stand for."""
    in_order: bool = False
    """The first operand ends the options."""
    trusting: bool = False
    """A glob is not suspected to match a file whose name is an option."""

    @property
    def is_risky(self) -> bool:
        """Whether an unknown word among the arguments could change what is written."""
        return bool(
            self.writes or self.opaque or any(role not in _HARMLESS for role in self.long.values())
        )


_HARMLESS = {"value", "read", "optional"}


class Parsed(msgspec.Struct):
    """Arguments, sorted."""

    operands: list[Word]
    values: dict[str, list[Word]]
    """By letter or name; flags and attached-only options without value hold an empty word."""
    reads: list[Word]
    writes: list[Word]
    opaque: str = ""
    """Why nothing can be said."""
    ended: int = 0
    """How many arguments come before the first operand, `in_order`."""

    def has(self, *names: str) -> bool:
        """Whether one of these options is given."""
        return any(name in self.values for name in names)


def sort(args: Sequence[Word], options: Options) -> Parsed:
    """Sort the arguments of a command."""
    return _Sorter(args, options).sorted()


class _Sorter:
    def __init__(self, args: Sequence[Word], options: Options) -> None:
        self._args = args
        self._options = options
        self._risky = options.is_risky
        self._at = 0
        self._parsed = Parsed([], {}, [], [])

    def sorted(self) -> Parsed:
        args, parsed, options = self._args, self._parsed, self._options
        while self._at < len(args):
            word = args[self._at]
            text = word.text if word.text is not None else word.prefix
            if word.text == "--":
                parsed.operands += args[self._at + 1 :]
                self._at += 1
                break
            if word.many and not word.wild and self._risky:
                self._unsure(word)
            if text[:2] == "--":
                self._long(word, text)
            elif text[:1] == "-" and (len(text) > 1 or word.text is None):
                self._letters(word, text)
            else:
                if word.may_be_option and self._risky and not (word.wild and options.trusting):
                    self._unsure(word)
                if options.in_order:
                    parsed.operands += args[self._at :]
                    break
                parsed.operands.append(word)
            self._at += 1
        parsed.ended = self._at
        return parsed

    def _long(self, word: Word, text: str) -> None:
        name, equals, _ = text.partition("=")
        name = name[2:]
        if word.text is None and not equals:
            if self._risky:
                self._unsure(word)
            return
        role = self._role(name)
        if role == "opaque":
            self._parsed.opaque = self._parsed.opaque or f"{text}"
        attached = _rest(word, len(name) + 3) if equals else None
        if role is None or role in {"opaque", "optional"}:
            self._note(name, attached or literal(""))
        elif len(role) == 1:
            self._letter(role, attached)
        else:
            self._take(role, name, attached if attached is not None else self._next())

    def _role(self, name: str) -> str | None:
        """Find an option by its name, or by what may be the beginning of it."""
        long = self._options.long
        role = long.get(name)
        if role is None and name:
            for known, its in long.items():
                if known.startswith(name):
                    return its
        return role

    def _letters(self, word: Word, text: str) -> None:
        for at in range(1, len(text)):
            letter = text[at]
            rest = _rest(word, at + 1) if at + 1 < len(text) or word.text is None else None
            if self._letter(letter, rest, cluster=True):
                return
        if word.text is None and self._risky:
            self._unsure(word)

    def _letter(self, letter: str, attached: Word | None, *, cluster: bool = False) -> bool:
        """Note an option by its letter; say whether it took what stands behind it."""
        options = self._options
        if letter in options.opaque:
            self._parsed.opaque = self._parsed.opaque or f"-{letter}"
        for role, letters in (
            ("value", options.values),
            ("read", options.reads),
            ("write", options.writes),
        ):
            if letter in letters:
                self._take(role, letter, attached if attached is not None else self._next())
                return True
        if letter in options.optional:
            self._note(letter, attached or literal(""))
            return True
        self._note(letter, literal("") if cluster else attached or literal(""))
        return False

    def _take(self, role: str, name: str, value: Word | None) -> None:
        if value is None:
            return
        self._note(name, value)
        if role == "read":
            self._parsed.reads.append(value)
        elif role == "write":
            self._parsed.writes.append(value)

    def _next(self) -> Word | None:
        self._at += 1
        if self._at >= len(self._args):
            return None
        value = self._args[self._at]
        if value.many and self._risky:
            self._unsure(value)
        return value

    def _note(self, name: str, value: Word) -> None:
        self._parsed.values.setdefault(name, []).append(value)

    def _unsure(self, word: Word) -> None:
        self._parsed.opaque = self._parsed.opaque or f"{word.shown!r} may be an option"


def _rest(word: Word, start: int) -> Word:
    """What stands behind an option in the same word."""
    if word.text is not None:
        return literal(word.text[start:])
    return word._replace(prefix=word.prefix[start:], shown=word.shown[start:])
