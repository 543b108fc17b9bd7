package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) endpoint() *cobra.Command {
	c := &cobra.Command{
		Use:   "endpoint",
		Short: "See and change where the jobs of queues are sent",
		Long: `See and change where the jobs of queues are sent: to programs that answer HTTP. Any
dbcron serve sends them, and goes by a change within two seconds. docs/push.md says what
is sent, and what answers mean.`,
	}
	c.AddCommand(p.endpointList(), p.endpointShow(), p.endpointSet(), p.endpointDelete(), p.endpointSecret())
	return c
}

// An endpointRow is what a table shows of an endpoint.
type endpointRow struct {
	Queue       string        `table:"queue"`
	URL         string        `table:"url"`
	Format      string        `table:"format,rare"`
	Concurrency int           `table:"concurrency"`
	Timeout     wire.Duration `table:"timeout"`
}

func newEndpointRow(e *push.Endpoint) endpointRow {
	return endpointRow{e.Queue, e.URL, e.Format, e.Concurrency, wire.DurationOf(e.Timeout)}
}

func (p *program) endpointList() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the endpoints of queues",
		Example: `  dbcron endpoint list -o json`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error {
				all, err := endpoints(c.Context(), push.NewEndpoints(db))
				if err != nil {
					return err
				}
				return writeEach(p.out, output, all, (*push.Endpoint).JSON, newEndpointRow)
			})
		},
	}
	outputFlag(c, &output)
	return c
}

func endpoints(ctx context.Context, of *push.Endpoints) ([]push.Endpoint, error) {
	return pages(func(last *push.Endpoint, most int) ([]push.Endpoint, error) { return of.List(ctx, last.Queue, most) })
}

// endpointFlags are the flags that change an endpoint.
type endpointFlags struct {
	format, timeout, secretFile string
	concurrency, batch          int
	set                         wire.EndpointChange
}

func (p *program) endpointSet() *cobra.Command {
	var f endpointFlags
	c := &cobra.Command{
		Use:   "set QUEUE [URL]",
		Short: "Send a queue's jobs to a URL, or change how",
		Long: `Send a queue's jobs to a URL, or change how. What is not given stays as it is. An
empty URL, '', has each job name its own (dbcron job enqueue --endpoint).

Requests are signed, as Standard Webhooks has it: when an endpoint is made, its secret is
printed. --new-secret makes a new one, and requests are signed with both until
--drop-old-secret.

--concurrency is how many jobs are sent at a time by each dbcron serve; dbcron limit bounds
all of them together, and how many are sent in a time.

--batch N sends up to N jobs in a request, as a JSON array; the answer is an array with an
outcome for each. With 1 each request is a job, as if it had not been given.`,
		Example: `  dbcron endpoint set mail https://worker.example.org/mail
  dbcron endpoint set mail --concurrency 4 --timeout 2m
  dbcron endpoint set rows --batch 100
  dbcron endpoint set mail --new-secret`,
		Args: cobra.RangeArgs(1, 2),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		change, err := f.change(c, args)
		if err != nil {
			return err
		}
		return p.setEndpoint(c.Context(), args[0], change, f.secretFile == "")
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.IntVar(&f.concurrency, "concurrency", 16, "how many are sent at a time by each daemon")
	flags.IntVar(&f.batch, "batch", 1, "how many jobs a request has at the most")
	flags.StringVar(&f.timeout, "timeout", "30s", "a `duration` in which a request has to be answered, if neither job nor queue say")
	flags.StringVar(&f.format, "format", push.FormatPlain, "plain, or cloudevents: with the headers of a CloudEvent")
	flags.BoolVar(&f.set.NewSecret, "new-secret", false, "make a new secret, and print it")
	flags.StringVar(&f.secretFile, "secret-file", "", "`file` with the secret to use from now on: whsec_ and 24 to 64 bytes in base64")
	flags.BoolVar(&f.set.DropOldSecret, "drop-old-secret", false, "sign with the new secret alone")
	return c
}

// change returns a function that makes the change given by the flags.
func (f *endpointFlags) change(c *cobra.Command, args []string) (func(*push.Endpoint), error) {
	given := func(flag string) bool { return c.Flags().Changed(flag) }
	something := len(args) == 2
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { something = something || f.Changed })
	if !something {
		return nil, usagef("there is nothing to change; give a URL, or see --help")
	}
	if len(args) == 2 && args[1] != "" {
		if err := address.CheckEndpoint(args[1]); err != nil {
			return nil, usagef("the URL: %v", err)
		}
	}
	if f.secretFile != "" {
		text, err := os.ReadFile(f.secretFile)
		if err != nil {
			return nil, err
		}
		f.set.Secret = strings.TrimSpace(string(text))
		if err := push.CheckSecret(f.set.Secret); err != nil {
			return nil, usagef("%s: %v", f.secretFile, err)
		}
	}
	if len(args) == 2 {
		f.set.URL = &args[1]
	}
	if given("concurrency") {
		f.set.Concurrency = &f.concurrency
	}
	if given("batch") {
		f.set.Batch = &f.batch
	}
	if given("timeout") {
		f.set.Timeout = (*wire.Duration)(&f.timeout)
	}
	if given("format") {
		f.set.Format = &f.format
	}
	change, err := push.Change(&f.set)
	return change, flagged(err)
}

// setEndpoint makes the change, and prints the secret if it is new and was never shown.
func (p *program) setEndpoint(ctx context.Context, name string, change func(*push.Endpoint), tell bool) error {
	return p.with(ctx, func(db *dialect.DB) error {
		c, err := admin.New(db, admin.Options{})
		if err != nil {
			return err
		}
		done, err := push.NewEndpoints(db).Set(ctx, c, name, change)
		if err != nil {
			return flagged(err)
		}
		if done.MadeQueue {
			p.tellMade(name)
		}
		if tell && done.NewSecret {
			p.say("secret", done.Secret)
			_, err = fmt.Fprintln(p.out, done.Secret)
		}
		return errors.Join(p.did(ctx, nil, "endpoint.set", name, 1, ""), err)
	})
}

func (p *program) endpointDelete() *cobra.Command {
	return &cobra.Command{
		Use:   "delete QUEUE",
		Short: "Stop sending a queue's jobs",
		Long: `Stop sending a queue's jobs. They stay, and wait for workers; requests under way are
finished.`,
		Example: `  dbcron endpoint delete mail`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error {
				err := push.NewEndpoints(db).Delete(c.Context(), args[0])
				return p.did(c.Context(), err, "endpoint.delete", args[0], 1, "")
			})
		},
	}
}

func (p *program) endpointSecret() *cobra.Command {
	return &cobra.Command{
		Use:     "secret QUEUE",
		Short:   "Print the secret that signs a queue's requests",
		Example: `  dbcron endpoint secret mail >secret && chmod 600 secret`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error {
				e, err := push.NewEndpoints(db).Get(c.Context(), args[0])
				if err == nil {
					_, err = fmt.Fprintln(p.out, e.Secret)
				}
				return p.did(c.Context(), err, "endpoint.secret", args[0], 1, "")
			})
		},
	}
}
