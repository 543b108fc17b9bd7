package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
)

// Programs without Go handlers claim jobs, do them, and report the outcomes. A claim writes nothing: the
// daemon leases blocks of the queue like any worker, and keeps claims in memory.

const (
	usualLease    = 30 * time.Second
	shortestLease = time.Second
	longestLease  = 12 * time.Hour
)

type claimInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  struct {
		Max   int      `json:"max,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"How many at the most"`
		Lease string   `json:"lease,omitempty" maxLength:"40" doc:"How long the claim lasts without a heartbeat: 1s to 12h; default: 30s" example:"30s"`
		Wait  string   `json:"wait,omitempty" maxLength:"40" doc:"How long to wait for the first one: up to 30s; default: 0s" example:"20s"`
		Kinds []string `json:"kinds,omitempty" minItems:"1" maxItems:"100" nullable:"false" doc:"The kinds of jobs to get; others stay for other workers; default: all" example:"[\"welcome\"]"`
	} `nameHint:"ClaimRequest"`
}

// A claimedJobJSON is a claimed job.
type claimedJobJSON struct {
	Token         string   `json:"token" doc:"What names this attempt"`
	ID            string   `json:"id"`
	Queue         string   `json:"queue"`
	Kind          string   `json:"kind"`
	Key           string   `json:"key,omitempty"`
	Priority      string   `json:"priority"`
	Payload       jsonText `json:"payload,omitempty" doc:"Without the blanks between its parts"`
	PayloadBase64 []byte   `json:"payload_base64,omitempty" doc:"The same if it is not JSON"`
	Attempt       int      `json:"attempt" doc:"From 1"`
	MaxAttempts   int      `json:"max_attempts" doc:"After so many failed ones it is dead"`
	Crashes       int      `json:"crashes" doc:"Workers that died with it"`
	Enqueued      stamp    `json:"enqueued"`
	Group         string   `json:"group,omitempty" doc:"The group that waits for it"`
	CallbackOf    string   `json:"callback_of,omitempty" doc:"The group whose callback it is"`
	Trace         string   `json:"trace,omitempty" doc:"A W3C traceparent"`
}

// claimedJobs is the answer to a claim.
type claimedJobs struct {
	Node string           `json:"node" doc:"The daemon that has given them out, which takes heartbeats and releases"`
	Jobs []claimedJobJSON `json:"jobs" nullable:"false"`
}

type claimOutput struct{ Body claimedJobs }

// claiming registers the operation that claims jobs.
func (a *API) claiming() {
	register(a, operation{
		id: "claim-jobs", method: http.MethodPost, path: "/queues/{queue}/claim", tag: "claims", scope: ScopeWork,
		answer:  answerClaimed,
		errors:  []int{http.StatusNotFound, http.StatusConflict},
		summary: "Get jobs to do",
		more: "It answers as soon as there is a job, and with none when the wait is over. A job that is not completed, failed or released, and of which no heartbeat comes " +
			"within its lease, has failed. Nothing is written by a claim: when the daemon dies, others give the jobs out again.",
	}, a.claim)
}

func (a *API) claim(ctx context.Context, in *claimInput) (*claimOutput, error) {
	if err := checkNames("queue", in.Queue); err != nil {
		return nil, err
	}
	if err := mayUseQueues(ctx, queue.Job{Queue: in.Queue}); err != nil {
		return nil, err
	}
	lease, err := readLease(in.Body.Lease)
	if err != nil {
		return nil, err
	}
	for i, kind := range in.Body.Kinds {
		if err := sqlrun.CheckName(kind); err != nil {
			return nil, invalid(fmt.Sprintf("kinds[%d]", i), "%v", err)
		}
	}
	wait, err := readDuration("wait", in.Body.Wait)
	if err == nil && wait > longestWait {
		err = invalid("wait", "%v is longer than %v; claim again when there was nothing", wait, longestWait)
	}
	if err != nil {
		return nil, err
	}
	wait = min(wait, a.opt.Timeout/2) // so that the request does not time out
	node, list, err := a.pulls.claim(ctx, in.Queue, claimOf{in.Body.Max, in.Body.Kinds, lease, wait, payloads{senderOf(ctx).reply.answer}})
	if err != nil {
		return nil, err
	}
	out := &claimOutput{}
	out.Body.Node, out.Body.Jobs = node, make([]claimedJobJSON, len(list))
	for i, g := range list {
		out.Body.Jobs[i] = newClaimedJob(g)
	}
	a.pulls.unload(list)
	return out, nil
}

// payloads is the room for the payloads of an answer: each is there twice, as it was read and as it is sent.
type payloads struct{ *room }

// Take takes the bytes of a payload.
func (p payloads) Take(bytes int) { p.room.Take(2 * bytes) }

func newClaimedJob(g *given) claimedJobJSON {
	d := g.job
	j := claimedJobJSON{
		Token: g.token, ID: idText(d.ID), Queue: d.Queue, Kind: d.Kind, Key: d.Key, Priority: jobfield.PriorityName(d.Priority),
		Attempt: d.Attempt, MaxAttempts: d.Attempts(), Crashes: d.Crashes, Enqueued: stamp{d.Enqueued()},
		Group: idText(d.Group), CallbackOf: idText(d.Callback), Trace: d.Trace,
	}
	if d.Binary || !json.Valid(d.Payload) { // somebody wrote it by hand
		j.PayloadBase64 = d.Payload
	} else {
		j.Payload = d.Payload
	}
	return j
}

// readLease parses the lease of a claim.
func readLease(text string) (time.Duration, error) {
	if text == "" {
		return usualLease, nil
	}
	lease, err := readDuration("lease", text)
	if err == nil && (lease < shortestLease || lease > longestLease) {
		err = invalid("lease", "%v is not %v to %v; a heartbeat lets it begin anew", lease, shortestLease, longestLease)
	}
	return lease, err
}
