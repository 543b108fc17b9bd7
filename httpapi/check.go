package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
)

const (
	// mostErrors is how many errors a problem lists. Checking a body stops there.
	mostErrors = 20

	// mostMembers bounds objects whose member names are free, such as environments.
	mostMembers = 1000
)

// checkBody compares a body with the schema of its operation, and returns what is wrong.
//
// It reads the text itself instead of decoding it first: a few MiB of small values become
// gigabytes once they are decoded. It stops at the 20th error, and at the first value more
// than a list may have. Names have to be those of the schema to the letter and may come once:
// the decoder takes names in any case and the last of several, where a proxy or a person may
// take the first.
func checkBody(schemas huma.Registry, schema *huma.Schema, text []byte) *huma.ErrorModel {
	if !utf8.Valid(text) { // the decoder would replace what is not, and make different names the same
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

// refusal is a problem that tells the first error in its text.
func refusal(status int, all []*huma.ErrorDetail) *huma.ErrorModel {
	return problem(status, all[0].Location+": "+all[0].Message, all...)
}

// syntax takes any JSON and keeps nothing of it.
type syntax struct{}

func (*syntax) UnmarshalJSON([]byte) error { return nil }

// A checker walks through a text that is valid JSON.
type checker struct {
	schemas huma.Registry
	text    []byte
	at      int
	path    []byte // of the value at hand
	errors  []*huma.ErrorDetail
}

func (c *checker) add(message string) {
	c.errors = append(c.errors, &huma.ErrorDetail{Location: string(c.path), Message: message})
}

// value checks the next value. Like the other methods it returns false when it stopped before
// the value's end, since enough is known.
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
	return len(c.errors) < mostErrors
}

// single checks a value that is decoded for that: a text, a number, true, false or null. A
// list or an object, which the schema does not want here, is not.
func (c *checker) single(s *huma.Schema) {
	raw := c.skip()
	var v any = struct{}{}
	if raw[0] != '{' && raw[0] != '[' {
		if err := json.Unmarshal(raw, &v); err != nil {
			c.add(err.Error()) // a number that is too large
			return
		}
	}
	var found huma.ValidateResult
	huma.Validate(c.schemas, s, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, v, &found)
	for _, err := range found.Errors {
		var detail *huma.ErrorDetail
		if errors.As(err, &detail) {
			c.add(detail.Message)
		}
	}
}

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
	return len(c.errors) < mostErrors
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
	return len(c.errors) < mostErrors
}

// member checks a member of an object, whose name has been read.
func (c *checker) member(s *huma.Schema, name string, seen map[string]bool) bool {
	of, known := s.Properties[name]
	rest, free := s.AdditionalProperties.(*huma.Schema)
	switch {
	case !known && !free:
		c.unknown(s, name)
	case seen[name]:
		c.add("it is there twice; send it once")
	case !known && len(seen) == mostMembers:
		c.add(fmt.Sprintf("there are more than %d", mostMembers))
		return false
	default:
		if seen[name] = true; !known {
			of = rest
		}
		if c.peek() == 'n' && !slices.Contains(s.Required, name) {
			break // null: as if it were not there
		}
		return c.value(of)
	}
	c.skip()
	return len(c.errors) < mostErrors
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

// cutName is a name that is not too long for the place of an error.
func cutName(name string) string {
	if len(name) > 200 {
		return strings.ToValidUTF8(name[:200], "") + "…"
	}
	return name
}

// name reads the name of a member, and goes to its value.
func (c *checker) name() (name string) {
	raw := c.skip()
	if bytes.IndexByte(raw, '\\') < 0 {
		name = string(raw[1 : len(raw)-1])
	} else {
		_ = json.Unmarshal(raw, &name) // it is valid
	}
	c.peek()
	c.at++ // the colon
	return name
}

// peek goes to the next character that is no blank, and returns it.
func (c *checker) peek() byte {
	for strings.IndexByte(" \t\r\n", c.text[c.at]) >= 0 {
		c.at++
	}
	return c.text[c.at]
}

// comma passes over the comma behind a value, if there is one.
func (c *checker) comma() {
	if c.peek() == ',' {
		c.at++
	}
}

// skip passes over the next value or name, and returns it.
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

// quoted passes over a text in quotes.
func (c *checker) quoted() {
	for c.at++; c.text[c.at] != '"'; c.at++ {
		if c.text[c.at] == '\\' {
			c.at++
		}
	}
	c.at++
}
