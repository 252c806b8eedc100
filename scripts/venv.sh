#!/bin/sh
# Makes or completes the checkout's own .venv with moetuned (editable) and the extras named: scripts/venv.sh test
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=scripts/python.sh
. scripts/python.sh

extras=${1:-}
wheel="wheel-backend"

# A venv whose interpreter is gone (system upgrade, checkout moved) cannot be mended.
if [ -e .venv ] && ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    echo "moetuned: .venv is not usable any more; making it again"
    rm -rf .venv
fi
if [ -e .venv ] && [ ! -w .venv ]; then
    echo "moetuned: .venv belongs to another user; remove it with: sudo rm -rf $(pwd)/.venv" >&2
    exit 1
fi
if [ ! -e .venv ]; then
    python=$(find_python python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11)
    echo "moetuned: making .venv with $python ($("$python" -V))"
    "$python" -m venv .venv
fi

install() {
    # sdnotify has no wheel; without --use-pep517 an older pip builds it in a way that it calls deprecated.
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
        .venv/bin/python -m pip install --quiet --use-pep517 --editable "$1"
}

echo "moetuned: installing what it needs into .venv (about a minute the first time)"
if ! install ".[${extras:+$extras,}$wheel]"; then
    echo "moetuned: no prebuilt llama.cpp (pip package xllamacpp) for this machine; going on without it"
    install ".${extras:+[$extras]}"
fi

# Made with sudo in a user's checkout: leave nothing there that only root can remove.
if [ "$(id -u)" = 0 ]; then
    chown -R --reference=. .venv moetuned.egg-info
fi
