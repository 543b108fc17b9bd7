package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// A where is a condition on a payload. It is evaluated in Go, on jobs that were read, and not
// in SQL: engines disagree about JSON, and some lose precision in large numbers.
type where struct {
	path []any  // names and positions
	op   string // "": the path exists
	want any    // as decoded with json.Decoder.UseNumber
}

// operators has the operators of conditions, longer ones before their prefixes.
var operators = []string{"!=", "<=", ">=", "=", "<", ">"}

// parseWhere parses a condition such as $.user.ids[0] >= 42. It returns an ErrInvalid that
// gives the position of an error.
func parseWhere(text string) (*where, error) {
	if !utf8.ValidString(text) {
		return nil, store.Invalid("where", "it is not UTF-8")
	}
	p := &whereParser{text: text}
	w, err := p.where()
	if err != nil {
		return nil, store.Invalid("where", "%q, at character %d: %v", text, utf8.RuneCountInString(text[:p.at])+1, err)
	}
	return w, nil
}

// A whereParser is at a byte of a text.
type whereParser struct {
	text string
	at   int
}

func (p *whereParser) where() (*where, error) {
	p.blanks()
	if !p.skip("$") {
		return nil, errors.New("a path begins with $, such as $.user.ids[0]")
	}
	w := &where{}
	for {
		step, err := p.step()
		if err != nil {
			return nil, err
		}
		if step == nil {
			break
		}
		w.path = append(w.path, step)
	}
	p.blanks()
	if p.at == len(p.text) {
		return w, nil
	}
	for _, op := range operators {
		if w.op == "" && p.skip(op) {
			w.op = op
		}
	}
	if w.op == "" {
		return nil, errors.New("after the path comes = != < <= > >= or nothing")
	}
	p.blanks()
	return w, p.literal(w)
}

// step parses a name or an index, or nothing.
func (p *whereParser) step() (any, error) {
	switch {
	case p.skip("."):
		if p.has(`"`) {
			return p.quoted()
		}
		from := p.at
		for p.at < len(p.text) {
			r, size := utf8.DecodeRuneInString(p.text[p.at:])
			if r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) {
				break
			}
			p.at += size
		}
		if p.at == from {
			return nil, errors.New(`after . comes a name: letters, digits, _ and -, or anything in quotes, such as $."first name"`)
		}
		return p.text[from:p.at], nil
	case p.skip("["):
		if p.has(`"`) {
			name, err := p.quoted()
			if err == nil && !p.skip("]") {
				err = errors.New("] is missing")
			}
			return name, err
		}
		from := p.at
		for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
		}
		n, err := strconv.Atoi(p.text[from:p.at])
		if err != nil {
			p.at = from
			return nil, errors.New("after [ comes a position, counted from 0, or a name in quotes")
		}
		if !p.skip("]") {
			return nil, errors.New("] is missing")
		}
		return n, nil
	}
	return nil, nil
}

// quoted parses a JSON string.
func (p *whereParser) quoted() (any, error) {
	for end := p.at + 1; end < len(p.text); end++ {
		switch p.text[end] {
		case '\\':
			end++
		case '"':
			var name string
			if err := json.Unmarshal([]byte(p.text[p.at:end+1]), &name); err != nil {
				return nil, errors.New("the string is not JSON")
			}
			p.at = end + 1
			return name, nil
		}
	}
	return nil, errors.New("the string does not end")
}

// literal parses the value to compare with, which is the rest of the text.
func (p *whereParser) literal(w *where) error {
	rest := p.text[p.at:]
	want, ok := decode([]byte(rest))
	if !ok {
		return errors.New(`compare with JSON: a number, "text", true, false, null, a list or an object`)
	}
	w.want = want
	switch want.(type) {
	case json.Number, string:
		return nil
	}
	if w.op != "=" && w.op != "!=" {
		return errors.New("only numbers and texts are less or greater; use = or !=")
	}
	return nil
}

func (p *whereParser) blanks() {
	p.at += len(p.text[p.at:]) - len(strings.TrimLeft(p.text[p.at:], " \t\r\n"))
}

func (p *whereParser) has(prefix string) bool { return strings.HasPrefix(p.text[p.at:], prefix) }

func (p *whereParser) skip(prefix string) bool {
	if !p.has(prefix) {
		return false
	}
	p.at += len(prefix)
	return true
}

// decode decodes JSON, with numbers as written.
func decode(text []byte) (value any, ok bool) {
	if !json.Valid(text) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return value, d.Decode(&value) == nil
}

// holds reports whether a job meets the condition. A job without JSON, or without the path,
// does not, whatever the operator.
func (w *where) holds(j *Job) bool {
	if w == nil {
		return true
	}
	if j.Binary {
		return false
	}
	value, ok := decode(j.Payload)
	for _, step := range w.path {
		if !ok {
			return false
		}
		switch at := step.(type) {
		case string:
			var object map[string]any
			if object, ok = value.(map[string]any); ok {
				value, ok = object[at]
			}
		case int:
			var list []any
			if list, ok = value.([]any); ok {
				if ok = at < len(list); ok {
					value = list[at]
				}
			}
		}
	}
	return ok && (w.op == "" || w.compare(value))
}

func (w *where) compare(value any) bool {
	switch w.op {
	case "=":
		return equal(value, w.want)
	case "!=":
		return !equal(value, w.want)
	}
	var order int
	switch want := w.want.(type) {
	case json.Number:
		n, ok := value.(json.Number)
		if !ok {
			return false
		}
		order = compareNumbers(n.String(), want.String())
	case string:
		text, ok := value.(string)
		if !ok {
			return false
		}
		order = cmp.Compare(text, want)
	}
	switch w.op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

// equal compares JSON values: numbers by value, and objects regardless of order.
func equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && compareNumbers(a.String(), b.String()) == 0
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name := range a {
			if other, ok := b[name]; !ok || !equal(a[name], other) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// compareNumbers compares JSON numbers exactly, however large they or their exponents are.
func compareNumbers(a, b string) int {
	x, y := newNumber(a), newNumber(b)
	if x.sign != y.sign || x.sign == 0 {
		return cmp.Compare(x.sign, y.sign)
	}
	return x.sign * cmp.Or(x.exponent.Cmp(y.exponent), strings.Compare(x.digits, y.digits))
}

// A number is sign × 0.digits × 10^exponent. Its digits neither begin nor end with a 0.
type number struct {
	sign     int
	digits   string
	exponent *big.Int
}

func newNumber(text string) number {
	n := number{sign: 1, exponent: new(big.Int)}
	if rest, is := strings.CutPrefix(text, "-"); is {
		n.sign, text = -1, rest
	}
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		n.exponent.SetString(strings.TrimPrefix(text[at+1:], "+"), 10)
		text = text[:at]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return number{exponent: new(big.Int)}
	}
	point := len(whole) - (len(whole) + len(fraction) - len(digits))
	n.exponent.Add(n.exponent, big.NewInt(int64(point)))
	n.digits = strings.TrimRight(digits, "0")
	return n
}
