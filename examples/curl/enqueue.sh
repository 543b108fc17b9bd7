#!/bin/sh
# Enqueues a job exactly once, however often the request has to be sent: without an answer, curl
# repeats it with the same key.
#
#   sh enqueue.sh mail welcome '{"to": "ada@example.org"}'
set -eu
curl -fsS --retry 6 --retry-connrefused --json "{\"queue\": \"$1\", \"kind\": \"$2\", \"payload\": $3}" \
	-H "Idempotency-Key: $(uuidgen 2>/dev/null || cat /proc/sys/kernel/random/uuid)" ${DBCRON_TOKEN:+-H "Authorization: Bearer $DBCRON_TOKEN"} \
	"${DBCRON_API:-http://127.0.0.1:8686/api/v1}/jobs"
