"""One member put together: `node` knows all rooms, `consensus_context` its settings, `member_process` runs it."""
