"""Enqueues a job exactly once, however often the request has to be sent.

    python3 enqueue.py mail welcome '{"to": "ada@example.org"}'

DBCRON_API names the daemon, DBCRON_TOKEN is a token with the scope enqueue, if there are tokens.
"""
import json, os, random, sys, time, urllib.error, urllib.request, uuid

API = os.environ.get("DBCRON_API", "http://127.0.0.1:8686/api/v1")
TOKEN = os.environ.get("DBCRON_TOKEN")


def enqueue(queue, kind, payload, key=None, tries=6):
    """Returns the job's id. With a key that the caller stores, the job is enqueued once across processes, too."""
    request = urllib.request.Request(
        API + "/jobs",
        data=json.dumps({"queue": queue, "kind": kind, "payload": payload}).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": key or str(uuid.uuid4())},
    )
    if TOKEN:
        request.add_header("Authorization", "Bearer " + TOKEN)
    for n in range(tries):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["id"]
        except urllib.error.HTTPError as e:
            if e.code not in (502, 503, 504) or n == tries - 1:
                raise RuntimeError(f"{e.code}: {e.read().decode(errors='replace')}") from e
        except OSError:  # the request or the answer was lost
            if n == tries - 1:
                raise
        time.sleep(random.uniform(0.1, 0.2) * 2**n)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: enqueue.py QUEUE KIND PAYLOAD")
    print(enqueue(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
