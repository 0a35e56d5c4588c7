"""From the syntax tree to the parts of a command line, or to the admission that it can't be read.

tree-sitter is lenient: what it takes for blank, for one word or for a string is not always what a
shell takes for it. So each piece is checked against the rules of the shell itself: pieces and the
blanks between them must cover the line without a rest, and a kind of node that is not known here
is refused. Where bash and a plain POSIX shell read a line differently, and one of the readings
could run more, it is refused too. Reads the tree; feeds the walk.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from laneway.lanes.shell.documents import Document, cut, verify
from laneway.lanes.shell.grammar import parse
from laneway.lanes.shell.lines import Compound, Redirect, Script, Shape, Simple, Step
from laneway.lanes.shell.source import LinesJoined, Source, Unreadable
from laneway.lanes.shell.wording import Found, WordReader
from laneway.lanes.shell.words import Word, literal

if TYPE_CHECKING:
    from tree_sitter import Node

_DEEPEST = 40
"""Levels of nesting; nobody writes half as many."""
_MOST_JOINED = 16
_FOLLOWING = frozenset({"list", "pipeline", "redirected_statement"})
_REDIRECTS = frozenset({"file_redirect", "herestring_redirect"})
_NOT_A_NAME = re.compile(r"\w+(?:\[.*\])?\+?=.*", re.DOTALL)
_C_HEADER = re.compile(r"for[ \t]*\(\([\w\s=;<>+*%!,-]*\)\)[\s;]*")
_PATTERN = re.compile(r"[\w.*?/+,:@%\[\]-]+")
_STREAM = re.compile(r"\d+-?|-|[A-Za-z_./][\w./:=,@%+-]*")
"""What may stand behind `>&`: of other words bash takes the quotes off twice, or a dash."""
_DESCRIPTORS = frozenset("0123456789")
"""A POSIX shell takes two digits for a word."""
_TEST_OPERATORS = frozenset({"!", "=", "==", "!="})
_RECKONING = frozenset("-eq -ne -lt -le -gt -ge".split())
_NAMES = re.compile(r"[\w+-]*")
_VARIABLE = re.compile(r"\$(?:\w+|\{#?\w+\}|[#?$!])")
_COUNT = re.compile(r"[+-]?\d*|\$[#?$!]|\$\{#\w+\}")

RESERVED = frozenset(
    "if then elif else fi for select in while until do done case esac function coproc "
    "{ } ! [[ ]]".split()
)
"""Words that are no commands."""


def read(text: bytes, found: Found) -> Script:
    """Read a command line.

    Args:
        text: The line, or several.
        found: Takes what the words bring with them.

    Raises:
        Unreadable: It has an error, or may not mean what it seems to.
        MissingShellError: The extra `shell` is not installed.
    """
    rest, documents = cut(text)
    for _ in range(_MOST_JOINED):
        try:
            script = _script(rest, documents, found)
            break
        except LinesJoined as joined:
            # Behind a word, a newline is what a semicolon is, and that is always seen.
            rest = rest[: joined.at] + b";" + rest[joined.at + 1 :]
    else:
        raise Unreadable("too many lines that were read as one")
    for document in documents:
        inner = _document(document, found)
        if inner:
            script.append(Step(";", Simple([], [], inner)))
    return script


def _script(rest: bytes, documents: list[Document], found: Found) -> list[Step]:
    root = parse(rest)
    if root is None:
        raise Unreadable("a syntax error, or a line that is too long")
    verify(documents, root, rest)
    source = Source(rest)
    source.margins(root)
    return _Reader(source, found).script(source.children(root))


def _document(document: Document, found: Found) -> list[Script]:
    """Read the substitutions in a here-document: those of a string with double quotes."""
    inner: list[Script] = []
    if document.quoted or not (b"`" in document.body or b"$" in document.body):
        return inner
    if b'"' in document.body:
        if b"`" in document.body or b"$(" in document.body or b"${" in document.body:
            raise Unreadable("a here-document with quotes and expansions")
        return inner
    text = b': "' + document.body + b'"'
    root = parse(text)
    node = root
    for kind in ("command", "string"):
        inside = [child for child in node.children if child.type == kind] if node else []
        node = inside[0] if len(inside) == 1 else None
    if node is None or node.end_byte != len(text):
        raise Unreadable("a here-document")
    _Reader(Source(text), found).words.word(node, inner)
    return inner


class _Reader:
    """Reads the statements of one line."""

    def __init__(self, source: Source, found: Found) -> None:
        self._source = source
        self._found = found
        self._depth = 0
        self.words = WordReader(source, self._substitution, found)
        self._readers: dict[str, Callable[[Node], Simple | Compound]] = {
            "command": self._command,
            "variable_assignment": self._assignments,
            "variable_assignments": self._assignments,
            "declaration_command": self._declaration,
            "unset_command": self._declaration,
            "test_command": self._test,
            "for_statement": self._for,
            "c_style_for_statement": self._c_style_for,
            "while_statement": self._while,
            "if_statement": self._if,
            "case_statement": self._case,
            "compound_statement": self._braces,
            "subshell": self._subshell,
            "function_definition": self._function,
        }

    def script(self, nodes: "Sequence[Node]") -> list[Step]:
        """Read statements and what separates them."""
        steps: list[Step] = []
        after = ";"
        before: Node | None = None
        for node in nodes:
            if node.type in {";", "&", ";;"}:
                after = "&" if node.type == "&" else ";"
                before = None
                continue
            if before is not None and not self._source.has_newline(
                before.end_byte, node.start_byte
            ):
                raise Unreadable("two commands on a line without anything between")
            steps += self._steps(node, after)
            after, before = ";", node
        return steps

    def _steps(self, node: "Node", after: str) -> list[Step]:
        """Read one statement.

        The tree's nesting of lists, pipes and redirections is not the shell's; the order is.
        """
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Unreadable("too deep a nesting")
        following: list[list[Node]] = []
        while node.type in _FOLLOWING:
            redirected = node.type == "redirected_statement"
            children = self._source.children(node, lines=not redirected)
            if children[0].type in _REDIRECTS or children[0].type == "heredoc_redirect":
                following.append(children)
                break
            following.append(children[1:])
            node = children[0]
        steps = (
            [Step(after, Simple([], [], []))]
            if node.type in _FOLLOWING
            else [self._step(node, after)]
        )
        for nodes in reversed(following):
            self._follow(nodes, steps)
        self._depth -= 1
        return steps

    def _follow(self, nodes: "Sequence[Node]", steps: list[Step]) -> None:
        operator = ""
        for node in nodes:
            if node.type in _REDIRECTS:
                self._redirect(node, steps[-1].command)
            elif not node.is_named:
                operator = "|" if node.type == "|&" else node.type
            elif operator:
                steps += self._steps(node, operator)
            else:
                raise Unreadable(f"a {node.type}")

    def _step(self, node: "Node", after: str) -> Step:
        if node.type == "negated_command":
            children = self._source.children(node)
            if len(children) != 2:  # noqa: PLR2004  # the sign and a command
                raise Unreadable("a negation")
            step = self._step(children[1], after)
            step.negated = not step.negated
            return step
        read_it = self._readers.get(node.type)
        if read_it is None:
            raise Unreadable(f"a {node.type}")
        return Step(after, read_it(node))

    def _command(self, node: "Node") -> Simple:
        command = Simple([], [], [])
        end = -1
        for child in self._source.children(node, lines=False):
            kind = child.type
            if kind == "variable_assignment":
                self.words.assignment(child, command.inner)
            elif kind in _REDIRECTS:
                if child.start_byte == end:
                    self._not_a_number(end)
                self._redirect(child, command)
            elif kind == "command_name":
                command.words.append(self.words.word(child.children[0], command.inner))
            elif kind == "subshell" or not (child.is_named or kind == "$"):
                raise Unreadable(f"{self._source.of(child)!r} in a command")
            else:
                command.words.append(self.words.word(child, command.inner))
            end = child.end_byte
        return _checked(command)

    def _assignments(self, node: "Node") -> Simple:
        command = Simple([], [], [])
        one = node.type == "variable_assignment"
        for child in [node] if one else self._source.children(node, lines=False):
            self.words.assignment(child, command.inner)
        return command

    def _declaration(self, node: "Node") -> Simple:
        command = Simple([], [], [])
        for child in self._source.children(node, lines=False):
            if child.type == "variable_assignment":
                self.words.assignment(child, command.inner)
            elif child.type == "variable_name" or not child.is_named:
                command.words.append(literal(self._source.of(child)))
            else:
                command.words.append(self.words.word(child, command.inner))
        return command

    def _test(self, node: "Node") -> Simple:
        command = Simple([], [], [])
        children = self._source.children(node, lines=False)
        command.words.append(literal(self._source.of(children[0])))
        for child in children[1:-1]:
            self._expression(child, command)
        command.words.append(literal(self._source.of(children[-1])))
        if command.words[0].text == "[[":
            self._reckoned(command.words)
        return command

    def _reckoned(self, words: list[Word]) -> None:
        """`[[ x -eq 1 ]]` reckons both sides: with variables, and the substitutions in a text."""
        for before, operator, behind in zip(words, words[1:], words[2:], strict=False):
            if operator.text not in _RECKONING:
                continue
            for side in (before, behind):
                shown = side.shown.strip('"')
                known = _NAMES if side.text is not None else _VARIABLE
                if not known.fullmatch(shown if side.text is None else side.text):
                    raise Unreadable(f"{side.shown!r} in a calculation")
                self._found.calculates |= not _COUNT.fullmatch(shown)

    def _expression(self, node: "Node", command: Simple) -> None:
        kind = node.type
        if kind in {"unary_expression", "binary_expression"}:
            for child in self._source.children(node, lines=False):
                self._expression(child, command)
        elif kind == "test_operator" or kind in _TEST_OPERATORS:
            command.words.append(literal(self._source.of(node)))
        elif kind in {"extglob_pattern", "regex"}:
            command.words.append(literal(self._pattern(node)))
        elif node.is_named and not kind.endswith("expression"):
            command.words.append(self.words.word(node, command.inner))
        else:
            # `[ a > b ]` writes b, and so does `[[ a > b ]]` where the shell has no `[[`.
            raise Unreadable(f"{self._source.of(node)!r} in a test")

    def _pattern(self, node: "Node") -> str:
        text = self._source.of(node)
        if not _PATTERN.fullmatch(text):
            raise Unreadable(f"the pattern {text!r}")
        return text

    def _redirect(self, node: "Node", command: Simple | Compound) -> None:
        children = self._source.children(node, lines=False)
        descriptor = ""
        if children[0].type == "file_descriptor":
            descriptor = self._source.of(children.pop(0))
            if descriptor not in _DESCRIPTORS:
                raise Unreadable(f"{descriptor!r} before a redirection")
        operator = self._source.of(children[0])
        words = [self.words.word(child, command.inner) for child in children[1:]]
        if operator == "<<<" or operator.endswith("-"):
            command.redirects.append(Redirect(operator, None, descriptor))
            words = [] if operator == "<<<" else words
        elif words:
            target = words.pop(0)
            if operator.endswith("&") and not _STREAM.fullmatch(target.text or ""):
                raise Unreadable(f"{target.shown!r} behind {operator}")
            command.redirects.append(Redirect(operator, target, descriptor))
        if words:  # The tree takes what follows the target for more of them.
            # A POSIX shell takes `&>` for the end of one command and the redirection of the next.
            in_background = any(one.operator[0] == "&" for one in command.redirects)
            if isinstance(command, Compound) or in_background:
                raise Unreadable("a word after a redirection")
            command.words += words
            _checked(command)

    def _not_a_number(self, at: int) -> None:
        """A word that touches a redirection is its descriptor, if it can be one."""
        if self._source.text[at - 1] in b"0123456789}":
            raise Unreadable("a descriptor that was read as a word")

    def _for(self, node: "Node") -> Compound:
        *head, body = self._source.children(node)
        loop = Compound(Shape.LOOP, [], [], [])
        self._found.assigned.append(self._source.of(head[1]))
        self._found.texts = True
        values = [child for child in head[2:] if child.is_named]
        if values and self._source.has_newline(head[1].end_byte, values[-1].start_byte):
            raise Unreadable("a loop over several lines")
        for value in values:
            self.words.word(value, loop.inner)
        loop.bodies.append(self._group(body))
        return loop

    def _c_style_for(self, node: "Node") -> Compound:
        body = node.children[-1]
        header = self._source.text[node.start_byte : body.start_byte].decode()
        if not _C_HEADER.fullmatch(header):
            raise Unreadable("the head of a loop")
        self._found.calculates = True
        return Compound(Shape.LOOP, [self._group(body)], [], [])

    def _while(self, node: "Node") -> Compound:
        _, *condition, body = self._source.children(node)
        return Compound(Shape.LOOP, [self.script(condition), self._group(body)], [], [])

    def _if(self, node: "Node") -> Compound:
        branch = Compound(Shape.BRANCH, [], [], [])
        self._branches(node, branch)
        return branch

    def _branches(self, node: "Node", branch: Compound) -> None:
        body: list[Node] = []
        for child in self._source.children(node):
            if child.type in {"if", "then", "elif", "else", "fi"}:
                branch.bodies.append(self.script(body))
                body = []
            elif child.type in {"elif_clause", "else_clause"}:
                branch.bodies.append(self.script(body))
                body = []
                self._branches(child, branch)
            else:
                body.append(child)
        branch.bodies.append(self.script(body))

    def _case(self, node: "Node") -> Compound:
        branch = Compound(Shape.BRANCH, [], [], [])
        for child in self._source.children(node):
            if child.type == "case_item":
                self._case_item(child, branch)
            elif child.is_named:
                self.words.word(child, branch.inner)
        return branch

    def _case_item(self, node: "Node", branch: Compound) -> None:
        children = self._source.children(node)
        end = next(at for at, child in enumerate(children) if child.type == ")")
        for child in children[:end]:
            if child.type == "extglob_pattern":
                self._pattern(child)
            elif child.is_named:
                self.words.word(child, branch.inner)
        body = [child for child in children[end + 1 :] if child.type not in {";;", ";&", ";;&"}]
        branch.bodies.append(self.script(body))

    def _braces(self, node: "Node") -> Compound:
        return Compound(Shape.GROUP, [self._group(node)], [], [])

    def _subshell(self, node: "Node") -> Compound:
        return Compound(Shape.SUBSHELL, [self._group(node)], [], [])

    def _function(self, node: "Node") -> Compound:
        children = self._source.children(node)
        names = [child for child in children if child.type == "word"]
        function = Compound(Shape.FUNCTION, [], [], [], self._source.of(names[0]))
        for child in children:
            if child.type in _REDIRECTS:
                self._redirect(child, function)
            elif child.is_named and child.type != "word":
                function.bodies.append(self._steps(child, ";"))
        return function

    def _group(self, node: "Node") -> Script:
        first, *inside, last = self._source.children(node)
        if (first.type, last.type) not in {("{", "}"), ("(", ")"), ("do", "done")}:
            raise Unreadable(f"{self._source.of(first)!r} in place of a command")
        return self.script(inside)

    def _substitution(self, node: "Node") -> Script:
        self._depth += 1
        _, *inside, _ = self._source.children(node)
        if inside and inside[0].type in _REDIRECTS:
            command = Simple([], [], [])
            for child in inside:
                self._redirect(child, command)
            script: Script = [Step(";", command)]
        else:
            script = self.script(inside)
        self._depth -= 1
        return script


def _checked(command: Simple) -> Simple:
    """A reserved word, or a value that is set, is no name of a command."""
    if command.words:
        name = command.words[0]
        if name.text in RESERVED or _NOT_A_NAME.fullmatch(name.shown):
            raise Unreadable(f"{name.shown!r} in place of a command")
    return command
