package httpapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/wire"
)

// readID parses an id in a field.
func readID(field, text string) (int64, error) {
	id, err := wire.ParseID(text)
	if err != nil {
		return 0, invalid(field, "%v", err)
	}
	return id, nil
}

// readDuration parses a duration in a field, which has an end; "" is 0.
func readDuration[T ~string](field string, text T) (time.Duration, error) {
	d, err := wire.Duration(text).Finite()
	if err != nil {
		return 0, invalid(field, "%v", err)
	}
	return d, nil
}

// checkNames validates names, each given after its field; empty names are skipped.
func checkNames(fieldsAndNames ...string) error { return wireof.CheckNames(fieldsAndNames...) }

// longestWait limits how long a request may wait for a job or a lock.
const longestWait = 30 * time.Second

// A page selects a part of a list. Inputs with more parameters repeat its fields, because huma only finds
// exported embedded structs.
type page struct {
	Cursor string `query:"cursor" maxLength:"1200" doc:"The next_cursor of the answer before. The list goes on after it."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The greatest number of entries in the answer."`
}

// readCursor parses a cursor of names, one per pointer. Without a cursor they stay empty.
func readCursor(cursor string, names ...*string) error {
	if cursor == "" {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.Split(string(text), "\n")
	if err != nil || len(parts) != len(names) {
		return badCursor()
	}
	for i, part := range parts {
		if part == "" || sqlrun.CheckName(part) != nil {
			return badCursor()
		}
		*names[i] = part
	}
	return nil
}

// cursorOf returns the cursor after some names. Names contain no line feeds.
func cursorOf(names ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(names, "\n")))
}

// pageOf lists what comes after a page's cursor, which is a name, and returns the next one if there may be more.
func pageOf[T, W any](ctx context.Context, in *page, list func(ctx context.Context, after string, limit int) ([]T, error),
	name func(*T) string, word func(*T) W,
) (all []W, next string, err error) {
	var after string
	if err := readCursor(in.Cursor, &after); err != nil {
		return nil, "", err
	}
	found, err := list(ctx, after, in.Limit)
	if err != nil {
		return nil, "", err
	}
	if n := len(found); n == in.Limit {
		next = cursorOf(name(&found[n-1]))
	}
	return wireof.Each(found, word), next, nil
}

// readIDCursor parses a cursor that is an id.
func readIDCursor(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	id, err := readID("cursor", cursor)
	if err != nil {
		return 0, badCursor()
	}
	return id, nil
}

func badCursor() error {
	return invalid("cursor", "it is not the next_cursor of an answer; leave it out to begin")
}

// location is the path of a created resource.
func location(format string, names ...string) string {
	escaped := make([]any, len(names))
	for i, name := range names {
		escaped[i] = escapeSegment(name)
	}
	return prefix + fmt.Sprintf(format, escaped...)
}

// escapeSegment escapes a name as one segment of a path, including . and .., which would be resolved.
func escapeSegment(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
