package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
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
	Body  wire.ClaimRequest
}

// claimedJobs are sent one after the other.
type claimedJobs wire.Claimed

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
	out.Body.Node, out.Body.Jobs = node, make([]wire.Claim, len(list))
	for i, g := range list {
		out.Body.Jobs[i] = wire.Claim{Token: g.token, Delivery: wireof.Delivery(g.job)}
	}
	a.pulls.unload(list)
	return out, nil
}

// payloads is the room for the payloads of an answer: each is there twice, as it was read and as it is sent.
type payloads struct{ *room }

// Take takes the bytes of a payload.
func (p payloads) Take(bytes int) { p.room.Take(2 * bytes) }

// readLease parses the lease of a claim.
func readLease(text wire.Duration) (time.Duration, error) {
	if text == "" {
		return usualLease, nil
	}
	lease, err := readDuration("lease", text)
	if err == nil && (lease < shortestLease || lease > longestLease) {
		err = invalid("lease", "%v is not %v to %v; a heartbeat lets it begin anew", lease, shortestLease, longestLease)
	}
	return lease, err
}
