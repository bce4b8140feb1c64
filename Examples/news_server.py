"""The server of the example app NewsApp, with nothing but Python's own library.

    news_server.py PORT RELAY_URL        RELAY_URL is where back ends send, such as http://localhost:17080

    curl --data 'some news' http://localhost:PORT/news       sends to every app
    curl http://localhost:PORT/tokens                        how many apps there are
"""

import http.server
import sys
import threading
import urllib.parse
import urllib.request

port, relay = int(sys.argv[1]), sys.argv[2]
tokens = {}  # by prefix
lock = threading.Lock()


def call(method, token, body=None):
    """Calls the relay, and returns the number of X-Good-GNP-Code."""
    request = urllib.request.Request(f"{relay}/GNP1.0?method={method}", data=body, headers={"X-Good-GNP-Token": token})
    if body is not None:
        request.add_header("Content-Type", "text/plain; charset=utf-8")
    with urllib.request.urlopen(request, timeout=10) as response:
        return int(response.headers["X-Good-GNP-Code"].split()[0])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path == "/register":
            self.register(body.decode())
        elif self.path == "/ping":
            # The relay asks which of these tokens are known, by their prefixes.
            with lock:
                known = [prefix for prefix in body.decode().split(",") if prefix.strip() in tokens]
            self.answer(200, ",".join(known), {"X-Good-GNP-Code": "100 OK"})
        elif self.path == "/news":
            with lock:
                receivers = list(tokens.values())
            results = [call("notify", token, body) for token in receivers]
            for token, result in zip(receivers, results):
                if result == 402:  # The token is dead. 403 says that the app cannot be reached now.
                    self.forget(token)
            self.answer(200, f"sent to {results.count(100)} of {len(results)}\n")
        else:
            self.answer(404, "")

    def do_GET(self):
        if self.path == "/gone":
            self.forget(self.headers["X-Good-GNP-Token"])
            self.answer(200, "")
        elif self.path == "/tokens":
            self.answer(200, f"{len(tokens)}\n")
        else:
            self.answer(404, "")

    def register(self, token):
        ping, gone = (urllib.parse.quote(f"http://localhost:{port}/{path}", safe="") for path in ("ping", "gone"))
        code = call(f"checkToken&pingURL={ping}&disconnectURL={gone}", token)
        # 403: the token is good, and the app is not connected at the moment.
        if code in (100, 403):
            with lock:
                tokens[" ".join(token.split(" ")[:3])] = token
        self.answer(200 if code in (100, 403) else 400, f"{code}\n")

    def forget(self, token):
        with lock:
            tokens.pop(" ".join(token.split(" ")[:3]), None)

    def answer(self, status, text, headers={}):
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "text/plain", "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
