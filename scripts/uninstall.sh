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

if [ ! -f "$list" ]; then
    say "$dest$opt was not made by make install; there is nothing to remove"
    exit 0
fi
if [ -z "$dest" ] && [ "$(id -u)" != 0 ]; then
    fail "removing needs root; run: sudo make uninstall"
fi

if [ -z "$dest" ]; then
    ctl=$opt/bin/moetunectl
    "$ctl" --version >/dev/null 2>&1 ||
        fail "$ctl does not run any more, so settings could not be rolled back; repair it with: sudo make install"
    if [ -d /run/systemd/system ]; then
        systemctl disable --now moetuned.service ||
            fail "the service could not be stopped; see: systemctl status moetuned. Nothing was removed"
    fi
    answer=0
    "$ctl" status >/dev/null 2>&1 || answer=$?
    if [ "$answer" != 3 ]; then # 3: no daemon answers
        fail "a moetuned is still running (moetunectl status); end it first. Nothing was removed"
    fi
    "$ctl" tune rollback ||
        fail "settings could not be rolled back (see above); nothing was removed, $state still has the originals"
    for journal in "$state/undo.jsonl" "$state/undo.jsonl.damaged"; do
        # Notes of what somebody else took over ("yielded") hold nothing; they are kept for the next start only.
        if [ -s "$journal" ] && grep -qv '^{"record":"yielded",' "$journal"; then
            fail "$journal still has settings that could not be rolled back or read; see what it says, set them by hand, remove it and run this again. Nothing was removed"
        fi
    done
    for drop_in in /etc/systemd/system/*.service.d/zz-moetuned.conf; do
        [ -e "$drop_in" ] || continue
        unit=$(basename "$(dirname "$drop_in")" .d)
        "$ctl" backend adopt --undo "$unit" ||
            fail "the drop-in of $unit could not be taken away (see above); look at it, remove it by hand and run this again. Nothing was removed"
    done
    "$ctl" tune unpersist ||
        fail "files that keep settings over a reboot could not be removed (see above); look at them, remove them by hand and run this again. Nothing was removed"
fi

if [ -z "$dest" ] && [ -d /run/systemd/system ]; then
    # Their unit goes, and with it who starts them.
    {
        systemctl list-units --all --plain --no-legend --full 'moetuned-backend@*.service' | cut -d' ' -f1
        find /etc/systemd/system -name 'moetuned-backend@*.service' -type l -exec basename {} \;
    } | sort -u | while IFS= read -r unit; do
        say "stopping and disabling $unit"
        systemctl disable --now "$unit" || say "could not stop $unit (see above)"
    done
    systemctl stop moetuned.slice || true
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
sed '1!G;h;$!d' "$list" >"$work/list" # last made, first removed

rm -rf "$dest$opt"
[ -n "$dest" ] || rm -rf "$run" "$state"
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
            if [ -d "$dest$rest" ]; then rmdir "$dest$rest" 2>/dev/null || say "kept $dest$rest: it is not empty"; fi
            ;;
        group)
            if [ -z "$dest" ]; then groupdel "$rest" || say "kept the group $rest (see above)"; fi
            ;;
        *) say "does not know how to remove: $kind $rest" ;;
    esac
done <"$work/list"

if [ -z "$dest" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl reset-failed moetuned.service 2>/dev/null || true
fi
for log in "$dest"/var/log/moetuned*.log; do
    if [ -e "$log" ]; then say "kept $log: it is yours to read or remove"; fi
done
say "removed"
