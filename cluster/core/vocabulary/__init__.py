"""The words of the core: members, configurations, states, reasons, clocks, timers, terms, levels."""
