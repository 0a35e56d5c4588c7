#!/bin/sh
# Makes .venv and installs what requirements/$1.txt pins, then the checkout itself, editable.
# Needs a Python of 3.11 or later and nothing else. `make` calls it; PYTHON names another interpreter.
set -eu
cd "$(dirname "$0")/.."

export PIP_DISABLE_PIP_VERSION_CHECK=1

is_recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
        if is_recent "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "Laneway needs Python 3.11 or later; none of these is one: ${PYTHON:-python3.13 python3.12 python3.11 python3 python}." >&2
    echo "Install one, or name it: make PYTHON=/path/to/python3" >&2
    return 1
}

# Debian ships Python without ensurepip, which venv needs.
install_ensurepip() {
    version=$("$1" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "$1 cannot make a virtual environment; installing $version-venv with apt-get." >&2
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$version-venv" >/dev/null
    else
        echo "$1 cannot make a virtual environment: its module ensurepip is missing." >&2
        echo "On Debian or Ubuntu: sudo apt-get install $version-venv" >&2
        return 1
    fi
}

if ! is_recent .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    echo "Making .venv with $("$python" --version)" >&2
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        install_ensurepip "$python"
    fi
    "$python" -m venv --clear .venv
fi

echo "Installing requirements/$1.txt into .venv" >&2
.venv/bin/python -m pip install -qq --require-hashes -r "requirements/$1.txt"
.venv/bin/python -m pip install -qq --no-deps --no-build-isolation --editable .
