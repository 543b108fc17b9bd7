package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/wire"
)

var (
	// ErrInvalid means that a token or an option is invalid. The text says why.
	ErrInvalid = errors.New("httpapi: invalid")

	// ErrTokenExists means that there is a token of that name already.
	ErrTokenExists = errors.New("httpapi: there is a token of that name")

	// ErrRotated means that the secret before the token's last rotation is still valid.
	ErrRotated = errors.New("httpapi: the secret before is still good")

	// ErrNoToken means that there is no such token, or that it is no longer valid.
	ErrNoToken = errors.New("httpapi: there is no such token")
)

// A Scope is a set of permissions of a token.
type Scope string

// Scopes. ScopeAdmin includes all others, and ScopeOperate includes ScopeRead.
const (
	ScopeRead    Scope = "read"    // look at everything
	ScopeEnqueue Scope = "enqueue" // enqueue and publish jobs
	ScopeWork    Scope = "work"    // do jobs, and take locks
	ScopeOperate Scope = "operate" // read, and retry, cancel, run now, pause and resume; no settings, deletions or tokens
	ScopeAdmin   Scope = "admin"   // everything
)

// Scopes lists all scopes.
var Scopes = []Scope{ScopeRead, ScopeEnqueue, ScopeWork, ScopeOperate, ScopeAdmin}

// secretPrefix begins all secrets, so that leaked ones can be searched for.
const secretPrefix = "dbcron_"

// secretBytes is the entropy of a secret: enough that it cannot be guessed and its hash needs no salt.
const secretBytes = 32

// knownFor is how long a process caches tokens. A revoked token may stay valid, and the first token
// unneeded, for so long.
const knownFor = 2 * time.Second

// touchEvery is the interval at which a token's use is recorded.
const touchEvery = time.Minute

// A Token is a token in the table, without its secret.
type Token struct {
	Name    string
	Scopes  []Scope
	Created time.Time
	Expires time.Time // zero: never
	Revoked time.Time // zero: it is not revoked
	Used    time.Time // last use, to a minute; zero: never
	Old     time.Time // until when the previous secret is valid; zero: it is not
	State   string    // TokenGood, TokenExpired or TokenRevoked, by the database's clock

	// Wrong says what is wrong with its row, if somebody has written one that means nothing: the column and the problem.
	Wrong string
}

// States of a token.
const (
	TokenGood    = "good"
	TokenExpired = "expired"
	TokenRevoked = "revoked"
)

// ExpiresSoon reports whether the token is good and expires within a week from now, by the database's clock.
func (t *Token) ExpiresSoon(now time.Time) bool {
	return t.State == TokenGood && !t.Expires.IsZero() && t.Expires.Sub(now) < 7*24*time.Hour
}

// Trouble says what is wrong, or is about to be, with a token's time; "" if nothing is. A token that was in use until it expired is trouble for a
// week from then on: whoever uses it is refused.
func (t *Token) Trouble(now time.Time) string {
	switch {
	case t.ExpiresSoon(now):
		return "expires in " + plain.Span(t.Expires.Sub(now))
	case t.State == TokenExpired && now.Sub(t.Expires) < 7*24*time.Hour && t.Expires.Sub(t.Used) < 24*time.Hour:
		return "has expired " + plain.Span(now.Sub(t.Expires)) + " ago, and was in use until then: requests with it are refused (401)"
	}
	return ""
}

// JSON returns the token as it leaves the process.
func (t *Token) JSON() wire.Token {
	return wire.Token{
		Name: t.Name, Scopes: wireof.Each(t.Scopes, func(s *Scope) string { return string(*s) }), State: t.State, Created: wire.At(t.Created),
		Used: wire.At(t.Used), Expires: wire.At(t.Expires), OldSecret: wire.At(t.Old), Revoked: wire.At(t.Revoked),
	}
}

// Tokens manages the tokens of a database. It is safe for concurrent use.
type Tokens struct {
	db *dialect.DB

	mu    sync.Mutex
	known map[string]*Bearer // by hash; valid ones only
	there bool               // whether the table has any token, as last read
	asked instant.Instant    // when that was read; 0: never
}

// A Bearer is a sender with a valid token.
type Bearer struct {
	name, hash string
	scopes     []Scope
	proxy      bool // it has no token: a proxy names it
	read       instant.Instant
}

// Name returns the token's name.
func (b *Bearer) Name() string { return b.name }

// Login returns how the sender was identified, as the audit log calls it: token or proxy.
func (b *Bearer) Login() string {
	if b.proxy {
		return audit.Proxy
	}
	return audit.Token
}

// May reports whether the token has a scope.
func (b *Bearer) May(scope Scope) bool {
	return slices.Contains(b.scopes, scope) || slices.Contains(b.scopes, ScopeAdmin) || scope == ScopeRead &&
		slices.Contains(b.scopes, ScopeOperate)
}

// NewTokens returns the tokens of a database. It does not access the database.
func NewTokens(db *dialect.DB) *Tokens { return &Tokens{db: db, known: map[string]*Bearer{}} }

// CheckToken returns what is wrong with a token to be created.
func CheckToken(name string, scopes []Scope, lasts time.Duration) error {
	if err := sqlrun.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(scopes) == 0 {
		return fmt.Errorf("%w: a token without a scope is good for nothing; give it some of %s", ErrInvalid, joinScopes(Scopes))
	}
	for _, s := range scopes {
		if !slices.Contains(Scopes, s) {
			return fmt.Errorf("%w: scope %q is not known; use %s", ErrInvalid, s, joinScopes(Scopes))
		}
	}
	if lasts < 0 || lasts > plain.LongestDuration {
		return fmt.Errorf("%w: %v is not 0 to 100 years", ErrInvalid, lasts)
	}
	return nil
}

// Create creates a token that is valid for a while, or forever if lasts is 0, and returns its secret,
// which is stored nowhere. Once there is a token, every request needs one: see Any. Create returns
// ErrTokenExists if there is a token of that name, unless it was revoked.
func (t *Tokens) Create(ctx context.Context, name string, scopes []Scope, lasts time.Duration) (secret string, err error) {
	if err := CheckToken(name, scopes, lasts); err != nil {
		return "", err
	}
	secret = freshSecret()
	args := sqlrun.Args{"name": name, "hash": hashOf(secret), "scopes": joinScopes(inOrder(scopes)), "lasts": lasts.Microseconds()}
	n, err := t.db.Exec(ctx, reuseToken, args)
	if err == nil && n == 0 {
		_, err = t.db.Exec(ctx, createToken, args)
	}
	if t.db.Dialect.Duplicate(err) {
		return "", fmt.Errorf("%w: %q", ErrTokenExists, name)
	}
	if err != nil {
		return "", err
	}
	return secret, nil
}

func freshSecret() string {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // never fails
	return secretPrefix + base64.RawURLEncoding.EncodeToString(random)
}

// Rotate gives a token a new secret and returns it. The previous secret stays valid for grace, which may
// be 0, but not longer than the token. Rotate returns ErrRotated if an earlier secret is still valid,
// unless grace is 0: then none stays valid. It returns ErrNoToken if there is no valid token of that
// name.
func (t *Tokens) Rotate(ctx context.Context, name string, grace time.Duration) (secret string, err error) {
	if grace < 0 || grace > plain.LongestDuration {
		return "", fmt.Errorf("%w: %v is not 0 to 100 years", ErrInvalid, grace)
	}
	secret = freshSecret()
	n, err := t.db.Exec(ctx, rotateToken, sqlrun.Args{"name": name, "hash": hashOf(secret), "grace": grace.Microseconds()})
	switch {
	case err != nil:
		return "", err
	case n > 0:
		return secret, nil
	}
	all, err := t.List(ctx)
	if err != nil {
		return "", err
	}
	for i := range all {
		if one := &all[i]; one.Name == name && one.State == TokenGood {
			return "", fmt.Errorf("%w, until %s: %q", ErrRotated, one.Old.Format(time.RFC3339), name)
		}
	}
	return "", fmt.Errorf("%w, or it is not good any more: %q", ErrNoToken, name)
}

// inOrder sorts scopes and removes duplicates.
func inOrder(scopes []Scope) []Scope {
	return slices.DeleteFunc(slices.Clone(Scopes), func(s Scope) bool { return !slices.Contains(scopes, s) })
}

func joinScopes(scopes []Scope) string {
	words := make([]string, len(scopes))
	for i, s := range scopes {
		words[i] = string(s)
	}
	return strings.Join(words, ",")
}

// splitScopes parses the table's scopes and skips unknown ones.
func splitScopes(text string) []Scope {
	var scopes []Scope
	for word := range strings.SplitSeq(text, ",") {
		scopes = append(scopes, Scope(strings.TrimSpace(word)))
	}
	return inOrder(scopes)
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Revoke makes a token invalid, within two seconds everywhere. Revoking it again has no effect. Revoke
// returns ErrNoToken if there is no token of that name.
func (t *Tokens) Revoke(ctx context.Context, name string) error {
	n, err := t.db.Exec(ctx, revokeToken, sqlrun.Args{"name": name})
	if err != nil || n > 0 {
		return err
	}
	var there int
	if err := t.db.Get(ctx, namedToken, sqlrun.Args{"name": name}, &there); err != nil {
		return err
	}
	if there == 0 {
		return fmt.Errorf("%w: %q", ErrNoToken, name)
	}
	return nil
}

// Reset deletes all tokens, including revoked ones, and returns their number. Within two seconds the API
// of each daemon needs no token and serves its own host only.
func (t *Tokens) Reset(ctx context.Context) (removed int64, err error) {
	return t.db.Exec(ctx, removeTokens, nil)
}

// List returns all tokens by name, including invalid ones.
func (t *Tokens) List(ctx context.Context) ([]Token, error) {
	return sqlrun.Select(ctx, &t.db.Session, listTokens, nil, func(rows *sql.Rows) (one Token, err error) {
		var scopes string
		var us [5]int64
		var expired bool
		var row sqlrun.Reading
		err = rows.Scan(row.Into("name", &one.Name), row.Into("scopes", &scopes), row.Instant("created_at", &us[0]), row.Instant("expires_at", &us[1]),
			row.Instant("revoked_at", &us[2]), row.Instant("last_used_at", &us[3]), row.Instant("old_until", &us[4]), &expired)
		if one.Scopes = splitScopes(scopes); len(one.Scopes) == 0 {
			row.Note("scopes", fmt.Sprintf("%.40q has none of %s", scopes, joinScopes(Scopes)))
		}
		one.Wrong = row.Wrong
		for i, to := range []*time.Time{&one.Created, &one.Expires, &one.Revoked, &one.Used, &one.Old} {
			if us[i] != 0 {
				*to = time.UnixMicro(us[i]).UTC()
			}
		}
		switch one.State = TokenGood; {
		case !one.Revoked.IsZero():
			one.State = TokenRevoked
		case expired:
			one.State = TokenExpired
		}
		return one, err
	})
}

// Any reports whether there is a token, valid or not. If so the API needs one, so that it does not
// become open to all when the last one is revoked or expires. The result may be two seconds old.
func (t *Tokens) Any(ctx context.Context) (bool, error) {
	at := instant.Now()
	t.mu.Lock()
	there, asked := t.there, t.asked
	t.mu.Unlock()
	if asked != 0 && at.Sub(asked) < knownFor {
		return there, nil
	}
	if err := t.db.Get(ctx, anyToken, nil, &there); err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked == 0 || at.Sub(t.asked) > 0 { // otherwise another request has read it since
		t.there, t.asked = there, at
	}
	return t.there, nil
}

// Verify returns the bearer of a secret, or ErrNoToken if it is unknown or no longer valid. A revoked
// token may be valid for two more seconds.
func (t *Tokens) Verify(ctx context.Context, secret string) (*Bearer, error) {
	return checked(t.verify(ctx, secret))
}

// Again returns the current bearer of the same token, or ErrNoToken if it is no longer valid. Sessions,
// which must not outlive their token, use it.
func (t *Tokens) Again(ctx context.Context, b *Bearer) (*Bearer, error) {
	return checked(t.find(ctx, b.hash))
}

// An endedError has the name of a token that has expired or was revoked.
type endedError struct{ name string }

func (e *endedError) Error() string { return "the token " + e.name + " has expired or was revoked" }

// checked drops an error that comes with a bearer: only the token's use was not recorded.
func checked(b *Bearer, err error) (*Bearer, error) {
	var ended *endedError
	switch {
	case b != nil:
		return b, nil
	case errors.As(err, &ended):
		return nil, ErrNoToken
	case err == nil:
		return nil, ErrNoToken
	}
	return nil, err
}

// verify returns the bearer of a secret, or nil if it is unknown or no longer valid, with an endedError
// if it has a name. An error with a bearer means that the token's use could not be recorded.
func (t *Tokens) verify(ctx context.Context, secret string) (*Bearer, error) {
	if len(secret) != len(secretPrefix)+base64.RawURLEncoding.EncodedLen(secretBytes) || !strings.HasPrefix(secret, secretPrefix) {
		return nil, nil // not a secret of ours
	}
	return t.find(ctx, hashOf(secret))
}

// find is verify for the hash of a secret.
func (t *Tokens) find(ctx context.Context, hash string) (*Bearer, error) {
	at := instant.Now()
	t.mu.Lock()
	b := t.known[hash]
	t.mu.Unlock()
	if b != nil && at.Sub(b.read) < knownFor {
		return b, nil
	}
	b = &Bearer{hash: hash, read: at}
	var stored, scopes string
	var good, due bool
	since := -touchEvery.Microseconds()
	err := t.db.Get(ctx, findToken, sqlrun.Args{"hash": hash, "since": since}, &b.name, &stored, &scopes, &good, &due)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	if err != nil || !good || subtle.ConstantTimeCompare([]byte(stored), []byte(hash)) != 1 {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.known, hash)
		if err == nil && !good {
			return nil, &endedError{b.name}
		}
		return nil, nil
	}
	b.scopes = splitScopes(scopes)
	t.mu.Lock()
	t.known[hash] = b
	t.mu.Unlock()
	if due {
		_, err = t.db.Exec(ctx, touchToken, sqlrun.Args{"name": b.name, "since": since})
	}
	return b, err
}
