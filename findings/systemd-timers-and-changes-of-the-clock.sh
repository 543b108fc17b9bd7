#!/usr/bin/env bash
# systemd 252 (Debian 12), OnCalendar with a zone: 02:30 of New York's gap is left out, and so is midnight of Santiago's; on */15 in Lord Howe's repeated half hour it pauses for 45 minutes.
# "*~01" is the last day of the month, also of February; a weekday with it must meet it: "Mon..Fri *~03" is not "the last weekday but two". A range of weekdays that wraps
# (Sat..Mon) and a step beyond the field (*:0/90) are refused; */40 restarts each hour.
# Seen on 2026-11-28 with time zones 2026.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download systemd=252.39-1~deb12u2 libsystemd-shared 2>/dev/null
for package in *.deb; do dpkg -x "$package" root; done
cat >look.sh <<'CODE'
next() { LD_LIBRARY_PATH=root/usr/lib/x86_64-linux-gnu/systemd:root/usr/lib/x86_64-linux-gnu TZ=UTC root/usr/bin/systemd-analyze calendar --iterations=4 --base-time="$2" "$1" 2>&1 |
  awk -v spec="$1" '/Next elapse|Iter/ {sub(/^.*: [A-Za-z]* /, ""); out = out " " substr($1, 6) "T" substr($2, 1, 5)} /Failed/ {out = " refused"} END {print spec ":" out}'; }
next '*-*-* 02:30 America/New_York' '2026-03-07 12:00 UTC'
next '*-*-* 00:00 America/Santiago' '2026-09-05 12:00 UTC'
next '*:0/15 Australia/Lord_Howe' '2026-04-04 14:10 UTC'
next '*-*~01' '2027-01-15 UTC'
next 'Mon..Fri *-*~03' '2026-11-28 UTC'
next 'Sat..Mon' '2026-11-27 UTC'
next '*:0/90' '2026-11-28 UTC'
next '*:0/40' '2026-11-28 UTC'
CODE
cat >seen <<'SEEN'
*-*-* 02:30 America/New_York: 03-09T06:30 03-10T06:30 03-11T06:30 03-12T06:30
*-*-* 00:00 America/Santiago: 09-07T03:00 09-08T03:00 09-09T03:00 09-10T03:00
*:0/15 Australia/Lord_Howe: 04-04T14:15 04-04T14:30 04-04T14:45 04-04T15:30
*-*~01: 01-31T00:00 02-28T00:00 03-31T00:00 04-30T00:00
Mon..Fri *-*~03: 12-29T00:00 01-29T00:00 02-26T00:00 03-29T00:00
Sat..Mon: refused
*:0/90: refused
*:0/40: 11-28T00:40 11-28T01:00 11-28T01:40 11-28T02:00
SEEN
diff seen <(bash look.sh) && echo "as seen"
