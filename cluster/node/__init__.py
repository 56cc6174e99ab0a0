"""One member put together: `parts` are its rooms, `consensus_context` its settings; `member_process` runs `node`."""
