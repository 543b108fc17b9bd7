// Package browser tests the dashboard in a real browser: its pages, forms and script, under its own
// policy, with and without JavaScript. It is a module of its own, so that the product does not
// depend on the library that drives the browser.
package browser
