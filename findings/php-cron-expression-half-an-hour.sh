#!/usr/bin/env bash
# dragonmantank/cron-expression 3.3.1 (PHP; Laravel's scheduler), Debian 12, in Australia/Lord_Howe, whose clock changes by half an hour. On 4 October 2026 "each hour" is an "Impossible CRON expression",
# and 09:00 is left out; on 5 April the next time after 14:45 UTC on */15 is 14:30, so it goes backwards. In Casablanca 03:00 comes twice on 15 February.
# Seen on 2026-11-28 with PHP 8.2.36 and its time zones.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download php8.2-cli=8.2.36-1~deb12u1 php8.2-common=8.2.36-1~deb12u1 libedit2 libxml2 libsodium23 libargon2-1 php-dragonmantank-cron-expression=3.3.1-2 php-webmozart-assert 2>/dev/null
for package in *.deb; do dpkg -x "$package" root; done
cat >look.php <<'CODE'
<?php
spl_autoload_register(function ($c) { $f = 'root/usr/share/php/' . str_replace('\\', '/', $c) . '.php'; if (is_file($f)) require $f; });
function show($spec, $from, $tz, $n) {
  try {
    $t = (new DateTime($from))->setTimezone(new DateTimeZone($tz));
    $c = new Cron\CronExpression($spec);
    $out = [];
    while ($n--) { $t = $c->getNextRunDate($t, 0, false, $tz); $out[] = gmdate('Y-m-d\TH:i\Z', $t->getTimestamp()); }
    echo "$spec $tz: ", implode(' ', $out), "\n";
  } catch (Throwable $e) { echo "$spec $tz: ", $e->getMessage(), "\n"; }
}

show('0 * * * *', '2026-10-03T14:00:00Z', 'Australia/Lord_Howe', 2);
show('0 9 * * *', '2026-10-03T00:00:00Z', 'Australia/Lord_Howe', 1);
show('*/15 * * * *', '2026-04-04T14:10:00Z', 'Australia/Lord_Howe', 4);
show('0 3 * * *', '2026-02-14T12:00:00Z', 'Africa/Casablanca', 3);
show('30 2 * * *', '2026-03-07T12:00:00Z', 'America/New_York', 2);
CODE
cat >seen <<'SEEN'
0 * * * * Australia/Lord_Howe: Impossible CRON expression
0 9 * * * Australia/Lord_Howe: 2026-10-04T22:00Z
*/15 * * * * Australia/Lord_Howe: 2026-04-04T14:15Z 2026-04-04T14:30Z 2026-04-04T14:45Z 2026-04-04T14:30Z
0 3 * * * Africa/Casablanca: 2026-02-15T02:00Z 2026-02-15T03:00Z 2026-02-16T03:00Z
30 2 * * * America/New_York: 2026-03-08T07:30Z 2026-03-09T06:30Z
SEEN
diff seen <(LD_LIBRARY_PATH=root/usr/lib/x86_64-linux-gnu root/usr/bin/php8.2 -n -d error_reporting=0 look.php) && echo "as seen"
