#!/bin/sh
# Makes dist/moetuned_VERSION_ARCH.deb for the release that it runs on (Debian 12 and newer, Ubuntu 24.04 and newer): make deb
#   WHEELS=dir   take what moetuned is built on from there and nothing from the network; build/deb/wheels of an earlier
#                build is such a directory
#   BUILD=dir    where to build (build/deb), DIST=dir where to put the package (dist)
#   VERSION      of the package; from git and the release otherwise
# Needs no root. The same sources and wheels give the same package, bit by bit.
set -eu
umask 022
cd "$(dirname "$0")/.."
# shellcheck source=scripts/source_tree.sh
. scripts/source_tree.sh

build=${BUILD:-build/deb}
dist=${DIST:-dist}

say() { printf 'moetuned: %s\n' "$*"; }
fail() {
    printf 'moetuned: %s\n' "$*" >&2
    exit 1
}

missing=
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null || missing="$missing $2"
}
need dpkg-buildpackage dpkg-dev
need dh debhelper
need make make
if ! /usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null; then missing="$missing python3-venv"; fi
[ -z "$missing" ] || fail "building a package needs: sudo apt install$missing"
/usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "moetuned needs Python 3.11 or newer, and this release has $(/usr/bin/python3 -V); use make install with another Python"

release=$(sed -n 's/^\(ID\|VERSION_ID\)=//p' /etc/os-release | sort -r | tr -cd 'a-z0-9.')
case $release in debian*) release=deb${release#debian} ;; esac
SOURCE_DATE_EPOCH=$(source_epoch)
export SOURCE_DATE_EPOCH
version=${VERSION:-$(source_version)-1~$release}

mkdir -p "$build" "$dist"
build=$(cd "$build" && pwd)
dist=$(cd "$dist" && pwd)
if [ -n "${WHEELS:-}" ]; then
    # setuptools builds moetuned itself.
    [ -n "$(find "$WHEELS" -maxdepth 1 -name 'setuptools-*.whl' 2>/dev/null)" ] ||
        fail "WHEELS=$WHEELS is not a directory with wheels of what moetuned needs and of setuptools; build/deb/wheels of an earlier build is one"
    wheels=$(cd "$WHEELS" && pwd)
    offline="--no-index"
else
    wheels=$build/wheels
    offline=
    mkdir -p "$wheels"
fi
source=$build/moetuned
rm -rf "$source"
copy_sources "$source"
cp -R scripts/debian "$source/debian"

# pip of this Python, in a place of its own.
python=$build/venv/bin/python
"$python" -c 'import pip' 2>/dev/null || { rm -rf "$build/venv" && /usr/bin/python3 -m venv "$build/venv"; }
pip() { PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore "$python" -m pip "$@"; }
say "getting what moetuned is built on"
rm -rf "$build/wheels.new"
# shellcheck disable=SC2086
pip wheel --quiet $offline --find-links "$wheels" --use-pep517 --wheel-dir "$build/wheels.new" "$source" setuptools wheel ||
    fail "pip could not get what moetuned is built on (see above); without network name a directory of wheels: make deb WHEELS=dir"
rm -rf "$source/build" "$source"/*.egg-info
if [ -z "${WHEELS:-}" ]; then
    rm -rf "$build/wheels"
    mkdir "$build/wheels"
    find "$build/wheels.new" -name '*.whl' ! -name 'moetuned-*' -exec cp {} "$build/wheels/" \;
fi

say "building moetuned $version"
"$python" scripts/debian_files.py changelog --version "$version" --epoch "$SOURCE_DATE_EPOCH" >"$source/debian/changelog"
export MOETUNED_WHEELS="$build/wheels.new" MOETUNED_PIP="$python"
rm -f "$build"/moetuned_*
# What it needs is checked above; build-essential, which dpkg would ask for, is not among it: nothing is compiled.
(cd "$source" && dpkg-buildpackage --build=binary --no-sign --no-check-builddeps >"$build/log" 2>&1) || {
    tail -n 40 "$build/log" >&2
    fail "the package could not be built (see above, all of it in $build/log)"
}
for package in "$build"/moetuned_*.deb; do
    mv "$package" "$dist/"
    say "made $dist/$(basename "$package"); install it with: sudo apt install $dist/$(basename "$package")"
done

# Made with sudo in a user's checkout: leave nothing there that only root can remove.
if [ "$(id -u)" = 0 ] && [ -z "${BUILD:-}${DIST:-}" ]; then
    chown -R --reference=. build dist
fi
