package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/dbcron/dbcron/internal/pattern"
)

// maxSearch is the maximum size of a file in which to search for the position of a syntax
// error, which takes some twenty parses. For larger files the library's line is used, which is
// that of the enclosing mapping or list, or one too small.
const maxSearch = 1 << 20

// checkCharacters refuses invisible characters, and reports all of them. Some of these end a
// line for YAML but not for an editor, so that line numbers in messages would be wrong.
func (r *reader) checkCharacters() bool {
	for i, line := range r.lines {
		switch at := bytes.IndexFunc(line, unseen); {
		case !utf8.Valid(line):
			r.fail(i+1, "the line is not UTF-8; save the file as UTF-8")
		case at >= 0 && line[at] == 0:
			r.fail(i+1, "the line holds a NUL; remove it")
		case at >= 0:
			char, _ := utf8.DecodeRune(line[at:])
			r.fail(i+1, `the line holds the character %U, which cannot be seen; remove it, or write it in double quotes as "\u%04x"`,
				char, char)
		}
	}
	return r.failures == 0
}

func unseen(char rune) bool {
	switch char {
	case '\t':
		return false
	case 0x7f, 0x2028, 0x2029, 0xfeff, 0xfffe, 0xffff:
		return true
	}
	return char < ' ' || char >= 0x80 && char < 0xa0
}

// document returns the root of the file's only document, or nil if there is none.
func (r *reader) document(data []byte) *yaml.Node {
	root, err := load(data)
	var several severalError
	switch {
	case errors.As(err, &several):
		r.fail(int(several), "a second document begins; keep one per file, and all schedules in one list")
	case err != nil:
		line, text := r.locate(data)
		r.fail(line, "%s", explain(text, string(r.lines[line-1])))
	}
	return root
}

// A severalError is the line where a second document begins.
type severalError int

func (severalError) Error() string { return "a second document" }

func load(data []byte) (root *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			root, err = nil, fmt.Errorf("the YAML library stopped with %q", fmt.Sprint(p))
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	switch err := decoder.Decode(&first); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
		return first.Content[0], nil
	case err != nil:
		return nil, err
	}
	return nil, severalError(second.Line)
}

// locate returns the position of a syntax error, and the library's description. A file with a
// syntax error yields no nodes, from which other errors get their lines. The line is the last
// one of the shortest prefix of the file that has the same error: the library's own line is off
// by one, that of the enclosing element, or missing.
func (r *reader) locate(data []byte) (line int, text string) {
	// On the first line, the library confuses where something begins with where it should have
	// ended.
	shifted := append([]byte("\n"), data...)
	_, err := load(shifted)
	if err == nil {
		return 1, "an error that is gone with a blank line before it"
	}
	line, text = cutLine(err)
	if len(data) > maxSearch {
		return min(max(line, 1), len(r.lines)), text
	}
	ends := make([]int, len(r.lines))
	end := 1
	for i, line := range r.lines {
		end += len(line) + 1
		ends[i] = min(end, len(shifted))
	}
	found := sort.Search(len(ends), func(i int) bool {
		_, again := load(shifted[:ends[i]])
		return again != nil && again.Error() == err.Error()
	})
	return min(found+1, len(ends)), text
}

var libraryError = pattern.Lazy(`^(?:yaml: )?(?:line (\d+): )?(.*)`)

// cutLine separates the library's line, or 0, from its text.
func cutLine(err error) (line int, text string) {
	parts := libraryError().FindStringSubmatch(err.Error())
	line, _ = strconv.Atoi(parts[1]) // 0 without one
	return line, parts[2]
}

// meanings rephrases the library's errors and adds advice. Texts that end in "; " are completed
// with the advice to use quotes.
var meanings = []struct{ said, means string }{
	{"a tab character", "a tab stands where YAML wants blanks; indent with blanks"},
	{"cannot start any token", "a text cannot begin with @, % or ` unless it is in quotes; "},
	{"alphabetic or numeric character", "a text cannot begin with * or & unless it is in quotes; "},
	{"tag", "a text cannot begin with ! unless it is in quotes; "},
	{"expected '!'", "a text cannot begin with ! unless it is in quotes; "},
	{"expected whitespace or line break", "a text cannot begin with ! unless it is in quotes; "},
	{"expected comment or line break", "a text cannot begin with | or > on the same line unless it is in quotes; "},
	{"entries are not allowed in this context", "a text cannot begin with - and a blank unless it is in quotes; "},
	{"keys are not allowed in this context", "a text cannot begin with ? and a blank unless it is in quotes; "},
	{"mapping values are not allowed", "the line does not fit to the one above; check how far both are indented"},
	{"expected key", "the line does not fit to the one above; check how far both are indented"},
	{"'-' indicator", "the line does not fit to the one above; check how far both are indented"},
	{"could not find expected ':'", "a key without a colon; write KEY: VALUE"},
	{"expected ',' or", "within [ ] or { }, a comma or bracket is missing, or a text with , or ? is not in quotes; correct it"},
	{"expected node content", "within [ ] or { }, a comma or bracket is missing, or a text with , or ? is not in quotes; correct it"},
	{"unexpected end of stream", "a quote that is opened here is not closed; close it"},
	{"escape", `a backslash in double quotes begins an escape; use single quotes, or write \\`},
	{"hexdecimal", `a backslash in double quotes begins an escape; use single quotes, or write \\`},
	{"incompatible YAML", "this is read as YAML 1.1; remove the line that begins with %YAML"},
	{"max depth", "the file nests too deep; check its brackets"},
}

// explain says what the library means by what it says of a line.
func explain(said, line string) string {
	key, value := cutKey(line)
	quote := "put the text in quotes"
	if key != "" && len(value) < 80 {
		quote = "write " + key + ": " + quoted(value)
	}
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	bracket := strings.IndexAny(value, "[{") == 0
	switch {
	case strings.HasPrefix(said, "unknown anchor"):
		name := strings.Split(said, "'")[1]
		return fmt.Sprintf("*%s stands for what is marked &%s, and nothing above is; mark it, or put the text in quotes", name, name)
	case strings.Contains(said, "cannot start any token") && strings.Contains(indent, "\t"):
		said = "a tab character"
	case strings.Contains(said, "mapping values are not allowed") && strings.Contains(value, ": "):
		return "a text cannot hold a colon and a blank unless it is in quotes; " + quote
	case strings.Contains(said, "expected key") && (bracket || strings.IndexAny(value, `"'`) == 0):
		return "something follows a closing quote or bracket; " + quote
	case bracket: // most of the value is not at fault
		quote = "put the text in quotes"
	}
	for _, m := range meanings {
		if !strings.Contains(said, m.said) {
			continue
		}
		if strings.HasSuffix(m.means, "; ") {
			return m.means + quote
		}
		return m.means
	}
	return fmt.Sprintf("the YAML library says %q; correct the line", said)
}

var keyAndValue = pattern.Lazy(`^\s*(?:- +)*([A-Za-z_]+): +(.*\S)`)

// cutKey returns the key of a line and the text after it, if it has the form
// KEY: TEXT.
func cutKey(line string) (key, text string) {
	if parts := keyAndValue().FindStringSubmatch(line); parts != nil {
		return parts[1], parts[2]
	}
	return "", ""
}
