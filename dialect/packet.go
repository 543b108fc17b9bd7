package dialect

import (
	"context"
	"sync"
	"time"
)

// MaxBytes is how many bytes of values a statement should have: longer ones are no
// faster, and most servers take so many.
const MaxBytes = 4 << 20

// smallBytes is what all servers take.
const smallBytes = 256 << 10

// packetSlack is how many bytes a statement may have beside its values.
const packetSlack = 16 << 10

// packetAge is how long the server's limit is remembered.
const packetAge = 10 * time.Second

// A packet is the longest statement that the server takes.
type packet struct {
	mu   sync.Mutex
	most int
	at   time.Time // when it said so
}

// maxPacket is not listed with the others: not every engine has it.
var maxPacket = &Stmt{Name: "dialect.max-packet", shape: func(d *Dialect) string { return d.MaxPacket }}

// Room returns how many bytes of values a statement can have that is to have so many. It
// asks the server now and then, and only if they are many.
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

// Weight is how many bytes a text takes in a statement at the most, also inside of JSON:
// for dividing what is too much for one statement.
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

// Quoted is how many bytes a value takes in the text of a statement.
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
