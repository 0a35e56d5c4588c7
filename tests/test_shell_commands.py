"""What the analysis of a command line tells beyond claims: its commands, and what it can't see."""

import sys

import pytest

from laneway.effects import Effect
from laneway.lanes.shell import (
    HOLE,
    Command,
    MissingShellError,
    Redirection,
    analyse,
    grammar,
    shell_claims,
    shell_effect,
)
from laneway.lanes.shell.grammar import require_grammar


def names(line: str) -> list[str]:
    return [one.name for one in analyse(line).commands]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a && b || c; d & e\nf", "a b c d e f"),
        ("a | b |& c", "a b c"),
        ("(a; { b; })", "a b"),
        ("if a; then b; elif c; then d; else e; fi", "a b c d e"),
        ("for i in $(a); do b; done", "a b"),
        ("for ((i = 0; i < 3; i++)); do a; done", "a"),
        ("select i in x; do a; done", "a"),
        ("while a; do b; done < <(c)", "c a b"),
        ("until a; do b; done", "a b"),
        ("case $(a) in x|y) b;; *) d;& (z) c;; esac", "a b d c"),
        ("f() { a; }", "a"),
        ("function f { a; }", "a"),
        ("f() ( a ) > out", "a"),
        ('echo `a` $(b) "$(c)" <(d) > >(e)', "a b c d e echo"),
        ("cat <<X\n$(a) $x\nX", "cat a"),
        ("cat <<'X'\n`a` $(b)\nX", "cat"),
        ("x=$(a) y=(`b` c) d", "a b d"),
        ("export x=$(a); declare -r y=2; unset x", "a export declare unset"),
        ('[ -f "$(a)" ] && [[ -n $(b) ]]', "a [ b [["),
        ("env A=1 sudo -u x timeout 5 a b", "env sudo timeout a"),
        ("bash -c 'a; b' && sh -c \"c | d\"", "bash a b sh c d"),
        ("eval 'a b' c", "eval a"),
        ("find . -exec a {} + -o -ok b \\;", "find a b"),
        ("a | xargs -n 1 b c", "a xargs b"),
        ("xargs", "xargs echo"),
        ("time a | b", "time a b"),
        ("nohup a & exec b", "nohup a exec b"),
        ("trap 'a' EXIT INT; trap - EXIT; trap", "trap a trap trap"),
        ("! a; \\b; 'c'; d''; \"e\"", "a b c d e"),
        ("/usr/bin/a; ./b; c/d", "a b d"),
        ("flock f a; watch -x b; watch 'c | d'; setsid e", "flock a watch b watch c d setsid e"),
        ("A=1 B=2", ""),
        ("> a", ""),
    ],
)  # fmt: skip
def test_every_simple_command_is_listed_in_the_order_of_running(line: str, expected: str) -> None:
    analysis = analyse(line)

    assert analysis.complete, analysis.why
    assert " ".join(one.name for one in analysis.commands) == expected


def test_a_command_is_told_by_its_words_and_redirections() -> None:
    (command,) = analyse("grep -n 'a  b' \"$x\" *.py \\$y 2> err < in >&2").commands

    assert command == Command(
        name="grep",
        argv=("grep", "-n", "a  b", None, "*.py", "$y"),
        text="grep -n 'a  b' \"$x\" *.py '$y'",
        outline=f"grep -n 'a  b' {HOLE} {HOLE} '$y'",
        redirections=(
            Redirection(">", "err"),
            Redirection("<", "in"),
            Redirection(">&", "2"),
        ),
        through=(),
        seen_through=True,
    )


def test_a_wrapped_command_says_what_it_is_wrapped_in() -> None:
    outer, inner, innermost = analyse("sudo bash -c 'rm -rf build'").commands

    assert (outer.through, inner.through, innermost.through) == (
        (),
        ("sudo",),
        ("sudo", "bash"),
    )
    assert innermost.argv == ("rm", "-rf", "build")


def test_what_is_not_seen_through_is_told_of_the_command_itself() -> None:
    first, second, third = analyse("ls; make; ls").commands

    assert [first.seen_through, second.seen_through, third.seen_through] == [True, False, True]


@pytest.mark.parametrize(
    "line",
    [
        "eval $x",
        "bash script.sh",
        "bash -c $x",
        "$x a",
        ". ./env.sh",
        "alias a=b; a",
        "PATH=.; ls",
        "echo 'unclosed",
        "find . -exec $x \\;",
        "xargs $x",
        "echo $'it\\'s'; ls",
        "watch $x",
        'trap "$x" EXIT',
        "flock f -c 'a'",
        "sudo -s a",
        "time { a; }",
        "enable -f ./x.so x",
    ],
)
def test_a_list_that_may_lack_commands_says_so(line: str) -> None:
    analysis = analyse(line)

    assert not analysis.complete
    assert analysis.opaque
    assert analysis.effect is Effect.EXTERNAL


MISREAD = {
    # What tree-sitter takes for one thing and a shell for another.
    "rm \\ a": "a blank that is escaped",
    "echo foo\\\nbar": "one word on two lines",
    "echo >\\\n>a": "one operator on two lines",
    "echo $'a\\\\'; rm x; echo ' b\\'": "a string that seems to go on",
    "p -n1>&2": "an option that seems a descriptor",
    'echo a$"b"': "a translated string",
    "echo a<(b)": "one word with a substitution in it",
    "p &> f x": "two commands, for a POSIX shell",
    "p >& -n": "a closed stream and a word",
    "z$((1))\\+ a": "a word in two pieces",
    "[ x || rm -rf y ]": "a command in brackets",
    "[[ x || rm -rf y ]]": "a command, where there is no [[",
    "((rm > x))": "a calculation, or two subshells",
    "ls \r rm": "a return that is no blank",
    "echo ${x:-$(rm a)}": "a substitution in a default",
    "echo ${x@P}": "a value that is run",
    'echo "`echo \\`rm a\\``"': "nested backticks",
    "cat <<A \\\n b\nA": "a document on another line",
    "cat <<A 'x\nb\nA\ny'": "a document behind the end of a string",
    "echo '<<A\nA\n'": "a document in a longer string",
    "time (rm a)": "a subshell that is measured",
    "for i in a\nb\ndo ls; done": "a loop over two lines",
    "ls\n" + "ls | cat | wc\ncat a > b\n" * 20: "line after line that is joined",
    "bash --rcfile ./x -ic ls": "a shell with a script of its own",
    "rm " + "{a,b}" * 8: "more alternatives than are looked at",
    'echo $"a"': "a string that is translated",
    'x=1 y="$x"\\\nz ls': "a value that goes on",
    "echo '<<A\nA' <<A\nA\n": "a document in a string",
    "a=b[$(rm x)] c[1]=2": "an element of an array",
    "f() { :; }; ls() { rm x; }; ls": "a name that is not what it was",
    "if ls\nthen\nfi": None,
    'cat <<A\n"$(rm a)"\nA': "quotes in a document",
    "a &&\n\nb ;;": None,
    "echo a\u00a0b": None,
    "rm x{": None,
}  # fmt: skip


@pytest.mark.parametrize("line", [line for line, fault in MISREAD.items() if fault])
def test_a_line_that_may_be_read_in_two_ways_is_opaque(line: str) -> None:
    assert analyse(line).opaque


@pytest.mark.parametrize("line", MISREAD)
def test_no_line_is_too_odd_to_be_analysed(line: str) -> None:
    analyse(line)


@pytest.mark.parametrize(
    "line",
    ["\0", "ls \0", "\ud800", "a" * 70_000, "(" * 500, "$(" * 500, "a | " * 30_000 + "a",
     "{ " * 200 + "a; " + "}; " * 200, "bash -c " * 20 + "a", "sudo " * 20 + "a",
     "echo " + "?|" * 4000, "x=" + "$|>&" * 2000, "[[ a =~ " + "`/" * 4000, "true;" * 3000],
    ids=len,
)  # fmt: skip
def test_what_nobody_writes_is_opaque_and_soon_done(line: str) -> None:
    analysis = analyse(line)

    assert analysis.opaque
    assert not analysis.complete


def test_lines_in_lines_are_followed_for_a_while() -> None:
    assert analyse("sudo " * 7 + "bash -c 'touch a'").claims() == ["write file:a"]
    assert not analyse("sudo " * 8 + "bash -c 'touch a'").complete
    assert not analyse("sudo " * 9 + "touch a").complete


def test_a_line_of_more_commands_than_anybody_reads_is_not_complete() -> None:
    line = "\n".join(f"for i in 1; do bash -c '{'ls;' * 900}'; done" for _ in range(3))

    assert not analyse(line).complete


def test_a_wrapper_without_a_command_does_nothing() -> None:
    assert analyse("env A=1; sudo; nice; flock lock; bash --help; watch; exec").claims() == [
        "write file:lock"
    ]


def test_a_long_here_document_is_read() -> None:
    text = "some text with $dollars and 'quotes' (and parentheses)\n" * 1000

    assert analyse(f"cat > a.txt <<'EOF'\n{text}EOF\n").claims() == ["write file:a.txt"]


def test_a_line_that_names_more_files_than_anybody_reads_claims_all_files() -> None:
    line = "rm " + " ".join(f"f{n}" for n in range(300))

    assert analyse(line).claims() == ["write file:"]


def test_a_path_that_no_claim_can_name_counts_as_unknown() -> None:
    assert analyse("cat " + "a" * 2000).claims() == ["read file:."]
    assert analyse("touch " + "a/" * 100).claims() == ["write file:."]


def test_more_folders_than_can_be_followed_are_none_that_is_known() -> None:
    line = "; ".join(f"cd d{n}" for n in range(5)) + "; touch /a/b; touch c"

    assert analyse(line).claims() == ["write file:/a/b", "write file:."]


def test_a_line_starts_in_the_folder_given() -> None:
    assert analyse("cat a ../b /c", cwd="/w/src").claims("/w") == [
        "read file:/w/src/a",
        "read file:/w/src/../b",
        "read file:/c",
    ]
    assert analyse("make", cwd="/w/src").claims("/w") == ["write file:/w"]


def test_the_claims_of_a_tool_follow_its_arguments() -> None:
    claims = shell_claims("cmd", workspace="/w", cwd_parameter="folder")

    assert claims({"cmd": "cat a"}) == ["lane:shell//w", "read file:/w/a"]
    assert claims({"cmd": "cat a", "folder": None}) == ["lane:shell//w", "read file:/w/a"]
    assert claims({"cmd": "cat a", "folder": "src"}) == ["lane:shell//w", "read file:/w/src/a"]
    assert claims({"cmd": "cat a", "folder": "/x"}) == ["lane:shell//w", "read file:/x/a"]
    assert claims({"cmd": "cat a", "folder": 1}) == ["lane:shell//w", "write file:/w"]
    assert claims({"cmd": ["cat", "a"]}) == ["lane:shell//w", "write file:/w"]


def test_the_effect_of_a_call_follows_its_command() -> None:
    effect = shell_effect("cmd")

    assert effect({"cmd": "ls"}) is Effect.READ
    assert effect({"cmd": "touch a"}) is Effect.WRITE
    assert effect({"cmd": "make"}) is Effect.EXTERNAL


def test_without_the_extra_a_tool_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(MissingShellError) as caught:
        shell_claims("command")

    assert str(caught.value) == (
        "analysing shell commands needs tree-sitter and its bash grammar; install them with: "
        "pip install 'laneway[shell]'"
    )


def test_without_the_extra_an_analysis_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    grammar._language.cache_clear()
    monkeypatch.setitem(sys.modules, "tree_sitter_bash", None)

    with pytest.raises(MissingShellError):
        analyse("echo never seen before")


def test_the_extra_is_there_in_a_checkout() -> None:
    require_grammar()
