# shellcheck shell=sh
# For the other scripts to source: finds a Python that moetuned can run with.

# Print the path of a Python 3.11 or newer that can make a venv: $PYTHON if set, else the first that fits of the
# arguments. Ends the script with a sentence when there is none.
find_python() {
    [ -z "${PYTHON:-}" ] || set -- "$PYTHON"
    found=
    for candidate in "$@"; do
        candidate=$(command -v "$candidate" 2>/dev/null) || continue
        found=$candidate
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        if ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "moetuned: $candidate cannot make a venv; install it with: sudo apt install python3-venv" >&2
            exit 1
        fi
        printf '%s\n' "$candidate"
        return 0
    done
    if [ -n "$found" ]; then
        echo "moetuned needs Python 3.11 or newer; $found is $("$found" -V 2>&1). Name a newer one: make PYTHON=python3.12" >&2
    else
        echo "moetuned needs Python 3.11 or newer and found none ($*); install it with: sudo apt install python3 python3-venv" >&2
    fi
    exit 1
}
