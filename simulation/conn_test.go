package simulation

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/internal/sqlconn"
)

// A connector connects a process to the simulated server.
type connector struct{ p *Process }

// Driver says whose pool it is: see postman.
func (k connector) Driver() driver.Driver { return k }

// Open is not called.
func (k connector) Open(string) (driver.Conn, error) { return nil, errRefused }

func (k connector) Connect(ctx context.Context) (driver.Conn, error) {
	c := &conn{p: k.p, ctx: ctx, cut: make(chan struct{})}
	k.p.keep(c) // so that it is cut off while it waits for an answer, too
	err := c.trip(ctx, &turn{op: "connect"}, func() (err error) {
		c.raw, err = k.p.w.server.base.Connect(context.Background())
		return err
	})
	if err != nil {
		c.hangUp()
		return nil, err
	}
	return c, nil
}

// A conn is a connection of a process. Each call is a round trip through the gate. Answers are read whole,
// as a server sends them: so no statement is under way once the database's part is over.
type conn struct {
	p   *Process
	raw driver.Conn
	ctx context.Context // of the transaction that is open

	writes atomic.Bool // it is in a transaction
	told   []notice    // by the transaction that is open
	full   bool        // it was told that the disk is full
	deaf   atomic.Bool // nothing reaches its process any more, which nobody has noticed

	once sync.Once
	cut  chan struct{} // closed when it is cut
}

// hangUp cuts the connection: the server rolls back what is open, at once.
func (c *conn) hangUp() {
	c.once.Do(func() {
		close(c.cut)
		if c.raw != nil {
			_ = c.raw.Close() // the file's answer to that interests nobody
		}
		c.told = nil
		c.p.w.gate.holdsWrite(c, false)
		c.p.w.server.deafen(c)
		c.p.forget(c)
	})
}

func (c *conn) isCut() bool {
	select {
	case <-c.cut:
		return true
	default:
		return false
	}
}

// trip makes a round trip: it waits for its turn, has the database do its work, and waits for the answer.
func (c *conn) trip(ctx context.Context, t *turn, work func() error) (err error) {
	if c.isCut() {
		return driver.ErrBadConn
	}
	t.p, t.c = c.p, c
	g, h := c.p.w.gate, c.p.w.history
	if c.p.isDead() { // what its goroutines do until they notice must take time, or it never ends
		<-time.After(time.Second)
		return sqlconn.ErrCut
	}
	e := event{who: c.p.who(), what: headOf(t.op), args: t.args}
	o, err := g.pass(ctx, t)
	if err == nil {
		err = o.before
	}
	if err == nil {
		c.p.w.server.serve(c)
		err = work()
		if err == nil {
			c.afterwards(t)
		}
		e.out = outcomeOf(err)
		h.add(e)
		if sent := c.wait(ctx, o.back+t.took(c.p.w.row)); sent != nil {
			o.after = sent
		} else if o.lose > 0 && !c.p.w.Over() {
			c.p.losesFor(o.lose)
		}
		if o.after != nil {
			err = errors.Join(o.after, err)
			h.add(event{who: c.p.who(), what: "no answer: " + e.what, args: e.args})
		}
	} else {
		e.out = "not done: " + outcomeOf(err)
		h.add(e)
	}
	if errors.Is(err, sqlconn.ErrCut) {
		c.hangUp()
	}
	return err
}

// afterwards does what follows from a round trip that succeeded.
func (c *conn) afterwards(t *turn) {
	g := c.p.w.gate
	switch {
	case t.op == "begin", strings.HasPrefix(t.op, "BEGIN"):
		c.writes.Store(true)
		g.holdsWrite(c, true)
	case t.op == "commit":
		c.writes.Store(false)
		g.holdsWrite(c, false)
		c.p.w.server.send(c)
	case t.op == "rollback", t.op == "ROLLBACK":
		c.writes.Store(false)
		c.told = nil
		g.holdsWrite(c, false)
	case !c.writes.Load():
		c.p.w.server.send(c)
	}
}

// wait waits for the answer. A process that stands still receives it later.
func (c *conn) wait(ctx context.Context, back time.Duration) error {
	timer := time.NewTimer(back)
	defer timer.Stop()
	select {
	case <-timer.C:
		return c.p.awake(ctx, c.cut)
	case <-ctx.Done():
		return errors.Join(sqlconn.ErrCut, ctx.Err())
	case <-c.cut:
		return sqlconn.ErrCut
	}
}

// took is how long the rows of a round trip take that come in an argument, as JSON, and those of its answer.
func (t *turn) took(row int) time.Duration {
	rows := t.rows
	for _, arg := range t.args {
		if text, is := arg.Value.(string); is && strings.HasPrefix(text, "[") && row > 0 {
			rows += strings.Count(text, "[") + strings.Count(text, "{")
		}
	}
	return time.Duration(row*rows) * time.Microsecond
}

func outcomeOf(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", ": ")
}

// needsWrite reports whether a statement outside of a transaction is a transaction that writes.
func (c *conn) needsWrite(text string) bool {
	return !c.writes.Load() && !strings.HasPrefix(strings.TrimSpace(text), "SELECT") && !strings.HasPrefix(text, "PRAGMA")
}

func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (r driver.Result, err error) {
	err = c.trip(ctx, &turn{op: text, args: args, write: c.needsWrite(text)}, func() (err error) {
		r, err = c.raw.(driver.ExecerContext).ExecContext(context.Background(), text, args)
		if err == nil && !c.writes.Load() && strings.HasPrefix(text, "INSERT INTO dbcron_job (") {
			c.p.note(&c.p.stored)
		}
		return err
	})
	return r, err
}

func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	all := &rows{}
	if strings.Contains(text, "sim_notify") {
		c.p.note(&c.p.rang)
	}
	t := &turn{op: text, args: args, write: c.needsWrite(text)}
	err := c.trip(ctx, t, func() error {
		from, err := c.raw.(driver.QueryerContext).QueryContext(context.Background(), text, args)
		if err != nil {
			return err
		}
		err = errors.Join(all.read(from), from.Close())
		t.rows = len(all.all)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// note notes that something happens now.
func (p *Process) note(when *time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*when = time.Now() //nolint:forbidigo // virtual
}

func (c *conn) BeginTx(ctx context.Context, opt driver.TxOptions) (driver.Tx, error) {
	var tx driver.Tx
	err := c.trip(ctx, &turn{op: "begin", write: true}, func() (err error) {
		tx, err = c.raw.(driver.ConnBeginTx).BeginTx(context.Background(), opt)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &transaction{c, tx}, nil
}

func (c *conn) Ping(ctx context.Context) error {
	return c.trip(ctx, &turn{op: "ping"}, func() error { return nil })
}

func (c *conn) Close() error {
	c.hangUp()
	return nil
}

func (c *conn) IsValid() bool { return !c.isCut() }

func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }

func (c *conn) Begin() (driver.Tx, error) { return c.BeginTx(context.Background(), driver.TxOptions{}) }

type transaction struct {
	c  *conn
	tx driver.Tx
}

func (t *transaction) Commit() error {
	return t.c.trip(context.Background(), &turn{op: "commit"}, t.tx.Commit)
}

func (t *transaction) Rollback() error {
	return t.c.trip(context.Background(), &turn{op: "rollback"}, t.tx.Rollback)
}

// rows are an answer that was read whole.
type rows struct {
	columns []string
	all     [][]driver.Value
}

func (r *rows) read(from driver.Rows) error {
	r.columns = from.Columns()
	for {
		one := make([]driver.Value, len(r.columns))
		if err := from.Next(one); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		r.all = append(r.all, one)
	}
}

func (r *rows) Columns() []string { return r.columns }
func (r *rows) Close() error      { return nil }

func (r *rows) Next(dest []driver.Value) error {
	if len(r.all) == 0 {
		return io.EOF
	}
	copy(dest, r.all[0])
	r.all = r.all[1:]
	return nil
}
