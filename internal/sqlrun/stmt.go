package sqlrun

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
)

// A Stmt is one statement, written once for all engines. It is safe for concurrent use.
type Stmt struct {
	Name  string // package.verb, as in testdata/statements.golden
	shape func(*Dialect) string
}

// SQL makes a statement from its text. The text contains named arguments and fragments, which Exec and
// its siblings fill in for the engine:
//
//	:name              an argument; a slice becomes a list, for IN (:ids)
//	{prefix}           before every table's name: the prefix, and the schema or database
//	{now}              the server's clock when the statement began
//	{now + :ttl}       a moment later; the argument is in µs
//	{us expire_at}     an instant as µs since 1970
//	{time :due}        µs since 1970 as an instant
//	{int :id}          an argument's type, where the server cannot infer it
//	{skip_locked}      at the end of a SELECT in a transaction: lock the rows, skip locked ones
//	{locked}           the same, but wait for locked ones
//	{share_locked}     at the end of a SELECT in a transaction: keep others from changing the rows
//	{next fence}       in the SET of an UPDATE of one row for Session.Next: the column plus one
//	{returning fence}  at the end of such an UPDATE
//	{ignore_duplicate column}  at the end of an INSERT: skip rows whose key exists
//	{in id :ids}       compares a column with a list of numbers, sent as one argument if possible
//	{only id :n}       at the end of a DELETE or UPDATE: at most :n rows, in the order of a column; keeps
//	                   an engine from locking all that it would scan
//	{values rows: (:a, {time :b})}   one tuple for each of the Args in the slice Args["rows"], comma-separated
//	{union rows: SELECT :a AS a}     the same with UNION ALL between: of [UnionRows] at most
//	{records rows: a int, b text}    those Args as a table called record, after FROM; sent as one argument,
//	                   or one per column, so the text is the same for any number of rows, and quick to plan
//	{join_by_key {prefix}x AS y}     after {records}, before ON: joins rows whose primary key the records name
func SQL(name, text string) *Stmt {
	return PerDialect(name, func(*Dialect) string { return text })
}

// PerDialect makes a statement whose shape differs between engines: shape returns its text for a
// dialect. The text has arguments and fragments as with SQL.
func PerDialect(name string, shape func(*Dialect) string) *Stmt {
	s := &Stmt{Name: name, shape: shape}
	registry.Lock()
	defer registry.Unlock()
	registry.statements = append(registry.statements, s)
	return s
}

// UnionRows is how many rows a statement with {union rows} may have: PostgreSQL plans such a statement anew, in a time that
// grows with their square (0.6 ms for 8, 2.3 for 32, 78 for 256).
const UnionRows = 32

// Unlisted makes a statement that [Statements] does not list, for tests.
func Unlisted(text string) *Stmt {
	return &Stmt{Name: "statement", shape: func(*Dialect) string { return text }}
}

// Mutate changes a statement's text until undo is called, for tests that check whether other tests
// notice. It panics if old occurs in the text of none of the given engines.
func (s *Stmt) Mutate(among []*Dialect, old, changed string) (undo func()) {
	shape, found := s.shape, false
	for _, d := range among {
		found = found || strings.Contains(shape(d), old)
	}
	if !found {
		panic(fmt.Sprintf("%s has no %q", s.Name, old))
	}
	s.shape = func(d *Dialect) string { return strings.ReplaceAll(shape(d), old, changed) }
	return func() { s.shape = shape }
}

var registry struct {
	sync.Mutex
	statements []*Stmt
}

// Statements lists all statements of the packages that the program imports, by name.
func Statements() []*Stmt {
	registry.Lock()
	defer registry.Unlock()
	all := slices.Clone(registry.statements)
	slices.SortFunc(all, func(a, b *Stmt) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Args holds the values of a statement's arguments: integers (durations and instants in µs), strings,
// nil, slices of those for lists, and []Args or Rows for {values}, {union} and {records}.
type Args map[string]any

// Text renders the statement for reading, with each list and each row once.
func (s *Stmt) Text(d *Dialect) string {
	nodes, err := compile(s.shape(d), d, "dbcron_")
	if err != nil {
		return "error: " + err.Error()
	}
	w := writer{d: d, sample: true}
	if err := w.write(nodes, nil, row{}); err != nil {
		return "error: " + err.Error()
	}
	return w.text.String()
}

// A node is a part of a compiled statement: plain text, an argument, or a
// template that is repeated for each row.
type node struct {
	text    string   // plain text
	arg     string   // or an argument's name
	of      string   // and of rows, the column
	columns []string // and of rows as one argument, all
	rows    string   // or the name of the rows to repeat body for
	sep     string
	body    []node
}

// A compiled is a statement compiled for an engine and a prefix.
type compiled struct {
	nodes []node
	text  string // if all arguments are scalars; "" if it repeats rows
}

func newCompiled(stmt *Stmt, d *Dialect, prefix string) (*compiled, error) {
	nodes, err := compile(stmt.shape(d), d, prefix)
	if err != nil {
		return nil, err
	}
	c := &compiled{nodes: nodes}
	if slices.ContainsFunc(nodes, func(n node) bool { return n.rows != "" }) {
		return c, nil
	}
	w := writer{d: d, sample: true}
	err = w.write(nodes, nil, row{})
	c.text = w.text.String()
	return c, err
}

// render returns the text and its positional values.
func (c *compiled) render(d *Dialect, args Args) (string, []any, error) {
	if values, ok := c.scalars(args); ok {
		return c.text, values, nil
	}
	w := writer{d: d}
	if err := w.write(c.nodes, args, row{}); err != nil {
		return "", nil, err
	}
	return w.text.String(), w.values, nil
}

// scalars returns the values in order. It is not ok if an argument is missing or is a list.
func (c *compiled) scalars(args Args) (values []any, ok bool) {
	if c.text == "" {
		return nil, false
	}
	for _, n := range c.nodes {
		if n.arg == "" {
			continue
		}
		value, found := args[n.arg]
		switch v := value.(type) {
		case []int64, []string:
			if n.of == "" {
				return nil, false
			}
			value, _ = n.list(v)
		default:
			if rows, ok := rowsOf(v); ok {
				value = n.records(rows)
			}
		}
		if !found {
			return nil, false
		}
		values = append(values, value)
	}
	return values, true
}

// compile expands the fragments, then splits the text at its arguments.
func compile(text string, d *Dialect, prefix string) ([]node, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return nil, fmt.Errorf("a NUL in %q", text) // the expander marks templates with NUL
	}
	e := expander{d: d, prefix: prefix}
	text, err := e.expand(dedent(text))
	if err != nil {
		return nil, err
	}
	return e.split(text)
}

type expander struct {
	d      *Dialect
	prefix string
	rows   []node // templates met so far; the text refers to them as \x00 and index

	columns []column // of records
}

func (e *expander) expand(text string) (string, error) {
	var out strings.Builder
	for {
		open := strings.IndexByte(text, '{')
		if open < 0 {
			out.WriteString(text)
			return out.String(), nil
		}
		out.WriteString(text[:open])
		end, depth := open, 0
		for ; end < len(text); end++ {
			switch text[end] {
			case '{':
				depth++
			case '}':
				depth--
			}
			if depth == 0 {
				break
			}
		}
		if depth != 0 {
			return "", fmt.Errorf("unclosed { in %q", text[open:])
		}
		fragment, err := e.fragment(text[open+1 : end])
		if err != nil {
			return "", err
		}
		out.WriteString(fragment)
		text = text[end+1:]
	}
}

func (e *expander) fragment(f string) (string, error) {
	word, rest, _ := strings.Cut(f, " ")
	switch word {
	case "values", "union":
		return e.template(word, rest)
	case "records":
		return e.records(rest)
	case "in":
		return e.in(rest)
	}
	rest, err := e.expand(rest)
	if err != nil {
		return "", err
	}
	if rest == "" {
		switch word {
		case "prefix":
			return e.prefix, nil
		case "now":
			return e.d.Now, nil
		case "skip_locked":
			return e.d.SkipLocked, nil
		case "locked":
			return e.d.Locked, nil
		case "share_locked":
			return e.d.ShareLocked, nil
		}
		return "", fmt.Errorf("unknown fragment {%s}", f)
	}
	switch word {
	case "now":
		if us, later := strings.CutPrefix(rest, "+ "); later {
			return e.d.Add(e.d.Now, us), nil
		}
	case "us":
		return e.d.ToMicros(rest), nil
	case "time":
		return e.d.FromMicros(rest), nil
	case "next":
		return e.d.Next(rest), nil
	case "returning":
		if e.d.Returning == nil {
			return "", nil
		}
		return e.d.Returning(rest), nil
	case "int":
		return "CAST(" + rest + " AS " + e.d.BigInt + ")", nil
	case "only":
		return e.d.Only(rest), nil
	case "join_by_key":
		return e.d.JoinByKey(rest), nil
	case "ignore_duplicate":
		return e.d.IgnoreDuplicate(rest), nil
	}
	return "", fmt.Errorf("unknown fragment {%s}", f)
}

func (e *expander) template(word, rest string) (string, error) {
	rows, body, ok := strings.Cut(rest, ":")
	if !ok || strings.Trim(rows, letters) != "" || rows == "" {
		return "", fmt.Errorf("{%s %s} names no rows", word, rest)
	}
	body, err := e.expand(strings.TrimSpace(body))
	if err != nil {
		return "", err
	}
	parts, err := e.split(body)
	if err != nil {
		return "", err
	}
	sep := ",\n\t"
	if word == "union" {
		sep = "\nUNION ALL "
	}
	e.rows = append(e.rows, node{rows: rows, sep: sep, body: parts})
	return fmt.Sprintf("\x00%d\x00", len(e.rows)-1), nil
}

// split splits text at :name and at templates, outside quotes.
func (e *expander) split(text string) ([]node, error) {
	var nodes []node
	start, quoted := 0, false
	plain := func(end int) {
		if end > start {
			nodes = append(nodes, node{text: text[start:end]})
		}
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\'':
			quoted = !quoted
		case quoted && c == 0:
			return nil, fmt.Errorf("rows within quotes in %q", text)
		case quoted:
		case c == ':' && i+1 < len(text) && text[i+1] == ':':
			i++ // a PostgreSQL cast, not an argument
		case c == 0:
			plain(i)
			end := i + 1 + strings.IndexByte(text[i+1:], 0)
			var index int
			if _, err := fmt.Sscan(text[i+1:end], &index); err != nil {
				return nil, err
			}
			nodes = append(nodes, e.rows[index])
			i, start = end, end+1
		case c == ':' && i+1 < len(text) && letter(text[i+1]):
			plain(i)
			end := i + 1
			for end < len(text) && letter(text[end]) {
				end++
			}
			n := node{arg: text[i+1 : end]}
			if end+1 < len(text) && text[end] == '.' && letter(text[end+1]) {
				column := end + 1
				for end = column; end < len(text) && letter(text[end]); {
					end++
				}
				n.of = text[column:end]
			}
			for _, c := range e.columns {
				if c.rows == n.arg {
					n.columns = append(n.columns, c.name)
				}
			}
			nodes = append(nodes, n)
			i, start = end-1, end
		}
	}
	plain(len(text))
	return nodes, nil
}

// letters are what an argument's name is made of.
const letters = "abcdefghijklmnopqrstuvwxyz0123456789_"

func letter(c byte) bool { return strings.IndexByte(letters, c) >= 0 }

// dedent removes the indentation of the Go source from a statement.
func dedent(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t")
	}
	return strings.Join(lines, "\n")
}

// A writer renders nodes with arguments into text and positional values.
type writer struct {
	d      *Dialect
	sample bool // each list and each row once, without arguments
	text   strings.Builder
	values []any
}

// A row is one for which a template is repeated; the zero row is none.
type row struct {
	rows Rows
	at   int
}

func (w *writer) write(nodes []node, args Args, row row) error {
	for _, n := range nodes {
		switch {
		case n.rows != "":
			if err := w.repeat(n, args); err != nil {
				return err
			}
		case n.arg != "":
			value, ok := args[n.arg]
			if row.rows != nil {
				if own, has := row.rows.Value(row.at, n.arg); has {
					value, ok = own, true
				}
			}
			if !ok && !w.sample {
				return fmt.Errorf("argument :%s has no value", n.arg)
			}
			if rows, ok := rowsOf(value); ok {
				value = n.records(rows)
			}
			if n.of != "" {
				if list, ok := n.list(value); ok {
					value = list
				}
			}
			w.argument(value)
		default:
			w.text.WriteString(n.text)
		}
	}
	return nil
}

func (w *writer) repeat(n node, args Args) error {
	rows, ok := rowsOf(args[n.rows])
	if w.sample {
		rows, ok = argRows{nil}, true
	}
	if !ok || rows.Len() == 0 {
		return fmt.Errorf("no rows in argument %s", n.rows)
	}
	for i := range rows.Len() {
		if i > 0 {
			w.text.WriteString(n.sep)
		}
		if err := w.write(n.body, args, row{rows, i}); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) argument(value any) {
	switch list := value.(type) {
	case []int64:
		w.list(len(list), func(i int) any { return list[i] })
	case []string:
		w.list(len(list), func(i int) any { return list[i] })
	case Bytes:
		w.argument([]byte(list))
	default:
		w.values = append(w.values, value)
		w.text.WriteString(w.d.Placeholder(len(w.values)))
	}
}

// list writes an empty list as NULL: IN (NULL) matches no row. It repeats the last value up to a power
// of two, so that there are few texts to prepare.
func (w *writer) list(n int, at func(int) any) {
	if n == 0 {
		w.text.WriteString("NULL")
		return
	}
	for i := range 1 << bits.Len(uint(n-1)) {
		if i > 0 {
			w.text.WriteString(", ")
		}
		w.argument(at(min(i, n-1)))
	}
}
