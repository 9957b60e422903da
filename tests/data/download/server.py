"""A local server with typical faults, for the tests of downloads."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Files(ThreadingHTTPServer):
    """Serve `content` at every path, first with each of `faults` once, then without."""

    daemon_threads = True

    def __init__(self, content=b""):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.etag = content, '"one"'
        self.ranges, self.faults, self.seen, self.files = True, [], [], {}

    def address(self, name="file.bin"):
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked, version = self.headers.get("Range"), self.headers.get("If-Range")
        server.seen.append((asked, version))
        fault = server.faults.pop(0) if server.faults else None
        if isinstance(fault, int) and fault >= 400:
            self.send_error(fault)
            return
        content = server.files.get(self.path.partition("?")[0].strip("/"), server.content)
        start = 0
        if asked and server.ranges and version in (None, server.etag):
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            first = start if fault != "shifted" else start + 1
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if fault != "unsized":
            self.send_header("Content-Length", str(len(content) - start))
        if server.etag:
            self.send_header("ETag", server.etag)
        self.end_headers()
        body = content[start:]
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
