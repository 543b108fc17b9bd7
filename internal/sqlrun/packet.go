package sqlrun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
)

// MaxBytes is the recommended size of a statement's values, in bytes: larger statements are no
// faster, and most servers accept this size.
const MaxBytes = 4 << 20

// smallBytes is the size that all servers accept: max_allowed_packet can be less than twice that, but
// then hardly anything works.
const smallBytes = 32 << 10

// packetSlack is the space that a statement may need beside its values.
const packetSlack = 16 << 10

// packetAge is how long the server's limit is cached.
const packetAge = 10 * time.Second

// ErrTooLong means that the server would not take a statement, because it is longer than its limit.
// Nothing was sent: the server would have closed the connection, and the outcome would be unknown.
var ErrTooLong = errors.New("the statement is longer than the server takes")

// A packet caches the longest statement that the server takes.
type packet struct {
	mu   sync.Mutex
	most int       // 0: never read
	at   time.Time // when it was read
}

// maxPacket is unlisted, because not every engine has it.
var maxPacket = &Stmt{Name: "dialect.max-packet", shape: func(d *Dialect) string { return d.MaxPacket }}

// unlimited is the room where there is no limit.
const unlimited = 1 << 30

// Room returns how many bytes of values one statement can have, for a caller that needs so many
// bytes. It asks the server if they are many, and caches the answer for a while.
func (s *Session) Room(ctx context.Context, bytes int) (int, error) {
	if bytes <= smallBytes || s.Dialect.MaxPacket == "" {
		return unlimited, nil
	}
	p := s.packet
	p.mu.Lock()
	at := time.Now() //nolint:forbidigo // for an age
	known, fresh := p.most, p.most != 0 && at.Sub(p.at) < packetAge
	p.mu.Unlock()
	if fresh {
		return known, nil
	}
	if err := s.Get(ctx, maxPacket, nil, &known); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most, p.at = max(smallBytes, known-packetSlack), at
	return p.most, nil
}

// Roomy returns how many bytes of values a statement should have: MaxBytes, or less if the server is
// known to take less.
func (s *Session) Roomy() int {
	p := s.packet
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most == 0 {
		return MaxBytes
	}
	return min(MaxBytes, p.most)
}

// fits returns an ErrTooLong if the server would not take a statement.
func (s *Session) fits(ctx context.Context, query string, values []any) error {
	if s.Dialect.MaxPacket == "" {
		return nil
	}
	most := len(query)
	for _, value := range values {
		most += 2*sizeOf(value) + numberBytes
	}
	if most <= smallBytes {
		return nil
	}
	room, err := s.Room(ctx, most)
	if err != nil || most <= room {
		return err
	}
	size := len(query)
	for _, value := range values {
		size += quotedSize(value)
	}
	if size <= room {
		return nil
	}
	return fmt.Errorf("%w: it has %d bytes, and the limit leaves room for %d; raise max_allowed_packet", ErrTooLong, size, room)
}

// numberBytes is at least the length of a number in the text of a statement, and of what surrounds a
// text there.
const numberBytes = 24

// sizeOf returns the length of a text; 0 for a number.
func sizeOf(value any) int {
	switch v := value.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	case Bytes:
		return len(v)
	}
	return 0
}

func quotedSize(value any) int {
	switch v := value.(type) {
	case string:
		return numberBytes + Quoted(v)
	case []byte:
		return numberBytes + Quoted(v)
	case Bytes:
		return numberBytes + Quoted(v)
	}
	return numberBytes
}

// runParts is run for a statement about rows that means the same in parts: each is a statement that the
// server takes. Outside of a transaction, some may be committed and others not.
func (s *Session) runParts(ctx context.Context, stmt *Stmt, args Args, call func(context.Context, string, []any) error) error {
	err := s.run(ctx, stmt, args, call)
	if !errors.Is(err, ErrTooLong) {
		return err
	}
	first, second, ok := halves(args)
	if !ok || strings.Contains(stmt.shape(s.Dialect), "NOT IN") { // what is in none of a list is not so in parts
		return err
	}
	if err := s.runParts(ctx, stmt, first, call); err != nil {
		return err
	}
	return s.runParts(ctx, stmt, second, call)
}

// halves divides the arguments of a statement by its rows, or by its list of texts. It is not ok if
// there is nothing to divide.
func halves(args Args) (first, second Args, ok bool) {
	name, found := "", 0
	for key, value := range args {
		if rows, is := rowsOf(value); is {
			if found++; rows.Len() > 1 {
				name = key
			}
		}
	}
	if found == 0 {
		for key, value := range args {
			if list, is := value.([]string); is {
				if found++; len(list) > 1 {
					name = key
				}
			}
		}
	}
	if found != 1 || name == "" {
		return nil, nil, false
	}
	first, second = maps.Clone(args), maps.Clone(args)
	switch list := args[name].(type) {
	case []string:
		first[name], second[name] = list[:len(list)/2], list[len(list)/2:]
	case []Args:
		first[name], second[name] = list[:len(list)/2], list[len(list)/2:]
	default:
		rows, _ := rowsOf(list)
		n := rows.Len() / 2
		first[name], second[name] = someRows{rows, 0, n}, someRows{rows, n, rows.Len() - n}
	}
	return first, second, true
}

// someRows are n rows of others, after the first ones.
type someRows struct {
	of       Rows
	after, n int
}

func (r someRows) Len() int { return r.n }

func (r someRows) Value(row int, column string) (any, bool) { return r.of.Value(r.after+row, column) }

func (r someRows) Int(row int, column string) (int64, bool) {
	if ints, ok := r.of.(IntRows); ok {
		return ints.Int(r.after+row, column)
	}
	return 0, false
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
func Quoted[T string | []byte | Bytes](value T) int {
	n := len(value)
	for i := range len(value) {
		switch value[i] {
		case 0, '\n', '\r', 0x1a, '\'', '"', '\\':
			n++
		}
	}
	return n
}
