"""Receive webhooks on a free port of this machine, whose address is the first line printed."""

import http.server


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()


with http.server.HTTPServer(("127.0.0.1", 0), Receiver) as server:
    print(f"http://127.0.0.1:{server.server_port}/hook", flush=True)
    server.serve_forever()
