"""Traffic of clients: closed and open loops over one session or many, the process that makes it, and its harness."""
