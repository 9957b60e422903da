"""A local server with typical faults, for the tests of downloads."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Files(ThreadingHTTPServer):
    """Serve `content` at every path, first with each of `faults` once, then without."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.ranges, self.faults, self.seen = b"", True, [], []

    def address(self, name="file.bin"):
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.seen.append(asked)
        fault = server.faults.pop(0) if server.faults else None
        if isinstance(fault, int):
            self.send_error(fault)
            return
        start = 0
        if asked and server.ranges:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        body = server.content[start:]
        self.send_response(206 if start else 200)
        if fault != "unsized":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if isinstance(fault, tuple):  # ("cut", bytes): close after this many
            body = body[: fault[1]]
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *args):
        pass


@contextmanager
def serving():
    """A running server, stopped when the block ends."""
    server = Files()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
