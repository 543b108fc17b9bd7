package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/config"
	"github.com/dbcron/dbcron/internal/ops/notify"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/internal/smallfile"
	"github.com/dbcron/dbcron/scheduler"
)

// notifyFlags configure whom a daemon notifies of problems, and how.
type notifyFlags struct {
	targets      []string
	every        time.Duration
	limit        int
	queueAge     time.Duration
	smtp, from   string
	passwordFile string
	secretFile   string
	link         string
}

func (f *notifyFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringArrayVar(&f.targets, "notify", nil,
		"`target` to notify when schedules and queues fail and recover: mailto:ops@example.org, https://… or command:LINE; may be repeated")
	durationVar(flags, &f.every, "notify-every", time.Minute,
		"the time between two messages to a target at least; what fails meanwhile shares one")
	flags.IntVar(&f.limit, "notify-limit", 20, "how many messages a target gets in an hour")
	durationVar(flags, &f.queueAge, "notify-queue-age", 10*time.Minute,
		"how long the oldest ready job of a queue waits before a notification")
	flags.StringVar(&f.smtp, "smtp", "smtp://localhost:25",
		"mail server: `smtp://[USER@]HOST:PORT`, or smtps:// if it is encrypted from the start")
	flags.StringVar(&f.passwordFile, "smtp-password-file", "",
		"`file` with that user's password (default: "+config.VariableSMTPPassword+" has it)")
	flags.StringVar(&f.from, "mail-from", "", "`address` that mail comes from (default: dbcron@ and the host's name)")
	flags.StringVar(&f.link, "notify-link", "", "`URL` of the dashboard as readers of notifications reach it, for links in them")
	flags.StringVar(&f.secretFile, "notify-secret-file", "", "`file` with the secret, whsec_…, that signs webhooks (default: "+
		config.VariableNotifySecret+" has it)")
}

// check parses what can be parsed without a database.
func (f *notifyFlags) check() error {
	if f.every <= 0 || f.limit <= 0 || f.queueAge <= 0 {
		return usagef("--notify-every, --notify-limit and --notify-queue-age must be more than 0")
	}
	if u, err := url.Parse(f.link); f.link != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return usagef("--notify-link %q: use a URL such as https://cron.example.com/", f.link)
	}
	for _, target := range f.targets {
		if _, err := notify.CheckTargets([]string{target}); err != nil {
			return usagef("--notify: %v", err)
		}
	}
	return nil
}

// secret returns a secret from a file or the environment, neither of which ps shows.
func (p *program) secret(flag, file, variable string) (string, error) {
	if file == "" {
		return p.getenv(variable), nil
	}
	text, err := smallfile.Read(file, mostOfText)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// newNotifier returns the daemon's Notifier. Its commands run as those of schedules do.
func (p *program) newNotifier(db *dialect.DB, f *notifyFlags, hosts *push.Hosts, like scheduler.Options,
	log *slog.Logger,
) (*notify.Notifier, error) {
	password, err := p.secret("--smtp-password-file", f.passwordFile, config.VariableSMTPPassword)
	if err != nil {
		return nil, err
	}
	secret, err := p.secret("--notify-secret-file", f.secretFile, config.VariableNotifySecret)
	if err != nil {
		return nil, err
	}
	n, err := notify.New(db, notify.Options{
		Targets: f.targets, Every: f.every, Limit: f.limit, QueueAge: f.queueAge,
		Mail: notify.Mail{Server: f.smtp, Password: password, From: f.from}, Secret: secret, Hosts: hosts, Link: f.link,
		Env: like.Env, Dir: like.Dir, Node: like.Node, Version: version, Doorbell: like.Doorbell, Logger: log,
	})
	if err != nil {
		return nil, usagef("%v", err)
	}
	return n, nil
}

// reach returns a function that tries whom notifications can reach from here: the targets of the daemon, and those of the schedules of
// files.
func (f *notifyFlags) reach(files []*scheduleFile) func(context.Context) (wrong []string) {
	targets := slices.Clone(f.targets)
	for _, file := range files {
		for _, s := range file.given {
			targets = append(targets, strings.Fields(s.Notify)...)
		}
	}
	mail := notify.Mail{Server: f.smtp, From: f.from}
	return func(ctx context.Context) []string { return notify.Reach(ctx, targets, mail) }
}

// startNotifier sends notifications until stop is called.
func startNotifier(ctx context.Context, n *notify.Notifier) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (p *program) notify() *cobra.Command {
	c := &cobra.Command{
		Use:   "notify",
		Short: "Send a test message to the targets of notifications",
		Long: `Whom a daemon tells when schedules and queues fail and when they are well again:
dbcron help notifications.`,
	}
	c.AddCommand(p.notifyTest())
	return c
}

type sentRow struct {
	Target string `json:"target"`
	Result string `json:"result"`
}

func (p *program) notifyTest() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "test [TARGET…]",
		Short: "Send a test message to what dbcron serve is to notify",
		Long: `Send a test message to the targets that dbcron serve would have here, by the file
(--config) and the environment, or to those that are named. It is sent at once, not by a
daemon.

Exit codes: 0 all were sent, 1 some were not.`,
		Example: `  dbcron notify test --config /etc/dbcron/dbcron.yaml
  dbcron notify test mailto:ops@example.org`,
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{configuresItself: "yes"},
		RunE: func(c *cobra.Command, args []string) error {
			_, f, _, err := p.settingsOfServe(c)
			if err != nil {
				return err
			}
			if err := f.push.check(); err != nil {
				return err
			}
			if len(args) > 0 {
				f.notify.targets = args
			}
			if err := f.notify.check(); err != nil {
				return err
			}
			if len(f.notify.targets) == 0 {
				return usagef("there is no target to notify: set notify in the file or DBCRON_NOTIFY, or name a target such as mailto:ops@example.org")
			}
			return p.with(c.Context(), func(db *dialect.DB) error { return p.testTargets(c.Context(), db, f, output) })
		},
	}
	outputFlag(c, &output)
	return c
}

func (p *program) testTargets(ctx context.Context, db *dialect.DB, f *serveFlags, output string) error {
	log, err := newLogger(p.err, f.logs, slog.LevelInfo)
	if err != nil {
		return err
	}
	options := p.schedulerOptions(*f, log)
	n, err := p.newNotifier(db, &f.notify, f.push.hosts, options, log)
	if err != nil {
		return err
	}
	targets, err := notify.CheckTargets(f.notify.targets)
	if err != nil {
		return err
	}
	var rows []sentRow
	failed := 0
	for _, target := range targets {
		row := sentRow{notify.Shown(target), "sent"}
		if err := n.Test(ctx, target); err != nil {
			row.Result = "not sent: " + flat(err.Error())
			failed++
		}
		rows = append(rows, row)
	}
	if err := table.Write(p.out, output, rows); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d test messages were not sent", failed, cmp.Or(len(targets), 1))
	}
	return nil
}
