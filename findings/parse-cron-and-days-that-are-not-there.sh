#!/usr/bin/env bash
# parse-cron 0.1.4 (Ruby), Debian 12: 29 February runs on 1 February in common years, and 31 April on 1 April. A range that wraps is accepted and is something else: 22-2 in hours
# runs at midnight, FRI-MON and mon-sun on the 1st of each month. Each is taken without a word.
# Seen on 2026-11-28 with Ruby 3.1.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download ruby3.1=3.1.2-7+deb12u1 libruby3.1 libyaml-0-2 libffi8 ruby-parse-cron=0.1.4-1.1 2>/dev/null
for package in *.deb; do dpkg -x "$package" root; done
cat >look.rb <<'CODE'
require 'parse-cron'
ENV['TZ'] = 'UTC'
['0 0 29 2 *', '0 0 31 4 *', '0 22-2 * * *', '0 0 * * FRI-MON', '0 0 * * mon-sun'].each do |spec|
  at = Time.utc(2026, 11, 28)
  puts "#{spec}: " + Array.new(3) { (at = CronParser.new(spec).next(at)).strftime('%F %R') }.join(', ')
end
CODE
cat >seen <<'SEEN'
0 0 29 2 *: 2028-02-29 00:00, 2029-02-01 00:00, 2030-02-01 00:00
0 0 31 4 *: 2028-04-01 00:00, 2029-04-01 00:00, 2030-04-01 00:00
0 22-2 * * *: 2026-11-29 00:00, 2026-11-30 00:00, 2026-12-01 00:00
0 0 * * FRI-MON: 2026-12-01 00:00, 2027-01-01 00:00, 2027-02-01 00:00
0 0 * * mon-sun: 2026-12-01 00:00, 2027-01-01 00:00, 2027-02-01 00:00
SEEN
diff seen <(LD_LIBRARY_PATH=root/usr/lib/x86_64-linux-gnu RUBYLIB=root/usr/lib/ruby/3.1.0:root/usr/lib/x86_64-linux-gnu/ruby/3.1.0:root/usr/lib/ruby/vendor_ruby root/usr/bin/ruby3.1 -W0 --disable-gems look.rb) && echo "as seen"
