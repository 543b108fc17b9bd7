package dashboard

import (
	"fmt"
	"net/url"
	"strings"
)

// A Place is the dashboard of one of several databases.
type Place struct {
	Name string // what people call the database
	URL  string // http or https
}

// ParsePlace reads NAME=URL.
func ParsePlace(text string) (Place, error) {
	name, address, _ := strings.Cut(text, "=")
	p := Place{Name: strings.TrimSpace(name), URL: strings.TrimSpace(address)}
	u, err := url.Parse(p.URL)
	if err != nil || p.Name == "" || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return Place{}, fmt.Errorf("%q is not NAME=URL, such as north=https://cron-north.example.org", text)
	}
	return p, nil
}

// placeAt returns the name of the place with a host, or "".
func placeAt(all []Place, host string) string {
	for _, p := range all {
		if u, err := url.Parse(p.URL); err == nil && strings.EqualFold(u.Host, host) {
			return p.Name
		}
	}
	return ""
}
