package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/smallfile"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) endpoint() *cobra.Command {
	c := &cobra.Command{
		Use:   "endpoint",
		Short: "See and change where the jobs of queues are sent",
		Long: `See and change where the jobs of queues are sent: to programs that answer HTTP. Any
dbcron serve sends them, and goes by a change within two seconds. dbcron help push says what
is sent, and what answers mean.`,
	}
	c.AddCommand(p.twin(twin{
		id: "list-endpoints", use: "list", short: "List the endpoints of queues", example: `  dbcron endpoint list -o json`,
	}), p.twin(twin{
		id: "get-endpoint", use: "show QUEUE",
		long: `Show where a queue's jobs are sent, and some of the newest answers. Daemons note them
every five seconds. A job whose endpoint pushes back (429, 503, no connection) waits, and
loses nothing; any other failure is one of the job's attempts.`,
		example: `  dbcron endpoint show mail`,
	}), p.endpointSet(), p.twin(twin{
		id: "delete-endpoint", use: "delete QUEUE",
		long: `Stop sending a queue's jobs. They stay, and wait for workers; requests under way are
finished.`,
		example: `  dbcron endpoint delete mail`,
	}), p.endpointSecret())
	return c
}

func (p *program) endpointSet() *cobra.Command {
	var secretFile string
	c := p.twin(p.making(twin{
		id: "set-endpoint", use: "set QUEUE [URL]", needs: "a URL, or see --help", flags: map[string]string{"secret": ""},
		long: `Send a queue's jobs to a URL, or change how. What is not given stays as it is. An
empty URL, '', has each job name its own (dbcron job enqueue --endpoint).

Requests are signed, as Standard Webhooks has it: when an endpoint is made, its secret is
printed. --new-secret makes a new one, and requests are signed with both until
--drop-old-secret.

--concurrency is how many jobs are sent at a time by each dbcron serve; dbcron limit bounds
all of them together, and how many are sent in a time.

--batch N sends up to N jobs in a request, as a JSON array; the answer is an array with an
outcome for each. With 1 each request is a job, as if it had not been given.`,
		example: `  dbcron endpoint set mail https://worker.example.org/mail
  dbcron endpoint set mail --concurrency 4 --timeout 2m
  dbcron endpoint set rows --batch 100
  dbcron endpoint set mail --new-secret`,
		before: func(_ context.Context, given values) error {
			if secretFile != "" {
				text, err := smallfile.Read(secretFile, mostOfText)
				if err != nil {
					return fmt.Errorf("--secret-file: %w", err)
				}
				given["secret"] = strings.TrimSpace(string(text))
				if err := push.CheckSecret(given["secret"]); err != nil {
					return usagef("%s: %v", secretFile, err)
				}
			}
			return nil
		},
		then: func(_ context.Context, answer any) (err error) {
			if secret := answer.(*wire.Endpoint).Secret; secret != "" { //nolint:forcetypeassert // what the operation answers with
				_, err = fmt.Fprintln(p.out, secret)
			}
			return err
		},
	}))
	c.Flags().StringVar(&secretFile, "secret-file", "", "`file` with the secret to use from now on: whsec_ and 24 to 64 bytes in base64")
	return c
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
