package crontab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/pattern"
)

// Doubt returns an error, for the line it names, if entries that Parse has read may be those of a system crontab:
// each command begins with a word that may be a user's name, and a second word that is a command, or one of
// them begins with root. The text alone decides, so all hosts judge a file alike.
func Doubt(file string, entries []Entry) error {
	all := len(entries) > 0
	var first *Entry
	for i := range entries {
		user, command := twoWords(entries[i].Command)
		if user == "root" && command != "" {
			return doubt(file, &entries[i])
		}
		if all = all && isName().MatchString(user) && !commands[user] && begins(command); all && first == nil {
			first = &entries[i]
		}
	}
	if all {
		return doubt(file, first)
	}
	return nil
}

func doubt(file string, e *Entry) error {
	user, _ := twoWords(e.Command)
	return fmt.Errorf("%s:%d: %q may be the user that the command runs as, as in a system crontab, or the command; "+
		"--system reads it as the user, and --system=false as the command", file, e.Line, user)
}

func twoWords(command string) (first, second string) {
	first, rest := cutWord(strings.TrimLeft(command, blanks))
	second, _ = cutWord(rest)
	return first, second
}

// begins reports whether a word begins a command, rather than being the argument of one.
func begins(word string) bool {
	return word != "" && (strings.ContainsAny(word[:1], "/~[({$.!") || assignment().MatchString(word) || commands[word])
}

var (
	isName     = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_-]{0,31}\$?$`) // of a user
	assignment = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// commands are those that many crontabs begin with, except those that are also users, such as mail, git and mysql, and
// those that are usual as arguments of others, such as exec and install.
var commands = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range strings.Fields(`
		sh bash dash zsh ksh csh tcsh fish python python2 python3 perl ruby php node nodejs java lua tclsh Rscript go
		test cd if for while until case set export unset source eval umask ulimit trap wait command true false echo printf
		nice ionice chrt taskset nohup time timeout sleep env sudo su doas runuser gosu setsid flock lockf lckdo setlock solo run-one chronic
		cronic
		chpst softlimit envdir stdbuf unbuffer ts xargs tee cat tac head tail sort uniq cut tr sed awk gawk grep egrep fgrep zgrep find locate
		ls cp mv rm mkdir rmdir touch ln chmod chown chgrp dd df du stat sync tar gzip gunzip zcat bzip2 xz zstd zip unzip cpio split md5sum
		sha256sum
		rsync scp sftp ssh curl wget lftp ftp nc aws gsutil gcloud az rclone restic borg borgmatic duplicity rsnapshot rdiff-backup tarsnap
		psql pg_dump pg_dumpall pg_basebackup vacuumdb reindexdb mysqldump mysqlcheck mariadb-dump mariadb mongodump sqlite3 redis-cli
		docker docker-compose podman kubectl helm systemctl service journalctl supervisorctl systemd-run systemd-cat systemd-tmpfiles initctl
		rc-service
		apt apt-get aptitude dpkg yum dnf zypper apk pacman snap flatpak freshclam clamscan rkhunter chkrootkit aide tripwire lynis
		certbot acme.sh dehydrated letsencrypt openssl gpg logrotate run-parts anacron savelog updatedb makewhatis mandb tmpwatch tmpreaper
		newsyslog periodic
		fstrim smartctl mdadm zfs zpool btrfs lvm hdparm reboot shutdown poweroff halt killall pkill pgrep ps ntpdate hwclock rdate logger wall
		npm npx yarn pnpm pip pip3 pipenv poetry uv conda bundle rake rbenv rvm rails composer artisan drush wp magento symfony mix make
		xvfb-run screen tmux watch socat sendmail mailx mutt msmtp fetchmail getmail mbsync offlineimap sa-learn webalizer awstats goaccess
		munin-cron debian-sa1 sa1 sa2 systemd-inhibit dbus-launch proxychains torsocks firejail cgexec ip iptables ping wakeonlan`) {
		all[name] = true
	}
	for _, name := range []string{"sync", "make"} { // users, or arguments, as well
		delete(all, name)
	}
	return all
}()

// warn records something that the file says, and its author may not mean.
func (p *parser) warn(line int, text string) {
	p.warnings = append(p.warnings, problem{line, errors.New(text)})
}

// Warnings returns what a file that Parse takes, or ParseSystem if system is set, says, and its author may not mean. Each is one line,
// "file:line: what it means; what to do".
func Warnings(file string, data []byte, system bool) (all []string) {
	p := newParser()
	p.system = system
	if _, err := parse(file, data, p); err != nil {
		return nil
	}
	slices.SortStableFunc(p.warnings, func(a, b problem) int { return a.line - b.line })
	for _, w := range p.warnings {
		all = append(all, fmt.Sprintf("%s:%d: %v", file, w.line, w.err))
	}
	return all
}

// checkInput warns of a percent sign that is rather part of the command than the beginning of its input: it stands in parentheses or
// quotes, after date's +, in a URL, or after a number.
func (p *parser) checkInput(e *Entry, text string) {
	p.checkPassword(e.Line, e.Command)
	last := e.Command[strings.LastIndexAny(e.Command, blanks)+1:]
	switch nothing := e.Stdin == "" && strings.HasSuffix(text, "%") && !strings.HasSuffix(e.Command, "%"); {
	case e.Stdin == "" && !nothing:
		return
	case strings.HasSuffix(e.Command, "+"), open(e.Command):
	case strings.Contains(last, "://") && octet().MatchString(e.Stdin):
	case number().MatchString(last) && (nothing || strings.ContainsAny(e.Stdin[:1], blanks)):
	default:
		return
	}
	p.warn(e.Line, fmt.Sprintf("the command ends before its first %%, which begins its input, as in cron: %q; write \\%% for a percent sign", tailOf(e.Command)))
}

var (
	octet    = pattern.Lazy(`^[0-9A-Fa-f]{2}`)
	number   = pattern.Lazy(`[0-9]$`)
	variable = pattern.Lazy(`\$(?:[A-Za-z_]|\{[A-Za-z_])`)
	comment  = pattern.Lazy(`[ \t]#`)
	password = pattern.Lazy(`(?i)\b(?:postgres(?:ql)?|mysql|mariadb)://[^\s/@:$]*:[^\s/@$]+@`)
)

// checkPassword warns of a database's password in a file that becomes a table, which many may read. The warning does not repeat it.
func (p *parser) checkPassword(line int, text string) {
	if password().MatchString(text) {
		p.warn(line, "a database URL with a password becomes part of the schedule, for all who may see that; "+
			"leave it out: dbcron serve --pass-database gives commands the daemon's database; others read such a URL from a file")
	}
}

// checkSetting warns of a value that cron takes literally, too, though it looks like more, and of variables of other crons. Of a comment
// behind MAILTO, which no address has, the caller tells.
func (p *parser) checkSetting(name, value, text string) {
	p.checkPassword(p.line, value)
	_, raw, _ := strings.Cut(text, "=")
	quoted := strings.HasPrefix(strings.TrimLeft(raw, blanks), `"`) || strings.HasPrefix(strings.TrimLeft(raw, blanks), "'")
	switch {
	case name == "RANDOM_DELAY":
		p.warn(p.line, "RANDOM_DELAY delays nothing here; write \"# dbcron: jitter=30m\" above each line that is to run up to so much later")
	case name == "TZ" && p.zone == "":
		p.warn(p.line, fmt.Sprintf("TZ is the zone in which commands write times, and not that of the lines, as in cron; for that write CRON_TZ=%s", value))
	case name == "MAILFROM":
		p.warn(p.line, "MAILFROM does nothing here; whom mail comes from is a setting of the daemon: --mail-from")
	case name != "MAILTO" && !quoted && comment().MatchString(value):
		p.warn(p.line, fmt.Sprintf("%s is %q, with what looks like a comment, as in cron; put that on a line of its own", name, tailOf(value)))
	case variable().MatchString(value):
		p.warn(p.line, fmt.Sprintf("%s is %q, since nothing replaces variables in settings, as in cron; write their values", name, tailOf(value)))
	}
}

// open reports whether a shell's quotes, backquotes or parentheses in a command are not closed.
func open(command string) bool {
	var quote rune
	depth, escaped := 0, false
	for _, r := range command {
		switch {
		case escaped:
			escaped = false
		case r == '\\' && quote != '\'':
			escaped = true
		case quote == 0 && strings.ContainsRune("'\"`", r):
			quote = r
		case r == quote:
			quote = 0
		case r == '(' && quote != '\'':
			depth++
		case r == ')' && quote != '\'':
			depth--
		}
	}
	return quote != 0 || depth > 0
}

// tailOf returns the end of a text.
func tailOf(text string) string {
	const most = 40
	if n := utf8.RuneCountInString(text); n > most {
		return "…" + string([]rune(text)[n-most:])
	}
	return text
}
