package httpapi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"sync"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
)

// A claim's token has a random part, by which the daemon that granted it finds the job, and a signature of the rest, which is what
// another daemon needs to let the database decide. All daemons of a database sign with one key. So nobody can make a token himself,
// for a job that he did not claim.
//
// The random part and the signature stand where version 0.1 has 16 random bytes, so its daemons end claims of newer ones. For its
// own claims, which are not signed, see docs/upgrading.md.

// A secret is the part of a token that nobody can guess: random bytes, and then the signature.
type secret [16]byte

const secretRandom = 6 // bytes of a secret; the signature has the other 80 bits

// A signer signs tokens. It is safe for concurrent use.
type signer struct {
	db *dialect.DB

	mu  sync.Mutex
	key []byte // nil: not read yet
}

// ready reads the key from the tables. The first daemon that needs one makes it. Requests that come meanwhile read
// it, too: each waits for the database as long as its own context lasts.
func (s *signer) ready(ctx context.Context) error {
	s.mu.Lock()
	known := s.key != nil
	s.mu.Unlock()
	if known {
		return nil
	}
	const name = "claims"
	var text string
	err := s.db.Get(ctx, readSecret, sqlrun.Args{"name": name}, &text)
	if errors.Is(err, sql.ErrNoRows) {
		fresh := make([]byte, sha256.Size)
		_, _ = rand.Read(fresh) // never fails
		_, err = s.db.Exec(ctx, makeSecret, sqlrun.Args{"name": name, "secret": base64.RawURLEncoding.EncodeToString(fresh)})
		if err == nil || s.db.Dialect.Duplicate(err) { // another daemon or request may have made one
			err = s.db.Get(ctx, readSecret, sqlrun.Args{"name": name}, &text)
		}
	}
	if err != nil {
		return err
	}
	key, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(key) < 16 {
		return errors.New("the key in dbcron_secret that signs claims is not as daemons make it; delete the row, and restart the daemons")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key == nil { // it is read without the mutex once it is there
		s.key = key
	}
	return nil
}

// sign completes a secret whose random part is there. text is what the token says besides.
func (s *signer) sign(key *secret, text []byte) {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(key[:secretRandom])
	mac.Write(text)
	copy(key[secretRandom:], mac.Sum(nil))
}

// signed reports whether a token was made by a daemon with the same key.
func (s *signer) signed(key secret, text []byte) bool {
	own := key
	s.sign(&own, text)
	return hmac.Equal(own[:], key[:])
}

const (
	tokenVersion = 1
	longestToken = 2500
)

// write makes the token of a claim, and its secret.
func (s *signer) write(c *queue.Claim) (token string, key secret) {
	text := make([]byte, 1+len(key), 100+len(c.Queue)+len(c.Node))
	text[0] = tokenVersion
	for _, n := range []int64{int64(c.Block), c.Fence, int64(c.Priority), c.Job, int64(c.Attempt)} {
		text = binary.AppendUvarint(text, uint64(n))
	}
	text = append(text, c.Queue+"\n"+c.Node...) // names contain no line feeds
	_, _ = rand.Read(key[:secretRandom])        // never fails
	s.sign(&key, text[1+len(key):])
	copy(text[1:], key[:])
	return base64.RawURLEncoding.EncodeToString(text), key
}

// read decodes a token. It returns false if it is malformed; whether it is signed is in the claim.
func (s *signer) read(token string) (c claimed, ok bool) {
	c.token = token
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(text) < 1+len(c.key) || text[0] != tokenVersion {
		return c, false
	}
	text = text[1+copy(c.key[:], text[1:]):]
	c.forged = !s.signed(c.key, text)
	var numbers [5]int64
	for i := range numbers {
		n, size := binary.Uvarint(text)
		if size <= 0 || n > 1<<62 {
			return c, false
		}
		numbers[i], text = int64(n), text[size:]
	}
	if numbers[0] > 1<<30 || numbers[2] > 1<<30 || numbers[4] > 1<<30 {
		return c, false
	}
	name, node, ok := strings.Cut(string(text), "\n")
	if !ok || checkNames("queue", name) != nil || sqlrun.CheckName(name) != nil || sqlrun.CheckName(node) != nil {
		return c, false
	}
	c.claim = queue.Claim{
		Node: node, Queue: name, Block: int(numbers[0]), Fence: numbers[1], Priority: int(numbers[2]), Job: numbers[3],
		Attempt: int(numbers[4]),
	}
	return c, true
}

// daemonOf returns the readable part of a worker's name, which identifies the process to people.
func daemonOf(node string) string {
	if at := strings.LastIndexByte(node, ':'); at >= 0 {
		return node[:at]
	}
	return node
}
