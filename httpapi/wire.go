package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/wire"
)

// A stamp is an instant as it is formatted: UTC, with microseconds.
type stamp struct{ time.Time }

// MarshalJSON formats it.
func (s stamp) MarshalJSON() ([]byte, error) {
	return []byte(s.UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}

// Schema describes it.
func (stamp) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
}

// optional returns nil for the zero time.
func optional(t time.Time) *stamp {
	if t.IsZero() {
		return nil
	}
	return &stamp{t}
}

// A jsonText is any JSON, kept byte for byte.
type jsonText []byte

// UnmarshalJSON copies it.
func (t *jsonText) UnmarshalJSON(text []byte) error {
	*t = append(jsonText(nil), text...) // the decoder reuses the array
	return nil
}

// MarshalJSON writes it. The encoder removes white space between its parts.
func (t jsonText) MarshalJSON() ([]byte, error) { return json.RawMessage(t).MarshalJSON() }

// Schema describes it.
func (jsonText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "Any JSON"}
}

// idText formats an id as a string; 0 becomes "".
func idText(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
}

// readID parses an id in a field.
func readID(field, text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 || text[0] == '+' {
		return 0, invalid(field, "it is not an id, which is a number from 1 to %d", math.MaxInt64)
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

// durationText formats a duration; 0 becomes 0s.
func durationText(d time.Duration) string {
	if d <= 0 {
		return "0s"
	}
	return plain.FormatDuration(d)
}

// checkNames validates names, each given after its field; empty names are skipped. It refuses the
// replacement character: names that differ in unreadable characters would become equal.
func checkNames(fieldsAndNames ...string) error {
	for i := 0; i+1 < len(fieldsAndNames); i += 2 {
		field, name := fieldsAndNames[i], fieldsAndNames[i+1]
		if name == "" {
			continue
		}
		if err := sqlrun.CheckName(name); err != nil {
			return invalid(field, "%v", err)
		}
		if strings.ContainsRune(name, utf8.RuneError) {
			return invalid(field, "name %q: it has the character U+FFFD, which stands for what could not be read", name)
		}
	}
	return nil
}

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
