package main

import "testing"

// A line is named by what a person would call its command.
func TestCommandName(t *testing.T) {
	for command, want := range map[string]string{
		"/usr/local/bin/rotate --all /var/log/shop":                                   "rotate",
		"cd /srv/app && /usr/bin/php artisan schedule:run >> /dev/null 2>&1":          "artisan-schedule-run",
		"test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )": "run-parts",
		"[ -d /var ] && certbot renew -q":                                             "certbot-renew",
		"PATH=/bin TZ=UTC nice -n 10 ionice -c3 /opt/backup.sh nightly":               "backup.sh-nightly",
		"flock -n /tmp/sync.lock timeout 5m rsync -a /a /b":                           "rsync",
		"sudo -u www-data env A=1 bash /opt/x/clean-up.sh":                            "clean-up.sh",
		"bash -c 'echo hello'":                                                        "echo-hello",
		"bash -c ''":                                                                  "bash",
		"/bin/bash -l -c 'cd /srv/app && RAILS_ENV=production bundle exec rake reports:daily --silent >> log/cron.log'": "rake-reports-daily",
		"apt-get update; apt-get -y upgrade": "apt-get-update",
		"echo häßlich":                       "echo",
		"sleep 30":                           "sleep",
		"\"$HOME/bin/my job\"":               "my",
		"$(which true)":                      "which",
		"x-very-long-name-of-a-program-of-forty-characters-and-more with-a-subcommand": "x-very-long-name-of-a-program-of-forty-c",
		"":   "",
		"''": "",
	} {
		if got := commandName(command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}
