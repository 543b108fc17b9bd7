package httpapi

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// A newJob is a job in a request.
type newJob struct {
	Kind          string     `json:"kind" minLength:"1" maxLength:"200" doc:"What the job is, which picks who does it"`
	Queue         string     `json:"queue,omitempty" maxLength:"200" doc:"Where it goes, a queue that is made if there is none; default: the route of its kind, or else default"`
	Payload       jsonText   `json:"payload,omitempty" doc:"What the job is about: any JSON, kept byte for byte"`
	PayloadBase64 []byte     `json:"payload_base64,omitempty" doc:"The same if it is not JSON, in base64"`
	Key           string     `json:"key,omitempty" maxLength:"200" doc:"Jobs of one queue and key are done in order, one after the other"`
	Unique        string     `json:"unique,omitempty" maxLength:"200" doc:"Keeps other jobs of the queue out that have the same one"`
	UniqueFor     string     `json:"unique_for,omitempty" maxLength:"40" doc:"For how long it does so at least, such as 24h, also when the job is done" example:"24h"`
	Group         string     `json:"group,omitempty" pattern:"^[1-9][0-9]*$" maxLength:"19" doc:"The id of a group that waits for it"`
	Priority      string     `json:"priority,omitempty" enum:"urgent,normal,low,idle" doc:"Default: normal"`
	Delay         string     `json:"delay,omitempty" maxLength:"40" doc:"Not before so long from now, such as 90s, 1h30m or 30d" example:"90s"`
	RunAt         *time.Time `json:"run_at,omitempty" doc:"Or not before this time"`
	MaxAttempts   int        `json:"max_attempts,omitempty" minimum:"1" maximum:"1000000" doc:"After so many failed ones it is dead; default: the queue's"`
	Timeout       string     `json:"timeout,omitempty" maxLength:"40" doc:"Of an attempt; default: the queue's" example:"30s"`
	Trace         string     `json:"trace,omitempty" maxLength:"512" doc:"A W3C traceparent, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01, handed on to whoever does it"`
	Endpoint      string     `json:"endpoint,omitempty" maxLength:"1000" doc:"A URL that it is sent to, if its queue has an endpoint; default: the queue's"`
}

// job returns the job in a request, or an error about a field.
func (n *newJob) job() (j queue.Job, err error) {
	j = queue.Job{
		Kind: n.Kind, Queue: n.Queue, Payload: n.Payload, Key: n.Key, Unique: n.Unique, MaxAttempts: n.MaxAttempts,
		Trace: n.Trace, Endpoint: n.Endpoint,
	}
	if err := checkNames("kind", n.Kind, "queue", n.Queue, "key", n.Key, "unique", n.Unique); err != nil {
		return j, err
	}
	if len(n.PayloadBase64) > 0 {
		if len(n.Payload) > 0 {
			return j, invalid("payload_base64", "there is a payload as well; send one of them")
		}
		j.Payload, j.Binary = n.PayloadBase64, true
	}
	if n.Priority != "" {
		if j.Priority, err = jobfield.ParsePriority(n.Priority); err != nil {
			return j, invalid("priority", "%v", err)
		}
	}
	if n.Group != "" {
		if j.Group, err = readID("group", n.Group); err != nil {
			return j, err
		}
	}
	for _, d := range []struct {
		field, text string
		to          *time.Duration
	}{{"unique_for", n.UniqueFor, &j.UniqueFor}, {"delay", n.Delay, &j.Delay}, {"timeout", n.Timeout, &j.Timeout}} {
		if *d.to, err = readDuration(d.field, d.text); err != nil {
			return j, err
		}
	}
	if n.RunAt != nil {
		j.RunAt = *n.RunAt
	}
	return j, j.Check()
}

const (
	// longestListed limits the payloads that lists include, in bytes.
	longestListed = 64 << 10

	// mostListed limits the total of payloads, errors and details in a list, in bytes.
	mostListed = 1 << 20
)

// A jobJSON is a job in an answer.
type jobJSON struct {
	ID            string   `json:"id"`
	Queue         string   `json:"queue"`
	State         string   `json:"state" enum:"ready,delayed,running,dead,done"`
	Kind          string   `json:"kind"`
	Key           string   `json:"key,omitempty"`
	Priority      string   `json:"priority"`
	Enqueued      stamp    `json:"enqueued"`
	At            *stamp   `json:"at,omitempty" doc:"When it is due, since when it runs, or when it died or was done"`
	Started       *stamp   `json:"started,omitempty" doc:"Of one that is done: when its last attempt began"`
	Discarded     bool     `json:"discarded,omitempty" doc:"Of one that is done: it was discarded, and error says why"`
	Attempts      int      `json:"attempts" doc:"Made so far; of a running job with this one"`
	Crashes       int      `json:"crashes" doc:"Workers that died with it"`
	MaxAttempts   int      `json:"max_attempts,omitempty"`
	Timeout       string   `json:"timeout,omitempty"`
	Unique        string   `json:"unique,omitempty"`
	Group         string   `json:"group,omitempty"`
	CallbackOf    string   `json:"callback_of,omitempty" doc:"The group whose callback it is"`
	Trace         string   `json:"trace,omitempty"`
	Endpoint      string   `json:"endpoint,omitempty" doc:"Where it is sent, if it says so itself"`
	Worker        string   `json:"worker,omitempty"`
	Error         string   `json:"error,omitempty" doc:"Why it failed last"`
	Detail        string   `json:"detail,omitempty"`
	Refused       *refused `json:"refused,omitempty" doc:"The database refuses to write what has become of it; its worker goes on trying. Not in lists"`
	PayloadBytes  int      `json:"payload_bytes"`
	Payload       jsonText `json:"payload,omitempty" doc:"Without the blanks between its parts: …/payload has it byte for byte. In lists only up to 64 KiB"`
	PayloadBase64 []byte   `json:"payload_base64,omitempty"`
}

// A refused says that the database refuses to store a job's outcome.
type refused struct {
	What   string `json:"what" doc:"done, discarded, retry, dead, check-out, claim or forward"`
	Error  string `json:"error" doc:"The database's"`
	Since  stamp  `json:"since"`
	Tries  int    `json:"tries"`
	Worker string `json:"worker"`
}

func newJobJSON(ctx context.Context, i *admin.Job) jobJSON {
	j := jobJSON{
		ID: idText(i.ID), Queue: i.Queue, State: string(i.State), Kind: i.Kind, Key: i.Key, Priority: jobfield.PriorityName(i.Priority),
		Enqueued: stamp{i.Enqueued}, At: optional(i.At), Attempts: i.Attempts, Crashes: i.Crashes, MaxAttempts: i.MaxAttempts,
		Unique: i.Unique, Group: idText(i.Group), CallbackOf: idText(i.Callback), Trace: i.Trace, Endpoint: shownURL(ctx, i.Endpoint), Worker: i.Worker,
		Error: strings.ToValidUTF8(i.Error, "�"), Detail: strings.ToValidUTF8(i.Detail, "�"), PayloadBytes: i.PayloadBytes,
	}
	if j.Discarded = i.Discarded; !i.Started.IsZero() {
		j.Started = &stamp{i.Started}
	}
	if r := i.Refused; r != nil {
		j.Refused = &refused{What: r.What, Error: strings.ToValidUTF8(r.Error, "�"), Since: stamp{r.Since}, Tries: r.Tries, Worker: r.Worker}
	}
	if i.Timeout > 0 {
		j.Timeout = durationText(i.Timeout)
	}
	if i.Binary || !json.Valid(i.Payload) { // somebody wrote it by hand
		j.PayloadBase64 = i.Payload
	} else {
		j.Payload = i.Payload
	}
	return j
}
