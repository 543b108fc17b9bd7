#!/usr/bin/env bash
# Three Perl modules of Debian 12 on one line. "*/2" in days: DateTime::Event::Cron 0.09 and crontab(5) count from 1, so odd days; Schedule::Cron::Events 1.96 counts from 0,
# even days; Schedule::Cron 1.05 has the even days and the 1st. "1-31" with Monday is Mondays in the first and each day in the others. "5/15" is once an hour in two, and refused by the third. An L in a list
# is dropped by two: "15,L" is the 15th. Day 0 of the month is the 1st in Schedule::Cron.
# Seen on 2026-11-28 with Perl 5.36.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download libschedule-cron-events-perl=1.96-2 libset-crontab-perl libdatetime-event-cron-perl=0.09-2 libschedule-cron-perl=1.05-1 libalgorithm-c3-perl libb-hooks-endofscope-perl libb-hooks-op-check-perl libclass-c3-perl libclass-data-inheritable-perl libclass-inspector-perl libclass-method-modifiers-perl libclass-singleton-perl libdata-optlist-perl libdatetime-event-ical-perl libdatetime-event-recurrence-perl libdatetime-locale-perl libdatetime-perl libdatetime-set-perl libdatetime-timezone-perl libdevel-callchecker-perl libdevel-stacktrace-perl libdynaloader-functions-perl libeval-closure-perl libexception-class-perl libfile-sharedir-perl libmodule-implementation-perl libmodule-runtime-perl libmro-compat-perl libnamespace-autoclean-perl libnamespace-clean-perl libpackage-stash-perl libparams-classify-perl libparams-util-perl libparams-validate-perl libparams-validationcompiler-perl librole-tiny-perl libscalar-list-utils-perl libset-infinite-perl libspecio-perl libsub-exporter-perl libsub-exporter-progressive-perl libsub-identify-perl libsub-install-perl libsub-name-perl libsub-quote-perl libtime-parsedate-perl libtry-tiny-perl libvariable-magic-perl libxstring-perl 2>/dev/null
for package in *.deb; do dpkg -x "$package" root; done
cat >look.pl <<'CODE'
use DateTime; use DateTime::Event::Cron; use Schedule::Cron; use Schedule::Cron::Events; use POSIX;
$ENV{TZ} = 'UTC'; tzset();
my $from = 1795824000; # 2026-11-28
sub z { strftime('%m-%dT%H:%M', gmtime($_[0])) }
my %next = (
  'DateTime::Event::Cron' => sub { my $c = DateTime::Event::Cron->new($_[0]); my $t = DateTime->from_epoch(epoch => $from); map { $t = $c->next($t); z($t->epoch) } 1 .. 4 },
  'Schedule::Cron' => sub { my $c = Schedule::Cron->new(sub { }); my $t = $from; map { $t = $c->get_next_execution_time($_[0], $t); z($t) } 1 .. 4 },
  'Schedule::Cron::Events' => sub { my $c = Schedule::Cron::Events->new("$_[0] x", Seconds => $from) or die; map { my @n = $c->nextEvent; z(mktime(@n[0 .. 5])) } 1 .. 4 });
for my $spec ('0 0 */2 * *', '0 0 1-31 * 1', '5/15 * * * *', '0 0 15,L * *', '0 0 0 * *') {
  for my $name (sort keys %next) { my @t = eval { $next{$name}->($spec) }; printf "%-13s %-22s %s\n", $spec, $name, @t ? "@t" : 'refused' }
}
CODE
cat >seen <<'SEEN'
0 0 */2 * *   DateTime::Event::Cron  11-29T00:00 12-01T00:00 12-03T00:00 12-05T00:00
0 0 */2 * *   Schedule::Cron         11-30T00:00 12-01T00:00 12-02T00:00 12-04T00:00
0 0 */2 * *   Schedule::Cron::Events 11-30T00:00 12-02T00:00 12-04T00:00 12-06T00:00
0 0 1-31 * 1  DateTime::Event::Cron  11-30T00:00 12-07T00:00 12-14T00:00 12-21T00:00
0 0 1-31 * 1  Schedule::Cron         11-29T00:00 11-30T00:00 12-01T00:00 12-02T00:00
0 0 1-31 * 1  Schedule::Cron::Events 11-29T00:00 11-30T00:00 12-01T00:00 12-02T00:00
5/15 * * * *  DateTime::Event::Cron  11-28T00:05 11-28T01:05 11-28T02:05 11-28T03:05
5/15 * * * *  Schedule::Cron         refused
5/15 * * * *  Schedule::Cron::Events 11-28T00:05 11-28T01:05 11-28T02:05 11-28T03:05
0 0 15,L * *  DateTime::Event::Cron  12-15T00:00 01-15T00:00 02-15T00:00 03-15T00:00
0 0 15,L * *  Schedule::Cron         refused
0 0 15,L * *  Schedule::Cron::Events 12-15T00:00 01-15T00:00 02-15T00:00 03-15T00:00
0 0 0 * *     DateTime::Event::Cron  refused
0 0 0 * *     Schedule::Cron         12-01T00:00 01-01T00:00 02-01T00:00 03-01T00:00
0 0 0 * *     Schedule::Cron::Events refused
SEEN
diff seen <(PERL5LIB=root/usr/share/perl5:root/usr/lib/x86_64-linux-gnu/perl5/5.36:root/usr/lib/x86_64-linux-gnu/perl5-base perl look.pl) && echo "as seen"
