// Package browser tests the dashboard in a real browser: what it shows, its forms and its
// script, under its own policy, with and without JavaScript. It is a module of its own, so
// that the product does not depend on what drives the browser.
package browser
