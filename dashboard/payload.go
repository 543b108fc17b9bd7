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
	foldedBytes = 256 << 10 // maximum size of a payload shown as a tree
	foldedNodes = 5000
	foldedDepth = 50
	shownText   = 64 << 10 // maximum size of one shown as text
)

// A node is a JSON value, shown as a collapsible tree. Numbers and the order of members are
// unchanged.
type node struct {
	Name     string // name of a member, or index in a list
	Named    bool
	Kind     string // object, list, text, number, word
	Text     string // the value of a text, number or word
	Children []node
	Open     bool // initially expanded
}

// A payloadView says how to show a payload.
type payloadView struct {
	Bytes  int
	Root   *node
	Text   string // if it is not shown as a tree
	Cut    bool   // Text is only the beginning
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

// parse parses JSON. It returns false if the text is not JSON, or too large for a tree.
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
		_, err = p.d.Token() // the closing bracket
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

// quoted returns a text in JSON's form, without the escapes for HTML, which the templates add.
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
	_, _ = w.Write(i.Payload) // the client is gone
}
