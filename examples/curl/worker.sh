#!/bin/sh
# Pulls the jobs of a queue, one after the other, and reads the daemon's answers with jq. A job has
# to end within its lease. For production, prefer dbcron worker exec or the workers in the folders
# beside this one.
#
#   sh worker.sh mail
set -eu
post() {
	curl -fsS --max-time 60 --json "$2" ${DBCRON_TOKEN:+-H "Authorization: Bearer $DBCRON_TOKEN"} \
		"${DBCRON_API:-http://127.0.0.1:8686/api/v1}$1"
}
while :; do
	jobs=$(post "/queues/$1/claim" '{"lease": "60s", "wait": "20s"}') || { sleep 2; continue; }
	job=$(printf %s "$jobs" | jq -c '.jobs[0] // empty')
	[ -n "$job" ] || continue
	claim=$(printf %s "$job" | jq -c '{token}')
	if to=$(printf %s "$job" | jq -er .payload.to) && echo "mail to $to"; then
		post /claims/complete "{\"claims\": [$claim]}"
	else
		post /claims/fail "{\"claims\": [$(printf %s "$claim" | jq -c '. + {error: "there is nobody to write to", dead: true}')]}"
	fi || : # a job without a reported outcome runs again after its lease
done
