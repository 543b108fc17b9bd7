package notify

import (
	"context"
	"fmt"
	"slices"

	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
)

// command runs a command from the daemon's own settings, with the message on its standard input. The
// command outlives neither its timeout nor the daemon.
func (n *Notifier) command(ctx context.Context, m *Message, id string) error {
	line, ok := n.commandOf(m.Target)
	if !ok {
		return errElsewhere
	}
	env := slices.Concat(n.opt.Env, []string{"DBCRON_NOTIFY_ID=" + id, "DBCRON_NOTIFY_SUBJECT=" + m.Subject()})
	process, err := guardian.Start(guardian.Command{
		Name: Queue, Argv: []string{"/bin/sh", "-c", line}, Env: env, Dir: n.opt.Dir, Input: m.Text(), MaxOutput: 4096,
	}, instant.Now().Add(sendWithin))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, process.Kill)()
	<-process.Done() // also if it cannot be killed: the next attempt would run beside it
	r := process.Wait()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the command was ended: %w", context.Cause(ctx))
	case r.Err != nil:
		return r.Err
	case r.Cause != guardian.Exited || r.ExitCode != 0:
		return fmt.Errorf("the command ended with exit code %d: %s", r.ExitCode, plain.Cut(r.Output, 200))
	}
	return nil
}
