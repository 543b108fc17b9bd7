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

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/duration"
)

// A stamp is an instant as it is written: UTC, with microseconds.
type stamp struct{ time.Time }

// MarshalJSON writes it.
func (s stamp) MarshalJSON() ([]byte, error) {
	return []byte(s.UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}

// Schema describes it.
func (stamp) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
}

// optional is nil for the zero time.
func optional(t time.Time) *stamp {
	if t.IsZero() {
		return nil
	}
	return &stamp{t}
}

// A jsonText is any JSON, byte for byte as it was sent.
type jsonText []byte

// UnmarshalJSON keeps it.
func (t *jsonText) UnmarshalJSON(text []byte) error {
	*t = append(jsonText(nil), text...) // the array is used again
	return nil
}

// MarshalJSON writes it. The encoder leaves the blanks out between its parts.
func (t jsonText) MarshalJSON() ([]byte, error) { return json.RawMessage(t).MarshalJSON() }

// Schema describes it.
func (jsonText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "Any JSON"}
}

// idText is an id as it is written: a string, or "" for none.
func idText(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
}

// readID reads an id that stands in a field.
func readID(field, text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 || text[0] == '+' {
		return 0, invalid(field, "it is not an id, which is a number from 1 to %d", math.MaxInt64)
	}
	return id, nil
}

// readDuration reads a duration that stands in a field; "" is 0.
func readDuration(field, text string) (time.Duration, error) {
	if strings.HasPrefix(text, "-") {
		return 0, invalid(field, "%q is negative", text)
	}
	d, err := duration.Parse(text)
	if err != nil {
		return 0, invalid(field, "%v", err)
	}
	return d, nil
}

// durationText is a duration as it is written: 0s for none.
func durationText(d time.Duration) string {
	if d <= 0 {
		return "0s"
	}
	return duration.Format(d)
}

// checkNames tells what is wrong with names, which come after their fields; those that are
// empty were not given. What stands for a character that could not be read is none: names
// that differ there would become one.
func checkNames(fieldsAndNames ...string) error {
	for i := 0; i+1 < len(fieldsAndNames); i += 2 {
		field, name := fieldsAndNames[i], fieldsAndNames[i+1]
		if name == "" {
			continue
		}
		if err := dialect.CheckName(name); err != nil {
			return invalid(field, "%v", err)
		}
		if strings.ContainsRune(name, utf8.RuneError) {
			return invalid(field, "name %q: it has the character U+FFFD, which stands for what could not be read", name)
		}
	}
	return nil
}

// longestWait is how long a request may wait for what is yet to come: a job, or a lock.
const longestWait = 30 * time.Second

// A page says which part of a list is wanted. Inputs with more parameters have the same
// fields: what is embedded must be exported to be found.
type page struct {
	Cursor string `query:"cursor" maxLength:"1200" doc:"next_cursor of the answer before: what comes after that"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many at the most"`
}

// readCursor reads a cursor that is names, as many as there are pointers. Without one they
// stay empty.
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
		if part == "" || dialect.CheckName(part) != nil {
			return badCursor()
		}
		*names[i] = part
	}
	return nil
}

// cursorOf is the cursor behind names. Names have no line feeds.
func cursorOf(names ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(names, "\n")))
}

// readIDCursor reads a cursor that is an id.
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

// location is the path of something that was made.
func location(format string, names ...string) string {
	escaped := make([]any, len(names))
	for i, name := range names {
		escaped[i] = escapeSegment(name)
	}
	return prefix + fmt.Sprintf(format, escaped...)
}

// escapeSegment writes a name so that it is one segment of a path: also . and .., which
// would be taken out.
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
