"""Processes pushed jobs: the daemon sends each to this address, and the answer is its outcome.

    DBCRON_SECRET=whsec_… python3 push.py 127.0.0.1 9000

The signature proves that a request is the daemon's. A job can be sent more than once; its id, in
the header Idempotency-Key, stays the same.
"""
import base64, hashlib, hmac, json, os, signal, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRETS = os.environ["DBCRON_SECRET"].split()  # two during a rotation
TOLERANCE = 300  # seconds


def handle(kind, payload):
    """Your work. A ValueError makes the job a dead letter; after any other error it is retried."""
    if "to" not in payload:
        raise ValueError("there is nobody to write to")
    print("mail to", payload["to"], flush=True)


def verified(headers, body):
    stamp = headers.get("webhook-timestamp", "")
    if not stamp.isascii() or not stamp.isdigit() or abs(time.time() - int(stamp)) > TOLERANCE:
        return False
    signed = f"{headers.get('webhook-id', '')}.{stamp}.".encode() + body
    given, good = headers.get("webhook-signature", "").split(), False
    for secret in SECRETS:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        want = b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
        good |= any([hmac.compare_digest(want, s.encode()) for s in given])
    return good


class Push(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not verified(self.headers, body):
            return self.answer(401, "failure", "the signature is not good")
        try:
            handle(self.headers["Dbcron-Kind"], json.loads(body))
            self.answer(200, "success")
        except ValueError as e:
            self.answer(410, "permanent-failure", str(e))
        except Exception as e:
            self.answer(500, "failure", repr(e))

    def answer(self, code, status, message=""):
        text = json.dumps({"status": status, "message": message}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # unfinished jobs are sent again
ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Push).serve_forever()
