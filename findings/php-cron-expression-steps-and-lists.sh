#!/usr/bin/env bash
# dragonmantank/cron-expression 3.3.1 (PHP; Laravel's scheduler), Debian 12. */90 in minutes runs at half past each hour, not at :00 (90 modulo 60); "*,5" runs at :00 and :05 and not each minute;
# 0-7/2 leaves out Sunday, which 0 and 7 both name; "LW" is accepted and runs on 30 December and on a Sunday, 31 January; "31W" also runs on
# 3 February.
# Seen on 2026-11-28 with PHP 8.2.36.
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

foreach (['*/90 * * * *', '*,5 0 * * *', '0 0 * * 0-7/2', '0 0 LW * *', '0 0 31W * *'] as $spec) show($spec, '2026-11-28T00:00:00Z', 'UTC', 4);
CODE
cat >seen <<'SEEN'
*/90 * * * * UTC: 2026-11-28T00:30Z 2026-11-28T01:30Z 2026-11-28T02:30Z 2026-11-28T03:30Z
*,5 0 * * * UTC: 2026-11-28T00:05Z 2026-11-29T00:00Z 2026-11-29T00:05Z 2026-11-30T00:00Z
0 0 * * 0-7/2 UTC: 2026-12-01T00:00Z 2026-12-03T00:00Z 2026-12-05T00:00Z 2026-12-08T00:00Z
0 0 LW * * UTC: 2026-12-30T00:00Z 2027-01-31T00:00Z 2027-02-01T00:00Z 2027-03-01T00:00Z
0 0 31W * * UTC: 2026-12-31T00:00Z 2027-01-29T00:00Z 2027-02-03T00:00Z 2027-03-31T00:00Z
SEEN
diff seen <(LD_LIBRARY_PATH=root/usr/lib/x86_64-linux-gnu root/usr/bin/php8.2 -n -d error_reporting=0 look.php) && echo "as seen"
