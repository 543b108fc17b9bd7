package crontab_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/internal/ops/crontab"
)

// A user's crontab is not taken for a system's, and a system's elsewhere is not read as a user's.
func TestDoubt(t *testing.T) {
	t.Parallel()
	for doubted, files := range map[string][]string{
		"": {
			"", "# nothing\n",
			"0 22 * * 1-5 mail -s \"It's 10pm\" joe%Joe,%%Where are your kids?%\n", // crontab(5)'s
			"5 0 * * * $HOME/bin/daily.job >> $HOME/tmp/out 2>&1\n", "0 4 * * * /opt/x\n", "@daily x\n", "* * * * * ~/bin/backup_db\n",
			"@daily python /opt/x.py\n", "@daily php /var/www/x\n", "@daily sh /etc/chk.sh  # the line we add.\n", "@daily cd /srv && ./x\n",
			"@daily test -x /srv/x && /srv/x\n", "@daily git pull\n", "@daily restic backup /home\n", "@daily mysql app < x.sql\n", "@daily myscript now\n",
			"@daily sudo /opt/x\n@daily flock -n /tmp/x /opt/x\n", "@daily FOO=1 /opt/x\n", "@daily backup /home\n@daily /opt/x\n", "@daily bundle exec rake x\n",
			"@daily docker exec x sh -c y\n", "@daily curl https://example.org/\n", "@daily service cron restart\n", "@daily [ -x /a ] && /a\n",
			"@daily PATH=/opt:$PATH list /x\n", "@daily rm /tmp/x\n", "@daily ./x /y\n",
		},
		"munin":    {"*/5 * * * * munin if [ -x /usr/bin/munin-cron ]; then /usr/bin/munin-cron; fi\n14 10 * * * munin if true; then x; fi\n"},
		"logcheck": {"2 * * * * logcheck if [ -x /usr/sbin/logcheck ]; then nice -n10 /usr/sbin/logcheck; fi\n"},
		"amavis":   {"18 */3 * * * amavis test -e /usr/sbin/x && /usr/sbin/x\n"},
		"game":     {"0 3 * * * game /srv/game/update.sh\n0 4 * * * game /srv/game/purge.sh\n"},
		"build":    {"0 12 1 * * build rm -rf /srv/dl/*\n"},
		"root": {
			"17 * * * * root cd / && run-parts /etc/cron.hourly\n@daily deploy /opt/x\n", "@daily deploy x y\n@daily root systemctl reboot -i\n",
			"1 3 * * * root periodic daily\n", "-*/15 * * * * root test -x /usr/lib/cron/run-crons\n",
		},
		"postgres": {"@daily postgres psql -c x\n"},
		"mail":     {"@daily mail /opt/x\n"},
	} {
		for _, text := range files {
			entries, err := crontab.Parse("tab", []byte(text))
			if err != nil {
				t.Errorf("%q: %v", text, err)
				continue
			}
			switch err := crontab.Doubt("tab", entries); {
			case doubted == "" && err != nil:
				t.Errorf("%q: %v", text, err)
			case doubted != "" && (err == nil || !strings.Contains(err.Error(), `"`+doubted+`" may be the user`) || !strings.Contains(err.Error(), "--system=false")):
				t.Errorf("%q: got %v, want a doubt about %s", text, err, doubted)
			}
		}
	}
}

// What is taken, and may be meant otherwise, is said.
func TestWarnings(t *testing.T) {
	t.Parallel()
	const cut = `tab:1: the command ends before its first %, which begins its input, as in cron: `
	const withPassword = "a database URL with a password becomes part of the schedule, for all who may see that; " +
		"leave it out: dbcron serve --pass-database gives commands the daemon's database; others read such a URL from a file"
	for text, want := range map[string]string{
		"@daily pg_dump app > x_$(date +%F).dump\n":                      cut + `"pg_dump app > x_$(date +"; write \% for a percent sign`,
		"@daily date +%F\n":                                              cut + `"date +"; write \% for a percent sign`,
		"@daily echo \"50% done\"\n":                                     cut + `"echo \"50"; write \% for a percent sign`,
		"@daily pg_dump app > x_$(date +\\%F).dump\n":                    "",
		"@daily echo 100% done\n":                                        cut + `"echo 100"; write \% for a percent sign`,
		"@daily x --limit 5%\n":                                          cut + `"x --limit 5"; write \% for a percent sign`,
		"@daily x --limit 5\\%\n":                                        "",
		"@daily curl http://example.org/a%20b\n":                         cut + `"curl http://example.org/a"; write \% for a percent sign`,
		"@daily curl -d @- http://example.org/a%x=1\n":                   "",
		"PATH=$PATH:/opt/bin\n@daily x\n":                                `tab:1: PATH is "$PATH:/opt/bin", since nothing replaces variables in settings, as in cron; write their values`,
		"LOG=${HOME}/log\n@daily x\n":                                    `tab:1: LOG is "${HOME}/log", since nothing replaces variables in settings, as in cron; write their values`,
		"TZ=Asia/Tokyo\n@daily x\n":                                      `tab:1: TZ is the zone in which commands write times, and not that of the lines, as in cron; for that write CRON_TZ=Asia/Tokyo`,
		"CRON_TZ=Asia/Tokyo\nTZ=Asia/Tokyo\n@daily x\n":                  "",
		"COST=5$\n@daily x\n":                                            "",
		"A=1 # one\n@daily x\n":                                          `tab:1: A is "1 # one", with what looks like a comment, as in cron; put that on a line of its own`,
		"A='1 # one'\n@daily x\n":                                        "",
		"MAILTO=a@example.org # me\n@daily x\n":                          "",
		"RANDOM_DELAY=45\n@daily x\n":                                    `tab:1: RANDOM_DELAY delays nothing here; write "# dbcron: jitter=30m" above each line that is to run up to so much later`,
		"DATABASE_URL=postgres://u:pw@h/app\n@daily x\n":                 "tab:1: " + withPassword,
		"DATABASE_URL='mysql://u:pw@h/app'\n@daily x\n":                  "tab:1: " + withPassword,
		"@daily DATABASE_URL=mariadb://u:pw@h/app dbcron lock run x\n":   "tab:1: " + withPassword,
		"@daily dbcron lock run x --url postgresql://u:pw@h/a -- true\n": "tab:1: " + withPassword,
		"DATABASE_URL=postgres://u@h:5432/app\n@daily x\n":               "",
		"@daily psql postgres://u:$PW@h/app\n":                           "",
		"@daily curl https://u:pw@h/a@b\n":                               "",
		"MAILFROM=a@example.org\n@daily x\n":                             `tab:1: MAILFROM does nothing here; whom mail comes from is a setting of the daemon: --mail-from`,
		"@daily mail -s \"It's 10pm\" joe%Joe,%%Hello%\n":                "",
		"@daily cat <<EOF%hello%EOF\n":                                   "",
		"# name: a\n@daily x\n":                                          "",
		"# name:\n@daily x\n":                                            "",
		"# name: a\n\n@daily x\n":                                        `tab:1: the name "a" belongs to no entry; to name one, put it directly above`,
		"# name: a\nA=1\n@daily x\n":                                     `tab:1: the name "a" belongs to no entry; to name one, put it directly above`,
		"# name: a\n# name: b\n@daily x\n":                               `tab:1: the name "a" belongs to no entry; to name one, put it directly above`,
		"@daily x\n#name: a":                                             `tab:2: the name "a" belongs to no entry; to name one, put it directly above`,
		"# t\xe4gliche Sicherung\n@daily x\n":                            "",
	} {
		entries, err := crontab.Parse("tab", []byte(text))
		if err != nil || len(entries) != 1 {
			t.Errorf("%q: got %v, %v", text, entries, err)
		}
		if got := crontab.Warnings("tab", []byte(text), false); want == "" && got != nil || want != "" && !slices.Equal(got, []string{want}) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"# name: \xe4\n@daily x\n", "# dbcron: timeout=\xe4\n@daily x\n"} {
		if got, err := crontab.Parse("tab", []byte(text)); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
	if got := crontab.Warnings("tab", []byte("@daily root echo $(date +%F)\n"), true); len(got) != 1 {
		t.Errorf("a system crontab: got %q", got)
	}
}
