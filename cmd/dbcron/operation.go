package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/ops/progress"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
)

// operations are what the API offers, by id.
var operations = sync.OnceValue(httpapi.Operations)

// A twin is a command that is made from an operation of the API: its arguments and flags are the operation's parameters,
// and it prints the answer. It works on the database, or through the daemon that --url names.
type twin struct {
	id, use              string // use: arguments have names of parameters, or stand for the parameters in the path, in order
	short, long, example string // short: default: the operation's summary

	usual  values                        // parameters that are not given, unless the operation's own default does
	flags  map[string]string             // other names for parameters' flags, perhaps with a letter after a comma; "": none
	needs  string                        // flags of which one has to be given, for people; "": none
	count  int                           // how many entries are listed at the most, unless -n says; 0: all
	takes  string                        // what it does, if that may take long; "": it does not
	other  func(c *cobra.Command) string // the operation instead, by flags; "": none
	also   string                        // an operation whose parameters are flags, too; "": none
	must   map[string]string             // parameters that have to be given, with a value for people
	before func(ctx context.Context, given values) error
	rows   func(ctx context.Context, rows any, more, output string) error // instead of printing a list
	none   func(ctx context.Context, given values) string                 // what to say of a list without entries, to people
	show   func(ctx context.Context, answer any, output string) error     // instead of printing what was asked for
	text   bool                                                           // it prints a text, and has no -o
	then   func(ctx context.Context, answer any) error                    // after a change
}

// values are the parameters of an operation that are given, by name.
type values = map[string]string

func (p *program) twin(t twin) *cobra.Command {
	op, given := operations()[t.id], maps.Clone(t.usual)
	if given == nil {
		given = values{}
	}
	c := &cobra.Command{Use: t.use, Short: cmp.Or(t.short, op.Summary), Long: t.long, Example: t.example}
	var named []string
	for i, word := range argumentsOf(t.use) {
		if op.Parameter(word) == nil {
			word = op.Parameters()[i].Name
		}
		named = append(named, word)
	}
	least := len(named) - strings.Count(t.use, "[")
	if c.Args = cobra.RangeArgs(least, len(named)); least == len(named) {
		c.Args = cobra.ExactArgs(least)
	}
	t.addFlags(c, op, given, named)
	if t.also != "" {
		t.addFlags(c, operations()[t.also], given, append(slices.Clone(named), parametersOf(c)...))
	}
	var output string
	if op.Method == http.MethodGet && !t.text {
		outputFlag(c, &output)
	}
	most := t.count
	if t.count > 0 {
		c.Flags().IntVarP(&most, "count", "n", t.count, "how many at the most")
		c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
			return pflag.NormalizedName(strings.Replace(name, "limit", "count", 1)) // as the API calls it
		})
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		for i, text := range args {
			given[named[i]] = text
		}
		switch {
		case t.needs != "" && len(args) <= least && !changes(c, op):
			return usagef("there is nothing to change; give %s", t.needs)
		case t.count > 0 && (most < 1 || most > maxListed):
			return usagef("-n %d: use 1 to %d", most, maxListed)
		}
		for _, name := range slices.Sorted(maps.Keys(t.must)) {
			if given[name] == "" {
				return usagef("%s needs --%s, such as --%s %s", c.CommandPath(), name, name, t.must[name])
			}
		}
		if t.other != nil {
			op = cmp.Or(operations()[t.other(c)], op)
		}
		p.named, p.renamed = named, t.flags
		if _, err := op.Input(given); err != nil { // before a database is opened
			return p.worded(err)
		}
		return p.withAPI(c.Context(), func() error { return t.run(c.Context(), p, op, given, most, output) })
	}
	return c
}

func (t *twin) run(ctx context.Context, p *program, op *httpapi.Operation, given values, most int, output string) error {
	if t.before != nil {
		if err := t.before(ctx, given); errors.Is(err, errNothing.error) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if t.count > 0 || t.rows != nil || op.Parameter("cursor") != nil {
		p.operator.Brief = output == "table"
		rows, more, err := p.list(ctx, op.ID, given, most, t.flags["cursor"] != "")
		switch {
		case err != nil:
			return err
		case t.rows != nil:
			err = t.rows(ctx, rows, more, output)
		default:
			err = writeRows(p.out, output, rows)
		}
		switch {
		case err != nil:
		case more != "" && t.flags["cursor"] != "":
			fmt.Fprintf(p.err, "dbcron: there may be more: --%s %s\n", t.flags["cursor"], more)
		case t.none != nil && output == "table" && reflect.ValueOf(rows).Len() == 0:
			if text := t.none(ctx, given); text != "" {
				fmt.Fprintln(p.err, "dbcron: "+text)
			}
		}
		return err
	}
	done := func() {}
	if t.takes != "" {
		done = p.begin(ctx, progress.Task{What: t.takes}).End
	}
	answer, err := p.do(ctx, op.ID, given)
	if done(); err != nil {
		return err
	}
	switch {
	case t.show != nil:
		return t.show(ctx, answer, output)
	case op.Method == http.MethodGet && output != "table" && !isBytes(answer):
		return table.Encode(p.out, answer)
	case op.Method == http.MethodGet:
		return describe(p.out, answer)
	}
	if err := p.sayAll(answer); err != nil || t.then == nil {
		return err
	}
	return t.then(ctx, answer)
}

// sayAll adds an answer to the output of -o json.
func (p *program) sayAll(answer any) error {
	if p.outcome == nil || answer == nil {
		return nil
	}
	text, err := json.Marshal(answer)
	var fields map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	for name, value := range fields {
		p.say(name, value)
	}
	return err
}

// changes reports whether a flag is given that says what to change, and not of what.
func changes(c *cobra.Command, op *httpapi.Operation) (given bool) {
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		of := op.Parameter(f.Name)
		given = given || f.Changed && f.Name != "output" && (of == nil || of.In != "path")
	})
	return given
}

// maxListed is how many entries a list prints at the most.
const maxListed = 1_000_000

// addFlags adds a flag for each parameter that is no argument, and returns their names.
func (t *twin) addFlags(c *cobra.Command, op *httpapi.Operation, given values, named []string) (names []string) {
	c.Flags().SortFlags = false
	all := op.Parameters()
	for i := range all {
		param := &all[i]
		name, renamed := t.flags[param.Name]
		if !renamed {
			name = strings.ReplaceAll(param.Name, "_", "-")
		}
		if name == "" || slices.Contains(named, param.Name) || param.In == "header" || !renamed && (name == "cursor" || name == "limit") {
			continue
		}
		usage := param.Help
		if len(param.Words) > 0 {
			usage += " One of " + plain.Or(param.Words) + "."
		}
		name, letter, _ := strings.Cut(name, ",")
		f := c.Flags().VarPF(&textFlag{given, param}, name, letter, usage)
		if param.IsBool {
			f.NoOptDefVal = "true"
		}
		names = append(names, name)
	}
	return names
}

// parametersOf returns the names of the parameters that are flags already.
func parametersOf(c *cobra.Command) (names []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Value.(*textFlag).of.Name) })
	return names
}

// A textFlag is the flag of a parameter.
type textFlag struct {
	given values
	of    *httpapi.Parameter
}

func (f *textFlag) String() string {
	if f.of == nil { // as pflag finds out what is no value
		return ""
	}
	if text, ok := f.given[f.of.Name]; ok {
		return text
	}
	return f.of.Default
}

func (f *textFlag) Set(text string) error {
	f.given[f.of.Name] = text // which Input checks
	return nil
}

func (f *textFlag) Type() string {
	switch {
	case f.of.IsBool:
		return "bool"
	case f.of.Minimum != "":
		return "int"
	}
	return "string"
}

// withAPI runs f, in which do works: on the database, or at a daemon.
func (p *program) withAPI(ctx context.Context, f func() error) error {
	at, _, err := p.findDatabase()
	if err != nil {
		return err
	}
	if isDaemon(at) {
		c, err := p.clientOf(at)
		if err != nil {
			return err
		}
		p.call = func(ctx context.Context, op *httpapi.Operation, in any) (any, error) {
			path, query, body := op.Request(in)
			answer := op.NewAnswer()
			return answer, remoteError(at, op, c.Do(ctx, client.Request{
				Method: op.Method, Path: path, Query: query, Body: body, Again: op.Method == http.MethodGet, Key: p.key,
			}, answer))
		}
		return f()
	}
	return p.with(ctx, func(db *dialect.DB) error {
		api, err := httpapi.NewHere(db, httpapi.Options{Version: version, Doorbell: usualDoorbell})
		if err != nil {
			return err
		}
		defer api.Close()
		p.operator = httpapi.Operator{Name: whoami(), Warn: p.warn}
		p.call = func(ctx context.Context, op *httpapi.Operation, in any) (any, error) {
			return api.Do(ctx, &p.operator, op.ID, in)
		}
		if err := f(); err != nil {
			return err
		}
		return api.Flush(ctx)
	})
}

// do does an operation. It returns a pointer to what is answered, or nil. Errors about parameters are about flags.
func (p *program) do(ctx context.Context, id string, given values) (any, error) {
	op := operations()[id]
	in, err := op.Input(given)
	var answer any
	if err == nil {
		answer, err = p.call(ctx, op, in)
	}
	return answer, p.worded(err)
}

// send is do with a body as a whole, and with a key with which it may be sent again, or "". Its errors are about fields.
func (p *program) send(ctx context.Context, id string, given values, body any, key string) (any, error) {
	op := operations()[id]
	in, err := op.InputOf(given, body)
	if err != nil {
		return nil, err
	}
	if key != "" {
		p.key = key
		defer func() { p.key = "" }()
	}
	return p.call(ctx, op, in)
}

// worded returns an error about a parameter as one about an argument or a flag.
func (p *program) worded(err error) error {
	var wrong *queue.InvalidError
	switch {
	case !errors.As(err, &wrong):
		return err
	case strings.HasPrefix(wrong.Problem, "name "):
		return usagef("the %s's %s", wrong.Field, wrong.Problem)
	case slices.Contains(p.named, wrong.Field):
		return usagef("%s: %s", wrong.Field, wrong.Problem)
	case p.renamed[wrong.Field] != "":
		flag, _, _ := strings.Cut(p.renamed[wrong.Field], ",")
		return usagef("--%s: %s", flag, wrong.Problem)
	}
	return flagged(err)
}

// ask is do with parameters one after the other, each followed by its value, and an answer of a known type.
func ask[T any](ctx context.Context, p *program, id string, pairs ...string) (*T, error) {
	given := values{}
	for i := 0; i < len(pairs); i += 2 {
		given[pairs[i]] = pairs[i+1]
	}
	answer, err := p.do(ctx, id, given)
	if err != nil {
		return nil, err
	}
	return answer.(*T), nil //nolint:forcetypeassert // a command knows its operations
}

// list returns what an operation lists, page by page: a slice, and the cursor of what follows. most is 0 for all. If soon is
// set, it ends where none of those that were looked at is listed.
func (p *program) list(ctx context.Context, id string, given values, most int, soon bool) (rows any, more string, err error) {
	limit := operations()[id].Parameter("limit")
	if limit == nil { // it lists all at once
		answer, err := p.do(ctx, id, given)
		if err != nil {
			return nil, "", err
		}
		return entriesOf(answer), "", nil
	}
	page, _ := strconv.Atoi(limit.Maximum)
	var all reflect.Value
	for {
		n := page
		if most > 0 && all.IsValid() {
			n = min(page, most-all.Len())
		} else if most > 0 {
			n = min(page, most)
		}
		given["limit"] = strconv.Itoa(n)
		answer, err := p.do(ctx, id, given)
		if err != nil {
			return nil, "", err
		}
		if found := reflect.ValueOf(entriesOf(answer)); all.IsValid() {
			all = reflect.AppendSlice(all, found)
		} else {
			all = found
		}
		if next := reflect.ValueOf(answer).Elem().FieldByName("NextCursor"); next.IsValid() {
			more = next.String()
		}
		if more == "" || all.Len() == most || soon && reflect.ValueOf(entriesOf(answer)).Len() == 0 {
			return all.Interface(), more, nil
		}
		given["cursor"] = more
	}
}

// entriesOf returns the list in an answer, which is its first field.
func entriesOf(answer any) any { return reflect.ValueOf(answer).Elem().Field(0).Interface() }

func isBytes(answer any) bool {
	_, ok := answer.(*[]byte)
	return ok
}

// isDaemon reports whether a URL is a daemon's, and not a database's.
func isDaemon(rawURL string) bool {
	return strings.HasPrefix(rawURL, "https://") || strings.HasPrefix(rawURL, "http://")
}

// maxAnswer is how much of a daemon's answer a command reads.
const maxAnswer = 256 << 20

// clientOf returns a client of a daemon, with the token that the environment has.
func (p *program) clientOf(rawURL string) (*client.Client, error) {
	token := p.getenv("DBCRON_TOKEN")
	u, err := url.Parse(rawURL)
	if err == nil && u.Scheme == "http" && token != "" && !p.allowHTTP && !isHere(u.Hostname()) {
		return nil, usagef("with http:// everybody on the way to %s can read the token: use https://, or add --allow-http", u.Host)
	}
	c, err := client.New(rawURL, client.Options{Token: token, MaxAnswer: maxAnswer})
	if err != nil {
		return nil, usagef("%s", strings.TrimPrefix(err.Error(), "client: "))
	}
	return c, nil
}

func isHere(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// remoteError returns a daemon's error as the same operation on the database says it.
func remoteError(at string, op *httpapi.Operation, err error) error {
	var told *client.Problem
	var sent *url.Error
	var dialed *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &dialed) && dialed.Op == "dial":
		return fmt.Errorf("the daemon at %s cannot be reached: %w; is dbcron serve running there, and is --url or DBCRON_URL right?", at, dialed)
	case errors.As(err, &sent) && op.Method != http.MethodGet && (dialed != nil || sent.Timeout() || errors.Is(err, io.EOF)):
		return fmt.Errorf("the daemon at %s has not answered: %w; whether it has done this is not known", at, sent.Err)
	case errors.As(err, &sent):
		return fmt.Errorf("the request to the daemon at %s failed: %w", at, sent.Err)
	case !errors.As(err, &told):
		return fmt.Errorf("%s does not answer as a daemon of dbcron does: %s", at, strings.TrimPrefix(err.Error(), "client: "))
	}
	text := cmp.Or(told.Detail, told.Title)
	switch {
	case len(told.Errors) == 1 && told.Status == http.StatusUnprocessableEntity:
		at := told.Errors[0].Location
		var err error = &queue.InvalidError{Field: at[strings.LastIndex(at, ".")+1:], Problem: told.Errors[0].Message}
		var i int
		if n, _ := fmt.Sscanf(at, "body.jobs[%d]", &i); n == 1 {
			err = &queue.JobError{Index: i, Err: err}
		}
		return err
	case told.Status == http.StatusUnauthorized, told.Status == http.StatusForbidden:
		text += " (dbcron takes the token from DBCRON_TOKEN)"
	case told.Detail == "": // a proxy's
		text = fmt.Sprintf("%s answers %d %s, which no daemon of dbcron does", at, told.Status, told.Title)
	}
	code := exitFailure
	switch told.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		code = exitUsage
	case http.StatusNotFound:
		code = exitNotFound
	case http.StatusConflict:
		code = exitConflict
	}
	return exitError{code, errors.New(text)}
}
