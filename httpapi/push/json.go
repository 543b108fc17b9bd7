package push

import (
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/wire"
)

// JSON returns the endpoint as it leaves the process, without its secrets.
func (e *Endpoint) JSON() wire.Endpoint {
	return wire.Endpoint{
		Queue: e.Queue, URL: e.URL, Format: e.Format, Concurrency: e.Concurrency, Batch: e.Batch, Timeout: wire.DurationOf(e.Timeout),
		OldSecret: e.OldSecret != "",
	}
}

// JSON returns the answer as it leaves the process.
func (a *Answer) JSON() wire.EndpointAnswer {
	return wire.EndpointAnswer{
		At: wire.At(a.At), Took: wireof.Seconds(a.Took), Status: a.Status, Error: a.Error, Origin: a.Origin, Job: wire.ID(a.Job), By: a.By,
		Failures: a.Failures, Until: wire.At(a.Until),
	}
}

// Change returns a function that makes a change, or a [queue.InvalidError].
func Change(n *wire.EndpointChange) (func(*Endpoint), error) {
	var to Endpoint
	var err error
	if n.Timeout != nil {
		if to.Timeout, err = n.Timeout.Finite(); err != nil {
			return nil, invalid("timeout", "%v", err)
		}
	}
	secret := n.Secret
	if secret != "" && n.NewSecret {
		return nil, invalid("new_secret", "there is a secret as well; send one of them")
	}
	if n.NewSecret {
		secret = NewSecret()
	}
	return func(e *Endpoint) {
		wireof.IfGiven(&e.URL, n.URL)
		wireof.IfGiven(&e.Format, n.Format)
		wireof.IfGiven(&e.Concurrency, n.Concurrency)
		wireof.IfGiven(&e.Batch, n.Batch)
		if n.Timeout != nil {
			e.Timeout = to.Timeout
		}
		if n.DropOldSecret {
			e.OldSecret = ""
		}
		if secret != "" && secret != e.Secret {
			e.Rotate(secret)
		}
	}, nil
}
