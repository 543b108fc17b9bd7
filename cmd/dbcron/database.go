package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/ops/config"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/smallfile"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/sqlschema"
)

// databaseFlags select the database, for all commands.
type databaseFlags struct {
	url            string
	prefix, schema string
	connectTimeout time.Duration

	fromFile config.Database   // named in the config file
	read     map[string]string // what files of URLs had: a pipe is read once
	reading  bool              // the command only reads, so any server will do
	shared   bool              // the command promises something of all hosts, which a file in its folder does not keep

	allowHTTP bool // a token may be sent without encryption
}

func (f *databaseFlags) register(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&f.url, "url", "", "URL of the database, or of a daemon; for one with a password use DBCRON_DATABASE_URL, which ps does not show")
	flags.BoolVar(&f.allowHTTP, "allow-http", false, "send the token to a daemon's http:// URL, although it can be read on the way")
	flags.StringVar(&f.prefix, "prefix", "dbcron_", "what the names of all tables begin with")
	flags.StringVar(&f.schema, "schema", "", "PostgreSQL: the schema of the tables (default: the first of the search_path that has them)")
	durationVar(flags, &f.connectTimeout, "connect-timeout", 30*time.Second,
		"how long to try while the database does not answer, or takes no writes and the command writes")
}

// databaseURL finds the URL: flag, environment, file, then the embedded default.
func (p *program) databaseURL() (string, error) {
	rawURL, from, err := p.findDatabase()
	if err == nil && from == byDefault {
		err = p.refuseDefault()
	}
	if err == nil && from == "--url" {
		if u, err := url.Parse(rawURL); err == nil && u.User != nil {
			if _, has := u.User.Password(); has {
				fmt.Fprintln(p.err, "dbcron: warning: everybody on this host can read a password in --url (ps shows it); use DBCRON_DATABASE_URL or DBCRON_DATABASE_URL_FILE")
			}
		}
	}
	return rawURL, err
}

// findDatabase returns the URL and where it comes from.
func (p *program) findDatabase() (rawURL, from string, err error) {
	if p.url != "" {
		return p.url, "--url", nil
	}
	for _, name := range []string{"DBCRON_URL", "DBCRON_DATABASE_URL", "DBCRON_DATABASE_URL_FILE", "DATABASE_URL"} {
		switch value := p.getenv(name); {
		case value == "":
		case name == "DBCRON_DATABASE_URL_FILE":
			rawURL, err = p.urlIn(value, name)
			return rawURL, name, err
		default:
			return value, name, nil
		}
	}
	if d := p.fromFile; d.File != "" {
		rawURL, err = p.urlIn(d.File, d.At+": "+config.KeyURLFile)
		return rawURL, d.At, err
	} else if d.URL != "" {
		return d.URL, d.At, nil
	}
	return "sqlite:dbcron.db", byDefault, nil
}

// byDefault is where the URL comes from that nobody has named.
const byDefault = "default"

// refuseDefault refuses a file in the current folder where nobody has chosen that folder for it: for what is to be one of all
// hosts, and in commands of schedules, jobs and locks.
func (p *program) refuseDefault() error {
	const name = "set DBCRON_DATABASE_URL or DBCRON_DATABASE_URL_FILE"
	for _, of := range [][2]string{
		{"DBCRON_SCHEDULE", "start the daemon with dbcron serve --pass-database, or " + name},
		{"DBCRON_JOB_ID", name},
		{"DBCRON_LOCK_NAME", name},
	} {
		if p.getenv(of[0]) != "" {
			return usagef("no database is named in a command of dbcron (%s is set): %s", of[0], of[1])
		}
	}
	if p.shared {
		return usagef("no database is named, and a lock in a file of this folder would be one of this folder only: %s; if that is meant: --url sqlite:dbcron.db", name)
	}
	return nil
}

// databaseName returns the database's name as its URL has it, without server and folder; "" if it has none.
func (p *program) databaseName() string {
	rawURL, _, err := p.findDatabase()
	if err != nil {
		return ""
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	name, err := url.PathUnescape(u.Opaque)
	if err != nil {
		return ""
	}
	return strings.Trim(path.Base("/"+name+u.Path), "/")
}

// passedDatabase returns the variables by which commands of schedules find the daemon's database. None holds a password: a command's
// environment is for its user to read, and for whatever it starts.
func (p *program) passedDatabase() ([]string, error) {
	rawURL, from, err := p.findDatabase()
	if err != nil {
		return nil, err
	}
	file := ""
	switch from {
	case "DBCRON_DATABASE_URL_FILE":
		file = p.getenv(from)
	case p.fromFile.At:
		file = p.fromFile.File
	}
	env := []string{"DBCRON_PREFIX=" + p.prefix}
	if p.schema != "" {
		env = append(env, "DBCRON_SCHEMA="+p.schema)
	}
	switch u, err := url.Parse(rawURL); {
	case err == nil && u.Scheme == "sqlite": // without a password, and maybe relative to the daemon's folder
		path, err := url.PathUnescape(u.Opaque)
		if err == nil {
			path, err = filepath.Abs(path + u.Host + u.Path)
		}
		return append(env, "DBCRON_DATABASE_URL="+(&url.URL{Scheme: u.Scheme, Path: path}).String()), err
	case file != "":
		file, err := filepath.Abs(file)
		return append(env, "DBCRON_DATABASE_URL_FILE="+file), err
	case dialect.Redact(rawURL) != rawURL:
		return nil, usagef("--pass-database: the URL in %s has a password, which commands would have in their environment; "+
			"put the URL into a file that they may read, and name that file in DBCRON_DATABASE_URL_FILE instead", from)
	}
	return append(env, "DBCRON_DATABASE_URL="+rawURL), nil
}

// urlIn returns the URL that a file holds, which it reads once: it may be a pipe. from says where the file was named.
func (p *program) urlIn(file, from string) (string, error) {
	if u := p.read[file]; u != "" {
		return u, nil
	}
	text, err := smallfile.Read(file, mostOfText)
	if err != nil {
		return "", fmt.Errorf("%s: %w", from, err)
	}
	if u := strings.TrimSpace(string(text)); u != "" {
		if p.read == nil {
			p.read = map[string]string{}
		}
		p.read[file] = u
		return u, nil
	}
	return "", fmt.Errorf("%s: %s is empty", from, file)
}

func (p *program) getenv(name string) string {
	for _, pair := range p.environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

func (p *program) options() dialect.Options {
	return dialect.Options{Prefix: p.prefix, Schema: p.schema, ApplicationName: "dbcron"}
}

// open connects, and waits for a database that does not answer yet.
func (p *program) open(ctx context.Context) (*dialect.DB, error) {
	return p.connect(ctx, p.options(), engines.Open)
}

// existing returns options for commands that must not create a database: a mistyped file name must not
// become an empty database.
func (p *program) existing() dialect.Options {
	o := p.options()
	o.Existing, o.Reading = true, p.reading
	return o
}

func (p *program) connect(ctx context.Context, opt dialect.Options,
	open func(context.Context, string, dialect.Options) (*dialect.DB, error),
) (*dialect.DB, error) {
	rawURL, err := p.databaseURL()
	if err != nil {
		return nil, err
	}
	return p.connectTo(ctx, rawURL, opt, open)
}

// connectTo is connect with a URL.
func (p *program) connectTo(ctx context.Context, rawURL string, opt dialect.Options,
	open func(context.Context, string, dialect.Options) (*dialect.DB, error),
) (*dialect.DB, error) {
	if isDaemon(rawURL) {
		return nil, usagef("%s is the URL of a daemon, and this takes the database: leave out --url and DBCRON_URL, or give the database's URL", plain.URL(rawURL))
	}
	d, err := engines.ForURL(rawURL)
	if err != nil {
		return nil, usagef("%v", err)
	}
	if _, _, err := sqlrun.Options(opt).Filled(d); err != nil {
		return nil, usagef("%v", err)
	}
	told := false
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 200*time.Millisecond, 3*time.Second
	db, err := backoff.Retry(ctx, func() (*dialect.DB, error) {
		// One attempt must not take all the time: a host may drop packets.
		attempt, cancel := context.WithTimeout(ctx, min(max(p.connectTimeout, time.Second), 10*time.Second))
		defer cancel()
		db, err := open(attempt, rawURL, opt)
		if err != nil && !engines.Unavailable(err) {
			return nil, backoff.Permanent(err)
		}
		if err != nil && !told && p.connectTimeout > 0 {
			told = true
			what := "does not answer"
			switch {
			case errors.Is(err, dialect.ErrReadOnly):
				what = "takes no writes"
			case engines.Full(err):
				what = "lets nobody else in"
			}
			fmt.Fprintf(p.err, "dbcron: the database %s; trying for %v (--connect-timeout): %s\n", what, p.connectTimeout, flat(err.Error()))
		}
		return db, err
	}, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(max(p.connectTimeout, time.Nanosecond)))
	if err != nil && engines.Full(err) {
		err = fmt.Errorf("all connections that this user, the database or the server may have are taken: %w", err)
	}
	if err != nil && engines.Unavailable(err) {
		err = fmt.Errorf("gave up after %v (--connect-timeout): %w", p.connectTimeout, err)
	}
	return db, err
}

// with opens the database, checks that its tables are the right ones, and
// closes it when f is done.
func (p *program) with(ctx context.Context, f func(db *dialect.DB) error) (err error) {
	db, err := p.connect(ctx, p.existing(), engines.Open)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := sqlschema.Check(ctx, db); err != nil {
		return err
	}
	p.db = db
	return f(db)
}

// withOther does so with the database whose URL is in a file.
func (p *program) withOther(ctx context.Context, file, flag string, f func(db *dialect.DB) error) (err error) {
	rawURL, err := p.urlIn(file, flag)
	if err != nil {
		return usagef("%v", err)
	}
	db, err := p.connectTo(ctx, rawURL, p.existing(), engines.Open)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := sqlschema.Check(ctx, db); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return f(db)
}
