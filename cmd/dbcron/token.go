package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi"
)

func (p *program) token() *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "See and make tokens for the HTTP API",
		Long: `See and make tokens for the HTTP API of dbcron serve. As long as there has never been
one, the API needs none and answers this host alone. From the first on each request needs
one, also when all have been revoked. docs/http.md has more.`,
	}
	c.AddCommand(p.tokenCreate(), p.tokenList(), p.tokenRevoke())
	return c
}

func (p *program) tokenCreate() *cobra.Command {
	var scopes []string
	var expires string
	c := &cobra.Command{
		Use:   "create NAME --scope SCOPE",
		Short: "Make a token, and print its secret, once",
		Long: `Make a token, and print its secret. It is shown this once and stored nowhere: the
table has only a hash of it. NAME tells people whose it is. What a token is good for:

    read       look at everything, payloads too
    enqueue    enqueue and publish jobs
    work       do jobs, and take locks
    admin      everything`,
		Example: `  dbcron token create shop --scope enqueue
  dbcron token create dashboard --scope read --expires 90d >token && chmod 600 token`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			lasts, err := notNegative(orText(expires, "0s"))
			if err != nil || expires != "" && lasts == 0 {
				return usagef("--expires: %q is not a duration of more than 0; write for example 90d", expires)
			}
			if len(scopes) == 0 {
				return usagef("--scope is missing: what is the token good for? read, enqueue, work or admin; it may be repeated")
			}
			return p.createToken(c.Context(), args[0], scopes, lasts)
		},
	}
	c.Flags().StringSliceVar(&scopes, "scope", nil, "what it is good for: read, enqueue, work or admin; may be repeated")
	c.Flags().StringVar(&expires, "expires", "", "a `duration` after which it is not good any more (default: never)")
	return c
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func (p *program) createToken(ctx context.Context, name string, scopes []string, lasts time.Duration) error {
	all := make([]httpapi.Scope, len(scopes))
	for i, s := range scopes {
		all[i] = httpapi.Scope(s)
	}
	return p.with(ctx, func(db *dialect.DB) error {
		secret, err := httpapi.NewTokens(db).Create(ctx, name, all, lasts)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(p.out, secret)
		return err
	})
}

type tokenRow struct {
	Name    string     `json:"name"`
	Scopes  string     `json:"scopes"`
	State   string     `json:"state"`
	Created *time.Time `json:"created"`
	Used    *time.Time `json:"last_used" table:"last used"`
	Expires *time.Time `json:"expires"`
	Revoked *time.Time `json:"revoked" table:"-"`
}

func newTokenRow(t *httpapi.Token) tokenRow {
	words := make([]string, len(t.Scopes))
	for i, s := range t.Scopes {
		words[i] = string(s)
	}
	row := tokenRow{
		Name: t.Name, Scopes: strings.Join(words, ","), State: "good",
		Created: optional(t.Created), Used: optional(t.Used), Expires: optional(t.Expires), Revoked: optional(t.Revoked),
	}
	switch {
	case !t.Revoked.IsZero():
		row.State = "revoked"
	case t.Expired:
		row.State = "expired"
	}
	return row
}

func (p *program) tokenList() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the tokens, without their secrets, which nobody knows",
		Example: `  dbcron token list`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error {
				all, err := httpapi.NewTokens(db).List(c.Context())
				if err != nil {
					return err
				}
				rows := make([]tokenRow, len(all))
				for i := range all {
					rows[i] = newTokenRow(&all[i])
				}
				return write(p.out, output, rows)
			})
		},
	}
	outputFlag(c, &output)
	return c
}

func (p *program) tokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NAME",
		Short:   "Make a token good for nothing, within two seconds",
		Example: `  dbcron token revoke shop`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error {
				return httpapi.NewTokens(db).Revoke(c.Context(), args[0])
			})
		},
	}
}

func (p *program) openapi() *cobra.Command {
	return &cobra.Command{
		Use:   "openapi",
		Short: "Print the description of the HTTP API, an OpenAPI document",
		Long: `Print the description of the HTTP API of dbcron serve: an OpenAPI 3.1 document in JSON,
the same as the API itself has at /api/v1/openapi.json.`,
		Example: `  dbcron openapi >openapi.json`,
		Args:    cobra.NoArgs,

		Annotations: map[string]string{configuresItself: "yes"},
		RunE: func(*cobra.Command, []string) error {
			text, err := httpapi.Document(version)
			if err == nil {
				_, err = fmt.Fprintln(p.out, string(text))
			}
			return err
		},
	}
}
