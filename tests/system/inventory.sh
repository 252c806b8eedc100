#!/bin/bash
# What a machine has, one line each, for a comparison before and after; run in the guest: inventory.sh everything | settings
# Left out is what changes by itself: logs, caches, random seeds, counters, what this comparison itself leaves, and what a package manager
# notes about what it did.
settings() {
    sysctl -a 2>/dev/null | grep -E '^(vm|kernel|fs)\.' |
        grep -vE 'drop_caches|compact_memory|stat_refresh|random\.|-nr|-state|\.ns_last_pid|pty\.nr|perf_|cad_pid|epoll|usermodehelper|keys\.|fs\.quota|user_reserve|hotplug|tainted'
    grep -r . /sys/kernel/mm/transparent_hugepage /sys/kernel/mm/lru_gen 2>/dev/null | grep -vE 'pages_collapsed|full_scans|/stats/' | sort
    grep . /sys/block/*/queue/{read_ahead_kb,scheduler,nr_requests,wbt_lat_usec} /sys/class/bdi/*/read_ahead_kb 2>/dev/null
    cat /proc/swaps
    find /sys/fs/cgroup -name memory.low -o -name memory.min -o -name io.weight | sort | xargs grep -H . 2>/dev/null | grep -vE ':0$|:default 100$|/moetuned\.slice/.*memory\.min:' || true
}
everything() {
    settings
    find /sys/fs/cgroup -type d | grep -vE '/(user\.slice/|init\.scope|.*\.mount$|.*agent|system\.slice/.*(systemd|dbus|dpkg|apt|packagekit|modprobe|cron|getty)|system\.slice/run-)' | sort
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log \
        -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /root -o -path /home -o -path /var/lib/systemd/random-seed \
        -o -path /var/lib/systemd/timers -o -path /var/lib/private -o -name __pycache__ \
        -o -path '/etc/*-' -o -path /etc/machine-id -o -path /etc/.pwd.lock -o -path /var/lib/dbus -o -path /boot \) -prune \
        -o -printf '%y %m %u:%g %p %l\n' | sort
    find /etc -type f ! -name '*-' ! -name .pwd.lock -print0 | sort -z | xargs -0 sha256sum
    find /run /var/log /tmp /var/tmp /var/lib/private /root /home -iname '*moetuned*' ! -path '/home/newcomer/moetuned*' | sort
    find /run/systemd/system /run/systemd/transient -type f 2>/dev/null | grep -v session | sort
    dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\n'
    getent passwd
    getent group
    cut -d: -f1 /etc/shadow /etc/gshadow
    cut -d: -f1 /etc/subuid /etc/subgid 2>/dev/null
    systemctl list-unit-files --no-legend --no-pager | awk '{ print $1, $2 }'
    # A target of systemd's own that something wanted once stays reached until the machine is stopped.
    systemctl list-units --all --no-legend --no-pager --plain | awk '{ print $1 }' | grep -vx network-online.target |
        grep -vE '\.(device|mount|scope)$|^(run-|session-|user|dev-|systemd-(tmpfiles|hostnamed|timedated|journal))'
    pgrep -l 'moetun|llama' | cut -d' ' -f2 || true
}
export LC_ALL=C
"$1"
