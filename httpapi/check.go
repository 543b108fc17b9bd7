package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/dbcron/dbcron/internal/plain"
)

const (
	// maxErrors limits the errors in a problem. Checking stops there.
	maxErrors = 20

	// maxMembers limits objects with arbitrary member names, such as environments.
	maxMembers = 1000
)

// checkBody compares a body with its operation's schema and returns what is wrong.
//
// It reads the text without decoding it: a few MiB of small values become gigabytes when decoded. It
// stops at the 20th error, and at the first element beyond a list's limit. Member names must match the
// schema exactly and occur once. The decoder would accept any case and use the last duplicate, where a
// proxy or a person may use the first.
func checkBody(schemas huma.Registry, schema *huma.Schema, text []byte) *huma.ErrorModel {
	if !utf8.Valid(text) { // the decoder would replace invalid bytes, and make different names equal
		return problem(http.StatusBadRequest, "the body is not UTF-8", &huma.ErrorDetail{Location: "body", Message: "it is not UTF-8"})
	}
	if err := json.Unmarshal(text, new(syntax)); err != nil {
		why := err.Error()
		var at *json.SyntaxError
		if errors.As(err, &at) {
			why = fmt.Sprintf("%s, at byte %d", why, at.Offset)
		}
		return problem(http.StatusBadRequest, "the body is not JSON: "+why, &huma.ErrorDetail{Location: "body", Message: why})
	}
	c := checker{schemas: schemas, text: text, path: []byte("body")}
	c.value(schema)
	if len(c.errors) == 0 {
		return nil
	}
	return refusal(http.StatusUnprocessableEntity, c.errors)
}

// refusal returns a problem whose text is the first error.
func refusal(status int, all []*huma.ErrorDetail) *huma.ErrorModel {
	return problem(status, all[0].Location+": "+all[0].Message, all...)
}

// syntax accepts any JSON and discards it.
type syntax struct{}

func (*syntax) UnmarshalJSON([]byte) error { return nil }

// A checker walks through valid JSON.
type checker struct {
	schemas huma.Registry
	text    []byte
	at      int
	path    []byte // of the current value
	errors  []*huma.ErrorDetail
}

func (c *checker) add(message string) {
	c.errors = append(c.errors, &huma.ErrorDetail{Location: string(c.path), Message: message})
}

// value checks the next value. Like the other methods it returns false if it stopped before the value's
// end, because enough is known.
func (c *checker) value(s *huma.Schema) bool {
	for s.Ref != "" {
		s = c.schemas.SchemaFromRef(s.Ref)
	}
	first := c.peek()
	switch {
	case s.Type == "": // any JSON
		c.skip()
	case first == 'n' && s.Nullable:
		c.skip()
	case s.Type == huma.TypeObject && first == '{':
		return c.object(s)
	case s.Type == huma.TypeArray && first == '[':
		return c.array(s)
	default:
		c.single(s)
	}
	return len(c.errors) < maxErrors
}

// single checks a scalar by decoding it: a string, a number, true, false or null. A list or an object,
// which the schema does not allow here, is not decoded. Nor is what is longer than it may be.
func (c *checker) single(s *huma.Schema) {
	raw := c.skip()
	var v any = struct{}{}
	switch first := raw[0]; {
	case first == '{' || first == '[':
	case first == '"' && s.Type != huma.TypeString:
		v = "" // as wrong as any other
	case first == '"' && s.MaxLength != nil && len(raw) > len(`""`)+len(`\uD83D\uDE00`)**s.MaxLength:
		c.add(fmt.Sprintf(validation.MsgExpectedMaxLength, *s.MaxLength))
		return
	case first == '"' && s.ContentEncoding == "base64":
		c.base64(raw)
		return
	case first == '-' || first >= '0' && first <= '9':
		if why := checkNumber(raw, s.Type == huma.TypeInteger); why != "" {
			c.add(why)
			return
		}
		_ = json.Unmarshal(raw, &v) // it was checked
	default:
		_ = json.Unmarshal(raw, &v) // it is valid JSON
	}
	var found huma.ValidateResult
	huma.Validate(c.schemas, s, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, v, &found)
	for _, err := range found.Errors {
		var detail *huma.ErrorDetail
		if errors.As(err, &detail) {
			c.add(detail.Message)
		}
	}
	text, _ := v.(string)
	if s.Format == "date-time" && len(found.Errors) == 0 && new(time.Time).UnmarshalText([]byte(text)) != nil { // it is stricter
		c.add(validation.MsgExpectedRFC3339DateTime)
	}
}

// longestNumber limits the digits of a number. Decoders take time and memory for longer ones.
const longestNumber = 100

// checkNumber returns what is wrong with a number, as far as decoders find it and schemas do not say it.
func checkNumber(raw []byte, integer bool) string {
	if len(raw) > longestNumber {
		return fmt.Sprintf("expected number of at most %d characters", longestNumber)
	}
	var err error
	switch {
	case !integer:
		_, err = strconv.ParseFloat(string(raw), 64)
	case bytes.ContainsAny(raw, ".eE"):
		if n, err := strconv.ParseFloat(string(raw), 64); err == nil && n == math.Trunc(n) {
			return "expected integer without a fraction or an exponent"
		}
		return validation.MsgExpectedInteger
	default:
		_, err = strconv.ParseInt(string(raw), 10, 64)
	}
	if err != nil {
		return "the number is too large"
	}
	return ""
}

// base64 checks a text in base64, of which there may be megabytes.
func (c *checker) base64(raw []byte) {
	text := raw[1 : len(raw)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		var decoded string
		_ = json.Unmarshal(raw, &decoded) // it is valid JSON
		text = []byte(decoded)
	}
	_, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text)))
	if err != nil || len(text) == 0 || len(text)%4 != 0 || bytes.ContainsAny(text, "\r\n") {
		c.add(validation.MsgExpectedBase64String)
	}
}

// decode decodes a body that was checked. Should the check have missed something, the error has no words about Go either.
func decode(text []byte, v any) error { return plain.JSONError(json.Unmarshal(text, v)) }

func (c *checker) array(s *huma.Schema) bool {
	c.at++
	n, length := 0, len(c.path)
	for ; c.peek() != ']'; n++ {
		if s.MaxItems != nil && n == *s.MaxItems {
			c.add(fmt.Sprintf(validation.MsgExpectedMaxItems, n))
			return false
		}
		c.path = fmt.Appendf(c.path, "[%d]", n)
		more := c.value(s.Items)
		c.path = c.path[:length]
		if !more {
			return false
		}
		c.comma()
	}
	c.at++
	if s.MinItems != nil && n < *s.MinItems {
		c.add(fmt.Sprintf(validation.MsgExpectedMinItems, *s.MinItems))
	}
	return len(c.errors) < maxErrors
}

func (c *checker) object(s *huma.Schema) bool {
	c.at++
	seen, length := map[string]bool{}, len(c.path)
	for c.peek() != '}' {
		name := c.name()
		c.path = append(append(c.path, '.'), cutName(name)...)
		more := c.member(s, name, seen)
		c.path = c.path[:length]
		if !more {
			return false
		}
		c.comma()
	}
	c.at++
	for _, name := range s.Required {
		if !seen[name] {
			c.add(fmt.Sprintf(validation.MsgExpectedRequiredProperty, name))
		}
	}
	return len(c.errors) < maxErrors
}

// member checks a member of an object, whose name has been read.
func (c *checker) member(s *huma.Schema, name string, seen map[string]bool) bool {
	of, known := s.Properties[name]
	rest, free := s.AdditionalProperties.(*huma.Schema)
	switch {
	case !known && !free:
		c.unknown(s, name)
	case seen[name]:
		c.add("it occurs twice; send it once")
	case !known && len(seen) == maxMembers:
		c.add(fmt.Sprintf("there are more than %d", maxMembers))
		return false
	default:
		if seen[name] = true; !known {
			of = rest
		}
		if c.peek() == 'n' && !slices.Contains(s.Required, name) {
			break // null counts as absent
		}
		return c.value(of)
	}
	c.skip()
	return len(c.errors) < maxErrors
}

func (c *checker) unknown(s *huma.Schema, name string) {
	for other := range s.Properties {
		if strings.EqualFold(name, other) {
			c.add(validation.MsgUnexpectedProperty + `; it is called "` + other + `"`)
			return
		}
	}
	c.add(validation.MsgUnexpectedProperty)
}

// cutName shortens a name for the location of an error.
func cutName(name string) string {
	if len(name) > 200 {
		return strings.ToValidUTF8(name[:200], "") + "…"
	}
	return name
}

// name reads the name of a member and advances to its value.
func (c *checker) name() (name string) {
	raw := c.skip()
	if bytes.IndexByte(raw, '\\') < 0 {
		name = string(raw[1 : len(raw)-1])
	} else {
		_ = json.Unmarshal(raw, &name) // it is valid JSON
	}
	c.peek()
	c.at++ // the colon
	return name
}

// peek advances to the next character that is not white space, and returns it.
func (c *checker) peek() byte {
	for strings.IndexByte(" \t\r\n", c.text[c.at]) >= 0 {
		c.at++
	}
	return c.text[c.at]
}

// comma skips the comma after a value, if there is one.
func (c *checker) comma() {
	if c.peek() == ',' {
		c.at++
	}
}

// skip skips the next value or name, and returns it.
func (c *checker) skip() []byte {
	c.peek()
	from, depth := c.at, 0
	for c.at < len(c.text) {
		switch c.text[c.at] {
		case '"':
			c.quoted()
		case '{', '[':
			depth++
			c.at++
		case '}', ']':
			depth--
			c.at++
		default:
			c.at++
			if depth == 0 { // a number, true, false or null
				for c.at < len(c.text) && strings.IndexByte(" \t\r\n,]}", c.text[c.at]) < 0 {
					c.at++
				}
			}
		}
		if depth == 0 {
			break
		}
	}
	return c.text[from:c.at]
}

// quoted skips a quoted string.
func (c *checker) quoted() {
	for c.at++; c.text[c.at] != '"'; c.at++ {
		if c.text[c.at] == '\\' {
			c.at++
		}
	}
	c.at++
}
