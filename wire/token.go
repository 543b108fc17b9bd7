package wire

// A Token is a token of the HTTP API, without its secret, which is stored nowhere.
type Token struct {
	Name      string   `json:"name" doc:"The name of the token, which tells people whose it is."`
	Scopes    []string `json:"scopes" nullable:"false" enum:"read,enqueue,work,operate,admin" doc:"What the token may be used for. admin includes all others, and operate includes read."`
	State     string   `json:"state" enum:"good,expired,revoked" doc:"good: requests may have it. expired: its time is over. revoked: somebody has revoked it."`
	Created   Instant  `json:"created" doc:"When the token was created."`
	Used      Instant  `json:"last_used,omitzero" doc:"When a request had the token last, to a minute."`
	Expires   Instant  `json:"expires,omitzero" doc:"When the token expires. It is left out if it never does."`
	OldSecret Instant  `json:"old_secret_until,omitzero" doc:"Until when the secret before the last rotation is good, too."`
	Revoked   Instant  `json:"revoked,omitzero" doc:"When the token was revoked."`
}
