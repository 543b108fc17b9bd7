package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/wire"
)

const (
	// answersSize limits the memory of all answers that are made, or on their way to clients, which may read slowly.
	answersSize = 64 << 20

	// listSize is what a list takes while it is made: what is read, which has about 1 MiB, and its text. Afterwards it takes the
	// size of its text.
	listSize = 4 << 20
)

// An answerSize says what an operation's answers take of the memory.
type answerSize int

const (
	answerSmall   answerSize = iota // little, for which there is always room
	answerList                      // listSize: a list, or an answer with a payload or an output
	answerClaimed                   // what the payloads of its jobs need
)

// makeRoom waits until there is room for an answer.
func (a *API) makeRoom(ctx context.Context, w *reply, of answerSize) error {
	if of == answerSmall {
		return nil
	}
	bytes := int64(listSize)
	if of == answerClaimed {
		bytes = 0
	}
	var err error
	if w.answer, err = a.answers.enter(ctx, w.account(senderOf(ctx).request), bytes); err == nil {
		err = w.answer.grow(ctx, bytes)
	}
	if err != nil {
		w.Header().Set("Retry-After", "1")
		return problem(http.StatusServiceUnavailable, "other answers use all the memory; send it again in a moment")
	}
	return nil
}

// weighAnswer takes room for an answer with a payload that needs more than a list.
func weighAnswer(ctx context.Context, payload int) {
	w := senderOf(ctx).reply
	if extra := 3*payload - listSize; extra > 0 && w != nil { // without HTTP the answer stays here
		w.answer.Take(extra)
	}
}

// jsonFormat encodes and decodes bodies. It ignores errors in sending, since the client is gone then.
var jsonFormat = huma.Format{
	Marshal: func(w io.Writer, v any) error {
		if s, ok := v.(streamed); ok {
			return s.stream(w)
		}
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		err := e.Encode(v)
		if err == nil {
			if out, ok := w.(*reply); ok && out.answer != nil {
				out.answer.shrink(int64(text.Cap()))
			}
			_, _ = w.Write(text.Bytes())
		}
		return err
	},
	Unmarshal: decode,
}

// A streamed answer is encoded in parts, as it is sent.
type streamed interface{ stream(w io.Writer) error }

// stream sends the jobs one after the other. What the client reads slowly is not there twice.
func (c claimedJobs) stream(w io.Writer) error {
	out := bufio.NewWriter(w)
	e := json.NewEncoder(lineless{out})
	e.SetEscapeHTML(false)
	_, _ = out.WriteString(`{"node":`)
	err := e.Encode(c.Node)
	_, _ = out.WriteString(`,"jobs":[`)
	for i := range c.Jobs {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		if err == nil {
			err = e.Encode(&c.Jobs[i])
		}
		c.Jobs[i] = wire.Claim{}
	}
	_, _ = out.WriteString("]}\n")
	_ = out.Flush()
	return err
}

// lineless writes lines without their ends.
type lineless struct{ to io.Writer }

func (l lineless) Write(line []byte) (int, error) {
	_, _ = l.to.Write(bytes.TrimSuffix(line, []byte("\n")))
	return len(line), nil
}
