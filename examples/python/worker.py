"""Pulls the jobs of a queue: it claims them from a daemon and reports their outcomes.

    python3 worker.py mail

DBCRON_API names the daemon, DBCRON_TOKEN is a token with the scope work, if there are tokens.
Start as many as you like. On SIGTERM it finishes its current job.
"""
import json, os, random, signal, sys, threading, time, urllib.parse, urllib.request

API = os.environ.get("DBCRON_API", "http://127.0.0.1:8686/api/v1")
TOKEN = os.environ.get("DBCRON_TOKEN")


def handle(job):
    """Your work. A ValueError makes the job a dead letter; after any other error it is retried."""
    if "to" not in job["payload"]:
        raise ValueError("there is nobody to write to")
    print("mail to", job["payload"]["to"], flush=True)


def post(path, body):
    request = urllib.request.Request(API + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    if TOKEN:
        request.add_header("Authorization", "Bearer " + TOKEN)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def work(job):
    claim, ended = {"token": job["token"]}, threading.Event()

    def renew():  # otherwise another worker gets the job after its lease
        while not ended.wait(10):
            try:
                post("/claims/heartbeat", {"claims": [claim], "lease": "30s"})
            except OSError as e:
                print("heartbeat:", e, file=sys.stderr)

    threading.Thread(target=renew, daemon=True).start()
    try:
        handle(job)
        return "/claims/complete", {"claims": [claim]}
    except Exception as e:
        return "/claims/fail", {"claims": [claim | {"error": repr(e)} | ({"dead": True} if isinstance(e, ValueError) else {})]}
    finally:
        ended.set()


stopping, idle = threading.Event(), True
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0) if idle else stopping.set())
while not stopping.is_set():
    try:
        idle = True
        jobs = post(f"/queues/{urllib.parse.quote(sys.argv[1], safe='')}/claim", {"lease": "30s", "wait": "20s"})["jobs"]
        idle = False
        for job in jobs:
            post(*work(job))
    except OSError as e:  # a job without a reported outcome runs again after its lease
        print(e, file=sys.stderr)
        time.sleep(random.uniform(0.5, 2))
