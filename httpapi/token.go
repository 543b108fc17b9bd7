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
	"github.com/dbcron/dbcron/internal/audit"
	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/internal/instant"
)

var (
	// ErrInvalid means that a token or an option cannot be: the text says why.
	ErrInvalid = errors.New("httpapi: invalid")

	// ErrTokenExists means that there is a token of that name.
	ErrTokenExists = errors.New("httpapi: there is a token of that name")

	// ErrRotated means that the secret before the token's last rotation is still good.
	ErrRotated = errors.New("httpapi: the secret before is still good")

	// ErrNoToken means that there is no such token, or that it is not good any more.
	ErrNoToken = errors.New("httpapi: there is no such token")
)

// A Scope is what a token is good for.
type Scope string

// Scopes. Whoever may administer may do all the rest, and whoever may operate may look.
const (
	ScopeRead    Scope = "read"    // look at everything
	ScopeEnqueue Scope = "enqueue" // enqueue and publish jobs
	ScopeWork    Scope = "work"    // do jobs, and take locks
	ScopeOperate Scope = "operate" // look, and retry, cancel, run now, pause and resume; no settings, nothing deleted, no tokens
	ScopeAdmin   Scope = "admin"   // everything
)

// Scopes are all that there are.
var Scopes = []Scope{ScopeRead, ScopeEnqueue, ScopeWork, ScopeOperate, ScopeAdmin}

// secretPrefix begins all secrets, so that a search for them finds those that went astray.
const secretPrefix = "dbcron_"

// secretBytes is how much chance is in a secret: so much that it is not guessed, and that
// its hash needs no salt.
const secretBytes = 32

// knownFor is how long a process goes by what it has read of tokens: so long after it was
// revoked a token may still be good, and after the first was made none be needed.
const knownFor = 2 * time.Second

// touchEvery is how often it is noted that a token is used.
const touchEvery = time.Minute

// A Token is one as the table has it. Its secret is not known any more.
type Token struct {
	Name    string
	Scopes  []Scope
	Created time.Time
	Expires time.Time // zero: never
	Revoked time.Time // zero: it was not
	Used    time.Time // when it was used last, to a minute; zero: never
	Old     time.Time // until when the secret before is good; zero: it is not
	Expired bool      // by the database's clock
}

// Tokens are the tokens of a database. It is safe for concurrent use.
type Tokens struct {
	db *dialect.DB

	mu    sync.Mutex
	known map[string]*Bearer // by hash; good ones only
	there bool               // what the table said about whether there is one
	asked instant.Instant    // when it was asked; 0: never
}

// A Bearer is who has a good token.
type Bearer struct {
	name, hash string
	scopes     []Scope
	proxy      bool // it has no token: a proxy says who it is
	read       instant.Instant
}

// Name returns the token's name.
func (b *Bearer) Name() string { return b.name }

// Login tells how it is known who it is, as the audit calls it: token or proxy.
func (b *Bearer) Login() string {
	if b.proxy {
		return audit.Proxy
	}
	return audit.Token
}

// May tells whether the token is good for what needs a scope.
func (b *Bearer) May(scope Scope) bool {
	return slices.Contains(b.scopes, scope) || slices.Contains(b.scopes, ScopeAdmin) || scope == ScopeRead &&
		slices.Contains(b.scopes, ScopeOperate)
}

// NewTokens returns the tokens of a database. It does not touch it.
func NewTokens(db *dialect.DB) *Tokens { return &Tokens{db: db, known: map[string]*Bearer{}} }

// CheckToken tells what is wrong with a token that is to be made.
func CheckToken(name string, scopes []Scope, lasts time.Duration) error {
	if err := dialect.CheckName(name); err != nil {
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
	if lasts < 0 || lasts > duration.Longest {
		return fmt.Errorf("%w: %v is not 0 to 100 years", ErrInvalid, lasts)
	}
	return nil
}

// Create makes a token that is good for a while, or always if that is 0, and returns its
// secret, which is stored nowhere. From the first token on every request needs one: Any
// tells whether there is one already. Create returns ErrTokenExists if there is a token of that
// name, unless it was revoked: then its name can be used again.
func (t *Tokens) Create(ctx context.Context, name string, scopes []Scope, lasts time.Duration) (secret string, err error) {
	if err := CheckToken(name, scopes, lasts); err != nil {
		return "", err
	}
	secret = freshSecret()
	args := dialect.Args{"name": name, "hash": hashOf(secret), "scopes": joinScopes(inOrder(scopes)), "lasts": lasts.Microseconds()}
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

// Rotate gives a token a new secret, which it returns. The one before stays good for grace,
// which may be 0, but no longer than the token. Rotate returns ErrRotated if another secret
// before is still good, unless grace is 0: then none of them is. It returns ErrNoToken if there
// is no good token of that name.
func (t *Tokens) Rotate(ctx context.Context, name string, grace time.Duration) (secret string, err error) {
	if grace < 0 || grace > duration.Longest {
		return "", fmt.Errorf("%w: %v is not 0 to 100 years", ErrInvalid, grace)
	}
	secret = freshSecret()
	n, err := t.db.Exec(ctx, rotateToken, dialect.Args{"name": name, "hash": hashOf(secret), "grace": grace.Microseconds()})
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
		if one := &all[i]; one.Name == name && one.Revoked.IsZero() && !one.Expired {
			return "", fmt.Errorf("%w, until %s: %q", ErrRotated, one.Old.Format(time.RFC3339), name)
		}
	}
	return "", fmt.Errorf("%w, or it is not good any more: %q", ErrNoToken, name)
}

// inOrder has each scope once.
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

// splitScopes reads what the table has, and leaves out what is not known.
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

// Revoke makes a token good for nothing, within two seconds everywhere. To revoke it again
// does nothing. It returns ErrNoToken if there is none of that name.
func (t *Tokens) Revoke(ctx context.Context, name string) error {
	n, err := t.db.Exec(ctx, revokeToken, dialect.Args{"name": name})
	if err != nil || n > 0 {
		return err
	}
	var there int
	if err := t.db.Get(ctx, namedToken, dialect.Args{"name": name}, &there); err != nil {
		return err
	}
	if there == 0 {
		return fmt.Errorf("%w: %q", ErrNoToken, name)
	}
	return nil
}

// Reset removes all tokens, revoked ones too, and returns how many. Within two seconds the
// API of each daemon needs none again, and answers its own host alone.
func (t *Tokens) Reset(ctx context.Context) (removed int64, err error) {
	return t.db.Exec(ctx, removeTokens, nil)
}

// List returns all tokens by name, also those that are not good any more.
func (t *Tokens) List(ctx context.Context) ([]Token, error) {
	return dialect.Select(ctx, &t.db.Session, listTokens, nil, func(rows *sql.Rows) (one Token, err error) {
		var scopes string
		var us [5]int64
		err = rows.Scan(&one.Name, &scopes, &us[0], &us[1], &us[2], &us[3], &us[4], &one.Expired)
		one.Scopes = splitScopes(scopes)
		for i, to := range []*time.Time{&one.Created, &one.Expires, &one.Revoked, &one.Used, &one.Old} {
			if us[i] != 0 {
				*to = time.UnixMicro(us[i]).UTC()
			}
		}
		return one, err
	})
}

// Any tells whether there is a token, good or not: then the API needs one, so that it is not
// open to all when the last one is revoked or expires. It may be two seconds late.
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
	if t.asked == 0 || at.Sub(t.asked) > 0 { // else another request has asked since
		t.there, t.asked = there, at
	}
	return t.there, nil
}

// Verify returns whose secret it is, or ErrNoToken if it is nobody's or not good any more. A
// token that was revoked may be good for two seconds more.
func (t *Tokens) Verify(ctx context.Context, secret string) (*Bearer, error) {
	return checked(t.verify(ctx, secret))
}

// Again returns the bearer of the same token as it is now, or ErrNoToken if it is not good any
// more: for sessions, which last no longer than their token.
func (t *Tokens) Again(ctx context.Context, b *Bearer) (*Bearer, error) {
	return checked(t.find(ctx, b.hash))
}

// checked passes over an error that comes with a bearer: only the time of use was not noted.
func checked(b *Bearer, err error) (*Bearer, error) {
	switch {
	case b != nil:
		return b, nil
	case err == nil:
		return nil, ErrNoToken
	}
	return nil, err
}

// verify returns whose secret it is, or nil if it is nobody's, or not good any more. With a
// bearer, an error means that it could not be noted that the token is used.
func (t *Tokens) verify(ctx context.Context, secret string) (*Bearer, error) {
	if len(secret) != len(secretPrefix)+base64.RawURLEncoding.EncodedLen(secretBytes) || !strings.HasPrefix(secret, secretPrefix) {
		return nil, nil // it is not worth a look
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
	err := t.db.Get(ctx, findToken, dialect.Args{"hash": hash, "since": since}, &b.name, &stored, &scopes, &good, &due)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	if err != nil || !good || subtle.ConstantTimeCompare([]byte(stored), []byte(hash)) != 1 {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.known, hash)
		return nil, nil
	}
	b.scopes = splitScopes(scopes)
	t.mu.Lock()
	t.known[hash] = b
	t.mu.Unlock()
	if due {
		_, err = t.db.Exec(ctx, touchToken, dialect.Args{"name": b.name, "since": since})
	}
	return b, err
}
