package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/wire"
)

// An Operation is one thing that the API offers. Routes and their document are made from it, and commands.
type Operation struct {
	ID, Method string
	Path       string // without the prefix of all: /queues/{queue}
	Summary    string
	Scope      Scope

	parameters    func() []Parameter
	input, answer reflect.Type // answer: of the body, or nil
	call          func(ctx context.Context, in any) (any, error)
}

// Parameters lists the parts of the operation's input. They are found when they are first asked for: a command has one operation
// of a hundred.
func (o *Operation) Parameters() []Parameter { return o.parameters() }

// A Parameter is a part of an operation's input.
type Parameter struct {
	Name string
	In   string // path, query, header or body
	Help string

	Default          string
	Words            []string // that it can be; none: anything
	Minimum, Maximum string   // of a number; "": any
	IsBool           bool

	isID bool
	at   []int // indexes of fields
}

// An Operator uses an API of its own, without HTTP and without a token: it may do everything that the database lets it do.
type Operator struct {
	Name string       // for the audit, such as user@host
	Warn func(string) // told what could not be read, or not be written to the audit

	Brief bool // lists leave out long payloads, as they do over HTTP

	Progress func(done int) // told how far an operation is that takes long; may be nil
}

// Operations returns the API's operations by their ids.
func Operations() map[string]*Operation {
	a, err := prepare(Options{})
	if err != nil {
		panic(err) // no option is set
	}
	a.registerAll()
	return a.operations
}

// NewHere returns an API that answers no requests, and does operations on a database: see [API.Do].
func NewHere(db *dialect.DB, opt Options) (*API, error) {
	a, err := prepare(opt)
	if err != nil {
		return nil, err
	}
	a.registerAll()
	return a, a.on(db)
}

// Do does an operation with an input of [Operation.Input]. It returns a pointer to the body of the answer, or nil. With an
// error, an answer tells what was done before.
func (a *API) Do(ctx context.Context, who *Operator, id string, in any) (answer any, err error) {
	op := a.operations[id]
	if op == nil {
		return nil, fmt.Errorf("httpapi: there is no operation %q", id)
	}
	return op.call(context.WithValue(ctx, callerKey{}, sender{token: who.Name, here: who}), in)
}

func addOperation[I, O any](a *API, o *operation, handle func(ctx context.Context, in *I) (*O, error)) {
	op := &Operation{ID: o.id, Method: o.method, Path: o.path, Summary: o.summary, Scope: o.scope, input: reflect.TypeFor[I]()}
	op.parameters = sync.OnceValue(func() []Parameter { return parametersOf(op.input, nil) })
	if body, ok := bodyOf(reflect.TypeFor[O]()); ok {
		op.answer = body.Type
	}
	op.call = func(ctx context.Context, in any) (any, error) {
		given, ok := in.(*I)
		if !ok {
			return nil, fmt.Errorf("httpapi: operation %s has the input of another", op.ID)
		}
		out, err := handle(ctx, given)
		if out == nil || op.answer == nil {
			return nil, err
		}
		return reflect.ValueOf(out).Elem().FieldByName("Body").Addr().Interface(), err
	}
	a.operations[o.id] = op
}

func bodyOf(t reflect.Type) (reflect.StructField, bool) {
	if t.Kind() != reflect.Struct {
		return reflect.StructField{}, false
	}
	return t.FieldByName("Body")
}

// parametersOf lists the parameters of a type, whose index in the input is given.
func parametersOf(t reflect.Type, at []int) (all []Parameter) {
	for i := range t.NumField() {
		f, index := t.Field(i), append(slices.Clone(at), i)
		p := Parameter{
			Help: f.Tag.Get("doc"), Default: f.Tag.Get("default"), Minimum: f.Tag.Get("minimum"), Maximum: f.Tag.Get("maximum"),
			isID: strings.HasPrefix(f.Tag.Get("pattern"), "^[1-9]"), at: index,
		}
		if words := f.Tag.Get("enum"); words != "" {
			p.Words = strings.Split(words, ",")
		}
		is := f.Type
		if is.Kind() == reflect.Pointer {
			is = is.Elem()
		}
		p.IsBool = is.Kind() == reflect.Bool
		for _, in := range []string{"path", "query", "header", "json"} {
			if name, _, _ := strings.Cut(f.Tag.Get(in), ","); name != "" {
				p.Name, p.In = name, strings.Replace(in, "json", "body", 1)
			}
		}
		switch {
		case p.Name != "":
			all = append(all, p)
		case is.Kind() == reflect.Struct && (f.Anonymous || f.Name == "Body"):
			all = append(all, parametersOf(is, index)...)
		}
	}
	return all
}

// Parameter returns the parameter of a name, or nil.
func (o *Operation) Parameter(name string) *Parameter {
	all := o.Parameters()
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// Input returns an input with values by the names of parameters, and the usual values of others. Values that are neither
// texts, numbers nor truth values are JSON. An error is a [queue.InvalidError].
func (o *Operation) Input(values map[string]string) (any, error) {
	in := reflect.New(o.input)
	all := o.Parameters()
	for i := range all {
		p := &all[i]
		text, given := values[p.Name]
		if !given {
			text = p.Default
		}
		if !given && text == "" {
			continue
		}
		if err := p.Check(text); err != nil {
			return nil, invalid(p.Name, "%v", err)
		}
		if err := setText(fieldAt(in.Elem(), p.at), text); err != nil {
			return nil, invalid(p.Name, "%v", err)
		}
	}
	for name := range values {
		if o.Parameter(name) == nil {
			return nil, fmt.Errorf("httpapi: operation %s has no parameter %s", o.ID, name)
		}
	}
	return in.Interface(), nil
}

// InputOf is Input with a body as a whole, whose values are not among the others.
func (o *Operation) InputOf(values map[string]string, body any) (any, error) {
	in, err := o.Input(values)
	if err == nil {
		reflect.ValueOf(in).Elem().FieldByName("Body").Set(reflect.ValueOf(body).Convert(reflect.ValueOf(in).Elem().FieldByName("Body").Type()))
	}
	return in, err
}

// Check returns what is wrong with a value.
func (p *Parameter) Check(text string) error {
	if p.isID {
		_, err := wire.ParseID(text)
		return err
	}
	if p.In == "path" {
		return sqlrun.CheckName(text)
	}
	if len(p.Words) > 0 && !slices.Contains(p.Words, text) {
		return fmt.Errorf("%q is not known; use %s", text, plain.Or(p.Words))
	}
	for _, bound := range []struct {
		limit string
		wrong func(n, limit int64) bool
	}{
		{p.Minimum, func(n, limit int64) bool { return n < limit }},
		{p.Maximum, func(n, limit int64) bool { return n > limit }},
	} {
		if bound.limit == "" {
			continue
		}
		limit, err := strconv.ParseInt(bound.limit, 10, 64)
		n, wrong := strconv.ParseInt(text, 10, 64)
		if err == nil && (wrong != nil || bound.wrong(n, limit)) {
			return fmt.Errorf("%q is not a number from %s to %s", text, p.Minimum, p.Maximum)
		}
	}
	return nil
}

// fieldAt returns a field, and makes what leads there.
func fieldAt(v reflect.Value, at []int) reflect.Value {
	for _, i := range at {
		v = v.Field(i)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
	}
	return v
}

// setText sets a value from a text.
func setText(v reflect.Value, text string) (err error) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		var b bool
		if b, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		v.SetBool(b)
	case reflect.Int:
		var n int64
		if n, err = strconv.ParseInt(text, 10, strconv.IntSize); err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetInt(n)
	default:
		return json.Unmarshal([]byte(text), v.Addr().Interface())
	}
	return nil
}

// Request returns an input as it is sent: the path, with the prefix of all left out, the query and the body, or nil.
func (o *Operation) Request(in any) (path string, query url.Values, body any) {
	v := reflect.ValueOf(in).Elem()
	path, query = o.Path, url.Values{}
	all := o.Parameters()
	for i := range all {
		p := &all[i]
		switch {
		case p.In == "path":
			path = strings.Replace(path, "{"+p.Name+"}", escapeSegment(v.FieldByIndex(p.at).String()), 1)
		case p.In == "query" && !v.FieldByIndex(p.at).IsZero():
			query.Set(p.Name, fmt.Sprint(v.FieldByIndex(p.at).Interface()))
		}
	}
	if of, ok := bodyOf(o.input); ok && (of.Type.Kind() != reflect.Pointer || !v.FieldByIndex(of.Index).IsNil()) {
		body = v.FieldByIndex(of.Index).Interface()
	}
	return path, query, body
}

// NewAnswer returns a pointer to a body of an answer, or nil if there is none.
func (o *Operation) NewAnswer() any {
	if o.answer == nil {
		return nil
	}
	return reflect.New(o.answer).Interface()
}
