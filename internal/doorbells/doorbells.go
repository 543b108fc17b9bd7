// Package doorbells checks the addresses at which workers hear of new jobs.
package doorbells

import (
	"fmt"
	"net/netip"
)

// Check returns an error if no worker could hear a doorbell at an address: see queue.Options.
func Check(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%q: write an address of this host and a port, such as 10.0.0.7:0; port 0 is any", address)
	}
	if at.Addr().IsUnspecified() || at.Addr().IsMulticast() {
		return fmt.Errorf("%q: other processes connect to this address, so they must be able to reach it", address)
	}
	return nil
}
