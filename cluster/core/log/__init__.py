"""The log in the core: window, publisher, receiver, and the recording log."""
