"""The shell around every command: flags, help, logs, and errors told in one line."""
