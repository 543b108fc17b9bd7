package notify

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/httpapi/push"
)

// reachWithin is how long each of the servers has to answer.
const reachWithin = 3 * time.Second

// Reach tries whether the mail server can be connected to, if there is a target that is mailed to, and whether the names of webhooks' hosts
// have addresses. It sends nothing, and does not try commands. It returns what cannot be reached, a text for each server.
func Reach(ctx context.Context, targets []string, mail Mail) (wrong []string) {
	mail, err := mail.filled()
	mailed := false
	var hosts []string
	for _, target := range targets {
		u, bad := url.Parse(target)
		switch {
		case strings.HasPrefix(target, "mailto:"):
			mailed = true
		case bad == nil && (u.Scheme == "http" || u.Scheme == "https") && !slices.Contains(hosts, u.Hostname()):
			hosts = append(hosts, u.Hostname())
		}
	}
	if mailed && err == nil {
		if err := mail.reach(ctx); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	for _, host := range hosts {
		within, cancel := context.WithTimeout(ctx, reachWithin)
		if _, err := net.DefaultResolver.LookupHost(within, host); err != nil {
			wrong = append(wrong, fmt.Sprintf("the webhook's host %s has no address: %v", host, err))
		}
		cancel()
	}
	if ctx.Err() != nil {
		return nil
	}
	return wrong
}

// reach connects to the mail server.
func (s *Mail) reach(ctx context.Context) error {
	at := net.JoinHostPort(s.host, s.port)
	conn, err := (&net.Dialer{Timeout: reachWithin}).DialContext(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("the mail server at %s cannot be reached: %w", at, push.WithoutAddresses(err))
	}
	return conn.Close()
}
