#!/bin/sh
# Puts moetuned on this machine. Run as root from a checkout: sudo make install
#   /opt/moetuned          the program in a venv of its own, and a list of all that was installed
#   PREFIX/bin             links moetuned and moetunectl (PREFIX: /usr/local)
#   PREFIX/lib/systemd     the units and their preset, and beside it sysusers.d and tmpfiles.d (below /etc when PREFIX is not one that
#                          systemd looks in)
#   PREFIX/share           man pages, and completion for bash, zsh and fish
#   /etc/moetuned          config, conf.d, hooks.d and backends; what is there already is never overwritten
# With DESTDIR everything goes below that directory and nothing of the running machine is touched (no group, no systemd).
set -eu
umask 022
cd "$(dirname "$0")/.."
# shellcheck source=scripts/python.sh
. scripts/python.sh

dest=${DESTDIR:-}
prefix=${PREFIX:-/usr/local}
opt=/opt/moetuned
etc=/etc/moetuned
new=$dest$opt.new

say() { printf 'moetuned: %s\n' "$*"; }
fail() {
    printf 'moetuned: %s\n' "$*" >&2
    exit 1
}

case $prefix in
    /*) ;;
    *) fail "PREFIX must be an absolute directory, not $prefix" ;;
esac
case $dest in
    "" | /*) ;;
    *) fail "DESTDIR must be an absolute directory, not $dest" ;;
esac
dest=${dest%/}
case $prefix in
    /usr | /usr/local) lib=$prefix/lib ;;
    *) lib=/etc ;;
esac
units=$lib/systemd/system

if [ -z "$dest" ] && [ "$(id -u)" != 0 ]; then
    fail "installing needs root; run: sudo make install (or set DESTDIR)"
fi

# One that was killed between two renames left the old program, with the list of all that was installed, aside.
if [ ! -e "$dest$opt" ] && [ -f "$dest$opt.old/installed" ]; then mv "$dest$opt.old" "$dest$opt"; fi

# Nothing that somebody else put there is replaced.
if [ -e "$dest/usr/lib/moetuned/give-back" ]; then
    fail "the Debian package moetuned is installed; there can be one of them only. Remove it first: sudo apt remove moetuned"
fi
if [ -e "$dest$opt" ] && [ ! -f "$dest$opt/installed" ]; then
    fail "$dest$opt exists and was not made by make install; move it away first"
fi
for name in moetuned moetunectl; do
    link=$dest$prefix/bin/$name
    if { [ -e "$link" ] || [ -L "$link" ]; } && [ "$(readlink "$link")" != "$opt/bin/$name" ]; then
        fail "$link exists and is not a link to $opt/bin/$name; move it away first"
    fi
done

work=$(mktemp -d)
trap 'rm -rf "$work" "$new"' EXIT
trap 'exit 1' HUP INT TERM

# The program: built aside, so that an installation which fails leaves the old one as it was. pip gets a copy of the
# sources: building in the checkout would leave files of root there. pip itself is not needed any more afterwards.
python=$(find_python /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11)
say "building $opt with $python ($("$python" -V)); this takes about a minute"
mkdir "$work/source"
mkdir "$work/source/docs"
cp -R moetuned pyproject.toml README.md LICENSE "$work/source/"
cp -R docs/man "$work/source/docs/"
find "$work/source" -name __pycache__ -type d -prune -exec rm -rf {} +
rm -rf "$new"
if [ ! -d "$dest/opt" ]; then
    mkdir -p "$dest/opt"
    made_opt=yes
fi
"$python" -m venv "$new"
# What pip downloads is not kept: a cache in /root would stay behind.
pip() {
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=${PIP_NO_CACHE_DIR:-1} \
        "$new/bin/python" -B -m pip "$@"
}
pip install --quiet --no-compile --use-pep517 "$work/source" ||
    fail "pip could not install moetuned and what it needs (see above); nothing was changed"
pip uninstall --quiet --yes setuptools pip 2>/dev/null
# A venv holds its own path in its scripts: make it the path it will have.
grep -rlIF "$new" "$new/bin" "$new/pyvenv.cfg" | while IFS= read -r file; do
    sed -i "s|$new|$opt|g" "$file"
done
find "$new" -name __pycache__ -type d -prune -exec rm -rf {} +
"$new/bin/python" -m compileall -q -s "$new" -p "$opt" "$new/lib" >/dev/null || true
mkdir -p "$new/share/prometheus" "$new/share/grafana"
install -m 0644 etc/moetuned.yaml etc/backends/example.env "$new/share/"
install -m 0755 etc/hooks.d/* "$new/share/"
install -m 0644 etc/prometheus/moetuned.rules.yml etc/prometheus/prometheus.yml "$new/share/prometheus/"
install -m 0644 etc/grafana/* "$new/share/grafana/"
install -m 0755 scripts/uninstall.sh scripts/give_back.sh "$new/"

# The list of what make install made, and nothing else, is what make uninstall removes. While files are being put in
# place it holds the old list too, so that an installation that was interrupted can be repeated or removed.
old=$work/installed.old
if [ -f "$dest$opt/installed" ]; then cp "$dest$opt/installed" "$old"; else : >"$old"; fi
cp "$old" "$new/installed"
upgrade=no
if [ -e "$dest$opt" ]; then
    upgrade=yes
    rm -rf "$dest$opt.old"
    mv "$dest$opt" "$dest$opt.old"
fi
mv "$new" "$dest$opt"
rm -rf "$dest$opt.old"

list=$work/installed
: >"$list"
note() {
    printf '%s\n' "$1" >>"$list"
    printf '%s\n' "$1" >>"$dest$opt/installed"
}
ours() { grep -qxF "$1" "$old"; }
directory() {
    if [ ! -d "$dest$1" ]; then
        directory "$(dirname "$1")"
        mkdir "$dest$1"
        note "dir $1"
    elif ours "dir $1"; then
        directory "$(dirname "$1")"
        note "dir $1"
    fi
}
sum_of() { sha256sum <"$1" | cut -d' ' -f1; }
# A file that the administrator may edit or remove: installed when it is new, replaced while nobody edited it.
config() {
    line=$(grep "^config [0-9a-f]* $2\$" "$old" || true)
    was=${line#config }
    was=${was%% *}
    if [ -z "$line" ] && { [ -e "$dest$2" ] || [ -L "$dest$2" ]; }; then
        say "kept $dest$2, which was there already; the sample is $opt/share/$(basename "$2")"
    elif [ -z "$line" ] || { [ -f "$dest$2" ] && [ "$(sum_of "$dest$2")" = "$was" ]; }; then
        install -m "$3" "$1" "$dest$2"
        note "config $(sum_of "$1") $2"
    else
        [ "$(sum_of "$1")" = "$was" ] || say "kept $dest$2 as you left it; the new sample is $opt/share/$(basename "$2")"
        note "$line"
    fi
}

[ "${made_opt:-no}" = no ] || note "dir /opt"
if ours "dir /opt"; then note "dir /opt"; fi
directory "$prefix/bin"
directory "$units"
directory "$lib/systemd/system-preset"
directory "$lib/sysusers.d"
directory "$lib/tmpfiles.d"
directory "$etc/conf.d"
directory "$etc/hooks.d"
directory "$etc/backends"
config etc/moetuned.yaml "$etc/moetuned.yaml" 0644
config etc/backends/example.env "$etc/backends/example.env" 0644
for hook in etc/hooks.d/*; do
    config "$hook" "$etc/hooks.d/$(basename "$hook")" 0755
done
sed "s|/usr/local/bin/|$prefix/bin/|g" systemd/moetuned.service >"$work/moetuned.service"
note "file $units/moetuned.service"
install -m 0644 "$work/moetuned.service" "$dest$units/moetuned.service"
for name in moetuned-backend@.service moetuned.slice; do
    note "file $units/$name"
    install -m 0644 "systemd/$name" "$dest$units/$name"
done
for name in systemd/system-preset/50-moetuned.preset sysusers.d/moetuned.conf tmpfiles.d/moetuned-directories.conf; do
    note "file $lib/$name"
    install -m 0644 "systemd/${name#systemd/}" "$dest$lib/$name"
done
# Where man and the shells look; pip has put them below share of its own prefix.
(cd "$dest$opt/share" && find man bash-completion zsh fish -type f) >"$work/shared"
while IFS= read -r file; do
    directory "$prefix/share/$(dirname "$file")"
    note "file $prefix/share/$file"
    install -m 0644 "$dest$opt/share/$file" "$dest$prefix/share/$file"
done <"$work/shared"
for name in moetuned moetunectl; do
    note "link $prefix/bin/$name"
    ln -sfn "$opt/bin/$name" "$dest$prefix/bin/$name"
done
if [ -n "$dest" ]; then
    say "DESTDIR is set: the group moetuned is not made; make it on the machine with: systemd-sysusers, or groupadd --system moetuned"
elif ! getent group moetuned >/dev/null; then
    systemd-sysusers "$lib/sysusers.d/moetuned.conf" >/dev/null 2>&1 || true
    getent group moetuned >/dev/null || groupadd --system moetuned
    note "group moetuned"
elif ours "group moetuned"; then
    note "group moetuned"
fi
install -m 0644 "$list" "$dest$opt/installed"

if [ -e "$dest/var/lib/dpkg/info/moetuned.postrm" ]; then
    say "the Debian package moetuned was removed but not purged; if you purge it, its files in $etc go, and moetuned's settings with $etc/moetuned.yaml"
fi
if [ -n "$dest" ]; then
    say "staged in $dest"
elif [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemd-tmpfiles --create "$lib/tmpfiles.d/moetuned-directories.conf"
    # A running daemon would import what is no longer there.
    [ "$upgrade" = no ] || systemctl try-restart moetuned.service
    say "installed. Start it with: systemctl enable --now moetuned    Then: moetunectl status"
else
    say "installed. There is no systemd here, so no service was set up; run it with: moetuned run"
fi
