"""Laws of the analysis of command lines, whatever the line."""

import shlex
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.lanes.names import Names
from laneway.lanes.shell import ShellAnalysis, analyse

TOKENS = st.sampled_from(
    [*" \n\t\r;|&()<>{}[]$`\"'\\#=*?!~@%^-+:,./", "a", "rm b", "&&", "||", ">>", ">&", "2>",
     "<<E\n", "E\n", "<<<", "$(", "${", "$((", "))", "<(", "if ", "then ", "fi", "for i in ", "do ",
     "done", "case x in ", "esac", "[[ ", " ]]", "f() {", "eval ", "bash -c ", "cd ", "cat ", "> c"]
)  # fmt: skip
SOUP = st.lists(TOKENS, max_size=14).map("".join)

NAMES = st.sampled_from(["a", "b.txt", "src/c", "'d e'", "/abs/f", "*.py", "$x", '"$y"', "{g,h}"])
SIMPLE = st.one_of(
    st.builds("{} {}".format, st.sampled_from(["cat", "ls", "rm -f", "touch", "wc -l"]), NAMES),
    st.builds("cp {} {}".format, NAMES, NAMES),
    st.builds("sed -i s/a/b/ {}".format, NAMES),
    st.builds("echo {} > {}".format, NAMES, NAMES),
    st.sampled_from(["make", "git status", "git add a", "echo 'a > b'", "true"]),
)
LINES = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds("{}; {}".format, inner, inner),
        st.builds("{} && {}".format, inner, inner),
        st.builds("{} | {}".format, inner, inner),
        st.builds("( {} )".format, inner),
        st.builds("if {}; then {}; fi".format, inner, inner),
        st.builds("for i in 1 2; do {}; done".format, inner),
        st.builds("echo $( {} )".format, inner),
        st.builds("{{ {}; }} > out".format, inner),
    ),
    max_leaves=5,
)


def taken(line: str) -> set[str]:
    return set(analyse(line).claims())


def covers(wide: ShellAnalysis, narrow: ShellAnalysis) -> bool:
    return (
        set(wide.writes) >= set(narrow.writes)
        and set(wide.reads) >= set(narrow.reads)
        and wide.opaque >= narrow.opaque
        and wide.reads_anything >= narrow.reads_anything
    )


@given(st.one_of(st.text(), SOUP))
def test_no_text_raises_and_its_claims_can_be_named(text: str) -> None:
    analysis = analyse(text)

    assert analysis.opaque or analysis.complete
    assert bool(analysis.why) is analysis.opaque
    names = Names("/")
    for claim in analysis.claims():
        names.canonical(claim.partition(" ")[2])


@given(LINES, st.sampled_from(["{}; ls", "{} && cat b", "ls; {}", "true || {}", "{}\nwc -l b"]))
def test_a_reading_command_beside_a_line_takes_nothing_away(line: str, beside: str) -> None:
    assert covers(analyse(beside.format(line)), analyse(line))


@given(LINES, LINES)
def test_two_lines_take_what_each_of_them_takes(one: str, other: str) -> None:
    both = analyse(f"{one}\n{other}")

    assert covers(both, analyse(one))
    assert covers(both, analyse(other))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_quoted_text_is_a_text(text: str) -> None:
    analysis = analyse(f"echo {shlex.quote(text)}")

    assert analysis.claims() == []
    assert analysis.commands[0].argv == ("echo", text)


@given(
    st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1).filter(
        lambda name: name not in {".", ".."} and len(name) < 200
    )
)
def test_a_file_of_any_name_is_claimed_by_it(name: str) -> None:
    assert analyse(f"touch -- {shlex.quote(name)}").claims() == [f"write file:{name}"]
    assert analyse(f"cat -- src/{shlex.quote(name)}").claims() == [f"read file:src/{name}"]


WRAPPINGS: dict[str, Callable[[str], str]] = {
    "bash": lambda line: f"bash -c {shlex.quote(line)}",
    "bash in sh": lambda line: f"sh -ec {shlex.quote(f'bash -c {shlex.quote(line)}')}",
    "eval": lambda line: f"eval {shlex.quote(line)}",
    "sudo": lambda line: f"sudo -u root sh -c {shlex.quote(line)}",
    "env": lambda line: f"env A=1 bash -c {shlex.quote(line)}",
    "timeout": lambda line: f"timeout -k 1 5 bash -c {shlex.quote(line)}",
    "subshell": lambda line: f"( {line} )",
    "group": lambda line: f"{{ {line}\n}}",
    "substitution": lambda line: f"echo $( {line}\n)",
    "condition": lambda line: f"if {line}\nthen :\nfi",
    "function": lambda line: f"fn() {{ {line}\n}}\nfn",
    "watch": lambda line: f"watch {shlex.quote(line)}",
    "folder": lambda line: f"cd . && {{ {line}\n}}",
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@given(line=LINES)
def test_a_line_takes_the_same_wherever_it_stands(wrapping: str, line: str) -> None:
    assert taken(WRAPPINGS[wrapping](line)) == taken(line)


@given(
    SIMPLE, st.sampled_from(["env A=1", "sudo", "timeout 9", "nice", "nohup", "command", "time"])
)
def test_a_wrapper_changes_nothing_of_a_simple_command(line: str, wrapper: str) -> None:
    assert taken(f"{wrapper} {line}") == taken(line)


@given(SOUP)
def test_in_another_folder_a_line_takes_the_same_below_it(text: str) -> None:
    here, there = analyse(text), analyse(text, cwd="sub")

    assert here.commands == there.commands
    assert here.opaque == there.opaque
    assert here.complete == there.complete


def test_no_code_point_behind_a_brace_ends_the_process() -> None:
    for point in range(0x80, 0x110000, 0x101):
        if not 0xD800 <= point < 0xE000:
            analyse(f"a {{{chr(point)} b")


@pytest.mark.parametrize("name", ["é.txt", "文/日.txt", "😀", "é"])
def test_a_name_beyond_ascii_is_a_name(name: str) -> None:
    assert set(analyse(f"cat {name}").reads) == {f"file:{name}"}
    assert set(analyse(f"echo hi > {name}").writes) == {f"file:{name}"}
    assert set(analyse(f"cat '{name}' \"{name}\"").reads) == {f"file:{name}"}


def test_what_is_beyond_ascii_is_in_no_name_of_a_variable() -> None:
    assert analyse("é=5 ls").opaque, "bash runs a program called é=5"
    assert analyse("x=5 ls").opaque is False


def test_a_blank_that_bash_takes_for_a_letter_is_not_read() -> None:
    assert analyse("cat a\u00a0b").opaque
