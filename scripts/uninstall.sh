#!/bin/sh
# Takes moetuned off this machine: sudo make uninstall, or /opt/moetuned/uninstall.sh
# Stops the service, rolls back what it changed, then removes what make install made, as /opt/moetuned/installed lists it.
# Files that you edited stay. If the settings cannot be rolled back, nothing is removed: the journal and the program that
# can read it are the only way back.
set -eu

dest=${DESTDIR:-}
dest=${dest%/}
opt=/opt/moetuned
list=$dest$opt/installed
state=/var/lib/moetuned
run=/run/moetuned

say() { printf 'moetuned: %s\n' "$*"; }
fail() {
    printf 'moetuned: %s\n' "$*" >&2
    exit 1
}

# A make install that was killed between two renames left the program aside.
if [ ! -e "$dest$opt" ] && [ -f "$dest$opt.old/installed" ]; then mv "$dest$opt.old" "$dest$opt"; fi
if [ ! -f "$list" ]; then
    say "$dest$opt was not made by make install; there is nothing to remove"
    exit 0
fi
if [ -z "$dest" ] && [ "$(id -u)" != 0 ]; then
    fail "removing needs root; run: sudo make uninstall"
fi

if [ -z "$dest" ]; then
    sh "$(dirname "$0")/give_back.sh" "$opt/bin/moetunectl" "sudo make install"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
sed '1!G;h;$!d' "$list" >"$work/list" # last made, first removed

# The program and its list go last, so that this can be run again when it is killed on the way.
if [ -z "$dest" ]; then
    # Also what backends of its units saved, and what systemd noted of settings of the units that are gone. The Debian package's postrm
    # does the same, and can read no file of the package any more.
    rm -rf "$run" "$state" /var/lib/moetuned-backends /var/lib/private/moetuned-backends /run/systemd/system.control/moetuned*.d \
        /run/systemd/transient/moetuned*
fi
while read -r kind rest; do
    case $kind in
        link)
            if [ "$(readlink "$dest$rest")" = "$opt/bin/$(basename "$rest")" ]; then rm -f "$dest$rest"; fi
            ;;
        file) rm -f "$dest$rest" ;;
        config)
            file=$dest${rest#* }
            if [ ! -e "$file" ]; then
                :
            elif [ "$(sha256sum <"$file" | cut -d' ' -f1)" = "${rest%% *}" ]; then
                rm -f "$file"
            else
                say "kept $file: it was edited"
            fi
            ;;
        dir)
            [ "$rest" != "$(dirname "$opt")" ] || rm -rf "$dest$opt"
            if [ -d "$dest$rest" ]; then rmdir "$dest$rest" 2>/dev/null || say "kept $dest$rest: it is not empty"; fi
            ;;
        group)
            if [ -z "$dest" ]; then groupdel "$rest" || say "kept the group $rest (see above)"; fi
            ;;
        *) say "does not know how to remove: $kind $rest" ;;
    esac
done <"$work/list"
rm -rf "$dest$opt"

if [ -z "$dest" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl reset-failed moetuned.service 2>/dev/null || true
fi
for log in "$dest"/var/log/moetuned*.log; do
    if [ -e "$log" ]; then say "kept $log: it is yours to read or remove"; fi
done
say "removed"
