package dashboard

import "testing"

func TestSpecWords(t *testing.T) {
	for spec, want := range map[string]string{
		"* * * * *": "every minute", "*/5 * * * *": "every 5 minutes", "*/7 * * * *": "", "0 * * * *": "every hour, at minute 0",
		"15 */6 * * *": "every 6 hours, at minute 15", "30 3 * * *": "every day at 03:30", "0 9 * * 1-5": "from Monday to Friday at 09:00",
		"5 4 * * 0": "on Sundays at 04:05", "5 4 * * 7": "on Sundays at 04:05", "0 0 1 * *": "on day 1 of each month at 00:00",
		"@every 1m30s": "every 1m30s", "@Daily": "every day at 00:00", "@manual": "when a person or another schedule starts it",
		"0 0 13 * 5": "", "0 0 * 2 *": "", "0 0 L * *": "", "1,2 3 * * *": "", "99 3 * * *": "", "*/0 * * * *": "", "0 0 0 * *": "", "": "",
		"* 3 * * *": "", "*/5 * * * 1": "", "0 30 3 * * *": "",
	} {
		if got := specWords(spec); got != want {
			t.Errorf("%q: %q, not %q", spec, got, want)
		}
	}
}
