#!/bin/sh
# Makes the sdist and, from it, the wheel: make dist. The sdist holds all of the project; a wheel built from it is the same.
# Usage: scripts/build_dist.sh PYTHON (one that has the package "build"); DIST=dir: where to put them (dist)
set -eu
umask 022
cd "$(dirname "$0")/.."
# shellcheck source=scripts/source_tree.sh
. scripts/source_tree.sh

python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
dist=${DIST:-dist}
mkdir -p "$dist"
dist=$(cd "$dist" && pwd)
SOURCE_DATE_EPOCH=$(source_epoch)
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
copy_sources "$work/source"
# What setuptools would leave out.
cat >"$work/source/MANIFEST.in" <<'END'
graft docs
graft etc
graft moetuned
graft scripts
graft systemd
graft tests
include CHANGELOG.md Makefile
global-exclude __pycache__/* *.py[cod]
END
(cd "$work" && "$python" -m build --outdir "$dist" source)
