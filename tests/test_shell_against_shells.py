"""The analysis beside real shells: what they run is listed, what they write is claimed.

Lines are put together from pieces that shells read in odd ways; bash and dash run them in an empty
folder, with stand-ins for all programs that note how they were called.
"""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from laneway.lanes.names import Names, covers
from laneway.lanes.shell import ShellAnalysis, analyse

SHELLS = [shell for shell in map(shutil.which, ("bash", "dash")) if shell]

pytestmark = pytest.mark.skipif(not SHELLS, reason="there is no bash and no dash here")

PROGRAMS = ["p", "q", "rm", "cat", "tee", "ab"]
STAND_IN = '#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@" "\1" >> "$LOG"\n'
BEGINNINGS = ["", "p ", "p a ", 'p "', "p '", "p $(", "{ p; ", "(p; ", "if p; then ", "cat <<E\n",
              "[ a ", "p a; rm "]  # fmt: skip
ENDINGS = ["", "", "", '"', "'", ")", "`", "; }", "; fi", "; done", " ]", "\nE\n", " esac"]
PIECES = [
    "p", "q", "rm", "cat", "tee x", "ab", "a", "b", "c", " ", " ", " ", "\n", "; ", " | ", "&",
    " && ", " || ", "(", ")", "{ ", "; }", "$(", "`", '"', "'", "\\", "$", ">", " > a", "<", ">>",
    ">&", "2>", "&>", "#", "=", "A=1 ", "if ", "; then ", "; fi", "for i in ", "; do ", "; done",
    "case a in ", "a) ", ";;", "esac", "while ", "[ ", " ]", "<<E\n", "E\n", "<<'E'\n", "$x",
    "${x:-a}", "$1", "*", "?", "!", "! ", "time ", "eval ", "command ", "f() { ", '"$@"', "{a,b}",
    "$((1+2))", "$'a'", '$"a"', "\\\n", "\r", "\t", "~", "<<<", "<(", ">(", "-n", "2", "1>&2",
    "; rm z", "\nrm z\n", "#c\n", "[a]", "set -- a b; ", '\\"', "\\'", "\\`", "\\ ", "bash -c ",
    "'rm z'", '"rm z"', "exit", "return",
]  # fmt: skip
FOUND = [
    "p -n1>&2",
    "p 12>&2 z",
    "p a<(b) c",
    "p &> f x",
    "p a 2> b &>c d",
    "p >& -n",
    ">&rm'$\"a\"|'",
    "cat;rm z$((1+2))\\+ ]",
    "\nrm z\n\\\n > a tee x",
    "p a rm;time A=1 p",
    "p $'a\\\\'; rm x; p ' b\\'",
    "p foo\\\nbar",
    "p \\ a",
    "x=1; p $((x)) > a",
]
"""Lines that were once read in another way than a shell reads them."""


def lines(count: int) -> Iterator[str]:
    chance = random.Random(20240229)
    while count:
        pieces = chance.choices(PIECES, k=chance.choice([2, 3, 4, 5, 6, 8]))
        line = "".join([chance.choice(BEGINNINGS), *pieces, chance.choice(ENDINGS)])
        analysis = analyse(line)
        if analysis.complete and analysis.commands:
            count -= 1
            yield line


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name in PROGRAMS:
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    return folder


def run(shell: str, line: str, folder: Path, variables: Mapping[str, str]) -> None:
    subprocess.run(
        [shell, "-c", line],
        cwd=folder,
        env={"HOME": "/nowhere", "LC_ALL": "C.UTF-8", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=20,
        check=False,
    )


def is_listed(called: list[str], analysis: ShellAnalysis) -> bool:
    """Whether a command that is listed can have become this call."""
    given = "".join(f"{word}\0" for word in called)
    return any(
        re.fullmatch(
            "".join(
                r"(?:[^\x00]*\x00)*"
                if word is None or re.search(r"[*?\[{]", word)
                else re.escape(word) + r"\x00"
                for word in one.argv
            ),
            given,
        )
        for one in analysis.commands
    )


def unclaimed(analysis: ShellAnalysis, changed: set[str], folder: Path) -> set[str]:
    if analysis.opaque:
        return set()
    names = Names(folder)
    writes = [names.canonical(write) for write in analysis.writes]
    return {
        one
        for one in changed
        if not any(
            covers(write, names.canonical(f"file:{one}"))
            # `mkdir -p a/b` claims a/b, and not a, which it may make on the way
            or ((folder / one).is_dir() and write.startswith(f"file:{folder / one}/"))
            for write in writes
        )
    }


@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_shell_runs_is_listed_and_what_it_writes_is_claimed(
    shell: str, programs: Path, tmp_path: Path
) -> None:
    ran = 0
    for number, line in enumerate([*FOUND, *lines(100)]):
        analysis = analyse(line)
        if not analysis.complete:
            continue
        folder, log = tmp_path / str(number), tmp_path / f"{number}.log"
        folder.mkdir()

        run(shell, line, folder, {"PATH": str(programs), "LOG": str(log)})

        calls = log.read_bytes().decode().split("\1\0") if log.exists() else []
        for call in calls[:-1]:
            assert is_listed(call.split("\0")[:-1], analysis), (line, call)
            ran += 1
        changed = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
        assert not unclaimed(analysis, changed, folder), (line, analysis.writes)
    assert ran > 50


_REAL = """
echo hi > n
echo hi >> a
cat a | tee -a b c > d
cp a n
cp a b sub
cp -r sub sub2
cp -t sub a b
cp --target-dir=sub a
cp -b a b
cp -S.old a b
cp --suff=.old a b
mv a n
mv a sub
mv -t sub a b
mv a{,.bak}
rm a b
rm *.txt
rm -r sub
rmdir -p e/f
mkdir -p x/y/z
touch a n
touch -r a n
truncate -s 3 a
ln -s a l
ln -s ../a sub/l
ln -s sub/c.txt
ln a l
ln -t sub a
chmod 600 a
chmod -x a
chmod -R u+x sub
install -m 700 a n
install -d i/j
dd if=a of=n
sort -o n a
sort -uon a
sort --output=n a
sort a -o a
sort -T . a
shuf -o n a
uniq a n
sed -i s/o/x/ a
sed -i.bak s/o/x/ a b
sed -n -i p a
sed -ni p a
sed --in-place=.old s/o/x/ a
sed -i -e s/o/x/ -e 1d a
sed -E -i 's/(o)/x/g;2d' sub/c.txt
split -l 1 a sub/part
split a
gzip a
gzip -k a
gzip -c a > n
tar cf n.tar a sub
tar -czf n.tgz -C sub c.txt
tar cf n.tar a && tar xf n.tar -C sub
find . -name 'c.*' -delete
find sub -type f -exec rm {} +
find sub -type f -exec touch {}.new \\;
find sub -fprint n
find . -name c.txt | xargs rm
cd sub && touch n
cd sub; touch n; cd ..; touch m
cd sub && cd .. && touch n
cd nowhere; touch n
cd nowhere || touch n
cd sub && cd nowhere || touch n
(cd sub && touch n); touch m
cd sub | touch n
cd sub & touch n
{ cd sub && ls; } > n
cd sub && ls > n
for d in sub e; do cd $d; touch n; cd ..; done
if cd sub; then touch n; fi; touch m
f() { touch n; }; cd sub; f
eval 'cd sub' && touch n
command cd sub && touch n
bash -c 'cd sub; touch n'; touch m
env -C sub touch n
cat > n <<'X'\\n$(touch m)\\nX
cat > n <<X\\n$(touch m)\\nX
trap 'touch n' EXIT
xxd a n
awk 1 a > n
time cd sub && touch n
! cd sub; touch n
exec > n; echo hi
while read -r l; do echo $l > n; done < a
case a in a) touch n;; esac
touch {n,sub/m}
touch sub/../n
touch "$PWD/n"
echo hi > "$(echo n)"
"""
REAL = [line.replace("\\n", "\n") for line in _REAL.strip().split("\n")]


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(file.relative_to(folder)): (
            file.lstat().st_mode,
            0 if file.is_dir() else file.lstat().st_mtime_ns,
            file.read_bytes() if file.is_file() else b"",
        )
        for file in folder.rglob("*")
    }


@pytest.mark.parametrize("line", REAL)
def test_what_real_commands_change_is_claimed(line: str, tmp_path: Path) -> None:
    for folder in ("sub", "e/f"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("a", "b", "sub/c.txt", "d.txt"):
        (tmp_path / file).write_text("one\ntwo\n")
        os.utime(tmp_path / file, (1, 1))
    before = state(tmp_path)

    run(SHELLS[0], line, tmp_path, {"PATH": os.defpath})

    after = state(tmp_path)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert not unclaimed(analyse(line), changed, tmp_path), analyse(line)
