package dashboard

import (
	"context"
	"strings"

	"github.com/dbcron/dbcron/httpapi"
)

type tokensData struct {
	Tokens []tokenRow
	Good   int  // number of valid tokens
	Open   bool // there are no tokens: requests from this host need none
}

// A tokenRow is a token without its secret, which is stored nowhere.
type tokenRow struct {
	httpapi.Token
	Soon   bool // it expires within a week
	Scopes string
	Own    bool // the visitor is signed in with it
}

// listTokens shows all tokens, valid ones first.
func (d *Dashboard) listTokens(ctx context.Context, r *request) (*view, error) {
	all, err := d.api.Tokens().List(ctx)
	if err != nil {
		return nil, err
	}
	data := &tokensData{Open: len(all) == 0}
	var ended []tokenRow
	for _, t := range all {
		row := tokenRow{Token: t, Scopes: strings.Join(t.JSON().Scopes, ", "), Own: r.who.Signed && r.who.Name == t.Name}
		if t.State != httpapi.TokenGood {
			ended = append(ended, row)
			continue
		}
		row.Soon = t.ExpiresSoon(r.now)
		data.Good++
		data.Tokens = append(data.Tokens, row)
	}
	data.Tokens = append(data.Tokens, ended...)
	return &view{template: "tokens.html", title: "Tokens", section: "audit", data: data}, nil
}

// revokeToken revokes a token, even the visitor's own.
func (d *Dashboard) revokeToken(ctx context.Context, r *request) (outcome, error) {
	name, err := r.formName("name")
	if err != nil {
		return outcome{}, err
	}
	return outcome{note: "revoked", to: "tokens?", object: name}, d.api.Tokens().Revoke(ctx, name)
}
