#!/usr/bin/env bash
# fugit 1.5.2 (Ruby; behind rufus-scheduler and sidekiq-cron), Debian 12. "every friday and monday at 12:00 and 13:30" loses 13:30. "every 90 minutes" is once an hour, "every 45 minutes" at :00 and :45, and
# "every 13 hours" at 0 and 13 o'clock: the step is put into the field. "every 1.5 hours" is no schedule but one point in time.
# Seen on 2026-11-28 with Ruby 3.1.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download ruby3.1=3.1.2-7+deb12u1 libruby3.1 libyaml-0-2 libffi8 ruby-fugit=1.5.2-1 ruby-raabro ruby-et-orbi ruby-tzinfo ruby-concurrent 2>/dev/null
for package in *.deb; do dpkg -x "$package" root; done
cat >look.rb <<'CODE'
Dir['root/usr/share/rubygems-integration/all/gems/*/lib{,/concurrent-ruby}'].each { |d| $LOAD_PATH << d }
require 'fugit'
['every friday and monday at 12:00 and 13:30', 'every 90 minutes', 'every 45 minutes', 'every 13 hours', 'every 1.5 hours'].each do |text|
  found = Fugit.parse(text)
  puts "#{text}: #{found.class} #{found.respond_to?(:to_cron_s) ? found.to_cron_s : ''}"
end
CODE
cat >seen <<'SEEN'
every friday and monday at 12:00 and 13:30: Fugit::Cron 0 12 * * 1,5
every 90 minutes: Fugit::Cron 0 * * * *
every 45 minutes: Fugit::Cron 0,45 * * * *
every 13 hours: Fugit::Cron 0 0,13 * * *
every 1.5 hours: EtOrbi::EoTime 
SEEN
diff seen <(LD_LIBRARY_PATH=root/usr/lib/x86_64-linux-gnu RUBYLIB=root/usr/lib/ruby/3.1.0:root/usr/lib/x86_64-linux-gnu/ruby/3.1.0:root/usr/lib/ruby/vendor_ruby root/usr/bin/ruby3.1 -W0 --disable-gems look.rb) && echo "as seen"
