"""What a command line claims: a table to be read, one line at a time."""

import pytest

from laneway.lanes.shell import analyse

READS = {
    # nothing at all
    "": "",
    "# only a comment": "",
    "pwd": "",
    "true; false": "",
    "echo hello world": "",
    'echo "a > notes.txt"': "",
    "echo 'rm -rf /' | tr a-z A-Z": "",
    "echo a \\> b": "",
    "date +%F": "",
    "which python3": "",
    "env": "",
    "sleep 1 && echo done": "",
    "ls > /dev/null 2>&1 < /dev/null || true": "read file:.",
    "basename src/a.py .py": "",
    "python3 --version": "",
    "git --version": "",
    "x=1; y=$((x + 2)); echo $y": "",
    "set -euo pipefail": "",
    "export LANG=C": "",
    "command -v git": "",
    "read -r line <<< 'some text'": "",
    "echo $'tab\\t'": "",
    # files and folders
    "ls": "read file:.",
    "ls -la 2>&1": "read file:.",
    "ls -R src tests/": "read file:src, read file:tests",
    "ls *.py": "read file:.",
    "ls src/*.py": "read file:src",
    "ls src/{a,b}/c": "read file:src",
    "cat a.txt b.txt": "read file:a.txt, read file:b.txt",
    "cat ./a.txt src//b.txt a/./c": "read file:a.txt, read file:src/b.txt, read file:a/c",
    "cat ../x src/../y": "read file:../x, read file:src/../y",
    "cat /etc/hosts": "read file:/etc/hosts",
    "cat 'a b.txt' c\\ d.txt": "read file:a b.txt, read file:c d.txt",
    "cat -- -n": "read file:-n",
    "cat < in.txt": "read file:in.txt",
    "cat <in.txt | sort | uniq -c": "read file:in.txt",
    "head -n 5 a.txt": "read file:a.txt",
    "head -5 a.txt": "read file:a.txt",
    "head -c10 a.txt": "read file:a.txt",
    "tail -f -n +3 log": "read file:log",
    "wc -l src/*.py | sort -n": "read file:src",
    "cut -d: -f1 /etc/passwd": "read file:/etc/passwd",
    "diff -u a.txt b.txt": "read file:a.txt, read file:b.txt",
    "diff <(sort a) <(sort b)": "read file:a, read file:b",
    "stat -c %s a.txt": "read file:a.txt",
    "file a.bin": "read file:a.bin",
    "du -sh src": "read file:src",
    "du": "read file:.",
    "tree -L 2 src": "read file:src",
    "realpath a/b": "read file:a/b",
    "sha256sum a.txt": "read file:a.txt",
    "tar tf a.tgz": "read file:a.tgz",
    "jq -r .name package.json": "read file:package.json",
    "jq --arg k v '.[$k]' a.json b.json": "read file:a.json, read file:b.json",
    "test -f a.txt": "read file:a.txt",
    "[ -d src ] && echo yes": "read file:src",
    "[ a.txt -nt b.txt ]": "read file:a.txt, read file:b.txt",
    '[ "$x" = y ]': "",
    "[[ -s log ]]": "read file:log",
    "jq --slurpfile k a -f prog b": "read file:a, read file:prog, read file:b",
    "jq -rf prog.jq a.json -": "read file:a.json, read file:-, read file:.",
    "jq -L lib . a.json": "read file:lib, read file:a.json",
    "date -r a.txt": "read file:a.txt",
    "hostname": "",
    "printf '%s' a": "",
    "printf -v x 1": "",
    "printf -- -v": "",
    "printf": "",
    "wait 1; jobs -l": "",
    "uniq a": "read file:a",
    "xxd a": "read file:a",
    "[ $x ]": "read file:.",
    "[[ $x == a* ]]": "read file:.",
    "file -f list": "read file:list, read file:.",
    "gzip -l a.gz": "read file:a.gz",
    "zgrep x a.gz": "read file:a.gz",
    "cat {1..3}.txt": "read file:.",
    "cat a.txt; exit 1 2": "read file:a.txt",
    "unset x; declare y; local -r z=1": "",
    "set -- a b": "",
    "x=(a b); x+=(c)": "",
    "x=": "",
    "cat ${x:=a}": "read file:.",
    "echo ${#x} ${x%.py} ${x/a/b} ${x:1:2} ${x[@]}": "",
    "echo $((1 + 2)) $((x * 2))": "",
    "for ((i = 0; i < 3; i++)); do echo $i; done": "",
    "cat $(< list)": "read file:list, read file:.",
    "ls 3>&- 4<&0 5>/dev/null": "read file:.",
    "cd - && ls /a": "read file:/a",
    "cd -P src && ls /a": "read file:/a",
    "pushd +1; popd; ls /a": "read file:/a",
    "ls | cat a | wc\ncat b < c": "read file:., read file:a, read file:c, read file:b",
    "find -L src -ls": "read file:src",
    "find src/* -type f": "read file:src",
    "find src -execdir cat {} \\;": "read file:src, read file:.",
    "find src/* -exec cat {} +": "read file:src, read file:.",
    "find . -exec cat pre{}post \\;": "read file:.",
    "git": "",
    "git remote get-url origin; git stash show; git worktree list; git notes show": "read file:.",
    "git submodule status; git bisect log; git reflog; git symbolic-ref HEAD": "read file:.",
    "git config -l --show-origin": "read file:.",
    "git config user.name": "read file:.",
    "git diff --no-index /a /b": "read file:/a, read file:/b, read file:.",
    "sed '' a": "read file:a",
    "sed '/a/r b' c": "read file:b, read file:c",
    "sed -n ':a;N;$!ba;s/\\n/ /g;y/a/b/;p;a text' a": "read file:a",
    "sed 's/[[:space:]]*$//;s/a\\/b/c/' a": "read file:a",
    "awk '{ARGV[1] = 2}' a": "read file:a, read file:.",
    "command -V ls; builtin true; command": "",
    "bash --version": "",
    "eval -- cat a": "read file:a",
    "xargs --replace cat": "",
    "sudo A=1 cat a": "read file:a",
    "sudo -D src cat a": "read file:src/a",
    'env -C "$x" ls': "read file:.",
    "bash +x -o pipefail -c 'cat a'": "read file:a",
    # searches
    "grep -c x a.txt > /dev/null": "read file:a.txt",
    "grep -n 'a > b' a.txt": "read file:a.txt",
    "grep -rn foo src tests": "read file:src, read file:tests",
    "grep -r foo": "read file:.",
    "grep -e foo -f patterns a.txt": "read file:patterns, read file:a.txt",
    "grep -A 3 -B2 foo a.txt": "read file:a.txt",
    "grep --include='*.py' -r foo .": "read file:.",
    "rg foo": "read file:.",
    "rg -n -g '*.py' foo src": "read file:src",
    "find . -name '*.py' -type f": "read file:.",
    "find src tests -newer a.txt": "read file:src, read file:tests, read file:a.txt",
    "find": "read file:.",
    "find src -exec grep -l foo {} +": "read file:src",
    "find . -name '*.py' | xargs wc -l": "read file:.",
    "find . -type f -print0 | xargs -0 grep -l foo": "read file:.",
    # programs of sed and awk
    "sed -n '10,20p' a.txt": "read file:a.txt",
    "sed -n -e '/begin/,/end/p' a.txt": "read file:a.txt",
    "sed 's/a/b/g; s|x|y|' a.txt": "read file:a.txt",
    "sed '$d;1q' a.txt": "read file:a.txt",
    "awk '{print $1}' a.txt": "read file:a.txt",
    "awk -F: -v n=3 'NR==n {print $2}' a.txt": "read file:a.txt",
    # git
    "git status": "read file:.",
    "git diff --stat HEAD~1": "read file:.",
    "git --no-pager log --oneline -5": "read file:.",
    "git log | head -3": "read file:.",
    "git show HEAD:a.txt": "read file:.",
    "git branch -a": "read file:.",
    "git branch --list 'feature/*'": "read file:.",
    "git tag -l": "read file:.",
    "git remote -v": "read file:.",
    "git config --get user.name": "read file:.",
    "git stash list": "read file:.",
    "git rev-parse --show-toplevel": "read file:.",
    "git -C /other status": "read file:/other, read file:.",
    # what is not known is read
    "cat $FILE": "read file:.",
    'cat "$FILE" a.txt': "read file:a.txt, read file:.",
    "cat ~/notes.txt": "read file:.",
    "cat `ls`": "read file:.",
    "cat $(git ls-files) | wc -l": "read file:.",
    "wc --files0-from=list": "read file:list, read file:.",
    'for f in *.py; do head -1 "$f"; done': "read file:.",
    'while read -r f; do wc -l "$f"; done < list': "read file:list, read file:.",
    # folders
    "cd src && cat a.txt": "read file:src/a.txt",
    "cd src && cd lib && cat a.txt": "read file:src/lib/a.txt",
    "cd src/lib && cd .. && cat a.txt": "read file:src/a.txt",
    "cd src; cat a.txt": "read file:a.txt, read file:src/a.txt",
    "cd src || exit 1; cat a.txt": "read file:src/a.txt",
    "cd /tmp && cat a.txt": "read file:/tmp/a.txt",
    "(cd src && cat a.txt); cat b.txt": "read file:src/a.txt, read file:b.txt",
    "cd src && git status && cat a.txt": "read file:src/a.txt, read file:.",
    "cd $DIR && cat a.txt": "read file:.",
    "cd src && cat /etc/hosts": "read file:/etc/hosts",
    "pushd src && cat a.txt": "read file:src/a.txt",
    "cd a | cat b.txt; cat c.txt": "read file:b.txt, read file:c.txt",
    "bash -c 'cd src && cat a.txt' && cat b.txt": "read file:src/a.txt, read file:b.txt",
    'eval "cd src" && cat a.txt': "read file:a.txt, read file:src/a.txt",
    "env -C src cat a.txt": "read file:src/a.txt",
    "! cd src && cat a.txt": "read file:a.txt, read file:src/a.txt",
    # wrappers
    "env LC_ALL=C sort a.txt": "read file:a.txt",
    "timeout 5 cat a.txt": "read file:a.txt",
    "sudo -u bob cat a.txt": "read file:a.txt",
    "nice -n 10 nohup cat a.txt": "read file:a.txt",
    "time -p cat a.txt": "read file:a.txt",
    "stdbuf -oL cat a.txt": "read file:a.txt",
    "exec cat a.txt": "read file:a.txt",
    "command cat a.txt": "read file:a.txt",
    "/bin/cat a.txt": "read file:a.txt",
    "watch -n 5 ls src": "read file:src",
    "sh -ec 'cat a.txt'": "read file:a.txt",
    "LC_ALL=C sort a.txt": "read file:a.txt",
    # compound commands
    "if [ -f a ]; then cat b; elif true; then cat c; else cat d; fi": (
        "read file:a, read file:b, read file:c, read file:d"
    ),
    "case $x in a) cat b;; *) cat c;; esac": "read file:b, read file:c",
    "{ cat a; cat b; } | wc": "read file:a, read file:b",
    "f() { cat a; }; f": "read file:a",
    "cat <<EOF\n$HOME\nEOF": "",
    "cat <<EOF\n$(cat a.txt)\nEOF": "read file:a.txt",
    "cat <<'EOF' | grep x\n$(rm a.txt)\nEOF": "",
    "cat a.txt \\\n  b.txt": "read file:a.txt, read file:b.txt",
    "cat a.txt # and > b.txt": "read file:a.txt",
}  # fmt: skip

WRITES = {
    # redirections
    "echo hi > notes.txt": "write file:notes.txt",
    "echo hi >> notes.txt": "write file:notes.txt",
    "echo hi >| notes.txt": "write file:notes.txt",
    "> notes.txt": "write file:notes.txt",
    "ls >out 2>err": "read file:., write file:out, write file:err",
    "ls &> out": "read file:., write file:out",
    "ls >& out": "read file:., write file:out",
    "echo hi 2>/dev/null >src/a": "write file:src/a",
    "cat a.txt > a.txt": "write file:a.txt",
    'echo hi > "a b"': "write file:a b",
    "{ ls; pwd; } > out": "read file:., write file:out",
    "(cd src; ls > out)": "read file:., read file:src, write file:out, write file:src/out",
    "cd src && ls > out": "read file:src, write file:src/out",
    "{ cd src && ls; } > out": "read file:src, write file:out",
    "for i in 1 2; do echo $i; done > out": "write file:out",
    "while read -r l; do echo $l; done < in > out": "read file:in, write file:out",
    "cat > a.py <<'EOF'\nprint('a > b')\nEOF": "write file:a.py",
    "cat <<EOF > a.txt && cat b.txt\n$x\nEOF\ncat c.txt": (
        "read file:b.txt, read file:c.txt, write file:a.txt"
    ),
    "cat <<A > a; cat <<B > b\n1\nA\n2\nB": "write file:a, write file:b",
    "cat <<-EOF >> log\n\thi\n\tEOF": "write file:log",
    "cat <<EOF | tee out\nhi\nEOF": "write file:out",
    # commands with targets
    "cat a.txt | tee -a notes.txt": "read file:a.txt, write file:notes.txt",
    "ls | tee a b > c": "read file:., write file:c, write file:a, write file:b",
    "cp a.txt ./notes.txt": "read file:a.txt, write file:notes.txt",
    "cp -r src/a src/b dst/": "read file:src/a, read file:src/b, write file:dst",
    "cp -t dst a b": "read file:a, read file:b, write file:dst",
    "cp --target-directory=dst a": "read file:a, write file:dst",
    "cp *.txt dst": "read file:., write file:dst",
    "mv a.txt b.txt": "write file:a.txt, write file:b.txt",
    "mv a{,.bak}": "write file:.",
    "rm -f a.txt": "write file:a.txt",
    "rm -rf build dist": "write file:build, write file:dist",
    "rm *.pyc": "write file:.",
    "rm build/*.o": "write file:build",
    "rm -- -f": "write file:-f",
    "rmdir old": "write file:old",
    "mkdir -p a/b": "write file:a/b",
    "mkdir -m 755 a": "write file:a",
    "touch -r ref a b": "read file:ref, write file:a, write file:b",
    "truncate -s 0 log": "write file:log",
    "ln -s ../a b": "write file:b",
    "ln a b": "read file:a, write file:b",
    "ln -s ../a": "write file:.",
    "chmod 755 run.sh": "write file:run.sh",
    "chmod -x run.sh": "write file:run.sh",
    "chmod -R u+w src": "write file:src",
    "chown root a": "write file:a",
    "install -m 755 a bin/a": "read file:a, write file:bin/a",
    "dd if=a of=b bs=1k": "read file:a, write file:b",
    "sort -o b a": "read file:a, write file:b",
    "sort -uo b a": "read file:a, write file:b",
    "sort --output=b a": "read file:a, write file:b",
    "sort --outp=b a": "read file:a, write file:b",
    "sort a -o a": "write file:a",
    "uniq a b": "read file:a, write file:b",
    "sed -i 's/a/b/' a.txt": "write file:a.txt",
    "sed -i.bak -e 's/a/b/' a.txt": "write file:a.txt, write file:a.txt.bak",
    "sed --in-place s/a/b/ a.txt": "write file:a.txt",
    "sed -ni p a.txt": "write file:a.txt",
    "sed 's/a/b/' a.txt > b.txt": "read file:a.txt, write file:b.txt",
    "tree -o out src": "read file:src, write file:out",
    "split -l 10 a parts/x": "read file:a, write file:parts",
    "gzip logs/a": "write file:logs",
    "tar czf a.tgz src": "read file:src, write file:a.tgz",
    "tar -xzf a.tgz -C dst": "read file:a.tgz, write file:dst",
    "find . -name '*.pyc' -delete": "write file:.",
    "find build -name '*.o' -exec rm {} \\;": "write file:build",
    "find src -fprint out": "read file:src, write file:out",
    "gunzip a.gz": "write file:.",
    "gzip /a": "write file:/",
    "gzip $x/a": "write file:.",
    "gzip logs/*": "write file:logs",
    "rmdir -p a/b $x ../e": "write file:a, write file:a/b, write file:../e, write file:.",
    "rmdir -p /c/d": "write file:/, write file:/c/d",
    "ln -b a b": "read file:a, write file:b, write file:.",
    "ln -t d a b": "read file:a, read file:b, write file:d",
    "cp -b a d/b": "read file:a, write file:d/b, write file:d",
    "install -d a b": "write file:a, write file:b",
    "split a": "read file:a, write file:.",
    "dd if=a of=$x/b": "read file:a, write file:.",
    "dd if=a of=d/*": "read file:a, write file:d",
    "tar -c -f a.tar -C d x": "read file:d, read file:x, write file:a.tar",
    "tar -c -f a.tar -C d ../x": "read file:d, read file:../x, read file:., write file:a.tar",
    "sed -i'/*' p a": "write file:a, write file:.",
    "sed -i.b p *.txt": "write file:.",
    "xxd a b": "read file:a, write file:b",
    "uniq * b": "write file:., write file:b",
    "chmod --reference=a b": "read file:a, write file:b",
    "touch a &>> log": "write file:log, write file:a",
    "cd src &> log && touch a": "write file:log, write file:a, write file:src/a",
    # inside something
    "git log $(rm -rf build)": "write file:build, write file:.",
    "echo $(touch a)": "write file:a",
    "echo `touch a`": "write file:a",
    'echo "x $(touch a) y"': "write file:a",
    "cat <(tee a)": "write file:a",
    "echo ${x:-$(touch a)}": "write file:.",
    "ls && (mkdir a; { touch b; })": "read file:., write file:a, write file:b",
    "if touch a; then ls; fi": "read file:., write file:a",
    "until rm a; do sleep 1; done": "write file:a",
    "case x in x) touch a;; esac": "write file:a",
    "cat <<EOF\n$(touch a)\nEOF": "write file:a",
    "true & touch a": "write file:a",
    "! touch a": "write file:a",
    "x=$(touch a)": "write file:a",
    "f() { touch a; }": "write file:a",
    "trap 'touch /tmp/a' EXIT": "write file:/tmp/a",
    # wrappers
    "env A=1 touch a": "write file:a",
    "sudo rm a": "write file:a",
    "timeout -k 1 5 rm a": "write file:a",
    "xargs -a list touch a": "read file:list, write file:a, write file:.",
    "bash -c 'touch a'": "write file:a",
    "sh -c \"bash -c 'touch a'\"": "write file:a",
    "eval touch a": "write file:a",
    "nohup touch a &": "write file:a",
    "command rm a": "write file:a",
    "\\rm a": "write file:a",
    "r''m a": "write file:a",
    "/usr/bin/rm a": "write file:a",
    "flock lock touch a": "write file:lock, write file:a",
    "cd src && sudo rm a": "write file:src/a",
}  # fmt: skip

OPAQUE = """
[[ $x =~ ^a|b$ ]]
export $'x'
a[0]=1
find *.d -type f
find $x/a
find . -exec \\;
git -C
sort --outp$x a
sort -r$x a
jobs -x rm a
wait -p x
uniq --skip-fields=$x a
cat a > b/../$x
printf -v $x a
printf $x a
unset $x
read $x
declare -n x=y
case $x in @(a|b)) ls;; esac
for ((i = $(touch a); i < 3; i++)); do ls; done
sudo --unheard-of $x
watch "$x"
tar cfC a.tar d x
tar --use-compress-program=x -xf a
tar -xf host:a
tar -A -f a b
cp $x b
mv a b $x
dd $x
dd of=$x
sed "$x" a
sed 'sxaxbxw c' a
sed s a
sed 's/a' a
sed 's/[/]/x/' a
sed 'k' a
sed -e p -e 'w x' a
python3 gen.py
make
npm test
./run.sh
pip install x
curl -o a http://x
unzip a.zip
rsync a b
patch -p1 < a.diff
perl -i -pe s/a/b/ a
$CMD a
"$CMD"
~/bin/run
rm $X
rm "$X"
rm ~/a
echo hi > $X
echo hi > "$X/a"
cp a "$X"
sort $X
sort *.txt
sed -n p "$X"
find "$X" -name a
find . -name $X
find . -exec $X {} +
find . -exec sh -c 'rm $1' _ {} \\;
bash
bash script.sh
bash -c "$X"
bash -lc "$(cat a)"
eval "$X"
source a.sh
. ./a.sh
alias ls=rm
xargs rm
ls | xargs -I{} mv {} {}.bak
xargs $X
cd $X && rm a
cd && touch a
cd - && touch a
for d in a b; do cd $d; touch c; cd ..; done
f() { cd a; }; f; touch b
ls() { rm a; }; ls
PATH=.:$PATH ls
export PATH=.; ls
read PATH < a; ls
env PATH=. ls
GIT_EXTERNAL_DIFF=./x git diff
LD_PRELOAD=./x.so ls
git commit -m x
git checkout main
git add .
git fetch
git branch new
git tag v1
git diff --output=a
git diff --outp a
git -c core.pager=x log
git --exec-path=. log
git grep -O foo
git log $X
git config user.name x
sed 'w a' b
sed 's/a/b/w c' d
sed 's/a/b/e' d
sed '1e rm a' b
sed -f script a
awk '{print > "a"}' b
awk '{print | "sh"}' b
awk 'BEGIN {system("rm a")}'
awk -f prog a
awk -i inplace 1 a
sort --compress-program=./x a
rg --pre ./x foo
find . -execdir touch a \\;
find . -unheard-of
tree -R
tar -xf a --to-command=./x
tar -I ./x -xf a
date -s 2020-01-01
date 01010000
hostname new
file -C -m magic
env -S 'rm a'
sudo -i
sudo -s rm a
sudo -e a
ssh host ls
echo hi > /dev/tcp/host/80
x='a[$(touch b)]'; echo $((x))
printf -v PATH x
test -v 'a[$(touch b)]'
declare -i x=1
echo "$(
[[ a > b ]]
[[ a && b ]]
[ a > b ]
[ a || rm -rf b ]
((x = 1))
echo $'it\\'s' ; ls
coproc ls
time { rm a; }
ls &> out x
ls 12> out
if
ls |
ls &&
'unclosed
a b) c
"""


def claims(line: str) -> str:
    return ", ".join(analyse(line).claims())


@pytest.mark.parametrize(("line", "expected"), READS.items())
def test_a_line_that_provably_reads_claims_what_it_reads(line: str, expected: str) -> None:
    analysis = analyse(line)

    assert analysis.changes_nothing, analysis.why
    assert ", ".join(analysis.claims()) == expected


@pytest.mark.parametrize(("line", "expected"), WRITES.items())
def test_a_line_that_writes_claims_its_targets(line: str, expected: str) -> None:
    assert claims(line) == expected
    assert not analyse(line).changes_nothing


@pytest.mark.parametrize("line", OPAQUE.strip().replace("\\\\", "\\").split("\n"))
def test_a_line_that_cannot_be_seen_through_writes_the_whole_workspace(line: str) -> None:
    analysis = analyse(line)

    assert analysis.opaque
    assert analysis.why
    assert "write file:." in analysis.claims()
