"""The web page of the job scheduler: see job_scheduler.py."""

from __future__ import annotations

from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

from examples.job_scheduler import SchedulerClient

PAGE = """<!doctype html><meta http-equiv=refresh content=5><h1>Jobs</h1>
<table border=1><tr><th>job<th>task<th>every<th>stage<th>runs<th>last result</tr>{rows}</table>
<form method=post>
New: <input name=name> <input name=task value=disk> every <input name=every_s value=5> s <button>Add</button>
</form>"""
ROW = "<tr><td>{}<td>{}<td>{} s<td>{}<td>{}<td>{}</tr>"


class JobPage(BaseHTTPRequestHandler):
    """Lists jobs, and takes new ones."""

    client: SchedulerClient

    def do_GET(self) -> None:
        """List the jobs."""
        jobs = [(j.name, j.task, j.every_s, j.stage, j.run_count, j.result) for j in self.client.list_jobs()]
        rows = "".join(ROW.format(*(escape(str(cell)) for cell in job)) for job in jobs)
        self._send(200, PAGE.format(rows=rows))

    def do_POST(self) -> None:
        """Add a job."""
        form = dict(parse_qsl(self.rfile.read(min(int(self.headers["Content-Length"]), 4_096)).decode()))
        every_s = form.get("every_s", "")
        is_added = every_s.isdecimal() and self.client.add(form.get("name", ""), form.get("task", ""), float(every_s))
        self._send(303 if is_added else 400, "" if is_added else "no such task, a name that is taken, or no seconds")

    def _send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Location", "/")
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    with SchedulerClient.connect(["127.0.0.1:9000", "127.0.0.1:9010", "127.0.0.1:9020"]) as JobPage.client:
        ThreadingHTTPServer(("127.0.0.1", 8000), JobPage).serve_forever()
