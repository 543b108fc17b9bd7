package dbserver

import (
	"context"
	"crypto/rand"
	"math/big"
	"net"
	"strconv"
)

// FreePort returns a port of 127.0.0.1 on which nothing listens. It is below
// the range from which systems give ports to outgoing connections and to
// listeners without a port, so that it is still free later, also after who
// listened there was killed.
func FreePort(ctx context.Context) (int, error) {
	var err error
	for range 100 {
		n, randErr := rand.Int(rand.Reader, big.NewInt(15000))
		if randErr != nil {
			return 0, randErr
		}
		port := 15000 + int(n.Int64())
		var l net.Listener
		l, err = new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}
