"""The `plrvo` command: one module per command, no mathematics."""
