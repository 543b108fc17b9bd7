#!/usr/bin/env bash
# ice_cube 0.16.4 (Ruby), Debian 12, reads RRULEs. MONTHLY from 31 January is 28 February and 30 April, and YEARLY from 29 February is the 28th in common years: RFC 5545 leaves such dates out. BYSETPOS
# is dropped, so "the last weekday of each month" is each weekday. Without WKST a week begins on Sunday, not on Monday, so every second week has other Sundays.
# BYMONTHDAY=-31 is 1 January and 29 January.
# Seen on 2026-11-28 with Ruby 3.1.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download ruby3.1=3.1.2-7+deb12u1 libruby3.1 libyaml-0-2 libffi8 ruby-ice-cube=0.16.4-3 2>/dev/null
for package in *.deb; do dpkg -x "$package" root; done
cat >look.rb <<'CODE'
Dir['root/usr/share/rubygems-integration/all/gems/*/lib'].each { |d| $LOAD_PATH << d }
require 'ice_cube'
ENV['TZ'] = 'UTC'
[['2026-01-31', 'FREQ=MONTHLY;COUNT=4'], ['2024-02-29', 'FREQ=YEARLY;COUNT=3'], ['2026-01-01', 'FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=4'],
 ['2026-01-05', 'FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,MO;COUNT=4'], ['2026-01-01', 'FREQ=MONTHLY;BYMONTHDAY=-31;COUNT=3']].each do |from, rule|
  schedule = IceCube::Schedule.new(Time.utc(*from.split('-')))
  schedule.add_recurrence_rule(IceCube::Rule.from_ical(rule))
  puts "#{from} #{rule}: " + schedule.first(4).map { |t| t.to_time.strftime('%F') }.join(' ')
end
CODE
cat >seen <<'SEEN'
2026-01-31 FREQ=MONTHLY;COUNT=4: 2026-01-31 2026-02-28 2026-03-31 2026-04-30
2024-02-29 FREQ=YEARLY;COUNT=3: 2024-02-29 2025-02-28 2026-02-28
2026-01-01 FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=4: 2026-01-01 2026-01-02 2026-01-05 2026-01-06
2026-01-05 FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,MO;COUNT=4: 2026-01-05 2026-01-18 2026-01-19 2026-02-01
2026-01-01 FREQ=MONTHLY;BYMONTHDAY=-31;COUNT=3: 2026-01-01 2026-01-29 2026-02-01
SEEN
diff seen <(LD_LIBRARY_PATH=root/usr/lib/x86_64-linux-gnu RUBYLIB=root/usr/lib/ruby/3.1.0:root/usr/lib/x86_64-linux-gnu/ruby/3.1.0:root/usr/lib/ruby/vendor_ruby root/usr/bin/ruby3.1 -W0 --disable-gems look.rb) && echo "as seen"
