package address

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// longestEndpoint is the maximum length of an endpoint's URL in bytes.
const longestEndpoint = 1000

// CheckEndpoint returns an error if text is not valid as the URL of an endpoint. It does not
// check whether anything answers there, or whether dispatchers are allowed to send to it.
func CheckEndpoint(text string) error {
	if len(text) > longestEndpoint {
		return fmt.Errorf("it has %d bytes, and may have up to %d", len(text), longestEndpoint)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("it has characters other than those of ASCII that can be seen; write others as %20")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("it is not a URL such as https://worker.example.org/jobs")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("it does not begin with https:// or http://")
	case u.Hostname() == "" || u.Opaque != "":
		return errors.New("it names no host")
	case u.User != nil:
		return errors.New("it has a user or a password, which would be seen by all who may see jobs; requests are signed")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return errors.New("it has a part after #, which is not sent")
	case strings.HasSuffix(u.Host, ":") || u.Port() == "0":
		return errors.New("its port is not 1 to 65535")
	}
	return nil
}
