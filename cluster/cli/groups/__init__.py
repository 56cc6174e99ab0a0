"""One process for each group behind one command: `supervisor` keeps them, `trimaran node --groups N`."""
