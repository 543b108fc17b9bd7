package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue/admin"
)

const (
	foldedBytes = 256 << 10 // of a payload that is shown folded
	foldedNodes = 5000
	foldedDepth = 50
	shownText   = 64 << 10 // of one that is shown as text
)

// A node is a value of JSON, to be shown folded. Numbers and the order of members are those of
// the text.
type node struct {
	Name     string // of a member, or its place in a list
	Named    bool
	Kind     string // object, list, text, number, word
	Text     string // of a text, number or word
	Children []node
	Open     bool // is shown unfolded
}

// A payloadView is how a payload is shown.
type payloadView struct {
	Bytes  int
	Root   *node
	Text   string // of one that is not shown folded
	Cut    bool   // Text is not all of it
	Binary bool
}

func viewOf(i *admin.Job) payloadView {
	v := payloadView{Bytes: len(i.Payload)}
	if !i.Binary && len(i.Payload) <= foldedBytes {
		if root, ok := parse(i.Payload); ok {
			v.Root = root
			return v
		}
	}
	if v.Binary = !utf8.Valid(i.Payload); v.Binary {
		return v
	}
	text := i.Payload
	if v.Cut = len(text) > shownText; v.Cut {
		text = bytes.ToValidUTF8(text[:shownText], nil)
	}
	v.Text = plain.Clean(string(text))
	return v
}

// parse reads JSON; false: it is none, or too large to be shown folded.
func parse(text []byte) (*node, bool) {
	p := parser{d: json.NewDecoder(bytes.NewReader(text))}
	p.d.UseNumber()
	root, ok := p.value(0)
	if !ok || p.d.More() {
		return nil, false
	}
	return &root, true
}

type parser struct {
	d     *json.Decoder
	nodes int
}

func (p *parser) value(depth int) (n node, ok bool) {
	t, err := p.d.Token()
	if p.nodes++; err != nil || p.nodes > foldedNodes || depth > foldedDepth {
		return n, false
	}
	switch t := t.(type) {
	case json.Delim:
		n.Kind, n.Open = map[json.Delim]string{'{': "object", '[': "list"}[t], depth < 2
		for p.d.More() {
			name := strconv.Itoa(len(n.Children))
			if t == '{' {
				key, err := p.d.Token()
				if err != nil {
					return n, false
				}
				name, _ = key.(string)
			}
			child, ok := p.value(depth + 1)
			if !ok {
				return n, false
			}
			child.Name, child.Named = plain.Clean(name), true
			n.Children = append(n.Children, child)
		}
		_, err = p.d.Token() // its end
		return n, err == nil
	case string:
		n.Kind, n.Text = "text", quoted(t)
	case json.Number:
		n.Kind, n.Text = "number", t.String()
	default:
		n.Kind, n.Text = "word", fmt.Sprint(t)
		if t == nil {
			n.Text = "null"
		}
	}
	return n, true
}

// quoted is a text as JSON has it, without the escapes that are for HTML, which templates do.
func quoted(text string) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if plain.Clean(text) != text || e.Encode(text) != nil {
		return strconv.Quote(text)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// payload sends a job's payload as a file, byte for byte.
func (d *Dashboard) payload(ctx context.Context, w http.ResponseWriter, r *request) {
	if r.hide {
		d.refuse(w, r.Request, r.who, http.StatusForbidden, "Payloads are hidden here.")
		return
	}
	name, err := r.nameIn("queue")
	var id int64
	if err == nil {
		id, err = r.idIn("id", true)
	}
	var i admin.Job
	if err == nil {
		i, err = d.admin.Job(ctx, name, id)
	}
	if err != nil {
		d.fail(w, r.Request, r.who, err)
		return
	}
	file := fmt.Sprintf("job-%d.json", id)
	if i.Binary {
		file = fmt.Sprintf("job-%d.bin", id)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": file}))
	_, _ = w.Write(i.Payload) // nobody is there any more
}
