package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signals tells the daemon about signals.
type signals struct {
	again  chan struct{} // closed by the second SIGTERM or SIGINT
	reload chan struct{} // SIGHUP
}

// signalContext returns a context that the first SIGTERM or SIGINT ends.
func signalContext() (context.Context, *signals) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &signals{again: make(chan struct{}), reload: make(chan struct{}, 1)}
	got := make(chan os.Signal, 4)
	signal.Notify(got, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		ends := 0
		for sig := range got {
			if sig == syscall.SIGHUP {
				select {
				case s.reload <- struct{}{}:
				default: // one is waiting already
				}
				continue
			}
			if ends++; ends == 1 {
				cancel()
			} else if ends == 2 {
				close(s.again)
			}
		}
	}()
	return ctx, s
}
