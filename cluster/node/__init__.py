"""One member put together: `node` knows all rooms, `consensus_context` gives the core its settings, `member_process` runs it."""
