# shellcheck shell=sh
# For the other scripts to source, in the project's directory: which files are its own, and of when they are.

# True in a clone that git may be asked about (not, for example, as root in somebody else's).
in_clone() { [ -e .git ] && git ls-files --error-unmatch pyproject.toml >/dev/null 2>&1; }

# Copy the project's own files into a new directory: those that git knows or does not ignore, as they are now; outside of a clone all but
# what make puts there.
copy_sources() {
    mkdir -p "$1"
    if in_clone; then
        git ls-files -z --cached --others --exclude-standard >"$1.list"
        tar -c --ignore-failed-read --null -f "$1.tar" -T "$1.list"
    else
        tar -c -f "$1.tar" --exclude=./build --exclude=./dist --exclude='./.*' --exclude='*.egg-info' --exclude=__pycache__ .
    fi
    tar -x -f "$1.tar" -C "$1"
    rm -f "$1.tar" "$1.list"
}

# Seconds since 1970 of what is built: $SOURCE_DATE_EPOCH, the last commit, or the changelog's own date.
source_epoch() {
    if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then
        printf '%s\n' "$SOURCE_DATE_EPOCH"
    elif in_clone; then
        git log -1 --format=%ct
    else
        stat -c %Y CHANGELOG.md
    fi
}

# The version without what a distribution adds. A clone that is not at the tag of its version is a snapshot on the way to it.
source_version() {
    version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' moetuned/__init__.py)
    if in_clone && [ "$(git describe --exact-match --tags --match "v$version" 2>/dev/null)" != "v$version" ]; then
        version=$version~git$(TZ=UTC0 git log -1 --format=%cd.%h --date=format-local:%Y%m%d%H%M --abbrev=7)
    fi
    printf '%s\n' "$version"
}
