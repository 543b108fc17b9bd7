package sqlrun

import (
	"context"
	"sync"
	"time"
)

// MaxBytes is the recommended size of a statement's values, in bytes: larger statements are no
// faster, and most servers accept this size.
const MaxBytes = 4 << 20

// smallBytes is the size that all servers accept.
const smallBytes = 256 << 10

// packetSlack is the space that a statement may need beside its values.
const packetSlack = 16 << 10

// packetAge is how long the server's limit is cached.
const packetAge = 10 * time.Second

// A packet caches the longest statement that the server takes.
type packet struct {
	mu   sync.Mutex
	most int
	at   time.Time // when it was read
}

// maxPacket is unlisted, because not every engine has it.
var maxPacket = &Stmt{Name: "dialect.max-packet", shape: func(d *Dialect) string { return d.MaxPacket }}

// Room returns how many bytes of values one statement can have, for a caller that needs so many
// bytes. It asks the server if they are many, and caches the answer for a while.
func (s *Session) Room(ctx context.Context, bytes int) (int, error) {
	const most = 1 << 30
	if bytes <= smallBytes || s.Dialect.MaxPacket == "" {
		return most, nil
	}
	p := s.packet
	p.mu.Lock()
	at := time.Now() //nolint:forbidigo // for an age
	known, fresh := p.most, at.Sub(p.at) < packetAge
	p.mu.Unlock()
	if fresh {
		return known, nil
	}
	if err := s.Get(ctx, maxPacket, nil, &known); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most, p.at = known-packetSlack, at
	return p.most, nil
}

// Weight returns the largest number of bytes that a text takes in a statement, even inside JSON. It is
// for splitting values over several statements.
func Weight[T string | []byte](text T) int {
	n := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			n += 3
		case c < ' ':
			n += 6
		case c == '\'':
			n++
		}
	}
	return n
}

// Quoted returns the number of bytes that a value takes in the text of a statement.
func Quoted(value []byte) int {
	n := len(value)
	for _, c := range value {
		switch c {
		case 0, '\n', '\r', 0x1a, '\'', '"', '\\':
			n++
		}
	}
	return n
}
