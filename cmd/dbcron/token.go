package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) token() *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "See and make tokens for the HTTP API",
		Long: `See and make tokens for the HTTP API of dbcron serve. As long as there is none,
the API needs none and answers this host alone. From the first on every request needs one,
also when all have been revoked or have expired. The way back is dbcron token reset, which
removes them all. dbcron help http has more.`,
	}
	c.AddCommand(p.tokenCreate(), p.tokenList(), p.tokenRotate(), p.tokenRevoke(), p.tokenReset())
	return c
}

func (p *program) tokenCreate() *cobra.Command {
	var scopes []string
	var expires string
	var yes bool
	c := &cobra.Command{
		Use:   "create NAME --scope SCOPE",
		Short: "Make a token, and print its secret, once",
		Long: `Make a token, and print its secret. It is shown this once and stored nowhere: the
table has only a hash of it. NAME tells people whose it is. What a token may be used for:

    read       look at everything, payloads too
    enqueue    enqueue and publish jobs
    work       do jobs, and take locks
    operate    look, and retry, cancel, run now, pause and resume
    admin      everything

From the first token on every request to the API needs one, also those of programs on this
host. So the first one is asked for; without a terminal it needs --yes.`,
		Example: `  dbcron token create shop --scope enqueue
  dbcron token create ops --scope admin --yes
  dbcron token create dashboard --scope read --expires 90d >token && chmod 600 token`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			lasts, err := wire.Duration(expires).Finite()
			if err != nil || expires != "" && lasts == 0 {
				return usagef("--expires: %q is not a duration of more than 0; write for example 90d", expires)
			}
			if len(scopes) == 0 {
				return usagef("--scope is missing; use read, enqueue, work, operate or admin; it may be repeated")
			}
			return p.createToken(c.Context(), args[0], scopes, lasts, yes)
		},
	}
	c.Flags().StringSliceVar(&scopes, "scope", nil, "what it may be used for: read, enqueue, work, operate or admin; may be repeated")
	c.Flags().StringVar(&expires, "expires", "", "a `duration` after which it expires (default: never)")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask before the first token is made")
	return c
}

// scopesOf returns the scopes in a list of words, known or not.
func scopesOf(words []string) []httpapi.Scope {
	all := make([]httpapi.Scope, len(words))
	for i, s := range words {
		all[i] = httpapi.Scope(s)
	}
	return all
}

func (p *program) createToken(ctx context.Context, name string, scopes []string, lasts time.Duration, yes bool) error {
	all := scopesOf(scopes)
	if err := httpapi.CheckToken(name, all, lasts); err != nil {
		return err
	}
	return p.with(ctx, func(db *dialect.DB) error {
		tokens := httpapi.NewTokens(db)
		if err := p.permitFirst(ctx, tokens, name, yes); err != nil {
			return err
		}
		secret, err := tokens.Create(ctx, name, all, lasts)
		if err := p.did(ctx, err, "token.create", name, 1, "scopes="+strings.Join(scopes, ",")); err != nil {
			return err
		}
		p.say("secret", secret)
		_, err = fmt.Fprintln(p.out, secret)
		return err
	})
}

// permitFirst warns of the effect of the first token, and returns an error unless it may be created. If several
// first tokens are created at once, each is confirmed; one created just after somebody else's reset is not.
func (p *program) permitFirst(ctx context.Context, tokens *httpapi.Tokens, name string, yes bool) error {
	there, err := tokens.Any(ctx)
	if err != nil || there {
		return err
	}
	fmt.Fprintln(p.err, "dbcron: this is the first token: from now on every request to the HTTP API needs one, also those of programs on this host that have used it without. To revoke it does not undo that; dbcron token reset does")
	return p.consent(yes, name)
}

// A tokenRow is what a table shows of a token.
type tokenRow struct {
	Name    string    `table:"name"`
	Scopes  []string  `table:"scopes"`
	State   string    `table:"state"`
	Created time.Time `table:"created"`
	Used    time.Time `table:"last used"`
	Expires time.Time `table:"expires"`
	Old     string    `table:"old secret until,rare"`
}

func newTokenRow(t *httpapi.Token) tokenRow {
	row := tokenRow{Name: t.Name, Scopes: t.JSON().Scopes, State: t.State, Created: t.Created, Used: t.Used, Expires: t.Expires}
	if !t.Old.IsZero() {
		row.Old = table.Cell(t.Old)
	}
	return row
}

func (p *program) tokenList() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the tokens, without their secrets",
		Example: `  dbcron token list`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error {
				all, err := httpapi.NewTokens(db).List(c.Context())
				if err != nil {
					return err
				}
				return writeEach(p.out, output, all, (*httpapi.Token).JSON, newTokenRow)
			})
		},
	}
	outputFlag(c, &output)
	return c
}

func (p *program) tokenRotate() *cobra.Command {
	var grace string
	c := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Give a token a new secret, and print it, once",
		Long: `Give a token a new secret, and print it. The one before stays good for --grace, so that
programs can change it one after the other; --grace none ends it within two seconds, for one
that others know. Name, scopes and expiry stay. While a secret before is still good a token
is not rotated again (exit code 4), but by --grace none.`,
		Example: `  dbcron token rotate shop
  dbcron token rotate shop --grace none >token && chmod 600 token`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			lasts, err := notNegative(grace)
			if err != nil {
				return usagef("--grace: %v", err)
			}
			return p.with(c.Context(), func(db *dialect.DB) error {
				secret, err := httpapi.NewTokens(db).Rotate(c.Context(), args[0], lasts)
				if errors.Is(err, httpapi.ErrRotated) {
					err = fmt.Errorf("%w; wait, or end both with --grace none", err)
				}
				if err := p.did(c.Context(), err, "token.rotate", args[0], 1, "grace="+grace); err != nil {
					return err
				}
				p.say("secret", secret)
				_, err = fmt.Fprintln(p.out, secret)
				return err
			})
		},
	}
	c.Flags().StringVar(&grace, "grace", "24h", "a `duration` for which the secret before is still good")
	return c
}

func (p *program) tokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Revoke a token, within two seconds",
		Long: `Revoke a token, within two seconds. Its name can be used again. When no valid token is left,
the API answers nobody; dbcron token reset opens it to this host.`,
		Example: `  dbcron token revoke shop`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error {
				tokens := httpapi.NewTokens(db)
				if err := p.did(c.Context(), tokens.Revoke(c.Context(), args[0]), "token.revoke", args[0], 1, ""); err != nil {
					return err
				}
				all, err := tokens.List(c.Context())
				if err == nil && goodTokens(all) == 0 {
					fmt.Fprintln(p.err, "dbcron: no valid token is left, and the HTTP API still needs one: dbcron token create makes another, dbcron token reset opens the API to this host without")
				}
				return err
			})
		},
	}
}

func goodTokens(all []httpapi.Token) (n int) {
	for i := range all {
		if all[i].State == httpapi.TokenGood {
			n++
		}
	}
	return n
}

func (p *program) tokenReset() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "reset",
		Short: "Remove all tokens, so that the API needs none",
		Long: `Remove all tokens, revoked and expired ones too. Within two seconds none of them is good
at any daemon, and the API answers as before the first: every program on the daemon's own
host, without a token, and nobody else. It tells how many there are, and asks; without a
terminal it needs --yes. dbcron token revoke makes a single token good for nothing.`,
		Example: `  dbcron token reset`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error { return p.resetTokens(c.Context(), httpapi.NewTokens(db), yes) })
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (p *program) resetTokens(ctx context.Context, tokens *httpapi.Tokens, yes bool) error {
	all, err := tokens.List(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		p.say("removed", 0)
		_, err := fmt.Fprintln(p.out, "nothing to do: there is no token")
		return err
	}
	fmt.Fprintf(p.err, "dbcron: this removes %s, of which %d can be used now, for good. Then every program on a daemon's host may do all that its HTTP API can do, without a token, and other hosts nothing\n",
		counted(len(all), "token", "tokens"), goodTokens(all))
	if err := p.consent(yes, "reset"); err != nil {
		return err
	}
	n, err := tokens.Reset(ctx)
	if err = p.did(ctx, err, "token.reset", "", int(n), ""); err == nil {
		p.say("removed", n)
		_, err = fmt.Fprintln(p.out, "removed "+counted(int(n), "token", "tokens"))
	}
	return err
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
