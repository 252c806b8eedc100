#!/bin/sh
# Before moetuned is taken off a machine: stops it and what runs from its units, and gives back every setting, drop-in and
# file of its own that it made elsewhere. Ends with 1 and a sentence when that is not possible; then nothing may be removed,
# for the journal and the program that can read it are the only way back. What can be refused is asked before anything is
# changed, and a service that ran is started again when something fails after it was stopped.
# Usage: give_back.sh MOETUNECTL HOW-TO-REPAIR-IT
set -eu

ctl=$1
repair=$2
state=/var/lib/moetuned

ran=
fail() {
    printf 'moetuned: %s\n' "$*" >&2
    if [ -n "$ran" ] && systemctl start moetuned.service; then
        printf 'moetuned: the service was started again\n' >&2
    fi
    exit 1
}
drop_ins() {
    for drop_in in /etc/systemd/system/*.service.d/zz-moetuned.conf; do
        [ ! -e "$drop_in" ] || basename "$(dirname "$drop_in")" .d
    done
}

"$ctl" --version >/dev/null 2>&1 ||
    fail "$ctl does not run any more, so settings could not be rolled back; repair it with: $repair"
"$ctl" setup --undo --dry-run >/dev/null ||
    fail "what moetunectl setup made cannot be taken back (see above); look at it and run this again. Nothing was removed"
for unit in $(drop_ins); do
    "$ctl" backend adopt --undo --dry-run "$unit" >/dev/null ||
        fail "the drop-in of $unit cannot be taken away (see above); look at it, remove it by hand and run this again. Nothing was removed"
done
"$ctl" tune unpersist --dry-run >/dev/null ||
    fail "files that keep settings over a reboot cannot be removed (see above); look at them, remove them by hand and run this again. Nothing was removed"
if [ -d /run/systemd/system ]; then
    ! systemctl --quiet is-active moetuned.service || ran=yes
    systemctl stop moetuned.service ||
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
# From here on only what was not foreseen can fail, a disk for one.
left="look at it and run this again. moetuned is still installed; what was given back before that stays so"
"$ctl" setup --undo --yes ||
    fail "what moetunectl setup made could not be taken back (see above); $left"
for unit in $(drop_ins); do
    "$ctl" backend adopt --undo "$unit" ||
        fail "the drop-in of $unit could not be taken away (see above); $left"
done
"$ctl" tune unpersist ||
    fail "files that keep settings over a reboot could not be removed (see above); $left"

# A server whose unit file is gone could not be found or stopped by its name.
if [ -d /run/systemd/system ]; then
    systemctl disable --quiet moetuned.service
    for unit in $({
        systemctl list-units --all --plain --no-legend --full 'moetuned-backend@*.service' | cut -d' ' -f1
        find /etc/systemd/system -type l -name 'moetuned-backend@?*.service' -exec basename {} \;
    } | sort -u); do
        printf 'moetuned: stopping %s, which is of its unit\n' "$unit"
        systemctl disable --now --quiet "$unit" ||
            fail "$unit could not be stopped; see: systemctl status $unit. moetuned is still installed; what was given back before that stays so"
    done
fi

# The slice stays up when it is empty; what somebody else put into it runs on.
if [ -d /run/systemd/system ]; then
    used=
    for unit in $(systemctl show --value --property=RequiredBy moetuned.slice); do
        ! systemctl --quiet is-active "$unit" || used=$unit
    done
    [ -n "$used" ] || systemctl stop moetuned.slice 2>/dev/null || true
fi
