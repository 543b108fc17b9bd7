package httpapi

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/dbcron/dbcron/internal/claims"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A claim's token has a random part, by which the daemon that granted it finds the job and which nobody
// can guess. The rest is what another daemon needs to let the database decide. That part is not signed:
// whoever may work on jobs may claim, and so finish, any of them, and no token makes a daemon finish a
// job that a live one has not handed out.

// A secret is the random part of a token.
type secret [16]byte

func newSecret() (s secret) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

const (
	tokenVersion = 1
	longestToken = 2500
)

// writeToken encodes a token.
func writeToken(key secret, c *claims.Claim) string {
	text := append([]byte{tokenVersion}, key[:]...)
	for _, n := range []int64{int64(c.Block), c.Fence, int64(c.Priority), c.Job, int64(c.Attempt)} {
		text = binary.AppendUvarint(text, uint64(n))
	}
	group := byte(0)
	if c.Group {
		group = 1
	}
	text = append(text, group)
	text = append(text, c.Queue+"\n"+c.Node...) // names contain no line feeds
	return base64.RawURLEncoding.EncodeToString(text)
}

// readToken decodes a token; ok is false if it is malformed.
func readToken(token string) (key secret, c claims.Claim, ok bool) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(text) < 1+len(key) || text[0] != tokenVersion {
		return key, c, false
	}
	text = text[1+copy(key[:], text[1:]):]
	var numbers [5]int64
	for i := range numbers {
		n, size := binary.Uvarint(text)
		if size <= 0 || n > 1<<62 {
			return key, c, false
		}
		numbers[i], text = int64(n), text[size:]
	}
	if len(text) < 1 || text[0] > 1 || numbers[0] > 1<<30 || numbers[2] > 1<<30 || numbers[4] > 1<<30 {
		return key, c, false
	}
	name, node, ok := strings.Cut(string(text[1:]), "\n")
	if !ok || checkNames("queue", name) != nil || sqlrun.CheckName(name) != nil || sqlrun.CheckName(node) != nil {
		return key, c, false
	}
	return key, claims.Claim{
		Node: node, Queue: name, Block: int(numbers[0]), Fence: numbers[1], Priority: int(numbers[2]), Job: numbers[3],
		Attempt: int(numbers[4]), Group: text[0] == 1,
	}, true
}

// daemonOf returns the readable part of a worker's name, which identifies the process to people.
func daemonOf(node string) string {
	if at := strings.LastIndexByte(node, ':'); at >= 0 {
		return node[:at]
	}
	return node
}
