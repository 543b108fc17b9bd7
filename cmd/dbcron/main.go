// The dbcron command: the daemon, and the tools around its tables.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/ops/config"
	"github.com/dbcron/dbcron/internal/smallfile"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

func main() {
	ctx, signals := signalContext()
	os.Exit(run(ctx, &program{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, signals: signals, environ: os.Environ(),
	}, os.Args[1:]))
}

// A program holds what the commands share: streams, and the flags of all commands.
type program struct {
	in       io.Reader
	out, err io.Writer
	signals  *signals
	environ  []string
	args     []string

	db *dialect.DB // opened by the command: see with

	call     func(ctx context.Context, op *httpapi.Operation, in any) (any, error) // see withAPI
	operator httpapi.Operator                                                      // does operations on the database
	key      string                                                                // an Idempotency-Key of the call, or ""
	named    []string                                                              // parameters that are arguments, and not flags
	renamed  map[string]string                                                     // parameters whose flags have other names

	outcome outcome // with -o json, what to print at the end; nil: text
	said    bool    // the command has added to it

	configPath string
	set        map[string]string // sources of flags not set on the command line
	databaseFlags
}

// Exit codes, on which scripts may rely.
const (
	exitOK = iota
	exitFailure
	exitUsage
	exitNotFound
	exitConflict
	exitDead    // the job that was awaited is dead,
	exitNotDone // was cancelled or discarded,
	exitWaited  // or has not ended in time
)

// errUsage marks errors of the command line.
var errUsage = errors.New("usage")

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w%w", errSilent{errUsage}, fmt.Errorf(format, args...))
}

// flagged returns an error about a field as one about its flag.
func flagged(err error) error {
	var wrong *queue.InvalidError
	if errors.As(err, &wrong) {
		return usagef("--%s: %s", strings.ReplaceAll(wrong.Field, "_", "-"), wrong.Problem)
	}
	return err
}

// errSilent adds an error that errors.Is finds and that has no text.
type errSilent struct{ error }

func (errSilent) Error() string   { return "" }
func (e errSilent) Unwrap() error { return e.error }

// run runs a command line and returns its exit code.
func run(ctx context.Context, p *program, args []string) int {
	root := p.root(args)
	root.SetArgs(args)
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	c, err := root.ExecuteContextC(ctx)
	defer func() {
		if o := p.outlet(); o != nil {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			o.Flush(last)
		}
	}()
	if err == nil {
		return exitOK
	}
	code := codeOf(err)
	// Drivers indent continuation lines of one message; separate errors start at the margin.
	if text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n\t", " "); text != "" {
		switch {
		case code == exitNotFound:
			text += p.meant(ctx, c)
		case p.db != nil && p.db.Dialect.NoSpace(err):
			text += "; the disk of the database is full: make room there"
		case p.db != nil && p.db.Dialect.Denied(err) && c.Name() != "doctor":
			text += "; dbcron doctor has the GRANT that is missing"
		}
		fmt.Fprintln(p.err, "dbcron: "+harmless(text))
	}
	return code
}

// codeOf returns the exit code for an error.
func codeOf(err error) int {
	var exit exitError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, errUsage), errors.Is(err, scheduler.ErrInvalid), errors.Is(err, lock.ErrInvalid),
		errors.Is(err, queue.ErrInvalid), errors.Is(err, httpapi.ErrInvalid), errors.Is(err, config.ErrInvalid),
		errors.Is(err, sqlschema.ErrNoVersion), errors.Is(err, smallfile.ErrUnfit):
		return exitUsage
	case errors.Is(err, scheduler.ErrNotFound), errors.Is(err, scheduler.ErrNoRun), errors.Is(err, scheduler.ErrNoNode),
		errors.Is(err, lock.ErrNotFound), errors.Is(err, queue.ErrNotFound), errors.Is(err, httpapi.ErrNoToken),
		errors.Is(err, httpapi.ErrNoFinding):
		return exitNotFound
	case errors.Is(err, scheduler.ErrExists), errors.Is(err, scheduler.ErrManaged), errors.Is(err, scheduler.ErrBusy),
		errors.Is(err, scheduler.ErrNotRunning), errors.Is(err, lock.ErrPool), errors.Is(err, lock.ErrInUse),
		errors.Is(err, queue.ErrDeleted), errors.Is(err, admin.ErrInUse), errors.Is(err, httpapi.ErrTokenExists),
		errors.Is(err, httpapi.ErrRotated), errors.Is(err, queue.ErrState), errors.Is(err, queue.ErrNotKept),
		errors.Is(err, admin.ErrAmbiguous), errors.Is(err, errLive):
		return exitConflict
	}
	return exitFailure
}

// root returns the commands, or, if the first argument names one, that one alone: making all of them, with the flags of the
// API's operations, takes two milliseconds.
func (p *program) root(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "dbcron",
		Short: "Run work once, on time, or later, with the database you have",
		Long: `dbcron runs locks, schedules and job queues from tables in your PostgreSQL, MySQL,
MariaDB or SQLite database. dbcron help PAGE prints a page of the documentation.

The database is named by --url, or by the first of these that is set:
DBCRON_URL, DBCRON_DATABASE_URL, DBCRON_DATABASE_URL_FILE (a file that holds the URL),
DATABASE_URL, and in the file that --config or DBCRON_CONFIG names database_url or
database_url_file (dbcron config --help). Without any it is sqlite:dbcron.db, a file
in this folder.

    postgres://user:password@host:5432/database
    mysql://user:password@host:3306/database      (mariadb:// is the same)
    sqlite:file.db

Where the database cannot be reached, --url or DBCRON_URL may be the address of a daemon,
such as https://cron.example.com, and DBCRON_TOKEN a token for it: most commands work
through it, and the others say that they need the database.

Exit codes: 0 done, 1 failure, 2 wrong usage or input, 3 not found, 4 conflict.
dbcron job wait, and job enqueue --wait: 5 the job is dead, 6 it was cancelled or discarded, 7 it has not ended in time.
dbcron lock run has the exit code of the command that it runs, and also 75, the lock
was not acquired, 76, it was lost, and 77, the command made no progress. dbcron worker exec has 126 and 127 if its
command cannot be run.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },

		PersistentPreRunE: func(c *cobra.Command, args []string) error {
			if slices.Contains(steady, c.CommandPath()) {
				p.unhurried()
			}
			p.reading = slices.Contains(readingCommands, c.Name())
			return p.configure(c, args)
		},
	}
	p.set, p.args = map[string]string{}, args
	root.PersistentFlags().StringVar(&p.configPath, "config", "",
		"YAML `file` of settings: see dbcron config (default: the one that DBCRON_CONFIG names)")
	root.Version = version
	root.SetVersionTemplate("dbcron {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	p.register(root)
	cobra.EnableCommandSorting = false
	wanted := func(name string) bool { return true }
	groups := p.groups()
	if len(args) > 0 && slices.ContainsFunc(groups, func(g group) bool { return g.has(args[0]) }) {
		wanted = func(name string) bool { return name == args[0] }
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, n := range g.nouns {
			if wanted(n.name) {
				c := n.command()
				c.GroupID = g.title
				root.AddCommand(c)
			}
		}
	}
	root.SetHelpCommand(p.help(root))
	p.outcomes(root)
	strictArgs(root)
	p.complete(root)
	return root
}

// A group is a heading of the help, and what stands below it.
type group struct {
	title string
	nouns []noun
}

// A noun is a command below the root, which is made when it is needed.
type noun struct {
	name    string
	command func() *cobra.Command
}

func (g group) has(name string) bool {
	return slices.ContainsFunc(g.nouns, func(n noun) bool { return n.name == name })
}

func (p *program) groups() []group {
	return []group{
		{"Run", []noun{{"serve", p.serve}, {"worker", p.worker}, {"migrate", p.migrate}, {"config", p.config}, {"token", p.token}}},
		{"On time", []noun{{"schedule", p.schedule}}},
		{"Later", []noun{
			{"job", p.job},
			{"queue", p.queue},
			{"group", p.group},
			{"topic", p.topic},
			{"route", p.route},
			{"limit", p.limit},
			{"share", p.share},
			{"endpoint", p.endpoint},
		}},
		{"Once", []noun{{"lock", p.lock}}},
		{"See and repair", []noun{
			{"doctor", p.doctor},
			{"finding", p.finding},
			{"top", p.top},
			{"node", p.node},
			{"notify", p.notify},
			{"audit", p.audit},
			{"bench", p.bench},
			{"demo", p.demo},
			{"openapi", p.openapi},
			{"version", p.version},
		}},
	}
}

// readingCommands are the last words of read-only commands.
var readingCommands = []string{"list", "show", "get", "peek", "stats", "history", "output", "next", "explain", "export", "audit"}

// strictArgs makes wrong arguments usage errors, everywhere, and makes commands with subcommands refuse unknown
// words.
func strictArgs(c *cobra.Command) {
	check := c.Args
	if check == nil {
		check = cobra.NoArgs
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && c.HasSubCommands() {
			return unknownCommand(c, args[0])
		}
		if err := check(c, args); err != nil {
			return usagef("%v", err)
		}
		return nil
	}
	if c.RunE == nil && c.HasSubCommands() {
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	for _, sub := range c.Commands() {
		strictArgs(sub)
	}
}
